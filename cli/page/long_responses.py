"""Long responses: streams of changes, logs and curves. Their number and buffers are limited.

Each has a connection and a buffer, so their number is limited per viewer and in total. A response is closed if its
browser does not read, or if its viewer loses a required permission.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Final

from aiohttp import web

from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.cli.page.authenticator import HEADERS
from tfjob_operator.cli.page.reviews import ReviewFailedError
from tfjob_operator.cli.page.viewers import DeniedError, UnauthenticatedError, Viewer
from tfjob_operator.cli.permissions import ResourceAttributes

MAX_OPEN: Final = 500
"""The most open responses."""
MAX_PER_VIEWER: Final = 30
"""The most open responses of a cluster user: each tab has one or two."""
_LATER: Final = {"Retry-After": "10"}
"""When a browser may retry after reaching these limits, in seconds."""
STALLED_S: Final = 30.0
"""A browser that reads nothing for this long is disconnected. It reconnects when it is active again."""
CHECK_S: Final = 2.0
"""The interval at which permissions of viewers are checked."""
MAX_WRITE: Final = 32_768
"""The most bytes per write: unread bytes are copied."""
_WITHDRAWN: Final = (DeniedError, UnauthenticatedError, ReviewFailedError)
_ENDS: Final = (ConnectionError, TimeoutError, ApiError, *_WITHDRAWN)
"""Errors that end a response that has started."""


class LongResponses:
    """The open responses."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[None]] = set()
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return the number of open responses."""
        return self._of.total()

    async def close(self, _: web.Application) -> None:
        """Cancel all."""
        for each in self._open:
            each.cancel()

    async def send(
        self,
        request: web.Request,
        viewer: Viewer,
        pieces: AsyncGenerator[bytes, None],
        headers: dict[str, str],
        *needs: ResourceAttributes,
    ) -> web.StreamResponse:
        """Send pieces until they end or the viewer loses one of the permissions `needs`. Raises what the first piece raises."""
        if viewer.name and self._of[viewer.name] >= MAX_PER_VIEWER:
            message = (
                f"You have {MAX_PER_VIEWER} streams and logs of this page open, the maximum. Close some of its tabs."
            )
            raise web.HTTPTooManyRequests(text=message, headers=_LATER)
        if len(self) >= MAX_OPEN:
            message = "Too many streams and logs of this page are open. Try again later."
            raise web.HTTPServiceUnavailable(text=message, headers=_LATER)
        self._of[viewer.name] += 1
        try:
            async with aclosing(pieces):
                first = await anext(pieces, b"")
                response = web.StreamResponse(headers={**HEADERS, **headers})
                await response.prepare(request)
                is_whole = await self._is_written(_write(response, first, pieces), _until_withdrawn(viewer, needs))
                if not is_whole and request.transport is not None:
                    request.transport.abort()  # an orderly shutdown would wait, and look like the end of the log
                return response
        finally:
            self._of[viewer.name] -= 1
            self._of += Counter()  # removes viewers without any

    async def _is_written(self, write: Coroutine[Any, Any, None], check: Coroutine[Any, Any, None]) -> bool:
        """Write a response until its viewer loses a permission; return True if everything was written."""
        writing = asyncio.create_task(write, name="long response")
        checking = asyncio.create_task(check, name="right to a long response")
        self._open.add(writing)
        try:
            await asyncio.wait({writing, checking}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done() and not writing.cancelled():
                await writing
                return True
        except _ENDS:
            pass
        finally:
            self._open.discard(writing)
            for task in (writing, checking):
                task.cancel()
            await asyncio.gather(writing, checking, return_exceptions=True)
        return False


async def _write(response: web.StreamResponse, first: bytes, pieces: AsyncGenerator[bytes, None]) -> None:
    await _write_parts(response, first)
    async for piece in pieces:
        await _write_parts(response, piece)
    async with asyncio.timeout(STALLED_S):
        await response.write_eof()


async def _write_parts(response: web.StreamResponse, piece: bytes) -> None:
    for begin in range(0, len(piece), MAX_WRITE):
        async with asyncio.timeout(STALLED_S):
            await response.write(piece[begin : begin + MAX_WRITE])


async def _until_withdrawn(viewer: Viewer, needs: Sequence[ResourceAttributes]) -> None:
    try:
        while True:
            await asyncio.sleep(CHECK_S)
            for attributes in needs:
                await viewer.require(attributes)
    except _WITHDRAWN:
        return
