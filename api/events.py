"""Events of events.k8s.io/v1, of which repeated ones are a series: the fields that a reporter writes, as frozen structs."""

from __future__ import annotations

from tfjob_operator.api.core import EventMeta, ObjectReference
from tfjob_operator.api.meta import Resource, Struct

EVENTS = Resource("events.k8s.io", "v1", "events", "Event")


class EventSeries(Struct, frozen=True):
    """How often an event has happened, twice at least, and when last (a `micro_time`)."""

    count: int
    last_observed_time: str


class Event(Struct, frozen=True):
    """An event: `controller` took (or failed at) `action` about `regarding`, and why. `event_time` is a `micro_time`.

    The server wants all of them but `note`, `related` and `series`; controller, instance, action and reason have at most 128
    characters, the note 1,024. Only the series may change later.
    """

    metadata: EventMeta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: ObjectReference
    type: str
    note: str = ""
    related: ObjectReference | None = None
    series: EventSeries | None = None
