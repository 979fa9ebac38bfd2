"""The status of one job while its plan is made, the facts that it keeps, and the effective spec, which depends on them. Pure.

A draft starts as the status that the job has, is changed in place by the functions that make the plan, and is frozen at the
end: into the status to write, or into None when nothing changed. It lives for one plan only.

Facts that outlive pods: finished replicas, restarts, that the job has begun and with what. The kubelet's count of restarts
goes with its pod, so ours must be written before the pod is deleted. Restarts in place and by re-creation are kept in one
record for each replica that was ever restarted, tied to the UID of its pod, so that no crash of the operator loses or
repeats one. A record also says that a pod's deletion was requested, where the pod itself may no longer show when
(`stopped`).

What pods of a type are made of is part of `status.begun`, as a hash: when an edit comes, nothing else shows what it has
changed for pods that exist and cannot be changed.

A spec is read once for each generation. Whether it takes effect also depends on the status: whether it was valid before, how
large the job was, whether the API server has refused it. A spec beyond a bound is invalid, and a job that was created with it
fails. A job that has begun keeps its size instead: only the scale-up is held (D16). It also keeps its network, a service for
each replica or one for all: pods learn each other's names when they start, and a name is that of a service, so with another
network old and new pods could not find each other.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from tfjob_operator.api.core import EventType, PodRestartPolicy
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ON_HOLD, ConditionReason, ConditionType, EventReason, Network, RestartPolicy
from tfjob_operator.api.v1.tf_config import ClusterSpec
from tfjob_operator.api.v1.types import (
    AvoidedNode,
    Begun,
    IndexRestarts,
    InvalidSpec,
    JobAttempt,
    JobStatus,
    Mistake,
    ReplicaStatus,
    SpecWarning,
    TFJob,
    TFJobSpec,
    format_indices,
    parse_indices,
)
from tfjob_operator.api.v1.validation import BOUNDS, MAX_REPLICAS, Bound, read_spec
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.draft import Draft, JobEvent
from tfjob_operator.controller.jobs.pods import goes_with_more_grace, native_sidecars
from tfjob_operator.controller.tfjob.build.children import deciding_type
from tfjob_operator.controller.tfjob.plan.replicas import Outcome, Replica, count

_WORDS: Final = {
    ConditionReason.INVALID: f"{ON_HOLD}; the spec is invalid",
    ConditionReason.REFUSED: f"{ON_HOLD}; the API server rejected it",
    ConditionReason.TOO_LARGE: "keeps its current size: the requested size exceeds a limit",
}


def announce(draft: StatusDraft, spec: TFJobSpec | InvalidSpec) -> None:
    """Report what is new about a specification. The draft must have its Created condition."""
    if isinstance(spec, InvalidSpec):
        _say_that_it_is_held(draft, spec.reason, spec.text)
        return
    _warn(draft, spec)
    if spec.too_large is not None:
        _say_that_it_is_held(draft, ConditionReason.TOO_LARGE, str(spec.too_large))
    elif conditions.is_true(draft, ConditionType.HELD):
        text = f"TFJob {draft.job.metadata.name} is resumed: the spec is valid again."
        draft.set_held(conditions.FALSE, ConditionReason.MENDED, text)
        draft.emit(EventType.NORMAL, ConditionReason.MENDED, text)


def _say_that_it_is_held(draft: StatusDraft, reason: ConditionReason, mistakes: str) -> None:
    """Report once for the same mistakes that the job is held."""
    if draft.set_held(conditions.TRUE, reason, mistakes):
        draft.emit(EventType.WARNING, reason, f"TFJob {draft.job.metadata.name} {_WORDS[reason]}: {mistakes}")


def _warn(draft: StatusDraft, spec: TFJobSpec) -> None:
    """Report a specification's warnings when it is first seen, those of templates with the Created condition (B56)."""
    job = draft.job
    if job.status.observed_generation != job.metadata.generation:
        for reason, message in spec.warnings:
            draft.emit(EventType.WARNING, reason, message)
    is_new = conditions.find(job.status.conditions, ConditionType.CREATED) is None
    if is_new and any(replica.overrides_template_policy for replica in spec.replicas.values()):
        text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        draft.emit(EventType.WARNING, EventReason.RESTART_POLICY_OVERWRITTEN, text)


FIRST_DELAY_S: Final = 10
LAST_DELAY_S: Final = 300
RESET_AFTER_S: Final = 600
"""The delays between restarts are those of the kubelet: none before the first, then 10 s, doubled each time up to 5 min, and
none again after 10 min of running (kubernetes: pkg/kubelet/kubelet.go)."""


def next_delay(last_s: int, ran_s: float) -> int:
    """Return how many seconds a restart is delayed that is not the first; the last one was for `last_s`."""
    return 0 if ran_s >= RESET_AFTER_S else min(max(FIRST_DELAY_S, 2 * last_s), LAST_DELAY_S)


@dataclass(frozen=True, slots=True)
class Replacing:
    """The failed pods that are about to be replaced, by UID.

    `counted` failed by themselves, `ignored` likewise, but a rule ignores them. `rules` are the rules that decided about a pod.
    `delays`: restarts are delayed. The ends of those `on_nodes` are counted in `avoided_nodes`.
    """

    counted: Collection[str] = ()
    ignored: Collection[str] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    delays: bool = False
    on_nodes: Collection[str] = ()


NOT_REPLACING: Final = Replacing()


def account(
    records: Iterable[IndexRestarts], replicas: Iterable[Replica], replacing: Replacing, now: datetime
) -> tuple[IndexRestarts, ...]:
    """Update the records from the pods that exist.

    Idempotent: the same pods change nothing the second time, and counts never fall. A record is moved to another pod only
    when that has something to count; whether that pod is the later one must be confirmed (see `taken_over`).
    """
    found = {(record.type, record.index): record for record in records}
    counts, rules, on_nodes = replacing.counted, replacing.rules, replacing.on_nodes
    for replica in replicas:
        uid = replica.pod.metadata.uid
        place = (replica.type, replica.index)
        before = found.get(place) if found else None
        if before is not None and before.rule and before.pod != uid and replica.outcome is Outcome.ACTIVE:
            found[place] = msgspec.structs.replace(before, rule="")  # it runs again, in time
        in_place, fails = in_place_restarts(replica.pod), uid in counts
        stopped, rule = goes_with_more_grace(replica.pod), rules.get(uid, "") if rules else ""
        on_node = uid in on_nodes
        if not (in_place or fails or stopped or rule or on_node):
            continue
        record = found.get(place, IndexRestarts(type=replica.type, index=replica.index, pod=uid))
        ignored = uid in replacing.ignored
        is_new = before is None or before.pod != uid
        if record.pod != uid:
            record = IndexRestarts(
                type=record.type,
                index=record.index,
                pod=uid,
                carried=record.total,
                failed_at=record.failed_at,
                next_time=record.next_time,
                rule=record.rule,
            )
        if (fails and not record.replaced) or (rule and record.rule != rule) or (ignored and is_new):
            repeated = bool(record.total) if fails else ignored and record.failed_at is not None
            record = _failing(record, replica, now, delays=replacing.delays and repeated)
        found[place] = msgspec.structs.replace(
            record,
            in_place=max(record.in_place, in_place),
            replaced=record.replaced or fails,
            stopped=record.stopped or stopped,
            rule=rule or record.rule,
            on_node=record.on_node or on_node,
        )
    return tuple(found[place] for place in sorted(found))


def _failing(record: IndexRestarts, replica: Replica, now: datetime, *, delays: bool) -> IndexRestarts:
    """Return the record of a replica whose pod has just failed, with the time of its next pod."""
    delay_s = 0
    if delays:
        before = record.next_time and record.failed_at and (record.next_time - record.failed_at).total_seconds()
        delay_s = next_delay(int(before or 0), replica.ran_s)
    return msgspec.structs.replace(
        record, failed_at=now, next_time=now + timedelta(seconds=delay_s) if delay_s else None
    )


def taken_over(before: Iterable[IndexRestarts], after: Iterable[IndexRestarts]) -> list[IndexRestarts]:
    """Return the records that were moved to another pod.

    On an old view that may be a pod from before the one on record, whose restarts are counted already. So such records are
    written only after the API server has confirmed that the pod exists.
    """
    pods = {(record.type, record.index): record.pod for record in before}
    return [record for record in after if pods.get((record.type, record.index), record.pod) != record.pod]


def of_a_new_attempt(records: Iterable[IndexRestarts]) -> tuple[IndexRestarts, ...]:
    """Return the records without what is about the pods of an earlier attempt only: its delays and escalations."""
    return tuple(msgspec.structs.replace(each, next_time=None, rule="") for each in records)


def merged(records: Iterable[IndexRestarts], others: Iterable[IndexRestarts]) -> tuple[IndexRestarts, ...]:
    """Merge two lists of records of the same replicas; either may be the newer. No restart is counted twice or lost.

    Of two records about one pod the larger counts are true; of records about different pods the one that counts more is the
    later, since each new pod carries what was counted before. Where they count the same, a pod of `others` that was stopped, or
    is counted on its node, is the later one: nothing else can have brought it there.
    """
    found = {(record.type, record.index): record for record in records}
    for other in others:
        place = (other.type, other.index)
        record = found.get(place, other)
        if record.pod == other.pod:
            found[place] = msgspec.structs.replace(
                record,
                carried=max(record.carried, other.carried),
                in_place=max(record.in_place, other.in_place),
                replaced=record.replaced or other.replaced,
                stopped=record.stopped or other.stopped,
                failed_at=record.failed_at or other.failed_at,
                next_time=record.next_time or other.next_time,
                rule=record.rule or other.rule,
                on_node=record.on_node or other.on_node,
            )
        elif other.total > record.total or ((other.stopped or other.on_node) and other.total == record.total):
            found[place] = other
    return tuple(found[place] for place in sorted(found))


def _merged_nodes(nodes: tuple[AvoidedNode, ...], others: tuple[AvoidedNode, ...]) -> tuple[AvoidedNode, ...]:
    """Merge what two statuses know of the same nodes: the larger counts and the later times are true."""
    if nodes == others:
        return nodes
    found = {each.name: each for each in nodes}
    for other in others:
        each = found.get(other.name, other)
        times = [time for time in (each.expiration_time, other.expiration_time) if time is not None]
        found[other.name] = AvoidedNode(other.name, max(each.failures, other.failures), max(times, default=None))
    return tuple(found.values())


def in_place_restarts(pod: Pod) -> int:
    """How often the kubelet restarted containers of this pod: all of them, init containers too (B37).

    Native sidecars count as well, but not in a pod whose policy is Never: there nobody asked for restarts, and its kubelet
    restarts them all the same, whatever the policy (M7).
    """
    spared = native_sidecars(pod.spec) if pod.spec.restart_policy == PodRestartPolicy.NEVER else frozenset()
    statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    return sum(status.restart_count for status in statuses if status.name not in spared)


SCHEME: Final = "1-"
"""What each hash begins with. Raise it whenever the same pods get another hash than in the release before: hashes of two
schemes cannot be compared, and would tell of a change where there is none."""


def made_of(job: TFJob, spec: TFJobSpec) -> dict[str, str]:
    """Return a hash of what pods and services of each type are made of, but for their number."""
    cluster = ClusterSpec(job.metadata, spec)
    return {
        kind: f"{SCHEME}{zlib.crc32(ascii(_parts_of_pods(cluster, spec, kind)).encode()):08x}" for kind in spec.replicas
    }


def is_ours(noted: Mapping[str, str]) -> bool:
    """Return whether these hashes are there, and of the present scheme. Another release may have noted those of another one."""
    return bool(noted) and all(each.startswith(SCHEME) for each in noted.values())


def stay(job: TFJob, spec: TFJobSpec, replicas: Iterable[Replica]) -> str:
    """Return in a sentence which pods stay as they were made though an edit has come; "" where there are none.

    `replicas` are those that run on. Where an operator of another release did not record what they are made of, or did it by
    another scheme, it is left unsaid.
    """
    status = job.status
    if (
        status.begun is None
        or not is_ours(status.begun.made_of)
        or status.observed_generation == job.metadata.generation
    ):
        return ""
    now, there = made_of(job, spec), {replica.type for replica in replicas}
    older = [kind for kind, each in now.items() if kind in there and status.begun.made_of.get(kind, each) != each]
    if not older:
        return ""
    keep = "existing pods keep their old template, restart policy and TF_CONFIG. Suspend and resume the job to recreate them."
    return f"{', '.join(older)}: {keep}"


def _parts_of_pods(cluster: ClusterSpec, spec: TFJobSpec, kind: str) -> tuple[object, ...]:
    replica, rules = spec.replicas[kind], spec.failure_policy
    policy = str(replica.restart_policy)
    if rules is not None and kind in rules.targets and policy in {RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE}:
        policy = f"{policy}, by the operator"  # an edit of the rules does not change the policy of a pod that exists
    return replica.digest, policy, deciding_type(spec.replicas) == kind, _told(cluster, spec, kind)


def _told(cluster: ClusterSpec, spec: TFJobSpec, kind: str) -> tuple[object, ...]:
    """Return what TF_CONFIG of a type depends on, of all types that it names. The template's own is in the template."""
    if cluster.is_alone or c.TF_CONFIG in spec.replicas[kind].template.sets:
        return ()
    named = spec.replicas if cluster.is_told_to(kind) else {c.PS} if kind == c.WORKER else ()
    sizes = [
        (each, spec.replicas[each].replicas, spec.replicas[each].template.port)
        for each in sorted(named)
        if each in spec.replicas
    ]
    return (cluster.is_told_to(kind), *sizes)


Finished = dict[str, set[int]]
"""Indices that have succeeded, by replica type."""


def finished_indices(status: JobStatus, sizes: Mapping[str, int], replicas: Iterable[Replica]) -> Finished:
    """Return which replicas have succeeded, of a job of these sizes: by the status, or by their pods now (B42)."""
    found = {name: parse_indices(status.finished_indices.get(name, ""), size) for name, size in sizes.items()}
    for replica in replicas:
        if replica.outcome is Outcome.SUCCEEDED:
            found[replica.type].add(replica.index)
    return found


def remembered(status: JobStatus, finished: Finished) -> dict[str, str]:
    """Return the finished indices to write. Those beyond the present size of a type that was scaled down are kept."""
    written = dict(status.finished_indices)
    for name, indices in finished.items():
        beyond = parse_indices(written.get(name, ""), below=MAX_REPLICAS)
        if indices or beyond:
            written[name] = format_indices(indices | beyond)
    return written


def has_begun(status: JobStatus, *, has_children: bool) -> bool:
    """Return whether pods were ever created for the job, or were about to be. Older operators did not record it.

    `has_children`: it has a pod or a service now. A pod that was created before the first status was written may be gone.
    """
    ran = any(each.type in {ConditionType.RUNNING, ConditionType.RESTARTING} for each in status.conditions)
    return bool(status.begun is not None or has_children or ran or status.finished_indices or status.restarts)


def begun(job: TFJob, spec: TFJobSpec, *, has_children: bool, makes_pods: bool) -> Begun | None:
    """Return what `status.begun` should say.

    It is written with the first status, so it costs no write. In a burst that may come after the first pods.
    """
    found = _beginning(job, spec, has_children=has_children, makes_pods=makes_pods)
    return found and msgspec.structs.replace(found, made_of=_parts(job, spec))


def _beginning(job: TFJob, spec: TFJobSpec, *, has_children: bool, makes_pods: bool) -> Begun | None:
    before = job.status.begun
    if spec.too_large is not None:
        return before  # which is what it was cut down to
    if before is not None:
        return msgspec.structs.replace(before, replicas=spec.sizes)
    network = "" if spec.network is Network.PER_REPLICA else spec.network
    if has_begun(job.status, has_children=has_children):
        # Where there is a status another operator has written it, and what was edited since nobody knows.
        generation = 0 if job.status.conditions else job.metadata.generation
        return Begun(generation, spec.sizes, network)
    return Begun(job.metadata.generation, spec.sizes, network) if makes_pods else None


def _parts(job: TFJob, spec: TFJobSpec) -> dict[str, str]:
    """Return what pods are made of: noted when this specification was first seen, since to hash it takes as long as to plan.

    What another release noted by a scheme of its own is noted anew.
    """
    status = job.status
    if (
        status.begun is not None
        and is_ours(status.begun.made_of)
        and status.observed_generation == job.metadata.generation
    ):
        return status.begun.made_of
    return made_of(job, spec)


def with_memory_of(status: JobStatus, observed: JobStatus) -> JobStatus:
    """Merge what two statuses know of finished replicas, restarts and the beginning; either may be the newer one.

    `observed` may be computed from an older version of the job: another operator process may have written since.
    """
    begun = _merged_begun(status, observed)
    if status.attempt != observed.attempt:  # a restart of the whole job may run replicas again that have finished
        older, newer = sorted((status, observed), key=lambda each: each.attempt)
        records = merged(of_a_new_attempt(older.restarts), newer.restarts)
        status = msgspec.structs.replace(status, **{name: getattr(newer, name) for name in _OF_ATTEMPTS})
        finished_indices = newer.finished_indices
    else:
        finished_indices = _merged_indices(status, observed)
        records = merged(status.restarts, observed.restarts)
    return msgspec.structs.replace(
        status,
        observed_restart_request=status.observed_restart_request or observed.observed_restart_request,
        finished_indices=finished_indices,
        restarts=records,
        begun=begun,
        avoided_nodes=_merged_nodes(status.avoided_nodes, observed.avoided_nodes),
    )


_OF_ATTEMPTS: Final = (
    "attempt",
    "counted_restarts",
    "observed_restart_request",
    "next_restart_time",
    "attempt_history",
)


def _merged_indices(status: JobStatus, observed: JobStatus) -> dict[str, str]:
    finished = {
        name: set().union(
            *(parse_indices(each.finished_indices.get(name, ""), below=MAX_REPLICAS) for each in (status, observed))
        )
        for name in status.finished_indices | observed.finished_indices
    }
    return {name: format_indices(indices) for name, indices in finished.items()}


def _merged_begun(status: JobStatus, observed: JobStatus) -> Begun | None:
    """Return the earlier of the two generations, the sizes of the later specification, and what is known of the later attempt.

    What pods are made of is that of `status`: until the other one is written, the job has not been told what stays.
    """
    if status.begun is None or observed.begun is None:
        return status.begun or observed.begun
    newer = observed if observed.observed_generation > status.observed_generation else status
    generation = min(status.begun.generation, observed.begun.generation)
    last = observed.begun if observed.attempt > status.attempt else status.begun
    return msgspec.structs.replace(
        newer.begun or status.begun,
        generation=generation,
        made_of=status.begun.made_of,
        delay_s=last.delay_s,
        all_ran=last.all_ran or (status.attempt == observed.attempt and observed.begun.all_ran),
    )


def counted(replicas: Sequence[Replica], finished: Finished) -> dict[str, ReplicaStatus]:
    """Count pods for the types in `finished`; a replica that has succeeded stays counted when its pod is gone (B22)."""
    return {
        name: msgspec.structs.replace(found, succeeded=len(finished[name])) if finished[name] else found
        for name, found in count(replicas, finished).items()
    }


_OF_EVERY_DRAFT: Final = {"conditions", "start_time", "completion_time"}
_OF_EACH_WRITE: Final = {"last_reconcile_time", "observed_generation", "phase"}
_KEPT: Final = tuple(x for x in JobStatus.__struct_fields__ if x not in _OF_EVERY_DRAFT | _OF_EACH_WRITE)
"""The fields of a status that stay as they are until a plan changes them."""


class StatusDraft(Draft):
    """A status that is being computed, and the events about what is new in it.

    Invariants: the job that it was opened on does not change; an event is emitted beside the change that it reports.
    """

    __slots__ = ("_waits", "job", "refused", *_KEPT)
    replica_statuses: dict[str, ReplicaStatus]
    finished_indices: dict[str, str]
    restarts: tuple[IndexRestarts, ...]
    begun: Begun | None
    worker_selector: str
    attempt: int
    counted_restarts: int
    observed_restart_request: str
    next_restart_time: datetime | None
    attempt_history: tuple[JobAttempt, ...]
    avoided_nodes: tuple[AvoidedNode, ...]

    def __init__(
        self,
        job: TFJob,
        now: datetime,
        events: Iterable[JobEvent] = (),
        *,
        waits: bool = False,
        refused: Collection[str] = (),
    ) -> None:
        """Open a draft on the job's status. `events` come before its own. `waits`: no pod may be created yet.

        `refused` are the children that could not be created.
        """
        status = job.status
        super().__init__(status.conditions, status.start_time, status.completion_time, now)
        self.events += events
        self.job = job
        self._waits = waits
        self.refused = refused
        for name in _KEPT:
            setattr(self, name, getattr(status, name))

    def set_false(self, condition: ConditionType, reason: ConditionReason, message: str) -> None:
        """Make a condition False that is True, by the rules of `conditions.set_false`."""
        self.conditions = conditions.set_false(self.conditions, condition, reason, message, self.whole)

    def create(self) -> None:
        """Set Created, and the selector that an autoscaler reads from the scale subresource."""
        name, kind = c.LABEL_PREFIX + c.LABEL_JOB_NAME, c.LABEL_PREFIX + c.LABEL_REPLICA_TYPE
        self.worker_selector = f"{name}={self.job.metadata.name},{kind}={c.WORKER.lower()}"
        self.set_true(ConditionType.CREATED, ConditionReason.CREATED, f"TFJob {self.job.metadata.name} is created.")

    def start(self, pods: Iterable[Pod] = ()) -> None:
        """Set the start time as any draft does, but not of a job that waits."""
        if not self._waits:
            super().start(pods)

    @property
    def has_delays(self) -> bool:
        """Whether there may be pods that are not created yet since a restart is delayed."""
        whole = self.next_restart_time is not None or (self.begun is not None and self.begun.delay_s > 0)
        return whole or (bool(self.restarts) and any(record.next_time is not None for record in self.restarts))

    def record(self, replicas: Sequence[Replica], finished: Finished, replacing: Replacing = NOT_REPLACING) -> None:
        """Record what the pods show: counters, finished replicas, restarts."""
        self.replica_statuses = counted(replicas, finished)
        self.finished_indices = remembered(self.job.status, finished)
        self.restarts = account(self.job.status.restarts, replicas, replacing, self.whole)

    def end(self, condition: ConditionType, reason: ConditionReason, message: str, at: datetime | None = None) -> None:
        """Set the last condition. Every end has both times (B44); `at` is when the deciding container ended, if one did."""
        self.set_true(condition, reason, message)
        self.complete(at)

    def freeze(self) -> JobStatus | None:
        """Return the status to write, or None when nothing changed: an idle job costs no call."""
        before = self.job.status
        status = JobStatus(
            conditions=self.conditions,
            start_time=self.start_time,
            completion_time=self.completion_time,
            last_reconcile_time=before.last_reconcile_time,
            observed_generation=self.job.metadata.generation,
            **{name: getattr(self, name) for name in _KEPT},
        )
        return None if status == before else msgspec.structs.replace(status, last_reconcile_time=self.whole)


def bounded(job: TFJob, spec: TFJobSpec, bounds: Sequence[Bound] = BOUNDS) -> TFJobSpec | InvalidSpec:
    """Return the specification as far as it is within bounds.

    A job that has begun and is beyond a bound gets no more replicas of a type than before, and `too_large` says why; scaling
    down still works. For any other job that is a mistake. Only the first bound that is exceeded is reported.
    """
    mistake = next((found for bound in bounds if (found := bound(job.metadata, spec)) is not None), None)
    if mistake is None:
        return spec
    before = job.status.begun.replicas if job.status.begun is not None else {}
    if not before:
        return InvalidSpec.of(spec, mistake)
    kept = {
        name: replace(each, replicas=min(each.replicas, before.get(name, 0))) for name, each in spec.replicas.items()
    }
    held = replace(spec, replicas=kept, too_large=mistake)
    return spec if held.sizes == spec.sizes else held


def with_network_of(job: TFJob, spec: TFJobSpec) -> TFJobSpec:
    """Return the specification with the network with which the job began, and a warning if it asks for another.

    Operators that did not record it knew only one.
    """
    if not has_begun(job.status, has_children=False):
        return spec
    begun = job.status.begun
    is_shared = begun is not None and begun.network == Network.SHARED
    network = Network.SHARED if is_shared else Network.PER_REPLICA
    if spec.network is network:
        return spec
    text = f"spec.runPolicy.network cannot change after the job started; it stays {network}"
    return replace(spec, network=network, warnings=(*spec.warnings, SpecWarning(EventReason.NETWORK_NOT_UPDATED, text)))


def refused(spec: TFJobSpec | InvalidSpec, words: str) -> InvalidSpec:
    """Return the specification as invalid, because the API server has refused a child of it, in these words."""
    return InvalidSpec.of(spec, Mistake("", words), ConditionReason.REFUSED)


def unless_refused(job: TFJob, spec: TFJobSpec | InvalidSpec) -> TFJobSpec | InvalidSpec:
    """Return the specification, as invalid if the API server has refused it: it is not tried again before it is edited."""
    held = conditions.find(job.status.conditions, ConditionType.HELD)
    if isinstance(spec, InvalidSpec) or held is None or held.status != conditions.TRUE:
        return spec
    if held.reason != ConditionReason.REFUSED or job.status.observed_generation != job.metadata.generation:
        return spec
    return refused(spec, held.message)


def read(job: TFJob) -> TFJobSpec | InvalidSpec:
    """Read the specification. The result is the same for as long as `reading_of` is."""
    return read_spec(job.metadata.name, job.spec, was_good=_was_good(job))


def reading_of(job: TFJob) -> tuple[int, bool]:
    """Return the key under which the result of `read` may be kept."""
    return job.metadata.generation, _was_good(job)


def in_force(job: TFJob, spec: TFJobSpec | InvalidSpec, bounds: Sequence[Bound] = BOUNDS) -> TFJobSpec | InvalidSpec:
    """Return the specification to follow now: as it was read, in the job's network, cut down to the bounds, or as refused."""
    if isinstance(spec, TFJobSpec):
        spec = bounded(job, with_network_of(job, spec), bounds)
    return unless_refused(job, spec)


def _was_good(job: TFJob) -> bool:
    """Whether the job has had a valid specification before: it has a Created condition."""
    return conditions.find(job.status.conditions, ConditionType.CREATED) is not None
