"""The event on a job that a plan asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event on the job. Events of a plan are recorded once the plan's status is on the server."""

    type: str
    reason: str
    message: str
