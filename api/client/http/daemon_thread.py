"""Blocking calls (files, credential plugins, name resolution) that delay neither the event loop nor the exit of the process.

When a loop shuts down, it waits for the threads of `asyncio.to_thread`, however long a file system, plugin or name server
hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def call_in_daemon_thread(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run `function` in a thread called `name`. Cancelling the future discards the result; the thread continues."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def succeed(result: T) -> None:
        if not future.done():
            future.set_result(result)

    def fail(error: Exception) -> None:
        if not future.done():
            future.set_exception(error)

    def run() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nothing awaits the result
            try:
                result = function()
            except Exception as error:  # noqa: BLE001 - the top of a thread: it is raised where the future is awaited
                loop.call_soon_threadsafe(fail, error)
            else:
                loop.call_soon_threadsafe(succeed, result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
