"""One large job, few connections and a slow API server: what the others' writes have to wait for."""

from __future__ import annotations

import asyncio

from fakes.controller import status_writer
from fakes.jobs import good_spec, job, replica
from fakes.recorder import FakeRecorder, job_events
from fakes.transport import FakeResponse, FakeTransport
from fakes.virtual_loop import FakeClock, VirtualClock
from tfjob_operator.api.client import Request, Response, RestClient
from tfjob_operator.api.client.http import OnLeave, unchanged
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.leaderelection import Fence, FencedTransport
from tfjob_operator.controller.tfjob.apply.children import Creator
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren, Delays
from tfjob_operator.controller.tfjob.plan.actions import Plan

WORKERS = 1000


class SlowServer:
    """Takes a second for each request, behind the operator's 32 connections."""

    def __init__(self) -> None:
        self.waiting: list[float] = []
        self.most_at_once = self._at_once = 0
        self._places = asyncio.Semaphore(32)

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        loop = asyncio.get_running_loop()
        came = loop.time()
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        async with self._places:
            self.waiting.append(loop.time() - came)
            await asyncio.sleep(1.0)
        self._at_once -= 1
        on_leave(request)
        return await FakeTransport(FakeResponse(body=b'{"metadata":{"resourceVersion":"2"}}')).send(request)


async def test_a_job_of_a_thousand_leaves_room_for_the_writes_of_others() -> None:
    """D8: with a lease renewed all the time nothing fails, and another job's status waits for no connection."""
    loop = asyncio.get_running_loop()
    fence, server = Fence(VirtualClock()), SlowServer()
    client = RestClient(FencedTransport(server, fence))
    large, small = (
        job({"tfReplicaSpecs": {"Worker": replica(WORKERS)}}),
        job({"tfReplicaSpecs": {"Worker": replica(1)}}),
    )
    blocked = BlockedChildren(FakeClock(), Delays(FakeClock()))
    creator = Creator(client, job_events(FakeRecorder()), Expectations(FakeClock()), blocked)
    writer = status_writer(client, FakeRecorder())
    slots = tuple(ReplicaKey("Worker", index, f"mnist-worker-{index}") for index in range(WORKERS))

    async def renew() -> None:
        while True:
            fence.open_until(loop.time() + 12.5)
            await asyncio.sleep(2.0)

    renewing = asyncio.create_task(renew())
    await asyncio.sleep(0)
    creating = asyncio.create_task(creator.create(large, good_spec(large), Plan(create_pods=slots)))
    while not creating.done():
        await asyncio.sleep(3.5)
        began = loop.time()
        assert await writer.write(small, small.status, ()) is not None
        assert loop.time() - began == 1.0
    await creating
    renewing.cancel()
    await asyncio.wait([renewing])
    assert set(server.waiting) == {0.0}
    assert server.most_at_once == 16 + 1
