"""The body of a replica's Job in the alpha dialect, made from the user's template. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.owners import controller_reference
from tfjob_operator.api.v1 import constants as v1
from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.api.v1alpha1.templates import templates_of
from tfjob_operator.controller.alpha.build.cluster import hosts_of, server_arguments, tf_config
from tfjob_operator.controller.alpha.build.labels import labels_of
from tfjob_operator.controller.alpha.children import JOBS, config_map_name
from tfjob_operator.controller.config.accelerators import with_accelerators

if TYPE_CHECKING:
    from tfjob_operator.api.meta import JSON
    from tfjob_operator.api.v1alpha1.constants import Dialect
    from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaReplicas, AlphaSpec
    from tfjob_operator.controller.config.values import Accelerators
    from tfjob_operator.controller.jobs.children import ReplicaKey

NO_LIMIT: Final = 2**31 - 1
"""The largest backoffLimit. When the alpha APIs were made there was none, so the Job controller must never give up; this
operator itself recognizes permanent failures."""

_COPIED_METADATA: Final = ("annotations", "finalizers")
_OF_THE_JOB_CONTROLLER: Final = frozenset(
    f"{prefix}{name}" for prefix in ("", "batch.kubernetes.io/") for name in ("job-name", "controller-uid")
)
"""Labels that the API server gives to the pods of a Job; it refuses a template that has others."""


class JobBuilder:
    """Makes the Jobs of one job. Templates are shared between them and never changed."""

    def __init__(
        self,
        dialect: Dialect,
        job: AlphaJob,
        spec: AlphaSpec,
        runtime_id: str,
        *,
        accelerators: Accelerators | None = None,
    ) -> None:
        """`accelerators` says what containers get that ask for one of these resources."""
        self._dialect = dialect
        self._accelerators = accelerators
        self._job = job.metadata
        self._spec = spec
        self._runtime_id = runtime_id
        self._replicas = {each.type.value: each for each in spec.replicas}
        self._templates: dict[str, JSON] = {kind.value: each for kind, each in templates_of(dialect, job.spec).items()}
        self._hosts = hosts_of(spec, runtime_id)

    def build(self, key: ReplicaKey) -> dict[str, Any]:
        """Return the Job of one replica: one pod, made again for as long as it fails."""
        labels = labels_of(self._dialect, self._job, self._runtime_id, key, self._spec.chief)
        template = self._pod_template(key, labels)
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {
                "name": key.name,
                "labels": labels,
                "ownerReferences": [controller_reference(self._dialect.resource, self._job)],
            },
            "spec": {"completions": 1, "parallelism": 1, "backoffLimit": NO_LIMIT, "template": template},
        }

    def _pod_template(self, key: ReplicaKey, labels: dict[str, str]) -> dict[str, Any]:
        replicas, template = self._replicas[key.type], self._templates[key.type]
        own: Any = template.get("metadata") or {}
        metadata = {name: own[name] for name in _COPIED_METADATA if own.get(name)}
        kept = {name: value for name, value in (own.get("labels") or {}).items() if name not in _OF_THE_JOB_CONTROLLER}
        spec: Any = dict(template.get("spec") or {})  # type: ignore[call-overload]
        containers = list(spec.get("containers") or [])
        if replicas.gets_server:
            containers.append(self._server(key))
            source = {"name": c.SERVER_VOLUME, "configMap": {"name": config_map_name(self._runtime_id)}}
            spec["volumes"] = [*(spec.get("volumes") or []), source]
        spec["containers"] = [self._with_tf_config(container, replicas, key) for container in containers]
        spec["restartPolicy"] = replicas.restart_policy
        if self._spec.scheduler_name:
            spec["schedulerName"] = self._spec.scheduler_name
        return {"metadata": metadata | {"labels": kept | labels}, "spec": with_accelerators(spec, self._accelerators)}

    def _server(self, key: ReplicaKey) -> dict[str, Any]:
        """Return the container of a standard parameter server."""
        program = f"{c.SERVER_FOLDER}/{c.SERVER_FILE}"
        return {
            "name": v1.CONTAINER_NAME,
            "image": self._spec.image,
            "command": ["python", program, *server_arguments(self._hosts, key)],
            "volumeMounts": [{"name": c.SERVER_VOLUME, "mountPath": c.SERVER_FOLDER}],
        }

    def _with_tf_config(self, container: dict[str, Any], replicas: AlphaReplicas, key: ReplicaKey) -> dict[str, Any]:
        if container.get("name") != v1.CONTAINER_NAME or replicas.sets_tf_config:
            return container
        variable = {"name": v1.TF_CONFIG, "value": tf_config(self._hosts, key)}
        return container | {"env": [*(container.get("env") or []), variable]}
