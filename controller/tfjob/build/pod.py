"""The bodies of a replica's pod and service, made from the user's template. Pure.

The template passes through unread but for what we add: name, labels, owner, restart policy, the port and TF_CONFIG. It is
shared by all pods of a replica type and never changed: every body is a new object along the paths that differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import RestartPolicy
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.controller.tfjob.build.tf_config import ClusterSpec, config_map_name
from tfjob_operator.controller.tfjob.decide.verdict import deciding_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import Port, ReplicaSpec, TFJob, TFJobSpec
    from tfjob_operator.controller.tfjob.decide.actions import Slot
    from tfjob_operator.controller.tfjob.decide.gang import GangScheduler

_COPIED_METADATA: Final = ("annotations", "finalizers")


class PodBuilder:
    """Makes the pods of one job, as they are sent to the API server.

    What they have in common is made once: the templates are decoded, and the cluster specification is put together.
    """

    def __init__(self, job: TFJob, spec: TFJobSpec, *, domain: str = "", gang: GangScheduler | None = None) -> None:
        """`domain` is the cluster's DNS domain where TF_CONFIG needs it; `gang` the gang scheduler in use, if there is one."""
        self._job = job.metadata
        self._spec = spec
        self._gang = gang
        self._templates = templates_of(job.spec)
        self.cluster = ClusterSpec(job.metadata, spec, domain)

    def build(self, slot: Slot) -> dict[str, Any]:
        """The pod of one replica."""
        replica = self._spec.replicas[slot.type]
        template: Any = self._templates[slot.type]
        own = template.get("metadata") or {}
        metadata = {name: own[name] for name in _COPIED_METADATA if own.get(name)}
        labels = labels_of(self._job, self._spec, slot) | {c.LABEL_RESTART_POLICY: replica.restart_policy}
        metadata |= {
            "name": slot.name,
            "labels": (own.get("labels") or {}) | labels,
            "ownerReferences": [owner_reference(self._job)],
        }
        containers = [
            self._training_container(container, slot) if container["name"] == c.CONTAINER_NAME else container
            for container in template["spec"]["containers"]
        ]
        policy = RestartPolicy.NEVER if replica.restart_policy == RestartPolicy.EXIT_CODE else replica.restart_policy
        pod_spec = template["spec"] | {"containers": containers, "restartPolicy": policy}
        if self.cluster.is_shared_with(slot.type):
            metadata["labels"][c.LABEL_CLUSTER_SPEC] = self.cluster.digest
        if self._gang is not None:
            metadata["labels"] |= self._gang.pod_labels(self._job.name)
            if annotations := self._gang.pod_annotations(self._job.name, slot.type):
                metadata["annotations"] = (own.get("annotations") or {}) | annotations
            pod_spec["schedulerName"] = pod_spec.get("schedulerName") or self._gang.name
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}

    def _training_container(self, container: dict[str, Any], slot: Slot) -> dict[str, Any]:
        ports = list(container.get("ports") or [])
        present = {port.get("name") for port in ports}
        facts = self._spec.replicas[slot.type].template
        ports += [{"name": port.name, "containerPort": port.number} for port in facts.ports if port.name not in present]
        changed = container | {"ports": ports}
        # A user who sets TF_CONFIG means it: theirs stays the only one.
        if not self.cluster.is_alone and c.TF_CONFIG not in facts.sets:
            changed["env"] = [*(container.get("env") or []), *self._variables(slot)]
        return changed

    def _variables(self, slot: Slot) -> list[dict[str, Any]]:
        """TF_CONFIG, or a reference to the cluster and TF_CONFIG around it, which the kubelet puts together in this order."""
        if not self.cluster.is_shared_with(slot.type):
            return [{"name": c.TF_CONFIG, "value": self.cluster.tf_config(slot.type, slot.index)}]
        source = {"name": config_map_name(self._job.name, self.cluster.digest), "key": c.CLUSTER_KEY}
        config = self.cluster.tf_config_with(f"$({c.CLUSTER_VARIABLE})", slot.type, slot.index)
        return [
            {"name": c.CLUSTER_VARIABLE, "valueFrom": {"configMapKeyRef": source}},
            {"name": c.TF_CONFIG, "value": config},
        ]


def build_service(job: ObjectMeta, spec: TFJobSpec, slot: Slot) -> dict[str, Any]:
    """The headless service that gives one replica its stable DNS name, published before the pod is ready (B63)."""
    labels = labels_of(job, spec, slot)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": slot.name, "labels": labels, "ownerReferences": [owner_reference(job)]},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector_of(labels),
            "ports": _service_ports(spec.replicas[slot.type]),
        },
    }


def _service_ports(replica: ReplicaSpec) -> list[dict[str, Any]]:
    """The named ports, each number once for a protocol: a service may not have two names for it, as a container may.

    Of several names `tfjob-port` stays, by which TensorFlow is looked for, else the first.
    """
    ports = replica.template.ports
    chosen: dict[tuple[int, str], Port] = {}
    for port in ports:
        place = port.number, port.protocol
        if place not in chosen or port.name == c.PORT_NAME:
            chosen[place] = port
    return [
        {"name": port.name, "port": port.number} | ({"protocol": port.protocol} if port.protocol != c.TCP else {})
        for port in ports
        if chosen[port.number, port.protocol] is port
    ]


def selector_of(labels: Mapping[str, str]) -> dict[str, str]:
    """How a service selects the pod of a replica, whose labels are those of the service."""
    return {name: labels[name] for name in c.SELECTING_LABELS}


def labels_of(job: ObjectMeta, spec: TFJobSpec, slot: Slot) -> dict[str, str]:
    """Our labels on a child, in both families. They win over the template's."""
    labels = labels_of_all(job)
    for old, name, value in (
        (c.LABEL_TF_REPLICA_TYPE, c.LABEL_REPLICA_TYPE, slot.type.lower()),
        (c.LABEL_TF_REPLICA_INDEX, c.LABEL_REPLICA_INDEX, str(slot.index)),
    ):
        labels[name] = labels[old] = labels[c.LABEL_PREFIX + name] = value
    if slot.index == 0 and slot.type == deciding_type(spec.replicas):
        labels[c.LABEL_JOB_ROLE] = labels[c.LABEL_PREFIX + c.LABEL_JOB_ROLE] = c.ROLE_MASTER
    return labels


def labels_of_all(job: ObjectMeta) -> dict[str, str]:
    """The labels that all children of a job have, whatever they are."""
    return {
        c.LABEL_GROUP_NAME: c.GROUP_NAME,
        c.LABEL_JOB_NAME: job.name,
        c.LABEL_TF_JOB_NAME: job.name,
        c.LABEL_CONTROLLER_NAME: c.CONTROLLER_NAME,
        c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME,
        c.LABEL_PREFIX + c.LABEL_JOB_NAME: job.name,
    }


def owner_reference(job: ObjectMeta) -> dict[str, Any]:
    """The controller reference that makes a child ours, and lets the garbage collector take it with the job (RM-04)."""
    return {
        "apiVersion": c.TFJOBS.api_version,
        "kind": c.TFJOBS.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
