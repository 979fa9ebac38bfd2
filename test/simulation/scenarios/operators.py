"""Two replicas of the operator, users, nodes and bad weather: at every write and at rest the world must be right.

A world is small, mostly: a few jobs, in whose stories all kinds meet sooner or later. Now and then there are dozens.
"""

from __future__ import annotations

import asyncio
import math
from random import Random
from typing import TYPE_CHECKING, Final

from simulation.holders import Holders
from simulation.kubelet import Kubelet
from simulation.meddlers import Meddlers
from simulation.model.controllers import GarbageCollector
from simulation.oracle import complaints
from simulation.processes import OperatorProcess
from simulation.users import NAMESPACES, Users
from simulation.watchman import LEASE, OPERATOR, Watchman
from simulation.world import require
from tfjob_operator.controller.leaderelection import LeaderElectionConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.nodes import Nodes
    from simulation.world import World

SIZES: Final = (1, 1, 2, 2, 3, 4, 6)
CROWD: Final = 40
"""The number of jobs in one world of fifty."""

LONG_DOMAIN: Final = "x" * 2100
"""With host names of that length two replicas are a large job, whose pods read their cluster specification from a ConfigMap."""

ELECTIONS: Final = (
    LeaderElectionConfig(),
    LeaderElectionConfig(60.0, 40.0, 8.0),
    LeaderElectionConfig(60.0, 40.0, 8.0),
)
"""The default, in which most of what happens are renewals, and one that leaves more time for work."""

SETTLED_S: Final = 480.0
"""After the faults' end: an expectation that is never met holds a job up for 300 s (EX-02), a retry may be due in a minute,
and the pods have their lives to live."""
QUIET_S: Final = (60.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0, 700.0)
"""At rest; the last is longer than a watch lives, so that reopening all of them is part of the rest."""
LATEST_TROUBLE_S: Final = 60.0
"""After the faults' end: a node that shuts down and is lost then needs another minute."""
PROMPT_S: Final = 2.0
CALM_S: Final = 12.0
"""Without a write, and under one leader, for so long, the world may be at rest: events are sent again after ten."""
LOST_S: Final = 140.0
"""So long the last moment of bad weather may be felt: a watch that froze then is taken for dead after 90 s, or later
by the 40 s for which its process stands still."""


async def operators_keep_their_promises(world: World) -> None:
    """Everything at once, then quiet."""
    await _play(world, unlucky=True)


async def operators_are_in_time(world: World) -> None:
    """Nothing goes wrong but what users and containers do: then everything happens within two seconds."""
    watchman = await _play(world, unlucky=False)
    late = [f"{what} after {delay:.3f} s" for delay, what in watchman.records.delays if delay > PROMPT_S]
    require(not late, f"too late: {late}")


async def _play(world: World, *, unlucky: bool) -> Watchman:
    random = world.random
    await world.create_namespaces(LEASE[0], *NAMESPACES)
    GarbageCollector(world.server, Random(f"garbage {world.seed}"))
    Holders(world, Random(f"holders {world.seed}"))
    kubelet = Kubelet(world, Random(f"kubelet {world.seed}"))
    watchman = Watchman(world, kubelet, forgivable_s=math.inf if unlucky else PROMPT_S)
    jobs = CROWD if random.random() < 0.02 else random.choice(SIZES)
    users = Users(world, Random(f"users {world.seed}"), jobs=jobs, busy=random.random() < 0.8)
    meddlers = Meddlers(world, Random(f"meddlers {world.seed}"), NAMESPACES) if unlucky else None
    election, workers = random.choice(ELECTIONS), random.choice((1, 4, 16))
    domain = LONG_DOMAIN if Random(f"domain {world.seed}").random() < 0.3 else ""
    replicas = [
        OperatorProcess(world, number, election=election, workers=workers, domain=domain) for number in range(2)
    ]
    for replica in replicas:
        replica.start()
    async with asyncio.TaskGroup() as group:
        if unlucky:
            _trouble_nodes(world, kubelet)
            for replica in replicas:
                group.create_task(_haunt(world, replica), name="fate")
    await _come_to_rest(world, watchman, max(users.done_at, meddlers.done_at if meddlers else 0.0), replicas)
    written = len(_writes(world))
    if random.random() < 0.5:
        await _change_leader(watchman, replicas)
    await asyncio.sleep(random.choice(QUIET_S))
    require(len(_writes(world)) == written, f"at rest, but: {_writes(world)[written:]}")
    _check(world, watchman)
    for replica in replicas:
        await replica.stop()
    return watchman


def _trouble_nodes(world: World, kubelet: Kubelet) -> None:
    loop, random = asyncio.get_running_loop(), world.random
    nodes = kubelet.nodes
    kinds = (nodes.lose, nodes.drain, nodes.shut_down)
    for trouble in random.choice(((), (), *((kind,) for kind in kinds), kinds, (nodes.lose,) * 2)):
        loop.call_at(random.uniform(5.0, world.calm_at), _strike, world, nodes, trouble)


def _strike(world: World, nodes: Nodes, trouble: Callable[[], None]) -> None:
    """Let a node be in trouble as soon as there is work on one, unless it is too late for that."""
    if nodes.are_busy:
        trouble()
    elif world.time < world.calm_at + LATEST_TROUBLE_S:
        asyncio.get_running_loop().call_later(1.0, _strike, world, nodes, trouble)


async def _haunt(world: World, replica: OperatorProcess) -> None:
    """Let one replica stall, die, and begin anew, while the weather is bad."""
    random = world.random
    pause = random.choice((8.0, 25.0, 100.0))
    while world.time < world.calm_at:
        await asyncio.sleep(min(random.expovariate(1 / pause), world.calm_at))
        if replica.has_ended:
            replica.start()
            continue
        match random.choice(("stall", "kill", "kill", "stop")):
            case "stall":
                replica.stall(random.choice((0.5, 3.0, 12.0, 16.0, 40.0)))
            case "kill":
                await replica.kill()
            case _:
                await replica.stop()
        await asyncio.sleep(random.choice((0.0, 1.0, 10.0)))


async def _come_to_rest(world: World, watchman: Watchman, done_at: float, replicas: list[OperatorProcess]) -> None:
    """Wait until everything is as it must be; people are through at `done_at`. Raises OracleError if it is not in time."""
    leader, led_since = "", world.time
    while True:
        for replica in replicas:
            if replica.has_ended:
                replica.start()
        require(not watchman.violations, "\n".join(watchman.violations))
        if watchman.holder() != leader:
            leader, led_since = watchman.holder(), world.time
        due = max(world.calm_at + LOST_S, done_at)
        writes = world.server.writes
        last = next((each.at for each in reversed(writes) if not each.client.startswith("lease-of-")), 0.0)
        if world.time > max(due, last + CALM_S, led_since + CALM_S):
            found = complaints(world, watchman.records)
            if leader not in {replica.name for replica in replicas}:
                found.append(f"nobody leads: the lease names {leader!r}")
            if not found:
                return
            require(world.time < due + SETTLED_S, "\n".join(found))
        await asyncio.sleep(3.0)


async def _change_leader(watchman: Watchman, replicas: list[OperatorProcess]) -> None:
    """The next leader finds nothing to do."""
    leader = next(replica for replica in replicas if replica.name == watchman.holder())
    await leader.kill()
    leader.start()


def _writes(world: World) -> list[str]:
    return [f"{each.method} {each.path}" for each in world.server.writes if each.client.startswith(OPERATOR)]


def _check(world: World, watchman: Watchman) -> None:
    require(not watchman.violations, "\n".join(watchman.violations))
    found = complaints(world, watchman.records)
    require(not found, "\n".join(found))
