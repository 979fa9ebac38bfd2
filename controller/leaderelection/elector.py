"""Leader election: of all processes that run an elector on one lock, one at a time does the work.

Clocks are never compared with each other. A candidate watches the record. When the record has not changed for the lease
duration that it states, by the candidate's own monotonic clock, the candidate takes over (LE-04). A leader counts the same
duration from before it sent its last renewal, which is earlier than anybody can have seen it, and shuts its fence a margin
before the end. A liveness probe fails when a process still works as leader after the end of its lease (LE-13).
"""

from __future__ import annotations

import asyncio
import contextlib
import random as stdlib_random
from collections.abc import Callable, Coroutine
from typing import Final

import structlog

from tfjob_operator.controller.leaderelection.claim import Claim, ElectorMetrics, Outcome
from tfjob_operator.controller.leaderelection.config import JITTER, LeaderElectionConfig
from tfjob_operator.controller.leaderelection.fence import Fence
from tfjob_operator.controller.leaderelection.lease import LeaderElectionRecord, LeaseWatch, ResourceLock
from tfjob_operator.workqueue.clock import Clock, LoopClock
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider

log = structlog.get_logger(__name__)


class LeadershipLostError(Exception):
    """The lease could not be renewed. The process should exit, since what it knows may be out of date (LE-14)."""


class LeaderElector:
    """Waits for the lease, does the work while it holds it, and gives it back.

    Invariants:
    - the work runs only after the lease was acquired; it is cancelled when the lease is lost, and `run` returns only after
      it has ended;
    - `fence` is open only while nobody else can hold the lease;
    - `on_stopped_leading` is called exactly once per `run`, however that ends, also if it never led (LE-10). When the lease
      is lost it is called at once, before the work has ended;
    - the lease is given back only after the work, and all that it wrote through the fence, has ended (LE-11).

    For one loop; `run` must not be called while it runs.
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
        """Prepare to lead.

        on_stopped_leading: is called when leading ends.
        on_new_leader: is called, after the fact, with each leader that is seen, ourselves included; "" says that there is
            none.
        fence: the one through which the work writes (see `FencedTransport`).
        watch: shows a candidate at once that the lease was renewed or given back; without it the next attempt does.
        name: labels the metrics; that of the lock if empty.
        random: returns a float in [0, 1), as `random.random` does.

        Raises ValueError when the lock has no identity (LE-02).
        """
        if not lock.identity:
            raise ValueError("the lock needs an identity")
        clock = clock or LoopClock()
        self._config = config or LeaderElectionConfig()
        self._on_stopped_leading = on_stopped_leading
        self._on_new_leader = on_new_leader
        self._name = name or str(lock)
        self._clock = clock
        self._random = random
        self._leading = False  # the lease is ours as far as we know
        self._working = False  # the work has not ended
        self._told_stopped = True
        self._told_leader = ""
        self._watch = watch
        self._freed = asyncio.Event()
        self.fence = fence or Fence(clock)
        self._claim = Claim(
            lock,
            self._config,
            fence=self.fence,
            metrics=ElectorMetrics(metrics, self._name, leads=lambda: self._leading),
            clock=clock,
        )

    @property
    def is_leader(self) -> bool:
        """Whether we lead, as far as we know. Whether a write may be sent, only the fence knows."""
        return self._leading

    @property
    def leader(self) -> str:
        """The identity of the leader that was seen last; empty when there is none."""
        return self._claim.leader

    def overdue_s(self) -> float:
        """How many seconds ago the lease ended though the work goes on; 0 when all is well (LE-13)."""
        return max(0.0, self._clock.monotonic() - self._claim.expires_at) if self._working else 0.0

    async def run(self, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Wait for the lease, then do the work.

        Returns, with the lease given back, when the work returns; raises what the work raises. Raises LeadershipLostError
        when the lease is lost. Cancelling ends the work and gives the lease back, unless that cuts off a write.
        """
        self._told_stopped = False
        try:
            await self._acquire()
            await self._lead(work)
        finally:
            self._stop_leading()

    async def _acquire(self) -> None:
        log.info("lease_awaited", lease=self._name)
        if await self._attempt() is not Outcome.OURS:
            watching = asyncio.create_task(self._watch_the_lease(), name=f"watching-{self._name}")
            try:
                await self._pause()
                while await self._attempt() is not Outcome.OURS:
                    await self._pause()
            finally:
                await _end(watching)
        log.info("lease_acquired", lease=self._name)

    async def _watch_the_lease(self) -> None:
        if self._watch is not None:
            await self._watch.run(self._see)

    def _see(self, record: LeaderElectionRecord | None) -> None:
        if record is None or not record.holder_identity:
            self._freed.set()
        else:
            self._claim.watched(record)

    async def _pause(self) -> None:
        """LE-03: wait for the next attempt, but only until the lease is seen to be free, or has run out."""
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
                working.result()  # raises what the work raised, also if it did so because it was cancelled
        if lost:
            cause = _failure(renewing) or _failure(working)
            raise LeadershipLostError(f"the lease {self._name} was lost") from cause

    async def _step_down(self) -> None:
        """Give the lease back. The fence shuts first, since another process may lead as soon as the request is sent.

        A write without a response counts as work that has not ended. The lease is then left to expire, which takes hardly
        longer.
        """
        self.fence.close()
        if not self.fence.settled:
            log.warning("lease_kept", lease=self._name, why="a write was cut off, and may still take effect")
            return
        await self._claim.give_back()
        self._report_transition()

    async def _renew_until_lost(self) -> None:
        outcome = Outcome.OURS
        while outcome is Outcome.OURS:
            await asyncio.sleep(self._config.retry_period_s)
            outcome = await self._renew()
        log.error("lease_lost", lease=self._name, leader=self.leader, outcome=outcome.name.lower())

    async def _renew(self) -> Outcome:
        """Try until it is clear whether the lease is still ours, or time is up (LE-07)."""
        # Not past the end of the fence, when we cannot write any more. A process that was frozen for longer gets one attempt:
        # perhaps nobody has taken the lease.
        limit = max(min(self._config.renew_deadline_s, self.fence.remaining()), self._config.call_timeout_s)
        try:
            async with asyncio.timeout(limit):
                while True:
                    outcome = await self._attempt()
                    if outcome is not Outcome.FAILED:
                        return outcome
                    await asyncio.sleep(self._config.retry_period_s)
        except TimeoutError:
            return Outcome.FAILED

    async def _attempt(self) -> Outcome:
        outcome = await self._claim.attempt(leading=self._leading)
        self._report_transition()
        return outcome

    def _stop_leading(self) -> None:
        """Shut the fence and call `on_stopped_leading`, unless that was done already."""
        self.fence.close()
        self._leading = False
        if not self._told_stopped:
            self._told_stopped = True
            if self._on_stopped_leading is not None:
                self._on_stopped_leading()

    def _report_transition(self) -> None:
        """LE-12: report a new leader in a callback of its own, which can neither delay a renewal nor break it."""
        leader = self._claim.leader
        if leader == self._told_leader:
            return
        self._told_leader = leader
        log.info("leader_observed", lease=self._name, leader=leader)
        if self._on_new_leader is not None:
            asyncio.get_running_loop().call_soon(self._on_new_leader, leader)


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks and wait until all have ended, also if we are cancelled meanwhile."""
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
"""LE-13: how long past the end of the lease a leader may still be at work before it counts as stuck;
kube-controller-manager's number."""


class LeaderHealth:
    """The health of an elector, which may be created after the health server; healthy until there is one."""

    def __init__(self, tolerance_s: float = TOLERANCE_S) -> None:
        self._tolerance_s = tolerance_s
        self._elector: LeaderElector | None = None

    def watch(self, elector: LeaderElector) -> None:
        """Check `elector` from now on."""
        self._elector = elector

    def check(self) -> str | None:
        """Return what is wrong, or None. A process that does not lead is healthy."""
        overdue_s = self._elector.overdue_s() if self._elector is not None else 0.0
        if overdue_s <= self._tolerance_s:
            return None
        return f"still at work {overdue_s:.0f} s after the end of its lease"
