"""Waiting until a cache, or a handler's view of it, is complete."""

from __future__ import annotations

import asyncio

from tfjob_operator.informers.errors import InformerStoppedError


class SyncGate:
    """Closed until something is synced; then open for ever. Giving up wakes those who wait with an error (SI-08).

    Invariant: once opened it stays open, whatever is called later.
    """

    __slots__ = ("_open", "_settled", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._open = False
        self._settled = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether it is synced."""
        return self._open

    def open(self) -> None:
        """Mark as synced from now on."""
        self._open = True
        self._settled.set()

    def give_up(self) -> None:
        """Mark as never to be synced, unless it is already."""
        self._settled.set()

    async def wait(self) -> None:
        """Return when it is synced. Raises InformerStoppedError when that cannot happen any more."""
        await self._settled.wait()
        if not self._open:
            raise InformerStoppedError(f"{self._what} stopped before it was synced")
