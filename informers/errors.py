"""The errors of the cache. What goes wrong between us and the API server stays an `api.client.errors.ApiError`.

InformerError
+-- InformerStoppedError        the informer has ended, so what was asked for can never happen
+-- CacheSyncTimeoutError       caches were not filled in time (also a TimeoutError)
+-- QueueClosedError            the event queue is closed and empty
+-- IndexerError                an unknown index, or a name that is taken (also a KeyError)
+-- SelectorError               a selector that cannot be read (also a ValueError)
"""

from __future__ import annotations


class InformerError(Exception):
    """Base of the tree."""


class InformerStoppedError(InformerError):
    """The informer has ended."""


class CacheSyncTimeoutError(InformerError, TimeoutError):
    """Some caches were not filled within the time allowed. `names` says which."""

    def __init__(self, names: list[str], timeout_s: float) -> None:
        super().__init__(f"not synced after {timeout_s:g} s: {', '.join(names)}")
        self.names = names


class QueueClosedError(InformerError):
    """The event queue is closed, and everything in it was handed out."""


class IndexerError(InformerError, KeyError):
    """An index is unknown, or its name is taken."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr


class SelectorError(InformerError, ValueError):
    """A selector does not follow the grammar."""
