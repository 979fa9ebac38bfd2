"""A real operator is killed at its writes, or loses the answers, on a real API server: it ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

import pytest

from faults.bugs import BUGS
from faults.crash import Case
from faults.field import field
from faults.matrix import Matrix, say, table

if TYPE_CHECKING:
    from pathlib import Path

    from faults.crash import Outcome

SEED_OF_BUGS = 1


def chosen(matrix: Matrix, config: pytest.Config) -> list[Case]:
    """The cases that the options ask for; by default a tenth, whose seed is told."""
    if named := config.getoption("case"):
        parts = [text.split(":") for text in named]
        return [Case(workload, int(write), fault) for workload, write, fault in parts]
    if config.getoption("whole"):
        return matrix.cases
    seed = config.getoption("tenth")
    seed = secrets.randbelow(10_000) if seed is None else seed
    say(f"\ncrash matrix: the tenth of seed {seed}, again by: make faults TENTH={seed}")
    return matrix.tenth(seed)


def test_an_operator_that_is_killed_at_any_write_or_loses_its_answer_ends_as_without_a_fault(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Same end, every child made as often, no restart lost or counted twice, events within one; planted bugs are found."""

    async def play() -> list[str]:
        async with field(tmp_path) as it:
            matrix = await Matrix.of(it)
            outcomes = await matrix.play(it, chosen(matrix, pytestconfig))
            say(table(matrix, outcomes))
            return [str(outcome) for outcome in outcomes if outcome.violations]

    assert not asyncio.run(play())


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_within_a_tenth_of_the_matrix(tmp_path: Path, name: str) -> None:
    """Put into every operator that is started; only the workload in which it shows is played."""
    bug = BUGS[name]

    async def hunt() -> list[Outcome]:
        async with field(tmp_path) as it:
            matrix = await Matrix.of(it, [bug.workload])
            return await matrix.play(it, matrix.tenth(SEED_OF_BUGS), bug=name, until=bug.words)

    outcomes = asyncio.run(hunt())
    assert any(bug.words in violation for outcome in outcomes for violation in outcome.violations)
