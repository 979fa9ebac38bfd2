"""A real API server seems to refuse single writes of an operator, or its watches end: it ends as if nothing had happened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.ailing import AILING
from faults.bugs import OF_AILING, REFUSALS_BELIEVED
from faults.chosen import fail_if, hunt, play_chosen
from faults.field import field
from faults.matrix import Matrix


def test_an_operator_whose_write_is_refused_or_whose_watches_end_ends_as_without_a_fault(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """409, 429, 500, 503, the page of a proxy, a slow response; watches cut, reset, half-closed, frozen, expired.

    And clients that ask for metrics in a loop, a standard error that blocks or is broken, and a full disk.
    """

    async def play() -> list[str]:
        async with field(tmp_path) as it:
            return await play_chosen(
                it, await Matrix.of(it, scheme=AILING), "ailing server", pytestconfig, sampled=True
            )

    fail_if(asyncio.run(play()))


def test_an_operator_that_takes_refusals_for_done_is_found(tmp_path: Path) -> None:
    """What was not created never comes. The first tenth of the workload is enough."""

    async def find() -> None:
        async with field(tmp_path) as it:
            await hunt(it, REFUSALS_BELIEVED, OF_AILING[REFUSALS_BELIEVED], AILING)

    asyncio.run(find())
