"""What the pods of a job amount to: which replica each one is, and what has become of it. Pure.

A replica's outcome is that of its container `tensorflow`: a sidecar that still runs does not keep a finished replica alive, and
a failed sidecar does not fail one whose `tensorflow` goes on.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from api import core
from api.v1 import constants as c
from api.v1.children import NO_LABELS
from api.v1.types import ReplicaStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from api.core import ContainerStateTerminated
    from api.v1.children import ChildMeta, Pod
    from api.v1.types import ReplicaSpec

DISRUPTIONS: Final = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "Preempted"}
)
"""Reasons in a failed pod's status that say the cluster took it away; the training did nothing wrong."""
REJECTIONS: Final = ("UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError", "OutOf")
"""How the reasons begin with which a kubelet turns a pod away before anything of it has run: a device that has not come back
after a restart of the node, or room that somebody else took first (`OutOfcpu`, `OutOfnvidia.com/gpu`, ...)."""


class Outcome(enum.Enum):
    """What has become of one pod."""

    WAITING = "waiting"
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod of the job, with its place and its fate. `ended` tells how `tensorflow` ended, where the pod says so."""

    type: str
    index: int
    pod: Pod
    outcome: Outcome
    ended: ContainerStateTerminated | None = None

    @property
    def terminating(self) -> bool:
        """Whether the pod is on its way out: neither counted as failed nor replaced before it is gone (B43)."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def disrupted(self) -> bool:
        """Whether the cluster ended this pod rather than its own process."""
        return _is_disrupted(self.pod)


_TYPE_OF_LABEL: Final = {name.lower(): name for name in c.REPLICA_TYPES}


def slot_of(meta: ChildMeta) -> tuple[str, int] | None:
    """Replica type and index that a child's labels name, in either family, or None where they name none."""
    labels = meta.labels or NO_LABELS
    replica_type = _TYPE_OF_LABEL.get(labels.replica_type or labels.prefixed_replica_type)
    index = labels.replica_index or labels.prefixed_replica_index
    if replica_type is None or not (index.isascii() and index.isdigit()):
        return None
    return replica_type, int(index)


def observe(pods: Iterable[Pod], specs: Mapping[str, ReplicaSpec]) -> list[Replica]:
    """Read each pod's place and fate. A pod whose labels name no replica of ours is left out."""
    replicas: list[Replica] = []
    for pod in pods:
        slot = slot_of(pod.metadata)
        if slot is None:
            continue
        spec = specs.get(slot[0])
        outcome, ended = _outcome(pod, spec.restart_policy if spec else c.NEVER)
        replicas.append(Replica(*slot, pod, outcome, ended))
    return replicas


def _outcome(pod: Pod, policy: str) -> tuple[Outcome, ContainerStateTerminated | None]:
    ended = _terminated(pod)
    phase = pod.status.phase
    if phase not in {core.SUCCEEDED, core.FAILED} and (ended is None or not _is_final(ended.exit_code, policy)):
        return (Outcome.ACTIVE if phase == core.RUNNING else Outcome.WAITING), None
    # A sidecar's failure makes the pod Failed, but the replica did its work if `tensorflow` ended with 0.
    did_its_work = phase == core.SUCCEEDED or (ended is not None and ended.exit_code == 0)
    if did_its_work and not _was_stopped(pod, ended):
        return Outcome.SUCCEEDED, ended
    return Outcome.FAILED, ended


def _was_stopped(pod: Pod, ended: ContainerStateTerminated | None) -> bool:
    """Whether an end with 0 may be the answer to a SIGTERM: whoever saves a checkpoint then, and exits in order, is not done.

    Of a pod that is being deleted only an end before the request counts. The API has whole seconds: what ended in the same one
    is rather run again than taken for done. A success that was seen in time is in the job's status, and needs no pod.
    """
    leaves_at = pod.metadata.deletion_timestamp
    if leaves_at is None:
        return pod.status.phase == core.FAILED and _is_disrupted(pod)
    if ended is None or ended.finished_at is None:
        return False
    return ended.finished_at >= leaves_at - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)


def _is_disrupted(pod: Pod) -> bool:
    status = pod.status
    if status.reason in DISRUPTIONS or (status.reason.startswith(REJECTIONS) and not status.container_statuses):
        return True
    return any(cond.type == "DisruptionTarget" and cond.status == "True" for cond in status.conditions or ())


def _is_final(exit_code: int, policy: str) -> bool:
    """Whether the kubelet leaves a container that ended so as it is."""
    if policy == c.ALWAYS:
        return False
    return exit_code == 0 or policy != c.ON_FAILURE


def _terminated(pod: Pod) -> ContainerStateTerminated | None:
    for status in pod.status.container_statuses or ():
        if status.name == c.CONTAINER_NAME:
            return status.state.terminated
    return None


def count(replicas: Sequence[Replica], types: Iterable[str]) -> dict[str, ReplicaStatus]:
    """Counters per replica type, in the types' order. Pods on their way out count nowhere unless they had ended before."""
    tally: dict[str, dict[Outcome, int]] = {name: defaultdict(int) for name in types}
    for replica in replicas:
        if replica.type in tally and not (replica.terminating and replica.outcome is not Outcome.SUCCEEDED):
            tally[replica.type][replica.outcome] += 1
    return {
        name: ReplicaStatus(
            active=found[Outcome.ACTIVE], succeeded=found[Outcome.SUCCEEDED], failed=found[Outcome.FAILED]
        )
        for name, found in tally.items()
    }
