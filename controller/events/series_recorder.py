"""Writes events of events.k8s.io/v1: what happens again and again is one event with a series (EV-10).

`event` only puts into a bounded buffer; the tasks of `run` write. The first event of a kind is created, the second patches
a series into it, and later ones are only counted here: a series costs one write every half hour, and one when it has ended.
"""

from __future__ import annotations

import asyncio
import random as stdlib_random
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import structlog

from tfjob_operator.api.client.errors import AlreadyExistsError, NotFoundError
from tfjob_operator.api.client.options import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.core import EventMeta
from tfjob_operator.api.events import EVENTS, Event
from tfjob_operator.api.meta import micro_time
from tfjob_operator.api.text import EVENT_BYTES, clean
from tfjob_operator.controller.events.buffer import EventBuffer
from tfjob_operator.controller.events.delivery import MAX_TRIES, NO_WORD, RETRY_S, Delivery, Failure
from tfjob_operator.controller.events.drops import EVENT_TYPES, Drop, Drops
from tfjob_operator.controller.events.names import EventNames
from tfjob_operator.controller.events.series import SILENT_S, SeriesCache
from tfjob_operator.workqueue.metrics import NO_METRICS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.core import ObjectReference
    from tfjob_operator.workqueue.clock import Clock
    from tfjob_operator.workqueue.metrics import MetricsProvider

BUFFER_SIZE: Final = 1000
WRITERS: Final = 8
"""EV-10: how many events may wait, and how many are written at a time."""
REFRESH_S: Final = 1800.0
"""EV-10: the API server forgets an event that was not written for an hour."""
JITTER: Final = 0.25
"""EV-10: waits are longer than `RETRY_S` by up to this share, so that not all recorders return at once."""
FLUSH_S: Final = 5.0
"""How long writing may go on after `stop`. Kubernetes kills a pod 30 s after its SIGTERM; people who wait give up sooner."""

log = structlog.get_logger(__name__)


class SeriesRecorder:
    """Records events for one instance of a controller.

    Invariants: no two writes of one event are under way at a time, and its count on the server never falls; `event` and
    `stop` may be called from anywhere on the loop, at any time. Counted as dropped is an event that could not be created, and
    a series, once, whose last state could not be written.
    """

    def __init__(
        self,
        client: RestClient,
        *,
        controller: str,
        instance: str,
        clock: Clock,
        metrics: MetricsProvider = NO_METRICS,
        random: Callable[[], float] = stdlib_random.random,
    ) -> None:
        """Write as `instance` of `controller`, such as `kettle-operator-x7f` of `example.com/kettle-operator`.

        The API server requires both, the latter as a qualified name. `random` returns a float in [0, 1), as `random.random`
        does.
        """
        self._client = client
        self._controller = controller
        self._instance = instance
        self._clock = clock
        self._drops = Drops(metrics)
        self._random = random
        self._cache = SeriesCache()
        self._buffer: EventBuffer[Event] = EventBuffer(BUFFER_SIZE)
        self._delivery = Delivery(self._delay)
        self._names = EventNames()
        # One for each event that is being written or waits for that, and no others.
        self._locks: WeakValueDictionary[EventMeta, asyncio.Lock] = WeakValueDictionary()

    def event(
        self,
        regarding: ObjectReference,
        event_type: str,
        reason: str,
        action: str,
        note: str,
        *,
        related: ObjectReference | None = None,
    ) -> None:
        """Record that `action` was taken about `regarding`, and why. Never blocks and never raises.

        The note of a series is that of its first event. After `stop` the event is dropped.
        """
        now = self._clock.now()
        event = Event(
            metadata=self._names.name(regarding, now),
            event_time=micro_time(now),
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=action,
            reason=reason,
            regarding=regarding,
            related=related,
            note=clean(note, EVENT_BYTES),
            type=event_type,
        )
        if event_type not in EVENT_TYPES:
            self._drop(event, Drop.INVALID)
        elif (left_out := self._buffer.put(event)) is not None:
            self._drop(left_out, Drop.SHUTDOWN if self._delivery.stopping else Drop.OVERFLOW)

    async def run(self) -> None:
        """Write events until `stop`; then what waits, and the last state of every series, with one attempt each.

        That takes at most `FLUSH_S` seconds. What is not written by then is dropped; so is everything on cancelling.
        """
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    await self._write_until_stopped(limit)
                    await self._flush()
        finally:
            self.stop()
            for event in (*self._buffer.drain(), *self._cache.unwritten()):
                self._drop(event, Drop.SHUTDOWN)

    def stop(self) -> None:
        """Accept nothing more; `run` returns within `FLUSH_S` seconds."""
        self._delivery.stop()
        self._buffer.close()

    async def _write_until_stopped(self, limit: asyncio.Timeout) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._record_events(), name=f"event-writer-{number}")
            group.create_task(self._every(SILENT_S, self._finish), name="event-series-finish")
            group.create_task(self._every(REFRESH_S, self._refresh), name="event-series-refresh")
            await self._delivery.stopped()
            limit.reschedule(asyncio.get_running_loop().time() + FLUSH_S)

    async def _record_events(self) -> None:
        while (event := await self._buffer.get()) is not None:
            await self._record(self._cache.observe(event, self._clock.monotonic()))

    async def _record(self, states: list[Event]) -> None:
        for number, state in enumerate(states):
            try:
                failure = await self._deliver(state, tries=MAX_TRIES)
            except asyncio.CancelledError:
                for lost in states[number:]:
                    if not self._goes_on(lost):
                        self._drop(lost, Drop.SHUTDOWN)
                raise
            if failure is not None:
                self._fail(state, failure)

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await self._delivery.pause(seconds)
            if self._delivery.stopping:
                return
            await work()

    async def _finish(self) -> None:
        """Write the last state of the series that have ended, and forget them. Those that cannot be written now stay."""
        for state in self._until_stopped(self._cache.finish(self._clock.monotonic())):
            if self._cache.current(state) != state:
                continue  # it has happened again while others were written
            failure = await self._deliver(state, tries=1)
            if failure is None or failure.why is not Drop.UNREACHABLE:
                self._cache.forget(state)
            if failure is not None:
                self._fail(state, failure)

    async def _refresh(self) -> None:
        """Write all series in their present state, so that the API server does not forget them."""
        for listed in self._until_stopped(self._cache.series()):
            if (state := self._cache.current(listed)) is None:
                continue
            if (failure := await self._deliver(state, tries=1)) is not None:
                self._fail(state, failure)

    def _until_stopped(self, states: list[Event]) -> Iterator[Event]:
        for state in states:
            if self._delivery.stopping:
                return
            yield state

    async def _flush(self) -> None:
        """Write the series whose last state the API server does not have, several at a time."""
        states = iter(self._cache.unwritten())

        async def write() -> None:
            for state in states:
                failure = await self._deliver(state, tries=1)
                self._cache.forget(state)
                if failure is not None:
                    self._fail(state, failure)

        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(write(), name=f"event-flush-{number}")

    async def _deliver(self, state: Event, *, tries: int) -> Failure | None:
        """Write a state when no other write of the event is under way, and note when the API server has it."""
        lock = self._locks.setdefault(state.metadata, asyncio.Lock())
        async with lock:
            again = (*NO_WORD, AlreadyExistsError) if state.series is not None else NO_WORD
            failure = await self._delivery.deliver(
                lambda: self._write(state), reason=state.reason, tries=tries, again=again
            )
        if failure is None:
            self._cache.written(state)
        return failure

    async def _write(self, state: Event) -> None:
        meta = state.metadata
        if state.series is not None:
            change = {"series": state.series}
            with suppress(NotFoundError):  # the server has forgotten it, or never had it; it is made with its count
                await self._client.patch(EVENTS, meta.namespace, meta.name, change, content_type=STRATEGIC_MERGE_PATCH)
                return
        # AlreadyExists of a series says that the event has come since: the patch is tried again.
        await self._client.create(EVENTS, meta.namespace, state)

    def _goes_on(self, state: Event) -> bool:
        """Return whether the event has become a series, which will be written later with all that it has counted by then."""
        current = self._cache.current(state)
        return current is not None and current.series is not None

    def _fail(self, state: Event, failure: Failure) -> None:
        if not self._goes_on(state):
            self._drop(state, failure.why, failure.error)
            return
        log.warning("event_series_not_written", why=failure.why.value, error=str(failure.error), reason=state.reason)

    def _delay(self, _tried: int) -> float:
        return RETRY_S * (1 + JITTER * self._random())

    def _drop(self, event: Event, why: Drop, error: Exception | None = None) -> None:
        about, reason, note = event.regarding, event.reason, event.note
        self._drops.drop(event.type, about, reason=reason, message=note, why=why, error=error)
