"""The lease on the wire: what is read, written and left alone; and its watch, which reports that the lease is free."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.api import status_error
from fakes.cluster import HOME, ModelCluster, UnreliableTransport
from fakes.source import running
from fakes.transport import FakeResponse
from kit.virtual_loop import EPOCH
from tfjob_operator.api.client import ListOptions
from tfjob_operator.api.client.errors import AlreadyExistsError, ConflictError, DecodeError, ForbiddenError, StatusError
from tfjob_operator.api.core import LEASES
from tfjob_operator.controller.leaderelection import LeaderElectionRecord, LeaseLock, LeaseWatch
from tfjob_operator.controller.leaderelection.lease import RETRY_S

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECORD = LeaderElectionRecord("me", 15, NOON, NOON + timedelta(microseconds=1), 3)
SPEC = {
    "holderIdentity": "me",
    "leaseDurationSeconds": 15,
    "acquireTime": "2026-01-01T12:00:00.000000Z",
    "renewTime": "2026-01-01T12:00:00.000001Z",
    "leaseTransitions": 3,
}


class Held(ModelCluster[Any]):
    def __init__(self) -> None:
        super().__init__("ns")
        self.line = UnreliableTransport(self.server, "me")
        self.lock = LeaseLock(self.client_on(self.line), "ns", "lock", identity="me", labels={"b": "ours"})

    @property
    def lease(self) -> dict[str, Any]:
        """The stored lease, less what the server adds to its metadata."""
        body = self.body("leases", "lock")
        added = {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}
        return body | {"metadata": {key: value for key, value in body["metadata"].items() if key not in added}}


@pytest.fixture
def held() -> Held:
    return Held()


async def test_a_record_is_written_as_other_clients_read_it_and_comes_back(held: Held) -> None:
    """LE-01, LE-09, leaselock_test.go:TestLeaseConversion, TestGet, TestLeaseSpecToLeaderElectionRecordRoundTrip.

    Micro times have six digits, also where they are zeros. Each response brings the version that the next update carries.
    """
    lock = (await held.begin()).lock
    assert await lock.get() is None
    await lock.create(RECORD)
    assert held.lease == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lock", "namespace": "ns", "labels": {"b": "ours"}},
        "spec": SPEC,
    }
    assert await lock.get() == RECORD
    for transitions in (4, 5):
        await lock.update(replace(RECORD, leader_transitions=transitions))


async def test_times_of_another_zone_are_written_in_utc(held: Held) -> None:
    """LE-01: a Z, and never an offset."""
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    await (await held.begin()).lock.create(LeaderElectionRecord("me", 15, east, east, 0))
    assert held.lease["spec"]["acquireTime"] == "2026-01-01T12:00:00.000000Z"


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseTransitions": None}])
async def test_a_lease_that_says_nothing_is_free(held: Held, spec: dict[str, object] | None) -> None:
    """LE-01: all fields of the spec are optional, and so is the spec."""
    lock = (await held.begin()).lock
    body = {"metadata": {"name": "lock"}} | ({"spec": spec} if spec is not None else {})
    await held.client.create(LEASES, "ns", body)
    assert await lock.get() == LeaderElectionRecord()
    await lock.update(RECORD)
    assert held.lease["spec"] == SPEC


async def test_what_is_not_ours_goes_back_as_it_came(held: Held) -> None:
    """LE-01, leaselock_test.go:TestLabelUpdate: annotations, the fields of newer servers, and the labels of others."""
    lock = (await held.begin()).lock
    theirs = {"name": "lock", "labels": {"a": "theirs", "b": "theirs"}, "annotations": {"note": "x"}}
    newer = {"strategy": "OldestEmulationVersion", "preferredHolder": "you"}
    await held.client.create(LEASES, "ns", {"metadata": theirs, "spec": newer | {"holderIdentity": "you"}})
    await lock.get()
    await lock.update(RECORD)
    assert held.lease["metadata"] == theirs | {"namespace": "ns", "labels": {"a": "theirs", "b": "ours"}}
    assert held.lease["spec"] == SPEC | newer


async def test_the_second_of_two_writers_is_refused_and_may_retry_after_a_read(held: Held) -> None:
    """LE-09, leaselock_test.go:TestUpdateError: and a refusal does no harm to what is remembered."""
    mine, yours = (await held.begin()).lock, LeaseLock(held.client, "ns", "lock", identity="you")
    await mine.create(RECORD)
    await yours.get()
    await yours.update(replace(RECORD, holder_identity="you"))
    with pytest.raises(ConflictError):
        await mine.update(RECORD)
    with pytest.raises(AlreadyExistsError):
        await mine.create(RECORD)
    await mine.get()
    await mine.update(RECORD)


@pytest.mark.parametrize("raw", [b"{\xff", b"{}", b'{"metadata": {}, "spec": {"leaseDurationSeconds": "15"}}'])
async def test_a_lease_that_can_not_be_understood_is_an_error_of_ours(held: Held, raw: bytes) -> None:
    """LE-01, D19: an ApiError like any other, and what was known before stays known."""
    lock = (await held.begin()).lock
    await lock.create(RECORD)
    held.line.script.append(FakeResponse(200, raw))
    with pytest.raises(DecodeError, match="lease ns/lock: the response cannot be decoded"):
        await lock.get()
    await lock.update(RECORD)


async def test_an_update_needs_something_to_update(held: Held) -> None:
    """LE-09, leaselock_test.go:TestUpdateError: it is a bug of the caller, and reported as one."""
    with pytest.raises(RuntimeError, match="call get or create first"):
        await held.lock.update(RECORD)


@pytest.mark.parametrize(("namespace", "name"), [("", "lock"), ("ns", "")])
def test_a_watch_of_leases_is_of_one_lease(held: Held, namespace: str, name: str) -> None:
    """Without a namespace it would report the leases of this name in all namespaces."""
    with pytest.raises(ValueError, match="needs a namespace and a name"):
        LeaseWatch(held.client, namespace, name)


HELD = LeaderElectionRecord("somebody", 15, EPOCH, EPOCH, 3)
FREE = LeaderElectionRecord("", 1, EPOCH, EPOCH, 3)


class Bench(ModelCluster[Any]):
    """A lease on the model server, and the times at which it was seen free."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = LeaseLock(self.client, HOME, "lease", identity="somebody")
        self.seen: list[float] = []
        self.records: list[tuple[float, LeaderElectionRecord | None]] = []

    def see(self, record: LeaderElectionRecord | None) -> None:
        now = asyncio.get_running_loop().time()
        self.records.append((now, record))
        if record is None or not record.holder_identity:
            self.seen.append(now)

    @asynccontextmanager
    async def watching(
        self, *script: FakeResponse | Exception
    ) -> AsyncIterator[tuple[UnreliableTransport, asyncio.Task[None]]]:
        """Hold the lease, and watch it inside the block; the first responses are those of the script."""
        await self.begin()
        await self.lock.create(HELD)
        line = UnreliableTransport(self.server, "candidate", *script)
        async with running(LeaseWatch(self.client_on(line), HOME, "lease").run(self.see)) as task:
            await asyncio.sleep(1.0)
            yield line, task


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_lease_that_is_given_back_is_seen_at_once(bench: Bench) -> None:
    """D24: and so is a renewal, but nobody takes that for a lease that is free."""
    async with bench.watching():
        renewed = replace(HELD, renew_time=EPOCH + timedelta(seconds=2))
        await bench.lock.update(renewed)
        await asyncio.sleep(1.0)
        assert bench.seen == []
        assert bench.records == [(0.0, HELD), (1.0, renewed)]
        await bench.lock.update(FREE)
        await asyncio.sleep(1.0)
        assert bench.seen == [2.0]


async def test_a_lease_that_is_deleted_is_free(bench: Bench) -> None:
    """D24: nobody holds what is not there."""
    async with bench.watching():
        await bench.client.delete(LEASES, HOME, "lease")
        await asyncio.sleep(1.0)
        assert bench.seen == [1.0]


async def test_another_lease_is_not_looked_at(bench: Bench) -> None:
    """D24: the right to watch may be for one name alone."""
    async with bench.watching():
        other = LeaseLock(bench.client, HOME, "other", identity="other")
        await other.create(FREE)
        await asyncio.sleep(1.0)
        assert bench.seen == []
        listed = await bench.client.list_page(LEASES, ListOptions(HOME))
        assert b'"other"' in listed


async def test_a_watch_that_breaks_is_opened_again(bench: Bench) -> None:
    """D24: the new watch shows the lease as it is by then."""
    async with bench.watching(status_error(StatusError, 500)):
        await bench.lock.update(FREE)
        await asyncio.sleep(1.0)
        assert bench.seen == []
        await asyncio.sleep(RETRY_S)
        assert bench.seen == [RETRY_S]


async def test_whoever_may_not_watch_the_lease_asks_once_and_says_so(bench: Bench) -> None:
    """D24: under an older Role the polls must suffice, and requests refused again and again would raise an alert."""
    with capture_logs() as lines:
        async with bench.watching(*[status_error(ForbiddenError, 403)] * 2) as (transport, task):
            await asyncio.sleep(600.0)
            assert task.done()
    assert len(transport.requests) == 1
    assert [line["event"] for line in lines] == ["lease_not_watched"]


@pytest.mark.parametrize(
    "line", [b'{"type":"BOOKMARK","object":{}}\n', b'{"type":"ERROR","object":{"code":410}}\n', b"<html>\n"]
)
async def test_what_is_no_lease_frees_none(line: bytes) -> None:
    """D24: an error in the stream, or no stream of events at all."""

    bench = Bench()
    async with bench.watching(*[FakeResponse(200, line)] * 1000) as (transport, task):
        await asyncio.sleep(60.0)
        assert bench.seen == []
        assert not task.done()
        assert transport.script, "it is not asked in a hot loop"
