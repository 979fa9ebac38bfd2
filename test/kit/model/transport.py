"""`api.client.Transport` to the model over a perfect network, without losses and delays."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Self

from kit.model.server import Answer, ModelServer
from kit.model.watches import Watch
from tfjob_operator.api.client.errors import ConnectionLostError, RequestTimeoutError, TransportError
from tfjob_operator.api.client.http import OnLeave, Request, Response, unchanged


class WholeResponse:
    """A `Response` with a complete body, or with half of it, after which reading raises `failure`."""

    def __init__(self, answer: Answer, failure: TransportError | None = None) -> None:
        self._answer = answer
        self._failure = failure

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._answer.headers

    async def body(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        return self._answer.body

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._failure is not None:
            yield self._answer.body[: len(self._answer.body) // 2]
        yield await self.body()

    def close(self) -> None:
        """Nothing to close."""


class StreamResponse:
    """A `Response` that arrives in pieces: the client's end of a watch, a `Sink`.

    Invariant: a reader gets all data received before the end of the stream, then the end.
    """

    def __init__(self, request: Request, watch: Watch, headers: Mapping[str, str]) -> None:
        self.status = 200
        self.headers = headers
        self._request = request
        self._watch = watch
        self._received: list[bytes] = []
        self._ended = False
        self._failure: TransportError | None = None
        self._wake: asyncio.Future[None] | None = None

    def send(self, data: bytes) -> None:
        self._received.append(data)
        self._notify()

    def end(self) -> None:
        self._ended = True
        self._notify()

    def lose(self) -> None:
        self.fail(ConnectionLostError("connection reset by peer", request=str(self._request)))

    def fail(self, failure: TransportError) -> None:
        self._failure = failure
        self.end()

    async def body(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    def chunks(self) -> AsyncIterator[bytes]:
        """Iterate over the data; a chunk is everything that arrived since the last one."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._received:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                raise StopAsyncIteration
            await self._wait()
        chunk = b"".join(self._received)
        self._received.clear()
        return chunk

    def close(self) -> None:
        self._watch.close()

    async def _wait(self) -> None:
        self._wake = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._request.idle_s):
                await self._wake
        except TimeoutError as error:
            raise RequestTimeoutError("timed out waiting for the response", request=str(self._request)) from error

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class ModelTransport:
    """A client's perfect connection to the model; `client` labels its writes."""

    def __init__(self, server: ModelServer, client: str = "") -> None:
        self._server = server
        self._client = client

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        await asyncio.sleep(0)
        answer = self._server.exchange(on_leave(request), self._client)
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        if answer.watch is None:
            return WholeResponse(answer)
        response = StreamResponse(request, answer.watch, answer.headers)
        self._server.opened(answer.watch)
        answer.watch.open(response, self._server.closed)
        return response
