"""The body of a replica's pod, made from the user's template. Pure.

The template passes through unread but for what we add: name, labels, owner, restart policy, what accelerators need, the port,
TF_CONFIG. It is shared by all pods of a replica type and never changed: every body is a new object along the paths that differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.pod_requests import object_in
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import Network, RestartPolicy
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.controller.config.accelerators import with_accelerators
from tfjob_operator.controller.tfjob.build.config_map import config_map_name
from tfjob_operator.controller.tfjob.build.labels import labels_of
from tfjob_operator.controller.tfjob.build.references import owner_reference
from tfjob_operator.controller.tfjob.build.tf_config import ClusterSpec

if TYPE_CHECKING:
    from tfjob_operator.api.v1.types import TFJob, TFJobSpec
    from tfjob_operator.controller.config.values import Accelerators
    from tfjob_operator.controller.jobs.children import ReplicaKey
    from tfjob_operator.controller.tfjob.build.gang_scheduler import GangScheduler

_COPIED_METADATA: Final = ("annotations", "finalizers")


class PodBuilder:
    """Builds the pods of one job, as they are sent to the API server.

    What all pods have in common is made once: the decoded templates, and the cluster specification.
    """

    def __init__(
        self,
        job: TFJob,
        spec: TFJobSpec,
        *,
        domain: str = "",
        gang: GangScheduler | None = None,
        accelerators: Accelerators | None = None,
    ) -> None:
        """`domain` is the cluster's DNS domain where TF_CONFIG needs it; `gang` the gang scheduler in use, if there is one."""
        self._job = job.metadata
        self._spec = spec
        self._gang = gang
        self._templates = templates_of(job.spec)
        if accelerators:
            self._templates = {
                name: {**template, "spec": with_accelerators(object_in(template, "spec"), accelerators)}
                for name, template in self._templates.items()
            }
        self.cluster = ClusterSpec(job.metadata, spec, domain)

    def build(self, key: ReplicaKey) -> dict[str, Any]:
        """Return the pod of one replica."""
        replica = self._spec.replicas[key.type]
        template: Any = self._templates[key.type]
        own = template.get("metadata") or {}
        metadata = {name: own[name] for name in _COPIED_METADATA if own.get(name)}
        labels = labels_of(self._job, self._spec, key) | {c.LABEL_RESTART_POLICY: replica.restart_policy}
        metadata |= {
            "name": key.name,
            "labels": (own.get("labels") or {}) | labels,
            "ownerReferences": [owner_reference(self._job)],
        }
        containers = [
            self._training_container(container, key) if container["name"] == c.CONTAINER_NAME else container
            for container in template["spec"]["containers"]
        ]
        policy = RestartPolicy.NEVER if replica.restart_policy == RestartPolicy.EXIT_CODE else replica.restart_policy
        pod_spec = template["spec"] | {"containers": containers, "restartPolicy": policy}
        if self._spec.network is Network.SHARED:
            pod_spec |= {"hostname": key.name, "subdomain": self._job.name}
        if self.cluster.is_shared_with(key.type):
            metadata["labels"][c.LABEL_CLUSTER_SPEC] = self.cluster.digest
        if self._gang is not None:
            metadata["labels"] |= self._gang.pod_labels(self._job.name)
            if annotations := self._gang.pod_annotations(self._job.name, key.type):
                metadata["annotations"] = (own.get("annotations") or {}) | annotations
            pod_spec["schedulerName"] = pod_spec.get("schedulerName") or self._gang.name
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}

    def _training_container(self, container: dict[str, Any], key: ReplicaKey) -> dict[str, Any]:
        ports = list(container.get("ports") or [])
        present = {port.get("name") for port in ports}
        facts = self._spec.replicas[key.type].template
        ports += [{"name": port.name, "containerPort": port.number} for port in facts.ports if port.name not in present]
        changed = container | {"ports": ports}
        # A user who sets TF_CONFIG means it: theirs stays the only one.
        if not self.cluster.is_alone and c.TF_CONFIG not in facts.sets:
            changed["env"] = [*(container.get("env") or []), *self._variables(key)]
        return changed

    def _variables(self, key: ReplicaKey) -> list[dict[str, Any]]:
        """Return the variables: TF_CONFIG, and before it the cluster if that is in a ConfigMap.

        The kubelet expands the reference in TF_CONFIG because it comes first.
        """
        if not self.cluster.is_shared_with(key.type):
            return [{"name": c.TF_CONFIG, "value": self.cluster.tf_config(key.type, key.index)}]
        source = {"name": config_map_name(self._job.name, self.cluster.digest), "key": c.CLUSTER_KEY}
        config = self.cluster.tf_config_with(f"$({c.CLUSTER_VARIABLE})", key.type, key.index)
        return [
            {"name": c.CLUSTER_VARIABLE, "valueFrom": {"configMapKeyRef": source}},
            {"name": c.TF_CONFIG, "value": config},
        ]
