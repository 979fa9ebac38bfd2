"""Repeats a write until it is done, cannot succeed, or the recorder stops (EV-08); counts events that are dropped."""

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
    """Why an event was not written: all values of the metric's label."""

    INVALID = "invalid"  # neither Normal nor Warning
    OVERFLOW = "overflow"  # the buffer was full
    SPAM = "spam"  # too many events about the object (EV-05); the count is kept for the next write
    REFUSED = "refused"  # the API server refused it
    UNREACHABLE = "unreachable"  # twelve attempts without a usable response
    SHUTDOWN = "shutdown"  # recorded after `stop`, or still waiting when `run` was cancelled
    CRASHED = "crashed"  # a bug of ours


DROPPED: Final = Metric("tf_operator_events_dropped_total", "Events that were not written", labels=("type", "why"))


class Drops:
    """Counts and logs what is dropped."""

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
        """Count an event as dropped."""
        self._dropped[event_type if event_type in EVENT_TYPES else UNKNOWN, why].inc()
        # A Normal event was logged by whoever recorded it; of a Warning it must be seen that it is not on the server.
        tell = log.debug if event_type == EventType.NORMAL else log.warning
        tell(
            "event_dropped",
            why=why.value,
            error=str(error) if error else None,
            regarding=f"{regarding.namespace}/{regarding.name}",
            reason=reason,
            message=message,
        )


MAX_TRIES: Final = 12
RETRY_S: Final = 10.0
"""EV-08: twelve attempts ten seconds apart outlast a restart of the API server."""
NO_WORD: Final = (errors.TransportError, errors.DecodeError, errors.NoStatusError)
"""Errors that say nothing about the event itself: no response came, or one from a proxy."""


class Failure(NamedTuple):
    """Why a write was given up."""

    why: Drop
    error: Exception


class Delivery:
    """Writes for one recorder. `delay` returns the seconds to wait after attempt 1, 2, ..."""

    def __init__(self, delay: Callable[[int], float]) -> None:
        self._delay = delay
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Make no second attempts from now on, and end all waits."""
        self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    async def deliver(self, write: Callable[[], Awaitable[None]], *, reason: str) -> Failure | None:
        """Call `write`, again after errors of `NO_WORD`; return why it was given up, or None. `reason` is for the log."""
        try:
            try:
                await write()
            except NO_WORD:
                if self.stopping:
                    raise
                await self.pause(self._delay(1))
                await self._repeat(write)
        except NO_WORD as error:
            return Failure(Drop.UNREACHABLE, error)
        except (errors.AlreadyExistsError, errors.NamespaceTerminatingError):
            pass  # written by an attempt whose response was lost, or nobody is left to read it (EV-08)
        except errors.StatusError as error:
            return Failure(Drop.REFUSED, error)
        except errors.ApiError as error:
            return Failure(Drop.UNREACHABLE, error)
        except Exception as error:  # one event that cannot be written must not cost all others
            log.exception("event_write_crashed", reason=reason)
            return Failure(Drop.CRASHED, error)
        return None

    async def _repeat(self, write: Callable[[], Awaitable[None]]) -> None:
        """Make attempts 2 to `MAX_TRIES`. Raises what the last one raised."""
        import tenacity  # 1 MB, which an operator whose events are all written at once does not need

        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(NO_WORD),
            stop=lambda state: self.stopping or state.attempt_number + 1 >= MAX_TRIES,
            wait=lambda state: self._delay(state.attempt_number + 1),
            sleep=self.pause,
            reraise=True,
        )

        async def attempt() -> None:  # tenacity awaits only what it recognises as a coroutine function
            await write()

        await attempts(attempt)

    async def pause(self, seconds: float) -> None:
        """Sleep, but no longer than until `stop`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
