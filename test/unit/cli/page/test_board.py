"""What the browsers of one page are sent, and when."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from tfjob_operator.cli.page.board import LOOK_S, STATE, TOGETHER_S, Board


def state_of(board: Board) -> dict[str, Any]:
    """The state of the page that a browser would be sent."""
    row = dict(board.feed.since(0).changed)[STATE]
    found: dict[str, Any] = json.loads(row.whole if row is not None else b"")
    return found


async def test_of_an_empty_cluster_it_is_told_that_all_was_read() -> None:
    """No job, pod or event changes then: browsers would wait for ever."""
    cluster: Any = SimpleNamespace(scope="", has_synced=False, troubles={}, places=frozenset())
    board = Board({})
    running = asyncio.create_task(board.run(cluster))
    await asyncio.sleep(10 * LOOK_S)
    assert not state_of(board)["synced"]
    cluster.has_synced = True
    await asyncio.sleep(2 * (LOOK_S + TOGETHER_S))
    assert state_of(board)["synced"]
    told = board.feed.rounds
    await asyncio.sleep(10 * LOOK_S)
    assert board.feed.rounds == told
    running.cancel()
    await asyncio.wait([running])
