"""Whether a running job makes progress, as far as its logs show. Pure.

A job with `progressDeadlineSeconds` is stalled if all its replicas run, and the observed ones have written no new log line for
that long: the deciding replica and up to `MAX_OBSERVED - 1` others. All must be silent: a chief may be the only one that logs,
and a worker that logs computes.

Silence is not a failure of a replica: no rule acts on it that does not name it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tfjob_operator.api.core import ContainerStatus, EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import (
    CONTAINER_NAME,
    REPLICA_TYPES,
    ConditionReason,
    ConditionType,
    EventReason,
)
from tfjob_operator.api.v1.name_ranges import ranges_of
from tfjob_operator.api.v1.types import TFJobSpec
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.jobs.pods import problem_of_job
from tfjob_operator.controller.tfjob.build.builder import deciding_type
from tfjob_operator.controller.tfjob.plan.replicas import Finished, Observed, Outcome, Replica, unfinished_keys
from tfjob_operator.controller.tfjob.plan.silence import (
    Logs,
    LogTarget,
    LogWatch,
    Stall,
    has_progressed,
    is_stalled,
)
from tfjob_operator.controller.tfjob.plan.status import StatusDraft
from tfjob_operator.controller.tfjob.plan.types import Plan

MAX_OBSERVED: Final = 16
"""The most replicas of a job whose logs are read."""
_ORDER: Final = {name: number for number, name in enumerate(REPLICA_TYPES)}


def find_stall(draft: StatusDraft, spec: TFJobSpec, finished: Finished, seen: Observed) -> Stall | None:
    """Determine which logs to read. If the job is stalled, set the condition, and return what was observed."""
    name = draft.job.metadata.name
    if spec.progress_deadline_s is None:
        return None
    keys = unfinished_keys(name, spec, finished)
    chosen = _observed_keys(spec, keys)
    running = (
        {} if seen.older else {replica.key: target for replica in seen.replicas if (target := _target_of(replica))}
    )
    targets = tuple(running[key] for key in chosen if key in running)
    watch = LogWatch(targets, spec.progress_deadline_s, is_paused=any(key not in running for key in keys))
    draft.log_watch = watch
    if not is_stalled(watch, draft.logs):
        return None
    stall = Stall(chosen[0], _cause(watch, chosen, draft.logs))
    message = f"TFJob {name} is stalled: {stall.cause}"
    was_stalled = conditions.is_true(draft, ConditionType.STALLED)
    draft.set_stalled(conditions.TRUE, ConditionReason.NO_PROGRESS, message)
    if not was_stalled:
        draft.emit(EventType.WARNING, ConditionReason.NO_PROGRESS, message)
    return stall


def end_stall(draft: StatusDraft, *, restarts: bool) -> None:
    """Set the condition Stalled of a job that continues to False, unless it may still apply."""
    if not conditions.is_true(draft, ConditionType.STALLED):
        return
    who, reason, watch = f"TFJob {draft.job.metadata.name}", ConditionReason.PROGRESSING, draft.log_watch
    if restarts:
        draft.set_stalled(conditions.FALSE, ConditionReason.RESTARTING, f"{who} is restarted.")
    elif watch is None:
        draft.set_stalled(conditions.FALSE, reason, f"{who} has no progressDeadlineSeconds.")
    elif watch.is_paused:
        draft.set_stalled(conditions.FALSE, reason, f"{who} is not stalled: not all of its replicas run.")
    elif has_progressed(watch, draft.logs):
        message = f"{who} is not stalled any more: it has new log lines."
        draft.set_stalled(conditions.FALSE, reason, message)
        draft.emit(EventType.NORMAL, reason, message)


def with_logs(plan: Plan, draft: StatusDraft) -> Plan:
    """Return the plan with the logs to read, and with a Warning if the permission to read them is missing."""
    failure = draft.logs.failure
    if draft.log_watch is None:
        return plan
    problems = (problem_of_job(EventReason.LOGS_UNAVAILABLE, failure),) if failure else ()
    return replace(plan, log_watch=draft.log_watch, problems=(*plan.problems, *problems))


def _observed_keys(spec: TFJobSpec, keys: Sequence[ReplicaKey]) -> list[ReplicaKey]:
    """Return the deciding replica, then those of all types with the lowest indices."""
    decider = deciding_type(spec.replicas)
    first = min((key for key in keys if key.type == decider), key=lambda key: key.index, default=None)
    return sorted(keys, key=lambda key: (key != first, key.index, _ORDER[key.type]))[:MAX_OBSERVED]


def _target_of(replica: Replica) -> LogTarget | None:
    """Return the run of the training container of a replica; None if it does not run."""
    if replica.terminating or replica.outcome is not Outcome.ACTIVE:
        return None
    statuses: Iterable[ContainerStatus] = replica.pod.status.container_statuses or ()
    training = next((status for status in statuses if status.name == CONTAINER_NAME), None)
    if training is None or training.state.waiting is not None or training.state.terminated is not None:
        return None
    return LogTarget(replica.pod.metadata.name, replica.uid, training.restart_count)


def _cause(watch: LogWatch, chosen: Iterable[ReplicaKey], logs: Logs) -> str:
    names = ranges_of(key.name for key in sorted(chosen, key=lambda key: (_ORDER[key.type], key.index)))
    first = watch.targets[0]
    line = logs.silences[first].line
    last = f"; last line of {first.pod}: {line}" if line else ""
    return f"no new log line for {watch.deadline_s}s in {names}{last}"
