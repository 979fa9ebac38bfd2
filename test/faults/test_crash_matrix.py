"""A real operator is killed at its writes, or loses the answers, on a real API server: it ends as if nothing had happened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.bugs import BUGS
from faults.chosen import fail_if, hunt, play_chosen
from faults.field import field
from faults.matrix import Matrix


def test_an_operator_that_is_killed_at_any_write_or_loses_its_answer_ends_as_without_a_fault(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Same end, every child made as often, no restart lost or counted twice, events within one."""

    async def play() -> list[str]:
        async with field(tmp_path) as it:
            return await play_chosen(it, await Matrix.of(it), "crash matrix", pytestconfig)

    fail_if(asyncio.run(play()))


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(tmp_path: Path, name: str) -> None:
    """Put into every operator that is started. Of the first tenth, the cases of the workload in which it shows are enough."""

    async def find() -> None:
        async with field(tmp_path) as it:
            await hunt(it, name, BUGS[name])

    asyncio.run(find())
