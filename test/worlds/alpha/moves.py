"""What the Job controller, pods and people do in a world of the alpha dialect. The rest is in `worlds.rules`.

Simplified, besides what `worlds.moves` leaves out: pods have the policy Never, and end in one step; the Job controller makes
the next pod without a pause; there is one API, and one job at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from worlds.alpha.judge import fails_for_good, judge_sent, judge_step
from worlds.alpha.values import COMPLETE, OOM_KILLED
from worlds.alpha.world import (
    CONFIG_MAPS,
    JOBS,
    PENDING,
    PODS,
    SERVICES,
    Slot,
    State,
    born,
    carry_out,
    children,
    has_active_pod,
    has_good_pod,
    observed,
    put_child,
    remove_child,
)
from worlds.rules import CHOICE, PROGRESS, SURPRISE, Move, Rules
from worlds.values import Answer, Call, Child, Job
from worlds.world import STRANGER, TFJOBS

ENDS: Final = {"error": (1, b""), "killed": (137, b""), "out of memory": (137, OOM_KILLED)}
"""How a pod may fail: its exit code, and the reason of its container."""


class AlphaRules(Rules[State]):
    """The moves of one setting."""

    pending = PENDING

    def at_once(self, world: State) -> State | None:
        """The next move of the garbage collector or the Job controller, where the setting lets them act at once."""
        if not self.setting.runs_at_once:
            return None
        return next((after for _, after in self.of_the_cluster(world)), None)

    def of_the_cluster(self, world: State) -> Iterator[tuple[Move, State]]:
        """Objects without owner are collected; a Job gets a pod, a new one when it fails, and is complete when one succeeds."""
        uid = world.job.uid if world.job is not None else ""
        for resource in (JOBS, SERVICES, CONFIG_MAPS):
            for child in children(world, resource):
                if child.owner != uid and child.uid != STRANGER:
                    yield (PROGRESS, "collect", resource, child.name), remove_child(world, resource, child)
        owners = {each.uid for each in world.batch_jobs}
        for pod in world.pods:
            if pod.owner not in owners:
                yield (PROGRESS, "collect", PODS, pod.name), remove_child(world, PODS, pod)
        for each in world.batch_jobs:
            if each.uid == STRANGER or each.phase == COMPLETE:
                continue
            if has_good_pod(world, each):
                counted = put_child(world, JOBS, each._replace(phase=COMPLETE))
                yield (PROGRESS, "complete", each.name), counted
            elif not has_active_pod(world, each):
                numbered, name = born(world, PODS, each.name)
                # Its UID says which replica it belongs to, since its Job may be gone when it ends.
                uid = f"{each.owner}/{each.uid}.{name}"
                pod = Child(name, uid, each.uid, "Job", each.type, each.place, "Running")
                yield (PROGRESS, "make a pod", each.name), put_child(numbered, PODS, pod)

    def choices(self, world: State) -> Iterator[tuple[Move, State]]:
        """A pod succeeds."""
        for pod in world.pods:
            if pod.phase == "Running" and pod.type not in self.setting.never_ends:
                after = put_child(world, PODS, pod._replace(phase="Succeeded", exit_code=0))
                yield (CHOICE, "succeed", pod.name), after._replace(done=after.done | {_slot(pod)})

    def misfortunes(self, world: State) -> Iterator[tuple[Move, State]]:
        """A pod fails, or is taken away; somebody deletes a child."""
        may = self.setting.may
        for pod in world.pods:
            if pod.phase == "Running":
                for name, (code, reason) in ENDS.items():
                    if name in may:
                        yield (SURPRISE, name, pod.name), _failed(world, pod, code, reason)
                if "evict" in may:
                    gone = pod._replace(phase="Failed", reason="Evicted", exit_code=1)
                    yield (SURPRISE, "evict", pod.name), put_child(world, PODS, gone)
            if "remove" in may:
                yield (SURPRISE, "remove", PODS, pod.name), remove_child(world, PODS, pod)
        if "meddle" in may:
            for resource in (JOBS, SERVICES, CONFIG_MAPS):
                for child in children(world, resource):
                    if child.uid != STRANGER:
                        yield (SURPRISE, "remove", resource, child.name), remove_child(world, resource, child)

    def carry_out(self, world: State, call: Call) -> tuple[State, Answer]:
        """See `world.carry_out`."""
        return carry_out(world, call)

    def objects(self, world: State, resource: str) -> tuple[Job | Child, ...]:
        """The job, or its children; not the stranger's, which do not bear our labels."""
        if resource == TFJOBS:
            return (world.job,) if world.job else ()
        return tuple(child for child in children(world, resource) if child.uid != STRANGER)

    def seen(self, world: State) -> State:
        """Nothing to note: what only the operator knows does not matter here."""
        return world

    def forgotten(self, world: State) -> State:
        """As above."""
        return world

    def observed(self, world: State) -> State:
        """See `world.observed`."""
        return observed(world)

    def judge_sent(self, world: State, calls: Iterable[Call]) -> None:
        """See `judge.judge_sent`."""
        judge_sent(world, calls)

    def judge_step(self, before: State, after: State) -> None:
        """See `judge.judge_step`."""
        judge_step(before, after)


def _failed(world: State, pod: Child, code: int, reason: bytes) -> State:
    ended = pod._replace(phase="Failed", exit_code=code, spec=reason)
    after = put_child(world, PODS, ended)
    return after._replace(lost=after.lost | {_slot(pod)}) if fails_for_good(ended) else after


def _slot(pod: Child) -> Slot:
    """The replica that a pod belongs to."""
    return pod.uid.partition("/")[0], pod.type, pod.place
