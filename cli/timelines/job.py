"""The slice of a job, of any dialect, of which a timeline is made. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from tfjob_operator.api.meta import Struct
from tfjob_operator.cli.diagnosis.objects import Condition, LifeMeta


class JobStatus(Struct, frozen=True):
    """When a job began and ended, and its conditions, in their order; the last two are of the alpha dialect alone."""

    conditions: tuple[Condition, ...] | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None
    phase: str = ""
    runtime_id: str = ""


class Job(Struct, frozen=True):
    """A job."""

    metadata: LifeMeta = LifeMeta()
    status: JobStatus = JobStatus()


class _Bare(Struct, frozen=True):
    metadata: LifeMeta = LifeMeta()


def job_of(raw: bytes | msgspec.Raw) -> Job:
    """Decode a job; one whose status does not decode gets an empty one. Raises ValidationError if its metadata does not."""
    try:
        return msgspec.json.decode(raw, type=Job, strict=False)
    except msgspec.ValidationError:
        return Job(metadata=msgspec.json.decode(raw, type=_Bare, strict=False).metadata)
