"""Prints one line for each change of state that the API server shows, through the project's own informers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from tfjob_operator.api.meta import meta_key
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.informers import SharedIndexInformer, Tombstone, object_of

O = TypeVar("O", TFJob, Pod)  # noqa: E741 - an object


class Teller:
    """Prints lines with the seconds since the demo began, and wakes whoever waits for a change."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._changed = asyncio.Event()

    def say(self, text: str = "") -> None:
        """Print a line."""
        print(f"{time.monotonic() - self._began:6.1f}s  {text}" if text else "", flush=True)

    def tell(self, subject: str, state: str) -> None:
        """Print a change of state."""
        self.say(f"{subject:<34} {state}")
        self._changed.set()

    async def wait_until(self, done: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `done` returns true; it is called after each change. Return False when `limit_s` seconds have passed."""
        try:
            async with asyncio.timeout(limit_s):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True


class ToldHandler(Generic[O]):
    """Prints every object whose state differs from what was printed last."""

    def __init__(
        self, teller: Teller, kind: str, informer: SharedIndexInformer[O], state_of: Callable[[O], str]
    ) -> None:
        self._teller = teller
        self._kind = kind
        self._state_of: Callable[[O], str] = state_of
        self._told: dict[str, str] = {}
        informer.add_event_handler(self)

    def on_add(self, item: O, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Print a new object."""
        self._look(item)

    def on_update(self, _old: O, new: O, /) -> None:
        """Print a change that a person would notice."""
        self._look(new)

    def on_delete(self, gone: O | Tombstone[O], /) -> None:
        """Print that an object is deleted."""
        key = meta_key(object_of(gone).metadata)
        self._told.pop(key, None)
        self._teller.tell(f"{self._kind} {key}", "gone")

    def _look(self, item: O) -> None:
        key, state = meta_key(item.metadata), self._state_of(item)
        if state and self._told.get(key) != state:
            self._told[key] = state
            self._teller.tell(f"{self._kind} {key}", state)
