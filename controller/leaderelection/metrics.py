"""The metrics of an elector; the label is the elector's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.workqueue.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.workqueue.metrics import MetricsProvider

MASTER_STATUS: Final = Metric("leader_election_master_status", "Whether this process leads: 1 or 0")
SLOWPATH: Final = Metric(
    "leader_election_slowpath_total", "Renewals that had to read the lease first, because the optimistic write failed"
)

COUNTERS: Final = (SLOWPATH,)
GAUGES: Final = (MASTER_STATUS,)


class ElectorMetrics:
    """The metrics of one elector."""

    def __init__(self, provider: MetricsProvider, name: str, *, leads: Callable[[], bool]) -> None:
        """Create the series of the elector `name`; `leads` returns, at each scrape, whether it leads."""
        self._slowpath = provider.counter(SLOWPATH, name)
        provider.gauge(MASTER_STATUS, name).set_function(lambda: float(leads()))

    def slowpath(self) -> None:
        """Count a renewal that took the slow path."""
        self._slowpath.inc()
