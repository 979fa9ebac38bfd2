"""A real operator is killed at its writes, or loses the answers, on a real API server: it ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from faults.bugs import BUGS
from faults.crash import Case
from faults.field import field
from faults.matrix import Matrix, say, table

if TYPE_CHECKING:
    from faults.crash import Outcome

ROOT = Path(__file__).parents[2]


def tenth_of_the_commit() -> int:
    """A number from 0 to 9: another one for each commit, and the same whenever a commit is tested again. 0 without git."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return int(head.strip() or "0", 16) % 10


def chosen(matrix: Matrix, config: pytest.Config) -> list[Case]:
    """The cases that the options ask for; by default the tenth of this commit, whose number is told."""
    # Given the folder above, pytest does not know these options.
    if named := config.getoption("case", []):
        parts = [text.split(":") for text in named]
        return [Case(workload, int(write), fault) for workload, write, fault in parts]
    if config.getoption("whole", False):
        return matrix.cases
    number = config.getoption("tenth", None)
    number = tenth_of_the_commit() if number is None else number
    say(f"\ncrash matrix: tenth {number} of 0 to 9, again by: make faults TENTH={number}")
    return matrix.tenth(number)


def test_an_operator_that_is_killed_at_any_write_or_loses_its_answer_ends_as_without_a_fault(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Same end, every child made as often, no restart lost or counted twice, events within one."""

    async def play() -> list[str]:
        async with field(tmp_path) as it:
            matrix = await Matrix.of(it)
            outcomes = await matrix.play(it, chosen(matrix, pytestconfig))
            say(table(matrix, outcomes))
            return [str(outcome) for outcome in outcomes if outcome.violations]

    if wrong := asyncio.run(play()):
        pytest.fail("\n".join(wrong), pytrace=False)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(tmp_path: Path, name: str) -> None:
    """Put into every operator that is started. Cases of the workload in which it shows are played until one finds it."""
    bug = BUGS[name]

    async def hunt() -> list[Outcome]:
        async with field(tmp_path) as it:
            matrix = await Matrix.of(it, [bug.workload])
            return await matrix.play(it, Random(1).sample(matrix.cases, len(matrix.cases)), bug=name, until=bug.words)

    outcomes = asyncio.run(hunt())
    say(f"{name}: played {len(outcomes)} cases")
    assert any(bug.words in violation for outcome in outcomes for violation in outcome.violations)
