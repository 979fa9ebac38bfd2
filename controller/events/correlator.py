"""Decides what becomes of an event: a new object on the API server, a higher count of an existing one, or nothing.

Pure but for its memory, which is bounded (EV-06): no I/O, and time comes from the clock that it is given. Events pass three
stages in this order (EV-07):

1. aggregate: many events that differ only in their message become one, "(combined from similar events): ..." (EV-03);
2. count: an event that was seen before becomes an update of its record (EV-04);
3. spam filter: too many events about one object are held back (EV-05).

The filter comes last so that counting goes on while nothing is written: the next write that passes carries the whole count.

For fifty events that differ in a name this means: nine are written as they are, the others are counted in a tenth record, and
after 25 writes about that object the rest waits for the filter.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from tfjob_operator.api.core import Event
from tfjob_operator.workqueue.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """Holds at most `size` entries; `get` and `put` both count as use."""

    __slots__ = ("_entries", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return what was put under `key`, or None when it is unknown or forgotten."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: K, value: V) -> None:
        """Remember `value`, and forget the entry that was not used for longest if there are too many."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


SIMILAR_EVENTS: Final = 10
SIMILAR_WITHIN_S: Final = 600.0
"""EV-03: from the tenth message on nobody reads them one by one; after ten quiet minutes they are new again."""
SPAM_BURST: Final = 25
SPAM_REFILL_S: Final = 300.0
"""EV-05: 25 writes at once about one object, then one in five minutes, so an object that stays broken costs little."""
CACHE_SIZE: Final = 4096
"""EV-06: objects (and events of them) that are remembered; client-go's number."""
COMBINED: Final = "(combined from similar events): "


class Action(enum.Enum):
    """What to do with an event."""

    CREATE = "create"
    UPDATE = "update"
    SKIP = "skip"


@dataclass(slots=True)
class _Similar:
    """Messages of one kind of event about one object, and when the last of them came."""

    last_at: float
    messages: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Written:
    """The record that stands for an event, and how often the event has happened."""

    name: str
    first_timestamp: datetime
    count: int = 0


class Correlator:
    """Correlates the events of one process.

    Invariants: an event adds exactly one to the count of exactly one record, whether or not it is written; a record's first
    event keeps its name and its first timestamp for all that follow.
    """

    def __init__(self, clock: Clock, *, cache_size: int = CACHE_SIZE) -> None:
        self._clock = clock
        self._similar: LRUCache[tuple[str, ...], _Similar] = LRUCache(cache_size)
        self._written: LRUCache[tuple[str, ...], _Written] = LRUCache(cache_size)
        self._budgets: LRUCache[tuple[str, ...], _Budget] = LRUCache(cache_size)

    def correlate(self, event: Event) -> tuple[Action, Event]:
        """Return what to do, and the event as it is to be written: with its record's name, its message and its count."""
        event, key = self._aggregate(event)
        event = self._count(event, key)
        if not self._has_budget(event):
            return Action.SKIP, event
        return (Action.UPDATE if event.count > 1 else Action.CREATE), event

    def _aggregate(self, event: Event) -> tuple[Event, tuple[str, ...]]:
        now = self._clock.monotonic()
        group = _group_key(event)
        similar = self._similar.get(group)
        if similar is None or now - similar.last_at > SIMILAR_WITHIN_S:
            similar = _Similar(now)
        similar.last_at = now  # the window slides: ten minutes of silence end it, not ten minutes
        self._similar.put(group, similar)
        if event.message in similar.messages or len(similar.messages) + 1 < SIMILAR_EVENTS:
            similar.messages.add(event.message)
            return event, (*group, event.involved_object.field_path, event.message)
        return replace(event, message=COMBINED + event.message), group

    def _count(self, event: Event, key: tuple[str, ...]) -> Event:
        written = self._written.get(key) or _Written(event.metadata.name, event.first_timestamp)
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
        # The type is part of the key, so that a flood of Normal events cannot silence a Warning.
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
        """Take a token if there is one."""
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
    """Return what similar events have in common: all but the message (EV-03)."""
    reporter = (event.reporting_component, event.reporting_instance)
    return (*_source_and_object(event), event.type, event.reason, *reporter)
