"""Bodies that arrive in pieces, and how often the loop runs in between."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


async def arriving(chunks: Iterable[bytes | Exception]) -> AsyncIterator[bytes]:
    """The chunks of a body; an error among them is raised there."""
    for chunk in chunks:
        if isinstance(chunk, Exception):
            raise chunk
        yield chunk


def chunked(body: bytes, cuts: Iterable[int]) -> list[bytes]:
    """The body, cut at these places."""
    places = sorted({cut % (len(body) + 1) for cut in cuts} | {0, len(body)})
    return [body[begin:end] for begin, end in pairwise(places)]


async def turns_during(work: Awaitable[T]) -> tuple[T, int]:
    """What this results in, and how often the loop ran while it was worked on."""
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
