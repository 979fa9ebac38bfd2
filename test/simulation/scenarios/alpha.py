"""Two operators with jobs of the alpha dialect, users, nodes, the Job controller, and faults.

As in `scenarios.operators` the judges evaluate every write and the final state. Each world has one of the two APIs.
"""

from functools import partial
from random import Random
from typing import Final

from kit.model.controllers import GarbageCollector
from kit.model.kinds import Kind
from simulation.alpha.oracle import complaints
from simulation.alpha.users import Users
from simulation.alpha.write_judge import AlphaWriteJudge
from simulation.job_controller import JobController
from simulation.kubelet import Kubelet
from simulation.scripts import AlphaScript
from simulation.stage import SETTLED_S, play
from simulation.users import NAMESPACES
from simulation.world import World
from simulation.write_judge import LEASE
from tfjob_operator.api.v1alpha1.constants import DIALECTS, TENSORFLOW
from tfjob_operator.controller.options import ALPHA_APIS, V1

SIZES: Final = (1, 1, 2, 2, 3, 4)
LONGEST_PAUSE_S: Final = 90.0
"""The maximum total delay of the Job controller after three failures of a pod."""


async def alpha_jobs_keep_their_promises(world: World) -> None:
    random = world.random
    dialect = random.choice(DIALECTS)
    await world.create_namespaces(LEASE[0], *NAMESPACES)
    controller = JobController(world.server, Random(f"jobs {world.seed}"))
    if dialect is TENSORFLOW:  # only its CRD is installed
        world.server.define(Kind(dialect.resource, status=True, custom=True, unconditional=False))
    GarbageCollector(world.server, Random(f"garbage {world.seed}"))
    kubelet = Kubelet(world, Random(f"kubelet {world.seed}"), script=AlphaScript())
    judge = AlphaWriteJudge(world, kubelet, dialect)
    users = Users(world, Random(f"users {world.seed}"), dialect, jobs=random.choice(SIZES), busy=random.random() < 0.8)
    apis: tuple[str, ...] = (ALPHA_APIS[DIALECTS.index(dialect)],)
    if dialect is not TENSORFLOW and random.random() < 0.5:
        apis = (V1, *apis)
    await play(
        world,
        judge,
        partial(complaints, world, judge.records, controller),
        kubelet=kubelet,
        done_at=lambda: users.done_at,
        apis=apis,
        settled_s=SETTLED_S + LONGEST_PAUSE_S,
    )
