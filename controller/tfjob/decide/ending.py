"""How a job ends: by its replicas, or by a limit of its own. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.tfjob.decide import status as statuses
from tfjob_operator.controller.tfjob.decide.actions import JobEvent, Plan
from tfjob_operator.controller.tfjob.decide.clean_up import policy_after, without_active
from tfjob_operator.controller.tfjob.decide.verdict import to_clean_up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tfjob_operator.api.v1.types import JobStatus, TFJob
    from tfjob_operator.controller.tfjob.decide.observe import Replica


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ends: the condition that says so."""

    condition: str
    reason: str
    message: str


_EVENT_OF: Final = {c.SUCCEEDED: c.REASON_SUCCEEDED, c.FAILED: c.REASON_FAILED}


def until_deadline(status: JobStatus, deadline_s: int | None, now: datetime) -> float | None:
    """Seconds that are left of `activeDeadlineSeconds`; None where there is none, or the job has not started."""
    if deadline_s is None or status.start_time is None:
        return None
    return deadline_s - (now - status.start_time).total_seconds()


def past_deadline(job: TFJob, status: JobStatus, deadline_s: int | None, now: datetime) -> Ending | None:
    """The end of a job that has been active for longer than it may."""
    left = until_deadline(status, deadline_s, now)
    if left is None or left > 0:
        return None
    message = f"Job {job.metadata.name} has failed because it was active longer than specified deadline"
    return Ending(c.FAILED, c.REASON_LIMIT, message)


def conclude(
    job: TFJob,
    status: JobStatus,
    ending: Ending,
    clean_pod_policy: str,
    replicas: Sequence[Replica],
    *,
    now: datetime,
    events: tuple[JobEvent, ...] = (),
) -> Plan:
    """Write the end down, after these events, and nothing else: clean-up is for later plans, which find it written."""
    status = statuses.ended(status, ending.condition, ending.reason, ending.message, statuses.whole(now))
    leaving = to_clean_up(policy_after(status, clean_pod_policy), replicas)
    counts = without_active(status.replica_statuses, replicas, leaving)
    status = msgspec.structs.replace(status, replica_statuses=counts)
    event = JobEvent(c.NORMAL, _EVENT_OF[ending.condition], ending.message)
    return Plan(status=statuses.stamped(job, status, statuses.whole(now)), events=(*events, event))
