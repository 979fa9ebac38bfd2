"""What to do about a job whose specification is wrong, or is refused by the API server. Pure.

A job that has never begun fails: nothing is lost. One that has begun is *held*: what runs runs on, and no pod is made, deleted
or judged, until the specification is mended; then everything goes on as if nothing had been. Facts are written down
meanwhile, since pods may go: which replicas have succeeded, and how often each was restarted. What the user says clearly is
still heeded: a deadline, the TTL after an end, a suspension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import Begun, InvalidSpec, TFJobSpec
from tfjob_operator.api.v1.validation import MAX_REPLICAS, invalid_message, listed
from tfjob_operator.controller.tfjob.decide import status as statuses
from tfjob_operator.controller.tfjob.decide.actions import NOTHING, JobEvent, Plan
from tfjob_operator.controller.tfjob.decide.clean_up import Seen, after_the_end, see, suspended
from tfjob_operator.controller.tfjob.decide.ending import conclude, past_deadline, until_deadline
from tfjob_operator.controller.tfjob.decide.gang import without_pod_group
from tfjob_operator.controller.tfjob.decide.problems import problems_of
from tfjob_operator.controller.tfjob.decide.restarts import account

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from tfjob_operator.api.v1.children import Pod, Service
    from tfjob_operator.api.v1.types import JobStatus, TFJob
    from tfjob_operator.controller.tfjob.decide.gang import Gang
    from tfjob_operator.controller.tfjob.decide.observe import Replica

Told = tuple["JobStatus", tuple[JobEvent, ...]]
"""A status, and what is to be told when it is on the server."""

_HELD: Final = "is held: what runs runs on, and nothing is made, deleted or judged until the spec is mended"
_WORDS: Final = {
    c.REASON_INVALID: f"{_HELD}; the spec is invalid",
    c.REASON_REFUSED: f"{_HELD}; the API server takes it no more",
    c.REASON_TOO_LARGE: "keeps its number of replicas, and is otherwise looked after; what the spec asks for is too much",
}


def hold(job: TFJob, status: JobStatus, reason: str, mistakes: Iterable[str], now: datetime) -> Told:
    """Say that the job is held, and warn of it: once for the same mistakes."""
    message = listed(mistakes)
    found = conditions.set_held(status.conditions, conditions.TRUE, reason, message, statuses.whole(now))
    if found is status.conditions:
        return status, ()
    text = f"TFJob {job.metadata.name} {_WORDS[reason]}: {message}"
    return msgspec.structs.replace(status, conditions=found), (JobEvent(c.WARNING, reason, text),)


def let_go(job: TFJob, status: JobStatus, now: datetime) -> Told:
    """Say that the job is held no more, if it was."""
    if not conditions.is_true(status, c.HELD):
        return status, ()
    text = f"TFJob {job.metadata.name} goes on: its spec is mended."
    found = conditions.set_held(status.conditions, conditions.FALSE, c.REASON_MENDED, text, statuses.whole(now))
    return msgspec.structs.replace(status, conditions=found), (JobEvent(c.NORMAL, c.REASON_MENDED, text),)


def refused(spec: TFJobSpec | InvalidSpec, words: str) -> InvalidSpec:
    """A specification that seems good to us, and of which the API server refuses a child, in these words."""
    return InvalidSpec.of(spec, words, c.REASON_REFUSED)


def unless_refused(job: TFJob, spec: TFJobSpec | InvalidSpec) -> TFJobSpec | InvalidSpec:
    """The specification, or that it was refused: nothing is tried again before it is edited."""
    held = conditions.find(job.status.conditions, c.HELD)
    if isinstance(spec, InvalidSpec) or held is None or held.status != conditions.TRUE:
        return spec
    if held.reason != c.REASON_REFUSED or job.status.observed_generation != job.metadata.generation:
        return spec
    return refused(spec, held.message)


def plan_invalid(
    job: TFJob,
    spec: InvalidSpec,
    pods: Sequence[Pod],
    services: Sequence[Service],
    now: datetime,
    *,
    gang: Gang | None = None,
) -> Plan:
    """Decide what to do about a job whose specification is wrong: it is held if it has begun, and fails if it has not.

    Unless it is somebody else's: then the mistakes are, too (B75).
    """
    if job.metadata.deletion_timestamp is not None or spec.managed_by not in c.MANAGED_BY_US:
        return NOTHING
    if conditions.is_finished(job.status):
        failed = conditions.find(job.status.conditions, c.FAILED)
        never_good = failed is not None and failed.reason == c.REASON_INVALID
        policy = c.CLEAN_RUNNING if never_good else spec.clean_pod_policy
        return without_pod_group(after_the_end(job, see(job, pods, services), policy, spec.ttl_s, now), gang)
    if not _is_spared(job, spec, pods):
        return _failed(job, spec, statuses.whole(now))
    return _held(job, spec, pods, services, now, gang=gang)


def _failed(job: TFJob, spec: InvalidSpec, now: datetime) -> Plan:
    message = invalid_message(spec.mistakes)
    status = statuses.ended(job.status, c.FAILED, c.REASON_INVALID, message, now)
    events = (JobEvent(c.WARNING, c.REASON_INVALID, message),)
    return Plan(status=statuses.stamped(job, status, now), events=events)


def _held(
    job: TFJob,
    spec: InvalidSpec,
    pods: Sequence[Pod],
    services: Sequence[Service],
    now: datetime,
    *,
    gang: Gang | None,
) -> Plan:
    """What goes on of a job that is held."""
    seen, status, events = _observed(job, spec, pods, services, now)
    if spec.suspend:
        return without_pod_group(suspended(job, status, seen, now, events=events), gang)
    deadline_s = spec.active_deadline_s
    if conditions.is_true(status, c.SUSPENDED):
        deadline_s = None  # it is resumed when the specification is mended, and its time starts anew then
    else:
        status = msgspec.structs.replace(status, start_time=status.start_time or statuses.whole(now))
    ending = past_deadline(job, status, deadline_s, now)
    if ending is not None:
        return conclude(job, status, ending, spec.clean_pod_policy, seen.replicas, now=now, events=events)
    return Plan(
        status=statuses.stamped(job, status, statuses.whole(now)),
        events=events,
        problems=problems_of(seen.replicas),
        requeue_after_s=until_deadline(status, deadline_s, now),
    )


def _is_spared(job: TFJob, spec: InvalidSpec, pods: Sequence[Pod]) -> bool:
    """Whether an edit would end what has begun. What was refused without ever having been edited would never have run."""
    if spec.reason == c.REASON_REFUSED:
        return job.status.begun is not None and job.metadata.generation > job.status.begun.generation
    return statuses.has_begun(job.status, has_pods=bool(pods))


def _observed(
    job: TFJob, spec: InvalidSpec, pods: Sequence[Pod], services: Sequence[Service], now: datetime
) -> tuple[Seen, JobStatus, tuple[JobEvent, ...]]:
    """What is there, by the sizes of the last good specification, and the status that says so and that the job is held."""
    sizes = _sizes(job.status, see(job, pods, services).replicas)
    seen = see(job, pods, services, lambda replica: replica.index < sizes.get(replica.type, 0))
    finished = statuses.finished_indices(job.status, sizes, seen.replicas)
    status = msgspec.structs.replace(
        statuses.created(job, job.status, statuses.whole(now)),
        replica_statuses=statuses.counted(seen.replicas, sizes, finished),
        finished_indices=statuses.remembered(job.status, finished),
        restarts=account(job.status.restarts, seen.replicas, ()),
        begun=job.status.begun or Begun(),
    )
    status, events = hold(job, status, spec.reason, spec.mistakes, now)
    return seen, status, events


def _sizes(status: JobStatus, observed: Iterable[Replica]) -> dict[str, int]:
    """How many replicas there are to be. Where no operator has noted it, all that are there are."""
    if status.begun is not None and status.begun.replicas:
        return status.begun.replicas
    present = {replica.type for replica in observed} | status.replica_statuses.keys() | status.finished_indices.keys()
    return {name: MAX_REPLICAS for name in c.REPLICA_TYPES if name in present}
