"""The errors of the cache. Errors of requests to the API server remain `api.client.errors.ApiError`.

InformerError
+-- InformerStoppedError        the informer has stopped
+-- InformerNotStartedError     a cache is read, or waited for, whose informer nobody has started
+-- CacheSyncTimeoutError       caches did not sync in time (also a TimeoutError)
+-- QueueClosedError            the event queue is closed and empty
+-- IndexerError                an unknown index, or a duplicate name (also a KeyError)
+-- SelectorError               an invalid selector (also a ValueError)
"""

from __future__ import annotations


class InformerError(Exception):
    """Base class."""


class InformerStoppedError(InformerError):
    """The informer has stopped."""


class InformerNotStartedError(InformerError):
    """A cache was read, or waited for, but nobody has started its informer."""


class CacheSyncTimeoutError(InformerError, TimeoutError):
    """Some caches did not sync within the timeout; `names` lists them."""

    def __init__(self, names: list[str], timeout_s: float) -> None:
        super().__init__(f"not synced after {timeout_s:g} s: {', '.join(names)}")
        self.names = names


class QueueClosedError(InformerError):
    """The event queue is closed and empty."""


class IndexerError(InformerError, KeyError):
    """The index is unknown, or its name is already in use."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would return the repr


class SelectorError(InformerError, ValueError):
    """The selector's syntax is invalid."""
