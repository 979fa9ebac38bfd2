"""Writes core/v1 events, which `kubectl describe` shows, without blocking a sync.

`event` only appends to a bounded buffer; the task of `run` correlates and sends the events. If the buffer is full,
Warnings displace Normal events, since Warnings matter most during an outage of the API server. Dropped events are counted;
dropped Warnings are also logged. `write` is for an event that must be on the API server before the caller continues.

A correlator decides what happens to an event: a new object on the API server, a higher count of an existing one, or nothing. It
is pure except for its bounded memory: no I/O, and time comes from the given clock. Events pass three stages in this
order:

1. aggregate: many events that differ only in their message become one, "(combined from similar events): ...";
2. count: a repeated event becomes an update of its record;
3. spam filter: too many events about one object are suppressed.

The filter comes last so that counting continues while nothing is written: the next write contains the whole count.
"""

from __future__ import annotations

import asyncio
import enum
import random as stdlib_random
import re
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final, Generic, TypeVar

import msgspec
import structlog
from msgspec.structs import replace

from tfjob_operator.api.client import RestClient, errors
from tfjob_operator.api.client.options import STRATEGIC_MERGE_PATCH
from tfjob_operator.api.core import EVENTS, Event, EventMeta, EventSource, EventType, ObjectReference
from tfjob_operator.api.text import EVENT_BYTES, clean
from tfjob_operator.controller.events.delivery import EVENT_TYPES, MAX_TRIES, RETRY_S, Delivery, Drop, Drops
from tfjob_operator.workqueue.clock import Clock
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """At most `size` entries. `drop_old` removes those unused for `KEPT_S`; `get` and `put` count as use."""

    __slots__ = ("_clock", "_entries", "_size")

    def __init__(self, clock: Clock, size: int) -> None:
        self._clock = clock
        self._size = size
        self._entries: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value of `key`, or None."""
        if key not in self._entries:
            return None
        value, _ = self._entries[key]
        self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Store `value`, and drop the least recently used entry if there are too many."""
        self._entries[key] = value, self._clock.monotonic()
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def drop_old(self) -> None:
        """Drop entries unused for `KEPT_S`."""
        latest = self._clock.monotonic() - KEPT_S
        while self._entries and next(iter(self._entries.values()))[1] < latest:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


KEPT_S: Final = 3000.0
CLEAN_UP_S: Final = 300.0
"""How often the recorder drops entries older than KEPT_S while there are no events: well within the hour for which the API
server keeps events."""
SIMILAR_EVENTS: Final = 10
SIMILAR_WITHIN_S: Final = 600.0
"""From the tenth message on, they are combined; after ten quiet minutes, they are new again."""
SPAM_BURST: Final = 25
SPAM_REFILL_S: Final = 300.0
"""25 writes in a burst per object, then one every five minutes, so a permanently broken object costs little."""
CACHE_SIZE: Final = 4096
"""Maximum number of objects and events remembered; client-go's value."""
COMBINED: Final = "(combined from similar events): "


class Action(enum.Enum):
    """The result of correlating an event."""

    CREATE = "create"
    UPDATE = "update"
    SKIP = "skip"


@dataclass(slots=True)
class _Similar:
    """The messages of similar events about one object, and the time of the last one."""

    last_at: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _EventRecord:
    """The API object that represents an event, and how often the event has occurred."""

    name: str
    first_timestamp: datetime
    count: int = 0


class Correlator:
    """Correlates the events of one process.

    Invariants: an event adds exactly one to the count of exactly one record, whether it is written or not; a record keeps the
    name and first timestamp of its first event.
    """

    def __init__(self, clock: Clock, *, cache_size: int = CACHE_SIZE) -> None:
        self._clock = clock
        self._similar: LRUCache[tuple[str, ...], _Similar] = LRUCache(clock, cache_size)
        self._written: LRUCache[tuple[str, ...], _EventRecord] = LRUCache(clock, cache_size)
        self._budgets: LRUCache[tuple[str, ...], _Budget] = LRUCache(clock, cache_size)

    def correlate(self, event: Event) -> tuple[Action, Event]:
        """Return the action, and the event to write: with its record's name, its message and its count."""
        event, key = self._aggregate(event)
        event = self._count(event, key)
        if not self._has_budget(event):
            return Action.SKIP, event
        return (Action.UPDATE if event.count > 1 else Action.CREATE), event

    def forget_old(self) -> None:
        """Forget events that have not occurred for `KEPT_S`."""
        for cache in (self._similar, self._written, self._budgets):
            cache.drop_old()

    def _aggregate(self, event: Event) -> tuple[Event, tuple[str, ...]]:
        now = self._clock.monotonic()
        group = _group_key(event)
        similar = self._similar.get(group)
        if similar is None or now - similar.last_at > SIMILAR_WITHIN_S:
            similar = _Similar(now)
        similar.last_at = now  # a sliding window: it ends after ten quiet minutes
        self._similar.put(group, similar)
        if event.message in similar.messages or len(similar.messages) + 1 < SIMILAR_EVENTS:
            similar.messages.add(event.message)
            return event, (*group, event.involved_object.field_path, event.message)
        return replace(event, message=COMBINED + event.message), group

    def _count(self, event: Event, key: tuple[str, ...]) -> Event:
        written = self._written.get(key) or _EventRecord(event.metadata.name, event.first_timestamp)
        written.count += 1
        self._written.put(key, written)
        return replace(
            event,
            metadata=replace(event.metadata, name=written.name),
            first_timestamp=written.first_timestamp,
            count=written.count,
        )

    def _has_budget(self, event: Event) -> bool:
        now = self._clock.monotonic()
        # The type is part of the key, so that a flood of Normal events does not suppress Warnings.
        key = (*_source_and_object(event), event.type)
        budget = self._budgets.get(key) or _Budget(now)
        self._budgets.put(key, budget)
        return budget.take(now)


class _Budget:
    """A token bucket: starts with `SPAM_BURST` tokens and gains one every `SPAM_REFILL_S`."""

    __slots__ = ("_filled_at", "_tokens")

    def __init__(self, now: float) -> None:
        self._tokens = float(SPAM_BURST)
        self._filled_at = now

    def take(self, now: float) -> bool:
        """Take a token, if available."""
        self._tokens = min(float(SPAM_BURST), self._tokens + (now - self._filled_at) / SPAM_REFILL_S)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _source_and_object(event: Event) -> tuple[str, ...]:
    source, about = event.source, event.involved_object
    return (source.component, source.host, about.api_version, about.kind, about.namespace, about.name, about.uid)


def _group_key(event: Event) -> tuple[str, ...]:
    """Return the common key of similar events: everything except the message."""
    reporter = (event.reporting_component, event.reporting_instance)
    return (*_source_and_object(event), event.type, event.reason, *reporter)


MAX_NAME: Final = 253
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""Event names must be RFC 1123 subdomains."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EventNames:
    """Generates event names from the object and the time in nanoseconds; unique even with a coarse clock."""

    def __init__(self) -> None:
        self._last_nanoseconds = 0

    def name(self, regarding: ObjectReference, now: datetime) -> EventMeta:
        """Return name and namespace of an event about `regarding`; `default` for objects without a namespace."""
        nanoseconds = (now - _EPOCH) // timedelta(microseconds=1) * 1000
        self._last_nanoseconds = max(nanoseconds, self._last_nanoseconds + 1)
        name = f"{regarding.name}.{self._last_nanoseconds:x}"
        if len(name) > MAX_NAME or not _SUBDOMAIN.fullmatch(name):
            name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{regarding.uid} {name}"))
        return EventMeta(name=name, namespace=regarding.namespace or "default")

    @staticmethod
    def of_fact(regarding: ObjectReference, fact: str) -> EventMeta:
        """Return the name of the one event about `regarding` that states this fact. Every process derives the same name."""
        digest = uuid.uuid5(uuid.NAMESPACE_OID, f"{regarding.uid} {fact}")
        name = f"{regarding.name}.{digest.hex[:16]}"
        if len(name) > MAX_NAME or not _SUBDOMAIN.fullmatch(name):
            name = str(digest)
        return EventMeta(name=name, namespace=regarding.namespace or "default")


class EventBuffer:
    """A bounded queue of events.

    Invariants: at most `size` events are queued, in FIFO order; the event that is dropped is always one of the least important.
    `put` and `drain` never block.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._numbers = count()
        # Two queues with common sequence numbers, so that the newest Normal event is found immediately.
        self._normal: deque[tuple[int, Event]] = deque()
        self._warnings: deque[tuple[int, Event]] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, event: Event) -> Event | None:
        """Add an event. Return the dropped event, if any: this one, or a Normal event."""
        if self._closed:
            return event
        is_warning = event.type == EventType.WARNING
        displaced = None
        if len(self) >= self._size:
            if not (is_warning and self._normal):
                return event
            # The newest Normal event is dropped: earlier ones show what led to the current state.
            _, displaced = self._normal.pop()
        (self._warnings if is_warning else self._normal).append((next(self._numbers), event))
        self._changed.set()
        return displaced

    async def get(self) -> Event | None:
        """Wait for the next event. Return None once the buffer is closed and empty."""
        while not len(self):
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._pop()

    def close(self) -> None:
        """Accept no more events."""
        self._closed = True
        self._changed.set()

    def drain(self) -> list[Event]:
        """Remove and return all queued events."""
        return [self._pop() for _ in range(len(self))]

    def __len__(self) -> int:
        return len(self._normal) + len(self._warnings)

    def _pop(self) -> Event:
        first = min((queue for queue in (self._normal, self._warnings) if queue), key=lambda queue: queue[0][0])
        return first.popleft()[1]


BUFFER_SIZE: Final = 10_000
"""Client-go's value is 1,000, which the events of a hundred simultaneous jobs exceed: a job with five replicas has
eleven. This many events are written in half a minute, and take 5 MB."""
NOT_RUNNING_S: Final = 60.0
"""How often events that nobody writes are reported. A manager starts the recorder before the first sync."""
log = structlog.get_logger(__name__)
MAX_RESPONSES: Final = MAX_TRIES
"""After this many retriable responses (429, 5xx), `write` drops an event: rate limiting, or a broken webhook, may lose an
event, but must not block what depends on it. Without a response nothing is dropped, since other requests fail as well."""


class EventRecorder:
    """Records events for one component.

    Invariants: each event is either written or counted as dropped, exactly once; only `run` writes the events passed to
    `event`, in order; `event` and `stop` may be called from anywhere on the loop, at any time.
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
        """Write as `component` on `host`. `random` returns a float in [0, 1), like `random.random`."""
        self._client = client
        self._source = EventSource(component=component, host=host)
        self._clock = clock
        self._drops = Drops(metrics)
        self._random = random
        self._correlator = Correlator(clock)
        self._buffer = EventBuffer(BUFFER_SIZE)
        self._delivery = Delivery(self._delay)
        self._names = EventNames()
        self._has_run = False
        self._waiting_since: datetime | None = None
        self._deferrals: LRUCache[str, int] = LRUCache(clock, CACHE_SIZE)

    def event(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> None:
        """Record an event about `regarding`. Never blocks or raises; after `stop` the event is dropped.

        If no task runs `run` within a minute after the first event, the next event logs `recorder_not_running`.
        """
        event = self._make(regarding, event_type, reason, message)
        self._warn_if_not_running()
        if event_type not in EVENT_TYPES:
            self._drop(event, Drop.INVALID)
        elif (dropped := self._buffer.put(event)) is not None:
            self._drop(dropped, Drop.SHUTDOWN if self._delivery.stopping else Drop.OVERFLOW)

    async def write(self, regarding: ObjectReference, event_type: str, reason: str, message: str, *, fact: str) -> None:
        """Write an event now, bypassing buffer and spam filter. Returns once the API server has it, or rejected it permanently.

        Writes of the same `fact` about an object result in one event, however many there are and whichever process sends them.
        Raises ApiError if the API server may accept the event later: the caller must then retry before acting.
        """
        event = self._make(regarding, event_type, reason, message)
        event = replace(event, metadata=self._names.of_fact(regarding, fact))
        name = event.metadata.name
        try:
            await self._client.create(EVENTS, event.metadata.namespace, msgspec.json.encode(event))
        except (errors.AlreadyExistsError, errors.NamespaceTerminatingError):
            pass  # written earlier, by a lost attempt or process; or no longer needed
        except (errors.ServerError, errors.TooManyRequestsError) as error:
            responses = (self._deferrals.get(name) or 0) + 1
            self._deferrals.put(name, responses)
            if responses < MAX_RESPONSES:
                raise
            self._drop(event, Drop.REFUSED, error)
        except (errors.BadRequestError, errors.ForbiddenError, errors.InvalidError, errors.NotFoundError) as error:
            self._drop(event, Drop.REFUSED, error)

    async def run(self) -> None:
        """Write events until `stop`, then each queued event once. Cancelling drops queued events."""
        self._has_run = True
        try:
            while await self._record_next():
                self._correlator.forget_old()
                self._deferrals.drop_old()
        finally:
            self.stop()
            for event in self._buffer.drain():
                self._drop(event, Drop.SHUTDOWN)

    def stop(self) -> None:
        """Accept no more events; `run` returns after one attempt for each queued event."""
        self._delivery.stop()
        self._buffer.close()

    def _warn_if_not_running(self) -> None:
        if self._has_run:
            return
        now = self._clock.now()
        if self._waiting_since is None:
            self._waiting_since = now
        elif (now - self._waiting_since).total_seconds() > NOT_RUNNING_S:
            self._waiting_since = now
            log.warning("recorder_not_running", events=len(self._buffer), advice="pass it to Manager(recorder=)")

    def _make(self, regarding: ObjectReference, event_type: str, reason: str, message: str) -> Event:
        now = self._clock.now()
        seconds = now.replace(microsecond=0)  # the API has whole seconds here
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

    async def _record_next(self) -> bool:
        """Write the next event, or return if none comes for a while. Return False once there can be no more events."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLEAN_UP_S):
                event = await self._buffer.get()
            if event is None:
                return False
            await self._record(event)
        return True

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
            with suppress(errors.NotFoundError):  # expired after an hour: created again, with its count
                await self._client.patch(EVENTS, meta.namespace, meta.name, change, content_type=STRATEGIC_MERGE_PATCH)
                return
        await self._client.create(EVENTS, meta.namespace, msgspec.json.encode(event))

    def _delay(self, tried: int) -> float:
        """Return a random first delay, so that recorders do not all return to a restarted API server at once."""
        return RETRY_S * self._random() if tried == 1 else RETRY_S

    def _drop(self, event: Event, why: Drop, error: Exception | None = None) -> None:
        about, reason, message = event.involved_object, event.reason, event.message
        self._drops.drop(event.type, about, reason=reason, message=message, why=why, error=error)
