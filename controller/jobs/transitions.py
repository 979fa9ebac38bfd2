"""Counts and logs what is new in the conditions of a job, once they are on the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfjob_operator.api.v1.types import JobCondition
    from tfjob_operator.controller.jobs.metrics import JobMetrics

log = structlog.get_logger(__name__)


def observe(metrics: JobMetrics, namespace: str, before: Sequence[JobCondition], after: Sequence[JobCondition]) -> None:
    """Count and log each condition that has become True. `before` are the conditions that `after` replaced."""
    counters: dict[str, Callable[[str], None]] = {
        ConditionType.CREATED: metrics.job_created,
        ConditionType.SUCCEEDED: metrics.job_succeeded,
        ConditionType.FAILED: metrics.job_failed,
        ConditionType.RESTARTING: metrics.job_restarted,
    }
    were_true = {each.type for each in before if each.status == conditions.TRUE}
    for condition in after:
        if condition.status != conditions.TRUE or condition.type in were_true:
            continue
        if condition.type in counters:
            counters[condition.type](namespace)
        tell = log.warning if condition.type in {ConditionType.FAILED, ConditionType.RESTARTING} else log.info
        tell("tfjob_condition", condition=condition.type, reason=condition.reason, message=condition.message)
