"""Many calls at once, in a structured way: when a function here returns or raises, every call that it began is over.

Neither function retries, paces or limits by time; callers bring their own limiter and `asyncio.timeout`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def slow_start_batch(
    count: int, call: Callable[[int], Awaitable[object]], initial: int = 1
) -> tuple[int, BaseException | None]:
    """Make up to `count` calls in batches of `initial`, then twice as many, and so on, until a batch has a failure (SB-01).

    `call` gets the numbers 0, 1, 2, ...; the calls of one batch run at once, and a failure stops none of them. Returns how
    many succeeded and the first error in time, or None. The calls after a failed batch are not made: if every pod is
    going to be refused for the same reason, the API server hears of it once (`initial` = 1) and not `count` times.

    A call that ends as cancelled by itself counts as failed. Cancelling the caller cancels the batch and waits for it.
    """
    if initial < 1:
        raise ValueError(f"a batch has at least one call, not {initial}")
    succeeded = 0
    first_error: BaseException | None = None

    async def attempt(index: int) -> None:
        nonlocal succeeded, first_error
        try:
            await call(index)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - returned; a cancelled caller's group knows
            first_error = first_error or error
        else:
            succeeded += 1

    begun = 0
    size = initial
    while begun < count and first_error is None:
        end = min(begun + size, count)
        async with asyncio.TaskGroup() as group:
            for index in range(begun, end):
                group.create_task(attempt(index), name=f"slow-start-{index}")
        begun = end
        size *= 2
    return succeeded, first_error


async def parallelize_until(workers: int, pieces: int, do_piece: Callable[[int], Awaitable[object]]) -> None:
    """Do the pieces 0 .. `pieces` - 1 with up to `workers` of them in work at a time (PL-01).

    Pieces are begun in order. Cancelling the caller cancels those in work, begins no other, and waits until they ended.
    An exception out of a piece has the same effect and comes out in an ExceptionGroup, as from any task group.
    client-go hands out chunks to spare a channel send for every piece; taking the next number costs nothing here.
    """
    if workers < 1:
        raise ValueError(f"pieces need at least one worker, not {workers}")
    todo = iter(range(pieces))

    async def work() -> None:
        for piece in todo:
            await do_piece(piece)

    async with asyncio.TaskGroup() as group:
        for number in range(min(workers, pieces)):
            group.create_task(work(), name=f"parallelize-{number}")
