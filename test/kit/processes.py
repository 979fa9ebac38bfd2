"""Programs of a simulated cluster, which are killed, stalled and started again with an empty memory."""

import asyncio
from abc import ABC, abstractmethod

from kit.network import FaultyTransport
from kit.world import World


class Process(ABC):
    """A program across its restarts. Each life has its own name and its own connections."""

    def __init__(self, world: World, program: str) -> None:
        self._world = world
        self._program = program
        self._life = 0
        self._transports: list[FaultyTransport] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name of the present life."""
        return f"{self._program}.{self._life}"

    @property
    def has_ended(self) -> bool:
        """Whether the process is not running, for example because it lost its lease."""
        return self._task is None or self._task.done()

    def start(self) -> None:
        """Start the process again. Raises the exception with which it crashed before."""
        if self._task is not None and not self._task.cancelled():
            self._task.result()
        self._life += 1
        self._world.note("start", self.name)
        self._transports = []
        self._task = self._world.spawn(self.name, self._live())

    async def kill(self) -> None:
        """Kill the process: nothing that it still does reaches the server."""
        self._die()
        if self._task is not None:
            await asyncio.wait([self._task])

    def stall(self, seconds: float) -> None:
        """Stop the process for a while, like a paused machine."""
        self._world.stall(self.name, seconds)

    @abstractmethod
    async def _live(self) -> None:
        """Run one life of the program."""

    def _connect(self, client: str) -> FaultyTransport:
        """Return a connection that breaks when the process dies."""
        transport = self._world.faulty(client)
        self._transports.append(transport)
        return transport

    def _die(self) -> None:
        self._world.note("kill", self.name)
        for transport in self._transports:
            transport.kill()
        if self._task is not None:
            self._task.cancel()
