"""Every move that can be made in a world, and where it leads.

Three sorts. *Progress* is what a cluster that is left alone does sooner or later: events arrive, requests are carried out and
answered, a worker takes the key, a second passes, pods start and stop, garbage is collected. *Choices* may happen or not: a
pod succeeds, the user makes the next edit. *Surprises* are what goes wrong, and are counted.

Left out, knowingly: a request takes effect at one moment; each watch keeps its order; a leap of time is between syncs; caches
list their objects in the order of their names; a restarted operator begins at its predecessor's place in each watch or later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from worlds.judge import judge_sent, judge_step, wanted
from worlds.operator import NEVER
from worlds.settings import FAILURES
from worlds.values import Answer, Call, Child
from worlds.world import (
    PENDING,
    PODS,
    SERVICES,
    STRANGER,
    TFJOBS,
    World,
    carry_out,
    children,
    delete_job,
    end_child,
    observed,
    put_child,
    remove_child,
    written_as_finished,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worlds.operator import Mind, Operator
    from worlds.settings import Setting
    from worlds.values import Event, Job
    from worlds.world import Slot

PROGRESS: Final = 0
CHOICE: Final = 1
SURPRISE: Final = 2

Move = tuple[Any, ...]
"""A sort, a name, and details."""


class Rules:
    """The moves of one setting."""

    def __init__(self, setting: Setting, operator: Operator) -> None:
        self.setting = setting
        self._operator = operator

    def moves(self, world: World, *, surprises: bool) -> Iterator[tuple[Move, World]]:
        """All moves with the worlds that they lead to. Raises WrongError when one shows the operator doing what it must not."""
        for move, after in self._of_the_operator(world):
            yield move, self._settled(world, after)
        for move, after in self._of_the_cluster(world):
            yield move, self._settled(world, after)
        for move, after in self._choices(world):
            yield move, self._settled(world, after)
        if surprises:
            for move, after in self._surprises(world):
                yield move, self._settled(world, after)

    def _settled(self, before: World, world: World) -> World:
        """Do what does not lag at once, judge what was done, and note what the job stands for."""
        judge_step(before, world)
        world = observed(world)
        for resource, field in PENDING.items():
            pending = getattr(world, field)
            spare = len(pending) - (self.setting.lag if resource in self.setting.lags else 0)
            if spare > 0:
                mind = world.mind
                for event in pending[:spare]:
                    mind = self._operator.step(mind, world.epoch, "deliver", resource, event)
                world = _heard(world, mind, field, pending[spare:])
        if self.setting.runs_at_once:
            waiting = next((pod for pod in world.pods if pod.phase == "Pending"), None)
            if waiting is not None:
                return self._settled(world, put_child(world, PODS, waiting._replace(phase="Running")))
        for call in world.mind.calls or ():
            if call.resource not in self.setting.lags:
                after, answer = carry_out(world, call)
                return self._settled(world, self._answer(after, call, answer))
        return world

    def _of_the_operator(self, world: World) -> Iterator[tuple[Move, World]]:
        mind = world.mind
        for resource, field in PENDING.items():
            pending = getattr(world, field)
            if pending:
                heard = self._operator.step(mind, world.epoch, "deliver", resource, pending[0])
                yield (PROGRESS, "deliver", resource), _heard(world, heard, field, pending[1:])
        if mind.due == 1:
            yield (PROGRESS, "second"), world._replace(mind=self._operator.step(mind, world.epoch, "second"))
        if mind.calls is None:
            if mind.ready:
                yield (PROGRESS, "start"), self._start(world)
            return
        answered = dict(world.answered)
        for call in mind.calls:
            if call.number in answered:
                answer = answered[call.number]
                yield (PROGRESS, "answer", *call[:4]), self._answer(world, call, answer)
            else:
                after, answer = carry_out(world, call)
                if (call.verb, call.resource) in self.setting.open:
                    after = after._replace(answered=(*after.answered, (call.number, answer)))
                    yield (PROGRESS, "carry out", *call[:4], answer.error), after
                else:
                    yield (PROGRESS, "carry out and answer", *call[:4], answer.error), self._answer(after, call, answer)

    def _start(self, world: World) -> World:
        """A worker takes the key. What the cache shows as a success is known from here on."""
        mind = self._operator.step(world.mind, world.epoch, "start")
        seen = _recognised(world)
        after = world._replace(mind=mind, known=world.known | seen, finished=world.finished | seen)
        after = observed(after)
        judge_sent(after, mind.calls or ())
        return after

    def _answer(self, world: World, call: Call, answer: Answer) -> World:
        before = world.mind.calls or ()
        mind = self._operator.step(world.mind, world.epoch, "answer", call.number, answer)
        left = tuple(each for each in world.answered if each[0] != call.number)
        new = [sent for sent in mind.calls or () if sent not in before]
        if call.verb == "create" and not answer.error:
            made = {(call.resource, child.uid) for child in children(world, call.resource) if child.name == call.name}
            world = world._replace(made=world.made | made)
        judge_sent(observed(world), new)
        return world._replace(mind=mind, answered=left)

    def _of_the_cluster(self, world: World) -> Iterator[tuple[Move, World]]:
        for number, call in enumerate(world.adrift):
            rest = world._replace(adrift=world.adrift[:number] + world.adrift[number + 1 :])
            yield (PROGRESS, "drop", *call[:4]), rest
            yield (PROGRESS, "carry out late", *call[:4]), carry_out(rest, call)[0]
        for pod in world.pods:
            if pod.uid == STRANGER:
                yield (PROGRESS, "stranger leaves"), remove_child(world, PODS, pod)
            elif pod.terminating:
                yield (PROGRESS, "gone", pod.name), remove_child(world, PODS, pod)
            elif pod.phase == "Pending":
                yield (PROGRESS, "run", pod.name), put_child(world, PODS, pod._replace(phase="Running"))
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

    def _choices(self, world: World) -> Iterator[tuple[Move, World]]:
        for pod in world.pods:
            if _runs(pod) and pod.type not in self.setting.never_ends:
                after = put_child(world, PODS, pod._replace(phase="Succeeded", exit_code=0))
                yield (CHOICE, "succeed", pod.name), after._replace(finished=world.finished | {pod.slot})
        if world.script < len(self.setting.script):
            after = self.setting.script[world.script](world)
            yield (CHOICE, "edit", world.script), after._replace(script=world.script + 1)

    def _surprises(self, world: World) -> Iterator[tuple[Move, World]]:
        may = self.setting.may
        mind = world.mind
        if "crash" in may:
            yield (SURPRISE, "crash"), self._crash(world)
        if "lose" in may:
            for call in mind.calls or ():
                yield (SURPRISE, "lose", *call[:4]), self._lose(world, call)
        if "refuse" in may:
            for call in mind.calls or ():
                if call.verb == "create" and call.resource == PODS and call.number not in dict(world.answered):
                    after = self._answer(world, call, Answer("InvalidError"))
                    yield (SURPRISE, "refuse", *call[:4]), after
        if "relist" in may:
            for resource, field in PENDING.items():
                if len(getattr(world, field)) > 1:
                    there = (world.job,) if world.job else ()
                    items = (
                        there
                        if resource == TFJOBS
                        else tuple(child for child in children(world, resource) if child.uid != STRANGER)
                    )
                    heard = self._operator.step(mind, world.epoch, "replace", resource, items)
                    yield (SURPRISE, "relist", resource), _heard(world, heard, field, ())
        if "leap" in may and mind.calls is None:
            leapt = self._operator.step(mind, world.epoch + 1, "leap")
            yield (SURPRISE, "leap"), world._replace(mind=leapt, epoch=world.epoch + 1, made=frozenset())
        for pod in world.pods:
            yield from self._misfortunes(world, pod)

    def _misfortunes(self, world: World, pod: Child) -> Iterator[tuple[Move, World]]:
        may = self.setting.may
        if pod.uid == STRANGER:
            return
        if _runs(pod):
            for name, code in FAILURES.items():
                if name in may:
                    after = put_child(world, PODS, pod._replace(phase="Failed", exit_code=code))
                    yield (SURPRISE, name, pod.name), _failed(after, pod)
            if "restart" in may:
                after = put_child(world, PODS, pod._replace(restarts=pod.restarts + 1))
                yield (SURPRISE, "restart", pod.name), _failed(after, pod)
            if "evict" in may:
                after = put_child(world, PODS, pod._replace(phase="Failed", reason="Evicted"))
                yield (SURPRISE, "evict", pod.name), after
        if "remove" in may and not pod.terminating:
            yield (SURPRISE, "remove", pod.name), end_child(world, PODS, pod)

    def _crash(self, world: World) -> World:
        """Kill and start again. Calls that were not carried out may be yet; what was only in memory is lost."""
        mind = world.mind
        answered = dict(world.answered)
        adrift = tuple(call for call in mind.calls or () if call.number not in answered and call.verb != "get")
        there = {pod.slot for pod in world.pods if pod.phase == "Succeeded"}
        adrift = (*world.adrift, *adrift)
        # Without the fence a call of the last life could come after its end; then no time in office is known.
        since = NEVER if adrift else world.head
        return world._replace(
            mind=self._operator.born(world.epoch, mind.cached, since),
            answered=(),
            adrift=adrift,
            untouched=frozenset(),
            finished=world.finished & (there | written_as_finished(world)),
            known=frozenset(),
            postures=frozenset(),
            made=frozenset(),
        )

    def _lose(self, world: World, call: Call) -> World:
        """The operator is told that the connection broke: before the call was carried out (it may be yet), or after."""
        if call.number not in dict(world.answered) and call.verb != "get":
            world = world._replace(adrift=(*world.adrift, call))
        return self._answer(world, call, Answer("ConnectionLostError"))


def _heard(world: World, mind: Mind, field: str, left: tuple[Event, ...]) -> World:
    changed: Any = {field: left}
    return world._replace(mind=mind, **changed)


def _recognised(world: World) -> frozenset[Slot]:
    """The replicas that the job as it is cached asks for, and whose success the cache shows."""
    jobs, pods, _ = world.mind.cached
    if not jobs:
        return frozenset()
    job = cast("Job", jobs[0])
    seen = {pod.slot for pod in cast("tuple[Child, ...]", pods) if pod.phase == "Succeeded"}
    return wanted(job) & seen


def _runs(pod: Child) -> bool:
    return pod.phase == "Running" and not pod.terminating and pod.uid != STRANGER


def _failed(world: World, pod: Child) -> World:
    failures = dict(world.failures)
    failures[pod.slot] = failures.get(pod.slot, 0) + 1
    return world._replace(failures=tuple(sorted(failures.items())))
