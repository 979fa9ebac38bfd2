"""A transport for benchmarks without a network: it plays the bytes of a recorded watch."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from tfjob_operator.api.client import Request, Response
from tfjob_operator.api.client.http import OnLeave, unchanged

EMPTY_LIST: Final = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'


class Player:
    """A transport for which lists are empty; a watch waits for `play`, then sends the chunks."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks
        self._playing = asyncio.Event()
        self._ended = asyncio.Event()

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """See `Transport.send`."""
        return _Played(self._watch() if "watch" in request.query else _empty())

    async def play(self, *, until: Callable[[], bool]) -> float:
        """Send the chunks, one per event loop iteration, as sockets do; return the CPU seconds used until `until` is true."""
        began = time.thread_time()
        self._playing.set()
        await self._ended.wait()
        while not until():  # noqa: ASYNC110 - a store wakes nobody who waits for its version
            await asyncio.sleep(0)
        return time.thread_time() - began

    async def _watch(self) -> AsyncIterator[bytes]:
        await self._playing.wait()
        for chunk in self._chunks:
            yield chunk
            await asyncio.sleep(0)
        self._ended.set()
        await asyncio.Event().wait()  # a watch stays open until its reader closes it


async def _empty() -> AsyncIterator[bytes]:
    yield EMPTY_LIST


class _Played:
    status = 200

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.headers: Mapping[str, str] = {"Content-Type": "application/json"}
        self._chunks = chunks

    async def body(self) -> bytes:
        return EMPTY_LIST

    def chunks(self) -> AsyncIterator[bytes]:
        return self._chunks

    def close(self) -> None:
        """Nothing is open."""
