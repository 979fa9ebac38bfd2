"""Keeps the connections of a small server few and short, whoever opens them (D11).

Anyone who reaches the port can open connections and send nothing, or half of a request, or never read the response. Each
one holds a file descriptor; when these run out, neither the kubelet nor our own client can connect any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

VISIT_S: Final = 10.0
"""How long a connection may last. It carries one request, and Prometheus by default waits as long for the page."""

MOST: Final = 512
"""How many connections there may be: half of the 1,024 file descriptors that a process has by default."""


class Visitors:
    """Makes the protocol of each connection, by `serve`, and closes what exceeds the limits.

    When there are too many the oldest one is closed: honest requests are served within milliseconds, so an old connection
    is of no use. Turning away the newest would let a flood shut everybody out.
    """

    def __init__(self, serve: Callable[[], asyncio.Protocol]) -> None:
        self._serve = serve
        self._present: dict[_Visit, None] = {}
        self._one_has_ended = asyncio.Event()

    def __call__(self) -> asyncio.Protocol:
        """Return the factory that `loop.create_server` wants."""
        return _Visit(self._serve(), self._present, self._one_has_ended)

    async def leave(self, within_s: float) -> None:
        """Close all connections: at once, or after so many seconds where a response is under way."""
        for visit in list(self._present):
            visit.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self._present:
                    self._one_has_ended.clear()
                    await self._one_has_ended.wait()
        for visit in list(self._present):
            visit.end()


class _Visit(asyncio.Protocol):
    """One connection: passes its transport's calls on, and is in `present` while it is open."""

    def __init__(self, inner: asyncio.Protocol, present: dict[_Visit, None], one_has_ended: asyncio.Event) -> None:
        self._inner = inner
        self._present = present
        self._one_has_ended = one_has_ended
        self._transport: asyncio.Transport | None = None
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if len(self._present) >= MOST:
            next(iter(self._present)).end()
        self._present[self] = None
        self._transport = cast("asyncio.Transport", transport)
        self._limit = asyncio.get_running_loop().call_later(VISIT_S, self.end)
        self._inner.connection_made(transport)

    def end(self) -> None:
        """Close the connection at once. What was not sent yet is dropped."""
        self._present.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def leave(self) -> None:
        """Close the connection at once, unless its response is under way."""
        if self._transport is not None and not self._transport.is_closing():
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._present.pop(self, None)
        self._one_has_ended.set()
        if self._limit is not None:
            self._limit.cancel()
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
