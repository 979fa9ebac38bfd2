"""Two replicas of the operator, users, nodes and faults: every write and the state at rest must be right.

Most worlds are small: a few jobs, and over many seeds all combinations occur. Now and then there are dozens of jobs.
"""

import math
from functools import partial
from random import Random
from typing import Final

from simulation.kubelet import Kubelet
from simulation.meddlers import Holders, Meddlers
from simulation.model.controllers import GarbageCollector
from simulation.oracle import complaints
from simulation.stage import play
from simulation.users import NAMESPACES, Users
from simulation.watchman import LEASE, Watchman
from simulation.world import World, require

SIZES: Final = (1, 1, 2, 2, 3, 4, 6)
CROWD: Final = 40
"""The number of jobs in one of every fifty worlds."""

LONG_DOMAIN: Final = "x" * 2100
"""With host names of this length a job of two replicas is a large one, whose pods read a ConfigMap."""

PROMPT_S: Final = 2.0


async def operators_keep_their_promises(world: World) -> None:
    await _play(world, unlucky=True)


async def operators_are_in_time(world: World) -> None:
    """Without faults of networks, servers, nodes and processes everything happens within two seconds."""
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
    domain = LONG_DOMAIN if Random(f"domain {world.seed}").random() < 0.3 else ""
    await play(
        world,
        watchman,
        partial(complaints, world, watchman.records),
        kubelet=kubelet if unlucky else None,
        done_at=lambda: max(users.done_at, meddlers.done_at if meddlers else 0.0),
        domain=domain,
    )
    return watchman
