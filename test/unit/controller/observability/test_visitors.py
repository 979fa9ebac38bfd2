"""How long a connection may last, and how many there may be, on fake transports."""

from __future__ import annotations

import asyncio

import pytest

from tfjob_operator.controller.observability.http_server import MOST, VISIT_S, Connections, Conversation, Pages
from tfjob_operator.controller.observability.metrics import new_registry


class Line(asyncio.Transport):
    """A connection that notes when it was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_at: float | None = None
        self.closing = False

    def abort(self) -> None:
        self.ended_at = asyncio.get_running_loop().time()

    def is_closing(self) -> bool:
        return self.closing


def connect(connections: Connections) -> tuple[asyncio.Protocol, Line]:
    """Open a connection."""
    protocol, line = Conversation(Pages(new_registry(), healthz={}, readyz={}), connections), Line()
    protocol.connection_made(line)
    return protocol, line


async def test_nobody_stays_longer_than_a_visit_takes() -> None:
    """D11: whatever the client sends, or does not read, meanwhile."""
    protocol, line = connect(Connections())
    protocol.data_received(b"GET /healthz?")
    for _ in range(100):
        await asyncio.sleep(VISIT_S / 50)
        protocol.data_received(b"x")
    assert line.ended_at == pytest.approx(VISIT_S)


async def test_a_visitor_that_has_left_is_not_closed_again() -> None:
    """D11: nor is it counted any more."""
    connections = Connections()
    for _ in range(3 * MOST):
        protocol, line = connect(connections)
        protocol.connection_lost(None)
        await asyncio.sleep(VISIT_S / 100)
        assert line.ended_at is None
    await asyncio.sleep(2 * VISIT_S)
    assert line.ended_at is None


async def test_when_there_are_too_many_the_oldest_goes() -> None:
    """D11: a flood keeps nobody out who comes after it."""
    connections = Connections()
    lines = [connect(connections)[1] for _ in range(MOST + 2)]
    assert [line.ended_at is None for line in lines] == [False] * 2 + [True] * MOST
    await asyncio.sleep(1.0)
    assert sum(line.ended_at is None for line in lines) == MOST


async def test_who_is_being_answered_when_the_server_ends_has_a_moment_for_it() -> None:
    """A scrape that was answered is not cut off; a client that has asked nothing yet is not waited for."""
    connections = Connections()
    (_, idle), (quick, served), (_, stuck) = (connect(connections) for _ in range(3))
    served.closing = stuck.closing = True
    asyncio.get_running_loop().call_later(0.2, quick.connection_lost, None)
    await connections.close(0.5)
    assert (idle.ended_at, served.ended_at, stuck.ended_at) == (0.0, None, 0.5)


async def test_a_server_that_has_answered_everybody_ends_at_once() -> None:
    """No pause where there is nothing to wait for."""
    connections = Connections()
    await connections.close(0.5)
    quick, served = connect(connections)
    served.closing = True
    asyncio.get_running_loop().call_later(0.1, quick.connection_lost, None)
    await connections.close(0.5)
    assert asyncio.get_running_loop().time() == pytest.approx(0.1)
