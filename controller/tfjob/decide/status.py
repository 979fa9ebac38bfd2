"""Pieces of a job's status: its counters, its conditions on the way, its end. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import Begun, JobStatus, ReplicaStatus
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.tfjob.decide.indices import format_indices, parse_indices
from tfjob_operator.controller.tfjob.decide.observe import Outcome, count
from tfjob_operator.controller.tfjob.decide.restarts import merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.tfjob.decide.observe import Replica

Finished = dict[str, set[int]]
"""Indices that have succeeded, by replica type."""


def whole(now: datetime) -> datetime:
    """Times in a status have whole seconds, as all times of the API; limits are reckoned with the exact one."""
    return now.replace(microsecond=0)


def stamped(job: TFJob, status: JobStatus, now: datetime) -> JobStatus | None:
    """The status to write, or None when it says what is written already: an idle job costs no call."""
    status = msgspec.structs.replace(status, observed_generation=job.metadata.generation)
    if status == job.status:
        return None
    return msgspec.structs.replace(status, last_reconcile_time=now)


def finished_indices(status: JobStatus, sizes: Mapping[str, int], replicas: Iterable[Replica]) -> Finished:
    """Which replicas have succeeded, of a job of these sizes: those remembered, and those whose pods say so now (B42)."""
    found = {name: parse_indices(status.finished_indices.get(name, ""), size) for name, size in sizes.items()}
    for replica in replicas:
        if replica.outcome is Outcome.SUCCEEDED:
            found[replica.type].add(replica.index)
    return found


def remembered(status: JobStatus, finished: Finished) -> dict[str, str]:
    """What to write about finished indices. What a scaled-down type has beyond its present size is kept."""
    written = dict(status.finished_indices)
    for name, indices in finished.items():
        beyond = parse_indices(written.get(name, ""), below=MAX_REPLICAS)
        if indices | beyond:
            written[name] = format_indices(indices | beyond)
    return written


def has_begun(status: JobStatus, *, has_pods: bool) -> bool:
    """Whether the job has ever had a pod, or the operator has set out to make one. Older operators did not note it.

    `has_pods`: it has some now.
    """
    ran = any(each.type in {c.RUNNING, c.RESTARTING} for each in status.conditions)
    return bool(status.begun is not None or has_pods or ran or status.finished_indices or status.restarts)


def begun(job: TFJob, sizes: Mapping[str, int], *, has_pods: bool, makes_pods: bool) -> Begun | None:
    """What to write about the job's beginning; `sizes` are those of its specification, which is good.

    It is written with the first status, which comes before the first pod, so it costs no write and is there in time.
    """
    if job.status.begun is not None:
        return msgspec.structs.replace(job.status.begun, replicas=dict(sizes))
    if has_begun(job.status, has_pods=has_pods):
        # Where there is a status another operator has written it, and what was edited since nobody knows.
        generation = 0 if job.status.conditions else job.metadata.generation
        return Begun(generation=generation, replicas=dict(sizes))
    return Begun(generation=job.metadata.generation, replicas=dict(sizes)) if makes_pods else None


def with_memory_of(status: JobStatus, observed: JobStatus) -> JobStatus:
    """The status with what `observed` knows of finished replicas, restarts and the beginning. Neither need be the newer one.

    The memory may be of an older version of the job: another life of the operator may have written since.
    """
    finished = {
        name: set().union(
            *(parse_indices(each.finished_indices.get(name, ""), below=MAX_REPLICAS) for each in (status, observed))
        )
        for name in status.finished_indices | observed.finished_indices
    }
    return msgspec.structs.replace(
        status,
        finished_indices={name: format_indices(indices) for name, indices in finished.items()},
        restarts=merged(status.restarts, observed.restarts),
        begun=_merged_begun(status, observed),
    )


def _merged_begun(status: JobStatus, observed: JobStatus) -> Begun | None:
    """It began at the earlier of the generations; the sizes are those of the later specification."""
    if status.begun is None or observed.begun is None:
        return status.begun or observed.begun
    newer = observed if observed.observed_generation > status.observed_generation else status
    generation = min(status.begun.generation, observed.begun.generation)
    return msgspec.structs.replace(newer.begun or status.begun, generation=generation)


def counted(
    replicas: Sequence[Replica], types: Iterable[str], finished: Mapping[str, set[int]]
) -> dict[str, ReplicaStatus]:
    """Counters per type; a replica that has succeeded stays counted when its pod is gone (B22)."""
    return {
        name: msgspec.structs.replace(found, succeeded=len(finished.get(name, ())))
        for name, found in count(replicas, types).items()
    }


def only_starts(written: JobStatus, status: JobStatus) -> bool:
    """Whether `status` says no more than `written` but that more pods are active."""
    before, after = written.replica_statuses, status.replica_statuses
    if before.keys() != after.keys() or any(after[name].active < before[name].active for name in before):
        return False
    same = {name: msgspec.structs.replace(found, active=before[name].active) for name, found in after.items()}
    return written == msgspec.structs.replace(
        status, replica_statuses=same, last_reconcile_time=written.last_reconcile_time
    )


def is_beginning(status: JobStatus) -> bool:
    """Whether `status` says of a job's life no more than that it has begun."""
    return all(each.type in {c.CREATED, c.RUNNING} for each in status.conditions)


def created(job: TFJob, status: JobStatus, now: datetime) -> JobStatus:
    """With the Created condition, and what an autoscaler asks the scale subresource for."""
    name, kind = c.LABEL_PREFIX + c.LABEL_JOB_NAME, c.LABEL_PREFIX + c.LABEL_REPLICA_TYPE
    selector = f"{name}={job.metadata.name},{kind}={c.WORKER.lower()}"
    status = msgspec.structs.replace(status, worker_selector=selector)
    message = f"TFJob {job.metadata.name} is created."
    return with_true(status, c.CREATED, c.REASON_CREATED, message, now)


def with_true(status: JobStatus, condition: str, reason: str, message: str, now: datetime) -> JobStatus:
    """With this condition True."""
    changed = conditions.set_true(status.conditions, condition, reason, message, now)
    return msgspec.structs.replace(status, conditions=changed)


def ended(status: JobStatus, condition: str, reason: str, message: str, now: datetime) -> JobStatus:
    """With this last condition, and a completion time; every end has both times (B44)."""
    status = with_true(status, condition, reason, message, now)
    return msgspec.structs.replace(status, start_time=status.start_time or now, completion_time=now)
