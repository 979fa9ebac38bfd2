"""The context of what belongs to no process: servers and wires go on while a simulated process is stalled."""

from contextvars import Context
from typing import Final

NETWORK: Final = Context()
"""Timers that are set with this context run whatever process set them (see `fakes.virtual_loop.PROCESS`)."""
