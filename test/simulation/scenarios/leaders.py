"""Electors compete for one lease, in processes that stall, crash and restart: two never write at the same time.

The server's view counts: when it accepts a write from `_work`, the lease must not name another process. It may name none,
because a leader that steps down releases the lease while its last write may be in flight.
"""

import asyncio
from typing import Final

from kit.model.kinds import CONFIG_MAPS
from kit.processes import Process
from kit.world import require
from simulation.world import World
from simulation.write_judge import LEASE, lease_holder
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.controller.leaderelection import (
    Fence,
    FencedTransport,
    LeaderElector,
    LeadershipLostError,
    LeaseLock,
)

HOME: Final = LEASE[0]
WORK: Final = "work-of-"
"""The prefix of the names of clients that write as leaders."""
SETTLED_S: Final = 60.0
"""Seconds after the end of the faults: a lease expires after 15s, a candidate reads it every 4.4s, a request takes up to 40s.
"""
QUIET_S: Final = 40.0


class Candidate(Process):
    """A process that works while it leads. It restarts when it ends, with a new name."""

    async def stop(self) -> None:
        """Cancel the process, which steps down. Raises the exception with which it crashed, if any."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    async def _live(self) -> None:
        world, identity = self._world, self.name
        lease, work = self._connect(f"lease-of-{identity}"), self._connect(WORK + identity)
        fence = Fence(world.clock)
        client = RestClient(FencedTransport(world.traced(WORK + identity, work), fence), clock=world.clock)
        lock = LeaseLock(world.client(f"lease-of-{identity}", lease), *LEASE, identity=identity)
        elector = LeaderElector(
            lock,
            on_stopped_leading=lambda: world.note("stopped leading", identity),
            fence=fence,
            clock=world.clock,
            random=world.product_random,
        )
        try:
            await elector.run(lambda: self._work(client))
        except LeadershipLostError:
            world.note("lost", identity)

    async def _work(self, client: RestClient) -> None:
        """Write continuously, like a busy operator; failed writes are only noted."""
        while True:
            try:
                await client.patch(CONFIG_MAPS, HOME, "work", {"data": {"at": str(self._world.time)}})
            except ApiError as error:
                self._world.note("not written", self.name, type(error).__name__)
            await asyncio.sleep(self._world.random.choice((0.1, 1.0, 3.0)))


class LeaderWriteJudge:
    """Checks every write that the server accepts."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.last_at = -1.0
        self.trespasses: list[str] = []
        world.server.on_change.append(self._look)

    def holder(self) -> str:
        return lease_holder(self._world.server.storage)

    def _look(self) -> None:
        write = self._world.server.writes[-1]
        if not write.client.startswith(WORK):
            return
        self.last_at = write.at
        writer, holder = write.client.removeprefix(WORK), self.holder()
        self._world.note("accepted a write of", writer)
        if holder not in {writer, ""}:
            self.trespasses.append(f"at {write.at:.4f} s {writer} wrote while the lease names {holder}")


async def one_leader_writes(world: World) -> None:
    """Two or three candidates with stalls, crashes and network faults; afterwards one of them leads and stays the leader."""
    random = world.random
    await world.create_namespaces(HOME)
    await world.client("admin").create(CONFIG_MAPS, HOME, {"metadata": {"name": "work"}})
    judge = LeaderWriteJudge(world)
    candidates = [Candidate(world, str(number)) for number in range(random.choice((2, 3)))]
    for candidate in candidates:
        candidate.start()
    while world.time < world.calm_at:
        await asyncio.sleep(random.expovariate(1 / 8.0))
        candidate = random.choice(candidates)
        if candidate.has_ended:
            candidate.start()
            continue
        match random.choice(("stall", "stall", "kill", "stop", "nothing")):
            case "stall":
                world.stall(candidate.name, random.choice((0.5, 3.0, 12.0, 14.0, 16.0, 30.0)))
            case "kill":
                await candidate.kill()
            case "stop":
                await candidate.stop()
            case _:
                pass
    await asyncio.sleep(SETTLED_S)
    for candidate in candidates:
        if candidate.has_ended:
            candidate.start()
    await asyncio.sleep(SETTLED_S)
    leader, begun = judge.holder(), world.time
    require(leader in {candidate.name for candidate in candidates}, f"nobody leads: the lease names {leader!r}")
    await asyncio.sleep(QUIET_S)
    require(judge.holder() == leader, f"in calm weather the lease went from {leader} to {judge.holder()}")
    require(judge.last_at > begun, f"{leader} leads and does not write")
    for candidate in candidates:
        await candidate.stop()
    require(judge.holder() == "", "the lease was not given back")
    require(not judge.trespasses, "\n".join(judge.trespasses))
