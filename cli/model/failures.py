"""The failure of a replica that ended a job. Pure."""

from __future__ import annotations

import msgspec

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.types import JobAttempt, JobCondition, JobStatus
from tfjob_operator.cli.model import older


def failure_of(status: JobStatus, failed: JobCondition) -> JobAttempt | None:
    """Return the last attempt of a failed job, or of an Ending one, with its failure; None if no replica decided the end."""
    record = conditions.end_record(status)
    if record is not None:
        return record.failure
    found = older.failure_in(failed.message)
    return None if found is None else msgspec.convert(found, JobAttempt)
