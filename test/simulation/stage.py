"""The phases of a world with two operators, for any jobs: faults of nodes and processes, then a stable state."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from kit.model.server import Answer
from kit.virtual_loop import NETWORK
from kit.world import require
from simulation.kubelet import Kubelet
from simulation.nodes import Nodes
from simulation.processes import OperatorProcess
from simulation.world import World
from simulation.write_judge import OPERATOR, WriteJudge
from tfjob_operator.api.client.http import Request
from tfjob_operator.controller.leaderelection import LeaderElectionConfig
from tfjob_operator.controller.options import V1

ELECTIONS: Final = (
    LeaderElectionConfig(),
    LeaderElectionConfig(60.0, 40.0, 8.0),
    LeaderElectionConfig(60.0, 40.0, 8.0),
)
"""The default, where most requests are renewals, and a value with fewer renewals."""

SETTLED_S: Final = 480.0
"""Seconds after the faults' end: an expectation that is never met delays a job by 300 s (EX-02), a retry by a minute, and
pods need time to run."""
QUIET_S: Final = (60.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0, 700.0)
"""How long the final state is observed; the last value exceeds the lifetime of watches, so all are reopened."""
LATEST_TROUBLE_S: Final = 60.0
"""Seconds after the end of the faults; a node that shuts down and is then lost takes another minute."""
CALM_S: Final = 12.0
"""After this long without a write and with one leader, the world may be final: events are retried after ten seconds."""
LOST_S: Final = 140.0
"""How long the last fault may have effects: a watch that froze then is given up after 90 s, and up to 40 s later if its
process was stalled."""


def trouble_nodes(world: World, kubelet: Kubelet) -> None:
    """Schedule drains, shutdowns and losses of nodes, or none."""
    loop, random = asyncio.get_running_loop(), world.random
    nodes = kubelet.nodes
    kinds = (nodes.lose, nodes.drain, nodes.shut_down)
    for trouble in random.choice(((), (), *((kind,) for kind in kinds), kinds, (nodes.lose,) * 2)):
        loop.call_at(random.uniform(5.0, world.calm_at), _strike, world, nodes, trouble)


def _strike(world: World, nodes: Nodes, trouble: Callable[[], None]) -> None:
    """Cause `trouble` as soon as a node is busy, unless it is too late."""
    if nodes.are_busy:
        trouble()
    elif world.time < world.calm_at + LATEST_TROUBLE_S:
        asyncio.get_running_loop().call_later(1.0, _strike, world, nodes, trouble)


async def haunt(world: World, replica: OperatorProcess, pauses_s: tuple[float, ...] = (8.0, 25.0, 100.0)) -> None:
    """Stall, kill and restart one replica until the faults end."""
    random = world.random
    pause = random.choice(pauses_s)
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


def _kill_in_mid_course(world: World, replicas: list[OperatorProcess]) -> None:
    """Sometimes kill an operator right after the server executed one of its writes, usually before the response."""
    random, loop = Random(f"sudden {world.seed}"), asyncio.get_running_loop()
    rate, dying = random.choice((0.0, 0.05, 0.2)), set[asyncio.Task[None]]()

    def kill(replica: OperatorProcess) -> None:
        task = loop.create_task(replica.kill(), name="sudden death", context=NETWORK)
        dying.add(task)
        task.add_done_callback(dying.discard)

    def hear(request: Request, client: str, _answer: Answer) -> None:
        own = [replica for replica in replicas if client == replica.name]
        acts = own and request.method != "GET" and "/events" not in request.path
        if acts and world.time < world.calm_at and random.random() < rate:
            loop.call_soon(kill, own[0], context=NETWORK)

    world.server.on_answer.append(hear)


async def play(
    world: World,
    judge: WriteJudge,
    complaints: Callable[[], list[str]],
    *,
    kubelet: Kubelet | None,
    done_at: Callable[[], float],
    domain: str = "",
    apis: tuple[str, ...] = (V1,),
    settled_s: float = SETTLED_S,
    deadly: bool = False,
) -> None:
    """Run two operators, with faults of them and of a `kubelet`'s nodes, until the final state is reached and stays.

    Users are done at `done_at`. `deadly`: operators may be killed by their own writes.

    Raises OracleError if something is wrong or takes too long.
    """
    random = world.random
    election, workers = random.choice(ELECTIONS), random.choice((1, 4, 16))
    replicas = [
        OperatorProcess(world, number, election=election, workers=workers, domain=domain, apis=apis)
        for number in range(2)
    ]
    for replica in replicas:
        replica.start()
    if deadly:
        _kill_in_mid_course(world, replicas)
    if kubelet is not None:
        async with asyncio.TaskGroup() as group:
            trouble_nodes(world, kubelet)
            for replica in replicas:
                group.create_task(haunt(world, replica), name="fate")
    await _come_to_rest(world, judge, complaints, replicas, done_at=done_at, settled_s=settled_s)
    await _stay_at_rest(world, judge, complaints, replicas)
    for replica in replicas:
        await replica.stop()


async def _come_to_rest(
    world: World,
    judge: WriteJudge,
    complaints: Callable[[], list[str]],
    replicas: list[OperatorProcess],
    *,
    done_at: Callable[[], float],
    settled_s: float,
) -> None:
    leader, led_since = "", world.time
    while True:
        for replica in replicas:
            if replica.has_ended:
                replica.start()
        require(not judge.violations, "\n".join(judge.violations))
        if judge.holder() != leader:
            leader, led_since = judge.holder(), world.time
        due = max(world.calm_at + LOST_S, done_at())  # users act on jobs that end late
        writes = world.server.writes
        last = next((each.at for each in reversed(writes) if not each.client.startswith("lease-of-")), 0.0)
        if world.time > max(due, last + CALM_S, led_since + CALM_S):
            found = complaints()
            if leader not in {replica.name for replica in replicas}:
                found.append(f"nobody leads: the lease names {leader!r}")
            if not found:
                return
            require(world.time < due + settled_s, "\n".join(found))
        await asyncio.sleep(3.0)


async def _stay_at_rest(
    world: World, judge: WriteJudge, complaints: Callable[[], list[str]], replicas: list[OperatorProcess]
) -> None:
    """Check that this leader and the next write nothing, and that the state stays right. Raises OracleError."""
    written = len(_writes(world))
    if world.random.random() < 0.5:
        leader = next(replica for replica in replicas if replica.name == judge.holder())
        await leader.kill()
        leader.start()
    await asyncio.sleep(world.random.choice(QUIET_S))
    require(len(_writes(world)) == written, f"at rest, but: {_writes(world)[written:]}")
    require(not judge.violations, "\n".join(judge.violations))
    found = complaints()
    require(not found, "\n".join(found))


def _writes(world: World) -> list[str]:
    return [f"{each.method} {each.path}" for each in world.server.writes if each.client.startswith(OPERATOR)]
