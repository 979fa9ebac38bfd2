"""What was reported about the children of a job, so that it is not reported again at every attempt. All of it may be lost."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from tfjob_operator.controller.jobs.job_event import JobEvent
    from tfjob_operator.controller.jobs.problems import Problem, ProblemKey
    from tfjob_operator.workqueue import Clock

TOLD_FOR_S: Final = 3600.0
"""For how long a Warning with the same message is not repeated. Events live for an hour."""
MOST: Final = 50
"""How many Warnings of one job are remembered: beyond that the oldest is forgotten, and may be reported again."""
MOST_PER_REASON: Final = 3
"""How many pods of a job are named for one reason: if five hundred wait for the same node, three are enough."""


class Told:
    """The Warnings of each job, by its UID. If this memory is lost, they are recorded once more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[str, dict[int, float]] = {}

    def is_news(self, uid: str, message: str) -> bool:
        """Return whether this was not reported about a job lately, and remember that it is now."""
        now, digest = self._clock.monotonic(), zlib.crc32(message.encode(errors="replace"))
        told = self._told.setdefault(uid, {})
        if now - told.get(digest, -TOLD_FOR_S) < TOLD_FOR_S:
            return False
        told.pop(digest, None)
        told[digest] = now
        while len(told) > MOST:
            del told[next(iter(told))]
        return True

    def forget(self, uid: str) -> None:
        """Drop what is known of a job: it is gone."""
        self._told.pop(uid, None)


class ReportedProblems:
    """Which problems of which jobs were reported. If this memory is lost, they are reported again."""

    def __init__(self) -> None:
        self._of_job: dict[str, set[ProblemKey]] = {}

    def news(self, uid: str, problems: Collection[Problem]) -> list[JobEvent]:
        """Return the events about problems of this job that were not reported yet, and remember them as reported.

        Together with those that were, there are at most `MOST_PER_REASON` of a reason.
        """
        if not problems:
            return []
        told = self._of_job.setdefault(uid, set())
        seen = Counter(reason for _, _, reason in told)
        news = []
        for problem in problems:
            reason = problem.key[-1]
            if problem.key not in told and seen[reason] < MOST_PER_REASON:
                seen[reason] += 1
                told.add(problem.key)
                news.append(problem.event)
        return news

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a job."""
        self._of_job.pop(uid, None)
