"""Many calls at once, all over when a function returns or raises. Neither retries, paces or limits by time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice


async def slow_start_batch(
    count: int, call: Callable[[int], Awaitable[object]], initial: int = 1, *, at_once: int
) -> tuple[int, BaseException | None]:
    """Make up to `count` calls in batches of `initial`, then twice as many, and so on, until a batch has a failure (SB-01).

    `call` gets the numbers 0, 1, 2, ...; the calls of one batch run at once, and a failure stops none of them. Returns how
    many succeeded and the first error in time, or None. The calls after a failed batch are not made: if every pod is
    going to be refused for the same reason, the API server hears of it once (`initial` = 1) and not `count` times.

    No more than `at_once` calls run at a time, so that others get connections too. When a batch would be larger, all that is
    left is one, in which the next call begins when one has ended; after a failure there none is begun.

    A call that ends as cancelled by itself counts as failed. Cancelling the caller cancels the batch and waits for it.
    """
    if initial < 1 or at_once < 1:
        raise ValueError(f"a batch has at least one call, not {min(initial, at_once)}")
    succeeded = 0
    errors: list[BaseException] = []

    async def attempt(index: int) -> None:
        nonlocal succeeded
        try:
            await call(index)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - returned; a cancelled caller's group knows
            errors.append(error)
        else:
            succeeded += 1

    begun = 0
    size = initial
    while begun < count and not errors:
        end = min(begun + size, count) if size < at_once else count
        batch = iter(range(begun, end))

        async def work(mine: int, batch: Iterator[int] = batch) -> None:
            await attempt(mine)
            while not errors and (following := next(batch, None)) is not None:
                await attempt(following)

        async with asyncio.TaskGroup() as group:
            for index in islice(batch, min(size, at_once)):
                group.create_task(work(index), name=f"slow-start-{index}")
        begun = end
        size *= 2
    return succeeded, errors[0] if errors else None


async def parallelize_until(workers: int, pieces: int, do_piece: Callable[[int], Awaitable[object]]) -> None:
    """Do the pieces 0 .. `pieces` - 1 with up to `workers` of them in work at a time (PL-01).

    Pieces are begun in order. Cancelling the caller cancels those in work, begins no other, and waits until they ended.
    An exception out of a piece has the same effect and comes out in an ExceptionGroup, as from any task group.
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
