"""Events on jobs. Each is recorded and logged; a problem of a pod is reported once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.controller.jobs.told import ReportedProblems
from tfjob_operator.controller.tfjob.build.references import reference_to

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.events.recorder import EventRecorder
    from tfjob_operator.controller.jobs.job_event import JobEvent
    from tfjob_operator.controller.jobs.problems import Problem

log = structlog.get_logger(__name__)


class JobEvents:
    """Records events on jobs. Remembers which problems were reported; if that memory is lost, they are reported again."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._reported = ReportedProblems()

    def record(self, job: TFJob, event_type: str, reason: str, message: str) -> None:
        """Record an event on a job, and log it. Returns at once; the recorder writes it when it can, or drops it."""
        _log(event_type, reason, message)
        self._recorder.event(reference_to(job), event_type, reason, message)

    async def write(self, job: TFJob, event: JobEvent, *, fact: str) -> None:
        """Return when an event is on the API server, or can never be. Raises ApiError when it cannot be written for now.

        `fact` names what the event states. The same fact has the same event name, so an operator that was killed in between
        does not write it twice.
        """
        await self._recorder.write(reference_to(job), event.type, event.reason, event.message, fact=fact)
        _log(event.type, event.reason, event.message)

    def report(self, job: TFJob, problems: Collection[Problem]) -> None:
        """Record those problems that were not reported yet. Nothing is remembered of a job that has ended (D17)."""
        if conditions.is_finished(job.status):
            self.forget(job.metadata.uid)
        for event in self._reported.news(job.metadata.uid, problems):
            self.record(job, event.type, event.reason, event.message)

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a job."""
        self._reported.forget(uid)


def _log(event_type: str, reason: str, message: str) -> None:
    write = log.info if event_type == EventType.NORMAL else log.warning
    write("tfjob_event", reason=reason, message=message)
