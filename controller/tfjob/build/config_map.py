"""The body of a ConfigMap that brings pods a long cluster specification. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.tfjob.build.labels import labels_of_all
from tfjob_operator.controller.tfjob.build.references import owner_reference

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.controller.tfjob.build.tf_config import ClusterSpec


def config_map_name(job: str, digest: str) -> str:
    """Return the name of the ConfigMap of this hash."""
    return f"{job}-cluster-{digest}"


def build_config_map(job: ObjectMeta, cluster: ClusterSpec, digest: str) -> dict[str, Any]:
    """Return the ConfigMap of this hash, as it is sent to the API server.

    If the job was scaled since pods of another hash were made, and theirs was deleted, then nobody knows any more what was in
    it: they find what is true now.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_map_name(job.name, digest),
            "labels": labels_of_all(job),
            "ownerReferences": [owner_reference(job)],
        },
        "immutable": True,
        "data": {c.CLUSTER_KEY: cluster.text},
    }
