"""A model of both operators while namespaces move there and back: no order of the plans gives a job two writers.

The model executes the commands of real plans on the objects that they change. training-operator acts on every
namespace in which its bindings let it write, at any time. This operator acts in its namespace while it is installed and has its
role. `test/integration/test_migrate_by_namespace.py` executes some orders on a real API server with RBAC.
"""

import itertools
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import pytest

from tfjob_operator.cli.installations import installations
from tfjob_operator.cli.namespace_replacement import namespace_plan
from tfjob_operator.cli.operators import ClusterState
from tfjob_operator.cli.replacement import plan
from unit.cli.test_migration_plan import commands
from unit.cli.training_operator import binding, deployment, installed, webhook

TEAMS: Final = ("a", "b", "c")
LABEL: Final = "tfjob.kubeflow.org/operator"
BINDINGS_RECORD: Final = "tfjob.kubeflow.org/bindings-before-migration"


@cache
def split(command: str) -> list[str]:
    return shlex.split(command)


@dataclass
class World:
    """The objects that decide who may write: labels, bindings of training-operator, and installations of this operator."""

    labelled: set[str] = field(default_factory=set)
    everywhere: bool = True
    bound: set[str] = field(default_factory=set)
    roles: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)

    def training_operator_writes(self, team: str) -> bool:
        return self.everywhere or team in self.bound

    def ours_writes(self, team: str) -> bool:
        return team in self.roles and team in self.running

    def execute(self, line: str) -> None:
        """Execute a command of a plan. One that the model does not know fails the test."""
        if line.startswith("if namespaces="):
            assert f"--selector={LABEL}!=tfjob-operator" in line
            self.bound |= {*TEAMS, "kubeflow"} - self.labelled
            return
        if line.startswith("until case "):  # waits as long as training-operator may write
            asked = re.search(r"\$\((.*?)\)", line)
            assert asked is not None
            assert not self.training_operator_writes(_namespace(split(asked[1])))
            return
        if line.startswith("if moved="):
            self.everywhere = self.everywhere or not self.labelled
            return
        if found := re.search(r'then \[ -z "\$installed" \] \|\| (.*); else false; fi$', line):
            line = found[1]
        words = split(line)
        match words[1:] if "-n" not in words else [*words[3:]]:
            case ["label", "namespace", team, change, *_]:
                (self.labelled.discard if change.endswith("-") else self.labelled.add)(team)
            case ["delete", "clusterrolebinding", "training-operator", *_]:
                self.everywhere = False
            case ["delete", "rolebinding", "training-operator", *_]:
                self.bound.discard(_namespace(words))
            case ["create", "rolebinding", "training-operator", *_]:
                self.bound.add(_namespace(words))
            case ["delete", "role,rolebinding", *_]:
                self.roles.discard(_namespace(words))
            case ["scale", "deployment/tf-job-operator", "--replicas=0"]:
                self.running.discard(_namespace(words))
            case ["apply", "--server-side", "--force-conflicts", "-f", file]:
                team = file.removeprefix("tfjob-operator-").removesuffix(".yaml")
                self.roles.add(team)
                self.running.add(team)
            case _:
                self._execute_for_all(words)

    def _execute_for_all(self, words: Sequence[str]) -> None:
        """Execute a command of the plan for all namespaces, or one that changes nothing here."""
        match words[1:] if "-n" not in words else [*words[3:]]:
            case ["label", "namespaces", "--all", _]:
                self.labelled.clear()
            case ["create", "clusterrolebinding", "training-operator", *_]:
                self.everywhere = True
            case ["delete", kinds, *_] if kinds.startswith("deployment,"):
                self.roles.discard(_namespace(words))
                self.running.discard(_namespace(words))
            case ["scale", "deployment/training-operator", "--replicas=2"]:
                pass  # as before
            case _:
                assert (
                    words[0] in {"sed", "echo", "[", "left="}
                    or {"annotate", "auth", "get", "wait", "rollout", "patch"} & {*words}
                    or "training-operator-read" in words
                )

    def run(self, lines: Iterable[str]) -> None:
        """Execute commands; after each, no namespace has two writers."""
        for line in lines:
            self.execute(line)
            self.check()

    def read(self, kinds: Sequence[str] = ()) -> ClusterState:
        """Return what the plugin reads of this world."""
        bodies = json.dumps([installed(team, f"--namespace={team}") for team in sorted(self.running)])
        ours = installations(json.loads(bodies))
        recorded = {"annotations": {BINDINGS_RECORD: '{"training-operator": "training-operator"}'}}
        peer = deployment(meta=recorded if self.labelled else None)
        bound = [binding()] if self.everywhere else []
        moved = sorted(self.labelled)
        return ClusterState([peer], [webhook("tfjob")], bindings=bound, moved=moved, installed=ours, kinds=kinds)

    def check(self) -> None:
        for team in TEAMS:
            assert not (self.training_operator_writes(team) and self.ours_writes(team)), (team, self)


def _namespace(words: Sequence[str]) -> str:
    return words[words.index("-n") + 1]


def split_at_way_back(lines: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands there, and those of the way back."""
    found = [*lines]
    start = found.index("back() (")
    return (*commands(found[:start]),), (*commands(found[start:]),)


@cache
def script(team: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands of the plan for a namespace, there and back."""
    return split_at_way_back(
        namespace_plan(ClusterState([deployment()], [webhook("tfjob")], bindings=[binding()]), team)
    )


@pytest.mark.parametrize("order", [*itertools.product(TEAMS, repeat=3)], ids="".join)
def test_no_order_of_moves_there_and_back_gives_a_job_two_writers(order: Sequence[str]) -> None:
    """A namespace that is named again goes back. Each plan may be interrupted after any command, and is repeated then."""
    world, moved = World(), set[str]()
    for team in order:
        lines = script(team)[team in moved]
        for interrupted in range(1, len(lines) + 1):
            for line in lines[:interrupted]:
                world.execute(line)
                world.check()
        moved ^= {team}
        assert {each for each in TEAMS if world.ours_writes(each)} == moved
        assert {each for each in TEAMS if world.training_operator_writes(each)} == {*TEAMS} - moved
    assert world.everywhere == (not moved)


@pytest.mark.parametrize("kinds", [[], ["pytorchjobs"]])
@pytest.mark.parametrize("moved", [*itertools.product((False, True), repeat=2)])
def test_the_way_back_for_all_leaves_no_operator_of_a_namespace_for_the_next_plan(
    moved: Sequence[bool], kinds: list[str]
) -> None:
    """Printed and executed while single namespaces are moved, without its other steps. Then another namespace moves."""
    world = World()
    teams = [team for team, is_moved in zip(TEAMS, moved, strict=False) if is_moved]
    for team in teams:
        world.run(script(team)[0])
    world.run(split_at_way_back(plan(world.read(kinds)))[1])
    assert not world.running
    assert world.everywhere
    world.run(split_at_way_back(namespace_plan(world.read(), "c"))[0])
    assert [each for each in TEAMS if world.ours_writes(each)] == ["c"]
    assert [each for each in TEAMS if world.training_operator_writes(each)] == ["a", "b"]


def test_a_plan_takes_the_permissions_of_training_operator_away_where_an_operator_runs_without_the_label() -> None:
    """Whoever has installed it there has given the jobs two operators; the plan ends that."""
    world = World(roles={"b"}, running={"b"})
    for line in split_at_way_back(namespace_plan(world.read(), "a"))[0]:
        world.execute(line)
    world.check()
    assert [each for each in TEAMS if world.ours_writes(each)] == ["a", "b"]
    assert [each for each in TEAMS if world.training_operator_writes(each)] == ["c"]


def test_the_model_finds_a_plan_whose_steps_are_in_another_order() -> None:
    there, _ = script("a")
    world = World()
    world.execute(next(line for line in there if line.startswith("kubectl apply --server-side")))
    with pytest.raises(AssertionError, match="everywhere=True"):
        world.check()
