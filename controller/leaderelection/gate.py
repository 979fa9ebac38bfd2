"""A gate before a transport, through which no new write passes once the work is to end.

A lease can be given back only when no write of ours can take effect any more. A write that is cut off may take effect for
as long as the API server works on it. So writes under way are awaited, which takes milliseconds, and whoever would begin
another one waits until its task is cancelled: an error instead would be reported about jobs that have no fault.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tfjob_operator.api.client.http import OnLeave, unchanged
from tfjob_operator.controller.leaderelection.fence import READS

if TYPE_CHECKING:
    from tfjob_operator.api.client import Request, Response, Transport


class GatedTransport:
    """A `Transport` whose writes pass a gate; reads and watches always pass.

    Invariants: no write begins once `drain` was called; when `drain` has returned no write is under way, and the callers
    have handled their responses as far as that needs no further wait.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._under_way = 0
        self._draining = False
        self._empty = asyncio.Event()

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """See `Transport.send`. A write that comes after `drain` waits for ever."""
        if request.method in READS:
            return await self._transport.send(request, on_leave)
        if self._draining:
            await asyncio.get_running_loop().create_future()
        self._under_way += 1
        try:
            return await self._transport.send(request, on_leave)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._empty.set()

    async def drain(self) -> None:
        """Let no write begin any more, and wait for those that are under way."""
        self._draining = True
        while self._under_way:
            self._empty.clear()
            await self._empty.wait()
