"""Server-sent events: the list as it changes, and one job as it changes, in one stream, since browsers open few at a time."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiohttp import web

from tfjob_operator.cli.page.board import STATE

if TYPE_CHECKING:
    from tfjob_operator.cli.page.board import Board
    from tfjob_operator.cli.page.feed import Update

BEAT_S: Final = 10.0
"""After so long without a message a beat is sent; a browser opens a new stream when nothing has come for 25 s."""
MOST_STREAMS: Final = 500
"""How many streams may be open. Each may hold one message that its browser has not read yet."""
EVENT_STREAM: Final = "text/event-stream"


class Streams:
    """All open streams. A browser that comes back with `Last-Event-ID` gets what it has missed, or everything anew."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._life = secrets.token_hex(4)  # numbers of an earlier process mean nothing here
        self._open: set[asyncio.Task[None]] = set()
        self._made: tuple[int, int, bytes] = (-1, -1, b"")

    async def serve(self, request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
        """Write until the browser goes away, or `close` is called. Raises HTTPServiceUnavailable if too many are open."""
        if len(self._open) >= MOST_STREAMS:
            raise web.HTTPServiceUnavailable(text="too many browsers look at this page")
        response = web.StreamResponse(headers={**headers, "Content-Type": EVENT_STREAM})
        await response.prepare(request)
        begin = self._number(request.headers.get("Last-Event-ID") or request.query.get("since", ""))
        task = asyncio.create_task(self._write(response, begin, request.query.get("job", "")))
        self._open.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            self._open.discard(task)
        return response

    def close(self) -> None:
        """End all streams."""
        for each in self._open:
            each.cancel()

    def _number(self, seen: str) -> int:
        life, _, number = seen.partition("-")
        known = life == self._life and number.isdecimal() and len(number) < 16
        return int(number) if known and int(number) <= self._board.feed.number else 0

    async def _write(self, response: web.StreamResponse, number: int, job: str) -> None:
        board, shown = self._board, -1
        try:
            while True:
                parts: list[bytes] = []
                rounds = board.feed.rounds
                if board.feed.number > number:
                    parts.append(self._rows(number))
                    number = board.feed.number
                if job and (version := board.version(job)) != shown:
                    shown = version
                    parts.append(b"event: job\ndata: %b\n\n" % (board.view(job) or b"null"))
                await response.write(b"".join(parts) or b"event: beat\ndata:\n\n")
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_S):
                        await board.feed.wait(rounds)
        except ConnectionError:
            return  # the browser has gone away

    def _rows(self, since: int) -> bytes:
        """Return one message; all browsers that have seen as much get the same bytes."""
        update = self._board.feed.since(since)
        if self._made[:2] != (since, update.number):
            self._made = since, update.number, message_of(update, self._life)
        return self._made[2]


def message_of(update: Update, life: str) -> bytes:
    """Return an update as a server-sent event, with the ID under which it can be resumed."""
    rows = b",".join(body for key, body in update.changed if body is not None and key != STATE)
    gone = b",".join(b'"%b"' % key.encode() for key, body in update.changed if body is None)
    state = next((body for key, body in update.changed if key == STATE and body is not None), b"null")
    full = b"true" if update.full else b"false"
    data = b'{"full":%b,"state":%b,"rows":[%b],"gone":[%b]}' % (full, state, rows, gone)
    return b"id: %b-%d\nevent: rows\ndata: %b\n\n" % (life.encode(), update.number, data)
