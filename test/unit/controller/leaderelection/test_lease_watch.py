"""The watch of a lease: when it reports that the lease is free, and what it does where it may not or cannot watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from fakes.api import status_error
from fakes.virtual_loop import EPOCH, VirtualClock
from simulation.model.kinds import NAMESPACES
from simulation.model.server import ModelServer
from simulation.model.transport import ModelTransport
from tfjob_operator.api.client import ListOptions, Request, Response, RestClient, Transport
from tfjob_operator.api.client.errors import ForbiddenError, StatusError
from tfjob_operator.api.client.http import OnLeave, unchanged
from tfjob_operator.api.core import LEASES
from tfjob_operator.controller.leaderelection import LeaseLock, LeaseWatch
from tfjob_operator.controller.leaderelection.lease import AGAIN_S, LeaderElectionRecord

HELD = LeaderElectionRecord("somebody", 15, EPOCH, EPOCH, 3)
FREE = LeaderElectionRecord("", 1, EPOCH, EPOCH, 3)


class Bench:
    """A lease on the model server, and the times at which it was seen free."""

    def __init__(self) -> None:
        self.server = ModelServer()
        self.client = self.client_on(ModelTransport(self.server, "holder"))
        self.lock = LeaseLock(self.client, "team", "lease", identity="somebody")
        self.seen: list[float] = []
        self.records: list[tuple[float, LeaderElectionRecord | None]] = []

    @staticmethod
    def client_on(transport: Transport) -> RestClient:
        return RestClient(transport, clock=VirtualClock())

    def see(self, record: LeaderElectionRecord | None) -> None:
        now = asyncio.get_running_loop().time()
        self.records.append((now, record))
        if record is None or not record.holder_identity:
            self.seen.append(now)

    @asynccontextmanager
    async def watching(self, transport: Transport | None = None) -> AsyncIterator[asyncio.Task[None]]:
        """Hold the lease, and watch it inside the block, over `transport` if one is given."""
        await self.client.create(NAMESPACES, "", {"metadata": {"name": "team"}})
        await self.lock.create(HELD)
        watch = LeaseWatch(self.client_on(transport or ModelTransport(self.server, "candidate")), "team", "lease")
        task = asyncio.create_task(watch.run(self.see))
        await asyncio.sleep(1.0)
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_a_lease_that_is_given_back_is_seen_at_once() -> None:
    """D24: and so is a renewal, but nobody takes that for a lease that is free."""
    bench = Bench()
    async with bench.watching():
        renewed = replace(HELD, renew_time=EPOCH + timedelta(seconds=2))
        await bench.lock.update(renewed)
        await asyncio.sleep(1.0)
        assert bench.seen == []
        assert bench.records == [(0.0, HELD), (1.0, renewed)]
        await bench.lock.update(FREE)
        await asyncio.sleep(1.0)
        assert bench.seen == [2.0]


async def test_a_lease_that_is_deleted_is_free() -> None:
    """D24: nobody holds what is not there."""
    bench = Bench()
    async with bench.watching():
        await bench.client.delete(LEASES, "team", "lease")
        await asyncio.sleep(1.0)
        assert bench.seen == [1.0]


async def test_another_lease_is_not_looked_at() -> None:
    """D24: the right to watch may be for one name alone."""
    bench = Bench()
    async with bench.watching():
        other = LeaseLock(bench.client, "team", "other", identity="other")
        await other.create(FREE)
        await asyncio.sleep(1.0)
        assert bench.seen == []
        listed = await bench.client.list_page(LEASES, ListOptions("team"))
        assert b'"other"' in listed


class Failing:
    """A transport to the model server on which the first requests fail."""

    def __init__(self, server: ModelServer, *errors: Exception) -> None:
        self._inner = ModelTransport(server, "candidate")
        self.errors = list(errors)
        self.asked = 0

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return await self._inner.send(request, on_leave)


async def test_a_watch_that_breaks_is_opened_again() -> None:
    """D24: the new watch shows the lease as it is by then."""
    bench = Bench()
    transport = Failing(bench.server, status_error(StatusError, 500))
    async with bench.watching(transport):
        await bench.lock.update(FREE)
        await asyncio.sleep(1.0)
        assert bench.seen == []
        await asyncio.sleep(AGAIN_S)
        assert bench.seen == [AGAIN_S]


async def test_whoever_may_not_watch_the_lease_asks_once_and_says_so() -> None:
    """D24: under an older Role the polls must suffice, and requests refused again and again would raise an alert."""
    bench = Bench()
    transport = Failing(bench.server, *[status_error(ForbiddenError, 403)] * 2)
    with capture_logs() as lines:
        async with bench.watching(transport) as task:
            await asyncio.sleep(600.0)
            assert task.done()
    assert transport.asked == 1
    assert [line["event"] for line in lines] == ["lease_not_watched"]


@pytest.mark.parametrize(
    "line", [b'{"type":"BOOKMARK","object":{}}\n', b'{"type":"ERROR","object":{"code":410}}\n', b"<html>\n"]
)
async def test_what_is_no_lease_frees_none(line: bytes) -> None:
    """D24: an error in the stream, or no stream of events at all."""

    class Odd:
        async def send(self, _request: Request, on_leave: OnLeave = unchanged) -> Response:
            return OddAnswer()

    class OddAnswer:
        status = 200
        headers: dict[str, str] = {}  # noqa: RUF012 - as a Response has them

        async def body(self) -> bytes:
            return line

        async def chunks(self) -> AsyncIterator[bytes]:
            yield line

        def close(self) -> None:
            """Nothing to give back."""

    bench = Bench()
    async with bench.watching(Odd()) as task:
        await asyncio.sleep(60.0)
        assert bench.seen == []
        assert not task.done()
