"""Retries a write until it succeeds, cannot succeed, or the recorder stops; counts dropped events."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from tfjob_operator.api.client import errors
from tfjob_operator.api.core import EventType, ObjectReference
from tfjob_operator.workqueue.metrics import Metric, MetricsProvider

EVENT_TYPES: Final = frozenset(EventType)
UNKNOWN: Final = "Unknown"
"""The metric's label for events of any other type."""
LABELLED_TYPES: Final = (*EventType, UNKNOWN)
log = structlog.get_logger(__name__)


class Drop(enum.StrEnum):
    """Why an event was not written; the values of the metric's label."""

    INVALID = "invalid"  # neither Normal nor Warning
    OVERFLOW = "overflow"  # the buffer was full
    SPAM = "spam"  # rate-limited per object; the count is part of the next write
    REFUSED = "refused"  # the API server rejected it
    UNREACHABLE = "unreachable"  # twelve attempts without a valid response
    SHUTDOWN = "shutdown"  # recorded after `stop`, or queued when `run` was cancelled
    CRASHED = "crashed"  # a bug in this process


DROPPED: Final = Metric("events_dropped_total", "Events that were not written", labels=("type", "why"), prefixed=True)


class Drops:
    """Counts and logs dropped events."""

    def __init__(self, metrics: MetricsProvider) -> None:
        """Create the series of all types and reasons."""
        self._dropped = {(kind, why): metrics.counter(DROPPED, kind, why) for kind in LABELLED_TYPES for why in Drop}

    def drop(
        self,
        event_type: str,
        regarding: ObjectReference,
        *,
        reason: str,
        message: str,
        why: Drop,
        error: Exception | None = None,
    ) -> None:
        """Count a dropped event."""
        self._dropped[event_type if event_type in EVENT_TYPES else UNKNOWN, why].inc()
        # A Normal event was logged when it was recorded; a missing Warning must be visible in the log.
        write = log.debug if event_type == EventType.NORMAL else log.warning
        write(
            "event_dropped",
            why=why.value,
            error=str(error) if error else None,
            regarding=f"{regarding.namespace}/{regarding.name}",
            reason=reason,
            message=message,
        )


MAX_TRIES: Final = 12
RETRY_S: Final = 10.0
"""Twelve attempts ten seconds apart outlast a restart of the API server."""
RETRIABLE: Final = (errors.TransportError, errors.DecodeError, errors.NoStatusError)
"""Errors that do not concern the event itself: no response, or one from a proxy."""


class DeliveryFailure(NamedTuple):
    """Why a write was abandoned."""

    why: Drop
    error: Exception


class Delivery:
    """Delivers the writes of one recorder. `delay` returns the seconds to wait after attempt 1, 2, ..."""

    def __init__(self, delay: Callable[[int], float]) -> None:
        self._delay = delay
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Do not retry from now on, and end all waits."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """True once `stop` was called."""
        return self._stopping.is_set()

    async def deliver(self, write: Callable[[], Awaitable[None]], *, reason: str) -> DeliveryFailure | None:
        """Call `write`, retrying `RETRIABLE` errors; return why it was abandoned, or None. `reason` is for the log."""
        try:
            try:
                await write()
            except RETRIABLE:
                if self.stopping:
                    raise
                await self.pause(self._delay(1))
                await self._repeat(write)
        except RETRIABLE as error:
            return DeliveryFailure(Drop.UNREACHABLE, error)
        except (errors.AlreadyExistsError, errors.NamespaceTerminatingError):
            pass  # written by an attempt whose response was lost, or no longer needed
        except errors.StatusError as error:
            return DeliveryFailure(Drop.REFUSED, error)
        except errors.ApiError as error:
            return DeliveryFailure(Drop.UNREACHABLE, error)
        except Exception as error:  # one failing event must not affect others
            log.exception("event_write_crashed", reason=reason)
            return DeliveryFailure(Drop.CRASHED, error)
        return None

    async def _repeat(self, write: Callable[[], Awaitable[None]]) -> None:
        """Make attempts 2 to `MAX_TRIES`. Raises the last error."""
        import tenacity  # 1 MB, not needed while the first attempt succeeds

        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(RETRIABLE),
            stop=lambda state: self.stopping or state.attempt_number + 1 >= MAX_TRIES,
            wait=lambda state: self._delay(state.attempt_number + 1),
            sleep=self.pause,
            reraise=True,
        )

        async def attempt() -> None:  # tenacity awaits only coroutine functions
            await write()

        await attempts(attempt)

    async def pause(self, seconds: float) -> None:
        """Sleep, at most until `stop`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
