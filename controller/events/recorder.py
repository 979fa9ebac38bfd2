"""Writes core/v1 events, which `kubectl describe` shows, without ever making a sync wait.

`event` only puts into a bounded buffer (EV-01); the task in `run` correlates and talks to the API server. An event that will
not be written is counted, and logged if it is a Warning. `write` is for what must be on the server before anything else is.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    BadRequestError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
)
from tfjob_operator.api.client.options import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.core import EVENTS, Event, EventSource, ObjectReference
from tfjob_operator.api.text import EVENT_BYTES, clean
from tfjob_operator.controller.events.buffer import EventBuffer
from tfjob_operator.controller.events.correlator import CACHE_SIZE, COMBINED, Action, Correlator
from tfjob_operator.controller.events.delivery import MAX_TRIES, RETRY_S, Delivery
from tfjob_operator.controller.events.drops import EVENT_TYPES, Drop, Drops
from tfjob_operator.controller.events.lru import LRUCache
from tfjob_operator.controller.events.names import EventNames
from tfjob_operator.workqueue.metrics import NO_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.workqueue.clock import Clock
    from tfjob_operator.workqueue.metrics import MetricsProvider

BUFFER_SIZE: Final = 10_000
"""EV-01. client-go's number is 1,000, of which the events of a hundred jobs that come at once are too many: a job of five
replicas has eleven. As many as may wait here are written in half a minute, and take 5 MB."""


MAX_ANSWERS: Final = MAX_TRIES
"""After so many answers of the kind "later" (429, 5xx) `write` gives an event up: a cluster's own flood control, or a broken
webhook, may cost an event, but not what waits for it. Without an answer nothing is given up, since on that server nothing
else can be done either."""


class EventRecorder:
    """Records events for one component.

    Invariants: each event is either written or counted as dropped, once; those of `event` are written in the order in which
    they were recorded, by `run` alone; `event` and `stop` may be called from anywhere on the loop, at any time.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        component: str,
        clock: Clock,
        host: str = "",
        metrics: MetricsProvider = NO_METRICS,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Write as `component` on `host`. `chance` answers a float in [0, 1)."""
        self._client = client
        self._source = EventSource(component=component, host=host)
        self._clock = clock
        self._drops = Drops(metrics)
        self._chance = chance
        self._correlator = Correlator(clock)
        self._buffer: EventBuffer[Event] = EventBuffer(BUFFER_SIZE)
        self._delivery = Delivery(self._delay)
        self._names = EventNames()
        self._put_off: LRUCache[str, int] = LRUCache(CACHE_SIZE)

    def event(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> None:
        """Record an event about `regarding`. Never blocks and never raises; after `stop` it is dropped."""
        event = self._make(regarding, event_type, reason, message)
        if event_type not in EVENT_TYPES:
            self._drop(event, Drop.INVALID)
        elif (left_out := self._buffer.put(event)) is not None:
            self._drop(left_out, Drop.SHUTDOWN if self._delivery.stopping else Drop.OVERFLOW)

    async def write(self, regarding: ObjectReference, event_type: str, reason: str, message: str, *, fact: str) -> None:
        """Write an event now, past the queue and past flood control. On return the server has it, or will not take it.

        Of one `fact` about an object there is one event, however often it is written, by whatever process. Raises ApiError when
        the server may take it yet: then nothing may be done that rests on it, and it is for the caller to try again.
        """
        event = self._make(regarding, event_type, reason, message)
        event = replace(event, metadata=self._names.of_fact(regarding, fact))
        name = event.metadata.name
        try:
            await self._client.create(EVENTS, event.metadata.namespace, event)
        except (AlreadyExistsError, NamespaceTerminatingError):
            pass  # written by an attempt whose answer was lost, or by a process that died; or nobody is left to read it
        except (ServerError, TooManyRequestsError) as error:
            answers = (self._put_off.get(name) or 0) + 1
            self._put_off.put(name, answers)
            if answers < MAX_ANSWERS:
                raise
            self._drop(event, Drop.REFUSED, error)
        except (BadRequestError, ForbiddenError, InvalidError, NotFoundError) as error:
            self._drop(event, Drop.REFUSED, error)

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
        self._delivery.stop()
        self._buffer.close()

    def _make(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> Event:
        now = self._clock.now()
        seconds = now.replace(microsecond=0)  # the API knows whole seconds here
        return Event(
            metadata=self._names.name(regarding, now),
            involved_object=regarding,
            reason=reason,
            message=clean(message, EVENT_BYTES - len(COMBINED)),
            type=event_type,
            count=1,
            source=self._source,
            first_timestamp=seconds,
            last_timestamp=seconds,
            reporting_component=self._source.component,
            reporting_instance=self._source.host,
        )

    async def _record(self, event: Event) -> None:
        action, event = self._correlator.correlate(event)
        if action is Action.SKIP:
            self._drop(event, Drop.SPAM)
            return
        try:
            failure = await self._delivery.deliver(lambda: self._write(action, event), reason=event.reason)
        except asyncio.CancelledError:
            self._drop(event, Drop.SHUTDOWN)
            raise
        if failure is not None:
            self._drop(event, failure.why, failure.error)

    async def _write(self, action: Action, event: Event) -> None:
        meta = event.metadata
        if action is Action.UPDATE:
            change = {"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message}
            with suppress(NotFoundError):  # an event lives for an hour; then it is made anew, with its count
                await self._client.patch(EVENTS, meta.namespace, meta.name, change, content_type=STRATEGIC_MERGE_PATCH)
                return
        await self._client.create(EVENTS, meta.namespace, event)

    def _delay(self, tried: int) -> float:
        """EV-08: the first wait is random, so that not all recorders come back to a new API server at once."""
        return RETRY_S * self._chance() if tried == 1 else RETRY_S

    def _drop(self, event: Event, why: Drop, error: Exception | None = None) -> None:
        about, reason, message = event.involved_object, event.reason, event.message
        self._drops.drop(event.type, about, reason=reason, message=message, why=why, error=error)
