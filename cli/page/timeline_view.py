"""The timeline of a job as the page draws it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tfjob_operator.api.text import clean
from tfjob_operator.cli.diagnosis.objects import Condition
from tfjob_operator.cli.page.pods_view import MAX_WORDS, seconds
from tfjob_operator.cli.timelines.build import timeline_of
from tfjob_operator.cli.timelines.job import Job as TimedJob
from tfjob_operator.cli.timelines.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.cli.diagnosis.objects import Event, Pod
    from tfjob_operator.cli.page.objects import Job
    from tfjob_operator.cli.timelines.values import Life, Span

MOST_LANES: Final = 300
"""How many replicas are drawn: a screen has no room for more, and browsers would be slow."""


def timeline_view(job: Job, pods: Sequence[Pod], events: Sequence[Event]) -> dict[str, Any]:
    """Return lanes of replicas with the lives of their pods, and when the job was suspended or held. An end of None is now."""
    timeline = timeline_of(_timed(job), pods, events)
    return {
        "start": seconds(timeline.start),
        "end": seconds(timeline.end),
        "lanes": [
            {"type": each.name.type, "index": each.name.number, "lives": [_life(life) for life in each.lives]}
            for each in timeline.replicas[:MOST_LANES]
        ],
        "more": max(0, len(timeline.replicas) - MOST_LANES),
        "spans": [*_spans("suspended", timeline.suspensions), *_spans("held", timeline.holds)],
    }


def _timed(job: Job) -> TimedJob:
    status = job.status
    conditions = tuple(
        Condition(
            type=each.type,
            status=each.status,
            reason=each.reason,
            message=each.message,
            last_transition_time=each.last_transition_time,
        )
        for each in status.conditions
    )
    timed = JobStatus(
        conditions=conditions,
        start_time=status.start_time,
        completion_time=status.completion_time,
        phase=status.phase,
        runtime_id=status.runtime_id,
    )
    return TimedJob(metadata=job.metadata, status=timed)


def _life(life: Life) -> dict[str, Any]:
    return {
        "pod": life.pod,
        "node": life.node,
        "start": seconds(life.start),
        "end": seconds(life.end),
        "ending": life.ending,
        "exit": life.exit_code,
        "reason": clean(life.reason, MAX_WORDS),
        "restarts": life.restarts,
        "intervals": [
            {
                "state": each.state,
                "start": seconds(each.start),
                "end": seconds(each.end),
                "reason": clean(each.reason, MAX_WORDS),
                "exit": each.exit_code,
            }
            for each in life.intervals
        ],
    }


def _spans(kind: str, spans: Sequence[Span]) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "start": seconds(each.start),
            "end": seconds(each.end),
            "message": clean(each.message, MAX_WORDS),
        }
        for each in spans
    ]
