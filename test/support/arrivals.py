"""Bodies that arrive in pieces, and how often the loop runs in between."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


async def arriving(chunks: Iterable[bytes | Exception]) -> AsyncIterator[bytes]:
    """Yield the chunks of a body; raise an error among them at its place."""
    for chunk in chunks:
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk


def chunked(body: bytes, cuts: Iterable[int]) -> list[bytes]:
    """Return the body, cut at these positions."""
    places = sorted({cut % (len(body) + 1) for cut in cuts} | {0, len(body)})
    return [body[begin:end] for begin, end in pairwise(places)]


async def turns_during(work: Awaitable[T]) -> tuple[T, int]:
    """Return the result, and the number of turns of the loop until then."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    result = await work
    counting.cancel()
    await asyncio.wait([counting])
    return result, turns
