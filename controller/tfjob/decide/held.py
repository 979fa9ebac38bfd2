"""What to do about a job whose specification is invalid, or is refused by the API server. Pure.

A job that has not begun fails: nothing is lost. One that has begun is *held*: its pods run on, and no pod is created, deleted
or judged, until the specification is corrected; then the job continues as before. Meanwhile facts are recorded, since pods may
go: which replicas have succeeded, and how often each was restarted. Fields that can be read still count: a deadline, the TTL
after an end, a suspension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.api.v1.types import Begun, InvalidSpec, Mistake
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.tfjob.decide.actions import Plan
from tfjob_operator.controller.tfjob.decide.announcements import announce
from tfjob_operator.controller.tfjob.decide.ending import conclude, past_deadline, until_deadline
from tfjob_operator.controller.tfjob.decide.facts import finished_indices, has_begun
from tfjob_operator.controller.tfjob.decide.problems import problems_of
from tfjob_operator.controller.tfjob.decide.suspension import take_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.api.v1.types import JobStatus, TFJob, TFJobSpec
    from tfjob_operator.controller.tfjob.decide.observe import Observed
    from tfjob_operator.controller.tfjob.decide.replicas import Replica
    from tfjob_operator.controller.tfjob.decide.status_draft import StatusDraft


def refused(spec: TFJobSpec | InvalidSpec, words: str) -> InvalidSpec:
    """Return the specification as invalid, because the API server has refused a child of it, in these words."""
    return InvalidSpec.of(spec, Mistake("", words), ConditionReason.REFUSED)


def unless_refused(job: TFJob, spec: TFJobSpec | InvalidSpec) -> TFJobSpec | InvalidSpec:
    """Return the specification, as invalid if the API server has refused it: it is not tried again before it is edited."""
    held = conditions.find(job.status.conditions, ConditionType.HELD)
    if isinstance(spec, InvalidSpec) or held is None or held.status != conditions.TRUE:
        return spec
    if held.reason != ConditionReason.REFUSED or job.status.observed_generation != job.metadata.generation:
        return spec
    return refused(spec, held.message)


def invalid_message(spec: InvalidSpec) -> str:
    """Return the text of the Failed condition and of the Warning event; tools look for "the spec is invalid"."""
    return f"Failed to marshal the object to TFJob; the spec is invalid: {spec.text}"


def hold(draft: StatusDraft, spec: InvalidSpec, seen: Observed) -> Plan:
    """Hold a job that has begun; any other fails."""
    if not _is_spared(draft.job, spec, has_pods=seen.has_pods):
        return _fail(draft, spec)
    sizes = _sizes(draft.job.status, seen.replicas)
    seen = seen.limited_to(sizes)
    draft.create()
    draft.record(seen.replicas, finished_indices(draft.job.status, sizes, seen.replicas))
    draft.begun = draft.begun or Begun()
    announce(draft, spec)
    return take_all(draft, seen) if spec.suspend else _wait(draft, spec, seen)


def _is_spared(job: TFJob, spec: InvalidSpec, *, has_pods: bool) -> bool:
    """Whether the job is held and does not fail: it has begun. One that was refused without an edit would never have run."""
    if spec.reason == ConditionReason.REFUSED:
        return job.status.begun is not None and job.metadata.generation > job.status.begun.generation
    return has_begun(job.status, has_pods=has_pods)


def _fail(draft: StatusDraft, spec: InvalidSpec) -> Plan:
    message = invalid_message(spec)
    draft.end(ConditionType.FAILED, ConditionReason.INVALID, message)
    draft.emit(EventType.WARNING, ConditionReason.INVALID, message)
    return Plan(status=draft.freeze(), events=tuple(draft.events))


def _wait(draft: StatusDraft, spec: InvalidSpec, seen: Observed) -> Plan:
    """Wait for an edit, and for the job's deadline."""
    deadline_s = spec.active_deadline_s
    if conditions.is_true(draft, ConditionType.SUSPENDED):
        deadline_s = None  # it is resumed when the specification is corrected, and its time starts anew then
    else:
        draft.start()
    ending = past_deadline(draft, deadline_s)
    if ending is not None:
        return conclude(draft, ending, spec.clean_pod_policy, seen.replicas)
    return Plan(
        status=draft.freeze(),
        events=tuple(draft.events),
        problems=problems_of(seen.replicas),
        requeue_after_s=until_deadline(draft, deadline_s),
    )


def _sizes(status: JobStatus, observed: Iterable[Replica]) -> dict[str, int]:
    """Return how many replicas of each type there should be. Where the status does not say, as many as there are."""
    if status.begun is not None and status.begun.replicas:
        return status.begun.replicas
    present = {replica.type for replica in observed} | status.replica_statuses.keys() | status.finished_indices.keys()
    return {name: MAX_REPLICAS for name in c.REPLICA_TYPES if name in present}
