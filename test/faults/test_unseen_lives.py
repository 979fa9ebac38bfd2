"""What lives and dies while no watch looks: a real operator ends as if nothing had happened, and stands still for nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.bugs import LISTS_IGNORED, OF_UNSEEN
from faults.chosen import fail_if, hunt, play_chosen
from faults.field import field
from faults.matrix import Matrix
from faults.unseen import unseen


def test_an_operator_that_misses_whole_lives_ends_as_without_a_fault(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """EX-10, SI-11: a child that is deleted unseen is made once more, at once; other lives change nothing."""

    async def play() -> list[str]:
        async with field(tmp_path) as it, unseen(it) as scheme:
            return await play_chosen(it, await Matrix.of(it, scheme=scheme), "unseen lives", pytestconfig)

    fail_if(asyncio.run(play()))


def test_an_operator_that_waits_for_what_it_has_missed_is_found(tmp_path: Path) -> None:
    """Its user waits in vain. The first tenth of the workload is enough."""

    async def find() -> None:
        async with field(tmp_path) as it, unseen(it) as scheme:
            await hunt(it, LISTS_IGNORED, OF_UNSEEN[LISTS_IGNORED], scheme)

    asyncio.run(find())
