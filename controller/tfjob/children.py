"""The children of jobs: what is read of them, whose they are, and the indexes by which a job finds its own. Pure.

Of pods, services, ConfigMaps and PodGroups these are slices, and of their labels only those that are read: in a cluster with
many pods they are what memory and the time to decode go into. A dict of ten labels was a fifth of the memory of a cached pod,
and 7 % of the time from the bytes of a watch to the store.

A controller reference names its owner by UID and has no namespace: it is resolved in the child's own, as the garbage collector
does it. Whoever may create pods somewhere can write any UID into them, so a UID alone proves nothing (D2).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NewType

import msgspec

from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES, PodSpec, PodStatus
from tfjob_operator.api.meta import Meta, Struct, controller_of, object_key
from tfjob_operator.api.v1 import constants as c

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfjob_operator.api.meta import Object, OwnerReference


def child_name(job: str, replica_type: str, index: int) -> str:
    """Return the name of a replica's pod and of its service."""
    return f"{job}-{replica_type.lower()}-{index}"


class ReplicaKey(msgspec.Struct, frozen=True, gc=False):
    """One replica of a job: its type and index, and the name that its pod and its service bear."""

    type: str
    index: int
    name: str

    @classmethod
    def of(cls, job: str, replica_type: str, index: int) -> ReplicaKey:
        """Return the key of a replica of the job of this name."""
        return cls(replica_type, index, child_name(job, replica_type, index))


class ChildLabels(Struct, frozen=True):
    """The labels that say whose a child is, and which replica; those with the prefix are of the younger family (RM-01).

    `cluster_spec` is on pods that read a ConfigMap; `restart_policy` says how a pod lives (U15). Neither says whose it is.
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


NO_LABELS: Final = ChildLabels()


class ChildMeta(Meta, frozen=True):
    """Metadata of a pod or service of a job."""

    labels: ChildLabels | None = None
    creation_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None

    def label_map(self) -> Mapping[str, str]:
        """Return the labels of `ChildLabels` that are set."""
        found: dict[str, str] = msgspec.to_builtins(self.labels or NO_LABELS)
        return found


class Pod(Struct, frozen=True, tag_field="kind", tag=PODS.kind):
    """A pod."""

    metadata: ChildMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ServiceSpec(Struct, frozen=True):
    """Which pods a service is about."""

    selector: dict[str, str] | None = None


class Service(Struct, frozen=True, tag_field="kind", tag=SERVICES.kind):
    """A service: its identity, and whether it still selects what it was made for.

    `spec` is kept only where the selector is another than the service's own labels say, which are those of its pod: in all
    others it would be a third of what a cached service weighs.
    """

    metadata: ChildMeta
    spec: ServiceSpec | None = None

    def __post_init__(self) -> None:
        """Drop what says nothing new."""
        if self.spec is not None and self.spec.selector is not None:
            labels = self.metadata.label_map()
            if self.spec.selector == {name: labels.get(name, "") for name in c.SELECTING_LABELS}:
                msgspec.structs.force_setattr(self, "spec", None)


class ConfigMap(Struct, frozen=True, tag_field="kind", tag=CONFIG_MAPS.kind):
    """A ConfigMap: what is in it stays on the server."""

    metadata: ChildMeta


class PodGroupSpec(Struct, frozen=True):
    """How many pods must find a place before any of them gets one."""

    min_member: int = 0


class PodGroupStatus(Struct, frozen=True):
    """What the scheduler says; the phase is empty until it has seen the group."""

    phase: str = ""


class PodGroup(Struct, frozen=True):
    """A PodGroup of either kind. Its queue, say, is nobody's business but its owner's and the scheduler's: it is not read."""

    metadata: ChildMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


OwnerKey = NewType("OwnerKey", str)
"""`namespace/uid` of an object that has children. A type of its own, so that a bare UID is not taken for one."""

OWNER_INDEX: Final = "controller"
"""The index of children by the `OwnerKey` of the object that controls them."""

ORPHAN_INDEX: Final = "orphans-by-job"
"""The index of pods and services that nobody controls, by the key of the job that their labels name."""


def owner_key(owner: Meta) -> OwnerKey:
    """Return the key under which the children of this object are indexed."""
    return OwnerKey(f"{owner.namespace}/{owner.uid}")


def key_of_owner(child: Meta, owner: OwnerReference) -> OwnerKey:
    """Return the key under which a child with this owner reference is indexed."""
    return OwnerKey(f"{child.namespace}/{owner.uid}")


def index_by_owner(child: Object) -> Sequence[str]:
    """Return the key of a child's controller: the index function of `OWNER_INDEX`, called for every event of a watch."""
    owner = controller_of(child.metadata)
    return () if owner is None else (key_of_owner(child.metadata, owner),)


def index_orphans(child: Pod | Service) -> Sequence[str]:
    """Return the key of an orphan's job: the index function of `ORPHAN_INDEX`, called for every event of a watch."""
    key = job_of_orphan(child.metadata)
    return () if key is None else (key,)


def job_of_orphan(child: ChildMeta) -> str | None:
    """Return the key of the job that an orphan's labels name; None for a child that has a controller or names none."""
    if controller_of(child) is not None:
        return None
    name = (child.labels or NO_LABELS).job_name
    return object_key(child.namespace, name) if name else None


CHILD_INDEXERS: Final[Mapping[str, Callable[[Any], Sequence[str]]]] = {
    OWNER_INDEX: index_by_owner,
    ORPHAN_INDEX: index_orphans,
}
"""What the informers of pods, services and ConfigMaps must have."""
