"""Builds a TFJob's children: pods, services, ConfigMaps and PodGroups, with labels and owner references. Pure.

Pod templates are passed through unparsed except for additions: name, labels, owner, restart policy, accelerators, the port,
TF_CONFIG. A template is shared by all pods of a replica type and never modified: each manifest copies only the paths that
differ. A service gives a replica, or all replicas of a job, a DNS name. A ConfigMap holds a large cluster spec. A PodGroup
specifies the minimum resources that the pods need.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tfjob_operator.api.core import COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS
from tfjob_operator.api.meta import JSON, ObjectMeta, Resource, controller_reference
from tfjob_operator.api.resources import format_quantity, object_in, pod_requests
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import TFJOBS, Network, RestartPolicy
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.api.v1.tf_config import ClusterSpec
from tfjob_operator.api.v1.types import Port, ReplicaSpec, TFJob, TFJobSpec, execution_of
from tfjob_operator.controller.config.values import Accelerators, with_accelerators
from tfjob_operator.controller.jobs.children import PodGroup, ReplicaKey


def deciding_type(specs: Mapping[str, ReplicaSpec]) -> str | None:
    """Return the type that determines the job's outcome: chief or master if present, else worker; None if all types do."""
    for name in (*c.CHIEF_TYPES, c.WORKER):
        if name in specs and specs[name].replicas > 0:
            return name
    return None


def selector_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the selector of a service with these labels; the pods of the service have the same labels."""
    return {name: labels[name] for name in c.SELECTING_LABELS if name in labels}


def labels_of(job: ObjectMeta, spec: TFJobSpec, key: ReplicaKey) -> dict[str, str]:
    """Return our labels for a child, with and without prefix. They override the template's."""
    labels = labels_of_all(job)
    if not key.type:
        return labels  # the service of the whole job
    for old, name, value in (
        (c.LABEL_TF_REPLICA_TYPE, c.LABEL_REPLICA_TYPE, key.type.lower()),
        (c.LABEL_TF_REPLICA_INDEX, c.LABEL_REPLICA_INDEX, str(key.index)),
    ):
        labels[name] = labels[old] = labels[c.LABEL_PREFIX + name] = value
    if key.index == 0 and key.type == deciding_type(spec.replicas):
        labels[c.LABEL_JOB_ROLE] = labels[c.LABEL_PREFIX + c.LABEL_JOB_ROLE] = c.ROLE_MASTER
    return labels


def labels_of_all(job: ObjectMeta) -> dict[str, str]:
    """Return the labels common to all children of a job, of any kind."""
    return {
        c.LABEL_GROUP_NAME: c.GROUP_NAME,
        c.LABEL_JOB_NAME: job.name,
        c.LABEL_TF_JOB_NAME: job.name,
        c.LABEL_CONTROLLER_NAME: c.CONTROLLER_NAME,
        c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME,
        c.LABEL_PREFIX + c.LABEL_JOB_NAME: job.name,
    }


def owner_reference(job: ObjectMeta) -> dict[str, Any]:
    """Return the controller reference to the job, by which the garbage collector deletes the child."""
    return controller_reference(TFJOBS, job)


def build_service(job: ObjectMeta, spec: TFJobSpec, key: ReplicaKey) -> dict[str, Any]:
    """Return the headless service of a replica, or of a job with a shared network; it publishes not-ready pods."""
    labels = labels_of(job, spec, key)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": key.name, "labels": labels, "ownerReferences": [owner_reference(job)]},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector_of(labels),
            "ports": _service_ports(spec.replicas[key.type]) if key.type else _ports_of_all(spec),
        },
    }


def _ports_of_all(spec: TFJobSpec) -> list[dict[str, Any]]:
    """Return the ports of all replicas, each number once per protocol. The number is appended to duplicate names."""
    ports: list[dict[str, Any]] = []
    for replica in spec.replicas.values():
        for port in _service_ports(replica):
            if any(_place(port) == _place(each) for each in ports):
                continue
            if any(port["name"] == each["name"] for each in ports):
                port["name"] = f"{port['name']}-{port['port']}"
            ports.append(port)
    return ports


def _place(port: dict[str, Any]) -> tuple[int, str]:
    return port["port"], port.get("protocol", c.TCP)


def _service_ports(replica: ReplicaSpec) -> list[dict[str, Any]]:
    """Return the named ports. Services allow a number once per protocol: `tfjob-port` is preferred, else the first name."""
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


def config_map_name(job: str, digest: str) -> str:
    """Return the name of the ConfigMap with this hash."""
    return f"{job}-cluster-{digest}"


def build_config_map(job: ObjectMeta, cluster: ClusterSpec, digest: str) -> dict[str, Any]:
    """Return the ConfigMap with this hash.

    After the job was scaled, pods with another hash may exist. If their ConfigMap was deleted, its content is no longer known,
    so it is recreated with the current content.
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


_COPIED_METADATA: Final = ("annotations", "finalizers")


class PodBuilder:
    """Builds the pods of one job. Templates and the cluster spec are prepared once."""

    def __init__(
        self,
        job: TFJob,
        spec: TFJobSpec,
        *,
        domain: str = "",
        gang: GangScheduler | None = None,
        accelerators: Accelerators | None = None,
        fallback_to_logs: bool = True,
        backend_variables: bool = True,
    ) -> None:
        """`domain` is the cluster's DNS domain if TF_CONFIG needs it; `gang` the enabled gang scheduler, if any.

        With `fallback_to_logs`, a training container that fails without a termination message gets the end of its log as one.
        With `backend_variables`, a training container gets the variables of Keras 3 and JAX beside TF_CONFIG.
        """
        self._fallback_to_logs = fallback_to_logs
        self._backend_variables = backend_variables
        self._job = job.metadata
        self._spec = spec
        attempt = job.status.attempt
        self._attempt = str(attempt) if attempt or spec.failure_policy is not None else None
        self._execution = str(execution_of(attempt, job.status.execution_attempt))
        self._gang = gang
        # A gang scheduler or topology places the pods of a job together, so no nodes may be excluded here.
        self._avoided = (
            [] if gang is not None else [node.name for node in job.status.avoided_nodes if node.expiration_time]
        )
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
        # The operator only sees the exit code if the kubelet does not restart the container.
        needs_code = replica.restart_policy == RestartPolicy.EXIT_CODE or self._spec.has_rules_for(key.type)
        policy = RestartPolicy.NEVER if needs_code else replica.restart_policy
        if self._attempt is not None:
            metadata["labels"][c.LABEL_ATTEMPT] = self._attempt
        metadata["labels"][c.LABEL_EXECUTION] = self._execution
        pod_spec = template["spec"] | {"containers": containers, "restartPolicy": policy}
        if self._avoided and not replica.template.has_topology:
            pod_spec["affinity"] = avoiding(self._avoided, object_in(pod_spec, "affinity"))
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
        if self._fallback_to_logs and not container.get("terminationMessagePolicy"):
            changed["terminationMessagePolicy"] = "FallbackToLogsOnError"
        given = container.get("env") or []
        names = {each.get("name") for each in given}
        # Variables set by the user take precedence.
        variables = []
        if not self.cluster.is_alone and c.TF_CONFIG not in facts.sets:
            variables = [*self._variables(key), *self._variables_of_backends(key, names)]
        for name, value in ((c.ATTEMPT_VARIABLE, self._attempt), (c.EXECUTION_VARIABLE, self._execution)):
            if value is not None and name not in names:
                variables.append({"name": name, "value": value})
        if variables:
            changed["env"] = [*given, *variables]
        return changed

    def _variables(self, key: ReplicaKey) -> list[dict[str, Any]]:
        """Return TF_CONFIG.

        With a ConfigMap, a variable with its cluster spec comes first; the kubelet expands it in TF_CONFIG.
        """
        if not self.cluster.is_shared_with(key.type):
            return [{"name": c.TF_CONFIG, "value": self.cluster.tf_config(key.type, key.index)}]
        source = {"name": config_map_name(self._job.name, self.cluster.digest), "key": c.CLUSTER_KEY}
        config = self.cluster.tf_config_with(f"$({c.CLUSTER_VARIABLE})", key.type, key.index)
        return [
            {"name": c.CLUSTER_VARIABLE, "valueFrom": {"configMapKeyRef": source}},
            {"name": c.TF_CONFIG, "value": config},
        ]

    def _variables_of_backends(self, key: ReplicaKey, given: AbstractSet[str]) -> list[dict[str, Any]]:
        """Return the groups of variables of which the template sets none: half a group of each would disagree."""
        process = self.cluster.process(key.type, key.index) if self._backend_variables else None
        if process is None:
            return []
        return [
            {"name": name, "value": str(value)}
            for group in c.BACKEND_VARIABLES
            if given.isdisjoint(group)
            for name, value in zip(group, process, strict=True)
        ]


def avoiding(nodes: list[str], affinity: JSON) -> dict[str, Any]:
    """Return the affinity of a pod, extended to exclude these nodes.

    The terms of a node affinity are alternatives, so each of them is extended, except an empty one, which matches no node. A
    requirement on a field may have only one value.
    """
    node_affinity = object_in(affinity, "nodeAffinity")
    required = object_in(node_affinity, _REQUIRED)
    given = required.get("nodeSelectorTerms")
    elsewhere = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in nodes]
    terms: list[Any] = [{"matchFields": elsewhere}]
    if isinstance(given, list) and given:
        terms = [
            {**term, "matchFields": [*(term.get("matchFields") or []), *elsewhere]}
            if isinstance(term, dict) and any(term.values())
            else term
            for term in given
        ]
    return {**affinity, "nodeAffinity": {**node_affinity, _REQUIRED: {**required, "nodeSelectorTerms": terms}}}


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
VOLCANO: Final = "volcano"


@dataclass(frozen=True, slots=True)
class GangScheduler:
    """A scheduler that supports PodGroups.

    name: the `schedulerName` of pods.
    pod_groups: the PodGroup resource that it reads.
    admits: whether the phase of a group determines when its pods may be created; pods created earlier are scheduled
        individually, without the group.
    """

    name: str
    pod_groups: Resource
    admits: bool

    def pod_labels(self, job: str) -> dict[str, str]:
        """Return the labels that assign a pod to the job's group."""
        return {} if self.admits else {"scheduling.x-k8s.io/pod-group": job}

    def pod_annotations(self, job: str, replica_type: str) -> dict[str, str]:
        """Return the annotations that assign a pod to the job's group; volcano also reads the pod's role."""
        if not self.admits:
            return {}
        return {"scheduling.k8s.io/group-name": job, "volcano.sh/task-spec": replica_type.lower()}


def gang_scheduler(name: str) -> GangScheduler:
    """Return the scheduler with this name: volcano, else one with the coscheduling plugin."""
    if name == VOLCANO:
        return GangScheduler(name, VOLCANO_POD_GROUPS, admits=True)
    return GangScheduler(name, COSCHEDULING_POD_GROUPS, admits=False)


def build_pod_group(
    job: ObjectMeta, spec: TFJobSpec, templates: Mapping[str, JSON], scheduler: GangScheduler, min_member: int
) -> dict[str, Any]:
    """Return the PodGroup of a job. Fields that the user did not set are omitted, so the scheduler's defaults apply."""
    asked = spec.scheduling
    resources = min_resources(spec, templates, min_member) if asked.min_resources is None else asked.min_resources
    fields: dict[str, Any] = {"minMember": min_member, "minResources": resources}
    if scheduler.admits:
        fields |= {"queue": asked.queue, "priorityClassName": asked.priority_class or _priority_class(templates)}
    else:
        fields["scheduleTimeoutSeconds"] = asked.schedule_timeout_s
    return {
        "apiVersion": scheduler.pod_groups.api_version,
        "kind": scheduler.pod_groups.kind,
        "metadata": {"name": job.name, "labels": labels_of_all(job), "ownerReferences": [owner_reference(job)]},
        "spec": {name: value for name, value in fields.items() if value not in (None, "", {})},
    }


def resize_patch(
    spec: TFJobSpec, templates: Mapping[str, JSON], group: PodGroup, min_member: int
) -> list[dict[str, Any]]:
    """Return the JSON patch for the new size and resources of a group; it fails if the group belongs to another job."""
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": group.metadata.uid},
        {"op": "add", "path": "/spec/minMember", "value": min_member},
    ]
    if spec.scheduling.min_resources is None and (resources := min_resources(spec, templates, min_member)):
        patch.append({"op": "add", "path": "/spec/minResources", "value": resources})
    return patch


def min_resources(spec: TFJobSpec, templates: Mapping[str, JSON], min_member: int) -> dict[str, str]:
    """Return the total requests of the first `min_member` pods, chief first, then in the order of types."""
    total: dict[str, Decimal] = {}
    left = min_member
    for replica in spec.replicas.values():
        count = min(left, replica.replicas)
        left -= count
        for name, quantity in pod_requests(templates[replica.type]).items():
            total[name] = total.get(name, Decimal(0)) + count * quantity
    return {name: format_quantity(number) for name, number in total.items() if number}


def _priority_class(templates: Mapping[str, JSON]) -> str:
    """Return the priority class of the first template that has one."""
    found = (templates[name] for name in c.REPLICA_TYPES if name in templates)
    names = (object_in(template, "spec").get("priorityClassName") for template in found)
    return next((name for name in names if isinstance(name, str) and name), "")
