"""The operator as a process of a simulated cluster: everything above `Transport`, with leader election and fence."""

import asyncio

from kit.clocks import SimulatedClock
from kit.processes import Process
from simulation.world import World
from simulation.write_judge import LEASE, OPERATOR
from tfjob_operator.controller.composition import build
from tfjob_operator.controller.leaderelection import Election, LeaderElectionConfig, LeadershipLostError
from tfjob_operator.controller.manager import Manager
from tfjob_operator.controller.manager.parts import Transports
from tfjob_operator.controller.options import V1, Options


class OperatorProcess(Process):
    """A replica of the operator; each start has its own identity in the leader election."""

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
        super().__init__(world, f"{OPERATOR}{number}")
        namespace, lease = LEASE
        self._options = Options(
            threadiness=workers,
            election=Election(namespace, lease, election),
            cluster_domain=domain,
            apis=apis,
        )
        self._stop = asyncio.Event()
        self.manager: Manager | None = None
        """That of the present life, if it has begun."""

    @property
    def machine(self) -> str:
        """The machine of all its lives, which has a clock."""
        return self._program

    async def stop(self) -> None:
        """Stop it like a SIGTERM. Raises the exception with which it crashed, if any."""
        self._world.note("stop", self.name)
        self._stop.set()
        if self._task is not None:
            await self._task

    def start(self) -> None:
        self._stop = asyncio.Event()
        super().start()

    async def _live(self) -> None:
        """Fill the caches, and work while leading. A lost lease ends the process; the caller starts another one."""
        world, name = self._world, self.name
        lease, watches, writes = (self._connect(each) for each in (f"lease-of-{name}", name, name))
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
