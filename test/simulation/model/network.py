"""The context of servers and networks, which continue while a simulated process is stalled."""

from contextvars import Context
from typing import Final

NETWORK: Final = Context()
"""Timers set in this context run regardless of the process that set them (see `fakes.virtual_loop.PROCESS`)."""
