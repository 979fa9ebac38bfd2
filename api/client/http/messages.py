"""`Request`, `Response`, and the protocol `Transport` between them, which has one method.

Everything above HTTP sends a `Request` and reads a `Response`; tests put a model server behind the same method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


JSON: Final = "application/json"
"""The content type of requests and responses unless another is given."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    `total_s` limits the whole exchange, from the wait for a free connection to the last byte of the response. With `idle_s`
    the response is a stream, which has no end: then `total_s` limits the time until its head, and `idle_s` each silence
    after that. Neither is ever infinite, so no exchange can hang. With `gzip` the response may be compressed.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    total_s: float = 40.0
    idle_s: float | None = None
    accept: str = JSON
    gzip: bool = False

    @property
    def stream(self) -> bool:
        """Whether the response is a stream."""
        return self.idle_s is not None

    def target(self) -> str:
        """Return the path with the query, encoded."""
        return f"{self.path}?{_encoded(tuple(self.query.items()))}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Return an encoded query. All writes of a client have the same one, and encoding it costs as much as a header."""
    return urlencode(query)


class Response(Protocol):
    """A response whose head has arrived. Must be closed, whatever happens."""

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


OnLeave: TypeAlias = Callable[[Request], Request]
"""Called with a request when its bytes are about to be sent; returns the request to send in its place."""


def unchanged(request: Request) -> Request:
    """Return the request: the `OnLeave` of those who have nothing to add."""
    return request


class Transport(Protocol):
    """One server, reached by HTTP."""

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """Send a request and wait for the head of the response, whatever its status. Raises TransportError.

        `on_leave` is called after the waits for credentials and a connection. What it raises is raised, and nothing is
        sent. Cancelling closes the connection in use at once.
        """
        ...
