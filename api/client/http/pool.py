"""The connections to one server: idle ones are reused, their number is limited, and further requests wait in line."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tfjob_operator.api.client.http.errors import ConnectError, ConnectionLostError, RequestTimeoutError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from tfjob_operator.api.client.http.connection import Connection


class Pool:
    """Lends out connections.

    The connection that was used last is reused first (LIFO), so that surplus ones become idle and close. Waiting requests
    are served first come, first served.

    Invariants: at most `max_connections` connections are lent out or being made; waiters are served in order; all idle
    connections have the newest `SSLContext`, so none has an old client certificate.
    """

    def __init__(
        self,
        dial: Callable[[ssl.SSLContext | None], Awaitable[Connection]],
        *,
        max_connections: int = 0,
        pool_s: float,
    ) -> None:
        """`dial` makes a connection. `max_connections` 0 is no limit; a place and a connection come within `pool_s` seconds."""
        self._dial = dial
        self._max_connections = max_connections or float("inf")
        self._pool_s = pool_s
        self._taken = 0
        self._idle: list[Connection] = []
        self._line: deque[asyncio.Future[None]] = deque()
        self._open: set[Connection] = set()
        self._limits: set[asyncio.Timeout] = set()
        self._is_closed = False
        self._all_closed: asyncio.Future[None] | None = None

    def take(self, context: ssl.SSLContext | None) -> Connection | None:
        """Lend out an idle connection that was made with `context`, if there is one and nobody waits in line."""
        if self._taken >= self._max_connections:
            return None
        connection = self._pop(context)
        if connection is not None:
            self._taken += 1
        return connection

    async def acquire(self, context: ssl.SSLContext | None, until: float, *, fresh: bool = False) -> Connection:
        """Wait for a place and lend out a connection; a new one if `fresh`.

        Raises RequestTimeoutError when the loop's clock shows `until`, ConnectError for any other failure. Safe to cancel.
        """
        if self._is_closed:
            raise ConnectError("the transport was closed")
        now = asyncio.get_running_loop().time()
        limit = asyncio.timeout_at(min(until, now + self._pool_s))
        self._limits.add(limit)
        try:
            async with limit:
                return await self._acquire(context, fresh=fresh)
        except TimeoutError:
            if self._is_closed:
                raise ConnectError("the transport was closed") from None
            if until < now + self._pool_s:
                raise RequestTimeoutError("no response in time") from None
            raise ConnectError("no connection in time") from None
        finally:
            self._limits.discard(limit)

    async def aclose(self) -> None:
        """Close all connections and end all waits. Whoever waits gets an error."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(loop.time())
        for connection in [*self._open]:
            connection.fail(ConnectionLostError("the transport was closed"))
        if self._open:
            self._all_closed = loop.create_future()
            await self._all_closed

    # What a connection does

    def released(self, connection: Connection) -> None:
        """See `Owner.released`."""
        self._idle.append(connection)
        self._leave()

    def lost(self, connection: Connection) -> None:
        """See `Owner.lost`."""
        if connection in self._idle:
            self._idle.remove(connection)
        else:
            self._leave()

    def closed(self, connection: Connection) -> None:
        """See `Owner.closed`."""
        self._open.discard(connection)
        if self._all_closed is not None and not self._open and not self._all_closed.done():
            self._all_closed.set_result(None)

    # The rest

    async def _acquire(self, context: ssl.SSLContext | None, *, fresh: bool) -> Connection:
        await self._enter()
        try:
            connection = None if fresh else self._pop(context)
            return connection or await self._make(context)
        except BaseException:
            self._leave()
            raise

    async def _make(self, context: ssl.SSLContext | None) -> Connection:
        connection = await self._dial(context)
        if connection.gone:
            raise ConnectError("the server closed the connection")
        if self._is_closed:
            connection.abort()
            raise ConnectError("the transport was closed")
        connection.owner = self
        self._open.add(connection)
        return connection

    def _pop(self, context: ssl.SSLContext | None) -> Connection | None:
        while self._idle:
            connection = self._idle[-1]
            if connection.context is context:
                return self._idle.pop()
            connection.abort()  # it proves what we no longer are; leaves the list by `lost`
        return None

    async def _enter(self) -> None:
        """Wait for one of `max_connections`, in order."""
        if self._taken < self._max_connections:
            self._taken += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self._leave()  # it was given to us in the same turn
            raise

    def _leave(self) -> None:
        """Pass the place on to the first waiter, else free it."""
        while self._line:
            place = self._line.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._taken -= 1
