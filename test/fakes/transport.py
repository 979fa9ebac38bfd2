"""A `Transport` that responds from a script and records the requests. It has no sockets, so it works on virtual time.

    transport = FakeTransport(ConnectionLostError("reset"), FakeResponse(200, b"{}"))

Each request takes the next entry: a `FakeResponse`, or an error to raise. A request beyond the script fails the test.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Self

import msgspec

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
    """See the module. `requests` has all requests, `unclosed` the responses not yet closed."""

    def __init__(self, *script: FakeResponse | Exception) -> None:
        self.requests: list[Request] = []
        self.sent_at: list[float] = []
        self.unclosed = 0
        self._script = list(script)

    def then(self, *script: FakeResponse | Exception) -> None:
        """Continue with these after the current script."""
        self._script.extend(script)

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        self.requests.append(on_leave(request))
        self.sent_at.append(asyncio.get_running_loop().time())
        assert self._script, f"an unexpected request: {request}"
        step = self._script.pop(0)
        if isinstance(step, Exception):
            raise step
        await asyncio.sleep(step.after_s)
        self.unclosed += 1
        return _FakeResponse(self, step)


class SlowServer:
    """Takes a second per request, behind the operator's 32 connections; has every object except those in `missing`."""

    def __init__(self, *missing: str) -> None:
        self.missing = missing
        self.asked: list[str] = []
        self.waited_s: list[float] = []
        self.at_once = self.most_at_once = 0
        self._places = asyncio.Semaphore(32)

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        name, came = request.path.rpartition("/")[2], asyncio.get_running_loop().time()
        self.asked.append(name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        async with self._places:
            self.waited_s.append(asyncio.get_running_loop().time() - came)
            await asyncio.sleep(1.0)
        self.at_once -= 1
        found = FakeResponse(body=msgspec.json.encode({"metadata": {"uid": name, "resourceVersion": "2"}}))
        return await FakeTransport(refusal(404, "NotFound") if name in self.missing else found).send(request, on_leave)


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
