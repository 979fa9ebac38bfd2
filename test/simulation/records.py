"""The history of jobs and their pods by the server and the nodes, on which the judges decide."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from judge.jobs import DesiredJob, attempt_of, desired_job
from judge.slots import Slot
from kit.model.storage import Body
from kit.virtual_loop import EPOCH
from simulation.kubelet import Kubelet
from simulation.lives import End, Fate
from simulation.policies import (
    Rule,
    is_restartable,
    made_with_never,
    rule_about,
    rules_of,
    shows_failure,
    start_is_late,
)
from simulation.world import World

LATE_EDIT_S: Final = 60.0
"""How long the operator may act on an older version of a job, for example one that has ended or in a repeated write."""


def is_final(fate: Fate, policy: str) -> bool:
    """Whether the end of this pod fails its job under this restart policy if no rule matches it.

    It does not if the pod was being deleted or was evicted by the cluster, unless the policy is Never and its phase is Failed.
    A failure counts only if the container's own restart policy does not restart it.
    """
    if fate.end in {None, End.SUCCEEDED} or fate.leaving:
        return False
    if policy == "ExitCode":
        return fate.end is End.FAILED and fate.exit_code not in {130, 134, 137, 138, 143}
    return not fate.orderly if policy == "Never" else fate.fatal


class Records:
    """The latest version of each job by UID, including deleted ones; the pods that each replica has had, in order."""

    def __init__(self, world: World, kubelet: Kubelet, *, prompt: bool) -> None:
        """`prompt`: nothing delays an operator."""
        self._world = world
        self.prompt = prompt
        self.kubelet = kubelet
        self.jobs: dict[str, Body] = {}
        self.edited_at: dict[str, float] = {}
        """When the spec of a job last changed."""
        self.ended_at: dict[str, float] = {}
        """When the decision how a job ends was written."""
        self.attempt_ended_at: dict[tuple[str, int], float] = {}
        """When the end of an attempt was written, by the job's UID and the attempt."""
        self.failed_at: dict[str, float] = {}
        """When the failure of a pod was first written, by its UID."""
        self.removed_at: dict[str, float] = {}
        """When a job was deleted, by UID."""
        self.delays: list[tuple[float, str]] = []
        """The delay of each action that the operator could execute at once, and its description."""
        self.pods: defaultdict[str, defaultdict[Slot, list[str]]] = defaultdict(lambda: defaultdict(list))
        """UIDs of pods by job UID and replica."""
        self.removers: dict[str, str] = {}
        """The first client that deleted a pod, by pod UID."""
        self.pod_removed_at: dict[str, float] = {}
        """When a pod was first deleted, by UID."""
        self.unwanted_since: dict[tuple[str, Slot], float] = {}
        """Since when the spec of a job excludes a replica, by job UID and replica."""
        self.shed: set[str] = set()
        """UIDs of pods that ended and were deleted while their replica was excluded: their ends do not count."""
        self.seconds: defaultdict[tuple[str, Slot], list[str]] = defaultdict(list)
        """UIDs of second pods that were never the only pod of their replica, by the job's UID and the replica. They do not
        count; one that was the only pod for a moment may count, and is in `pods`."""
        self.replaced: defaultdict[str, Counter[Slot]] = defaultdict(Counter)
        """How many pods the operator deleted because they failed by themselves, by job UID and replica."""
        self.states: defaultdict[str, list[tuple[float, Body]]] = defaultdict(list)
        """The states of each pod on the server, with times, by UID."""
        self.specs: defaultdict[str, list[tuple[float, Body]]] = defaultdict(list)
        """The versions of each job with a changed spec, with times, by UID."""
        self.requests: defaultdict[str, set[str]] = defaultdict(set)
        """The values with which users requested restarts of a job, by UID."""
        self.kept: defaultdict[str, set[Slot]] = defaultdict(set)
        """Replicas that had succeeded at the start of the current attempt of a job, and stay so, by UID."""

    def edited(self, job: str, now: float, before: set[Slot], after: set[Slot]) -> None:
        """Note the replicas of a job `before` and `after` an edit of its spec."""
        self.edited_at[job] = now
        self.unwanted_since |= dict.fromkeys(((job, slot) for slot in before - after), now)
        for slot in after:
            self.unwanted_since.pop((job, slot), None)

    def pod_removed(self, job: str, slot: Slot, uid: str, remover: str, now: float) -> None:
        self.removers[uid] = remover
        self.pod_removed_at[uid] = now
        since = self.unwanted_since.get((job, slot))
        if since is not None and self.kubelet.fates[uid].ended_at >= since:
            self.shed.add(uid)

    def fates(self, job: str, slot: Slot) -> list[Fate]:
        return [self.kubelet.fates[uid] for uid in self.pods[job][slot]]

    def all_fates(self, job: str) -> list[Fate]:
        return [self.kubelet.fates[uid] for uids in self.pods[job].values() for uid in uids]

    def states_of(self, job: Body) -> Iterator[tuple[str, list[tuple[float, Body]]]]:
        """Yield the UIDs and states of all pods that a job has had, including second ones."""
        owner = job["metadata"]["uid"]
        second = (uids for (job, _), uids in self.seconds.items() if job == owner)
        for uid in chain(*self.pods[owner].values(), *second):
            yield uid, self.states[uid]

    def gone_at(self, uid: str) -> datetime | None:
        """Return the second in which a pod was gone, None if it exists."""
        return None if self.kubelet.knows(uid) else EPOCH + timedelta(seconds=int(self.states[uid][-1][0]))

    def start_is_late(self, job: Body, now: datetime) -> bool:
        return start_is_late(job, now, self._waits(job))

    def _waits(self, job: Body) -> Iterator[datetime]:
        """Yield since when each unfinished replica has waited for its pod, or its pod has existed.

        No replica waits while a pod of an earlier attempt exists.
        """
        uid, desired = job["metadata"]["uid"], desired_job(job)
        older = [fate for fate in self.all_fates(uid) if fate.attempt < attempt_of(job)]
        gone = [self.gone_at(fate.uid) for fate in older if fate.slot not in self.kept[uid]]
        if any(at is None for at in gone):
            return
        for slot in desired.slots - self.succeeded(job):
            mine = [self.gone_at(fate.uid) for fate in self.fates(uid, slot)]
            starts = [self.states[fate.uid][0][0] for fate in self.fates(uid, slot) if self.kubelet.knows(fate.uid)]
            times = (*gone, *mine, *(EPOCH + timedelta(seconds=int(at)) for at in starts))
            yield max((at for at in times if at is not None), default=EPOCH)

    def note_status(self, old: Body, new: Body) -> None:
        """Note what a status first says about the ends of pods."""
        uid, now = new["metadata"]["uid"], self._world.time
        before, after = (
            {(each["type"], each["index"]): each for each in (job.get("status") or {}).get("restarts") or ()}
            for job in (old, new)
        )
        for slot, record in after.items():
            # A record that moves to the next pod keeps the time of the last failure.
            if record.get("failedAt") not in {None, before.get(slot, {}).get("failedAt")}:
                self.failed_at.setdefault(record["pod"], now)
        for attempt in range(attempt_of(old), attempt_of(new)):
            self.attempt_ended_at.setdefault((uid, attempt), now)

    @property
    def now(self) -> float:
        return self._world.time

    def of_attempt(self, job: Body) -> list[Fate]:
        """Return the pods of the current attempt of this version of a job."""
        return [fate for fate in self.all_fates(job["metadata"]["uid"]) if fate.attempt == attempt_of(job)]

    def working(self, job: str) -> list[Fate]:
        """Return the running workers of a job that are not being deleted."""
        workers = (fate for fate in self.all_fates(job) if fate.slot[0] == "Worker")
        return [fate for fate in workers if fate.runs and fate.uid not in self.removers]

    def succeeded(self, job: Body) -> set[Slot]:
        kept = self.kept[job["metadata"]["uid"]]
        return kept | {fate.slot for fate in self.of_attempt(job) if fate.end is End.SUCCEEDED}

    def may_seem_long(self, pod: str) -> bool:
        """Return whether a run may seem to be so long that it resets the delay: the clock of its node is set meanwhile."""
        return bool(self._world.clocks.set_at(self.kubelet.fates[pod].node))

    def maybe_succeeded(self, job: Body) -> set[Slot]:
        """Return also the replicas that may seem to have succeeded: by an exit on SIGTERM, timed by a clock that is behind."""
        stopped = (fate for fate in self.of_attempt(job) if fate.leaving and fate.exit_code == 0)
        return self.succeeded(job) | {fate.slot for fate in stopped if self._world.clocks.may_be_behind(fate.node)}

    def recent(self, job: str) -> list[Body]:
        """Return the versions of a job that the operator may have used: the latest, and recently replaced ones."""
        versions, since = self.specs[job], self._world.time - LATE_EDIT_S
        replaced = [at for at, _ in versions[1:]]
        return [body for at, (_, body) in zip([*replaced, self._world.time], versions, strict=True) if at >= since]

    def deciders(self, jobs: Iterable[Body], fate: Fate) -> list[tuple[float, Rule | None]]:
        """Yield for each failure shown by a pod: when, and which rule of these versions of its job matches."""
        return [
            (at, None if is_restartable(pod) else rule_about(job, fate.slot[0], pod))
            for job in jobs
            for at, pod in self.states[fate.uid]
            if shows_failure(pod, fate)
        ]

    def is_final(self, job: Body, fate: Fate, policy: str) -> bool:
        """Whether the end of a pod fails its job if no rule matches, by the policy that the pod was created with."""
        never = policy != "ExitCode" and made_with_never(job, fate.slot[0], self.states[fate.uid][-1][1])
        return is_final(fate, "Never" if never else policy)

    def ends_job(self, job: Body, policy: str, fate: Fate) -> bool:
        """Whether a pod fails its job: by a rule or, if no rule matches, by its restart policy."""
        return any(
            rule["action"] == "FailJob" if rule is not None else self.is_final(job, fate, policy)
            for _, rule in self.deciders([job], fate)
        )

    def decided_at(self, old: Body, new: Body) -> float:
        """Return since when a restart of the whole job was due, if a failure is the reason; else now."""
        over = new["status"]["attemptHistory"][-1]
        found = self.rule(new["metadata"]["uid"], over.get("rule", ""))
        if found is None or found[1]["action"] != over["action"]:
            return self.now
        failures = ((fate, *each) for fate in self.of_attempt(old) for each in self.deciders([found[0]], fate))
        shown = (at for fate, at, decider in failures if decider == found[1] and self.is_shown_after_edit(fate, at))
        return min(shown, default=self.now)

    def is_shown_after_edit(self, fate: Fate, at: float) -> bool:
        """Whether a pod was unchanged from this time to the last edit of its job: an edit applies to later failures only."""
        later = [since for since, _ in self.states[fate.uid] if since > at]
        until = min(later) if later else math.inf if self.kubelet.knows(fate.uid) else at
        return until >= self.edited_at[fate.owner]

    def rule(self, job: str, name: str) -> tuple[Body, Rule] | None:
        """Return the latest version of a job that has a rule with this name, and the rule."""
        found = ((body, rule) for body in reversed(self.recent(job)) for rule in rules_of(body) if rule["name"] == name)
        return next(found, None)

    def most_restarts(self, job: str, slot: Slot) -> int:
        """Return the maximum number of restarts of a replica, in place or by a new pod, if the operator missed none."""
        fates = self.fates(job, slot)
        return sum(fate.in_place + fate.counts for fate in fates)

    def lost_at(self, job: str, desired: DesiredJob) -> float:
        body = self.jobs[job]
        wanted = (
            (fate, desired.replicas[fate.slot[0]][1]) for fate in self.of_attempt(body) if fate.slot in desired.slots
        )
        lost = (fate for fate, policy in wanted if self.ends_job(body, policy, fate))
        return min((fate.ended_at for fate in lost if self.is_shown_after_edit(fate, fate.ended_at)), default=0.0)

    def done_at(self, job: str, desired: DesiredJob) -> float:
        """Return when a job with this spec had succeeded, according to the ends of its pods; 0 if it has not.

        The success of a pod that was already being deleted may count or not: it is used only if the others do not suffice.
        """
        ended = [fate for fate in self.of_attempt(self.jobs[job]) if fate.end is End.SUCCEEDED]
        for fates in ([fate for fate in ended if not fate.leaving], ended):
            done = set(self.kept[job])
            for fate in sorted(fates, key=lambda fate: fate.ended_at):
                done.add(fate.slot)
                if desired.is_done(done):
                    return fate.ended_at
        return 0.0
