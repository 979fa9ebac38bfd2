"""The lease on the wire: what is read, what is written, and what is left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from fakes.api import FakeClient, answered, status_error
from tfjob_operator.api.client.errors import AlreadyExistsError, ConflictError, DecodeError, NotFoundError
from tfjob_operator.api.meta import Resource
from tfjob_operator.controller.leaderelection import LeaderElectionRecord, LeaseLock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECORD = LeaderElectionRecord("me", 15, NOON, NOON + timedelta(microseconds=1), 3)
SPEC = {
    "holderIdentity": "me",
    "leaseDurationSeconds": 15,
    "acquireTime": "2026-01-01T12:00:00.000000Z",
    "renewTime": "2026-01-01T12:00:00.000001Z",
    "leaseTransitions": 3,
}


class LeaseClient(FakeClient):
    """One lease on a model server with versions; `raw` overrides the next response."""

    def __init__(self) -> None:
        super().__init__()
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.raw: bytes | None = None

    def put(self, body: dict[str, Any]) -> bytes:
        self.version += 1
        meta = {**body["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**body, "metadata": meta}
        return self._answer()

    def _answer(self) -> bytes:
        raw, self.raw = self.raw, None
        return msgspec.json.encode(self.lease) if raw is None else raw

    async def get(self, resource: Resource, namespace: str, name: str, into: Any = None, **options: Any) -> Any:
        assert resource.path(namespace, name) == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock"
        if self.lease is None:
            raise status_error(NotFoundError, 404)
        return answered(self._answer(), into)

    async def create(self, resource: Resource, namespace: str, body: object, into: Any = None, **options: Any) -> Any:
        assert resource.path(namespace) == "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
        if self.lease is not None:
            raise status_error(AlreadyExistsError, 409)
        return answered(self.put(msgspec.to_builtins(body)), into)

    async def update(
        self, resource: Resource, namespace: str, name: str, body: object, into: Any = None, **options: Any
    ) -> Any:
        assert resource.path(namespace, name) == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock"
        sent: dict[str, Any] = msgspec.to_builtins(body)
        if sent["metadata"]["resourceVersion"] != str(self.version):
            raise status_error(ConflictError, 409)
        return answered(self.put(sent), into)


@pytest.fixture
def client() -> LeaseClient:
    return LeaseClient()


@pytest.fixture
def lock(client: LeaseClient) -> LeaseLock:
    return LeaseLock(client, "ns", "lock", identity="me")


async def test_a_record_is_written_as_other_clients_read_it(client: LeaseClient, lock: LeaseLock) -> None:
    """LE-01, leaselock_test.go:TestLeaseConversion: micro times have six digits, also where they are zeros."""
    await lock.create(RECORD)
    assert client.lease == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lock", "namespace": "ns", "resourceVersion": "1"},
        "spec": SPEC,
    }


async def test_a_record_comes_back_as_it_was_written(lock: LeaseLock) -> None:
    """LE-01, leaselock_test.go:TestGet, TestLeaseSpecToLeaderElectionRecordRoundTrip."""
    await lock.create(RECORD)
    assert await lock.get() == RECORD


async def test_times_of_another_zone_are_written_in_utc(client: LeaseClient, lock: LeaseLock) -> None:
    """LE-01: a Z, and never an offset."""
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    await lock.create(LeaderElectionRecord("me", 15, east, east, 0))
    assert client.lease is not None
    assert client.lease["spec"]["acquireTime"] == "2026-01-01T12:00:00.000000Z"


async def test_a_lease_that_is_not_there_is_none(lock: LeaseLock) -> None:
    """LE-01, leaselock_test.go:TestGet."""
    assert await lock.get() is None


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseTransitions": None}])
async def test_a_lease_that_says_nothing_is_free(
    client: LeaseClient, lock: LeaseLock, spec: dict[str, object] | None
) -> None:
    """LE-01: all fields of the spec are optional, and so is the spec."""
    client.put({"metadata": {"name": "lock"}} | ({"spec": spec} if spec is not None else {}))
    assert await lock.get() == LeaderElectionRecord()
    await lock.update(RECORD)
    assert client.lease is not None
    assert client.lease["spec"] == SPEC


async def test_what_is_not_ours_goes_back_as_it_came(client: LeaseClient) -> None:
    """LE-01, leaselock_test.go:TestLabelUpdate: annotations, the fields of newer servers, and the labels of others."""
    client.put(
        {
            "metadata": {"name": "lock", "labels": {"a": "theirs", "b": "theirs"}, "annotations": {"note": "x"}},
            "spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "you", "holderIdentity": "you"},
        }
    )
    lock = LeaseLock(client, "ns", "lock", identity="me", labels={"b": "ours"})
    await lock.get()
    await lock.update(RECORD)
    assert client.lease is not None
    assert client.lease["metadata"] == {
        "name": "lock",
        "labels": {"a": "theirs", "b": "ours"},
        "annotations": {"note": "x"},
        "resourceVersion": "2",
    }
    assert client.lease["spec"] == {**SPEC, "strategy": "OldestEmulationVersion", "preferredHolder": "you"}


async def test_each_response_is_the_ground_for_the_next_write(client: LeaseClient, lock: LeaseLock) -> None:
    """LE-09: create, update and get all bring the version that the next update carries."""
    await lock.create(RECORD)
    await lock.update(RECORD)
    await lock.update(RECORD)
    assert client.version == 3


async def test_the_second_of_two_writers_is_refused_and_may_retry_after_a_read(client: LeaseClient) -> None:
    """LE-09, leaselock_test.go:TestUpdateError: and a refusal does no harm to what is remembered."""
    mine = LeaseLock(client, "ns", "lock", identity="me")
    yours = LeaseLock(client, "ns", "lock", identity="you")
    await mine.create(RECORD)
    await yours.get()
    await yours.update(RECORD)
    with pytest.raises(ConflictError):
        await mine.update(RECORD)
    with pytest.raises(AlreadyExistsError):
        await mine.create(RECORD)
    await mine.get()
    await mine.update(RECORD)
    assert client.version == 3


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"\xff", b"[]", b"{}", b'{"metadata": {}, "spec": {"leaseDurationSeconds": "15"}}']
)
async def test_a_lease_that_can_not_be_understood_is_an_error_of_ours(
    client: LeaseClient, lock: LeaseLock, raw: bytes
) -> None:
    """LE-01, D19: an ApiError like any other, and what was known before stays known."""
    await lock.create(RECORD)
    client.raw = raw
    with pytest.raises(DecodeError, match="lease ns/lock: the response cannot be decoded"):
        await lock.get()
    await lock.update(RECORD)


async def test_an_update_needs_something_to_update(lock: LeaseLock) -> None:
    """LE-09, leaselock_test.go:TestUpdateError: it is a bug of the caller, and reported as one."""
    with pytest.raises(RuntimeError, match="call get or create first"):
        await lock.update(RECORD)
