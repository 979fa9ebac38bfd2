"""A real operator is killed at its writes, or loses the answers, on a real API server: it ends as if nothing had happened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from faults.bugs import BUGS
from faults.crash import Case
from faults.field import field
from faults.matrix import Matrix, say, table

if TYPE_CHECKING:
    from pathlib import Path

    from faults.crash import Outcome


def chosen(matrix: Matrix, config: pytest.Config) -> list[Case]:
    """The cases that the options ask for."""
    if named := config.getoption("case"):
        return [Case.parse(text) for text in named]
    number = config.getoption("tenth")
    if number is None:
        return matrix.cases
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
    """Put into every operator that is started. Of the first tenth, the cases of the workload in which it shows are enough."""
    bug = BUGS[name]

    async def hunt() -> list[Outcome]:
        async with field(tmp_path) as it:
            matrix = await Matrix.of(it, [bug.workload])
            return await matrix.play(it, matrix.tenth(0), bug=name, until=bug.words)

    outcomes = asyncio.run(hunt())
    say(f"{name}: played {len(outcomes)} cases")
    assert any(bug.words in violation for outcome in outcomes for violation in outcome.violations)
