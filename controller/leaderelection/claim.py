"""One process's claim to a lock: single attempts to acquire, renew and release it, and what these showed of the lock.

When to try again, and what to do as leader, is decided by the elector.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, TypeVar

import structlog

from tfjob_operator.api.client.errors import ApiError, ConflictError, RequestTimeoutError
from tfjob_operator.controller.leaderelection.config import LeaderElectionConfig
from tfjob_operator.controller.leaderelection.fence import Fence
from tfjob_operator.controller.leaderelection.lease import LeaderElectionRecord, ResourceLock
from tfjob_operator.workqueue.clock import Clock
from tfjob_operator.workqueue.metrics import Metric, MetricsProvider

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


T = TypeVar("T")
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
RELEASE_TRIES: Final = 5
RELEASE_RETRY_S: Final = 0.01
"""LE-11: a conflict with a renewal whose response was lost is over at the next read."""
log = structlog.get_logger(__name__)


MOST_TRANSITIONS: Final = 2**31 - 1
"""leaseTransitions is an int32, which the API server refuses beyond this: the count then stays, and leading goes on."""
LONGEST_LEASE_S: Final = 600
"""The longest foreign lease that is waited for. A live holder renews it many times meanwhile, whatever the duration."""


class Outcome(enum.Enum):
    """What came of one attempt to acquire or renew the lock."""

    OURS = enum.auto()
    THEIRS = enum.auto()
    FAILED = enum.auto()


class Claim:
    """Knows the record that was seen last, and until when it is valid by our clock (LE-04).

    Invariants: another process's record is valid from the moment after the response that showed it, so no holder loses any
    of its time; only this class opens the fence, after a successful write, and our own lease counts from before that
    request, so nobody else can think that it ends earlier than we do.
    """

    def __init__(
        self, lock: ResourceLock, config: LeaderElectionConfig, *, fence: Fence, metrics: ElectorMetrics, clock: Clock
    ) -> None:
        self._lock = lock
        self._config = config
        self._fence = fence
        self._metrics = metrics
        self._clock = clock
        self._observed: LeaderElectionRecord | None = None
        self.expires_at = 0.0

    @property
    def leader(self) -> str:
        """The holder that was seen last; empty when there is none."""
        return self._observed.holder_identity if self._observed is not None else ""

    async def attempt(self, *, leading: bool) -> Outcome:
        """Try once to acquire the lock or, when `leading`, to renew it. Raises no ApiError."""
        try:
            return await self._attempt_from_memory() or await self._attempt_from_the_server(leading=leading)
        except ConflictError as error:
            log.debug("lease_race_lost", lease=str(self._lock), error=str(error))
        except ApiError as error:
            log.warning("lease_attempt_failed", lease=str(self._lock), error=str(error))
        return Outcome.FAILED

    def watched(self, record: LeaderElectionRecord) -> None:
        """Take in another process's record that a watch has shown, unless it is older than the one that was seen last.

        A watch may lag. A record that it shows late is valid for longer in our eyes, which harms nobody; and one that is
        mistaken for an older one is seen by the next attempt.
        """
        if not self._is_ours(record) and (self._observed is None or _age(record) > _age(self._observed)):
            self._note(record)

    async def give_back(self) -> None:
        """Release the lock if it is ours (LE-11). If that fails, it expires by itself."""
        failure: Exception | None = None
        try:
            async with asyncio.timeout(self._config.renew_deadline_s):
                for _ in range(RELEASE_TRIES):
                    try:
                        await self._give_back_once()
                    except ApiError as error:
                        failure = error
                        await asyncio.sleep(RELEASE_RETRY_S)
                    else:
                        return
        except TimeoutError as error:
            failure = failure or error
        log.warning("lease_not_released", lease=str(self._lock), error=str(failure))

    async def _attempt_from_memory(self) -> Outcome | None:
        """Renew without a read if, as far as we know, the lock is ours (LE-06). Return None if it must be read."""
        observed = self._observed
        if observed is None or not self._is_ours(observed) or self._clock.monotonic() >= self.expires_at:
            return None
        try:
            return await self._write(self._lock.update, self._successor(observed))
        except ApiError as error:
            log.debug("lease_fast_path_failed", lease=str(self._lock), error=str(error))
            return None

    async def _attempt_from_the_server(self, *, leading: bool) -> Outcome:
        record = await self._bounded(self._lock.get())
        if record is not None and record != self._observed:
            self._note(record)
        if record is not None and self._is_ours(record):
            self._metrics.slowpath()
        elif leading and not self._fence.remaining():
            # Others may have held the lock in between, so what the work knows may be out of date.
            return Outcome.THEIRS
        elif record is None:
            return await self._write(self._lock.create, self._successor(None))
        elif record.holder_identity and self._clock.monotonic() < self.expires_at:
            return Outcome.THEIRS
        return await self._write(self._lock.update, self._successor(record))

    def _note(self, record: LeaderElectionRecord) -> None:
        # One that does not say for how long it is good (LE-05) gets as long as ours.
        lasts = min(record.lease_duration_s, LONGEST_LEASE_S) or self._config.lease_duration_s
        self._observed, self.expires_at = record, self._clock.monotonic() + lasts

    async def _write(
        self, write: Callable[[LeaderElectionRecord], Awaitable[None]], record: LeaderElectionRecord
    ) -> Outcome:
        sent_at = self._clock.monotonic()
        await self._bounded(write(record))
        self._observed, self.expires_at = record, sent_at + record.lease_duration_s
        self._fence.open_until(self.expires_at - self._config.fence_margin_s)
        # A response can come so late that the time it confirms is over.
        return Outcome.OURS if self._fence.remaining() else Outcome.FAILED

    async def _give_back_once(self) -> None:
        record = await self._bounded(self._lock.get())
        if record is None or not self._is_ours(record):
            return
        now = self._clock.now()
        # One second, in case somebody only looks at the duration: zero is not a valid one.
        free = LeaderElectionRecord("", 1, now, now, record.leader_transitions)
        await self._bounded(self._lock.update(free))
        self._observed = free
        log.info("lease_released", lease=str(self._lock))

    def _successor(self, old: LeaderElectionRecord | None) -> LeaderElectionRecord:
        """Return the record with which we lead after `old`. Transitions count changes of the holder only (LE-08)."""
        now = self._clock.now()
        acquired, transitions = now, 0
        if old is not None and self._is_ours(old):
            acquired, transitions = old.acquire_time or now, old.leader_transitions
        elif old is not None:
            transitions = min(old.leader_transitions + 1, MOST_TRANSITIONS)
        return LeaderElectionRecord(self._lock.identity, int(self._config.lease_duration_s), acquired, now, transitions)

    async def _bounded(self, call: Awaitable[T]) -> T:
        """Limit the time of one call, so that it cannot take all there is (LE-14)."""
        limit = self._config.call_timeout_s
        try:
            async with asyncio.timeout(limit):
                return await call
        except TimeoutError as error:
            raise RequestTimeoutError(f"no response within {limit:g} s") from error

    def _is_ours(self, record: LeaderElectionRecord) -> bool:
        return record.holder_identity == self._lock.identity


def _age(record: LeaderElectionRecord) -> tuple[int, datetime]:
    return record.leader_transitions, record.renew_time or _NEVER
