"""Writes core/v1 events, which `kubectl describe` shows, without ever making a sync wait.

`event` only puts into a bounded queue; a task of the recorder's own talks to the API server. What does not fit is dropped, and
counted, so that it is never lost silently (EV-01).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import structlog
import tenacity

from api.client.errors import AlreadyExistsError, ApiError, NamespaceTerminatingError, StatusError, TransportError
from api.core import EVENTS, Event, EventMeta, EventSource, ObjectReference

if TYPE_CHECKING:
    from api.client import RestClient
    from workqueue.clock import Clock

QUEUE_SIZE: Final = 1000
"""EV-01: client-go's number; ten creates of one job make twenty events, so fifty jobs may burst at once."""
MAX_TRIES: Final = 12
RETRY_S: Final = 10.0
"""EV-08: twelve tries ten seconds apart outlast a restart of the API server."""

log = structlog.get_logger(__name__)


class RecorderMetrics(Protocol):
    """Where lost events are counted."""

    def event_dropped(self, event_type: str, why: str) -> None:
        """An event of that type (Normal, Warning) will not be written; `why` is overflow, refused or unreachable."""
        ...


class _NoMetrics:
    def event_dropped(self, event_type: str, why: str) -> None:
        """Count nothing."""


class EventRecorder:
    """Records events for one component.

    Invariant: each accepted event is either written once or counted as dropped. `run` is the only task that writes.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        component: str,
        clock: Clock,
        host: str = "",
        metrics: RecorderMetrics | None = None,
    ) -> None:
        self._client = client
        self._source = EventSource(component=component, host=host)
        self._clock = clock
        self._metrics = metrics or _NoMetrics()
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue(QUEUE_SIZE + 1)
        self._stopping = False

    def event(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> None:
        """Record an event about `regarding`. Never blocks and never raises; after `stop` it is dropped."""
        now = self._clock.now()
        event = Event(
            metadata=EventMeta(
                # EV-02: the nanoseconds make the name unique among the events of one object.
                name=f"{regarding.name}.{int(now.timestamp() * 1_000_000) * 1000 + self._queue.qsize():x}",
                namespace=regarding.namespace or "default",
            ),
            involved_object=regarding,
            reason=reason,
            message=message,
            type=event_type,
            source=self._source,
            first_timestamp=now.replace(microsecond=0),
            last_timestamp=now.replace(microsecond=0),
            reporting_component=self._source.component,
            reporting_instance=self._source.host,
        )
        if self._stopping or self._queue.qsize() >= QUEUE_SIZE:
            self._drop(event, "overflow")
            return
        self._queue.put_nowait(event)

    async def run(self) -> None:
        """Write events until `stop`, and what is queued by then once (EV-09)."""
        while (event := await self._queue.get()) is not None:
            await self._write(event)

    def stop(self) -> None:
        """Accept no more; `run` ends when it has tried what is queued."""
        if not self._stopping:
            self._stopping = True
            self._queue.put_nowait(None)

    async def _write(self, event: Event) -> None:
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TransportError),
            stop=self._is_last_try,
            wait=tenacity.wait_fixed(RETRY_S),
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            await attempts(self._client.create, EVENTS, event.metadata.namespace, event)
        except (AlreadyExistsError, NamespaceTerminatingError):
            pass  # written by a lost attempt, or nobody is left to read it (EV-08)
        except StatusError as error:
            self._drop(event, "refused", error)
        except ApiError as error:
            self._drop(event, "unreachable", error)

    def _is_last_try(self, state: tenacity.RetryCallState) -> bool:
        return self._stopping or state.attempt_number >= MAX_TRIES

    def _drop(self, event: Event, why: str, error: ApiError | None = None) -> None:
        self._metrics.event_dropped(event.type, why)
        log.warning(
            "event_dropped",
            why=why,
            error=str(error) if error else None,
            regarding=f"{event.involved_object.namespace}/{event.involved_object.name}",
            reason=event.reason,
            message=event.message,
        )
