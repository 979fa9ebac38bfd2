"""Leader election: of all processes with an elector on the same lock, one is active at a time.

Clocks of different machines are never compared. A candidate watches the record. If the record stays unchanged for the lease
duration that it states, measured by the candidate's own monotonic clock, the candidate takes over. A leader counts the
same duration from before it sent its last renewal. A candidate can observe that renewal only later. The leader closes its fence
a margin before that duration ends. The liveness probe fails if a process is still active as leader after its lease ended.

A claim makes single attempts to acquire, renew and release the lock; the elector decides when to retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random as stdlib_random
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Final, TypeVar

import structlog

from tfjob_operator.api.client.errors import ApiError, ConflictError, RequestTimeoutError
from tfjob_operator.controller.leaderelection.config import JITTER, LONGEST_LEASE_S, LeaderElectionConfig
from tfjob_operator.controller.leaderelection.fence import Fence
from tfjob_operator.controller.leaderelection.lease import LeaderElectionRecord, LeaseWatch, ResourceLock
from tfjob_operator.workqueue.clock import Clock, LeaseClock
from tfjob_operator.workqueue.metrics import NO_METRICS, Counter, Metric, MetricsProvider

MASTER_STATUS: Final = Metric("leader_election_master_status", "Whether this process leads: 1 or 0")
SLOWPATH: Final = Metric(
    "leader_election_slowpath_total", "Renewals that had to read the lease first, because the optimistic write failed"
)


T = TypeVar("T")
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
RELEASE_TRIES: Final = 5
RELEASE_RETRY_S: Final = 0.01
"""A conflict with a renewal whose response was lost is resolved by the next read."""
log = structlog.get_logger(__name__)


MAX_TRANSITIONS: Final = 2**31 - 1
"""leaseTransitions is an int32, and the API server rejects larger values: the count then stays constant."""


class AttemptResult(enum.Enum):
    """The result of one attempt to acquire or renew the lock."""

    OURS = enum.auto()
    THEIRS = enum.auto()
    FAILED = enum.auto()


class LeaseClaim:
    """The last observed record, and until when it is valid by our clock.

    Invariants: the validity of another process's record counts from when we received the record, so no holder loses time; only
    this class opens the fence, after a successful write; our own lease counts from before we sent that write, so we consider it
    expired no later than any other process does.
    """

    def __init__(
        self, lock: ResourceLock, config: LeaderElectionConfig, *, fence: Fence, slowpath: Counter, clock: Clock
    ) -> None:
        self._lock = lock
        self._config = config
        self._fence = fence
        self._slowpath = slowpath
        self._clock = clock
        self._observed: LeaderElectionRecord | None = None
        self.expires_at = 0.0

    @property
    def leader(self) -> str:
        """The last observed holder; empty if there is none."""
        return self._observed.holder_identity if self._observed is not None else ""

    async def attempt(self, *, leading: bool) -> AttemptResult:
        """Try once to acquire the lock or, when `leading`, to renew it. Does not raise ApiError."""
        try:
            return await self._attempt_from_memory() or await self._attempt_from_the_server(leading=leading)
        except ConflictError as error:
            log.debug("lease_race_lost", lease=str(self._lock), error=str(error))
        except ApiError as error:
            log.warning("lease_attempt_failed", lease=str(self._lock), error=str(error))
        return AttemptResult.FAILED

    def watched(self, record: LeaderElectionRecord) -> None:
        """Process another process's record from a watch, unless it is older than the last observed one.

        A watch may lag. A record that arrives late is considered valid for too long, which is harmless. If a record is mistaken
        for an older one and ignored, the next attempt reads it.
        """
        if not self._is_ours(record) and (self._observed is None or _age(record) > _age(self._observed)):
            self._note(record)

    async def release(self) -> None:
        """Release the lock if it is ours. If that fails, it expires by itself."""
        failure: Exception | None = None
        try:
            async with asyncio.timeout(self._config.renew_deadline_s):
                for _ in range(RELEASE_TRIES):
                    try:
                        await self._release_once()
                    except ApiError as error:
                        failure = error
                        await asyncio.sleep(RELEASE_RETRY_S)
                    else:
                        return
        except TimeoutError as error:
            failure = failure or error
        log.warning("lease_not_released", lease=str(self._lock), error=str(failure))

    async def _attempt_from_memory(self) -> AttemptResult | None:
        """Renew without a read if the last observed record is ours. Return None if the lease must be read."""
        observed = self._observed
        if observed is None or not self._is_ours(observed) or self._clock.monotonic() >= self.expires_at:
            return None
        try:
            return await self._write(self._lock.update, self._successor(observed))
        except ApiError as error:
            log.debug("lease_fast_path_failed", lease=str(self._lock), error=str(error))
            return None

    async def _attempt_from_the_server(self, *, leading: bool) -> AttemptResult:
        record = await self._bounded(self._lock.get())
        if record is not None and record != self._observed:
            self._note(record)
        if record is not None and self._is_ours(record):
            self._slowpath.inc()
        elif leading and not self._fence.remaining():
            # Others may have held the lock in between, so our state may be outdated.
            return AttemptResult.THEIRS
        elif record is None:
            return await self._write(self._lock.create, self._successor(None))
        elif record.holder_identity and self._clock.monotonic() < self.expires_at:
            return AttemptResult.THEIRS
        return await self._write(self._lock.update, self._successor(record))

    def _note(self, record: LeaderElectionRecord) -> None:
        # A record without a duration is treated like ours.
        lasts = min(record.lease_duration_s, LONGEST_LEASE_S) or self._config.lease_duration_s
        self._observed, self.expires_at = record, self._clock.monotonic() + lasts

    async def _write(
        self, write: Callable[[LeaderElectionRecord], Awaitable[None]], record: LeaderElectionRecord
    ) -> AttemptResult:
        sent_at = self._clock.monotonic()
        await self._bounded(write(record))
        self._observed, self.expires_at = record, sent_at + record.lease_duration_s
        self._fence.open_until(self.expires_at - self._config.fence_margin_s)
        # The response may arrive when the lease that it confirms has already expired.
        return AttemptResult.OURS if self._fence.remaining() else AttemptResult.FAILED

    async def _release_once(self) -> None:
        record = await self._bounded(self._lock.get())
        if record is None or not self._is_ours(record):
            return
        now = self._clock.now()
        # One second, for clients that only read the duration: zero is invalid.
        free = LeaderElectionRecord("", 1, now, now, record.leader_transitions)
        await self._bounded(self._lock.update(free))
        self._observed = free
        log.info("lease_released", lease=str(self._lock))

    def _successor(self, old: LeaderElectionRecord | None) -> LeaderElectionRecord:
        """Return our record that follows `old`. The transition count grows only when the holder changes."""
        now = self._clock.now()
        acquired, transitions = now, 0
        if old is not None and self._is_ours(old):
            acquired, transitions = old.acquire_time or now, old.leader_transitions
        elif old is not None:
            transitions = min(old.leader_transitions + 1, MAX_TRANSITIONS)
        return LeaderElectionRecord(self._lock.identity, int(self._config.lease_duration_s), acquired, now, transitions)

    async def _bounded(self, call: Awaitable[T]) -> T:
        """Limit the duration of one request, so that it cannot use up the whole renew deadline."""
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


class LeadershipLostError(Exception):
    """The lease could not be renewed. The process should exit, since its state may be outdated."""


class LeaderElector:
    """Waits for the lease, runs the work while holding it, and releases it.

    Invariants:
    - the work runs only after the lease was acquired; it is cancelled when the lease is lost, and `run` returns only after it
      has ended;
    - `fence` is open only while no other process can hold the lease;
    - `on_stopped_leading` is called exactly once per `run`, however `run` ends, even if this process never led. When
      the lease is lost it is called immediately, before the work has ended;
    - the lease is released only after the work, and all its writes through the fence, have ended.

    Use it in one event loop; calls of `run` must not overlap.
    """

    def __init__(
        self,
        lock: ResourceLock,
        *,
        on_stopped_leading: Callable[[], None] | None = None,
        on_new_leader: Callable[[str], None] | None = None,
        config: LeaderElectionConfig | None = None,
        fence: Fence | None = None,
        watch: LeaseWatch | None = None,
        name: str = "",
        metrics: MetricsProvider = NO_METRICS,
        clock: Clock | None = None,
        random: Callable[[], float] = stdlib_random.random,
    ) -> None:
        """Create an elector.

        on_stopped_leading: called when leading ends.
        on_new_leader: called after each change of the leader, with its identity, which may be ours; "" if there is none.
        fence: the fence through which the work writes (see `FencedTransport`).
        watch: notifies a candidate immediately when the lease is renewed or released; without a watch, the candidate notices at
            its next attempt.
        name: labels the metrics; by default that of the lock.
        random: returns a float in [0, 1), like `random.random`.

        Raises ValueError if the lock has no identity, and if `fence` has another elector or another kind of clock, whose times
        would not end with the lease.
        """
        if not lock.identity:
            raise ValueError("the lock needs an identity")
        clock = clock or (fence.clock if fence is not None else LeaseClock())
        if fence is not None:
            fence.attach(clock)
        self._config = config or LeaderElectionConfig()
        self._on_stopped_leading = on_stopped_leading
        self._on_new_leader = on_new_leader
        self._name = name or str(lock)
        self._clock = clock
        self._random = random
        self._running = False
        self._leading = False  # as far as we know, the lease is ours
        self._working = False  # the work has not ended
        self._stop_reported = True
        self._reported_leader = ""
        self._watch = watch
        self._freed = asyncio.Event()
        self.fence = fence or Fence(clock)
        self._claim = LeaseClaim(
            lock,
            self._config,
            fence=self.fence,
            slowpath=metrics.counter(SLOWPATH, self._name),
            clock=clock,
        )
        metrics.gauge(MASTER_STATUS, self._name, read=lambda: float(self._leading))

    @property
    def is_leader(self) -> bool:
        """True if we lead, as far as we know. Only the fence determines whether a write may be sent."""
        return self._leading

    @property
    def leader(self) -> str:
        """The identity of the last observed leader; empty if there is none."""
        return self._claim.leader

    def overdue_s(self) -> float:
        """Return for how long the work has continued after the end of the lease, in seconds; normally 0."""
        return max(0.0, self._clock.monotonic() - self._claim.expires_at) if self._working else 0.0

    async def run(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Wait for the lease, then run the work.

        Returns after the work returned and the lease was released; raises errors of the work. Raises LeadershipLostError if the
        lease is lost. Cancelling ends the work and releases the lease; if a write was interrupted, the lease is not released.
        Raises RuntimeError if it is running already.
        """
        if self._running:
            raise RuntimeError(f"the elector of {self._name} is already running")
        self._running = True
        self._stop_reported = False
        try:
            await self._acquire()
            await self._lead(work)
        finally:
            self._running = False
            self._stop_leading()

    async def _acquire(self) -> None:
        log.info("lease_awaited", lease=self._name)
        if await self._attempt() is not AttemptResult.OURS:
            watching = asyncio.create_task(self._watch_the_lease(), name=f"watching-{self._name}")
            try:
                await self._pause()
                while await self._attempt() is not AttemptResult.OURS:
                    await self._pause()
            finally:
                await _end(watching)
        log.info("lease_acquired", lease=self._name)

    async def _watch_the_lease(self) -> None:
        if self._watch is not None:
            await self._watch.run(self._on_record)

    def _on_record(self, record: LeaderElectionRecord | None) -> None:
        if record is None or not record.holder_identity:
            self._freed.set()
        else:
            self._claim.watched(record)

    async def _pause(self) -> None:
        """Wait until the next attempt is due, but at most until the lease expires or is observed to be free."""
        pause_s = self._config.retry_period_s * (1 + JITTER * self._random())
        valid_s = self._claim.expires_at - self._clock.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(pause_s, valid_s) if valid_s > 0 else pause_s):
                await self._freed.wait()
        self._freed.clear()

    async def _lead(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        self._leading = self._working = True
        working = asyncio.create_task(work(), name=f"leading-{self._name}")
        renewing = asyncio.create_task(self._renew_until_lost(), name=f"renewing-{self._name}")
        lost = False
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            lost = not working.done()
            if lost:
                self._stop_leading()
        finally:
            try:
                await _end(working, renewing)
            finally:
                self._working = False
                if self._config.release and not lost:
                    await self._step_down()
            if not lost:
                working.result()  # raises errors of the work, even if it was cancelled
        if lost:
            cause = _failure(renewing) or _failure(working)
            raise LeadershipLostError(f"the lease {self._name} was lost") from cause

    async def _step_down(self) -> None:
        """Release the lease. The fence closes first, since another process may lead as soon as the request is sent.

        A write without a response counts as unfinished work. The lease is then left to expire, which takes only slightly
        longer.
        """
        self.fence.close()
        if not self.fence.quiescent:
            log.warning("lease_kept", lease=self._name, why="a write was interrupted and may still take effect")
            return
        await self._claim.release()
        self._report_transition()

    async def _renew_until_lost(self) -> None:
        outcome = AttemptResult.OURS
        while outcome is AttemptResult.OURS:
            await asyncio.sleep(self._config.retry_period_s)
            outcome = await self._renew()
        log.error("lease_lost", lease=self._name, leader=self.leader, outcome=outcome.name.lower())

    async def _renew(self) -> AttemptResult:
        """Try until it is clear whether the lease is still ours, or the time is up."""
        # Not past the end of the fence, when writing is no longer possible. A process that was frozen for longer gets one
        # attempt, in case the lease was not taken.
        limit = max(min(self._config.renew_deadline_s, self.fence.remaining()), self._config.call_timeout_s)
        try:
            async with asyncio.timeout(limit):
                while True:
                    outcome = await self._attempt()
                    if outcome is not AttemptResult.FAILED:
                        return outcome
                    await asyncio.sleep(self._config.retry_period_s)
        except TimeoutError:
            return AttemptResult.FAILED

    async def _attempt(self) -> AttemptResult:
        outcome = await self._claim.attempt(leading=self._leading)
        self._report_transition()
        return outcome

    def _stop_leading(self) -> None:
        """Close the fence and call `on_stopped_leading`, once."""
        self.fence.close()
        self._leading = False
        if not self._stop_reported:
            self._stop_reported = True
            if self._on_stopped_leading is not None:
                self._on_stopped_leading()

    def _report_transition(self) -> None:
        """Report a new leader in a separate callback, which can neither delay a renewal nor break it."""
        leader = self._claim.leader
        if leader == self._reported_leader:
            return
        self._reported_leader = leader
        log.info("leader_observed", lease=self._name, leader=leader)
        if self._on_new_leader is not None:
            asyncio.get_running_loop().call_soon(self._on_new_leader, leader)


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks and wait until all have ended, even if this call is cancelled meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    for task in tasks:
        task.cancel()
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


TOLERANCE_S: Final = 20.0
"""How long after the end of the lease a leader may still be active before it counts as stuck; kube-controller-manager's
value."""


class LeaderHealth:
    """The health of an elector. The elector may be created after the health server, and is healthy until then."""

    def __init__(self, tolerance_s: float = TOLERANCE_S) -> None:
        self._tolerance_s = tolerance_s
        self._elector: LeaderElector | None = None

    def watch(self, elector: LeaderElector) -> None:
        """Check `elector` from now on."""
        self._elector = elector

    def check(self) -> str | None:
        """Return the problem, or None. A process that does not lead is healthy."""
        overdue_s = self._elector.overdue_s() if self._elector is not None else 0.0
        if overdue_s <= self._tolerance_s:
            return None
        return f"still active {overdue_s:.0f}s after the end of its lease"
