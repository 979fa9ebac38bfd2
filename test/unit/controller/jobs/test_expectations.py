"""Creations and deletions that were requested and have not been observed yet."""

from collections.abc import Callable

import pytest

from kit.virtual_loop import FakeClock
from tfjob_operator.api.meta import Meta, OwnerKey
from tfjob_operator.controller.jobs.expectations import EXPIRY_S, Expectations

JOB = OwnerKey("ns/job")
META = Meta(namespace="ns", name="mnist", uid="job")


def expecting(*names: str, clock: FakeClock | None = None) -> Expectations:
    """Creations of pods that were sent, and not answered."""
    expected = Expectations(clock or FakeClock())
    expected.expect_creations(JOB, "pod", names)
    return expected


def test_every_single_creation_must_be_seen() -> None:
    """B11, B18, EX-01, EX-08, controller_utils_test.go:TestControllerExpectations, TestExpectationsOnRecreate.

    Six workers are six expectations, not one that is overwritten; and all kinds must be met, not one of them. An owner that is
    gone takes its expectations along: a new job of the name starts with none.
    """
    names = [f"w-{index}" for index in range(6)]
    expected = expecting(*names)
    expected.expect_creations(JOB, "service", names[-1:])
    expected.creation_observed(JOB, "service", names[-1])
    for name in names:
        assert not expected.satisfied(JOB)
        expected.creation_observed(JOB, "pod", name)
    assert expected.satisfied(JOB)
    expected.expect_creations(JOB, "pod", names)
    expected.forget(JOB)
    assert expected.satisfied(JOB)


def test_an_event_that_comes_twice_counts_once() -> None:
    """EX-07, TestUIDExpectations: seen as an update with deletionTimestamp and again as a removal.

    Invariant: "An event that comes twice, or belongs to another child, does not satisfy the expectation of a missing child"
    """
    expected = Expectations(FakeClock())
    expected.expect_deletions(JOB, "pod", ["uid-0", "uid-1"])
    expected.deletion_observed(JOB, "pod", "uid-0")
    expected.deletion_observed(JOB, "pod", "uid-0")
    assert not expected.satisfied(JOB)
    expected.deletion_observed(JOB, "pod", "uid-1")
    assert expected.satisfied(JOB)


def test_what_nobody_expects_changes_nothing() -> None:
    """EX-03, EX-06: events for another owner, or without a record, are no-ops.

    Invariant: "Records belong to a job's namespace and UID"
    """
    expected = Expectations(FakeClock())
    assert expected.satisfied(JOB)
    expected.creation_observed(JOB, "pod", "w-0")
    expected.expect_creations(JOB, "pod", ["w-0"])
    expected.creation_observed(OwnerKey("other"), "pod", "w-0")
    expected.creation_observed(JOB, "pod", "w-1")
    assert not expected.satisfied(JOB)


def test_expectations_expire_after_five_minutes_and_not_before() -> None:
    """EX-02: strictly more than five minutes."""
    clock = FakeClock()
    expected = expecting("w-0", clock=clock)
    clock.step(EXPIRY_S)
    assert not expected.satisfied(JOB)
    clock.step(0.001)
    assert expected.satisfied(JOB)


def test_a_list_as_new_as_the_response_meets_the_expectation_of_a_child_that_it_does_not_show() -> None:
    """EX-10: the child was deleted before the list, and no watch has shown it."""
    for version in ("7", "8", "10"):
        expected = expecting("w-0")
        expected.creation_answered(META, "pod", "w-0", "7")
        assert not expected.satisfied(JOB)
        assert expected.listed("pod", version) == ["ns/mnist"]
        assert expected.satisfied(JOB)
        assert expected.listed("pod", version) == []


def test_a_list_that_came_before_the_response_does_the_same_and_the_job_is_due_at_once() -> None:
    """EX-10: an informer may be faster than the response; then nobody but the sync itself wakes the job."""
    expected = expecting("w-0")
    assert expected.listed("pod", "10") == []
    assert not expected.satisfied(JOB)
    expected.creation_answered(META, "pod", "w-0", "9")
    assert expected.expires_in_s(JOB) == 0.0
    assert expected.satisfied(JOB)
    assert expected.expires_in_s(JOB) is None


def test_a_list_from_a_cache_that_lags_meets_nothing() -> None:
    """EX-10: versions are numbers, 10 is newer than 9; and a later list that is older again takes the place of a newer one."""
    expected = expecting("w-0")
    expected.creation_answered(META, "pod", "w-0", "10")
    assert expected.listed("pod", "9") == []
    assert not expected.satisfied(JOB)
    for later in ("9", "abc"):
        after = Expectations(FakeClock())
        for version in ("20", later):
            after.listed("pod", version)
        after.expect_creations(JOB, "pod", ["w-0"])
        after.creation_answered(META, "pod", "w-0", "10")
        assert not after.satisfied(JOB), later


@pytest.mark.parametrize("strange", ["", "0", "007", "-7", "+7", "7.0", "v7", "abc", "٧"])
def test_versions_that_cannot_be_compared_leave_it_to_time(strange: str) -> None:
    """EX-10, EX-02: in the response as well as in the list."""
    for answered, listed in (("7", strange), (strange, "9"), (strange, strange)):
        expected = expecting("w-0")
        expected.creation_answered(META, "pod", "w-0", answered)
        assert expected.listed("pod", listed) == []
        assert not expected.satisfied(JOB)


def test_what_a_list_does_not_answer_stays_expected() -> None:
    """EX-10: another kind, a create without a response yet, a newer one, a deletion."""
    more: dict[str, Callable[[Expectations], None]] = {
        "another kind": lambda it: it.expect_creations(JOB, "service", ["w-0"]),
        "not answered": lambda it: it.expect_creations(JOB, "pod", ["w-1"]),
        "a deletion": lambda it: it.expect_deletions(JOB, "pod", ["uid"]),
    }
    for what, expect in more.items():
        expected = expecting("w-0")
        expected.creation_answered(META, "pod", "w-0", "7")
        expect(expected)
        assert expected.listed("pod", "8") == [], what
        assert not expected.satisfied(JOB), what


def test_when_the_rest_is_seen_the_job_is_satisfied_without_another_list() -> None:
    """EX-10: the event of the other child wakes the job."""
    expected = expecting("w-0", "w-1")
    expected.creation_answered(META, "pod", "w-0", "7")
    expected.listed("pod", "8")
    assert not expected.satisfied(JOB)
    expected.creation_observed(JOB, "pod", "w-1")
    assert expected.satisfied(JOB)


def test_a_response_to_what_is_not_expected_any_more_changes_nothing() -> None:
    """EX-10, EX-03: the event was faster than the response."""
    expected = expecting("w-0")
    expected.creation_observed(JOB, "pod", "w-0")
    expected.creation_answered(META, "pod", "w-0", "7")
    assert expected.satisfied(JOB)
    assert expected.expires_in_s(JOB) is None
