"""Stops a program when it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def stop_on_signals() -> asyncio.Event:
    """Return an event of the running loop that SIGTERM and SIGINT set; a second signal ends the process at once, with code 1.

    To be called in the main thread. As controller-runtime's `SetupSignalHandler`.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    told = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if told:
            os._exit(1)
        told = True
        loop.call_soon_threadsafe(stop.set)

    # Not the loop's own handlers, which run on the loop: the second signal is for when the loop hangs.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    return stop
