"""A `Transport` that responds from a script and records the requests. It has no sockets, so it works on virtual time.

    transport = FakeTransport(ConnectionLostError("reset"), FakeResponse(200, b"{}"))

Each request takes the next entry: a `FakeResponse`, or an error to raise. By default a request beyond the script fails
the test.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import msgspec

from tfjob_operator.api.client.errors import ConnectError
from tfjob_operator.api.client.http import OnLeave, Request, Response, unchanged


@dataclass(frozen=True)
class FakeResponse:
    """A response of the server, `after_s` seconds after the request.

    `body` is bytes, or the parts of a stream: bytes are received, a number waits that many seconds, an error breaks the stream.
    The stream ends after its last part.
    """

    status: int = 200
    body: bytes | tuple[bytes | float | Exception, ...] = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    after_s: float = 0.0


def refusal(
    code: int, reason: str = "", *, retry_after: str | None = None, message: str = "", **details: object
) -> FakeResponse:
    """Return a failure with a Status body, like an API server's; `retry_after` is the header."""
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    if details:
        status["details"] = details
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return FakeResponse(code, msgspec.json.encode(status), headers)


class FakeTransport:
    """See the module. After the script, requests get the response `then_always`, if given, which may depend on the request.

    A request waits for one of `connections`, and then `line_s` seconds, before it is sent. `requests` has those that were sent,
    `seen` when each began and ended, `waited_s` their waits for a connection, `unclosed` the responses not yet closed.
    """

    def __init__(
        self,
        *script: FakeResponse | Exception,
        then_always: FakeResponse | Callable[[Request], FakeResponse] | None = None,
        connections: int = sys.maxsize,
        line_s: float = 0.0,
    ) -> None:
        self.then_always = then_always
        self.line_s = line_s
        self.requests: list[Request] = []
        self.seen: list[tuple[float, str]] = []
        self.waited_s: list[float] = []
        self.unclosed = 0
        self.at_once = self.most_at_once = 0
        self.places = asyncio.Semaphore(connections)
        self._script = list(script)

    def then(self, *script: FakeResponse | Exception) -> None:
        """Continue with these after the current script."""
        self._script.extend(script)

    @property
    def sent_at(self) -> list[float]:
        return [at for at, what in self.seen if what == "begun"]

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        came = asyncio.get_running_loop().time()
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            async with self.places:
                self.waited_s.append(asyncio.get_running_loop().time() - came)
                if self.line_s:
                    await asyncio.sleep(self.line_s)
                return await self._answer(request, on_leave)
        finally:
            self.at_once -= 1

    async def _answer(self, request: Request, on_leave: OnLeave) -> Response:
        step = self._next(request)
        # Without a connection nothing leaves.
        self.requests.append(request if isinstance(step, ConnectError) else on_leave(request))
        self._note("begun")
        if isinstance(step, Exception):
            raise step
        try:
            await asyncio.sleep(step.after_s)
        except asyncio.CancelledError:
            self._note("cut off")
            raise
        self._note("done")
        self.unclosed += 1
        return _FakeResponse(self, step)

    def _next(self, request: Request) -> FakeResponse | Exception:
        if not self._script and self.then_always is not None:
            return self.then_always(request) if callable(self.then_always) else self.then_always
        assert self._script, f"an unexpected request: {request}"
        return self._script.pop(0)

    def _note(self, what: str) -> None:
        self.seen.append((asyncio.get_running_loop().time(), what))


def slow_server(*missing: str) -> FakeTransport:
    """Return a server that takes a second per request, behind the operator's 32 connections.

    It has every object except those in `missing`.
    """

    def answer(request: Request) -> FakeResponse:
        name = request.path.rpartition("/")[2]
        body = msgspec.json.encode({"metadata": {"uid": name, "resourceVersion": "2"}})
        return replace(refusal(404, "NotFound") if name in missing else FakeResponse(body=body), after_s=1.0)

    return FakeTransport(then_always=answer, connections=32)


class _FakeResponse:
    def __init__(self, transport: FakeTransport, answer: FakeResponse) -> None:
        self.status = answer.status
        self.headers = {"Content-Type": "application/json", **answer.headers}
        self._transport = transport
        self._pieces = [answer.body] if isinstance(answer.body, bytes) else [*answer.body]
        self._closed = False

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while self._pieces:
            piece = self._pieces.pop(0)
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, bytes):
                return piece
            await asyncio.sleep(piece)
        raise StopAsyncIteration

    def close(self) -> None:
        self._transport.unclosed -= not self._closed
        self._closed = True
