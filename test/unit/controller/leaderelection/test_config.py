"""The durations of an election, and the identity of a candidate."""

from __future__ import annotations

import socket

import pytest

from fakes.api import FakeClient
from tfjob_operator.controller.leaderelection import LeaderElectionConfig, LeaderElector, LeaseLock, hostname_uuid
from unit.controller.leaderelection.model import LockServer, ModelLock


def test_the_defaults_are_those_of_kubernetes() -> None:
    """LE-02: 15, 10 and 2 seconds; LE-14: a call may take half of the renew deadline."""
    config = LeaderElectionConfig()
    assert (config.lease_duration_s, config.renew_deadline_s, config.retry_period_s) == (15.0, 10.0, 2.0)
    assert config.call_timeout_s == 5.0
    assert config.fence_margin_s == 2.5


@pytest.mark.parametrize(
    ("lease", "renew", "retry", "complaint"),
    [
        (15, 15, 2, "lease duration"),
        (15, 16, 2, "lease duration"),
        (15, 10, 10, "renew deadline"),
        (15, 2.4, 2, "renew deadline"),
        (15, 10, 0, "retry period"),
        (15, 10, -1, "retry period"),
        (0, 0, 0, "retry period"),
        (15.5, 10, 2, "whole number of seconds"),
    ],
)
def test_numbers_that_do_not_fit_each_other_are_refused(
    lease: float, renew: float, retry: float, complaint: str
) -> None:
    """LE-02, leaderelection_test.go:TestLeaderElectionConfigValidation."""
    with pytest.raises(ValueError, match=complaint):
        LeaderElectionConfig(lease_duration_s=lease, renew_deadline_s=renew, retry_period_s=retry)


def test_the_tightest_numbers_that_fit_are_accepted() -> None:
    """LE-02; LE-14: no call has less than a second."""
    config = LeaderElectionConfig(lease_duration_s=1, renew_deadline_s=0.5, retry_period_s=0.4)
    assert config.call_timeout_s == 1.0


def test_nobody_stands_for_election_without_a_name() -> None:
    """LE-02, leaderelection_test.go:TestLeaderElectionConfigValidation "invalid": lock identity."""
    with pytest.raises(ValueError, match="identity"):
        LeaderElector(ModelLock(LockServer(), ""))
    with pytest.raises(ValueError, match="identity"):
        LeaseLock(FakeClient(), "ns", "name", identity="")


def test_an_identity_is_of_this_host_and_of_no_other_process() -> None:
    """LE-14: controller-runtime's hostname_uuid."""
    first, second = hostname_uuid(), hostname_uuid()
    assert first != second
    assert first.startswith(f"{socket.gethostname()}_")
    assert len(first) == len(socket.gethostname()) + 37
