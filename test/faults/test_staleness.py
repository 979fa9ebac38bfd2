"""A real operator is moved to a real API server that shows the past: it ends as if nothing had happened."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faults.bugs import OF_STALENESS, VIEWS_BELIEVED
from faults.chosen import fail_if, hunt, play_chosen
from faults.field import field
from faults.matrix import Matrix
from faults.stale import staleness


def test_an_operator_that_is_shown_the_past_ends_as_without_a_fault(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Two API servers on one etcd, of which one lags. Nothing is done twice."""

    async def play() -> list[str]:
        async with field(tmp_path) as it, staleness(it) as scheme:
            return await play_chosen(it, await Matrix.of(it, scheme=scheme), "staleness", pytestconfig, sampled=True)

    fail_if(asyncio.run(play()))


def test_an_operator_that_believes_what_it_is_shown_is_found(tmp_path: Path) -> None:
    """It asks nobody whether its view of a job and its pods is new. The first tenth of the workload is enough."""

    async def find() -> None:
        async with field(tmp_path) as it, staleness(it) as scheme:
            await hunt(it, VIEWS_BELIEVED, OF_STALENESS[VIEWS_BELIEVED], scheme)

    asyncio.run(find())
