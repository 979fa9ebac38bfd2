"""The operator as a process of a simulated cluster: the whole of it above `Transport`, with election and fence."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from api.client import RestClient
from controller.app import build
from controller.leaderelection import (
    Fence,
    FencedTransport,
    LeaderElectionConfig,
    LeaderElector,
    LeadershipLostError,
    LeaseLock,
)
from controller.options import Options
from simulation.watchman import LEASE, OPERATOR

if TYPE_CHECKING:
    from controller.app import Parts
    from simulation.faults import FaultyTransport
    from simulation.world import World

FLUSH_S: Final = 2.0
LEASE_CALL_S: Final = 5.0


class OperatorProcess:
    """A replica of the operator, from life to life; each has a name of its own, under which it stands for election."""

    def __init__(self, world: World, number: int, *, election: LeaderElectionConfig, workers: int) -> None:
        self._world = world
        self._number = number
        self._election = election
        self._options = Options(threadiness=workers)
        self._life = 0
        self._transports: list[FaultyTransport] = []
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    @property
    def name(self) -> str:
        """Of the present life."""
        return f"{OPERATOR}{self._number}.{self._life}"

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone, as after a lost lease."""
        return self._task is None or self._task.done()

    def start(self) -> None:
        """Begin a new life. Raises what the last one crashed of."""
        if self._task is not None and not self._task.cancelled():
            self._task.result()
        self._life += 1
        self._world.note("start", self.name)
        self._transports = [self._world.faulty(name) for name in (f"lease-of-{self.name}", self.name, self.name)]
        self._stop = asyncio.Event()
        self._task = self._world.spawn(self.name, self._live(self.name, *self._transports))

    async def kill(self) -> None:
        """End it as a SIGKILL does."""
        self._world.note("kill", self.name)
        for transport in self._transports:
            transport.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """End it as a SIGTERM does. Raises what went wrong in it."""
        self._world.note("stop", self.name)
        self._stop.set()
        if self._task is not None:
            await self._task

    def stall(self, seconds: float) -> None:
        """Let it stand still for a while."""
        self._world.stall(self.name, seconds)

    async def _live(self, name: str, lease: FaultyTransport, watches: FaultyTransport, writes: FaultyTransport) -> None:
        """Keep the caches warm from the start, and work while leading."""
        world, stop = self._world, self._stop
        fence = Fence(world.clock)
        fenced = FencedTransport(world.traced(name, writes), fence)
        parts = build(self._options, watches=world.traced(name, watches), writes=fenced, clock=world.clock)
        client = RestClient(world.traced(f"lease-of-{name}", lease), clock=world.clock, request_s=LEASE_CALL_S)
        elector = LeaderElector(
            LeaseLock(client, *LEASE, identity=name),
            on_started_leading=lambda: self._lead(parts, stop),
            on_stopped_leading=lambda: world.note("stopped leading", name),
            config=self._election,
            fence=fence,
            clock=world.clock,
            chance=world.chance,
        )
        async with asyncio.TaskGroup() as group:
            parts.factory.start(group)
            electing = group.create_task(_elect(elector), name="elector")
            stopping = group.create_task(stop.wait(), name="wait-for-stop")
            await asyncio.wait([electing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not elector.is_leader:
                electing.cancel()
            await asyncio.wait([electing])
            stopping.cancel()
            await parts.factory.shut_down()

    async def _lead(self, parts: Parts, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            recording = group.create_task(parts.recorder.run(), name="event-recorder")
            syncing = group.create_task(parts.factory.wait_for_cache_sync(float("inf")), name="wait-for-cache-sync")
            stopping = group.create_task(stop.wait(), name="wait-for-stop")
            await asyncio.wait([syncing, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not syncing.cancel():
                working = group.create_task(parts.controller.run(self._options.threadiness), name="tfjob-controller")
                await stopping
                parts.queue.shut_down()
                await asyncio.wait([working], timeout=FLUSH_S)
                working.cancel()
            stopping.cancel()
            parts.recorder.stop()
            await asyncio.wait([recording], timeout=FLUSH_S)
            recording.cancel()


async def _elect(elector: LeaderElector) -> None:
    with suppress(LeadershipLostError):  # the process ends; whoever runs it starts it again
        await elector.run()
