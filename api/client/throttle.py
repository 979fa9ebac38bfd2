"""The client-side rate limit, with metrics and log lines for the waits (WR-05)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

import structlog

if TYPE_CHECKING:
    from tfjob_operator.api.client.http import Request
    from tfjob_operator.api.client.metrics import RequestMetrics
    from tfjob_operator.workqueue.clock import Clock

LONG_WAIT_S: Final = 0.05
"""WR-05: shorter waits are normal, and not logged even at the level debug."""

VERY_LONG_WAIT_S: Final = 1.0
"""WR-05: from here on the limit, not the server, decides how fast we are; somebody should raise it."""

WARNING_EVERY_S: Final = 10.0
"""client-go's number: under a backlog every request waits, and one line is enough."""

log = structlog.get_logger(__name__)


class Limiter(Protocol):
    """A client-side rate limit, as `workqueue.TokenBucket` is one."""

    async def wait(self) -> None:
        """Return when the next request may leave."""
        ...


class Throttle:
    """Makes requests wait for a limiter; counts each wait, and logs the long ones."""

    def __init__(self, limiter: Limiter, metrics: RequestMetrics | None, clock: Clock) -> None:
        self._limiter = limiter
        self._metrics = metrics
        self._clock = clock
        self._warned_at = -math.inf

    async def wait(self, request: Request) -> None:
        """Return when `request` may leave. Cancelling gives its turn to the next one."""
        started = self._clock.monotonic()
        await self._limiter.wait()
        now = self._clock.monotonic()
        waited = now - started
        if self._metrics is not None:
            self._metrics.throttled(request.method, waited)
        if waited <= LONG_WAIT_S:
            return
        tell = log.debug
        if waited > VERY_LONG_WAIT_S and now - self._warned_at >= WARNING_EVERY_S:
            self._warned_at = now
            tell = log.warning
        tell("request_throttled_by_client", request=str(request), waited_s=round(waited, 3))
