"""What to do about a job whose specification is wrong. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.v1 import conditions
from api.v1 import constants as c
from api.v1.validation import invalid_message
from controller.tfjob import status as statuses
from controller.tfjob.actions import NOTHING, JobEvent, Plan
from controller.tfjob.clean_up import Seen, after_the_end
from controller.tfjob.gang import released
from controller.tfjob.replicas import observe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from api.v1.children import Pod, Service
    from api.v1.types import InvalidSpec, TFJob
    from controller.tfjob.gang import Gang


def plan_invalid(
    job: TFJob,
    spec: InvalidSpec,
    pods: Sequence[Pod],
    services: Sequence[Service],
    now: datetime,
    *,
    gang: Gang | None = None,
) -> Plan:
    """Decide what to do about a job whose specification is wrong: it has failed, and what it may have is cleaned up.

    Unless it is somebody else's: then the mistakes are, too (B75).
    """
    if job.metadata.deletion_timestamp is not None or spec.managed_by not in c.MANAGED_BY_US:
        return NOTHING
    if conditions.is_finished(job.status):
        failed = conditions.find(job.status.conditions, c.FAILED)
        never_good = failed is not None and failed.reason == c.REASON_INVALID
        policy = c.CLEAN_RUNNING if never_good else spec.clean_pod_policy
        return released(after_the_end(job, Seen(observe(pods), (), services), policy, spec.ttl_s, now), gang)
    message = invalid_message(spec.mistakes)
    status = statuses.ended(job.status, c.FAILED, c.REASON_INVALID, message, statuses.whole(now))
    return Plan(
        status=statuses.stamped(job, status, statuses.whole(now)),
        events=(JobEvent(c.WARNING, c.REASON_INVALID, message),),
    )
