"""Events on jobs: each is recorded on its job and logged; a problem of a pod is reported once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.controller.tfjob.build.references import reference_to
from tfjob_operator.controller.tfjob.decide.problems import unreported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.events.recorder import EventRecorder
    from tfjob_operator.controller.tfjob.decide.actions import JobEvent, Problem, ProblemKey

log = structlog.get_logger(__name__)


class JobEvents:
    """Records events on jobs. Remembers which problems were reported; if that is lost, they are reported again."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._told: dict[str, set[ProblemKey]] = {}

    def record(self, job: TFJob, event_type: str, reason: str, message: str) -> None:
        """Record an event on a job, and log it. Returns at once; the recorder writes it when it can, or drops it."""
        _log(event_type, reason, message)
        self._recorder.event(reference_to(job), event_type, reason, message)

    async def write(self, job: TFJob, event: JobEvent, *, fact: str) -> None:
        """Return when an event is on the server, or can never be. Raises ApiError when it can not be written for now.

        `fact` names what it states, so that an operator that is killed in between does not write it twice.
        """
        await self._recorder.write(reference_to(job), event.type, event.reason, event.message, fact=fact)
        _log(event.type, event.reason, event.message)

    def report(self, job: TFJob, problems: Iterable[Problem]) -> None:
        """Record those problems that were not reported yet. Nothing is remembered of a job that has ended (D17)."""
        if conditions.is_finished(job.status):
            self.forget(job.metadata.uid)
        if not problems:
            return
        told = self._told.setdefault(job.metadata.uid, set())
        for problem in unreported(problems, told):
            told.add(problem.key)
            self.record(job, problem.event.type, problem.event.reason, problem.event.message)

    def forget(self, uid: str) -> None:
        """Drop what is known of a job."""
        self._told.pop(uid, None)


def _log(event_type: str, reason: str, message: str) -> None:
    write = log.info if event_type == EventType.NORMAL else log.warning
    write("tfjob_event", reason=reason, message=message)
