"""Every move that can be made in a world, and where it leads.

There are three kinds. *Progress* is what a cluster that is left alone does sooner or later: events arrive, requests are carried
out and answered, a worker takes the key, a second passes, pods start and stop, garbage is collected. *Choices* may happen or
not: a pod succeeds, the user makes the next edit. *Surprises* are what goes wrong, and are counted.

Simplified on purpose: a request takes effect at one moment; each watch keeps its order; long times pass only between syncs;
caches list their objects in the order of their names; a restarted operator begins at its predecessor's place in each watch or
later; a pod that has not started is gone as soon as it is deleted; the kubelet's last delete of a pod and the removal of the
object are one move, though two events; a grace longer than a pod's own is shortened to that only when the operator has seen it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from hack.kubernetes_versions import DISRUPTION_TARGET
from worlds.judge import at_rest, did_its_work, is_over, judge_sent, judge_step, wanted
from worlds.kubelet import (
    AFTER,
    AFTER_SECOND,
    BEFORE,
    LESS,
    MORE,
    OWN_GRACE,
    SAME_SECOND,
    ends,
    later,
    shut_down,
    starts_again,
)
from worlds.rules import CHOICE, PROGRESS, SURPRISE, Move, Rules
from worlds.settings import FAILURES
from worlds.values import Answer, Call, Child, Job
from worlds.world import (
    PENDING,
    PODS,
    SERVICES,
    STRANGER,
    TFJOBS,
    Slot,
    State,
    carry_out,
    children,
    delete_job,
    end_child,
    mode_of,
    observed,
    put_child,
    remove_child,
    written_as_finished,
)


class TFJobRules(Rules[State]):
    """The moves of a setting of the first controller."""

    pending = PENDING

    def at_once(self, world: State) -> State | None:
        """A pending pod starts to run, where the setting lets pods run at once."""
        if not self.setting.runs_at_once:
            return None
        waiting = next((pod for pod in world.pods if pod.phase == "Pending"), None)
        return None if waiting is None else put_child(world, PODS, waiting._replace(phase="Running"))

    def carry_out(self, world: State, call: Call) -> tuple[State, Answer]:
        """See `world.carry_out`."""
        return carry_out(world, call)

    def objects(self, world: State, resource: str) -> tuple[Job | Child, ...]:
        """The job, or its children; not the stranger, which does not bear our labels."""
        if resource == TFJOBS:
            return (world.job,) if world.job else ()
        return tuple(child for child in children(world, resource) if child.uid != STRANGER)

    def seen(self, world: State) -> State:
        """From here on the operator knows the successes that its cache shows."""
        found = _recognised(world)
        return world._replace(known=world.known | found, finished=world.finished | found)

    def forgotten(self, world: State) -> State:
        """The operator starts anew: a success that was not written is known only as long as its pod exists."""
        there = {pod.slot for pod in world.pods if pod.exit_code == 0}
        return world._replace(
            untouched=frozenset(),
            finished=world.finished & (there | written_as_finished(world)),
            known=frozenset(),
        )

    def observed(self, world: State) -> State:
        """See `world.observed`."""
        return observed(world)

    def judge_sent(self, world: State, calls: Iterable[Call]) -> None:
        """See `judge.judge_sent`."""
        judge_sent(world, calls)

    def judge_step(self, before: State, after: State) -> None:
        """See `judge.judge_step`."""
        judge_step(before, after)

    def of_the_cluster(self, world: State) -> Iterator[tuple[Move, State]]:
        """Pods start and end, and objects whose owner is gone are collected."""
        for pod in world.pods:
            yield from self._of_the_kubelet(world, pod)
        job = world.job
        orphans = 0
        for resource in (PODS, SERVICES):
            for child in children(world, resource):
                if child.owner_kind != "TFJob":
                    continue
                if job is None or child.owner != job.uid or job.deleting:
                    orphans += job is not None and child.owner == job.uid
                    if not child.terminating:
                        yield (PROGRESS, "collect", resource, child.name), end_child(world, resource, child)
        if job is not None and job.deleting and not orphans:
            yield (PROGRESS, "collect", TFJOBS), delete_job(world)

    def _of_the_kubelet(self, world: State, pod: Child) -> Iterator[tuple[Move, State]]:
        if pod.uid == STRANGER:
            yield (PROGRESS, "stranger leaves"), remove_child(world, PODS, pod)
        elif _has_to_answer(world, pod):
            yield (PROGRESS, "answer 143", pod.name), _answers(world, pod, 143, _after(pod))
        elif (after := _onward(world, pod)) is not None:
            yield (PROGRESS, "onward", pod.name), after
        elif pod.phase == "Pending":
            yield (PROGRESS, "run", pod.name), put_child(world, PODS, pod._replace(phase="Running"))

    def choices(self, world: State) -> Iterator[tuple[Move, State]]:
        """A pod succeeds, or exits with 0 when it is deleted."""
        for pod in world.pods:
            if _runs(pod) and pod.type not in self.setting.never_ends and not starts_again(pod, 0):
                yield (CHOICE, "succeed", pod.name), _ends(world, pod, 0)
            if _has_to_answer(world, pod):
                yield (CHOICE, "answer 0", pod.name), _answers(world, pod, 0, _after(pod))

    def misfortunes(self, world: State) -> Iterator[tuple[Move, State]]:
        """The server refuses a pod; a pod fails, or is taken away."""
        if "refuse" in self.setting.may:
            for call in world.mind.calls or ():
                if call.verb == "create" and call.resource == PODS and call.number not in dict(world.answered):
                    noted = world._replace(refused=world.refused | {call.body[0]})
                    after = self.answer(noted, call, Answer("InvalidError"))
                    yield (SURPRISE, "refuse", *call[:4]), after
        for pod in world.pods:
            yield from self._misfortunes_of(world, pod)

    def _misfortunes_of(self, world: State, pod: Child) -> Iterator[tuple[Move, State]]:
        may = self.setting.may
        if pod.uid == STRANGER:
            return
        kubernetes = world.kubernetes
        if _runs(pod):
            for name, code in FAILURES.items():
                if name in may:
                    yield (SURPRISE, name, pod.name), _ends(world, pod, code)
            if "restart" in may:
                code = 0 if starts_again(pod, 0) else 1
                assert starts_again(pod, code), "nobody restarts this one in place"
                yield (SURPRISE, "restart", pod.name), _ends(world, pod, code)
            if "evict" in may:
                yield (SURPRISE, "evict", pod.name), _lost(world, pod, pod._replace(phase="Failed", reason="Evicted"))
            if "shut down" in may and kubernetes is not None:
                for code in (0, 143):
                    yield (SURPRISE, "shut down", pod.name, code), _lost(world, pod, shut_down(pod, code, kubernetes))
        if "turn away" in may and pod.phase == "Pending" and not pod.restarts:
            rejected = pod._replace(phase="Failed", reason="VolumeAttachmentLimitExceeded")
            yield (SURPRISE, "turn away", pod.name), put_child(world, PODS, rejected)
        yield from self._requests(world, pod)
        if "tell late" in may and _has_to_answer(world, pod):
            yield (SURPRISE, "answer at once", pod.name), _answers(world, pod, 0, SAME_SECOND)
            late = _answers(world, pod, 0, BEFORE)
            if not starts_again(pod, 0):
                late = late._replace(done=late.done | {pod.slot}, finished=late.finished | {pod.slot})
            yield (SURPRISE, "tell late", pod.name), late

    def _requests(self, world: State, pod: Child) -> Iterator[tuple[Move, State]]:
        """Somebody deletes the pod, or deletes it again with less grace."""
        may = self.setting.may
        if not pod.terminating:
            if "remove" in may:
                yield (SURPRISE, "remove", pod.name), end_child(world, PODS, pod)
            if "remove slowly" in may and _is_up(pod):
                yield (SURPRISE, "remove slowly", pod.name), end_child(world, PODS, pod, MORE)
            if "drain" in may and world.kubernetes is not None:
                marked = pod._replace(targeted=world.kubernetes.has(DISRUPTION_TARGET))
                yield (SURPRISE, "drain", pod.name), end_child(put_child(world, PODS, marked), PODS, marked)
        elif _is_up(pod):
            less = OWN_GRACE if pod.grace == MORE else LESS
            # Shortened to the pod's own grace, it would look like a first request: the operator must have seen the pod before.
            if "hurry" in may and pod.asked == pod.grace and (less == LESS or at_rest(world)):
                yield (SURPRISE, "hurry", pod.name), end_child(world, PODS, pod, less)
            if "force" in may:
                yield (SURPRISE, "force", pod.name), end_child(world, PODS, pod, 0)


def _recognised(world: State) -> frozenset[Slot]:
    """The replicas that the cached job asks for and whose success the cached pods show."""
    jobs, pods, _ = world.mind.cached
    if not jobs:
        return frozenset()
    job = cast("Job", jobs[0])
    seen = frozenset(pod.slot for pod in cast("tuple[Child, ...]", pods) if did_its_work(pod))
    return seen if mode_of(world, job) == "held" else wanted(job) & seen


def _is_up(pod: Child) -> bool:
    """Whether, by its status, some container of the pod still runs."""
    return pod.phase == "Running" and pod.uid != STRANGER


def _has_to_answer(world: State, pod: Child) -> bool:
    """Whether the pod is being deleted, and `tensorflow` still runs."""
    return world.kubernetes is not None and _is_up(pod) and pod.terminating and pod.exit_code is None


def _runs(pod: Child) -> bool:
    return _is_up(pod) and not pod.terminating and pod.exit_code is None


def _ends(world: State, pod: Child, code: int) -> State:
    """`tensorflow` ends by its own doing."""
    ended = ends(pod, code, BEFORE, world.kubernetes)
    after = put_child(world, PODS, ended)
    if starts_again(pod, code):
        return _failed(after, pod) if ended.restarts > pod.restarts else after
    if code == 0:
        return after._replace(finished=after.finished | {pod.slot}, done=after.done | {pod.slot})
    return _failed(after, pod)._replace(lost=after.lost | {pod.slot})


def _onward(world: State, pod: Child) -> State | None:
    """What the kubelet does when `tensorflow` has ended: a restart in place, the phase, the end of a pod that is deleted."""
    told = later(pod, world.kubernetes)
    if told is not None:
        after = put_child(world, PODS, told)
        return _failed(after, pod) if told.restarts > pod.restarts else after
    is_done = pod.terminating and (is_over(pod) or world.kubernetes is None)
    return end_child(world, PODS, pod, 0) if is_done else None


def _answers(world: State, pod: Child, code: int, at: int) -> State:
    """The process ends after it was asked to, or seems to have been."""
    return put_child(world, PODS, ends(pod, code, at, world.kubernetes))


def _after(pod: Child) -> int:
    """The moment at which a process that still runs ends on SIGTERM."""
    return AFTER if pod.asked == pod.grace else AFTER_SECOND


def _lost(world: State, pod: Child, gone: Child) -> State:
    """The cluster takes the pod."""
    return put_child(world, PODS, gone)._replace(lost=world.lost | {pod.slot})


def _failed(world: State, pod: Child) -> State:
    failures = dict(world.failures)
    failures[pod.slot] = failures.get(pod.slot, 0) + 1
    return world._replace(failures=tuple(sorted(failures.items())))
