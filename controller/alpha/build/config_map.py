"""The body of the ConfigMap with the program of parameter servers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfjob_operator.api.owners import controller_reference
from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.controller.alpha.build.labels import labels_of_all
from tfjob_operator.controller.alpha.build.server_script import SCRIPT
from tfjob_operator.controller.alpha.children import config_map_name

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1alpha1.constants import Dialect


def build_config_map(dialect: Dialect, job: ObjectMeta, runtime_id: str) -> dict[str, Any]:
    """Return the ConfigMap of a job that has parameter servers without a container of their own."""
    labels = {dialect.label: "", c.LABEL_RUNTIME_ID: runtime_id, c.LABEL_JOB_NAME: job.name}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_map_name(runtime_id),
            "labels": labels | labels_of_all(job),
            "ownerReferences": [controller_reference(dialect.resource, job)],
        },
        "data": {c.SERVER_FILE: SCRIPT},
    }
