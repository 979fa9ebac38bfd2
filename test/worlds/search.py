"""Visits every reachable world once, and checks that each one leads to a stable world.

Worlds are visited in the order of the number of surprises that lead to them, so each is first reached with the fewest. The
key of a world is its whole content except the numbers of the job's versions.
"""

import gc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from worlds.judge import at_rest, judge_rest
from worlds.moves import PROGRESS, SURPRISE, Move, Moves
from worlds.operator import CrashError, Operator
from worlds.settings import Setting
from worlds.values import Rv, shape
from worlds.world import State, WrongError, create_job, observed, require, stranger

MOST: Final = 20_000_000
"""A number of worlds; more do not fit into memory."""


@dataclass(slots=True)
class Report:
    """What a search has seen: different worlds, moves between them, worlds at rest, and different steps of the operator."""

    worlds: int = 0
    moves: int = 0
    at_rest: int = 0
    steps: int = 0


@dataclass(slots=True)
class _Node:
    """A world of the search: the world and the move that it came from, and the worlds that moves of progress lead to."""

    parent: int
    move: Move
    world: State | None
    surprises: int
    onward: list[int] = field(default_factory=list)


def _beginning(setting: Setting, operator: Operator) -> State:
    """The first world: a job was created, and the operator has not heard of it."""
    world = State(operator.born(0), kubernetes=setting.kubernetes, tenured=setting.office is not None)
    if setting.has_stranger:
        world = world._replace(pods=(stranger("Worker", 0),))
    return observed(create_job(world, "job-1", setting.raw, queued=setting.queued))


class Search:
    def __init__(self, setting: Setting, operator: Operator, surprises: int) -> None:
        self._beginning = _beginning(setting, operator)
        self._operator = operator
        self._moves = Moves(setting, operator)
        self._surprises = surprises
        self._nodes: list[_Node] = []
        self._numbers: dict[Any, int] = {}
        self._shapes: dict[Any, tuple[Any, tuple[Rv, ...]]] = {}
        self._waiting: list[deque[int]] = [deque() for _ in range(surprises + 1)]
        self.report = Report()

    def run(self) -> Report:
        """Visit every world. Raises WrongError, with the moves that lead there, for the first one that is wrong."""
        self._meet(-1, (), self._beginning, 0)
        resting = []
        for spent, waiting in enumerate(self._waiting):
            while waiting:
                number = waiting.popleft()
                world = self._nodes[number].world
                if world is None:  # seen before, with fewer surprises
                    continue
                self._visit(number, world, spent)
                if at_rest(world) and not self._nodes[number].onward:
                    resting.append(number)
                self._nodes[number].world = None
        self._all_come_to_rest(resting)
        self.report.worlds, self.report.at_rest = len(self._nodes), len(resting)
        self.report.steps = self._operator.played
        return self.report

    def _visit(self, number: int, world: State, spent: int) -> None:
        node = self._nodes[number]
        move: Move = ()
        try:
            for move, after in self._moves.moves(world, surprises=spent < self._surprises):
                met = self._meet(number, move, after, spent + (move[0] == SURPRISE))
                if move[0] == PROGRESS and met != number:
                    node.onward.append(met)
                self.report.moves += 1
            if not node.onward and at_rest(world):
                move = ("at rest",)
                judge_rest(world)
                self._stays_at_rest(world)
        except (WrongError, CrashError) as error:
            error.add_note(f"in: {world._asdict() | {'mind': None}}")
            error.add_note(f"cache: {world.mind.cached}")
            error.add_note("\n".join(f"{step}" for step in (*self._way_to(number), f"after {move}")))
            raise

    def _stays_at_rest(self, world: State) -> None:
        """Neither an event without a reason nor a new life may find anything to do."""
        for mind in (world.mind, self._operator.born(world.epoch, world.mind.cached, world.head)):
            nudged = self._operator.step(mind, world.epoch, "nudge")
            looked = self._operator.step(nudged, world.epoch, "start")
            require(looked.calls is None, f"at rest, and looked at again: {looked.calls}")

    def _meet(self, parent: int, move: Move, world: State, spent: int) -> int:
        key = self._key(world)
        number = self._numbers.setdefault(key, len(self._nodes))
        if number == len(self._nodes):
            require(number < MOST, "too many worlds")
            self._nodes.append(_Node(parent, move, world, spent))
            self._waiting[spent].append(number)
        else:
            node = self._nodes[number]
            if spent < node.surprises and node.world is not None:
                node.parent, node.move, node.surprises = parent, move, spent
                self._waiting[spent].append(number)
        return number

    def _key(self, world: State) -> Any:
        """The world, with the job's versions in it numbered in their order."""
        versioned = (world.job, world.pending_jobs, world.answered, world.adrift)
        known = self._shapes.get(versioned)
        if known is None:
            rvs: list[Rv] = []
            known = self._shapes[versioned] = (shape(versioned, rvs), tuple(rvs))
        rvs_of_all = world.mind.rvs + known[1]
        order = {rv: place for place, rv in enumerate(sorted(set(rvs_of_all)))}
        return (
            world.mind.shape,
            known[0],
            tuple([order[rv] for rv in rvs_of_all]),
            world.unversioned,
        )

    def _way_to(self, number: int) -> Iterator[Move]:
        way = []
        while number >= 0:
            node = self._nodes[number]
            way.append(node.move)
            number = node.parent
        return reversed(way[:-1])

    def _all_come_to_rest(self, resting: list[int]) -> None:
        """Check that moves of progress lead from every world to rest: as none of them waits for ever, rest is then reached."""
        before: list[list[int]] = [[] for _ in self._nodes]
        for number, node in enumerate(self._nodes):
            for onward in node.onward:
                before[onward].append(number)
        reached = bytearray(len(self._nodes))
        todo = list(resting)
        while todo:
            number = todo.pop()
            if not reached[number]:
                reached[number] = 1
                todo.extend(before[number])
        lost = reached.find(0)
        if lost >= 0:
            error = WrongError(f"no way leads from here to rest ({reached.count(0)} such worlds)")
            error.add_note("\n".join(str(step) for step in self._way_to(lost)))
            raise error


def search(setting: Setting, surprises: int) -> Report:
    operator = Operator(setting.office)
    gc.collect()
    gc.disable()
    try:
        return Search(setting, operator, surprises).run()
    finally:
        gc.enable()
        operator.close()
