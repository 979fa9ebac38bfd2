"""Transitions of conditions."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.virtual_loop import EPOCH
from tfjob_operator.api.text import MAX_BYTES
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType
from tfjob_operator.api.v1.types import JobStatus

LATER = EPOCH + timedelta(seconds=5)


def test_the_newest_transition_stands_last() -> None:
    """B23: clients and the STATE column read the last condition."""
    found = conditions.set_true((), ConditionType.CREATED, "r", "m", EPOCH)
    found = conditions.set_true(found, ConditionType.RUNNING, "r", "m", LATER)
    assert [condition.type for condition in found] == [ConditionType.CREATED, ConditionType.RUNNING]


def test_a_new_message_moves_the_update_time_and_not_the_transition_time() -> None:
    """B23: lastTransitionTime changes only with the status; what is set already stays the same tuple, and is not written."""
    found = conditions.set_true((), ConditionType.CREATED, "r", "m", EPOCH)
    assert conditions.set_true(found, ConditionType.CREATED, "r", "m", LATER) is found
    (condition,) = conditions.set_true(found, ConditionType.CREATED, "r", "other", LATER)
    assert (condition.message, condition.last_update_time, condition.last_transition_time) == ("other", LATER, EPOCH)


def test_a_job_on_hold_keeps_the_time_when_that_began() -> None:
    found = conditions.set_true((), ConditionType.CREATED, "r", "m", EPOCH)
    found = conditions.set_aside(found, ConditionType.HELD, conditions.TRUE, "r", "m", EPOCH)
    held, _ = conditions.set_aside(found, ConditionType.HELD, conditions.TRUE, "r", "other", LATER)
    assert (held.message, held.last_update_time, held.last_transition_time) == ("other", LATER, EPOCH)


def test_running_and_restarting_replace_each_other_and_an_ended_job_is_neither() -> None:
    """Running stays in the list, as False, before the condition that ended it."""
    found = conditions.set_true((), ConditionType.RUNNING, "r", "m", EPOCH)
    for other in (ConditionType.RESTARTING, ConditionType.RUNNING):
        found = conditions.set_true(found, other, "r", "m", EPOCH)
        assert [condition.type for condition in found] == [other]
    found = conditions.set_true(found, ConditionType.SUCCEEDED, "r", "m", LATER)
    assert [(x.type, x.status) for x in found] == [(ConditionType.RUNNING, "False"), (ConditionType.SUCCEEDED, "True")]
    assert found[0].last_transition_time == LATER


@pytest.mark.parametrize("stop", [ConditionType.SUSPENDED, ConditionType.SUCCEEDED, ConditionType.FAILED])
@pytest.mark.parametrize("before", [ConditionType.RUNNING, ConditionType.RESTARTING])
def test_a_condition_that_a_stop_switches_off_says_why_in_the_stops_words(
    before: ConditionType, stop: ConditionType
) -> None:
    """U14: training-operator's clients look for TFJobSuspended in Running=False; the message "is running" would be wrong."""
    found = conditions.set_true((), before, "TFJobRunning", "TFJob mnist is running.", EPOCH)
    off, on = conditions.set_true(found, stop, "TFJobStopped", "TFJob mnist has stopped.", LATER)
    assert (off.type, off.status, off.reason, off.message) == (before, "False", on.reason, on.message)
    assert (off.last_update_time, off.last_transition_time) == (LATER, LATER)


def test_a_condition_that_is_switched_off_does_not_stand_last() -> None:
    """B35: after a resumption the STATE column shows a condition that is True, not Suspended."""
    found: conditions.Conditions = ()
    for name in (ConditionType.CREATED, ConditionType.RUNNING, ConditionType.SUSPENDED):
        found = conditions.set_true(found, name, "r", "m", EPOCH)
    found = conditions.set_false(found, ConditionType.SUSPENDED, "r", "m", LATER)
    assert [(x.type, x.status) for x in found] == [
        (ConditionType.RUNNING, "False"),
        (ConditionType.SUSPENDED, "False"),
        (ConditionType.CREATED, "True"),
    ]
    assert conditions.set_false(found, ConditionType.SUSPENDED, "r", "m", LATER) is found
    # As another operator may leave them.
    suspended = conditions.set_true((), ConditionType.SUSPENDED, "r", "m", EPOCH)
    both = (*suspended, *conditions.set_true((), ConditionType.FAILED, "r", "m", EPOCH))
    assert conditions.set_false(both, ConditionType.SUSPENDED, "r", "m", LATER) is both


SET_ASIDE = {ConditionType.HELD, ConditionType.STALLED}
"""Conditions that are no states."""


@given(st.lists(st.none() | st.sampled_from([each for each in ConditionType if each not in SET_ASIDE]), max_size=12))
def test_any_sequence_of_transitions_keeps_the_rules(sequence: list[ConditionType | None]) -> None:
    """B23: at most one end, nothing after it, Running never True when ended, no False condition last while one is True.

    None stands for a resumption.
    """
    found: conditions.Conditions = ()
    for number, condition_type in enumerate(sequence):
        before = found
        if condition_type is None:
            found = conditions.set_false(found, ConditionType.SUSPENDED, "r", str(number), EPOCH)
        else:
            found = conditions.set_true(found, condition_type, "r", str(number), EPOCH)
        if conditions.is_finished(JobStatus(conditions=before)):
            assert found is before
    types = [condition.type for condition in found]
    assert len(types) == len(set(types))
    true = {condition.type for condition in found if condition.status == "True"}
    assert len(true & {ConditionType.SUCCEEDED, ConditionType.FAILED}) <= 1
    assert len(true & {ConditionType.RUNNING, ConditionType.RESTARTING}) <= 1
    if true & {ConditionType.SUCCEEDED, ConditionType.FAILED}:
        assert not true & {ConditionType.RUNNING, ConditionType.RESTARTING, ConditionType.SUSPENDED}
    if true:
        assert found[-1].status == "True"


def test_no_message_of_a_condition_is_longer_than_4_kb_or_holds_a_control_character() -> None:
    """D5: whoever wrote it; and a message that was cut does not count as new at each sync."""
    long = "\x1b[31m" + "x" * 800_000
    first = conditions.set_true((), ConditionType.CREATED, "r", "m", EPOCH)
    failed = conditions.set_true(first, ConditionType.RUNNING, "r", long, EPOCH)
    assert failed[-1].message.startswith(r"\x1b[31mxxx")
    assert len(failed[-1].message.encode()) <= MAX_BYTES
    assert conditions.set_true(failed, ConditionType.RUNNING, "r", long, EPOCH) is failed
    off = conditions.set_false(failed, ConditionType.RUNNING, "r", long, EPOCH)
    assert max(len(each.message.encode()) for each in off) <= MAX_BYTES


def test_a_status_holds_plain_strings_on_the_wire_and_words_that_nobody_here_knows() -> None:
    """B01: another operator, or one of another version, may have written conditions of its own."""
    raw = b'{"conditions":[{"type":"Archived","status":"True","reason":"Whatever"}]}'
    status = msgspec.json.decode(raw, type=JobStatus)
    assert msgspec.json.encode(status) == raw
    found = conditions.set_true(status.conditions, ConditionType.CREATED, ConditionReason.CREATED, "m", EPOCH)
    again = msgspec.json.decode(msgspec.json.encode(JobStatus(conditions=found)), type=JobStatus)
    assert again.conditions == found
    assert [(type(each.type), each.type) for each in again.conditions] == [(str, "Archived"), (str, "Created")]
