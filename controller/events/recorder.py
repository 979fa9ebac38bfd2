"""Writes core/v1 events, which `kubectl describe` shows, without making a sync wait.

`event` only puts into a bounded buffer (EV-01); the task of `run` correlates events and sends them. Dropped events are
counted; dropped Warnings are also logged. `write` is for an event that must be on the API server before something else is
done.
"""

from __future__ import annotations

import asyncio
import random as stdlib_random
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
"""EV-01. client-go's number is 1,000, which the events of a hundred jobs at once exceed: a job of five replicas has eleven.
This many events are written in half a minute, and take 5 MB."""


MAX_RESPONSES: Final = MAX_TRIES
"""After this many responses that ask to try later (429, 5xx) `write` gives an event up: flood control of the cluster, or a
broken webhook, may cost an event, but not hold up what waits for it. Without a response nothing is given up, since
nothing else can be done on that server either."""


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
        random: Callable[[], float] = stdlib_random.random,
    ) -> None:
        """Write as `component` on `host`. `random` returns a float in [0, 1), as `random.random` does."""
        self._client = client
        self._source = EventSource(component=component, host=host)
        self._clock = clock
        self._drops = Drops(metrics)
        self._random = random
        self._correlator = Correlator(clock)
        self._buffer = EventBuffer(BUFFER_SIZE)
        self._delivery = Delivery(self._delay)
        self._names = EventNames()
        self._put_off: LRUCache[str, int] = LRUCache(CACHE_SIZE)

    def event(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> None:
        """Record an event about `regarding`. Never blocks and never raises; after `stop` the event is dropped."""
        event = self._make(regarding, event_type, reason, message)
        if event_type not in EVENT_TYPES:
            self._drop(event, Drop.INVALID)
        elif (left_out := self._buffer.put(event)) is not None:
            self._drop(left_out, Drop.SHUTDOWN if self._delivery.stopping else Drop.OVERFLOW)

    async def write(self, regarding: ObjectReference, event_type: str, reason: str, message: str, *, fact: str) -> None:
        """Write an event now, past the buffer and the spam filter. Returns when the API server has it, or will never accept it.

        The same `fact` about an object is one event, however often and by whatever process it is written. Raises ApiError
        when the API server may accept it later: the caller must then try again before it acts.
        """
        event = self._make(regarding, event_type, reason, message)
        event = replace(event, metadata=self._names.of_fact(regarding, fact))
        name = event.metadata.name
        try:
            await self._client.create(EVENTS, event.metadata.namespace, event)
        except (AlreadyExistsError, NamespaceTerminatingError):
            pass  # written by an attempt whose response was lost, or by a process that died; or nobody is left to read it
        except (ServerError, TooManyRequestsError) as error:
            answers = (self._put_off.get(name) or 0) + 1
            self._put_off.put(name, answers)
            if answers < MAX_RESPONSES:
                raise
            self._drop(event, Drop.REFUSED, error)
        except (BadRequestError, ForbiddenError, InvalidError, NotFoundError) as error:
            self._drop(event, Drop.REFUSED, error)

    async def run(self) -> None:
        """Write events until `stop`, then once what still waits (EV-09). Cancelling drops what waits."""
        try:
            while (event := await self._buffer.get()) is not None:
                await self._record(event)
        finally:
            self.stop()
            for event in self._buffer.drain():
                self._drop(event, Drop.SHUTDOWN)

    def stop(self) -> None:
        """Accept nothing more; `run` returns after one attempt at each event that waits."""
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
            with suppress(NotFoundError):  # forgotten by the API server after an hour: created again, with its count
                await self._client.patch(EVENTS, meta.namespace, meta.name, change, content_type=STRATEGIC_MERGE_PATCH)
                return
        await self._client.create(EVENTS, meta.namespace, event)

    def _delay(self, tried: int) -> float:
        """EV-08: the first wait is random, so that not all recorders return to a restarted API server at once."""
        return RETRY_S * self._random() if tried == 1 else RETRY_S

    def _drop(self, event: Event, why: Drop, error: Exception | None = None) -> None:
        about, reason, message = event.involved_object, event.reason, event.message
        self._drops.drop(event.type, about, reason=reason, message=message, why=why, error=error)
