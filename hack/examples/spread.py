"""A controller with children in other namespaces: each Spread keeps a ConfigMap of its name in each of its namespaces."""

from collections.abc import Mapping
from typing import Any

from kubecontrollers import App, ConfigMap, Kind, Namespace, References, Request, Resource, Result, Struct, Watches
from kubecontrollers.api.client import ListOptions

OWNER = "example.com/owner"
"""Label of a child: the UID of its Spread."""
OWNER_KEY = "example.com/owner-key"
"""Annotation of a child: namespace and name of its Spread, which are too long for a label."""


class SpreadSpec(Struct, frozen=True):
    """What a user asks for."""

    namespaces: tuple[str, ...]
    data: Mapping[str, str]


class Spread(Kind, frozen=True):
    """The custom resource."""

    resource = Resource("example.com", "v1", "spreads", "Spread")
    spec: SpreadSpec


class Children(Struct, frozen=True):
    """A list of ConfigMaps as the API server returns it."""

    items: tuple[ConfigMap, ...]


def key_of_owner(child: ConfigMap) -> str | None:
    """Return the key of the Spread to sync when this ConfigMap changes."""
    return (child.metadata.annotations or {}).get(OWNER_KEY)


app = App("spread-controller")


@app.controller(
    Spread, watches=[Watches(ConfigMap, key_of_owner), References(Namespace, lambda spread: spread.spec.namespaces)]
)
async def sync(request: Request[Spread]) -> Result | None:
    """Make the children equal to the spec."""
    spread, uid = request.object, request.object.metadata.uid

    async def clean_up() -> None:
        # From the server: the cache may not show a child that was created a moment ago.
        options = ListOptions(label_selector=f"{OWNER}={uid}")
        for child in (await request.client.list_page(ConfigMap.resource, options, Children)).items:
            await request.delete(child)

    if await request.finalizer("example.com/spread", clean_up):
        return None
    is_blocked = False
    for namespace in spread.spec.namespaces:
        child, place = request.get(ConfigMap, request.name, namespace), request.get(Namespace, namespace)
        if place is None or place.status.phase == "Terminating":
            request.event("NamespaceMissing", f"Namespace {namespace} does not exist", warning=True)
        elif child is None:
            await request.client.create(ConfigMap.resource, namespace, child_of(spread, request.key))
        elif not is_child(child, uid):
            request.event("ErrResourceExists", f"{namespace}/{request.name} belongs to somebody else", warning=True)
            is_blocked = True
        elif (child.data or {}) != spread.spec.data or key_of_owner(child) != request.key:
            version = {"resourceVersion": child.metadata.resource_version}  # so that a stale write is rejected
            data = {**dict.fromkeys(child.data or {}), **spread.spec.data}  # null removes a key
            body = {"metadata": version | {"annotations": {OWNER_KEY: request.key}}, "data": data}
            await request.client.patch(ConfigMap.resource, namespace, request.name, body)
    for child in request.list(ConfigMap, ""):
        if is_child(child, uid) and child.metadata.namespace not in spread.spec.namespaces:
            await request.delete(child)
    return Result(requeue_after_s=60) if is_blocked else None


def is_child(item: ConfigMap, uid: str) -> bool:
    """Return True if the Spread with this UID has created a ConfigMap."""
    return (item.metadata.labels or {}).get(OWNER) == uid


def child_of(spread: Spread, key: str) -> dict[str, Any]:
    """Return the ConfigMap to create."""
    metadata = {"labels": {OWNER: spread.metadata.uid}, "annotations": {OWNER_KEY: key}}
    return {"metadata": {"name": spread.metadata.name} | metadata, "data": dict(spread.spec.data)}


if __name__ == "__main__":
    app.main()
