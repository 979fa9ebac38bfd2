"""Two replicas of the operator, users, nodes and faults: every write and the final state must be correct.

Most worlds are small, with a few jobs; over many seeds all combinations occur. Some have dozens of jobs.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from fakes.metrics import FakeMetrics
from kit.model.controllers import GarbageCollector
from kit.world import require
from simulation.accelerators import GPU, AcceleratorJudge
from simulation.interference import FinalizerHolders, Interference, StatusRefuser
from simulation.kubelet import Kubelet
from simulation.oracle import complaints
from simulation.scripts import HungryScript
from simulation.stage import SETTLED_S, play
from simulation.users import NAMESPACES, Users
from simulation.world import OPERATORS, World
from simulation.write_judge import LEASE, PROMPT_S, JobWriteJudge
from tfjob_operator.controller.jobs.job_metrics import ACCELERATORS

SIZES: Final = (1, 1, 2, 2, 3, 4, 6)
QUEUES: Final = (4, 6, 8)
CROWD: Final = 40
"""The number of jobs in one of fifty worlds."""

LONG_DOMAIN: Final = "x" * 2100
"""With host names of this length a job with two replicas counts as large: its pods read a ConfigMap."""


PATIENT_S: Final = 1500.0
"""A job may be restarted as a whole six times, with doubled delays."""


async def operators_keep_their_promises(world: World) -> None:
    await _play(world, unlucky=True)


async def failure_policies_are_followed(world: World) -> None:
    """Most jobs have a failure policy, and operators crash during its actions."""
    await _play(world, unlucky=True, policies=0.8)


async def failure_policies_are_followed_in_time(world: World) -> None:
    """The same without faults: then it is known what the operator has observed."""
    judge = await _play(world, unlucky=False, policies=0.8)
    require(not judge.late, f"too late: {judge.late}")


async def queues_keep_their_quota(world: World) -> None:
    """Most jobs are in a queue: their ends wait for their pods, which last."""
    await _play(world, unlucky=True, queued=0.8, policies=0.5, sizes=QUEUES)


async def queues_keep_their_quota_in_time(world: World) -> None:
    """The same without faults: a pod is kept for its sidecars as long as documented, and nothing else is late."""
    judge = await _play(world, unlucky=False, queued=0.8, policies=0.5, sizes=QUEUES)
    require(not judge.late, f"too late: {judge.late}")


async def accelerators_are_counted_once(world: World) -> None:
    """The pods have GPUs, and each is counted once: its seconds follow from the pod, and metrics have no more than the jobs."""
    metrics = world.metrics = FakeMetrics()
    judges: list[AcceleratorJudge] = []
    await _play(world, unlucky=True, policies=0.5, queued=0.2, accelerators=judges.append)
    (judge,) = judges
    require(not judge.violations, "\n".join(judge.violations))
    require(not judge.missed(), "\n".join(judge.missed()))
    sums: Counter[tuple[str, ...]] = Counter()
    for namespace, seconds in judge.totals.values():
        sums.update({(namespace, GPU, outcome): number for outcome, number in seconds.items()})
    for labels, series in metrics.series.items():
        if labels[0] == ACCELERATORS.name:
            require(series.count <= sums[labels[1:]], f"{labels}: {series.count} of {sums[labels[1:]]} seconds")


async def operators_are_in_time(world: World) -> None:
    """Without faults of networks, servers, nodes and processes, everything happens within two seconds."""
    judge = await _play(world, unlucky=False)
    require(not judge.late, f"too late: {judge.late}")


async def _play(
    world: World,
    *,
    unlucky: bool,
    policies: float = 0.0,
    queued: float = 0.1,
    sizes: tuple[int, ...] = SIZES,
    accelerators: Callable[[AcceleratorJudge], None] | None = None,
) -> JobWriteJudge:
    """`accelerators` gets the judge of a world in which all pods have some."""
    random = world.random
    if Random(f"clocks {world.seed}").random() < 0.5:
        # Without faults it is known when an operator has seen an event, but not what another leader makes of its times.
        world.clocks.let_differ(world.calm_at, right=() if unlucky else OPERATORS)
    await world.create_namespaces(LEASE[0], *NAMESPACES)
    GarbageCollector(world.server, Random(f"garbage {world.seed}"))
    FinalizerHolders(world, Random(f"holders {world.seed}"))
    kubelet = Kubelet(world, Random(f"kubelet {world.seed}"), script=HungryScript() if policies else None)
    judge = JobWriteJudge(world, kubelet, forgivable_s=math.inf if unlucky else PROMPT_S)
    if accelerators is not None:
        accelerators(AcceleratorJudge(world, kubelet))
    jobs = CROWD if random.random() < 0.02 else random.choice(sizes)
    busy = random.random() < 0.8
    users = Users(
        world,
        Random(f"users {world.seed}"),
        jobs=jobs,
        busy=busy,
        policies=policies,
        queued=queued,
        gpus=accelerators is not None,
    )
    interference = Interference(world, Random(f"meddlers {world.seed}"), NAMESPACES) if unlucky else None
    if unlucky:
        StatusRefuser(world, Random(f"statuses {world.seed}"))
    domain = LONG_DOMAIN if Random(f"domain {world.seed}").random() < 0.3 else ""
    await play(
        world,
        judge,
        partial(complaints, world, judge.records),
        kubelet=kubelet if unlucky else None,
        done_at=lambda: max(users.done_at, interference.done_at if interference else 0.0),
        domain=domain,
        settled_s=PATIENT_S if policies else SETTLED_S,
        deadly=policies > 0 and unlucky,
    )
    return judge
