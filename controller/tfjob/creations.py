"""Tells of the children that were created: of a large type in batches, since nobody reads five hundred events one by one.

The API server keeps each event for an hour, and the flood control would drop most of them anyway (EV-03, EV-05).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from structlog.contextvars import bound_contextvars

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1.names import ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.jobs.children import ReplicaKey
    from tfjob_operator.controller.tfjob.job_events import JobEvents
    from tfjob_operator.controller.tfjob.kinds import ChildKind

MANY: Final = 16
"""From so many replicas of one type that are created together, their events are told in batches."""
BATCH: Final = 64
"""Replicas of one event at most. A batch is told as soon as the last of it is created."""


class _Batch:
    """The replicas of one event: those that were created, and how many there will be if none fails."""

    __slots__ = ("created", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.created: list[ReplicaKey] = []


class Creations:
    """The children of one kind that one sync creates. What is created after `close` is told at once."""

    def __init__(self, events: JobEvents, job: TFJob, kind: ChildKind, keys: Iterable[ReplicaKey]) -> None:
        """`keys` are the replicas that are about to get a child of this kind, in the order of their indices."""
        self._events = events
        self._job = job
        self._kind = kind
        self._batches: dict[str, _Batch] = {}
        types: dict[str, list[ReplicaKey]] = defaultdict(list)
        for key in keys:
            types[key.type].append(key)
        for members in types.values():
            if len(members) >= MANY:
                for first in range(0, len(members), BATCH):
                    some = members[first : first + BATCH]
                    self._batches.update(dict.fromkeys((key.name for key in some), _Batch(len(some))))

    def created(self, key: ReplicaKey) -> None:
        """Tell of this replica's child, or remember it until the others of its batch are there."""
        batch = self._batches.get(key.name)
        if batch is None:
            self._tell([key])
            return
        batch.created.append(key)
        if len(batch.created) == batch.size:
            self._tell(batch.created)
            batch.created = []

    def close(self) -> None:
        """Tell of those whose batch did not become full, since others of it failed or were never sent."""
        for batch in dict.fromkeys(self._batches.values()):
            if batch.created:
                self._tell(batch.created)
        self._batches.clear()

    def _tell(self, keys: list[ReplicaKey]) -> None:
        if len(keys) == 1:
            self._record(f"Created {self._kind.name}: {keys[0].name}")
            return
        names = ranges_of(key.name for key in sorted(keys, key=lambda key: key.index))
        with bound_contextvars(pod=names):  # in the log, in the place of the last one's name
            self._record(f"Created {len(keys)} {self._kind.name}s: {names}")

    def _record(self, message: str) -> None:
        self._events.record(self._job, EventType.NORMAL, self._kind.created, message)
