"""How tests run: coroutine tests on virtual time, integration tests on a real loop, both checked for leaked tasks."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

import pytest

from fakes.virtual_loop import VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

REAL_TIME_LIMIT = 180.0  # seconds that one integration test may take; the slowest one here needs a third of it


class LeakedTaskError(AssertionError):
    """A test ended while tasks that it started were still alive."""


async def _checked(body: Coroutine[object, object, None], limit: float | None) -> None:
    async with asyncio.timeout(limit):
        await body
    leaked = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()]
    if leaked:
        names = ", ".join(sorted(task.get_name() for task in leaked))
        raise LeakedTaskError(f"tasks outlived the test: {names}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run a coroutine test to its end; every other test is left to pytest."""
    function: Callable[..., Coroutine[object, object, None]] = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(function).parameters}
    real = pyfuncitem.get_closest_marker("integration") is not None
    factory = asyncio.new_event_loop if real else VirtualTimeLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_checked(function(**arguments), REAL_TIME_LIMIT if real else None))
    return True
