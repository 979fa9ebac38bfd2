"""The body of a replica's service in the alpha dialect. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfjob_operator.api.owners import controller_reference
from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.controller.alpha.build.labels import labels_of, selector_of

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1alpha1.constants import Dialect
    from tfjob_operator.api.v1alpha1.types import AlphaSpec
    from tfjob_operator.controller.jobs.children import ReplicaKey


def build_service(
    dialect: Dialect, job: ObjectMeta, spec: AlphaSpec, runtime_id: str, key: ReplicaKey
) -> dict[str, Any]:
    """Return the service that gives a replica its name in DNS and, as with earlier operators, a cluster IP.

    It is published before the pod is ready, since replicas look for each other while they start.
    """
    port = next(each.port for each in spec.replicas if each.type == key.type)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": key.name,
            "labels": labels_of(dialect, job, runtime_id, key, spec.chief),
            "ownerReferences": [controller_reference(dialect.resource, job)],
        },
        "spec": {
            "publishNotReadyAddresses": True,
            "selector": selector_of(dialect, job, runtime_id, key),
            "ports": [{"name": c.PORT_NAME, "port": port}],
        },
    }
