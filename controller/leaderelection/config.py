"""The durations of an election, checked against each other, and the identity of a process in it."""

from __future__ import annotations

import socket
import uuid
from dataclasses import dataclass
from typing import Final

JITTER: Final = 1.2
"""LE-03: a candidate sleeps between 1 and 2.2 retry periods, so that two that started together do not stay together."""


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """The times of an election, in seconds (LE-02).

    lease_duration_s: how long others wait, without seeing a renewal, until they take over. Whole seconds, because the record
        on the server holds no others.
    renew_deadline_s: how long the leader goes on trying to renew before it gives up.
    retry_period_s: the pause between tries.
    release: whether to give the lease back when the work has ended, so that another need not wait for it to run out (LE-11).

    Invariant: lease_duration_s > renew_deadline_s > 1.2 * retry_period_s > 0. Raises ValueError for anything else.
    """

    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    release: bool = True

    def __post_init__(self) -> None:
        if self.retry_period_s <= 0:
            raise ValueError("the retry period must be greater than zero")
        if self.renew_deadline_s <= JITTER * self.retry_period_s:
            raise ValueError(f"the renew deadline must be greater than {JITTER} retry periods")
        if self.lease_duration_s <= self.renew_deadline_s:
            raise ValueError("the lease duration must be greater than the renew deadline")
        if self.lease_duration_s != int(self.lease_duration_s):
            raise ValueError("the lease duration must be a whole number of seconds")

    @property
    def call_timeout_s(self) -> float:
        """LE-14: the limit of one call, short enough that a call that hangs does not lose the lease."""
        return max(1.0, self.renew_deadline_s / 2)

    @property
    def fence_margin_s(self) -> float:
        """How long before the end of the lease the last write must have been sent, or given up.

        Half of what lies between the renew deadline and the end of the lease: 2.5 s of 15. The first half is for the leader
        to end its work in order; this half is for what can happen after the fence has shut:

        - a request whose connection we have closed may still be carried out: milliseconds in an API server;
        - two clocks may run at different rates. chrony slews by up to 8.3 %, so with one machine too slow and the other too
          fast by that much, 12.5 s here may be 12.5 * 1.083 / 0.917 = 14.8 s there, which is less than 15.
        """
        return (self.lease_duration_s - self.renew_deadline_s) / 2


def hostname_uuid() -> str:
    """Return an identity that no other process has, not even a later one on the same host (LE-14)."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
