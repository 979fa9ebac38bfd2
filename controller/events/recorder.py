"""Writes core/v1 events, which `kubectl describe` shows, without ever making a sync wait.

`event` only puts into a bounded buffer (EV-01); the task in `run` correlates and talks to the API server. An event that will
not be written is counted, and logged if it is a Warning.
"""

from __future__ import annotations

import asyncio
import enum
import random
import re
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

import structlog
import tenacity

from api.client.errors import (
    AlreadyExistsError,
    ApiError,
    NamespaceTerminatingError,
    NotFoundError,
    StatusError,
    TransportError,
)
from api.client.rest import STRATEGIC_MERGE_PATCH
from api.core import EVENT_NORMAL, EVENT_WARNING, EVENTS, Event, EventMeta, EventSource, ObjectReference
from controller.events.buffer import EventBuffer
from controller.events.correlator import Action, Correlator

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.client import RestClient
    from workqueue.clock import Clock

BUFFER_SIZE: Final = 10_000
"""EV-01. client-go's number is 1,000, of which the events of a hundred jobs that come at once are too many: a job of five
replicas has eleven. As many as may wait here are written in half a minute, and take 5 MB."""
MAX_TRIES: Final = 12
RETRY_S: Final = 10.0
"""EV-08: twelve tries ten seconds apart outlast a restart of the API server."""

MAX_NAME: Final = 253
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""What the API server accepts as the name of an event (RFC 1123 subdomain)."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

log = structlog.get_logger(__name__)


class Drop(enum.StrEnum):
    """Why an event was not written; all values that the metric's label can have."""

    INVALID = "invalid"  # neither Normal nor Warning
    OVERFLOW = "overflow"  # the buffer was full
    SPAM = "spam"  # the object has told too much (EV-05); its count is kept for the next write
    REFUSED = "refused"  # the API server said no
    UNREACHABLE = "unreachable"  # the API server did not answer, twelve times
    SHUTDOWN = "shutdown"  # recorded after `stop`, or still waiting when `run` was cancelled
    CRASHED = "crashed"  # a bug of ours


class RecorderMetrics(Protocol):
    """Where lost events are counted."""

    def event_dropped(self, event_type: str, why: str) -> None:
        """An event of that type (Normal, Warning, Unknown) will not be written; `why` is one of `Drop`."""
        ...


class _NoMetrics:
    def event_dropped(self, event_type: str, why: str) -> None:
        """Count nothing."""


class EventRecorder:
    """Records events for one component.

    Invariants: each event is either written or counted as dropped, once; they are written in the order in which they were
    recorded, by `run` alone; `event` and `stop` may be called from anywhere on the loop, at any time.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        component: str,
        clock: Clock,
        host: str = "",
        metrics: RecorderMetrics | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Write as `component` on `host`. `chance` answers a float in [0, 1)."""
        self._client = client
        self._source = EventSource(component=component, host=host)
        self._clock = clock
        self._metrics = metrics or _NoMetrics()
        self._chance = chance
        self._correlator = Correlator(clock)
        self._buffer = EventBuffer(BUFFER_SIZE)
        self._stopping = asyncio.Event()
        self._last_nanoseconds = 0

    def event(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> None:
        """Record an event about `regarding`. Never blocks and never raises; after `stop` it is dropped."""
        event = self._make(regarding, event_type, reason, message)
        if event_type not in {EVENT_NORMAL, EVENT_WARNING}:
            self._drop(event, Drop.INVALID)
        elif (left_out := self._buffer.put(event)) is not None:
            self._drop(left_out, Drop.SHUTDOWN if self._stopping.is_set() else Drop.OVERFLOW)

    async def run(self) -> None:
        """Write events until `stop`, and what waits by then once (EV-09). Cancelling drops what waits."""
        try:
            while (event := await self._buffer.get()) is not None:
                await self._record(event)
        finally:
            self.stop()
            for event in self._buffer.drain():
                self._drop(event, Drop.SHUTDOWN)

    def stop(self) -> None:
        """Accept no more; `run` ends when it has tried what waits."""
        self._stopping.set()
        self._buffer.close()

    def _make(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> Event:
        now = self._clock.now()
        seconds = now.replace(microsecond=0)  # the API knows whole seconds here
        return Event(
            metadata=EventMeta(name=self._name(regarding, now), namespace=regarding.namespace or "default"),
            involved_object=regarding,
            reason=reason,
            message=message,
            type=event_type,
            count=1,
            source=self._source,
            first_timestamp=seconds,
            last_timestamp=seconds,
            reporting_component=self._source.component,
            reporting_instance=self._source.host,
        )

    def _name(self, regarding: ObjectReference, now: datetime) -> str:
        """EV-02: the object's name and the nanoseconds, which never repeat, however coarse the clock is."""
        nanoseconds = (now - _EPOCH) // timedelta(microseconds=1) * 1000
        self._last_nanoseconds = max(nanoseconds, self._last_nanoseconds + 1)
        name = f"{regarding.name}.{self._last_nanoseconds:x}"
        if len(name) <= MAX_NAME and _SUBDOMAIN.fullmatch(name):
            return name
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{regarding.uid} {name}"))

    async def _record(self, event: Event) -> None:
        action, event = self._correlator.correlate(event)
        if action is Action.SKIP:
            self._drop(event, Drop.SPAM)
            return
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TransportError),
            stop=lambda state: self._stopping.is_set() or state.attempt_number >= MAX_TRIES,
            wait=self._delay,
            sleep=self._sleep,
            reraise=True,
        )
        try:
            await attempts(self._write, action, event)
        except (AlreadyExistsError, NamespaceTerminatingError):
            pass  # written by an attempt whose answer was lost, or nobody is left to read it (EV-08)
        except StatusError as error:
            self._drop(event, Drop.REFUSED, error)
        except ApiError as error:
            self._drop(event, Drop.UNREACHABLE, error)
        except asyncio.CancelledError:
            self._drop(event, Drop.SHUTDOWN)
            raise
        except Exception as error:  # the top of this task: one event that can not be written must not cost all others
            log.exception("event_write_crashed", reason=event.reason)
            self._drop(event, Drop.CRASHED, error)

    async def _write(self, action: Action, event: Event) -> None:
        meta = event.metadata
        if action is Action.UPDATE:
            change = {"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message}
            with suppress(NotFoundError):  # an event lives for an hour (SV-10); then it is made anew, with its count
                await self._client.patch(EVENTS, meta.namespace, meta.name, change, content_type=STRATEGIC_MERGE_PATCH)
                return
        await self._client.create(EVENTS, meta.namespace, event)

    def _delay(self, state: tenacity.RetryCallState) -> float:
        """EV-08: the first wait is random, so that not all recorders come back to a new API server at once."""
        return RETRY_S * self._chance() if state.attempt_number == 1 else RETRY_S

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but no longer than until `stop`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _drop(self, event: Event, why: Drop, error: Exception | None = None) -> None:
        known = event.type in {EVENT_NORMAL, EVENT_WARNING}
        self._metrics.event_dropped(event.type if known else "Unknown", why)
        # A Normal event was logged by whoever recorded it; of a Warning it must be seen that it is not on the server.
        tell = log.debug if event.type == EVENT_NORMAL else log.warning
        tell(
            "event_dropped",
            why=why.value,
            error=str(error) if error else None,
            regarding=f"{event.involved_object.namespace}/{event.involved_object.name}",
            reason=event.reason,
            message=event.message,
        )
