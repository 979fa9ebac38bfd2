"""The failure of a replica that ended a job, and whether the operator can find hangs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.api.v1.types import JobAttempt, JobCondition, JobStatus
from tfjob_operator.cli.model import older
from tfjob_operator.cli.model.objects import ConditionDetails
from tfjob_operator.cli.model.words import seconds_between


def failure_of(status: JobStatus, failed: JobCondition) -> JobAttempt | None:
    """Return the last attempt of a failed job, or of an Ending one, with its failure; None if no replica decided the end."""
    record = conditions.end_record(status)
    if record is not None:
        return record.failure
    found = older.failure_in(failed.message)
    return None if found is None else msgspec.convert(found, JobAttempt)


def has_read_logs(
    found: Iterable[JobCondition | ConditionDetails], attempts: Iterable[JobAttempt], since: datetime
) -> bool:
    """Return True if the operator has judged the progress of a job after `since`, for which it reads logs.

    The age of the event LogsUnavailable does not show this: the operator records it only once.
    """
    times = [each.last_transition_time for each in found if each.type == ConditionType.STALLED]
    times += [each.end_time for each in attempts if each.reason == ConditionReason.NO_PROGRESS]
    return any(at is not None and seconds_between(since, at) > 0 for at in times)
