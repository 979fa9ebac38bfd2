"""Transitions of a job's conditions, as pure functions over tuples.

Clients rely on three rules. The newest transition is the last condition. A False condition is never last while another
one is True, since the STATE column shows the last one. Running and Restarting replace each other.

Held and Stalled are exceptions: they are not states of the job, and never the last condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Protocol

import msgspec

from tfjob_operator.api.text import clean
from tfjob_operator.api.v1 import states
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import EndRecord, JobCondition, StartRecord

TRUE: Final = "True"
FALSE: Final = "False"

_ENDS: Final = frozenset({ConditionType.SUCCEEDED, ConditionType.FAILED})
_OVER: Final = {
    **dict.fromkeys(_ENDS, frozenset(ConditionType) - {ConditionType.CREATED, *_ENDS}),
    ConditionType.SUSPENDED: {ConditionType.RUNNING, ConditionType.RESTARTING, ConditionType.STALLED},
}
"""Conditions under which no pod runs, and the conditions that become False with them. The latter take over the reason of
the former: clients of training-operator look there for TFJobSuspended."""

_NOT_STATES: Final = frozenset({ConditionType.HELD, ConditionType.STALLED})
_REPLACES: Final = {ConditionType.RUNNING: ConditionType.RESTARTING, ConditionType.RESTARTING: ConditionType.RUNNING}

ENDING: Final = states.ENDING

Conditions = tuple[JobCondition, ...]


class HasConditions(Protocol):
    """A status or a status draft."""

    @property
    def conditions(self) -> Conditions:
        """The conditions in order, newest last."""
        ...


class HasState(Protocol):
    """A condition, as any program may read it."""

    @property
    def type(self) -> str:
        """The type."""
        ...

    @property
    def status(self) -> str:
        """True, False or Unknown."""
        ...


class HasEnd(Protocol):
    """A status or a status draft of a job of either dialect, or the part of it that a program reads."""

    @property
    def conditions(self) -> Sequence[HasState] | None:
        """The conditions in order, newest last."""
        ...

    @property
    def begun(self) -> StartRecord | None:
        """The record of the start, which also has the record of the end."""
        ...


def find(conditions: Conditions, condition_type: str) -> JobCondition | None:
    """Return the condition of this type, or None."""
    for condition in conditions:  # a loop takes half the time of a generator; each sync calls this about ten times
        if condition.type == condition_type:
            return condition
    return None


def is_true(status: HasConditions, condition_type: str) -> bool:
    """Return True if the job has this condition with status True."""
    condition = find(status.conditions, condition_type)
    return condition is not None and condition.status == TRUE


def is_finished(status: HasConditions) -> bool:
    """Return True if the job has Succeeded or Failed. Both are final."""
    return _has_ended(status.conditions)


def end_record(status: HasEnd) -> EndRecord | None:
    """Return how the job ends, or None if that is not decided yet. Jobs that an older operator finished have no record."""
    record = status.begun.ending if status.begun is not None else None
    return record if record is not None and record.type in _ENDS else None


def is_ending(status: HasEnd) -> bool:
    """Return True if the end is decided but not written yet: pods of a queued job still hold its quota."""
    return end_record(status) is not None and not _has_ended(status.conditions or ())


def is_over(status: HasEnd) -> bool:
    """Return True if the end is decided, whether or not it is written. Nothing reverts the decision."""
    return end_record(status) is not None or _has_ended(status.conditions or ())


def decided_end(status: HasEnd) -> JobCondition | None:
    """Return the condition that an Ending job will get, with the time of the decision; None for any other job.

    Its status is False until it is written. `cli.jobs.decided_end` does the same for raw JSON.
    """
    record = end_record(status)
    if record is None or not is_ending(status):
        return None
    return JobCondition(record.type, FALSE, record.reason, record.message, last_transition_time=record.time)


def set_true(
    conditions: Conditions, condition_type: ConditionType, reason: str, message: str, now: datetime
) -> Conditions:
    """Set a condition to True. Returns the same tuple if nothing changes.

    The transition time changes only with the status; a new reason or message changes only the update time. Succeeded
    and Failed are final: no condition is set after them, and they set Running to False.
    """
    if _has_ended(conditions):
        return conditions
    message = clean(message)
    present = find(conditions, condition_type)
    if present is not None and present.status == TRUE:
        if (present.reason, present.message) == (reason, message):
            return conditions
        updated = msgspec.structs.replace(present, reason=reason, message=message, last_update_time=now)
        return tuple(updated if condition is present else condition for condition in conditions)
    gone = {condition_type, _REPLACES.get(condition_type, condition_type)}
    kept = tuple(condition for condition in conditions if condition.type not in gone)
    if condition_type in _OVER:
        # A suspended job is still on hold: only a valid spec ends that.
        states = _OVER[condition_type]
        kept = tuple(
            _off(condition, reason, message, now) if condition.type in states else condition for condition in kept
        )
    return (*kept, _new(condition_type, TRUE, reason, message, now))


def set_false(
    conditions: Conditions, condition_type: ConditionType, reason: str, message: str, now: datetime
) -> Conditions:
    """Set a condition to False if it is True, and move the newest True condition to the end.

    Other conditions are unchanged.
    """
    present = find(conditions, condition_type)
    if present is None or present.status != TRUE or _has_ended(conditions):
        return conditions
    kept = [condition for condition in conditions if condition is not present]
    off = _new(condition_type, FALSE, reason, clean(message), now)
    states = (
        condition for condition in reversed(kept) if condition.status == TRUE and condition.type not in _NOT_STATES
    )
    still_true = next(states, None)
    if still_true is None:
        return (*kept, off)
    kept.remove(still_true)
    return (*kept, off, still_true)


def set_aside(  # noqa: PLR0917 - the order of `set_true`
    conditions: Conditions, condition_type: ConditionType, status: str, reason: str, message: str, now: datetime
) -> Conditions:
    """Set Held or Stalled in place, or insert it before the last condition.

    Returns the same tuple if nothing changes or the job is finished.
    """
    if _has_ended(conditions):
        return conditions
    message = clean(message)
    present, new = find(conditions, condition_type), _new(condition_type, status, reason, message, now)
    if present is None:
        return (*conditions[:-1], new, conditions[-1])
    if (present.status, present.reason, present.message) == (status, reason, message):
        return conditions
    if present.status == status:
        new = msgspec.structs.replace(new, last_transition_time=present.last_transition_time)
    return tuple(new if condition is present else condition for condition in conditions)


def is_end(condition: JobCondition) -> bool:
    """Return True if the condition is a True Succeeded or Failed."""
    return condition.type in _ENDS and condition.status == TRUE


def _has_ended(conditions: Iterable[HasState]) -> bool:
    for condition in conditions:  # see `find`  # noqa: SIM110
        if condition.type in _ENDS and condition.status == TRUE:
            return True
    return False


def _off(condition: JobCondition, reason: str, message: str, now: datetime) -> JobCondition:
    if condition.status != TRUE:
        return condition
    return _new(condition.type, FALSE, reason, message, now)


def _new(condition_type: str, status: str, reason: str, message: str, now: datetime) -> JobCondition:
    return JobCondition(
        type=condition_type,
        status=status,
        reason=reason,
        message=message,
        last_update_time=now,
        last_transition_time=now,
    )
