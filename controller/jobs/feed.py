"""Puts keys of jobs into the work queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.meta import meta_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.api.meta import Object
    from tfjob_operator.workqueue import RateLimitingQueue


class Feed:
    """Queues keys, but only once the workers of this process run: before that nobody would take them out again (D6)."""

    def __init__(self, queue: RateLimitingQueue[str]) -> None:
        self._queue = queue
        self._open = False

    def open(self, jobs: Iterable[Object]) -> None:
        """Queue keys from now on. Queue the jobs of the cache now, with low priority: behind those that change (PQ-04)."""
        if not self._open:
            self._open = True
            for job in jobs:
                self._queue.add(meta_key(job.metadata), low_priority=True)

    def add(self, key: str, *, low_priority: bool = False) -> None:
        """Queue a key, if `open` was called."""
        if self._open:
            self._queue.add(key, low_priority=low_priority)

    def after(self, key: str, *waits_s: float | None) -> None:
        """Queue a key after the shortest of these waits, in seconds; None is left out."""
        for wait_s in waits_s:
            if wait_s is not None:
                self._queue.add_after(key, wait_s)

    @property
    def is_busy(self) -> bool:
        """Whether jobs wait in the queue."""
        return len(self._queue) > 0
