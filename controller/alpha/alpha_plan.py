"""Plans one job of the alpha dialect from its observed state. Pure: no clock, I/O, logging or memory.

As in `controller.tfjob`, the status is written first, then children are created, then deleted. So if the operator is killed
between any two calls, it can resume.

Services are created first, so that a RuntimeId used by another job is detected before any pod runs under names with it. Batch
Jobs are created when all services exist; then the job has started. If the spec is invalid, or the API server rejects it, a job
that has not started fails; a started job is put on hold until the spec is fixed, as in v1.

tf-operator 0.3 created pods without Jobs, named by job, replica and five random characters. They are not found by name, only by
their labels. The children of this operator have these labels too.

As in `controller.tfjob`, a status draft starts as the job's status, is modified in place, and is finally frozen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec

from tfjob_operator.api.core import EventType
from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import MANAGED_BY_US, ON_HOLD, CleanPodPolicy, ConditionReason, ConditionType
from tfjob_operator.api.v1.indices import format_indices, parse_indices
from tfjob_operator.api.v1.types import InvalidSpec, Mistake, ReplicaStatus, StartRecord
from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.api.v1alpha1.constants import V1_TYPES, AlphaEventReason, AlphaState, Dialect, Phase
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus, SetStatus
from tfjob_operator.controller.alpha.batch_jobs import BatchJob, Children, config_map_name, replica_key
from tfjob_operator.controller.alpha.observe import (
    AlphaReplica,
    AlphaVerdict,
    derived_runtime_id,
    judge,
    next_runtime_id,
    problems_of,
    replicas_of,
)
from tfjob_operator.controller.jobs.children import NONE_BLOCKED, Blocked, ConfigMap, Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.draft import Draft, JobEvent
from tfjob_operator.controller.jobs.pods import StartProblem

Child = BatchJob | Pod | Service | ConfigMap


class AlphaStatusDraft(Draft):
    """A status being computed, and the events for its changes.

    Invariants: those of the draft in `controller.tfjob`; a finished job keeps the `replicaStatuses` that it had at its end.
    """

    __slots__ = (
        "begun",
        "counts",
        "dialect",
        "finished_indices",
        "job",
        "phase",
        "reason",
        "runtime_id",
        "sets",
        "state",
    )

    def __init__(self, dialect: Dialect, job: AlphaJob, now: datetime) -> None:
        """Start from the job's status. `now` is the exact time."""
        status = job.status
        super().__init__(status.conditions or (), status.start_time, status.completion_time, now)
        self.dialect = dialect
        self.job = job
        self.phase = status.phase
        self.state = status.state
        self.reason = status.reason
        self.runtime_id = status.runtime_id
        self.sets: tuple[SetStatus, ...]
        self.counts: dict[str, ReplicaStatus]
        if isinstance(status.replica_statuses, dict):
            self.counts, self.sets = status.replica_statuses, status.alpha_replica_statuses or ()
        else:
            self.counts, self.sets = {}, status.replica_statuses or status.alpha_replica_statuses or ()
        self.finished_indices = status.finished_indices
        self.begun = status.begun

    @property
    def is_new_generation(self) -> bool:
        """True if the spec was edited since the status was written."""
        return self.job.status.observed_generation != self.job.metadata.generation

    def create(self, runtime_id: str) -> None:
        """Accept the job. This records the RuntimeId in the status before it becomes part of any child's name."""
        self.runtime_id = runtime_id
        if not self.phase:
            self.phase, self.state = Phase.CREATING, AlphaState.UNKNOWN
        self.set_true(ConditionType.CREATED, ConditionReason.CREATED, f"TFJob {self.job.metadata.name} is created.")

    def begin(self, spec: AlphaSpec, children: Children) -> None:
        """Record that Jobs exist, or are about to be created. If a record was lost, the generation is unknown."""
        self.start()
        sizes = {V1_TYPES[replica.type]: replica.replicas for replica in spec.replicas}
        generation = 0 if children.jobs else self.job.metadata.generation
        self.begun = msgspec.structs.replace(self.begun or StartRecord(generation), replicas=sizes)
        self.phase, self.state = Phase.RUNNING, AlphaState.RUNNING

    def record(self, spec: AlphaSpec, found: Mapping[ReplicaKey, AlphaReplica]) -> None:
        """Record the states of the replicas of each type; a succeeded one remains succeeded when its Job is gone."""
        sets, counts, finished = [], {}, dict(self.finished_indices)
        for replicas in spec.replicas:
            name = V1_TYPES[replicas.type]
            here = {key.index: replica for key, replica in found.items() if key.type == replicas.type}
            done = parse_indices(finished.get(name, ""), below=replicas.replicas)
            done |= {index for index, replica in here.items() if replica.has_succeeded}
            if done:
                finished[name] = format_indices(done)
            states = [AlphaState.SUCCEEDED for _ in done]
            states += [replica.state for index, replica in here.items() if index not in done]
            tally = Counter(states)
            state_counts = {state.value: tally[state] for state in AlphaState if tally[state]}
            sets.append(
                SetStatus(
                    tf_replica_type=replicas.type,
                    state=_state_of(states, replicas.replicas),
                    replicas_states=state_counts,
                )
            )
            active = sum(replica.is_active for index, replica in here.items() if index not in done)
            counts[name] = ReplicaStatus(active=active, succeeded=len(done), failed=tally[AlphaState.FAILED])
        self.sets, self.counts, self.finished_indices = tuple(sets), counts, finished

    def end(self, condition: ConditionType, reason: ConditionReason, message: str, at: datetime | None = None) -> None:
        """Set the final condition, and the fields used by earlier operators. `at` is as in `controller.tfjob`."""
        succeeded = condition is ConditionType.SUCCEEDED
        self.set_true(condition, reason, message)
        self.state = AlphaState.SUCCEEDED if succeeded else AlphaState.FAILED
        self.reason = "" if succeeded else message
        self.complete(at)

    def freeze(self) -> AlphaStatus | None:
        """Return the status to write, or None if nothing changed."""
        before = self.job.status
        keeps_map = self.dialect.keeps_map
        status = AlphaStatus(
            phase=self.phase,
            state=self.state,
            reason=self.reason,
            runtime_id=self.runtime_id,
            conditions=self.conditions or None,
            replica_statuses=(self.counts if keeps_map else self.sets) or None,
            alpha_replica_statuses=(self.sets if keeps_map else ()) or None,
            finished_indices=self.finished_indices,
            begun=self.begun,
            start_time=self.start_time,
            completion_time=self.completion_time,
            last_reconcile_time=before.last_reconcile_time,
            observed_generation=self.job.metadata.generation,
        )
        return None if status == before else msgspec.structs.replace(status, last_reconcile_time=self.timestamp)


def _state_of(states: list[AlphaState], wanted: int) -> AlphaState:
    """Return the state of a replica type: Failed if any failed, else Running if any runs; Succeeded only if all have."""
    for state in (AlphaState.FAILED, AlphaState.RUNNING):
        if state in states:
            return state
    return AlphaState.SUCCEEDED if states.count(AlphaState.SUCCEEDED) == wanted > 0 else AlphaState.UNKNOWN


@dataclass(frozen=True, slots=True)
class AlphaPlan:
    """What to do: first the status, then creates, then deletes.

    `status` is None if it does not change; `events` are recorded once it is written. `runtime_id` is that of the children to
    create; `problems` are what keeps pods from starting.
    """

    status: AlphaStatus | None = None
    events: tuple[JobEvent, ...] = ()
    runtime_id: str = ""
    create_services: tuple[ReplicaKey, ...] = ()
    create_config_map: bool = False
    create_jobs: tuple[ReplicaKey, ...] = ()
    delete: tuple[Child, ...] = ()
    problems: tuple[StartProblem, ...] = ()

    @property
    def acts(self) -> bool:
        """True if anything is created or deleted."""
        return bool(self.create_services or self.create_config_map or self.create_jobs or self.delete)

    @property
    def requeue_after_s(self) -> None:
        """Nothing in this dialect depends on the time."""
        return None


NOTHING: Final = AlphaPlan()


def without_blocked(plan: AlphaPlan, blocked: Blocked) -> AlphaPlan:
    """Return the plan without the creates of children that are backing off."""
    if not blocked.backing_off:
        return plan
    name = config_map_name(plan.runtime_id)
    return replace(
        plan,
        create_services=tuple(key for key in plan.create_services if key.name not in blocked.backing_off),
        create_config_map=plan.create_config_map and name not in blocked.backing_off,
        create_jobs=tuple(key for key in plan.create_jobs if key.name not in blocked.backing_off),
    )


_FINISHED_PHASES: Final = frozenset({Phase.CLEAN_UP, Phase.FAILED, Phase.DONE})


def is_finished(status: AlphaStatus) -> bool:
    """Return True if the job has finished. Earlier operators, which had no conditions, only set the phase."""
    return status.phase in _FINISHED_PHASES or any(
        condition.type in {ConditionType.SUCCEEDED, ConditionType.FAILED} and condition.status == conditions.TRUE
        for condition in status.conditions or ()
    )


def conclude(draft: AlphaStatusDraft, spec: AlphaSpec, children: Children, verdict: AlphaVerdict) -> AlphaPlan:
    """Return a plan that only writes the end; clean-up is left to later plans, once the end is written."""
    meta = draft.job.metadata
    if verdict.failed:
        chief = f"{spec.chief.type} {spec.chief.index}"
        text = f"TFJob {meta.namespace}/{meta.name} has failed because its chief, {chief}, has failed. {verdict.failed}"
        draft.end(ConditionType.FAILED, ConditionReason.FAILED, text, verdict.at)
        draft.emit(EventType.NORMAL, ConditionReason.FAILED, text)
    else:
        text = f"TFJob {meta.namespace}/{meta.name} successfully completed."
        draft.end(ConditionType.SUCCEEDED, ConditionReason.SUCCEEDED, text, verdict.at)
        draft.emit(EventType.NORMAL, ConditionReason.SUCCEEDED, text)
    draft.phase = Phase.CLEAN_UP if to_clean_up(spec.cleanup_policy, children) else Phase.DONE
    return AlphaPlan(status=draft.freeze(), events=tuple(draft.events))


def fail(draft: AlphaStatusDraft, reason: ConditionReason, message: str) -> AlphaPlan:
    """Return a plan that fails a job that has not started."""
    draft.end(ConditionType.FAILED, reason, message)
    draft.phase = Phase.FAILED
    draft.emit(EventType.WARNING, reason, message)
    return AlphaPlan(status=draft.freeze(), events=tuple(draft.events))


def clean_up(draft: AlphaStatusDraft, spec: AlphaSpec | InvalidSpec, children: Children) -> AlphaPlan:
    """Clean up after the end; the phase is Done when nothing is left."""
    if draft.phase == Phase.FAILED:
        policy = CleanPodPolicy.RUNNING  # a job that never started has no results to keep
    else:
        policy = spec.clean_pod_policy or CleanPodPolicy.NONE if isinstance(spec, InvalidSpec) else spec.cleanup_policy
    deleted = to_clean_up(policy, children)
    if draft.phase != Phase.FAILED:
        draft.phase = Phase.CLEAN_UP if deleted else Phase.DONE
    return AlphaPlan(status=draft.freeze(), delete=deleted)


def to_clean_up(policy: str, children: Children) -> tuple[Child, ...]:
    """Return what is deleted after the end: nothing for None, everything for All, what has not ended for Running.

    A Job is deleted with its pods, and a service with the Job of the same name. Jobs come first.
    """
    if policy == CleanPodPolicy.NONE:
        return ()
    found = replicas_of(children)
    kept = set()
    if policy != CleanPodPolicy.ALL:
        kept = {name for name, replica in found.items() if replica.has_ended}
    jobs = [job for job in children.jobs if job.metadata.name not in kept]
    services = [service for service in children.services if service.metadata.name not in kept]
    bare = [pod for name, pods in children.bare.items() if name not in kept for pod in pods]
    every: list[Child] = [*jobs, *bare, *services, *children.config_maps]
    return tuple(each for each in every if each.metadata.deletion_timestamp is None)


def run(draft: AlphaStatusDraft, spec: AlphaSpec, children: Children, taken: Collection[str]) -> AlphaPlan:
    """Plan an active job. If it ends, the plan contains only its end.

    `taken` are names used by other objects.
    """
    draft.create(_runtime_id(draft, spec, children, taken))
    wanted = keys_of(spec, draft.runtime_id)
    found = replicas_of(children)
    replicas = {key: found[key.name] for key in wanted if key.name in found}
    if found:
        draft.start(pod for replica in found.values() for pod in replica.pods)
    draft.record(spec, replicas)
    chief = next(key for key in wanted if (key.type, key.index) == (spec.chief.type, spec.chief.index))
    verdict = judge(replicas.get(chief))
    if not verdict.succeeded and _has_succeeded(draft, chief):
        verdict = AlphaVerdict(succeeded=True)
    if verdict.succeeded or verdict.failed:
        return conclude(draft, spec, children, verdict)
    without_job = [key for key in wanted if key.name not in found or found[key.name].needs_job]
    reconciled = _reconcile_children(draft, spec, children, wanted, without_job, running=verdict.running)
    return replace(reconciled, problems=problems_of(found.values()))


def keys_of(spec: AlphaSpec, runtime_id: str) -> list[ReplicaKey]:
    """Return the replicas in the spec."""
    return [
        replica_key(runtime_id, replica.type, index) for replica in spec.replicas for index in range(replica.replicas)
    ]


def _reconcile_children(
    draft: AlphaStatusDraft,
    spec: AlphaSpec,
    children: Children,
    wanted: Sequence[ReplicaKey],
    without_job: Sequence[ReplicaKey],
    *,
    running: bool,
) -> AlphaPlan:
    """Create missing children, and delete surplus ones. `without_job` are the replicas that need a Job."""
    services = {service.metadata.name for service in children.services}
    config_maps = {config_map.metadata.name for config_map in children.config_maps}
    missing = tuple(key for key in wanted if key.name not in services)
    program = config_map_name(draft.runtime_id) if spec.has_servers else ""
    lacks_program = bool(program) and program not in config_maps
    jobs: tuple[ReplicaKey, ...] = ()
    if not (missing or lacks_program):
        jobs = tuple(key for key in without_job if not _has_succeeded(draft, key))
        draft.begin(spec, children)
    if running:
        name = draft.job.metadata.name
        draft.set_true(ConditionType.RUNNING, ConditionReason.RUNNING, f"TFJob {name} is running.")
    _report_spec(draft, spec)
    return AlphaPlan(
        status=draft.freeze(),
        events=tuple(draft.events),
        runtime_id=draft.runtime_id,
        create_services=missing,
        create_config_map=lacks_program,
        create_jobs=jobs,
        delete=_surplus(children, {key.name for key in wanted}, program),
    )


def _runtime_id(draft: AlphaStatusDraft, spec: AlphaSpec, children: Children, taken: Collection[str]) -> str:
    """Return the RuntimeId: that of the spec, or four derived characters. It is fixed once the job has started."""
    present, uid = draft.runtime_id, draft.job.metadata.uid
    if present and (draft.begun is not None or children.jobs):
        return present
    if spec.runtime_id:
        return spec.runtime_id
    chosen = present or derived_runtime_id(uid)
    names = {config_map_name(chosen), *(key.name for key in keys_of(spec, chosen))}
    if names.isdisjoint(taken):
        return chosen
    other = next_runtime_id(uid, chosen)
    text = f"RuntimeId {chosen} is used by another job: {min(names.intersection(taken))} already exists; using {other}"
    draft.emit(EventType.NORMAL, AlphaEventReason.RUNTIME_ID_CONFLICT, text)
    return other


def _has_succeeded(draft: AlphaStatusDraft, key: ReplicaKey) -> bool:
    """Return True if the replica has succeeded according to the status; its Job may be gone."""
    known = {kind.value: name for kind, name in V1_TYPES.items()}[key.type]
    return key.index in parse_indices(draft.finished_indices.get(known, ""), below=key.index + 1)


def _surplus(children: Children, wanted: Collection[str], program: str) -> tuple[Child, ...]:
    """Return the children without a replica: its type was scaled down, or the job changed its RuntimeId."""
    every: list[Child] = [
        *(job for job in children.jobs if job.metadata.name not in wanted),
        *(pod for name, pods in children.bare.items() if name not in wanted for pod in pods),
        *(service for service in children.services if service.metadata.name not in wanted),
        *(config_map for config_map in children.config_maps if config_map.metadata.name != program),
    ]
    return tuple(each for each in every if each.metadata.deletion_timestamp is None)


def _report_spec(draft: AlphaStatusDraft, spec: AlphaSpec) -> None:
    """Report the spec's warnings once, and that a job is no longer on hold."""
    if draft.is_new_generation:
        for reason, message in spec.warnings:
            draft.emit(EventType.WARNING, reason, message)
        if spec.runtime_id and spec.runtime_id != draft.runtime_id:
            text = f"spec.RuntimeId cannot change after the job started; it stays {draft.runtime_id}"
            draft.emit(EventType.WARNING, AlphaEventReason.RUNTIME_ID_CONFLICT, text)
    if conditions.is_true(draft, ConditionType.HELD):
        text = f"TFJob {draft.job.metadata.name} is resumed: the spec is valid again."
        draft.set_held(conditions.FALSE, ConditionReason.MENDED, text)
        draft.emit(EventType.NORMAL, ConditionReason.MENDED, text)


def hold(draft: AlphaStatusDraft, spec: InvalidSpec, children: Children) -> AlphaPlan:
    """Put a started job on hold. Fail a job that has not started, or was rejected and not edited since its start."""
    begun = draft.job.status.begun
    if begun is None:
        continues = bool(children.jobs)  # its record was lost
    else:
        continues = spec.reason != ConditionReason.REFUSED or draft.job.metadata.generation > begun.generation
    if not continues:
        return fail(draft, ConditionReason.INVALID, f"invalid job spec: {spec.text}")
    if draft.set_held(conditions.TRUE, spec.reason, spec.text):
        message = f"TFJob {draft.job.metadata.name} {ON_HOLD}; invalid job spec: {spec.text}"
        draft.emit(EventType.WARNING, spec.reason, message)
    problems = problems_of(replicas_of(children).values())
    return AlphaPlan(status=draft.freeze(), events=tuple(draft.events), problems=problems)


def refused(spec: AlphaSpec | InvalidSpec, words: str) -> InvalidSpec:
    """Return the spec as invalid because the API server rejected a child with this message."""
    policy = spec.clean_pod_policy or CleanPodPolicy.NONE if isinstance(spec, InvalidSpec) else spec.cleanup_policy
    return InvalidSpec(
        (Mistake("", words),), managed_by=spec.managed_by, clean_pod_policy=policy, reason=ConditionReason.REFUSED
    )


def effective_spec(job: AlphaJob, spec: AlphaSpec | InvalidSpec) -> AlphaSpec | InvalidSpec:
    """Return the effective spec. A spec that the API server rejected is invalid until the next generation."""
    held = conditions.find(job.status.conditions or (), ConditionType.HELD)
    if isinstance(spec, InvalidSpec) or held is None or held.status != conditions.TRUE:
        return spec
    if held.reason != ConditionReason.REFUSED or job.status.observed_generation != job.metadata.generation:
        return spec
    return refused(spec, held.message)


_ENDED_BEFORE: Final = frozenset({Phase.DONE, Phase.FAILED})


def is_from_other_operator(status: AlphaStatus) -> bool:
    """Return True if the status was written by an earlier operator (ours always sets `observedGeneration`)."""
    return bool(status.phase) and not status.observed_generation


def finished_by_other_operator(status: AlphaStatus) -> bool:
    """Return True if another operator finished the job and cleaned up."""
    return is_from_other_operator(status) and status.phase in _ENDED_BEFORE


def may_have_hidden_children(job: AlphaJob) -> bool:
    """Return True if the job may have pods that our watches do not select and that affect the plan."""
    lives = job.metadata.deletion_timestamp is None and not finished_by_other_operator(job.status)
    return lives and is_from_other_operator(job.status)


def selector_of_hidden(job: ObjectMeta, spec: AlphaSpec) -> str:
    """Return the label selector for all pods of a job by earlier operators' labels, which include the spec's RuntimeId."""
    return f"{c.LABEL_JOB_NAME}={job.name},{c.LABEL_RUNTIME_ID}={spec.runtime_id}"


def plan(
    dialect: Dialect,
    job: AlphaJob,
    spec: AlphaSpec | InvalidSpec,
    children: Children,
    now: datetime,
    *,
    taken: Collection[str] = (),
    blocked: Blocked = NONE_BLOCKED,
) -> AlphaPlan:
    """Decide what to do about a job; `children` are those it controls, and the pods of its Jobs.

    A job being deleted is left to the garbage collector. A job managed by another controller is left to that controller. A job
    that an earlier operator finished is not changed. The same holds for a job that such an operator started if its spec is
    invalid. `taken` are names used by other objects; they matter until the job has started. Children that are `blocked` are not
    created.
    """
    if job.metadata.deletion_timestamp is not None or spec.managed_by not in MANAGED_BY_US:
        return NOTHING
    if finished_by_other_operator(job.status):
        return NOTHING
    draft = AlphaStatusDraft(dialect, job, now)
    if is_finished(job.status):
        return clean_up(draft, spec, children)
    if isinstance(spec, InvalidSpec):
        return NOTHING if is_from_other_operator(job.status) else hold(draft, spec, children)
    return without_blocked(run(draft, spec, children, taken), blocked)
