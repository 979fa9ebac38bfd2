"""What can happen between an operator and its cluster, whatever its jobs are made of: events, calls, responses, crashes, time.

`Rules` is what both models share. Each model adds what its cluster does by itself, what may go wrong in it, and what is right.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from worlds.operator import NEVER, Mind, Operator
from worlds.settings import Setting
from worlds.values import Answer, Call, Child, Event, Job

PROGRESS: Final = 0
CHOICE: Final = 1
SURPRISE: Final = 2

Move = tuple[Any, ...]
"""A kind (PROGRESS, CHOICE or SURPRISE), a name, and details."""

S = TypeVar("S", bound=Any)
"""A state of everything: a named tuple with the fields that `worlds.world.State` and `worlds.alpha.world.State` share."""


class Rules(ABC, Generic[S]):
    """The moves of one setting. `pending` names, by resource, the field of a state with the events not yet delivered."""

    pending: ClassVar[Mapping[str, str]]

    def __init__(self, setting: Setting, operator: Operator) -> None:
        self.setting = setting
        self._operator = operator

    def moves(self, world: S, *, surprises: bool) -> Iterator[tuple[Move, S]]:
        """All moves with the worlds that they lead to. Raises WrongError when one shows the operator doing what it must not."""
        for move, after in self._of_the_operator(world):
            yield move, self._settled(world, after)
        for move, after in self._of_calls_adrift(world):
            yield move, self._settled(world, after)
        for move, after in self.of_the_cluster(world):
            yield move, self._settled(world, after)
        for move, after in self._choices(world):
            yield move, self._settled(world, after)
        if surprises:
            for move, after in self._surprises(world):
                yield move, self._settled(world, after)

    @abstractmethod
    def of_the_cluster(self, world: S) -> Iterator[tuple[Move, S]]:
        """What a cluster that is left alone does sooner or later."""

    @abstractmethod
    def choices(self, world: S) -> Iterator[tuple[Move, S]]:
        """What may happen or not."""

    @abstractmethod
    def misfortunes(self, world: S) -> Iterator[tuple[Move, S]]:
        """What goes wrong in the cluster."""

    @abstractmethod
    def at_once(self, world: S) -> S | None:
        """The world after the next change that takes no time in this setting; None if there is none."""

    @abstractmethod
    def carry_out(self, world: S, call: Call) -> tuple[S, Answer]:
        """Carry out a request; return the world after it, and the response."""

    @abstractmethod
    def objects(self, world: S, resource: str) -> tuple[Job | Child, ...]:
        """The objects that a list request of the operator returns."""

    @abstractmethod
    def seen(self, world: S) -> S:
        """Note what the operator knows as it begins a sync."""

    @abstractmethod
    def forgotten(self, world: S) -> S:
        """Note what nobody knows any more after a crash of the operator."""

    @abstractmethod
    def observed(self, world: S) -> S:
        """Note the job's posture, for the judges."""

    @abstractmethod
    def judge_sent(self, world: S, calls: Iterable[Call]) -> None:
        """Judge requests as they leave. Raises WrongError."""

    @abstractmethod
    def judge_step(self, before: S, after: S) -> None:
        """Judge what has changed on the server. Raises WrongError."""

    def _settled(self, before: S, world: S) -> S:
        """Judge what was done, note the job's posture, and then do at once what takes no time in this setting."""
        self.judge_step(before, world)
        world = self.observed(world)
        for resource, field in self.pending.items():
            pending = getattr(world, field)
            spare = len(pending) - (self.setting.lag if resource in self.setting.lags else 0)
            if spare > 0:
                mind = world.mind
                for event in pending[:spare]:
                    mind = self._operator.step(mind, world.epoch, "deliver", resource, event)
                world = heard(world, mind, field, pending[spare:])
        after = self.at_once(world)
        if after is not None:
            return self._settled(world, after)
        for call in world.mind.calls or ():
            if call.resource not in self.setting.lags:
                after, answer = self.carry_out(world, call)
                return self._settled(world, self.answer(after, call, answer))
        return world

    def _of_the_operator(self, world: S) -> Iterator[tuple[Move, S]]:
        mind = world.mind
        for resource, field in self.pending.items():
            pending = getattr(world, field)
            if pending:
                told = self._operator.step(mind, world.epoch, "deliver", resource, pending[0])
                yield (PROGRESS, "deliver", resource), heard(world, told, field, pending[1:])
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
                yield (PROGRESS, "answer", *call[:4]), self.answer(world, call, answer)
            else:
                after, answer = self.carry_out(world, call)
                if (call.verb, call.resource) in self.setting.open:
                    after = after._replace(answered=(*after.answered, (call.number, answer)))
                    yield (PROGRESS, "carry out", *call[:4], answer.error), after
                else:
                    yield (PROGRESS, "carry out and answer", *call[:4], answer.error), self.answer(after, call, answer)

    def _start(self, world: S) -> S:
        """A worker takes the key."""
        mind = self._operator.step(world.mind, world.epoch, "start")
        after = self.observed(self.seen(world._replace(mind=mind)))
        self.judge_sent(after, mind.calls or ())
        return after

    def answer(self, world: S, call: Call, answer: Answer) -> S:
        """The operator gets the response to a call."""
        before = world.mind.calls or ()
        mind = self._operator.step(world.mind, world.epoch, "answer", call.number, answer)
        left = tuple(each for each in world.answered if each[0] != call.number)
        new = [sent for sent in mind.calls or () if sent not in before]
        if call.verb == "create" and not answer.error:
            there = self.objects(world, call.resource)
            made = {(call.resource, child.uid) for child in there if child.name == call.name}  # type: ignore[union-attr]
            world = world._replace(made=world.made | made)
        self.judge_sent(self.observed(world), new)
        return cast("S", world._replace(mind=mind, answered=left))

    def _of_calls_adrift(self, world: S) -> Iterator[tuple[Move, S]]:
        for number, call in enumerate(world.adrift):
            rest = world._replace(adrift=world.adrift[:number] + world.adrift[number + 1 :])
            yield (PROGRESS, "drop", *call[:4]), rest
            yield (PROGRESS, "carry out late", *call[:4]), self.carry_out(rest, call)[0]

    def _choices(self, world: S) -> Iterator[tuple[Move, S]]:
        yield from self.choices(world)
        if world.script < len(self.setting.script):
            after = self.setting.script[world.script](world)
            yield (CHOICE, "edit", world.script), after._replace(script=world.script + 1)

    def _surprises(self, world: S) -> Iterator[tuple[Move, S]]:
        may = self.setting.may
        mind = world.mind
        if "crash" in may:
            yield (SURPRISE, "crash"), self._crash(world)
        if "lose" in may:
            for call in mind.calls or ():
                yield (SURPRISE, "lose", *call[:4]), self._lose(world, call)
        if "relist" in may:
            for resource, field in self.pending.items():
                if len(getattr(world, field)) > 1:
                    told = self._operator.step(mind, world.epoch, "replace", resource, self.objects(world, resource))
                    yield (SURPRISE, "relist", resource), heard(world, told, field, ())
        if "leap" in may and mind.calls is None:
            leapt = self._operator.step(mind, world.epoch + 1, "leap")
            yield (SURPRISE, "leap"), world._replace(mind=leapt, epoch=world.epoch + 1, made=frozenset())
        yield from self.misfortunes(world)

    def _crash(self, world: S) -> S:
        """Kill the operator and start it again. Calls may still be carried out later; what was only in memory is lost."""
        mind = world.mind
        answered = dict(world.answered)
        adrift = tuple(call for call in mind.calls or () if call.number not in answered and call.verb != "get")
        adrift = (*world.adrift, *adrift)
        # Without the fence a call of the last life could come after its end; then the start of its term is not known.
        since = NEVER if adrift else world.head
        reborn = self._operator.born(world.epoch, mind.cached, since)
        dead = self.forgotten(world)
        return cast(
            "S",
            dead._replace(mind=reborn, answered=(), adrift=adrift, postures=frozenset(), made=frozenset()),
        )

    def _lose(self, world: S, call: Call) -> S:
        """The operator is told that the connection was lost: after the call was carried out or before (it still may be)."""
        if call.number not in dict(world.answered) and call.verb != "get":
            world = world._replace(adrift=(*world.adrift, call))
        return self.answer(world, call, Answer("ConnectionLostError"))


def heard(world: S, mind: Mind, field: str, left: tuple[Event, ...]) -> S:
    """The operator has heard of the first events of a resource; `left` are those that are not yet delivered."""
    changed: Any = {field: left}
    return cast("S", world._replace(mind=mind, **changed))
