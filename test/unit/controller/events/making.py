"""Events for tests."""

from __future__ import annotations

from api.core import Event, EventMeta, EventSource, ObjectReference
from fakes.virtual_loop import EPOCH

KETTLE = ObjectReference(api_version="example.com/v1", kind="Kettle", namespace="kitchen", name="blue", uid="u-1")


def make_event(  # the parts of its key, which tests vary
    message: str = "tick",
    *,
    event_type: str = "Normal",
    reason: str = "Boiled",
    about: ObjectReference = KETTLE,
    host: str = "",
    name: str = "blue.1",
) -> Event:
    """An event as the recorder makes it."""
    return Event(
        metadata=EventMeta(name=name, namespace="kitchen"),
        involved_object=about,
        reason=reason,
        message=message,
        type=event_type,
        count=1,
        source=EventSource(component="kettle-operator", host=host),
        first_timestamp=EPOCH,
        last_timestamp=EPOCH,
        reporting_component="kettle-operator",
        reporting_instance=host,
    )
