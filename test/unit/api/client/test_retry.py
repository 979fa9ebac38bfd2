"""retry_on_conflict: read, change, write, and start over when somebody was faster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    NotFoundError,
    Status,
    StatusError,
)
from tfjob_operator.api.client.retry import BUSY_WRITER, FEW_WRITERS, Attempts, retry_on_conflict


def error(kind: type[StatusError], text: str = "") -> StatusError:
    return kind(Status(kind="Status", code=409, message=text))


def writer(*outcomes: ApiError | str) -> tuple[Callable[[], Awaitable[str]], list[float]]:
    """A write with these outcomes, and the times at which it was called."""
    calls: list[float] = []

    async def write() -> str:
        outcome = outcomes[len(calls)]
        calls.append(asyncio.get_running_loop().time())
        if isinstance(outcome, ApiError):
            raise outcome
        return outcome

    return write, calls


async def test_a_write_that_meets_no_conflict_happens_once() -> None:
    """WR-01, util_test.go:TestRetryOnConflict."""
    write, calls = writer("done")
    assert await retry_on_conflict(write) == "done"
    assert len(calls) == 1


async def test_conflicts_are_retried_until_the_write_succeeds() -> None:
    """WR-01, util_test.go:TestRetryOnConflict."""
    write, calls = writer(error(ConflictError), error(ConflictError), "done")
    assert await retry_on_conflict(write) == "done"
    assert len(calls) == 3


@pytest.mark.parametrize(("attempts", "count"), [(FEW_WRITERS, 5), (BUSY_WRITER, 4)])
async def test_the_last_conflict_is_raised_when_all_attempts_are_used(attempts: Attempts, count: int) -> None:
    """WR-01: after 5 or 4 tries the last error is raised, not the first and not a timeout."""
    write, calls = writer(*(error(ConflictError, f"number {number}") for number in range(1, 10)))
    with pytest.raises(ConflictError, match=f"number {count}"):
        await retry_on_conflict(write, attempts)
    assert len(calls) == count


@pytest.mark.parametrize("kind", [NotFoundError, AlreadyExistsError])
async def test_another_error_is_raised_at_once(kind: type[StatusError]) -> None:
    """WR-01, util_test.go:TestRetryOnConflict: a taken name is not a conflict, for reading again does not free it."""
    write, calls = writer(error(kind), "never reached")
    with pytest.raises(kind):
        await retry_on_conflict(write)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("attempts", "fraction", "delays"),
    [
        (FEW_WRITERS, 0.0, [0.01, 0.01, 0.01, 0.01]),
        (FEW_WRITERS, 0.5, [0.0105, 0.0105, 0.0105, 0.0105]),
        (BUSY_WRITER, 0.0, [0.01, 0.05, 0.25]),
        (BUSY_WRITER, 1.0, [0.011, 0.055, 0.275]),
    ],
)
async def test_the_delays_are_those_of_client_go(attempts: Attempts, fraction: float, delays: list[float]) -> None:
    """WR-01: 10 ms, factor 1 or 5, jitter 0.1 of the delay, which the factor does not accumulate."""
    write, calls = writer(*(error(ConflictError) for _ in range(9)))
    with pytest.raises(ConflictError):
        await retry_on_conflict(write, attempts, random=lambda: fraction)
    assert [later - earlier for earlier, later in pairwise(calls)] == pytest.approx(delays)
