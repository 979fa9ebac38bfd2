"""Creations and deletions that were requested and have not been observed yet."""

from __future__ import annotations

from fakes.clock import FakeClock
from tfjob_operator.api.owners import OwnerKey
from tfjob_operator.controller.jobs.expectations import EXPIRY_S, Expectations

JOB = OwnerKey("ns/job")


def test_an_owner_without_a_record_is_satisfied() -> None:
    """EX-01, controller_utils_test.go:TestControllerExpectations."""
    assert Expectations(FakeClock()).satisfied(JOB)


def test_every_single_creation_must_be_seen() -> None:
    """B18: six workers are six expectations, not one that is overwritten."""
    expected = Expectations(FakeClock())
    names = [f"w-{index}" for index in range(6)]
    expected.expect_creations(JOB, "pod", names)
    for name in names:
        assert not expected.satisfied(JOB)
        expected.creation_observed(JOB, "pod", name)
    assert expected.satisfied(JOB)


def test_pods_and_services_of_one_name_are_two_expectations() -> None:
    """B11: all kinds must be met, not one of them."""
    expected = Expectations(FakeClock())
    expected.expect_creations(JOB, "pod", ["w-0"])
    expected.expect_creations(JOB, "service", ["w-0"])
    expected.creation_observed(JOB, "service", "w-0")
    assert not expected.satisfied(JOB)


def test_an_event_that_comes_twice_counts_once() -> None:
    """EX-07, TestUIDExpectations: seen as an update with deletionTimestamp and again as a removal.

    Invariant: "An event that comes twice, or belongs to another child, does not meet the expectation of a missing one"
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
    expected.creation_observed(JOB, "pod", "w-0")
    expected.expect_creations(JOB, "pod", ["w-0"])
    expected.creation_observed(OwnerKey("other"), "pod", "w-0")
    expected.creation_observed(JOB, "pod", "w-1")
    assert not expected.satisfied(JOB)


def test_expectations_expire_after_five_minutes_and_not_before() -> None:
    """EX-02: strictly more than five minutes."""
    clock = FakeClock()
    expected = Expectations(clock)
    expected.expect_creations(JOB, "pod", ["w-0"])
    clock.step(EXPIRY_S)
    assert not expected.satisfied(JOB)
    clock.step(0.001)
    assert expected.satisfied(JOB)


def test_an_owner_that_is_gone_takes_its_expectations_along() -> None:
    """EX-08, replica_set_test.go:TestExpectationsOnRecreate: a new job of the name starts with none."""
    expected = Expectations(FakeClock())
    expected.expect_creations(JOB, "pod", ["w-0"])
    expected.forget(JOB)
    assert expected.satisfied(JOB)
