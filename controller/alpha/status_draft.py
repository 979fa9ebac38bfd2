"""The status of one job of the alpha dialect while a plan is made of it. Pure.

As in the first controller a draft starts as the status that the job has, is changed in place, and is frozen at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import msgspec

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.api.v1.types import Begun, ReplicaStatus, format_indices, parse_indices
from tfjob_operator.api.v1alpha1.constants import V1_TYPES, Dialect, Phase, State
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus, SetStatus
from tfjob_operator.controller.alpha.observe import Replica
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.jobs.problems import JobEvent


class StatusDraft:
    """A status that is being computed, and the events about what is new in it.

    Invariants: those of the first controller's draft; `replicaStatuses` say how the replicas stood when the job ended.
    """

    __slots__ = (
        "_whole",
        "begun",
        "completion_time",
        "conditions",
        "counts",
        "dialect",
        "events",
        "finished_indices",
        "job",
        "phase",
        "reason",
        "runtime_id",
        "sets",
        "start_time",
        "state",
    )

    def __init__(self, dialect: Dialect, job: AlphaJob, now: datetime) -> None:
        """Open a draft on the job's status. `now` is the exact time."""
        status = job.status
        self.dialect = dialect
        self.job = job
        self._whole = now.replace(microsecond=0)
        self.phase = status.phase
        self.state = status.state
        self.reason = status.reason
        self.runtime_id = status.runtime_id
        self.conditions = status.conditions or ()
        self.sets: tuple[SetStatus, ...]
        self.counts: dict[str, ReplicaStatus]
        if isinstance(status.replica_statuses, dict):
            self.counts, self.sets = status.replica_statuses, status.alpha_replica_statuses or ()
        else:
            self.counts, self.sets = {}, status.replica_statuses or status.alpha_replica_statuses or ()
        self.finished_indices = status.finished_indices
        self.begun = status.begun
        self.start_time = status.start_time
        self.completion_time = status.completion_time
        self.events: list[JobEvent] = []

    @property
    def is_new_generation(self) -> bool:
        """Whether the specification was edited since the status was written."""
        return self.job.status.observed_generation != self.job.metadata.generation

    def emit(self, event_type: EventType, reason: str, message: str) -> None:
        """Add an event, to be recorded when the status is on the server."""
        self.events.append(JobEvent(event_type, reason, message))

    def create(self, runtime_id: str) -> None:
        """Take the job on: its RuntimeId is in the status before any child has it in its name."""
        self.runtime_id = runtime_id
        if not self.phase:
            self.phase, self.state = Phase.CREATING, State.UNKNOWN
        self.start_time = self.start_time or self._whole
        self.set_true(ConditionType.CREATED, ConditionReason.CREATED, f"TFJob {self.job.metadata.name} is created.")

    def begin(self, spec: AlphaSpec) -> None:
        """Record that Jobs are there, or are about to be."""
        sizes = {V1_TYPES[each.type]: each.replicas for each in spec.replicas}
        generation = self.begun.generation if self.begun is not None else self.job.metadata.generation
        self.begun = Begun(generation=generation, replicas=sizes)
        self.phase, self.state = Phase.RUNNING, State.RUNNING

    def set_true(self, condition: ConditionType, reason: ConditionReason, message: str) -> None:
        """Make a condition True, by the rules of `conditions.set_true`."""
        self.conditions = conditions.set_true(self.conditions, condition, reason, message, self._whole)

    def set_held(self, status: str, reason: ConditionReason, message: str) -> bool:
        """Set Held to True or False. Return whether that changed anything."""
        before = self.conditions
        self.conditions = conditions.set_held(before, status, reason, message, self._whole)
        return self.conditions is not before

    def record(self, spec: AlphaSpec, found: Mapping[ReplicaKey, Replica]) -> None:
        """Record how the replicas of each type stand; one that has succeeded stays so when its Job is gone."""
        sets, counts, finished = [], {}, dict(self.finished_indices)
        for each in spec.replicas:
            name = V1_TYPES[each.type]
            here = {key.index: replica for key, replica in found.items() if key.type == each.type}
            done = parse_indices(finished.get(name, ""), below=each.replicas)
            done |= {index for index, replica in here.items() if replica.has_succeeded}
            if done:
                finished[name] = format_indices(done)
            states = [State.SUCCEEDED for _ in done]
            states += [replica.state for index, replica in here.items() if index not in done]
            tally = Counter(states)
            told = {state.value: tally[state] for state in State if tally[state]}
            sets.append(
                SetStatus(tf_replica_type=each.type, state=_state_of(states, each.replicas), replicas_states=told)
            )
            active = sum(replica.is_active for index, replica in here.items() if index not in done)
            counts[name] = ReplicaStatus(active=active, succeeded=len(done), failed=tally[State.FAILED])
        self.sets, self.counts, self.finished_indices = tuple(sets), counts, finished

    def end(self, condition: ConditionType, reason: ConditionReason, message: str) -> None:
        """Set the last condition, and the fields that earlier operators wrote instead."""
        succeeded = condition is ConditionType.SUCCEEDED
        self.set_true(condition, reason, message)
        self.state = State.SUCCEEDED if succeeded else State.FAILED
        self.reason = "" if succeeded else message
        self.start_time = self.start_time or self._whole
        self.completion_time = self._whole

    def freeze(self) -> AlphaStatus | None:
        """Return the status to write, or None when nothing changed."""
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
        return None if status == before else msgspec.structs.replace(status, last_reconcile_time=self._whole)


def _state_of(states: list[State], wanted: int) -> State:
    """Return the state of a type of replicas: one that failed decides, then one that runs; all must have succeeded."""
    for state in (State.FAILED, State.RUNNING):
        if state in states:
            return state
    return State.SUCCEEDED if states.count(State.SUCCEEDED) == wanted > 0 else State.UNKNOWN
