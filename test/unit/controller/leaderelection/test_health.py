"""What the liveness probe reports of an elector."""

from __future__ import annotations

import asyncio

from fakes.virtual_loop import VirtualClock
from tfjob_operator.controller.leaderelection import LeaderElector, LeaderHealth
from unit.controller.leaderelection.model import LockServer, ModelLock, for_ever


async def test_before_there_is_an_elector_all_is_well() -> None:
    """LE-13, healthzadaptor_test.go:TestLeaderElectionHealthChecker."""
    assert LeaderHealth().check() is None


async def test_a_leader_that_renews_and_a_candidate_are_healthy() -> None:
    """LE-13, healthzadaptor_test.go:TestLeaderElectionHealthChecker: however long they live."""
    server, health = LockServer(), (LeaderHealth(0.0), LeaderHealth(0.0))
    electors = [LeaderElector(ModelLock(server, name), clock=VirtualClock()) for name in ("a", "b")]
    running = []
    for one, elector in zip(health, electors, strict=True):
        one.watch(elector)
        running.append(asyncio.create_task(elector.run(for_ever)))
        await asyncio.sleep(1.0)
    for _ in range(100):
        await asyncio.sleep(7.0)
        assert [one.check() for one in health] == [None, None]
    assert [elector.is_leader for elector in electors] == [True, False]
    for task in reversed(running):
        task.cancel()
        await asyncio.wait([task])


async def test_work_that_will_not_end_makes_the_process_unhealthy_after_lease_and_tolerance() -> None:
    """LE-13, healthzadaptor_test.go:TestLeaderElectionHealthChecker: it lost the lease and should have died.

    TestCheckMethodRace has no counterpart here: one loop, no races.
    """
    lock, health = ModelLock(LockServer(), "a"), LeaderHealth(20.0)
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    elector = LeaderElector(lock, clock=VirtualClock())
    health.watch(elector)
    running = asyncio.create_task(elector.run(stubborn))
    await asyncio.sleep(3.0)  # the last renewal was at 2.0 s
    lock.before = for_ever
    await asyncio.sleep(33.9)
    assert health.check() is None, "2 + 15 + 20 s are not over"
    await asyncio.sleep(0.2)
    assert health.check() == "still at work 20 s after the end of its lease"
    released.set()
    await asyncio.wait([running])
    assert health.check() is None
    assert running.exception() is not None
