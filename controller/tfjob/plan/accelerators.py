"""How long the pods of a job held accelerators, and what came of it. Pure.

A pod with extended resources, such as `nvidia.com/gpu`, is counted once: in the write that records its end, or that decides to
end it (a restart, a suspension, scaling down, the end of the job). Restarts in place are part of their pod. Nothing is counted
after the end of the job is decided, so pods that `cleanPodPolicy` keeps are counted up to that decision.

A pod is counted from when its kubelet accepted it, before the image is pulled, to its end. Both times are the node's, so their
difference is right however wrong its clock is. Up to a decision, a deletion or a disappearance, the end is our own time; the
difference of the two clocks is then an error. In no case is a pod counted for longer than it exists (or the job, if the pod is
gone).

Why each pod is counted exactly once:

- The sums and `acceleratorPods` are one write, with the resourceVersion of the job that was planned.
- `running` are pods that are not counted yet, with what must be known if a pod is gone before its end was recorded. It is
  written along with other changes, never by itself: a pod that vanishes before that, without a trace, is not counted.
- `counted` are pods that are counted and still in the view. They are not counted again, and leave it when they are gone.
- The first view of an operator process may be older than that. So before a process first counts pods of a job of which pods are
  counted already, its view is compared with the API server (`apply.confirmer`). Later its cache only gets newer.

Nothing here is kept in memory: what was not written is computed again from the status and the pods.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import AcceleratorOutcome, ConditionType
from tfjob_operator.api.v1.indices import format_indices, parse_indices
from tfjob_operator.api.v1.types import AcceleratorPods, JobStatus, RunningPods, by_outcome
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey
from tfjob_operator.controller.tfjob.plan.replicas import NO_REPLICA, Observed, Outcome, Replica, key_of
from tfjob_operator.controller.tfjob.plan.size import fits
from tfjob_operator.controller.tfjob.plan.status import StatusDraft
from tfjob_operator.controller.tfjob.plan.types import Plan, RunningPod

_MARK: Final = 12
"""The characters of a UID that identify a counted pod: 48 random bits."""


def with_seconds(plan: Plan, draft: StatusDraft, seen: Observed) -> Plan:
    """Return the plan with the seconds of the pods whose end it records or decides.

    A plan that does not change the status otherwise is changed only if it counts a pod.
    """
    job = draft.job
    before = job.status.accelerator_pods
    replicas = [replica for replica in (*seen.replicas, *seen.surplus) if replica.pod.accelerators]
    if not (replicas or before) or conditions.is_over(job.status):
        return plan
    counter = _Counter(plan, draft, before or AcceleratorPods())
    counter.count(replicas)
    if plan.status is None and not counter.added:
        return plan
    status = msgspec.structs.replace(
        job.status if plan.status is None else plan.status,
        last_reconcile_time=draft.timestamp,
        accelerator_seconds=_sum(job.status.accelerator_seconds, counter.added),
        accelerator_pods=counter.pods(),
    )
    if not fits(status, job):
        status = msgspec.structs.replace(status, accelerator_pods=counter.pods(running=False))
    return replace(plan, status=status, vanished=tuple(counter.vanished)) if fits(status, job) else plan


def running_pods(pods: AcceleratorPods | None) -> Iterator[RunningPod]:
    """Yield the pods that a status records as not counted yet."""
    for group in () if pods is None else pods.running:
        resources = tuple(sorted(group.resources.items()))
        for since, indices in group.since.items():
            for index in parse_indices(indices, MAX_REPLICAS):
                yield RunningPod(group.type, index, int(since) if since.isdecimal() else 0, resources)


def running_pod(job: str, pod: Pod) -> RunningPod | None:
    """Return a pod of this job as a status records it; None if it holds no accelerators or its replica is unknown."""
    key = key_of(job, pod.metadata)
    return None if key is None else _running(key, pod)


def _running(key: ReplicaKey, pod: Pod) -> RunningPod | None:
    if pod.started is None or not pod.accelerators:
        return None
    return RunningPod(key.type, key.index, int(pod.started.timestamp()), pod.accelerators)


def counts_accelerators(before: JobStatus, after: JobStatus) -> bool:
    """Return True if `after` counts more than `before`."""
    return (before.accelerator_seconds, before.accelerator_pods) != (after.accelerator_seconds, after.accelerator_pods)


def counts_end(before: JobStatus, after: JobStatus) -> bool:
    """Return True if `after` counts a pod that did not succeed: it may be gone soon, and with it the reason."""
    found = [
        [each for each in by_outcome(status.accelerator_seconds) if each[1] != AcceleratorOutcome.SUCCEEDED]
        for status in (before, after)
    ]
    return found[0] != found[1]


class _Counter:
    """Counts pods for one plan. `vanished` are the counted pods that are gone.

    `added` are the seconds by resource and outcome, with an entry also for a pod that held nothing for a whole second.
    """

    def __init__(self, plan: Plan, draft: StatusDraft, before: AcceleratorPods) -> None:
        self.added: Counter[tuple[str, str]] = Counter()
        self.vanished: list[RunningPod] = []
        self._draft = draft
        self._ends = plan.ends(draft.job)
        self._is_suspended = conditions.is_true(plan.status or draft.job.status, ConditionType.SUSPENDED)
        self._deleted = {pod.pod.metadata.uid: pod.restarts for pod in plan.delete_pods}
        self._counted = {*before.counted}
        self._unseen = {(pod.type, pod.index): pod for pod in running_pods(before)}
        self._running: dict[tuple[str, int], RunningPod] = {}
        self._marks: set[str] = set()
        self._places: set[tuple[str, int]] = set()

    def count(self, replicas: Iterable[Replica]) -> None:
        """Count the pods that have ended or are about to. Of several pods of a replica, only the first is counted."""
        for replica in replicas:
            mark, place = replica.uid[-_MARK:], (replica.type, replica.index)
            if mark in self._counted:
                self._marks.add(mark)
            pod = _running(replica.key, replica.pod)
            if replica.key is NO_REPLICA or place in self._places or pod is None:
                continue
            self._places.add(place)
            if pod == self._unseen.get(place):
                del self._unseen[place]
            if not self._counted.isdisjoint({mark, pod.mark}):
                self._marks |= self._counted & {pod.mark}
            elif (outcome := self._outcome(replica)) is None:
                self._running[place] = pod
            else:
                self._marks.add(mark)
                ended = _ended_at(replica, self._draft.timestamp)
                self._add(pod, outcome, ended, replica.pod.metadata.creation_timestamp)
        self._count_vanished()

    def pods(self, *, running: bool = True) -> AcceleratorPods | None:
        """Return what the status records besides the sums; None if there is nothing, or the job ends."""
        if self._ends or not (self._running or self._marks):
            return None
        groups: dict[tuple[str, tuple[tuple[str, int], ...]], dict[int, list[int]]] = {}
        for pod in self._running.values() if running else ():
            groups.setdefault((pod.type, pod.resources), defaultdict(list))[pod.since].append(pod.index)
        return AcceleratorPods(
            running=tuple(
                RunningPods(
                    type=kind,
                    resources=dict(resources),
                    since={str(at): format_indices(since[at]) for at in sorted(since)},
                )
                for (kind, resources), since in sorted(groups.items())
            ),
            counted=tuple(sorted(self._marks)),
        )

    def _count_vanished(self) -> None:
        """Count the recorded pods that are gone. They are remembered until their replica has another pod.

        A pod whose labels a user edited is not gone: it appears again, and is not counted again.
        """
        shown = {f"{kind}-{index}" for kind, index in self._places}
        self._marks.update(mark for mark in self._counted if "@" in mark and mark.partition("@")[0] not in shown)
        for place, pod in self._unseen.items():
            done = parse_indices(self._draft.finished_indices.get(pod.type, ""), MAX_REPLICAS)
            outcome = AcceleratorOutcome.SUCCEEDED if pod.index in done else AcceleratorOutcome.DELETED
            self.vanished.append(pod)
            self._add(pod, outcome, self._draft.timestamp, self._draft.job.metadata.creation_timestamp)
            if place not in self._places:
                self._marks.add(pod.mark)

    def _outcome(self, replica: Replica) -> AcceleratorOutcome | None:
        """Return what came of a pod; None if it is not counted yet."""
        is_older = replica.attempt < self._draft.attempt
        over = replica.terminating or replica.uid in self._deleted or self._ends or is_older
        if replica.outcome is Outcome.SUCCEEDED:
            return AcceleratorOutcome.SUCCEEDED if over or replica.has_ended else None
        if not over:
            return None
        failed = replica.outcome is Outcome.FAILED and not replica.terminating
        choices = (
            (replica.disrupted, AcceleratorOutcome.DISRUPTED),
            (is_older, AcceleratorOutcome.RESTARTED_WITH_JOB),
            (self._deleted.get(replica.uid), AcceleratorOutcome.RESTARTED),
            (failed, AcceleratorOutcome.FAILED),
            (self._is_suspended, AcceleratorOutcome.SUSPENDED),
            (self._ends and not replica.terminating, AcceleratorOutcome.ENDED_WITH_JOB),
        )
        return next((outcome for applies, outcome in choices if applies), AcceleratorOutcome.DELETED)

    def _add(self, pod: RunningPod, outcome: AcceleratorOutcome, ended: datetime, created: datetime | None) -> None:
        seconds = ended.timestamp() - pod.since
        if created is not None:
            seconds = min(seconds, (self._draft.timestamp - created).total_seconds())
        for resource, number in pod.resources:
            self.added[resource, outcome] += number * max(0, int(seconds))


def _ended_at(replica: Replica, now: datetime) -> datetime:
    """Return when the last ordinary container of a pod ended; now if one still runs, or the kubelet did not report its end."""
    ends = [
        None if status.state.terminated is None else status.state.terminated.finished_at
        for status in replica.pod.status.container_statuses or ()
    ]
    known = [each for each in ends if each is not None]
    return max(known) if replica.has_ended and known and len(known) == len(ends) else now


def _sum(seconds: Mapping[str, Mapping[str, int]], added: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """Return the sums with what is added, in a fixed order."""
    total = Counter({(resource, outcome): number for resource, outcome, number in by_outcome(seconds)})
    total.update(added)
    found: dict[str, dict[str, int]] = {}
    for (resource, outcome), number in sorted(total.items()):
        found.setdefault(resource, {})[outcome] = number
    return found
