"""Events that will not be written: they are counted, and Warnings are logged."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.api.core import EventType
from tfjob_operator.workqueue.metrics import Metric

if TYPE_CHECKING:
    from tfjob_operator.api.core import ObjectReference
    from tfjob_operator.workqueue.metrics import MetricsProvider

EVENT_TYPES: Final = frozenset(EventType)
UNKNOWN: Final = "Unknown"
"""The metric's label for events of any other type."""
LABELLED_TYPES: Final = (*EventType, UNKNOWN)

log = structlog.get_logger(__name__)


class Drop(enum.StrEnum):
    """Why an event was not written: all values of the metric's label."""

    INVALID = "invalid"  # neither Normal nor Warning
    OVERFLOW = "overflow"  # the buffer was full
    SPAM = "spam"  # too many events about the object (EV-05); the count is kept for the next write
    REFUSED = "refused"  # the API server refused it
    UNREACHABLE = "unreachable"  # twelve attempts without a usable response
    SHUTDOWN = "shutdown"  # recorded after `stop`, or still waiting when `run` was cancelled
    CRASHED = "crashed"  # a bug of ours


DROPPED: Final = Metric("tf_operator_events_dropped_total", "Events that were not written", labels=("type", "why"))


class Drops:
    """Counts and logs what is dropped."""

    def __init__(self, metrics: MetricsProvider) -> None:
        """Create the series of all types and reasons."""
        self._dropped = {(kind, why): metrics.counter(DROPPED, kind, why) for kind in LABELLED_TYPES for why in Drop}

    def drop(
        self,
        event_type: str,
        regarding: ObjectReference,
        *,
        reason: str,
        message: str,
        why: Drop,
        error: Exception | None = None,
    ) -> None:
        """Count an event as dropped."""
        self._dropped[event_type if event_type in EVENT_TYPES else UNKNOWN, why].inc()
        # A Normal event was logged by whoever recorded it; of a Warning it must be seen that it is not on the server.
        tell = log.debug if event_type == EventType.NORMAL else log.warning
        tell(
            "event_dropped",
            why=why.value,
            error=str(error) if error else None,
            regarding=f"{regarding.namespace}/{regarding.name}",
            reason=reason,
            message=message,
        )
