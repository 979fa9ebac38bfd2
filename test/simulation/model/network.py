"""The context of servers and networks, which continue while a simulated process is stalled."""

from contextvars import Context
from typing import Final

NETWORK: Final = Context()
"""Timers that are set with this context run whatever process set them (see `fakes.virtual_loop.PROCESS`)."""
