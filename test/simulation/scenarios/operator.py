"""The whole operator in a cluster of bad luck: killed and started again, every job reaches its end, and then there is rest."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

from api.client.errors import ConflictError, NotFoundError
from api.v1 import constants as c
from controller.app import Transports, build
from controller.leaderelection import LeaderElectionConfig, LeadershipLostError
from controller.options import ElectionOptions, Options
from simulation.model.controllers import GarbageCollector
from simulation.pods import Kubelet, owner_of
from simulation.world import require

if TYPE_CHECKING:
    from simulation.faults import FaultyTransport
    from simulation.model.storage import Body
    from simulation.world import World

HOME: Final = "team"
OPERATOR: Final = "operator-"
"""The names of the operator's lives as clients begin with this."""

RESTART_S: Final = 1.0
"""How long after its end a process is started again."""

ELECTION: Final = ElectionOptions(namespace=HOME, times=LeaderElectionConfig(45.0, 30.0, 10.0))
"""Slower than the default: two worlds out of three would be renewals of the lease."""

SETTLED_S: Final = 540.0
"""After the faults' end: the lease of a dead process runs out in 45 s; an expectation that is never met holds a job up for
300 s (EX-02), a retry may be due in a minute, and the pods have their lives to live."""
QUIET_S: Final = 700.0
"""Longer than a watch lives, so that reopening all of them is part of the rest."""

MOST_TRIES: Final = 3
"""A worker that failed so often does its work the next time."""


class Operator:
    """The operator's process, from life to life; the lease stands in the way of the next one until it has run out."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._life = 0
        self._transports: list[FaultyTransport] = []
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    def start(self) -> None:
        """Start the process."""
        self._stop = asyncio.Event()
        self._task = self._world.spawn(f"{OPERATOR}{self._life + 1}", self._live())

    async def _live(self) -> None:
        """Live until told to stop; a process that has lost the lease is started again, as the kubelet does it."""
        while True:
            self._life += 1
            name = f"{OPERATOR}{self._life}"
            self._world.note("start", name)
            clients = (name, name, f"lease-of-{name}")
            self._transports = [self._world.faulty(client) for client in clients]
            watches, writes, lease = (
                self._world.traced(client, transport)
                for client, transport in zip(clients, self._transports, strict=True)
            )
            operator = build(
                Options(namespace=HOME, threadiness=4, election=ELECTION),
                Transports(watches, writes, lease),
                self._stop,
                identity=name,
                clock=self._world.clock,
                chance=self._world.chance,
            )
            try:
                await operator.run()
            except LeadershipLostError:
                self._world.note("lost the lease", name)
                await asyncio.sleep(RESTART_S)
            else:
                return

    async def kill(self) -> None:
        """End it as a SIGKILL does."""
        self._world.note("kill")
        for transport in self._transports:
            transport.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """End it as a SIGTERM does. Raises what went wrong in it."""
        self._stop.set()
        if self._task is not None:
            await self._task


async def every_job_reaches_its_end(world: World) -> None:
    """A few jobs, of which some are deleted and made anew; kills and bad weather; then the end of every job, and silence."""
    random = world.random
    await world.create_namespaces(HOME)
    GarbageCollector(world.server, Random(f"garbage {world.seed}"))
    tries: dict[str, int] = {}
    kubelet = Kubelet(world, Random(f"kubelet {world.seed}"), lambda pod: _exit_code(random, tries, pod))
    async with asyncio.TaskGroup() as group:
        nodes = group.create_task(kubelet.run(), name="kubelet")
        user = group.create_task(_use(world, random), name="user")
        await _live_through(world, user)
        require(not kubelet.repeated, f"had ended well, and were run again: {kubelet.repeated}")
        nodes.cancel()


async def _live_through(world: World, user: asyncio.Task[None]) -> None:
    """The operator's lives, and what must be true at their end."""
    random = world.random
    operator = Operator(world)
    operator.start()
    while world.time < world.calm_at:
        await asyncio.sleep(random.choice((random.uniform(0.0, 30.0), world.calm_at)))
        if world.time < world.calm_at:
            await operator.kill()
            await asyncio.sleep(random.choice((0.0, 5.0)))
            operator.start()
    await user
    await asyncio.sleep(SETTLED_S)
    _check_jobs(world)
    written = len(_writes(world))
    await asyncio.sleep(QUIET_S)
    require(len(_writes(world)) == written, f"nothing to do, but: {_writes(world)[written:]}")
    await operator.stop()


def _writes(world: World) -> list[str]:
    return [f"{each.method} {each.path}" for each in world.server.writes if each.client.startswith(OPERATOR)]


async def _use(world: World, random: Random) -> None:
    """Create jobs; delete some, and make others of the same name."""
    client = world.client("user")
    for number in range(random.choice((1, 1, 2, 3))):
        name = f"job-{number}"
        await asyncio.sleep(random.uniform(0.0, 15.0))
        await client.create(c.TFJOBS, HOME, a_job(random, name))
        if random.random() < 0.3:
            await asyncio.sleep(random.uniform(0.0, 20.0))
            policy = random.choice(("Background", "Foreground", "Orphan"))
            try:
                await client.delete(c.TFJOBS, HOME, name, propagation=policy)
                if policy == "Orphan":  # the name is free when the garbage collector has let go of the children
                    await asyncio.sleep(random.uniform(0.0, 5.0))
                await client.create(c.TFJOBS, HOME, a_job(random, name))
            except (NotFoundError, ConflictError):
                pass


def a_job(random: Random, name: str) -> dict[str, Any]:
    """A job of some shape."""
    policy = random.choice((c.NEVER, c.EXIT_CODE, c.ON_FAILURE))
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "train"}]}}
    wanted = {"Chief": random.choice((0, 0, 1)), "Worker": random.choice((1, 2, 4)), "PS": random.choice((0, 0, 2))}
    replicas = {
        kind: {"replicas": count, "restartPolicy": policy, "template": template}
        for kind, count in wanted.items()
        if count
    }
    spec = {"cleanPodPolicy": random.choice(c.CLEAN_POD_POLICIES), "tfReplicaSpecs": replicas}
    return {"apiVersion": c.TFJOBS.api_version, "kind": c.TFJOBS.kind, "metadata": {"name": name}, "spec": spec}


def _exit_code(random: Random, tries: dict[str, int], pod: dict[str, Any]) -> int | None:
    """How a pod will end: a parameter server never does by itself, a worker fails now and then."""
    if pod["metadata"]["labels"][c.LABEL_REPLICA_TYPE] == "ps":
        return None
    name = owner_of(pod["metadata"]) + pod["metadata"]["name"]
    tries[name] = tries.get(name, 0) + 1
    return 0 if tries[name] > MOST_TRIES else random.choice((0, 0, 0, 137, 1))


def _check_jobs(world: World) -> None:
    collections = world.server.storage.collections
    jobs = {version.body["metadata"]["uid"]: version.body for version in collections["tfjobs"].objects.values()}
    for job in jobs.values():
        name, state = job["metadata"]["name"], _state(job)
        require(state in {c.SUCCEEDED, c.FAILED}, f"{name} has not ended: {job.get('status')}")
    for plural in ("pods", "services"):
        for version in collections[plural].objects.values():
            meta = version.body["metadata"]
            owner = owner_of(meta)
            if not owner:  # left behind by a job, and not needed by the one that came after it, if one did
                continue
            require(owner in jobs, f"{meta['name']} of {plural} has outlived its job")
            if plural == "pods":
                _check_cleaned_up(jobs[owner], version.body)


def _state(job: Body) -> str:
    conditions = job.get("status", {}).get("conditions", [])
    return str(conditions[-1]["type"]) if conditions else ""


def _check_cleaned_up(job: Body, pod: Body) -> None:
    policy, phase = job["spec"]["cleanPodPolicy"], pod["status"]["phase"]
    name = pod["metadata"]["name"]
    require(policy != c.CLEAN_ALL, f"{name} should have been cleaned up with its job")
    require(policy == c.CLEAN_NONE or phase in {"Succeeded", "Failed"}, f"{name} is {phase} after the end of its job")
