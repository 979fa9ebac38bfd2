"""The small jobs of the alpha dialect whose worlds are searched exhaustively, and what may happen to each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from fakes import alpha
from tfjob_operator.controller.alpha.children import replica_key
from tfjob_operator.controller.alpha.observe import derived
from worlds.alpha.judge import at_rest, judge_rest
from worlds.alpha.moves import AlphaRules
from worlds.alpha.operator import AlphaOperator
from worlds.alpha.world import (
    JOBS,
    PODS,
    SERVICES,
    State,
    create_job,
    delete_job,
    edit_job,
    observed,
)
from worlds.rules import Rules
from worlds.search import Model, Report, search_model
from worlds.settings import Setting, encoded
from worlds.values import Child
from worlds.world import STRANGER, TFJOBS

FIRST: Final = "job-1"
"""The UID of the first job."""


@dataclass(frozen=True)
class AlphaSetting(Setting):
    """A job of the alpha dialect. `in_the_way`: a service without owner has the name that the master's service needs."""

    lags: frozenset[str] = frozenset({TFJOBS, JOBS})
    runs_at_once: bool = True
    never_ends: frozenset[str] = frozenset({"PS"})
    in_the_way: bool = False


class AlphaJobs(Model):
    """Jobs of the second controller."""

    def make_rules(self) -> Rules[Any]:
        """See `moves`."""
        return AlphaRules(self.setting, self.operator)

    def beginning(self) -> State:
        """The first world: a job was created, and the operator has not heard of it."""
        setting = self.setting
        world = State(self.operator.born(0))
        if isinstance(setting, AlphaSetting) and setting.in_the_way:
            name = replica_key(derived(FIRST), "MASTER", 0).name
            world = world._replace(services=(Child(name, STRANGER, "another", "Service", "MASTER", 0),))
        return observed(create_job(world, FIRST, setting.raw))

    def at_rest(self, world: State) -> bool:
        """See `judge.at_rest`."""
        return at_rest(world)

    def judge_rest(self, world: State) -> None:
        """See `judge.judge_rest`."""
        judge_rest(world)


def search(setting: AlphaSetting, surprises: int) -> Report:
    """Search all worlds of one setting."""
    return search_model(AlphaJobs(setting, AlphaOperator()), surprises)


def edit(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[State], State]:
    """An edit of the specification by the user."""

    def made(world: State) -> State:
        if world.job is None:
            return world
        return edit_job(world, encoded(change(msgspec.json.decode(world.job.spec))))

    return made


def scale(kind: str, count: int) -> Callable[[State], State]:
    """The user asks for another number of replicas."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        entries = [
            each | {"replicas": count} if each["tfReplicaType"] == kind else each for each in given["replicaSpecs"]
        ]
        return given | {"replicaSpecs": entries}

    return edit(change)


BREAK: Final = edit(lambda given: given | {"schedulerName": 7})
MEND: Final = edit(lambda given: given | {"schedulerName": ""})


def delete(world: State) -> State:
    """The user deletes the job; its children are collected afterwards."""
    return delete_job(world)


def create_again(given: dict[str, Any]) -> Callable[[State], State]:
    """The user creates another job of the same name, unless the first one still exists."""
    return lambda world: world if world.job is not None else create_job(world, "job-2", encoded(given))


ENDS: Final = ("killed", "error", "out of memory", "evict")
ONE: Final = alpha.spec(alpha.entry("MASTER"))
PAIR: Final = alpha.spec(alpha.entry("MASTER"), alpha.entry("WORKER", 1))
SERVED: Final = alpha.spec(alpha.entry("MASTER"), alpha.entry("PS", 1))
NAMED: Final = ONE | {"RuntimeId": "same"}
EVERY_CALL: Final = frozenset(
    (verb, resource) for verb in ("create", "delete", "patch", "get") for resource in (TFJOBS, JOBS, SERVICES)
)
CHIEF_DECIDES: Final = PAIR | {"terminationPolicy": {"chief": {"replicaName": "WORKER", "replicaIndex": 0}}}

SETTINGS: Final = (
    AlphaSetting(
        "one master, everything apart",
        ONE,
        ("crash", "lose", "relist", "killed", "error", "remove", "meddle"),
        0,
        lags=frozenset({TFJOBS, JOBS, SERVICES, PODS}),
        open=EVERY_CALL,
        runs_at_once=False,
    ),
    AlphaSetting("one master, by every end", ONE, ENDS, lags=frozenset({PODS})),
    AlphaSetting("one master, by two ends", ONE, ENDS, 2, lags=frozenset({PODS}), everyday=False),
    AlphaSetting("master and worker", PAIR, ("crash", "error", "out of memory"), 0),
    AlphaSetting("the worker is the chief", CHIEF_DECIDES, ("crash", "error"), 0, everyday=False),
    AlphaSetting("a master and a standard server", SERVED, ("crash", "meddle"), 0),
    AlphaSetting("scaled up", PAIR, ("crash",), 0, (scale("WORKER", 2),), everyday=False),
    AlphaSetting("scaled down and up", PAIR, ("error",), 0, (scale("WORKER", 0), scale("WORKER", 1)), everyday=False),
    AlphaSetting("broken and mended", ONE, ("crash", "error", "killed"), 0, (BREAK, MEND)),
    AlphaSetting("deleted and made again", NAMED, ("crash", "lose"), 0, (delete, create_again(NAMED))),
    AlphaSetting("another service of that name", ONE, ("crash", "lose"), in_the_way=True),
    AlphaSetting("all is cleaned up", PAIR | {"cleanupPodPolicy": "All"}, ("crash", "meddle"), 0, everyday=False),
    AlphaSetting("nothing is cleaned up", PAIR | {"cleanupPodPolicy": "None"}, ("crash", "meddle"), 0, everyday=False),
    AlphaSetting(
        "another's job", ONE | {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, ("crash",), 1, (delete,)
    ),
)
