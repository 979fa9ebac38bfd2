"""How long a connection may last, and how many there may be, on fake transports."""

from __future__ import annotations

import asyncio

import pytest

from tfjob_operator.controller.observability.http_server import MOST, VISIT_S, Visitors


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


class Server(asyncio.Protocol):
    """A protocol that records its callbacks."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.told.append(transport)

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def eof_received(self) -> bool | None:
        self.told.append("eof")
        return True

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(exc)


def visit(visitors: Visitors) -> tuple[asyncio.Protocol, Line]:
    """Open a connection."""
    protocol, line = visitors(), Line()
    protocol.connection_made(line)
    return protocol, line


async def test_the_server_is_told_all_that_a_connection_tells() -> None:
    """D11: the wrapper that enforces the limits passes every callback on unchanged."""
    server = Server()
    protocol, line = visit(Visitors(lambda: server))
    protocol.data_received(b"GET")
    assert protocol.eof_received()
    protocol.pause_writing()
    protocol.resume_writing()
    error = ConnectionResetError()
    protocol.connection_lost(error)
    assert server.told == [line, b"GET", "eof", "pause", "resume", error]


async def test_nobody_stays_longer_than_a_visit_takes() -> None:
    """D11: whatever the client sends, or does not read, meanwhile."""
    protocol, line = visit(Visitors(Server))
    for _ in range(100):
        await asyncio.sleep(VISIT_S / 50)
        protocol.data_received(b"x")
    assert line.ended_at == pytest.approx(VISIT_S)


async def test_a_visitor_that_has_left_is_not_closed_again() -> None:
    """D11: nor is it counted any more."""
    visitors = Visitors(Server)
    for _ in range(3 * MOST):
        protocol, line = visit(visitors)
        protocol.connection_lost(None)
        await asyncio.sleep(VISIT_S / 100)
        assert line.ended_at is None
    await asyncio.sleep(2 * VISIT_S)
    assert line.ended_at is None


async def test_when_there_are_too_many_the_oldest_goes() -> None:
    """D11: a flood keeps nobody out who comes after it."""
    visitors = Visitors(Server)
    lines = [visit(visitors)[1] for _ in range(MOST + 2)]
    assert [line.ended_at is None for line in lines] == [False] * 2 + [True] * MOST
    await asyncio.sleep(1.0)
    assert sum(line.ended_at is None for line in lines) == MOST


async def test_who_is_being_answered_when_the_server_ends_has_a_moment_for_it() -> None:
    """A scrape that was answered is not cut off; a client that has asked nothing yet is not waited for."""
    visitors = Visitors(Server)
    (_, idle), (quick, served), (_, stuck) = (visit(visitors) for _ in range(3))
    served.closing = stuck.closing = True
    asyncio.get_running_loop().call_later(0.2, quick.connection_lost, None)
    await visitors.leave(0.5)
    assert (idle.ended_at, served.ended_at, stuck.ended_at) == (0.0, None, 0.5)


async def test_a_server_that_has_answered_everybody_ends_at_once() -> None:
    """No pause where there is nothing to wait for."""
    visitors = Visitors(Server)
    await visitors.leave(0.5)
    quick, served = visit(visitors)
    served.closing = True
    asyncio.get_running_loop().call_later(0.1, quick.connection_lost, None)
    await visitors.leave(0.5)
    assert asyncio.get_running_loop().time() == pytest.approx(0.1)
