"""Sends changes of the list and of one job in a single stream of server-sent events, since browsers limit streams."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

import msgspec

from tfjob_operator.api.core import EVENTS
from tfjob_operator.cli.page.board import STATE, Board, Row, Update
from tfjob_operator.cli.page.reviews import STREAM_DENIED_TTL_S
from tfjob_operator.cli.page.viewers import EVERYTHING, Viewer, Visibility
from tfjob_operator.cli.permissions import ResourceAttributes

HEARTBEAT_S: Final = 10.0
"""The idle time after which a heartbeat is sent; a browser reconnects after 25 s without data."""
MAX_SHARED: Final = 8
"""The most messages that are cached for other browsers in the same state with the same permissions."""


class Streams:
    """Creates streams. A browser that reconnects with `Last-Event-ID` gets the changes since then, or everything.

    A permission last confirmed more than `ALLOWED_TTL_S` ago is checked again before anything is sent. Missing permissions are
    checked once in `STREAM_DENIED_TTL_S`, and whenever a browser reconnects.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._instance = secrets.token_hex(4)  # numbers of an earlier process are not valid here
        self._made: dict[tuple[object, ...], bytes] = {}

    async def messages(self, viewer: Viewer, seen: str, job: str) -> AsyncGenerator[bytes, None]:
        """Yield messages, the first immediately. `seen` is the last ID that the browser has received; `job` may be "".

        Raises ReviewFailedError and UnauthenticatedError.
        """
        board, clock = self._board, asyncio.get_running_loop()
        visibility = await viewer.visibility(board.places)
        number = self._number(seen, visibility)
        shown: tuple[int, bool, bool] | tuple[()] | None = ()
        silent = True
        about = viewer.about
        parts = [b"event: viewer\ndata: %b\n\n" % msgspec.json.encode(about)] if about is not None else []
        while True:
            rounds = board.feed.rounds
            if clock.time() >= visibility.until or not (visibility.asked is None or board.places <= visibility.asked):
                before, visibility = visibility, await viewer.visibility(board.places, refused_s=STREAM_DENIED_TTL_S)
                number = number if visibility.shown == before.shown else 0
            if board.feed.number > number:
                parts.append(self._rows(number, visibility))
                number = board.feed.number
            if job:
                now = await self._job_now(job, viewer, visibility)
                if now != shown:
                    shown = now
                    view = board.view(job, pods=now[1], events=now[2]) if now is not None else None
                    parts.append(b"event: job\ndata: %b\n\n" % (view or b"null"))
            parts = [part for part in parts if part]
            if silent and not parts:  # otherwise only other viewers got something
                parts.append(b"event: beat\ndata:\n\n")
            for part in parts:  # separately: joining them would copy a long list for each browser
                yield part
            parts = []
            silent = True
            with suppress(TimeoutError):
                async with asyncio.timeout(min(HEARTBEAT_S, visibility.until - clock.time())):
                    await board.feed.wait(rounds)
                    silent = False

    def _number(self, seen: str, visibility: Visibility) -> int:
        """Return the last number that a browser has seen with its current permissions; 0 if it has seen none."""
        life, _, number = seen.partition("-")
        known = life == self._instance + mark_of(visibility) and number.isdecimal() and len(number) < 16
        return int(number) if known and int(number) <= self._board.feed.number else 0

    async def _job_now(self, job: str, viewer: Viewer, visibility: Visibility) -> tuple[int, bool, bool] | None:
        """Return the version of a job's view and whether pods and events are visible; None if the job is not visible."""
        if not visibility.shows_job(job):
            return None
        attributes = ResourceAttributes("list", EVENTS, job.partition("/")[0])
        events = await viewer.may(attributes, refused_s=STREAM_DENIED_TTL_S)
        return self._board.version(job), visibility.shows_pods(job), events

    def _rows(self, since: int, visibility: Visibility) -> bytes:
        """Return a message, or b"" if it has nothing for this viewer. Browsers with equal state and permissions share it."""
        update = self._board.feed.since(since)
        key = since, update.number, visibility.shown
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = message_of(update, self._instance, visibility)
            while len(self._made) > MAX_SHARED:
                del self._made[next(iter(self._made))]
        return made


def mark_of(visibility: Visibility) -> str:
    """Return a mark that changes with the permissions: a browser that lost a permission gets everything again."""
    if visibility.shown == EVERYTHING.shown:
        return ""
    text = repr([sorted(each) if each is not None else None for each in visibility.shown])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def message_of(update: Update[Row], life: str, visibility: Visibility = EVERYTHING) -> bytes:
    """Return an update as a server-sent event with its ID, limited to what the viewer may see; b"" if nothing is left."""
    changed = [(key, row) for key, row in update.changed if key == STATE or visibility.shows_job(key)]
    if not changed and not update.full:
        return b""
    rows = b",".join(
        row.whole if visibility.shows_pods(key) else row.bare
        for key, row in changed
        if row is not None and key != STATE
    )
    gone = b",".join(b'"%b"' % key.encode() for key, row in changed if row is None)
    state = next((row.whole for key, row in changed if key == STATE and row is not None), b"null")
    full = b"true" if update.full else b"false"
    data = b'{"full":%b,"state":%b,"rows":[%b],"gone":[%b]}' % (full, state, rows, gone)
    return b"id: %b%b-%d\nevent: rows\ndata: %b\n\n" % (
        life.encode(),
        mark_of(visibility).encode(),
        update.number,
        data,
    )
