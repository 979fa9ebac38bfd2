"""Run many calls concurrently and wait for all of them. No retries, pacing or timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice


async def slow_start_batch(
    count: int, call: Callable[[int], Awaitable[object]], initial: int = 1, *, at_once: int
) -> tuple[int, BaseException | None]:
    """Make up to `count` calls in batches that double in size, starting at `initial`, until a call fails.

    `call` receives the numbers 0, 1, 2, ... The calls of a batch run concurrently, and a failure does not stop the others.
    Returns the number of successful calls and the first error, or None. No further batch is started after a failure: if every
    pod is going to be rejected for the same reason, the API server receives one request (`initial` = 1) and not `count`.

    At most `at_once` calls run concurrently, which leaves connections for other callers. Once the batch size is `at_once` or
    more, all remaining calls form one batch: whenever a call finishes, the next one starts. After a failure no further call is
    started.

    A call that raises CancelledError on its own counts as failed. Cancelling the caller cancels the batch and waits for it.
    """
    if initial < 1 or at_once < 1:
        raise ValueError(f"a batch needs at least one call, got {min(initial, at_once)}")
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

    started = 0
    size = initial
    while started < count and not errors:
        end = min(started + size, count) if size < at_once else count
        batch = iter(range(started, end))

        async def work(mine: int, batch: Iterator[int] = batch) -> None:
            await attempt(mine)
            while not errors and (following := next(batch, None)) is not None:
                await attempt(following)

        async with asyncio.TaskGroup() as group:
            for index in islice(batch, min(size, at_once)):
                group.create_task(work(index), name=f"slow-start-{index}")
        started = end
        size *= 2
    return succeeded, errors[0] if errors else None


async def parallelize_until(workers: int, pieces: int, do_piece: Callable[[int], Awaitable[object]]) -> None:
    """Process the pieces 0 .. `pieces` - 1 with up to `workers` of them in progress at a time.

    Pieces are started in order. Cancelling the caller cancels the pieces in progress, starts no others, and waits for all to
    end. An exception from a piece has the same effect and is raised in an ExceptionGroup, as in any task group.
    """
    if workers < 1:
        raise ValueError(f"parallelize_until needs at least one worker, got {workers}")
    todo = iter(range(pieces))

    async def work() -> None:
        for piece in todo:
            await do_piece(piece)

    async with asyncio.TaskGroup() as group:
        for number in range(min(workers, pieces)):
            group.create_task(work(), name=f"parallelize-{number}")
