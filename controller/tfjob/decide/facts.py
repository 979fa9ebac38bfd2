"""Facts that a status keeps, since the pods that prove them may be gone: finished replicas, that the job has begun. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.v1.constants import ConditionType, Network
from tfjob_operator.api.v1.indices import format_indices, parse_indices
from tfjob_operator.api.v1.types import Begun
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.tfjob.decide.older_pods import is_ours, made_of
from tfjob_operator.controller.tfjob.decide.replicas import Outcome, count
from tfjob_operator.controller.tfjob.decide.restarts import merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus, TFJob, TFJobSpec
    from tfjob_operator.controller.tfjob.decide.replicas import Replica

Finished = dict[str, set[int]]
"""Indices that have succeeded, by replica type."""


def finished_indices(status: JobStatus, sizes: Mapping[str, int], replicas: Iterable[Replica]) -> Finished:
    """Return which replicas have succeeded, of a job of these sizes: by the status, or by their pods now (B42)."""
    found = {name: parse_indices(status.finished_indices.get(name, ""), size) for name, size in sizes.items()}
    for replica in replicas:
        if replica.outcome is Outcome.SUCCEEDED:
            found[replica.type].add(replica.index)
    return found


def remembered(status: JobStatus, finished: Finished) -> dict[str, str]:
    """Return the finished indices to write. Those beyond the present size of a type that was scaled down are kept."""
    written = dict(status.finished_indices)
    for name, indices in finished.items():
        beyond = parse_indices(written.get(name, ""), below=MAX_REPLICAS)
        if indices or beyond:
            written[name] = format_indices(indices | beyond)
    return written


def has_begun(status: JobStatus, *, has_pods: bool) -> bool:
    """Return whether pods were ever created for the job, or were about to be. Older operators did not record it.

    `has_pods`: it has some now.
    """
    ran = any(each.type in {ConditionType.RUNNING, ConditionType.RESTARTING} for each in status.conditions)
    return bool(status.begun is not None or has_pods or ran or status.finished_indices or status.restarts)


def begun(job: TFJob, spec: TFJobSpec, *, has_pods: bool, makes_pods: bool) -> Begun | None:
    """Return what `status.begun` should say.

    It is written with the first status, which comes before the first pod, so it costs no write and is there in time.
    """
    found = _beginning(job, spec, has_pods=has_pods, makes_pods=makes_pods)
    return found and msgspec.structs.replace(found, made_of=_parts(job, spec))


def _beginning(job: TFJob, spec: TFJobSpec, *, has_pods: bool, makes_pods: bool) -> Begun | None:
    before = job.status.begun
    if spec.too_large is not None:
        return before  # which is what it was cut down to
    if before is not None:
        return msgspec.structs.replace(before, replicas=spec.sizes)
    network = "" if spec.network is Network.PER_REPLICA else spec.network
    if has_begun(job.status, has_pods=has_pods):
        # Where there is a status another operator has written it, and what was edited since nobody knows.
        generation = 0 if job.status.conditions else job.metadata.generation
        return Begun(generation, spec.sizes, network)
    return Begun(job.metadata.generation, spec.sizes, network) if makes_pods else None


def _parts(job: TFJob, spec: TFJobSpec) -> dict[str, str]:
    """Return what pods are made of: noted when this specification was first seen, since to hash it takes as long as to plan.

    What another release noted by a scheme of its own is noted anew.
    """
    status = job.status
    if (
        status.begun is not None
        and is_ours(status.begun.made_of)
        and status.observed_generation == job.metadata.generation
    ):
        return status.begun.made_of
    return made_of(job, spec)


def with_memory_of(status: JobStatus, observed: JobStatus) -> JobStatus:
    """Merge what two statuses know of finished replicas, restarts and the beginning; either may be the newer one.

    `observed` may be computed from an older version of the job: another operator process may have written since.
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
    """Return the earlier of the two generations, and the sizes of the later specification.

    What pods are made of is that of `status`: until the other one is written, the job has not been told what stays.
    """
    if status.begun is None or observed.begun is None:
        return status.begun or observed.begun
    newer = observed if observed.observed_generation > status.observed_generation else status
    generation = min(status.begun.generation, observed.begun.generation)
    return msgspec.structs.replace(newer.begun or status.begun, generation=generation, made_of=status.begun.made_of)


def counted(replicas: Sequence[Replica], finished: Finished) -> dict[str, ReplicaStatus]:
    """Count pods for the types in `finished`; a replica that has succeeded stays counted when its pod is gone (B22)."""
    return {
        name: msgspec.structs.replace(found, succeeded=len(finished[name])) if finished[name] else found
        for name, found in count(replicas, finished).items()
    }
