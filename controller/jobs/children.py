"""The children of jobs: their structs, their owners, and the indexes by which a job finds them. Pure.

Pods, services, ConfigMaps and PodGroups dominate memory and decoding time in large clusters, so they keep only the labels that
are read. A dict of ten labels took a fifth of a cached pod's memory, and 7% of the time to decode and store a watch event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES, TERMINAL, PodSpec, PodStatus, ServiceSpec
from tfjob_operator.api.decoding import SharedValues
from tfjob_operator.api.meta import OWNER_INDEX, DeclaredLabels, Meta, Struct, controller_of, index_by_owner, object_key
from tfjob_operator.api.resources import accelerators_of
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import child_name

LINGER_LIMIT_S: Final = 20.0
"""How long an object that is being deleted may block a name before a Warning is emitted."""


class ReplicaKey(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A replica: its type, index, and the name of pod and service.

    The shared service of a job has no type; its name is the job's.
    """

    type: str
    index: int
    name: str

    @classmethod
    def of(cls, job: str, replica_type: str, index: int) -> ReplicaKey:
        """Return the key of a replica of the job with this name."""
        return cls(replica_type, index, child_name(job, replica_type, index))

    @classmethod
    def of_all(cls, job: str) -> ReplicaKey:
        """Return the key of the shared service of the job with this name."""
        return cls("", 0, job)

    @classmethod
    def each(cls, job: str, replica_type: str, indices: Iterable[int]) -> list[ReplicaKey]:
        """Return the keys of several replicas of one type."""
        stem = child_name(job, replica_type, 0)[:-1]  # computed once, since a job may have thousands of replicas
        return [cls(replica_type, index, f"{stem}{index}") for index in indices]


class ChildLabels(Struct, frozen=True):
    """The labels that identify job and replica of a child; those with prefixed names are the newer family.

    `cluster_spec` is set on pods that read a ConfigMap; `restart_policy` is the replica's when the pod was created;
    `attempt` and `execution` are the numbers of the attempt and the execution. Labels do not determine ownership.
    """

    group_name: str = msgspec.field(default="", name=c.LABEL_GROUP_NAME)
    job_name: str = msgspec.field(default="", name=c.LABEL_JOB_NAME)
    replica_type: str = msgspec.field(default="", name=c.LABEL_REPLICA_TYPE)
    replica_index: str = msgspec.field(default="", name=c.LABEL_REPLICA_INDEX)
    operator_name: str = msgspec.field(default="", name=c.LABEL_OPERATOR_NAME)
    prefixed_job_name: str = msgspec.field(default="", name=c.LABEL_PREFIX + c.LABEL_JOB_NAME)
    prefixed_replica_type: str = msgspec.field(default="", name=c.LABEL_PREFIX + c.LABEL_REPLICA_TYPE)
    prefixed_replica_index: str = msgspec.field(default="", name=c.LABEL_PREFIX + c.LABEL_REPLICA_INDEX)
    cluster_spec: str = msgspec.field(default="", name=c.LABEL_CLUSTER_SPEC)
    restart_policy: str = msgspec.field(default="", name=c.LABEL_RESTART_POLICY)
    attempt: str = msgspec.field(default="", name=c.LABEL_ATTEMPT)
    execution: str = msgspec.field(default="", name=c.LABEL_EXECUTION)


_SHARED: Final = SharedValues()
_LABELS: Final = ChildLabels.__struct_fields__
_LABEL_KEYS: Final = frozenset(ChildLabels.__struct_encode_fields__)
NO_LABELS: Final = ChildLabels()


def _label_dict(labels: ChildLabels | None) -> dict[str, str]:
    found: dict[str, str] = msgspec.to_builtins(labels or NO_LABELS)
    return found


class ChildMeta(Meta, frozen=True):
    """Metadata of a job's pod or service."""

    labels: ChildLabels | None = None
    creation_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None

    def __post_init__(self) -> None:
        """Share the values common to a job's children: namespace, owner, and labels other than the index."""
        force_setattr(self, "namespace", _SHARED[self.namespace])
        force_setattr(self, "owner_references", _SHARED[self.owner_references])
        labels = self.labels
        if labels is not None:
            for name in _LABELS:
                force_setattr(labels, name, _SHARED[getattr(labels, name)])

    def label_map(self) -> Mapping[str, str]:
        """Return the labels of `ChildLabels` that are set."""
        return DeclaredLabels(ChildMeta, _label_dict(self.labels), _LABEL_KEYS)


class Pod(Struct, frozen=True, tag_field="kind", tag=PODS.kind):
    """A pod. `node` is the node that the pod is bound to; `started` is the time when the kubelet accepted it.

    `accelerators` are the numbers of the extended resources that it requests.
    """

    metadata: ChildMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    node: str = ""
    started: datetime | None = None
    accelerators: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        """Share the spec, without `node` and resources, among pods of one replica type, and equal statuses.

        `started` is separate from the status, since pods do not start in the same second. The status of terminated pods is not
        shared: times and messages differ, so sharing would only fill the memory.
        """
        if self.spec.node_name:
            force_setattr(self, "node", _SHARED[self.spec.node_name])
            force_setattr(self.spec, "node_name", "")
        if limited := [container for container in self.spec.all_containers if container.resources is not None]:
            force_setattr(self, "accelerators", _SHARED[accelerators_of(self.spec)])
            for container in limited:
                force_setattr(container, "resources", None)
        force_setattr(self, "spec", _SHARED[self.spec])
        if self.status.start_time is not None:
            force_setattr(self, "started", self.status.start_time)
            force_setattr(self.status, "start_time", None)
        if self.status.phase not in TERMINAL:
            force_setattr(self, "status", _SHARED[self.status])


class Service(Struct, frozen=True, tag_field="kind", tag=SERVICES.kind):
    """A service: its identity, and whether it still selects its pod.

    `spec` is kept only if the selector differs from the service's own labels (which are those of its pod); an unneeded `spec`
    would be a third of the memory of a cached service.
    """

    metadata: ChildMeta
    spec: ServiceSpec | None = None

    def __post_init__(self) -> None:
        """Drop a selector that matches the labels."""
        if self.spec is not None and self.spec.selector is not None:
            labels = _label_dict(self.metadata.labels)
            if self.spec.selector == {name: labels.get(name, "") for name in c.SELECTING_LABELS}:
                force_setattr(self, "spec", None)


class ConfigMap(Struct, frozen=True, tag_field="kind", tag=CONFIG_MAPS.kind):
    """A ConfigMap without its data."""

    metadata: ChildMeta


class PodGroupSpec(Struct, frozen=True):
    """The number of pods that must be schedulable together, and other fields that a job may set, undecoded."""

    min_member: int = 0
    queue: Any = None
    priority_class_name: Any = None
    min_resources: Any = None
    schedule_timeout_seconds: Any = None


class PodGroupStatus(Struct, frozen=True):
    """The scheduler's status; the phase is empty until the scheduler has processed the group."""

    phase: str = ""


class PodGroup(Struct, frozen=True):
    """A PodGroup of either API."""

    metadata: ChildMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


ORPHAN_INDEX: Final = "orphans-by-job"
"""The index of pods and services without a controller, by the key of the job in their labels."""


def index_orphans(child: Pod | Service) -> Sequence[str]:
    """Return the key of an orphan's job: the index function of `ORPHAN_INDEX`, called for every watch event."""
    key = job_of_orphan(child.metadata)
    return () if key is None else (key,)


def job_of_orphan(child: ChildMeta) -> str | None:
    """Return the key of the job in an orphan's labels; None if the child has a controller or no such label."""
    if controller_of(child) is not None:
        return None
    name = (child.labels or NO_LABELS).job_name
    return object_key(child.namespace, name) if name else None


CHILD_INDEXERS: Final[Mapping[str, Callable[[Any], Sequence[str]]]] = {
    OWNER_INDEX: index_by_owner,
    ORPHAN_INDEX: index_orphans,
}
"""The indexes required of the informers of pods, services and ConfigMaps."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The children of a job that cannot be created now, by name."""

    failed: frozenset[str] = frozenset()
    """Those whose last create failed."""
    backing_off: frozenset[str] = frozenset()
    """Those of them that must not be retried yet."""
    rejected_by_kubelet: frozenset[str] = frozenset()
    """Replicas that must not be replaced yet after a kubelet rejected their pods."""
    next_due_in_s: float | None = None
    """The time until the first retry."""


NONE_BLOCKED: Final = Blocked()
