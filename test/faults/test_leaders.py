"""Two real operators whose leader is disturbed repeatedly: by the server's record nobody writes without the Lease."""

import asyncio
from pathlib import Path
from random import Random
from typing import Final

import pytest

from faults import cut
from faults.cut import Cut
from faults.leaders import LEASE_S, LIMIT_S, NAMES, Clocks, Stop, Writes, match, play, why_no_clocks
from faults.processes import say
from support.waiting import until

ROUNDS: Final = 3
HOUR_S: Final = 3600
WITHIN_S: Final = 60
"""The maximum difference between the machine's clock and the API server's log on a busy machine."""


def judge(writes: Writes) -> None:
    """There must be no write without the lease, and both operators must have written."""
    assert writes.without_the_lease() == []
    assert all(writes.count(name) for name in NAMES)
    say(f"{len(writes.others)} writes; {writes.on_their_way()} without the lease had been let through before the harm")


def test_a_leader_that_is_stopped_writes_nothing_once_it_has_lost_the_lease(tmp_path: Path) -> None:
    """B32: SIGSTOP for longer than the lease, SIGCONT when the other one has written; by what the server says of each write.

    What was between the fence and the network when the process was stopped does not count.
    """
    judge(asyncio.run(play(tmp_path, lambda _: Stop(), rounds=ROUNDS)))


def test_a_leader_without_a_fence_is_found(tmp_path: Path) -> None:
    """Between its awakening and the moment in which it notices, it goes on with what it was about to write."""
    writes = asyncio.run(play(tmp_path, lambda _: Stop(), rounds=10, bug="writes-are-not-fenced"))
    assert writes.without_the_lease()


@pytest.mark.skipif(bool(cut.why_not()), reason=cut.why_not())
def test_a_leader_whose_network_is_cut_writes_nothing_once_it_has_lost_the_lease(tmp_path: Path) -> None:
    """B32: all its packets are dropped in its own network namespace, until the other one has written."""
    judge(asyncio.run(play(tmp_path, Cut, rounds=ROUNDS)))


@pytest.mark.skipif(bool(why_no_clocks()), reason=why_no_clocks())
@pytest.mark.parametrize("seconds", [HOUR_S, 1 - HOUR_S], ids=["an-hour-on", "an-hour-back"])
def test_a_leader_whose_clock_is_moved_goes_on_and_is_followed_as_any_other(tmp_path: Path, seconds: int) -> None:
    """B32: leases are counted by monotonic clocks. With the wrong time it leads on, and loses the lease when it is stopped."""
    moved = Clocks(tmp_path)

    async def run() -> Writes:
        async with match(tmp_path, lambda _: Stop(), place=moved.place) as it:
            await until(it.leader, "a replica leads", limit_s=LIMIT_S)
            old, reigns = it.leader(), len(it.writes.reigns_begun)
            moved.move(old, seconds)
            writes = it.writes.count(old)
            await asyncio.sleep(2 * LEASE_S)  # what is to happen in this time is nothing
            await until(
                lambda: it.leader() and it.writes.count(old) > writes + 10, "the leader writes again", limit_s=LIMIT_S
            )
            assert len(it.writes.reigns_begun) == reigns
            assert any(abs(each - seconds) < WITHIN_S for each in it.writes.wrong_s(old))
            await it.harm(Random(1))
            return it.writes

    judge(asyncio.run(run()))
