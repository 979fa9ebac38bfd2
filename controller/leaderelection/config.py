"""The durations of an election, validated against each other, and the identity of a process."""

from __future__ import annotations

import socket
import uuid
from dataclasses import dataclass, field
from typing import Final

JITTER: Final = 1.2
"""A candidate sleeps between 1 and 2.2 retry periods, so that candidates that started together diverge."""


LONGEST_LEASE_S: Final = 600
"""The longest time to wait for another process's lease. A live holder renews it many times meanwhile, whatever its duration."""


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """The times of an election, in seconds.

    lease_duration_s: how long others wait without a renewal before they take over. Whole seconds, as in the record.
    renew_deadline_s: how long the leader tries to renew before it gives up.
    retry_period_s: the pause between attempts.
    release: whether to release the lease when the work has ended, so that others need not wait for it to expire.

    Invariant: 600 >= lease_duration_s > renew_deadline_s > 1.2 * retry_period_s > 0. Raises ValueError otherwise.
    """

    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    release: bool = True

    def __post_init__(self) -> None:
        if not self.retry_period_s > 0:
            raise ValueError("the retry period must be greater than zero")
        if not self.renew_deadline_s > JITTER * self.retry_period_s:
            raise ValueError(f"the renew deadline must be greater than {JITTER} retry periods")
        if not self.lease_duration_s > self.renew_deadline_s:
            raise ValueError("the lease duration must be greater than the renew deadline")
        if self.lease_duration_s > LONGEST_LEASE_S:
            raise ValueError(f"the lease duration must be at most {LONGEST_LEASE_S} s, after which others take over")
        if self.lease_duration_s != int(self.lease_duration_s):
            raise ValueError("the lease duration must be a whole number of seconds")

    @property
    def call_timeout_s(self) -> float:
        """The timeout of one request, short enough that a hanging request does not lose the lease."""
        return max(1.0, self.renew_deadline_s / 2)

    @property
    def fence_margin_s(self) -> float:
        """The margin before the end of the lease. When it begins, the last write must have been sent or abandoned.

        Half of the time between the renew deadline and the end of the lease: by default 2.5 s of the 15 s. In the first half,
        the leader stops its work in an orderly way. The second half covers what can happen after the fence has closed:

        - an API server may still execute a request whose connection was closed, for some milliseconds;
        - clocks may run at different rates. chrony slews by up to 8.3%, so in the worst case 12.5 s here are 12.5 * 1.083 /
          0.917 = 14.8 s on another machine, which is less than 15.
        """
        return (self.lease_duration_s - self.renew_deadline_s) / 2


@dataclass(frozen=True, slots=True)
class Election:
    """The lease for which replicas compete, and the times of the election."""

    namespace: str
    name: str
    times: LeaderElectionConfig = field(default_factory=LeaderElectionConfig)


def hostname_uuid() -> str:
    """Return an identity unique to this process, even among later ones on the same host."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
