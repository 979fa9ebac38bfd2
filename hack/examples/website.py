"""A Deployment and a DNS record for each Website, with kubecontrollers: `python website.py`.

The record is a ConfigMap in the namespace `dns`, which cannot have an owner in another namespace: hence the finalizer.
"""

from kubecontrollers import App, Condition, ConfigMap, Deployment, Kind, Request, Resource, Struct, Watches
from kubecontrollers.api.client.errors import NotFoundError


class WebsiteSpec(Struct, frozen=True):
    image: str
    replicas: int = 1


class WebsiteStatus(Struct, frozen=True):
    ready_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Website(Kind, frozen=True):
    resource = Resource("example.com", "v1", "websites", "Website")
    spec: WebsiteSpec
    status: WebsiteStatus | None = None


def key_of_website(record: ConfigMap) -> str | None:
    """Return the key of the Website to sync when its record changes: `default.blog` is the record of `default/blog`."""
    meta = record.metadata
    return meta.name.replace(".", "/", 1) if meta.namespace == "dns" and "." in meta.name else None


app = App("website-operator")


@app.controller(Website, owns=[Deployment], watches=[Watches(ConfigMap, key_of_website)])
async def sync(request: Request[Website]) -> None:
    spec, labels = request.object.spec, {"website": request.name}
    record, mark = f"{request.namespace}.{request.name}", {"website-uid": request.object.metadata.uid}

    async def find() -> tuple[ConfigMap | None, bool]:
        """Return the object with the name of the record, and True if it is that of this Website."""
        try:
            found = await request.client.get(ConfigMap.resource, "dns", record, ConfigMap)
        except NotFoundError:
            return None, False
        return found, (found.metadata.labels or {}).items() >= mark.items()

    async def clean_up() -> None:
        found, is_ours = await find()
        if found is not None and is_ours:
            await request.client.delete(ConfigMap.resource, "dns", record, uid=found.metadata.uid)
        elif found is not None:
            request.event("RecordLeft", f"ConfigMap dns/{record} stays: it belongs to somebody else", warning=True)

    if await request.finalizer("example.com/dns", clean_up):
        return
    is_new = request.get(Deployment, request.name) is None
    deployment = await request.apply(
        Deployment,
        {
            "metadata": {"name": request.name, "labels": labels},
            "spec": {
                "replicas": spec.replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "web", "image": spec.image}]},
                },
            },
        },
    )
    if is_new:
        request.event("Created", f"Created Deployment {request.name}")
    found, is_ours = await find()
    if found is None:
        await request.client.create(ConfigMap.resource, "dns", {"metadata": {"name": record, "labels": mark}})
    elif not is_ours:
        request.event("ErrResourceExists", f"ConfigMap dns/{record} belongs to somebody else", warning=True)
    has_record = found is None or is_ours
    ready = deployment.status.ready_replicas
    is_ready, reason = ready == spec.replicas and has_record, "Replicas" if has_record else "ErrResourceExists"
    await request.status(WebsiteStatus(ready, (Condition("Ready", str(is_ready), reason),)))


if __name__ == "__main__":
    app.main()
