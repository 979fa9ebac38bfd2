"""The pods and services of a job as a plan sees them: whose they are, which replica each is, and what has become of it. Pure.

The name of a child says which replica it is, since nobody can edit that; where the name says nothing, labels do. A replica has
one pod; if there are several, it is decided here which one that is. The others are surplus.

A replica's outcome is that of its container `tensorflow`: it is finished though a sidecar still runs, and a failed sidecar
does not fail a replica whose `tensorflow` goes on.

Orphans are adopted as by client-go's ControllerRefManager, except that nothing is released. For everything else only the
controller reference counts; labels only say which reference should be there. A child that another object controls is never
touched (RM-01).

Every operator for TFJob gave the pods and services of a job the names that this one gives them. Their labels changed with
the years, and our watches select by one that came in 2022; so the children of a job that another operator began are looked for
by name.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Final, TypeVar

import msgspec

from tfjob_operator.api.core import TERMINAL, ContainerStateTerminated, ContainerStatus, PodPhase, PodRestartPolicy
from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import RestartPolicy
from tfjob_operator.api.v1.types import IndexRestarts, JobStatus, ReplicaStatus, TFJob, TFJobSpec, parse_indices
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.jobs.children import NO_LABELS, ChildLabels, ChildMeta, Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.pods import (
    Problem,
    has_ended,
    is_disrupted,
    is_final,
    problems_of_pod,
    was_left_by_its_own_policy,
    was_stopped,
)
from tfjob_operator.controller.tfjob.build.children import labels_of, selector_of

NO_REPLICA: Final = ReplicaKey("", -1, "")
"""The key of a pod of which neither name nor labels say what it is."""
_TYPE_OF_LABEL: Final = {name.lower(): name for name in c.REPLICA_TYPES}


def key_of(job: str, child: ChildMeta) -> ReplicaKey | None:
    """Return which replica of this job an owned child is: by its name, else by its labels; None where neither says so.

    So an edit of the labels turns no pod into another replica, or into none (U9).
    """
    key = key_of_name(job, child.name)
    if key is not None or not names_no_other(job, child):
        return key
    return key_of_labels(job, child)


def key_of_name(job: str, name: str) -> ReplicaKey | None:
    """Return the replica whose pod and service bear this name, or None for any other name."""
    rest = name.removeprefix(f"{job}-")
    kind, _, index = rest.rpartition("-")
    replica_type = _TYPE_OF_LABEL.get(kind)
    if rest == name or replica_type is None or not (index.isascii() and index.isdigit()):
        return None
    key = ReplicaKey.of(job, replica_type, int(index))
    return key if name == key.name else None


def key_of_service(job: str, name: str) -> ReplicaKey | None:
    """Return whose service bears this name: a replica's, or the whole job's; None for any other name."""
    return ReplicaKey.of_all(job) if name == job else key_of_name(job, name)


def names_no_other(job: str, child: ChildMeta) -> bool:
    """Return whether no label names another job. One family of labels is enough: other operators set but one."""
    labels = child.labels or NO_LABELS
    return (labels.job_name or job) == job == (labels.prefixed_job_name or job)


def key_of_labels(job: str, meta: ChildMeta) -> ReplicaKey | None:
    """Return the replica of this job that a child's labels name, in either family, or None where they name none."""
    labels = meta.labels or NO_LABELS
    replica_type = _TYPE_OF_LABEL.get(labels.replica_type or labels.prefixed_replica_type)
    index = labels.replica_index or labels.prefixed_replica_index
    if replica_type is None or not (index.isascii() and index.isdigit()):
        return None
    return ReplicaKey.of(job, replica_type, int(index))


_POLICIES: Final = frozenset(RestartPolicy)


class Outcome(enum.StrEnum):
    """What has become of one pod."""

    WAITING = "waiting"
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


GOING_ON: Final = frozenset({Outcome.WAITING, Outcome.ACTIVE})


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod of the job, with its replica and its outcome. `ended` is how `tensorflow` ended, where the pod says so."""

    key: ReplicaKey
    pod: Pod
    outcome: Outcome
    ended: ContainerStateTerminated | None = None

    @property
    def type(self) -> str:
        """The type of its replica."""
        return self.key.type

    @property
    def index(self) -> int:
        """The index of its replica."""
        return self.key.index

    @property
    def restart_policy(self) -> str:
        """The policy of the replica when the pod was created; "" for an older pod, which does not say so (U15)."""
        policy = (self.pod.metadata.labels or NO_LABELS).restart_policy
        return policy if policy in _POLICIES else ""

    @property
    def uid(self) -> str:
        """The UID of the pod."""
        return self.pod.metadata.uid

    @property
    def attempt(self) -> int:
        """The attempt that the pod belongs to."""
        return attempt_of(self.pod)

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted: it is not counted as failed, and not replaced before it is gone (B43)."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def ran_s(self) -> float:
        """How long its training container ran until it ended, in seconds."""
        ended = self.ended
        if ended is None or ended.started_at is None or ended.finished_at is None:
            return 0.0
        return (ended.finished_at - ended.started_at).total_seconds()

    @property
    def disrupted(self) -> bool:
        """Whether the cluster ended this pod rather than its own process."""
        return is_disrupted(self.pod)

    @property
    def was_stopped_in_order(self) -> bool:
        """Whether it exited with 0 because the cluster took it away: no failure, though it is not done."""
        failed = self.pod.status.phase == PodPhase.FAILED or (self.ended is not None and self.ended.exit_code != 0)
        return self.disrupted and not failed and self.outcome is Outcome.FAILED

    @property
    def was_left_by_its_own_policy(self) -> bool:
        """Whether its training container failed in a way that its own restart policy and rules call fatal."""
        return self.ended is not None and was_left_by_its_own_policy(self.pod, c.CONTAINER_NAME, self.ended.exit_code)

    @property
    def has_ended(self) -> bool:
        """Whether nothing of this pod runs or will run again, though its phase may not say so yet."""
        return has_ended(self.pod)


def attempt_of(pod: Pod) -> int:
    """Return the attempt that a pod belongs to. Users can write anything into a label."""
    label = (pod.metadata.labels or NO_LABELS).attempt
    return int(label) if len(label) < 10 and label.isascii() and label.isdecimal() else 0


def of_earlier_attempts(job: TFJob, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that belong to an earlier attempt than the present one, but for those of replicas that are done."""
    status, name = job.status, job.metadata.name
    older = [pod for pod in pods if attempt_of(pod) < status.attempt]
    if not (older and status.finished_indices):
        return older
    done = {kind: parse_indices(text, MAX_REPLICAS) for kind, text in status.finished_indices.items()}
    keys = ((key_of(name, pod.metadata) or NO_REPLICA, pod) for pod in older)
    return [pod for key, pod in keys if key.index not in done.get(key.type, ())]


def replicas_of(
    job: str, pods: Iterable[Pod], records: Iterable[IndexRestarts] = ()
) -> tuple[list[Replica], list[Replica]]:
    """Determine the replica and the outcome of each pod that the job controls. Return one pod for each replica, and all others.

    The others are never judged, counted, or accounted for (D7). `records` are those of the job's status: they know what the
    pods no longer show.
    """
    stopped = {record.pod for record in records if record.stopped}
    chosen: dict[ReplicaKey, Replica] = {}
    others: list[Replica] = []
    for pod in pods:
        key = key_of(job, pod.metadata) or NO_REPLICA
        replica = Replica(key, pod, *_outcome(pod, stopped=pod.metadata.uid in stopped))
        held = chosen.get(key)
        if key is NO_REPLICA or (held is not None and _comes_first(held) <= _comes_first(replica)):
            others.append(replica)
            continue
        if held is not None:
            others.append(held)
        chosen[key] = replica
    return list(chosen.values()), others


_OLDEST: Final = datetime.min.replace(tzinfo=UTC)


def _comes_first(replica: Replica) -> tuple[bool, datetime, str]:
    """Which of several pods of a replica is the one: that with its name, also while that is on its way out.

    The name is taken until it is gone, and what it ends with counts. After that the oldest, so that nothing that comes later
    takes the place of what runs; the UID decides where both are of the same second.
    """
    meta = replica.pod.metadata
    return meta.name != replica.key.name, meta.creation_timestamp or _OLDEST, meta.uid


def _outcome(pod: Pod, *, stopped: bool) -> tuple[Outcome, ContainerStateTerminated | None]:
    training = _training(pod)
    ended = training.state.terminated if training is not None else None
    phase = pod.status.phase
    if phase not in TERMINAL and (training is None or not is_final(pod, training)):
        return (Outcome.ACTIVE if phase == PodPhase.RUNNING else Outcome.WAITING), None
    # A sidecar's failure makes the pod Failed, but the replica did its work if `tensorflow` ended with 0. With a reason the pod
    # was ended as a whole (its deadline, an eviction), and an end with 0 may be the response to that.
    # Under Always this operator does what the kubelet would have done, unless the container has a policy of its own.
    own = next((each.restart_policy for each in pod.spec.containers if each.name == c.CONTAINER_NAME), "")
    policy = (pod.metadata.labels or NO_LABELS).restart_policy
    restarts_always = policy == RestartPolicy.ALWAYS and pod.spec.restart_policy == PodRestartPolicy.NEVER and not own
    did_its_work = not restarts_always and (
        phase == PodPhase.SUCCEEDED or (ended is not None and ended.exit_code == 0 and not pod.status.reason)
    )
    if did_its_work and not stopped and not was_stopped(pod, ended):
        return Outcome.SUCCEEDED, ended
    return Outcome.FAILED, ended


def _training(pod: Pod) -> ContainerStatus | None:
    return next((each for each in pod.status.container_statuses or () if each.name == c.CONTAINER_NAME), None)


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


def count_unended(counts: Mapping[str, ReplicaStatus], replicas: Iterable[Replica]) -> dict[str, ReplicaStatus]:
    """Return the counters of a job that is being suspended: every pod that has not ended is active, even while terminating.

    Kueue gives the quota of a suspended job to the next one when no replica type has an active pod.
    """
    alive = Counter(replica.type for replica in replicas if not replica.has_ended)
    return {name: msgspec.structs.replace(found, active=alive[name]) for name, found in counts.items()}


@dataclass(frozen=True, slots=True)
class Observed:
    """The children of a job.

    `surplus` are pods that the specification does not ask for (any more), second ones of a replica, and those of earlier
    attempts, `older` if there are any. A service belongs
    to a replica, or to the whole job, by its name alone, since pods are looked up by it; its key is None where the name says
    nothing.
    """

    replicas: Sequence[Replica]
    surplus: Sequence[Replica]
    services: Sequence[tuple[ReplicaKey | None, Service]]
    older: bool = False

    @property
    def has_children(self) -> bool:
        """Whether there is any pod, wanted or not, or a service: that of a replica is created just before its pod."""
        return bool(self.replicas or self.surplus or self.services)

    def services_except(self, keys: Collection[ReplicaKey]) -> tuple[Service, ...]:
        """Return the services that belong to none of these replicas and are not going already."""
        return tuple(
            service for key, service in self.services if service.metadata.deletion_timestamp is None and key not in keys
        )

    def services_of(self, keys: Collection[ReplicaKey]) -> list[tuple[ReplicaKey, Service]]:
        """Return the services that belong to one of these replicas."""
        return [(key, service) for key, service in self.services if key is not None and key in keys]

    def limited_to(self, sizes: Mapping[str, int]) -> Observed:
        """Return the same for a job with so many replicas by type: pods beyond are surplus."""
        if all(replica.index < sizes.get(replica.type, 0) for replica in self.replicas):
            return self
        beyond = [replica for replica in self.replicas if replica.index >= sizes.get(replica.type, 0)]
        within = [replica for replica in self.replicas if replica.index < sizes.get(replica.type, 0)]
        return replace(self, replicas=within, surplus=[*beyond, *self.surplus])


def observe(job: TFJob, pods: Sequence[Pod], services: Iterable[Service]) -> Observed:
    """Sort out the children of a job."""
    name, older = job.metadata.name, []
    if job.status.attempt:
        older = of_earlier_attempts(job, pods)
        gone = {pod.metadata.uid for pod in older}
        pods = [pod for pod in pods if pod.metadata.uid not in gone]
    replicas, others = replicas_of(name, pods, job.status.restarts)
    if older:
        others = [*others, *chain(*replicas_of(name, older, job.status.restarts))]
    found = [(key_of_service(name, service.metadata.name), service) for service in services]
    return Observed(replicas, others, found, older=bool(older))


@dataclass(frozen=True, slots=True)
class Mending:
    """A child that somebody has edited, and the replica that it belongs to."""

    child: Pod | Service
    key: ReplicaKey


def problems_of(replicas: Iterable[Replica]) -> tuple[Problem, ...]:
    """Return what keeps these replicas from starting."""
    return tuple(
        problem
        for replica in replicas
        if replica.outcome is Outcome.WAITING and not replica.terminating
        for problem in problems_of_pod(replica.pod)
    )


C = TypeVar("C", Pod, Service)


def is_adoptable(job: str, child: Pod | Service) -> bool:
    """Whether all labels of an orphan make it a replica, or a replica's service, of the job of this name.

    A pod that has ended is not adoptable: it is the outcome of another job (D15). A service is adoptable under its
    replica's name only.
    """
    meta = child.metadata
    labels = meta.labels or NO_LABELS
    key = _key_of(job, child)
    by_name = key_of_service(job, meta.name) if isinstance(child, Service) else key_of_name(job, meta.name)
    return (
        meta.deletion_timestamp is None
        and labels.group_name == c.GROUP_NAME
        and labels.operator_name == c.OPERATOR_NAME
        and labels.job_name == job
        and names_no_other(job, meta)
        and key is not None
        and (by_name == key or (by_name is None and isinstance(child, Pod)))
        and not (isinstance(child, Pod) and has_ended(child))
    )


def claims(job: str, owned: Sequence[C], orphans: Sequence[C]) -> tuple[C, ...]:
    """Return the orphans of one kind that a job that lives adopts (RM-01).

    `owned` are the children that it controls, `orphans` those of `ORPHAN_INDEX`. Of several orphans for one replica one is
    adopted, that with the replica's name if there is one; none if the replica has its child already. What a job controls it
    never lets go: whatever its labels say, it goes with the job (U9).
    """
    if not orphans:
        return ()
    held = {key_of(job, child.metadata) for child in owned}
    adopt: dict[ReplicaKey, C] = {}
    for child in orphans:
        key = _key_of(job, child)
        if key is None or key in held or not is_adoptable(job, child):
            continue
        if key not in adopt or child.metadata.name == key.name:
            adopt[key] = child
    return tuple(adopt.values())


def _key_of(job: str, orphan: Pod | Service) -> ReplicaKey | None:
    """Return which child of this job an orphan would be: its labels say so, and of the service of all replicas its name."""
    key = key_of_labels(job, orphan.metadata)
    if key is None and isinstance(orphan, Service) and orphan.metadata.name == job:
        return ReplicaKey.of_all(job)
    return key


def is_of_predecessor(status: JobStatus) -> bool:
    """Return whether another operator has written this status and this one never has: it says of which generation it is."""
    return bool(status.conditions) and status.begun is None and not status.observed_generation


def may_have_hidden_children(job: TFJob) -> bool:
    """Return whether there may be children of this job that our watches do not show, and that matter to what is planned.

    Of a job that has ended they are left as they are.
    """
    status = job.status
    lives = job.metadata.deletion_timestamp is None and not conditions.is_finished(status)
    return lives and is_of_predecessor(status)


def unseen(job: TFJob, spec: TFJobSpec, children: Iterable[Pod] | Iterable[Service]) -> Iterator[ReplicaKey]:
    """Yield the replicas that have none of these children, which are all that is known of one kind.

    Beside those of the specification these are the replicas that the status counts: it may have been scaled down while no
    operator ran. A status counts as many replicas as a job may have and no more, whatever was written into it.
    """
    name = job.metadata.name
    seen = {key_of_name(name, child.metadata.name) for child in children}
    for kind in c.REPLICA_TYPES:
        told = job.status.replica_statuses.get(kind)
        counted = min(told.active + told.succeeded + told.failed, MAX_REPLICAS) if told is not None else 0
        for index in range(max(spec.sizes.get(kind, 0), counted)):
            key = ReplicaKey.of(name, kind, index)
            if key not in seen:
                yield key


def labelling(
    job: ObjectMeta, spec: TFJobSpec, key: ReplicaKey, uid: str, selector: Mapping[str, str]
) -> dict[str, object]:
    """Return the merge patch that makes a child one of ours: our labels, beside what it has.

    `selector` is that of a service, which then selects by ours; it is empty for a pod. A child of another UID is not touched.
    """
    labels = labels_of(job, spec, key)
    body: dict[str, object] = {"metadata": {"uid": uid, "labels": labels}}
    if selector:
        body["spec"] = {"selector": {**dict.fromkeys(selector), **selector_of(labels)}}
    return body


def relabellings(
    job: str, replicas: Iterable[Replica], services: Iterable[tuple[ReplicaKey, Service]]
) -> Iterator[Mending]:
    """Yield the children whose labels are not those of the replica that their names say they are (U9).

    For a child with any other name the labels alone say what it is; it is left as it is.
    """
    for replica in replicas:
        yield from _relabelled(job, replica.key, replica.pod)
    for key, service in services:
        yield from _relabelled(job, key, service)


def reselections(job: str, services: Iterable[tuple[ReplicaKey, Service]]) -> Iterator[Mending]:
    """Yield the services that do not select the pod of their replica (U17)."""
    for key, service in services:
        if service.spec is None or service.metadata.deletion_timestamp is not None:
            continue
        if service.spec.selector != selector_of(msgspec.to_builtins(labels_wanted(job, key))):
            yield Mending(service, key)


def labels_wanted(job: str, key: ReplicaKey, *, beside: ChildLabels = NO_LABELS) -> ChildLabels:
    """Return the labels that select a child of this replica, or the service of all, with the other labels of `beside`."""
    if not key.type:
        return msgspec.structs.replace(
            beside, group_name=c.GROUP_NAME, job_name=job, operator_name=c.OPERATOR_NAME, prefixed_job_name=job
        )
    kind, index = key.type.lower(), str(key.index)
    return ChildLabels(
        group_name=c.GROUP_NAME,
        job_name=job,
        replica_type=kind,
        replica_index=index,
        operator_name=c.OPERATOR_NAME,
        prefixed_job_name=job,
        prefixed_replica_type=kind,
        prefixed_replica_index=index,
        cluster_spec=beside.cluster_spec,
        restart_policy=beside.restart_policy,
        attempt=beside.attempt,
    )


def _relabelled(job: str, key: ReplicaKey, child: Pod | Service) -> Iterator[Mending]:
    """Yield a child of this replica if its labels say something else than its name, unless it is about to go."""
    meta = child.metadata
    if meta.deletion_timestamp is not None or meta.name != key.name:
        return
    labels = meta.labels or NO_LABELS
    wanted = labels_wanted(job, key, beside=labels)
    if labels != wanted and labels != _of_newer_family(wanted):
        yield Mending(child, key)


def _of_newer_family(labels: ChildLabels) -> ChildLabels:
    """Return the labels that training-operator has set since 1.6. Nobody has edited those, and they say all there is to say."""
    return msgspec.structs.replace(labels, group_name="", job_name="", replica_type="", replica_index="")
