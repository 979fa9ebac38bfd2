"""The events of jobs, in both dialects. They are recorded and logged; one that would repeat is emitted once.

The memory for that (`EventDeduplicator`) may be lost: then an event is emitted once more.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

import structlog

from tfjob_operator.api.core import EventType, object_reference
from tfjob_operator.api.meta import Meta, Resource
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.pods import Problem, ProblemKey
from tfjob_operator.workqueue import Clock

K = TypeVar("K", bound=Hashable)

log = structlog.get_logger(__name__)
REPEAT_AFTER_S: Final = 3600.0
"""Seconds before the same Warning is emitted again. The API server keeps an event for an hour."""
MOST: Final = 50
"""Warnings that are remembered of one job: beyond that the oldest is forgotten, and may be emitted again."""
MOST_PER_REASON: Final = 3
"""How many pods of a job are named for one reason: if five hundred wait for the same node, three are enough."""


class EventDeduplicator(Generic[K]):
    """The events that were emitted lately: for each job, by its UID, the last message about each subject."""

    def __init__(self, clock: Clock, repeat_after_s: float, most: float = math.inf) -> None:
        """Emit the same message again after `repeat_after_s`. Remember `most` subjects of a job."""
        self._clock = clock
        self._repeat_after_s = repeat_after_s
        self._most = most
        self._emitted: dict[str, dict[K, tuple[int, float]]] = {}

    def should_emit(self, uid: str, subject: K, message: str = "") -> bool:
        """Return True unless this message about this subject was emitted lately. It counts as emitted from now on."""
        now, digest = self._clock.monotonic(), zlib.crc32(message.encode(errors="replace"))
        emitted = self._emitted.setdefault(uid, {})
        last_digest, last_at = emitted.get(subject, (digest, -math.inf))
        if last_digest == digest and now - last_at < self._repeat_after_s:
            return False
        emitted.pop(subject, None)  # the dict is ordered by time
        emitted[subject] = digest, now
        while len(emitted) > self._most:
            del emitted[next(iter(emitted))]
        return True

    def subjects(self, uid: str) -> Iterable[K]:
        """Return the subjects that are remembered of a job."""
        return self._emitted.get(uid, ())

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self._emitted.pop(uid, None)

    def forget_subject(self, uid: str, subject: K) -> None:
        """Forget what was emitted about one subject."""
        self._emitted.get(uid, {}).pop(subject, None)


class JobEvents:
    """Records events on the jobs of one kind."""

    def __init__(self, jobs: Resource, recorder: EventRecorder, clock: Clock, *, log_name: str = "tfjob_event") -> None:
        """`log_name` is the name of the log lines."""
        self._jobs = jobs
        self._recorder = recorder
        self._log_name = log_name
        self._warnings: EventDeduplicator[int] = EventDeduplicator(clock, REPEAT_AFTER_S, MOST)
        self._problems: EventDeduplicator[ProblemKey] = EventDeduplicator(clock, math.inf)

    def record(self, job: Meta, event_type: str, reason: str, message: str) -> None:
        """Record an event on a job, and log it. Returns at once; the recorder writes it when it can, or drops it."""
        self._log(event_type, reason, message)
        self.post(job, JobEvent(event_type, reason, message))

    def post(self, job: Meta, event: JobEvent) -> None:
        """Record an event without a log line: what it reports is logged already."""
        self._recorder.event(object_reference(self._jobs, job), event.type, event.reason, event.message)

    def warn(self, job: Meta, reason: str, message: str) -> None:
        """Record a Warning unless the same was recorded lately."""
        if self._warnings.should_emit(job.uid, zlib.crc32(f"{reason} {message}".encode(errors="replace"))):
            self.record(job, EventType.WARNING, reason, message)

    async def write(self, job: Meta, event: JobEvent, *, fact: str) -> None:
        """Return when an event is on the API server, or can never be. Raises ApiError when it cannot be written for now.

        `fact` names what the event states. The same fact has the same event name, so an operator that was killed in between
        does not write it twice.
        """
        reference = object_reference(self._jobs, job)
        await self._recorder.write(reference, event.type, event.reason, event.message, fact=fact)
        self._log(event.type, event.reason, event.message)

    def report(self, job: Meta, problems: Iterable[Problem], *, finished: bool = False) -> None:
        """Record the problems that were not reported yet. Nothing is remembered of a job that has finished (D17)."""
        if finished:
            self._problems.forget(job.uid)
        for problem in problems:
            others = (key for key in self._problems.subjects(job.uid) if key != problem.key)
            alike = sum(key[-1] == problem.key[-1] for key in others)
            if alike < MOST_PER_REASON and self._problems.should_emit(job.uid, problem.key):
                self.record(job, problem.event.type, problem.event.reason, problem.event.message)

    def forget(self, uid: str) -> None:
        """Forget a job that is gone."""
        self._warnings.forget(uid)
        self._problems.forget(uid)

    def _log(self, event_type: str, reason: str, message: str) -> None:
        write = log.info if event_type == EventType.NORMAL else log.warning
        write(self._log_name, reason=reason, message=message)
