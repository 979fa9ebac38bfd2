"""The kubelet's and the node controller's waiting times, scaled down so that tests and demos do not take hours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RESTART_BASE_S: Final = 10.0  # kubelet: backOffPeriod
RESTART_CAP_S: Final = 300.0  # kubelet: MaxContainerBackOff
RESTART_RESET_S: Final = 600.0  # client-go's flowcontrol.Backoff forgets after twice the cap
BACK_OFF_TOLD_S: Final = 5.0  # recorded: CrashLoopBackOff is reported by a later sync, 1 to 14 s after the end
PHASE_LAG_S: Final = 1.3  # recorded: 1.1 to 1.7 s between the ends of the containers and that of the pod
UNREACHABLE_S: Final = 300.0  # the toleration that the API server gives every pod for an unreachable node

DEFAULT_SCALE: Final = 1 / 20  # ten seconds become half of one: a crash loop can be watched, and a test can wait for it


@dataclass(frozen=True, slots=True)
class Timing:
    """Waiting times, all multiplied by `scale` (1.0 is a real cluster).

    `starting` is how many seconds a pod takes to get its sandbox, and then again to run its first container. With 0 its first
    status says Running: a real kubelet, too, sends only the newest of several statuses.
    """

    scale: float = DEFAULT_SCALE
    starting: float = 0.0

    def restart_delay(self, restarts: int, lasted: float) -> float:
        """Return the seconds between the end of a run and the next start, after `restarts` restarts so far.

        As in the kubelet, the first restart comes at once, then after 10 s doubled each time up to 5 minutes; after a run of
        more than 10 minutes the restart comes at once. (The kubelet then starts the doubling anew. We go on where we were,
        because the status has no field to remember it in.)
        """
        if restarts == 0 or lasted > RESTART_RESET_S * self.scale:
            return 0.0
        doublings = min(restarts - 1, 10)  # the cap is reached long before; the bound keeps the power small
        return float(min(RESTART_BASE_S * 2**doublings, RESTART_CAP_S) * self.scale)

    @property
    def start(self) -> float:
        """Seconds from one stage of a pod's start to the next."""
        return self.starting * self.scale

    @property
    def back_off_told(self) -> float:
        """Seconds between the end of a run and the report that the next one has to wait."""
        return BACK_OFF_TOLD_S * self.scale

    @property
    def phase_lag(self) -> float:
        """Seconds between the end of a pod's last container and that of the pod, since 1.22."""
        return PHASE_LAG_S * self.scale

    @property
    def unreachable(self) -> float:
        """Seconds between the loss of a node and the deletion of its pods."""
        return UNREACHABLE_S * self.scale
