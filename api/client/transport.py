"""HTTP to one API server: the one-method `Transport` seam, and its implementation on sockets.

Everything above sends a `Request` and reads a `Response`; tests put a model server behind the same method. Every wait has a
limit, and cancelling the task that waits closes the connection at once. `dialer` makes connections, `pool` lends them out,
`http1` carries an exchange over one; socket failures become our errors where they are met.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, Self
from urllib.parse import urlencode

from tfjob_operator.api.client.dialer import Dialer
from tfjob_operator.api.client.errors import ConnectionLostError, TransportError
from tfjob_operator.api.client.origin import Origin
from tfjob_operator.api.client.pool import Pool
from tfjob_operator.api.client.request_bytes import RequestWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import TracebackType

    from tfjob_operator.api.client.config import Settings
    from tfjob_operator.api.client.credentials import Credentials
    from tfjob_operator.api.client.http1 import Connection

CONNECT_S: Final = 10.0
"""TCP and TLS together; client-go gives TLS alone 10 s (RF-29), and an API server within reach answers in milliseconds."""

POOL_S: Final = 20.0
"""The wait for a free connection, and making one, together. At the server's thousand writes a second a line this long is
twenty thousand requests, for which no pool is the right place."""

KEEP_ALIVE_S: Final = 45.0
"""How long an idle connection waits in the pool: less than the 60 s after which common load balancers forget it without a word.
Kept alive a pod costs us 0.3 ms and the server 1.0 ms; a TLS handshake before it costs several times that."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    `total_s` limits the whole exchange, from the wait for a free connection to the last byte of the answer. With `idle_s` the
    answer is a stream, which has no end: then `total_s` limits what comes before its head, and `idle_s` each silence after.
    Neither is ever infinite, so no exchange can hang. With `at_send` the request is not final: see `leaving`.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"
    total_s: float = 40.0
    idle_s: float | None = None
    at_send: Callable[[Request], Request] | None = None

    @property
    def stream(self) -> bool:
        """Whether the answer is a stream."""
        return self.idle_s is not None

    def leaving(self) -> Request:
        """What to send. A transport asks when the bytes are about to leave, after its waits for credentials and a connection.

        Raises what `at_send` raises: then nothing is to be sent.
        """
        return self if self.at_send is None else self.at_send(self)

    def target(self) -> str:
        """The path with the query, encoded."""
        return f"{self.path}?{_encoded(tuple(self.query.items()))}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """A query as it stands in a URL. All writes of a client have the same one, and encoding it costs as much as a header."""
    return urlencode(query)


class Response(Protocol):
    """An answer whose head has arrived. Must be closed, whatever happens."""

    @property
    def status(self) -> int:
        """The HTTP status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names are matched without regard to case."""
        ...

    async def body(self) -> bytes:
        """Read the whole body. Raises TransportError."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Read the body as it arrives, in pieces of any size. Raises TransportError when the stream breaks."""
        ...

    def close(self) -> None:
        """Give the connection back if the body was read to its end, else close it at once. Safe to call twice."""
        ...


class Transport(Protocol):
    """One server, reached by HTTP."""

    async def send(self, request: Request) -> Response:
        """Send a request and wait for the head of the answer, whatever its status. Raises TransportError.

        Cancelling it closes the connection in use at once.
        """
        ...


class HttpTransport:
    """A pool of connections to one server. Use as an async context manager; leaving it closes all connections.

    Watches and leases each get a transport of their own, so that they never queue behind creates. All of them may share one
    `Settings`. Redirects are not followed, and cookies not kept. Not safe to share between loops.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        max_connections: int = 32,
        user_agent: str = "tfjob-operator",
        connect_s: float = CONNECT_S,
        pool_s: float = POOL_S,
        keep_alive_s: float = KEEP_ALIVE_S,
    ) -> None:
        """`max_connections` 0 sets no limit, which suits watches: each holds one as long as it lives. 32 is twice what
        keeps an API server on two cores busy; each more costs both sides two milliseconds to open. The other numbers are
        seconds. Nothing is opened yet.

        Raises ValueError for an address that is none.
        """
        server = Origin.of(settings.server)
        proxy = Origin.of(settings.proxy) if settings.proxy else None
        self._credentials = settings.credentials
        self._writer = RequestWriter(server, proxy=proxy, user_agent=user_agent)
        self._dialer = Dialer(
            server,
            proxy=proxy,
            tls_server_name=settings.tls_server_name,
            user_agent=user_agent,
            connect_s=connect_s,
            keep_alive_s=keep_alive_s,
        )
        self._max_connections = max_connections
        self._pool_s = pool_s
        self._pool: Pool | None = None

    async def __aenter__(self) -> Self:
        self._pool = Pool(self._dialer.dial, max_connections=self._max_connections, pool_s=self._pool_s)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.aclose()

    async def send(self, request: Request) -> Response:
        """See `Transport.send`. An answer that is no stream has arrived whole by then, and its connection serves others.

        Raises RuntimeError when the transport is not open, and ValueError for a request that is none: one whose path, query or
        content type would end its line.
        """
        pool = self._pool
        if pool is None:
            raise RuntimeError("the transport is not open: use it as an async context manager")
        credentials = await self._credentials.get()
        data = b"" if request.at_send is not None else self._writer.write(request, credentials)
        until = asyncio.get_running_loop().time() + request.total_s
        context = credentials.ssl_context
        try:
            connection = pool.take(context) or await pool.acquire(context, until)
            if request.at_send is not None:
                data = self._write_late(request, credentials, connection)
            try:
                response = await connection.exchange(request, data, until)
            except ConnectionLostError:
                # WR-06: nothing but a GET goes out again unasked; whether it does harm only the caller knows.
                if request.method != "GET" or not connection.stale:
                    raise
                connection = await pool.acquire(context, until, fresh=True)
                response = await connection.exchange(request, data, until)
        except TransportError as error:
            raise error.about(request) from error.__cause__
        if response.status == 401:
            self._credentials.refused()
        return response

    def _write_late(self, request: Request, credentials: Credentials, connection: Connection) -> bytes:
        """Write a request for which a connection has been lent out already."""
        try:
            return self._writer.write(request.leaving(), credentials)
        except BaseException:
            connection.abort()
            raise
