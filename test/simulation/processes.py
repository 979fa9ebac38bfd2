"""The operator as a process of a simulated cluster: everything above `Transport`, with leader election and fence."""

import asyncio

from kit.clocks import SimulatedClock
from kit.network import FaultyTransport
from simulation.world import World
from simulation.write_judge import LEASE, OPERATOR
from tfjob_operator.controller.app import build
from tfjob_operator.controller.leaderelection import Election, LeaderElectionConfig, LeadershipLostError
from tfjob_operator.controller.manager import Manager
from tfjob_operator.controller.manager.parts import Transports
from tfjob_operator.controller.options import V1, Options


class OperatorProcess:
    """A replica of the operator, across its restarts; each start has its own identity in the leader election."""

    def __init__(
        self,
        world: World,
        number: int,
        *,
        election: LeaderElectionConfig,
        workers: int,
        domain: str = "",
        apis: tuple[str, ...] = (V1,),
    ) -> None:
        self._world = world
        self._number = number
        namespace, lease = LEASE
        self._options = Options(
            threadiness=workers,
            election=Election(namespace, lease, election),
            cluster_domain=domain,
            apis=apis,
        )
        self._life = 0
        self._transports: list[FaultyTransport] = []
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.manager: Manager | None = None
        """That of the present life, if it has begun."""

    @property
    def name(self) -> str:
        return f"{OPERATOR}{self._number}.{self._life}"

    @property
    def machine(self) -> str:
        """The machine of all its lives, which has a clock."""
        return f"{OPERATOR}{self._number}"

    @property
    def has_ended(self) -> bool:
        """Whether the process has exited, for example after losing its lease."""
        return self._task is None or self._task.done()

    def start(self) -> None:
        """Start the process again. Raises the exception with which it crashed before."""
        if self._task is not None and not self._task.cancelled():
            self._task.result()
        self._life += 1
        self._world.note("start", self.name)
        self._transports = [self._world.faulty(name) for name in (f"lease-of-{self.name}", self.name, self.name)]
        self._stop = asyncio.Event()
        self._task = self._world.spawn(self.name, self._live(self.name, *self._transports))

    async def kill(self) -> None:
        self._world.note("kill", self.name)
        for transport in self._transports:
            transport.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Stop it like a SIGTERM. Raises the exception with which it crashed, if any."""
        self._world.note("stop", self.name)
        self._stop.set()
        if self._task is not None:
            await self._task

    def stall(self, seconds: float) -> None:
        self._world.stall(self.name, seconds)

    async def _live(self, name: str, lease: FaultyTransport, watches: FaultyTransport, writes: FaultyTransport) -> None:
        """Fill the caches, and work while leading. A lost lease ends the process; the caller starts another one."""
        world = self._world
        manager = self.manager = build(
            self._options,
            Transports(
                world.traced(name, watches), world.traced(name, writes), world.traced(f"lease-of-{name}", lease)
            ),
            self._stop,
            identity=name,
            clock=SimulatedClock(world.clocks, self.machine),
            random=world.product_random,
            metrics=world.metrics,
        )
        try:
            await manager.run()
        except LeadershipLostError:
            world.note("lost the lease", name)
