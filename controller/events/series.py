"""Decides what becomes of an event of events.k8s.io/v1: a new event, the beginning of a series, or one more of it (EV-10).

Pure but for its memory: events and times go in, and what to write comes out. An event without a series is to be created.
The series of an event is to be patched into it; if the event is missing it is created with its series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from tfjob_operator.api.core import ObjectReference
from tfjob_operator.api.events import Event, EventSeries

SILENT_S: Final = 360.0
"""EV-10: a series ends after six minutes without an event; the next one is a new event."""
CACHE_SIZE: Final = 4096
"""EV-06's number. client-go has no bound here."""

_Key = tuple[str, str, str, str, str, ObjectReference, ObjectReference | None]


@dataclass(slots=True)
class _Record:
    """An event as we know it, when it last happened, and its series as the API server has it."""

    event: Event
    last_at: float
    written: EventSeries | None = None

    @property
    def is_written(self) -> bool:
        return self.event.series == self.written


class SeriesCache:
    """Remembers recent events, by all that isomorphic events have in common.

    Times are seconds of one monotonic clock. Invariants: an event adds one to the count of one record; a record keeps the
    name and the note of its first event; the counts that are returned for one record never fall.
    """

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._size = size
        # In the order of their last events: those that end, or make room, are in front.
        self._records: dict[_Key, _Record] = {}

    def observe(self, event: Event, now: float) -> list[Event]:
        """Count an event. Return what to write: the event, a series that begins, or nothing where a series goes on.

        A series that is dropped to make room is returned too, if the API server does not have its last state.
        """
        key = _key(event)
        record = self._records.pop(key, None)
        if record is None:
            self._records[key] = _Record(event, now)
            return [event, *self._make_room()]
        begun = record.event.series is None
        count = 2 if record.event.series is None else record.event.series.count + 1
        record.event = replace(record.event, series=EventSeries(count=count, last_observed_time=event.event_time))
        record.last_at = now
        self._records[key] = record
        return [record.event] if begun else []

    def written(self, event: Event) -> None:
        """Remember that the server has this state."""
        if (record := self._record_of(event)) is not None:
            record.written = event.series

    def current(self, event: Event) -> Event | None:
        """Return the present state of an event's record, or None if it is not remembered any more."""
        record = self._record_of(event)
        return None if record is None else record.event

    def series(self) -> list[Event]:
        """Return all series; the API server would forget them if they were not written now and then."""
        return [record.event for record in self._records.values() if record.event.series is not None]

    def unwritten(self) -> list[Event]:
        """Return the series whose last state the API server does not have yet."""
        return [record.event for record in self._records.values() if not record.is_written]

    def finish(self, now: float) -> list[Event]:
        """Forget what has been silent for `SILENT_S`. Return the series that must be written before `forget` drops them."""
        silent = []
        for record in self._records.values():
            if now - record.last_at < SILENT_S:
                break
            silent.append(record)
        for record in silent:
            if record.is_written:
                del self._records[_key(record.event)]
        return [record.event for record in silent if not record.is_written]

    def forget(self, event: Event) -> None:
        """Forget the record of an event, unless it has happened again since this state."""
        if self.current(event) == event:
            del self._records[_key(event)]

    def _make_room(self) -> list[Event]:
        if len(self._records) <= self._size:
            return []
        oldest = self._records.pop(next(iter(self._records)))
        return [] if oldest.is_written else [oldest.event]

    def _record_of(self, event: Event) -> _Record | None:
        record = self._records.get(_key(event))
        return record if record is not None and record.event.metadata == event.metadata else None


def _key(event: Event) -> _Key:
    """Return what isomorphic events have in common; the note is no part of it.

    Nor are the versions of the objects, which are in client-go: each write of a status would end all series about its object.
    """
    reporter = (event.reporting_controller, event.reporting_instance)
    related = event.related and replace(event.related, resource_version="")
    regarding = replace(event.regarding, resource_version="")
    return (event.type, event.action, event.reason, *reporter, regarding, related)
