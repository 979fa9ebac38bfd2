"""The state of a job, its counts, and the reason why it does not run: the only place that decides these. Pure.

All displays read a `JobSnapshot`: `list`, `status`, `watch`, `wait`, `explain`, `timeline` and the dashboard. The rules are
those of docs/kubectl-tfjob.md, "List jobs".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.states import limit_in
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model import older
from tfjob_operator.cli.model.facts import (
    BY_RESTARTS,
    CONTAINER,
    FAILED,
    RECOVERY_S,
    SUCCEEDED,
    Counters,
    JobFacts,
    PodFacts,
    exit_of,
    job_facts,
    listed,
    mapping,
    pod_facts,
    text,
)
from tfjob_operator.cli.model.job_events import OF_JOBS, RESUMED, WARNINGS, CountedEvent, JobEvents
from tfjob_operator.cli.model.queues import waits_for
from tfjob_operator.cli.model.replica_names import ReplicaName, order_of, replica_of

_INTENDED: Final = frozenset({"Terminating", "Suspended", "Queued", "ManagedElsewhere"})
_TEMPORARY: Final = frozenset(
    {"Pending", "ContainerCreating", "PodInitializing", "PodTerminating", "NotReady", "Starting", "Restarting"}
)
_TRAINING: Final = frozenset({"Chief", "Master", "Worker"})
"""The replica types without which nothing trains."""
_PATIENCE_S: Final = 300.0
"""The seconds after which a temporary reason needs attention."""
BACK_OFF: Final = "BackOff:"
"""The reason of a job with a delayed restart, followed by the remaining time."""
RESTARTS: Final = "Restarts:"
"""The reason of a job with a replica that fails again and again, followed by the number of its restarts."""
RECREATED: Final = "Recreated:"
"""The reason of a job with a replica whose pods others delete or disrupt again and again, followed by how often."""
_OFTEN: Final = 1
"""The pods of a replica may be replaced this often without a reason."""
_SLOW_S: Final = 60.0
"""The seconds within which the operator should have created a job's pods, and a kubelet stopped one after its grace period."""
_PLAIN: Final = frozenset({"", "TFJobFailed"})
"""Reasons of a failed job that add nothing to the state."""


class Recreation(NamedTuple):
    """How often others deleted or disrupted the pod of a replica, since when, and when last; and how it ended, if known."""

    times: int
    since: float
    last: float
    words: str


@dataclass(frozen=True, slots=True)
class ReplicaSnapshot:
    """A replica, with its newest pod.

    `state` is that of the pod as in kubectl's column STATUS or, without a pod: Succeeded, Missing, BackOff, Suspended, `No pod`
    if the job is over, or Unknown without permission to list pods. `why` is its problem, "" for none.
    """

    type: str
    index: int
    state: str
    ready: bool = False
    running: bool = False
    restarts: int = 0
    why: str = ""
    pod: PodFacts | None = None

    @property
    def has_succeeded(self) -> bool:
        """True if the replica has done its work: its training container, which may be gone, ended with 0."""
        return self.pod.has_succeeded if self.pod is not None else self.state == SUCCEEDED


class JobSnapshot:
    """A job at a time. `pods` are None without permission to list them; `events` are those that `needs_events` selects.

    `waits` is what a queued job waits for, as reason and message.
    """

    def __init__(
        self,
        job: JobFacts,
        pods: Iterable[PodFacts] | None,
        now: float,
        *,
        events: JobEvents | None = None,
        waits: tuple[str, str] | None = None,
    ) -> None:
        self.job = job
        self.now = now
        self.has_pods = pods is not None
        self._events = events or JobEvents()
        self._waits = waits
        self.pods: dict[ReplicaName, list[PodFacts]] = defaultdict(list)
        """The pods of each replica, newest last: the alpha dialect keeps failed pods."""
        for pod in sorted(pods or (), key=lambda each: (each.created, each.name)):
            if pod.owner in {"", job.uid}:
                self.pods[pod.replica].append(pod)

    @property
    def state(self) -> str:
        """The state, see `api.v1.states`."""
        return self.job.state

    @property
    def wanted(self) -> int:
        """How many replicas are requested."""
        return sum(self.job.sizes.values())

    @cached_property
    def ready(self) -> int:
        """How many of the requested replicas are ready."""
        return sum(map(self.ready_of, self.job.sizes))

    def ready_of(self, kind: str) -> int:
        """Return how many replicas of a type are ready; those that another controller counts, if it manages the job."""
        if self.job.manager:
            return min(self.job.counts.get(kind, Counters()).active, self.job.sizes.get(kind, 0))
        return sum(pod.ready for pod in self._newest if pod.replica.type == kind)

    def succeeded_of(self, kind: str) -> int:
        """Return how many replicas of a type have succeeded.

        The status of a finished job also counts workers that still trained at its success. Only for an operator that does not
        record which replicas have succeeded, it is all that is known of deleted pods.
        """
        own = sum(replica.has_succeeded for replica in self.replicas if replica.type == kind)
        return own if self.job.done else max(own, self.job.counts.get(kind, Counters()).succeeded)

    @property
    def reason(self) -> str:
        """Why the job failed, or why fewer replicas than requested are ready or have succeeded; "" if neither."""
        return self._why[0]

    @property
    def message(self) -> str:
        """The message of the reason, or else of the condition that gives the state."""
        return self._why[1]

    @property
    def is_quiet(self) -> bool:
        """True if the reason is intended, or temporary and new."""
        is_new = self.now - self._last_act < _PATIENCE_S
        return self.reason in _INTENDED or (is_new and self.reason in _TEMPORARY)

    @cached_property
    def restarts(self) -> int:
        """All restarts of replicas, and of the whole job."""
        names = self.job.restarts.keys() | self.pods.keys()
        return sum(map(self.restarts_of, names)) + self.job.attempt

    def restarts_of(self, name: ReplicaName) -> int:
        """Return the restarts of a replica: the recorded ones, or those of its pods if there are more."""
        pods = self.pods.get(name, ())
        unreplaced = any(pod.uid in self.job.at_limit for pod in pods)
        return max(
            self.job.restarts.get(name, 0) - unreplaced, sum(pod.restarts for pod in pods) + max(len(pods) - 1, 0)
        )

    @property
    def lasted_s(self) -> float | None:
        """How long the job has run since it started or was resumed, in seconds; None if it does not run or that is unknown."""
        job = self.job
        if job.started is None or (job.is_suspended and not job.end):
            return None
        until = job.ended if job.end else self.now
        return until - job.started if until is not None else None

    @cached_property
    def changes_at(self) -> float | None:
        """When the reason may next change by time alone, in seconds since 1970; None if only a change of objects changes it."""
        if self.job.end or self.job.is_deleted:
            return None
        times = [pod.recovers for pod in self._newest if pod.recovers is not None]
        times += [pod.grace_ends + _SLOW_S for pod in self._newest if pod.grace_ends is not None]
        times += [self._last_act + _SLOW_S, self._last_act + _PATIENCE_S] if self.reason else []
        times += [at + RECOVERY_S for at in self.job.failed_at.values()]
        times += [recreation.last + RECOVERY_S for recreation in self.recreated.values()]
        times += [self.job.next_restart] if self.job.next_restart is not None else []
        return min((at for at in times if at > self.now), default=None)

    @cached_property
    def replicas(self) -> tuple[ReplicaSnapshot, ...]:
        """All replicas that are requested or have a pod, in the order of types and indices."""
        named = {name for name in self.pods if name.type or name.number >= 0}
        named |= {ReplicaName(kind, index) for kind, size in self.job.sizes.items() for index in range(size)}
        found = [self._replica(name) for name in sorted(named, key=order_of)]
        others = (pod for name in self.pods.keys() - named for pod in self.pods[name])
        return (*found, *(_of_pod(pod, self.now, pod.restarts) for pod in others))

    def needs_events(self) -> Sequence[str]:
        """Return the field selectors of the events without which the reason may be unknown.

        These are none if all pods are up and as old as the job, or as their last recorded restart. Otherwise they are Warnings,
        if a pod was not created or does not start, and the events of jobs, if a pod is unexpectedly new.
        """
        job = self.job
        if not self.has_pods or job.end or job.held or job.is_suspended or job.manager or job.is_deleted:
            return ()
        return (*[WARNINGS] * self._is_stuck, *[OF_JOBS] * self._may_be_recreated)

    @property
    def _may_be_recreated(self) -> bool:
        """True if a replica has a pod of the last ten minutes that no start of the job and no recorded restart explains."""
        job = self.job
        starts = (job.created, job.started, job.next_restart, *job.attempt_ends)
        known = max((at for at in starts if at is not None), default=self.now)
        return any(
            abs(self.now - pod.created) < RECOVERY_S
            and pod.created - max(known, job.failed_at.get(pod.replica, 0.0), job.delayed.get(pod.replica, 0.0))
            > _SLOW_S
            for pod in self._newest
        )

    @cached_property
    def recreated(self) -> Mapping[str, Recreation]:
        """The replicas whose pods others deleted or disrupted more than once, the last time within ten minutes.

        RESTARTS does not count that. The operator's events on a job are limited to 25 at once, and then one in five minutes, so
        the last creation may have none. Those about pods that ended are not limited, but pods that were deleted have none.
        """
        job, resumed = self.job, 0
        made, ended = defaultdict[str, list[CountedEvent]](list), defaultdict[str, list[CountedEvent]](list)
        for event in self._events.counted(job.uid):
            if event.reason == RESUMED:
                resumed += event.times
            else:
                (ended if event.words else made)[event.pod].append(event)
        created, found = {pod.name: pod.created for pod in self._newest}, dict[str, Recreation]()
        for pod in made | ended:
            name, events = replica_of(None, job.name, pod, job.runtime_id), [*made[pod], *ended[pod]]
            explained = resumed + self._recent_attempts + job.restarts.get(name, 0)
            times = max(sum(each.times for each in made[pod]) - 1, sum(each.times for each in ended[pod])) - explained
            last = max(created.get(pod, 0.0), *(each.last for each in events))
            is_wanted = name.number < job.sizes.get(name.type, 0) and name.number not in self._done.get(name.type, ())
            if is_wanted and times > _OFTEN and self.now - last < RECOVERY_S:
                words = max(ended[pod], key=lambda each: each.last).words if ended[pod] else ""
                found[pod] = Recreation(times, min(each.first for each in events), last, words)
        return found

    @property
    def _recent_attempts(self) -> int:
        """How often the whole job was restarted in the last ten minutes, or more: the history of attempts is limited."""
        recent = sum(self.now - at < RECOVERY_S for at in self.job.attempt_ends)
        return self.job.attempt if recent == len(self.job.attempt_ends) else recent

    @cached_property
    def _newest(self) -> Sequence[PodFacts]:
        """The current pod of each requested replica."""
        sizes = self.job.sizes
        return [pods[-1] for name, pods in self.pods.items() if name.number < sizes.get(name.type, 0)]

    @cached_property
    def _done(self) -> Mapping[str, set[int]]:
        """The replicas that have succeeded, by type."""
        done = {kind: parse_indices(self.job.done.get(kind, ""), size) for kind, size in self.job.sizes.items()}
        for pod in self._newest:
            if pod.has_succeeded:
                done[pod.replica.type].add(pod.replica.number)
        return done

    @cached_property
    def _missing(self) -> int:
        """How many replicas have neither succeeded nor a pod. Older operators only counted those that have succeeded."""
        pods = sum(not pod.has_succeeded for pod in self._newest)
        done = sum(count.succeeded for count in self.job.counts.values())
        return max(self.wanted - pods - max(sum(map(len, self._done.values())), done), 0)

    @property
    def _is_stuck(self) -> bool:
        return bool(self._missing) or any(pod.starting for pod in self._newest)

    @cached_property
    def _why(self) -> tuple[str, str]:
        job = self.job
        message = text(job.condition.get("message"))
        if job.is_deleted:
            return "Terminating", ""
        if job.end:
            return self._failure(message) if job.end == FAILED else ("", message)
        if job.held is not None:
            return text(job.held.get("reason")), text(job.held.get("message"))
        if job.is_suspended:
            # The condition of another state says that the job runs.
            message = message if job.state == "Suspended" else ""
            return self._waits or next(self._kept(), None) or (("Queued", "") if job.queue else ("Suspended", message))
        if job.manager:
            return "ManagedElsewhere", f"managed by {job.manager}"
        return next(self._hindrances(), ("", message))

    def _failure(self, message: str) -> tuple[str, str]:
        """Return why a job failed: its limit, the reason of its condition, or the failure of a replica."""
        reason, failure = text(self.job.condition.get("reason")), mapping(self.job.condition.get("failure"))
        if reason in {"JobFailed", "TFJobFailed"}:  # other operators use the second for limits too
            reason = text(self.job.condition.get("event")) or limit_in(message) or reason
        container = text(failure.get("containerName"))
        if reason == BY_RESTARTS and container not in {"", CONTAINER}:
            return f"{reason}:{container}", message
        if reason not in _PLAIN:
            return reason, message
        failure = failure or mapping(older.failure_in(message))
        if failure.get("exitCode") or text(failure.get("reason")) not in {"", "Error", "Completed"}:
            return exit_of(failure), message
        problem, why = next(self._problems([pod for pod in self._newest if pod.problem]), ("TFJobFailed", ""))
        return problem, why or message

    def _hindrances(self) -> Iterator[tuple[str, str]]:
        """Yield why fewer replicas than requested are ready or have succeeded, as reason and message; the first one decides."""
        job, newest = self.job, self._newest
        pods = [pod for pod in newest if pod.problem and (pod.recovers is None or self.now < pod.recovers)]
        if pods and not any(pod.node for pod in pods):  # a pod that cannot be created comes before one without a node
            yield from self._told_by_events([self.job.uid] * bool(self._missing))
        yield from self._problems(pods)
        if job.next_restart is not None and job.next_restart > self.now:
            at = datetime.fromtimestamp(job.next_restart, UTC)
            yield f"{BACK_OFF}{duration(job.next_restart - self.now)}", f"next restart at {at:%H:%M:%S} UTC"
        if not self.has_pods:
            yield from self._stalled()
            return
        if self._is_stuck:
            starting_uids = [pod.uid for pod in newest if pod.starting]
            yield from self._told_by_events([self.job.uid] * bool(self._missing) + starting_uids)
        yield from self._failing_again()
        for pod, each in sorted(self.recreated.items(), key=lambda found: -found[1].times)[:1]:
            how = f"; the last one {each.words}" if each.words else ""
            ago = duration(max(self.now - each.last, 0.0))
            yield f"{RECREATED}{each.times}", f"{pod} was recreated {each.times} times, last {ago} ago{how}"
        starting = Counter(pod.starting for pod in newest if pod.starting)
        if starting:
            yield starting.most_common(1)[0][0], ""
        yield from _first("PodTerminating", "is being deleted", [pod for pod in newest if pod.is_terminating])
        yield from _first(
            "NodeNotReady", "runs on a node that is not ready", [pod for pod in newest if pod.is_on_lost_node]
        )
        if job.sizes and not self.wanted:
            yield "NoReplicas", "all replica types have replicas: 0"
        yield from self._without_training()
        if self._missing:
            yield self._without_pod()
        yield from self._stalled()
        unready = [pod for pod in newest if pod.is_up and not (pod.ready or pod.has_succeeded or pod.waits_for_none)]
        yield from _first("NotReady", "is not ready", unready)

    def _failing_again(self) -> Iterator[tuple[str, str]]:
        """Yield the replica with the most restarts whose last failure is recent: its pod may be a new one without a past."""
        sizes, now = self.job.sizes, self.now
        recent = [
            (self.restarts_of(name), name)
            for name, at in self.job.failed_at.items()
            if now - at < RECOVERY_S and name.number < sizes.get(name.type, 0)
            if name.number not in self._done.get(name.type, ())
        ]
        times, name = max(recent, default=(0, None))
        if name is not None and times > 1:
            ago = duration(now - self.job.failed_at[name])
            yield (
                f"{RESTARTS}{times}",
                f"{name.type.lower()}-{name.number} was restarted {times} times, and failed {ago} ago",
            )

    def _stalled(self) -> Iterator[tuple[str, str]]:
        """Yield that no replica writes log lines, although all run."""
        if self.job.stalled is not None:
            yield "Stalled", text(self.job.stalled.get("message"))

    def _without_training(self) -> Iterator[tuple[str, str]]:
        """Yield why the replicas that run cannot do the work of the job."""
        sizes = {kind: size for kind, size in self.job.sizes.items() if kind in _TRAINING}
        if sizes and self.wanted and not any(sizes.values()):
            yield "NothingTrains", f"{', '.join(sizes)} have replicas: 0"
        served, trained = self._done.get("PS"), sum(len(self._done.get(kind, ())) for kind in sizes)
        if served and trained < sum(sizes.values()):
            others = f" (and {len(served) - 1} more)" if len(served) > 1 else ""
            yield "PSCompleted", f"ps-{min(served)}{others} exited with code 0 and is not restarted, while others train"

    def _kept(self) -> Iterator[tuple[str, str]]:
        """Yield the pods of a suspended job that exist long after their grace period."""
        kept = [pod for pod in self._newest if pod.grace_ends is not None and self.now - pod.grace_ends > _SLOW_S]
        yield from _first("PodTerminating", "exists long after its grace period", kept)

    def _problems(self, pods: Sequence[PodFacts]) -> Iterator[tuple[str, str]]:
        """Yield the most frequent problem of these pods."""
        for problem, _ in Counter(pod.problem for pod in pods).most_common(1):
            why = next((pod.problem_message for pod in pods if pod.problem == problem and pod.problem_message), "")
            yield problem, why

    def _told_by_events(self, uids: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the newest Warning about these objects."""
        warnings = self._events.warnings
        event = max((warnings[uid] for uid in uids if uid in warnings), default=None)
        if event is not None:
            is_quota = "exceeded quota" in event.message
            yield "QuotaExceeded" if is_quota else event.reason, event.message

    def _without_pod(self) -> tuple[str, str]:
        """Return what a job waits for that has replicas without a pod."""
        if self.now - self._last_act > _SLOW_S:
            return "NotReconciled", "no operator has created the pods of this job"
        return "Restarting" if self.job.state == "Restarting" else "Starting", ""

    @cached_property
    def _last_act(self) -> float:
        """When the job was created, resumed or restarted, or the operator last wrote its status."""
        job = self.job
        times = (job.created, job.started, job.reconciled, job.next_restart, job.since)
        return max((at for at in times if at is not None), default=self.now)

    def _replica(self, name: ReplicaName) -> ReplicaSnapshot:
        pods, restarts = self.pods.get(name), self.restarts_of(name)
        if pods:
            return _of_pod(pods[-1], self.now, restarts)
        if name.number in self._done.get(name.type, ()):
            state = SUCCEEDED
        elif not self.has_pods:
            state = "Unknown"
        elif self.job.end:
            state = "No pod"
        elif self.job.is_suspended:
            state = "Suspended"
        else:
            delayed = self.job.delayed or {name: self.job.next_restart or 0.0}
            state = "BackOff" if delayed.get(name, 0.0) > self.now else "Missing"
        return ReplicaSnapshot(name.type, name.number, state, restarts=restarts)


def _first(reason: str, words: str, pods: Sequence[PodFacts]) -> Iterator[tuple[str, str]]:
    """Yield a reason with the first of the pods that have it."""
    if pods:
        yield reason, f"{pods[0].name} {words}{f' (and {len(pods) - 1} more)' if len(pods) > 1 else ''}"


def _of_pod(pod: PodFacts, now: float, restarts: int) -> ReplicaSnapshot:
    why = pod.problem if pod.recovers is None or now < pod.recovers else ""
    return ReplicaSnapshot(*pod.replica, pod.state, pod.ready, pod.running, restarts, why, pod)


def snapshot_of(
    job: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]] | None,
    now: float,
    events: Iterable[Mapping[str, Any]] = (),
    workload: Mapping[str, Any] | None = None,
) -> JobSnapshot:
    """Return the snapshot of a job from raw JSON. `now` is in seconds since 1970; `workload` is Kueue's object for the job."""
    facts = job_facts(job)
    found = None if pods is None else [pod_facts(pod, facts.name, facts.runtime_id) for pod in pods]
    owners = listed(mapping(mapping(workload).get("metadata")).get("ownerReferences"))
    is_own = workload is not None and facts.uid in {owner.get("uid") for owner in owners}
    waits = waits_for(workload) if workload and is_own else None
    return JobSnapshot(facts, found, now, events=JobEvents(events), waits=waits)
