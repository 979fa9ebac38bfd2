"""Controllers declared in a few lines: an `App` owns the wiring, and a `Request` reads and writes for one object.

    app = App("settings-controller")

    @app.controller(Deployment, owns=[ConfigMap])
    async def sync(request: Request[Deployment]) -> None:
        await request.apply(ConfigMap, {"metadata": {"name": f"{request.name}-settings"}, "data": {"of": request.name}})

`app.main()` runs it.
"""

from __future__ import annotations

from tfjob_operator.api.kinds import (
    Condition,
    ConfigMap,
    Deployment,
    Job,
    Kind,
    Metadata,
    Namespace,
    Node,
    PersistentVolumeClaim,
    Pod,
    Secret,
    Service,
    StatefulSet,
    is_true,
)
from tfjob_operator.api.meta import Resource, Struct
from tfjob_operator.controller.framework.app import App, References, Watches
from tfjob_operator.controller.framework.request import NotOwnedError, Request
from tfjob_operator.controller.leaderelection import Election
from tfjob_operator.controller.manager import (
    RequeueError,
    Result,
    TerminalError,
    all_of,
    any_of,
    generation_changed,
    has_labels,
    labels_changed,
    none_of,
)

__all__ = [
    "App",
    "Condition",
    "ConfigMap",
    "Deployment",
    "Election",
    "Job",
    "Kind",
    "Metadata",
    "Namespace",
    "Node",
    "NotOwnedError",
    "PersistentVolumeClaim",
    "Pod",
    "References",
    "Request",
    "RequeueError",
    "Resource",
    "Result",
    "Secret",
    "Service",
    "StatefulSet",
    "Struct",
    "TerminalError",
    "Watches",
    "all_of",
    "any_of",
    "generation_changed",
    "has_labels",
    "is_true",
    "labels_changed",
    "none_of",
]
