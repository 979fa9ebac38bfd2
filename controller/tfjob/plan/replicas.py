"""The pods and services of a job: their owners, their replicas and their outcomes. Pure.

A child's name determines its replica, since names are immutable; labels are used only if the name is not conclusive. A replica
has one pod; if there are several, one is selected and the others are surplus.

The container `tensorflow` determines a replica's outcome: the replica is finished even if a sidecar still runs, and a failed
sidecar does not fail a replica whose `tensorflow` is still running.

Orphans are adopted as in client-go's ControllerRefManager, but children are never released. Apart from adoption, ownership
depends only on the controller reference; labels are used only to find orphans. Children controlled by another object are never
modified.

All TFJob operators have used the same names for pods and services. Their labels changed over the years, and our watches select
by a label introduced in 2022; so the children of a job started by another operator are looked up by name.
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
from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.types import IndexRestarts, JobStatus, ReplicaStatus, TFJob, TFJobSpec
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.jobs.children import NO_LABELS, ChildLabels, ChildMeta, Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.pods import (
    StartProblem,
    container_policy_forbids_restart,
    has_ended,
    is_disrupted,
    is_final,
    problems_of_pod,
    was_stopped,
)
from tfjob_operator.controller.tfjob.build.builder import labels_of, selector_of

NO_REPLICA: Final = ReplicaKey("", -1, "")
"""The key of a pod whose replica is given neither by its name nor by its labels."""
_TYPE_OF_LABEL: Final = {name.lower(): name for name in c.REPLICA_TYPES}


def key_of(job: str, child: ChildMeta) -> ReplicaKey | None:
    """Return the replica of an owned child: by its name, else by its labels; None if neither is conclusive.

    So editing its labels does not turn a pod into another replica.
    """
    key = key_of_name(job, child.name)
    if key is not None or not names_no_other(job, child):
        return key
    return key_of_labels(job, child)


def key_of_name(job: str, name: str) -> ReplicaKey | None:
    """Return the replica whose pod and service have this name, or None."""
    rest = name.removeprefix(f"{job}-")
    kind, _, index = rest.rpartition("-")
    replica_type = _TYPE_OF_LABEL.get(kind)
    if rest == name or replica_type is None or not (index.isascii() and index.isdigit()):
        return None
    key = ReplicaKey.of(job, replica_type, int(index))
    return key if name == key.name else None


def key_of_service(job: str, name: str) -> ReplicaKey | None:
    """Return the owner of the service with this name: a replica, or the whole job; None for any other name."""
    return ReplicaKey.of_all(job) if name == job else key_of_name(job, name)


def unobserved(job: str, created: Iterable[str], pods: Iterable[Pod]) -> list[ReplicaKey]:
    """Return the replicas whose pods were created, by name, but are not among `pods` yet."""
    names = {*created}
    names.difference_update(pod.metadata.name for pod in pods if pod.metadata.deletion_timestamp is None)
    return [key for name in sorted(names) if (key := key_of_name(job, name)) is not None]


def names_no_other(job: str, child: ChildMeta) -> bool:
    """Return True if no label names another job. A family of labels may be missing, since other operators set only one."""
    labels = child.labels or NO_LABELS
    return (labels.job_name or job) == job == (labels.prefixed_job_name or job)


def key_of_labels(job: str, meta: ChildMeta) -> ReplicaKey | None:
    """Return the replica of this job named by a child's labels of either family, or None."""
    labels = meta.labels or NO_LABELS
    replica_type = _TYPE_OF_LABEL.get(labels.replica_type or labels.prefixed_replica_type)
    index = labels.replica_index or labels.prefixed_replica_index
    if replica_type is None or not (index.isascii() and index.isdigit()):
        return None
    return ReplicaKey.of(job, replica_type, int(index))


_POLICIES: Final = frozenset(RestartPolicy)


class Outcome(enum.StrEnum):
    """The outcome of one pod."""

    WAITING = "waiting"
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


STILL_RUNNING: Final = frozenset({Outcome.WAITING, Outcome.ACTIVE})


@dataclass(frozen=True, slots=True)
class Replica:
    """A pod of the job, with its replica, outcome and attempt. `ended` is how `tensorflow` ended, if the pod shows it."""

    key: ReplicaKey
    pod: Pod
    outcome: Outcome
    ended: ContainerStateTerminated | None = None
    attempt: int = 0

    @property
    def type(self) -> str:
        """The replica type."""
        return self.key.type

    @property
    def index(self) -> int:
        """The replica index."""
        return self.key.index

    @property
    def restart_policy(self) -> str:
        """The replica's policy when the pod was created; "" for pods of older releases, which do not record it."""
        policy = (self.pod.metadata.labels or NO_LABELS).restart_policy
        return policy if policy in _POLICIES else ""

    @property
    def uid(self) -> str:
        """The UID of the pod."""
        return self.pod.metadata.uid

    @property
    def terminating(self) -> bool:
        """True if the pod is being deleted: it does not count as failed, and is not replaced before it is gone."""
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def ran_s(self) -> float:
        """How long its terminated training container ran, in seconds."""
        ended = self.ended
        if ended is None or ended.started_at is None or ended.finished_at is None:
            return 0.0
        return (ended.finished_at - ended.started_at).total_seconds()

    @property
    def disrupted(self) -> bool:
        """True if the cluster, and not its own process, ended this pod."""
        return is_disrupted(self.pod)

    @property
    def stopped_gracefully(self) -> bool:
        """True if the pod exited with 0 because of a disruption: not a failure, but the replica is not finished either."""
        failed = self.pod.status.phase == PodPhase.FAILED or (self.ended is not None and self.ended.exit_code != 0)
        return self.disrupted and not failed and self.outcome is Outcome.FAILED

    @property
    def container_policy_forbids_restart(self) -> bool:
        """True if the training container failed and the container's own restart policy and rules forbid a restart."""
        return self.ended is not None and container_policy_forbids_restart(
            self.pod, c.CONTAINER_NAME, self.ended.exit_code
        )

    @property
    def has_ended(self) -> bool:
        """True if nothing in this pod runs or will run again, even if its phase does not reflect that yet."""
        return has_ended(self.pod)

    @property
    def holds_quota(self) -> bool:
        """True if the pod has no terminal phase: until then, schedulers, ResourceQuota and Kueue count its resources."""
        return self.pod.status.phase not in TERMINAL

    @property
    def lingers(self) -> bool:
        """True if the training has ended while another ordinary container of the pod, such as a log shipper, still works.

        False if the cluster takes the pod away.
        """
        return not (self.outcome in STILL_RUNNING or self.terminating or self.has_ended or self.disrupted)


def attempt_of(pod: Pod, current: int) -> int:
    """Return the attempt of a pod of a job whose attempt is `current`."""
    label = (pod.metadata.labels or NO_LABELS).attempt
    return c.attempt_in(label, current) if label else 0


def of_earlier_attempts(job: TFJob, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of earlier attempts, except those of finished replicas."""
    status, name = job.status, job.metadata.name
    older = [pod for pod in pods if attempt_of(pod, status.attempt) < status.attempt]
    if not (older and status.finished_indices):
        return older
    done = {kind: parse_indices(text, MAX_REPLICAS) for kind, text in status.finished_indices.items()}
    keys = ((key_of(name, pod.metadata) or NO_REPLICA, pod) for pod in older)
    return [pod for key, pod in keys if key.index not in done.get(key.type, ())]


def replicas_of(
    job: str, pods: Iterable[Pod], records: Iterable[IndexRestarts] = (), attempt: int = 0
) -> tuple[list[Replica], list[Replica]]:
    """Determine replica and outcome of each pod that the job controls. Return one pod per replica, and the surplus.

    Surplus pods are never evaluated or counted. `records` and `attempt` are those of the job's status; the records contain
    facts that pods no longer show.
    """
    stopped = {record.pod for record in records if record.stopped}
    chosen: dict[ReplicaKey, Replica] = {}
    others: list[Replica] = []
    for pod in pods:
        key = key_of(job, pod.metadata) or NO_REPLICA
        outcome, ended = _outcome(pod, stopped=pod.metadata.uid in stopped)
        replica = Replica(key, pod, outcome, ended, attempt_of(pod, attempt))
        current = chosen.get(key)
        if key is NO_REPLICA or (current is not None and _selection_order(current) <= _selection_order(replica)):
            others.append(replica)
            continue
        if current is not None:
            others.append(current)
        chosen[key] = replica
    return list(chosen.values()), others


_OLDEST: Final = datetime.min.replace(tzinfo=UTC)


def _selection_order(replica: Replica) -> tuple[bool, datetime, str]:
    """Return the order by which one pod is chosen: the one with the replica's name first, even while terminating.

    The name of that pod is in use until the pod is gone, and its outcome counts. The oldest pod comes next, so that a later pod
    does not replace a running one; the UID breaks ties within a second.
    """
    meta = replica.pod.metadata
    return meta.name != replica.key.name, meta.creation_timestamp or _OLDEST, meta.uid


def _outcome(pod: Pod, *, stopped: bool) -> tuple[Outcome, ContainerStateTerminated | None]:
    training = _training(pod)
    ended = training.state.terminated if training is not None else None
    phase = pod.status.phase
    if phase not in TERMINAL and (training is None or not is_final(pod, training)):
        return (Outcome.ACTIVE if phase == PodPhase.RUNNING else Outcome.WAITING), None
    # A failed sidecar makes the pod Failed, but the replica succeeded if `tensorflow` exited with 0. A pod with a reason was
    # terminated as a whole (by a deadline or an eviction); an exit code of 0 may then be the reaction to that. Under Always
    # this operator restarts it as the kubelet would have, unless the container has its own policy.
    own = next(
        (container.restart_policy for container in pod.spec.containers if container.name == c.CONTAINER_NAME), ""
    )
    policy = (pod.metadata.labels or NO_LABELS).restart_policy
    restarts_always = policy == RestartPolicy.ALWAYS and pod.spec.restart_policy == PodRestartPolicy.NEVER and not own
    did_its_work = not restarts_always and (
        phase == PodPhase.SUCCEEDED or (ended is not None and ended.exit_code == 0 and not pod.status.reason)
    )
    if did_its_work and not stopped and not was_stopped(pod, ended):
        return Outcome.SUCCEEDED, ended
    return Outcome.FAILED, ended


def _training(pod: Pod) -> ContainerStatus | None:
    return next((status for status in pod.status.container_statuses or () if status.name == c.CONTAINER_NAME), None)


def count(replicas: Sequence[Replica], types: Iterable[str]) -> dict[str, ReplicaStatus]:
    """Return counters per replica type, in the order of `types`. Terminating pods count only if they succeeded before."""
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


Finished = dict[str, set[int]]
"""Succeeded indices, by replica type."""


def unfinished_keys(job: str, spec: TFJobSpec, finished: Finished) -> list[ReplicaKey]:
    """Return the replicas that should have a pod: all that have not succeeded."""
    keys: list[ReplicaKey] = []
    for replica in spec.replicas.values():
        done = finished[replica.type]
        indices = range(replica.replicas)
        keys += ReplicaKey.each(
            job, replica.type, [index for index in indices if index not in done] if done else indices
        )
    return keys


def count_pods(replicas: Sequence[Replica], finished: Finished) -> dict[str, ReplicaStatus]:
    """Count pods for the types in `finished`; a succeeded replica remains counted when its pod is gone.

    It counts only once: a restarted kubelet can turn a Succeeded pod into a Failed one (kubernetes#126341).
    """
    if not any(finished.values()):
        return count(replicas, finished)
    others = [replica for replica in replicas if replica.index not in finished.get(replica.type, ())]
    return {
        name: msgspec.structs.replace(status, succeeded=len(finished[name]))
        for name, status in count(others, finished).items()
    }


def count_unended(
    counts: Mapping[str, ReplicaStatus], replicas: Iterable[Replica], expected: Iterable[ReplicaKey] = ()
) -> dict[str, ReplicaStatus]:
    """Return the counters of a job being suspended, or whose end waits: every pod that holds quota is active.

    Even a terminating pod is active, and one that was created but is not in the cache yet (`expected`). A pod of an unknown
    replica counts for the first type. Kueue releases the quota of a suspended job once no replica type has an active pod.
    """
    types = [*(replica.type for replica in replicas if replica.holds_quota), *(key.type for key in expected)]
    first = next(iter(counts), c.WORKER)
    alive = Counter(name or first for name in types)
    return {
        name: msgspec.structs.replace(counts.get(name, ReplicaStatus()), active=alive[name])
        for name in dict.fromkeys((*counts, *alive))
    }


@dataclass(frozen=True, slots=True)
class Observed:
    """The children of a job.

    `surplus` are pods not in the spec, duplicates, and pods of earlier attempts. `older` is true if pods of earlier attempts
    exist. A service's name alone determines whether it belongs to a replica or the whole job, since pods are found by DNS. Its
    key is None if the name is not conclusive.
    """

    replicas: Sequence[Replica]
    surplus: Sequence[Replica]
    services: Sequence[tuple[ReplicaKey | None, Service]]
    older: bool = False

    @property
    def has_children(self) -> bool:
        """True if any pod or service exists; a replica's service is created just before its pod."""
        return bool(self.replicas or self.surplus or self.services)

    def services_in_use(self, job: str) -> set[ReplicaKey]:
        """Return the keys of the services by which running pods find each other: a replica's own, or the shared one."""
        keies = {replica.key for replica in self.replicas if replica.pod.spec.subdomain != job}
        return keies if len(keies) == len(self.replicas) else keies | {ReplicaKey.of_all(job)}

    def services_except(self, keys: Collection[ReplicaKey]) -> tuple[Service, ...]:
        """Return the services that belong to none of these replicas and are not terminating."""
        return tuple(
            service for key, service in self.services if service.metadata.deletion_timestamp is None and key not in keys
        )

    def services_of(self, keys: Collection[ReplicaKey]) -> list[tuple[ReplicaKey, Service]]:
        """Return the services that belong to these replicas."""
        return [(key, service) for key, service in self.services if key is not None and key in keys]

    def limited_to(self, sizes: Mapping[str, int]) -> Observed:
        """Return the children for these numbers of replicas per type; pods with an index beyond them are surplus."""
        if all(replica.index < sizes.get(replica.type, 0) for replica in self.replicas):
            return self
        beyond = [replica for replica in self.replicas if replica.index >= sizes.get(replica.type, 0)]
        within = [replica for replica in self.replicas if replica.index < sizes.get(replica.type, 0)]
        return replace(self, replicas=within, surplus=[*beyond, *self.surplus])


def observe(job: TFJob, pods: Sequence[Pod], services: Iterable[Service]) -> Observed:
    """Group the children of a job by replica."""
    name, older = job.metadata.name, []
    if job.status.attempt:
        older = of_earlier_attempts(job, pods)
        gone = {pod.metadata.uid for pod in older}
        pods = [pod for pod in pods if pod.metadata.uid not in gone]
    replicas, others = replicas_of(name, pods, job.status.restarts, job.status.attempt)
    if older:
        others = [*others, *chain(*replicas_of(name, older, job.status.restarts, job.status.attempt))]
    found = [(key_of_service(name, service.metadata.name), service) for service in services]
    return Observed(replicas, others, found, older=bool(older))


@dataclass(frozen=True, slots=True)
class Drift:
    """A child that was edited externally, and its replica."""

    child: Pod | Service
    key: ReplicaKey


def problems_of(replicas: Iterable[Replica]) -> tuple[StartProblem, ...]:
    """Return the problems that keep these replicas from starting."""
    return tuple(
        problem
        for replica in replicas
        if replica.outcome is Outcome.WAITING and not replica.terminating
        for problem in problems_of_pod(replica.pod)
    )


C = TypeVar("C", Pod, Service)


def is_adoptable(job: str, child: Pod | Service) -> bool:
    """Return True if all labels identify an orphan as the pod or service of a replica of this job.

    A terminated pod is not adopted: it is the outcome of another job. A service is adopted only under its replica's name.
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
    """Return the orphans, of one kind, that an active job adopts.

    `owned` are the children that the job controls; `orphans` are found by `ORPHAN_INDEX`. One orphan is adopted per replica,
    preferably that with the replica's name; none if the replica has a child already. Owned children are never released,
    whatever their labels; they are deleted with the job.
    """
    if not orphans:
        return ()
    taken = {key_of(job, child.metadata) for child in owned}
    adopt: dict[ReplicaKey, C] = {}
    for child in orphans:
        key = _key_of(job, child)
        if key is None or key in taken or not is_adoptable(job, child):
            continue
        if key not in adopt or child.metadata.name == key.name:
            adopt[key] = child
    return tuple(adopt.values())


def _key_of(job: str, orphan: Pod | Service) -> ReplicaKey | None:
    """Return the key that an orphan would have in this job, by its labels or, for the shared service, by its name."""
    key = key_of_labels(job, orphan.metadata)
    if key is None and isinstance(orphan, Service) and orphan.metadata.name == job:
        return ReplicaKey.of_all(job)
    return key


def is_from_other_operator(status: JobStatus) -> bool:
    """Return True if the status was written by another operator (ours always sets `observedGeneration`)."""
    return bool(status.conditions) and status.begun is None and not status.observed_generation


def may_have_hidden_children(job: TFJob) -> bool:
    """Return True if the job may have children that our watches do not select and that affect the plan.

    Those of a finished job are ignored.
    """
    status = job.status
    lives = job.metadata.deletion_timestamp is None and not conditions.is_finished(status)
    return lives and is_from_other_operator(status)


def missing_children(job: TFJob, spec: TFJobSpec, children: Iterable[Pod] | Iterable[Service]) -> Iterator[ReplicaKey]:
    """Yield the replicas without a child among `children`, which are all known children of one kind.

    Replicas counted in the status are included as well as those in the spec, because the job may have been scaled down while
    no operator was running. The counters are capped at the maximum number of replicas.
    """
    name = job.metadata.name
    seen = {key_of_name(name, child.metadata.name) for child in children}
    for kind in c.REPLICA_TYPES:
        counts = job.status.replica_statuses.get(kind)
        counted = min(counts.active + counts.succeeded + counts.failed, MAX_REPLICAS) if counts is not None else 0
        for index in range(max(spec.sizes.get(kind, 0), counted)):
            key = ReplicaKey.of(name, kind, index)
            if key not in seen:
                yield key


def adoption_patch(
    job: ObjectMeta, spec: TFJobSpec, key: ReplicaKey, uid: str, selector: Mapping[str, str]
) -> dict[str, object]:
    """Return the merge patch that adds our labels to a child.

    `selector` is the current selector of a service, which the patch changes to our labels; empty for a pod. The patch fails for
    a child with another UID.
    """
    labels = labels_of(job, spec, key)
    body: dict[str, object] = {"metadata": {"uid": uid, "labels": labels}}
    if selector:
        body["spec"] = {"selector": {**dict.fromkeys(selector), **selector_of(labels)}}
    return body


def find_label_drift(
    job: str, replicas: Iterable[Replica], services: Iterable[tuple[ReplicaKey, Service]]
) -> Iterator[Drift]:
    """Yield the children whose labels do not match the replica given by their names.

    Children with other names are identified by their labels alone and are not changed.
    """
    for replica in replicas:
        yield from _find_label_drift(job, replica.key, replica.pod)
    for key, service in services:
        yield from _find_label_drift(job, key, service)


def find_selector_drift(job: str, services: Iterable[tuple[ReplicaKey, Service]]) -> Iterator[Drift]:
    """Yield the services that do not select the pod of their replica."""
    for key, service in services:
        if service.spec is None or service.metadata.deletion_timestamp is not None:
            continue
        if service.spec.selector != selector_of(msgspec.to_builtins(labels_wanted(job, key))):
            yield Drift(service, key)


def labels_wanted(job: str, key: ReplicaKey, *, others: ChildLabels = NO_LABELS) -> ChildLabels:
    """Return the labels that a replica's child, or the shared service, should have: ours, and the rest from `others`."""
    if not key.type:
        return msgspec.structs.replace(
            others, group_name=c.GROUP_NAME, job_name=job, operator_name=c.OPERATOR_NAME, prefixed_job_name=job
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
        cluster_spec=others.cluster_spec,
        restart_policy=others.restart_policy,
        attempt=others.attempt,
        execution=others.execution,
    )


def _find_label_drift(job: str, key: ReplicaKey, child: Pod | Service) -> Iterator[Drift]:
    """Yield a child of this replica if its labels do not match its name, unless it is terminating."""
    meta = child.metadata
    if meta.deletion_timestamp is not None or meta.name != key.name:
        return
    labels = meta.labels or NO_LABELS
    wanted = labels_wanted(job, key, others=labels)
    if labels != wanted and labels != _newer_labels(wanted):
        yield Drift(child, key)


def _newer_labels(labels: ChildLabels) -> ChildLabels:
    """Return the labels that training-operator has set since 1.6; they identify the replica and are not user-editable."""
    return msgspec.structs.replace(labels, group_name="", job_name="", replica_type="", replica_index="")
