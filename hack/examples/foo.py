"""A complete controller: each Foo runs a Deployment, and reports its state.

It has a status with a condition, a finalizer, events, leader election and metrics. docs/write-a-controller.md explains it.
"""

from typing import Any

from kubecontrollers import App, Condition, Deployment, Election, Kind, Request, Resource, Struct, is_true


class FooSpec(Struct, frozen=True):
    """What a user asks for."""

    deployment_name: str
    replicas: int = 1


class FooStatus(Struct, frozen=True):
    """What the controller reports."""

    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Foo(Kind, frozen=True):
    """The custom resource of sample-controller."""

    resource = Resource("samplecontroller.k8s.io", "v1alpha1", "foos", "Foo")
    spec: FooSpec
    status: FooStatus | None = None


app = App("foo-controller", election=Election("default", "foo-controller"), monitoring_port=8081)


@app.controller(Foo, owns=[Deployment])
async def sync(request: Request[Foo]) -> None:
    """Move one Foo closer to its spec."""

    async def clean_up() -> None:
        request.event("CleanedUp", "Foo is being deleted")

    if await request.finalizer("samplecontroller.k8s.io/foo", clean_up):
        return
    foo = request.object
    deployment = await request.apply(Deployment, deployment_of(foo))
    available = deployment.status.available_replicas
    is_ready = available == foo.spec.replicas
    ready = Condition(
        type="Ready",
        status="True" if is_ready else "False",
        reason="Available" if is_ready else "Progressing",
        message=f"{available} of {foo.spec.replicas} replicas are available",
        observed_generation=foo.metadata.generation,
    )
    await request.status(FooStatus(available_replicas=available, conditions=(ready,)))
    if is_ready and not (foo.status is not None and is_true(foo.status.conditions, "Ready")):
        request.event("Ready", ready.message)  # once, not at each sync


def deployment_of(foo: Foo) -> dict[str, Any]:
    """Return the fields of the Deployment that the controller manages."""
    labels = {"app": "nginx", "controller": foo.metadata.name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "nginx", "image": "nginx:latest"}]}}
    spec = {"replicas": foo.spec.replicas, "selector": {"matchLabels": labels}, "template": pod}
    return {"metadata": {"name": foo.spec.deployment_name}, "spec": spec}


if __name__ == "__main__":
    app.main()
