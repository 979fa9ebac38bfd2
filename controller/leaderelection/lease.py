"""The lock of an election: a Lease of coordination.k8s.io/v1, as used by all Kubernetes clients.

An elector needs a record that all candidates can read, and writes that only one of them can win (`ResourceLock`). A watch shows
immediately that a lease was renewed or released; polling takes up to 2.2 retry periods longer. The watch is only a hint: a
candidate reads the lease before it takes it. Without permission to watch, or while the watch is broken, it polls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import msgspec
import structlog

from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.decoding import decode_response
from tfjob_operator.api.client.errors import ApiError, ForbiddenError, NotFoundError
from tfjob_operator.api.core import LEASES, Lease, LeaseSpec
from tfjob_operator.api.meta import Struct
from tfjob_operator.controller.leaderelection.fence import FencedTransport, GatedTransport


@dataclass(frozen=True, slots=True)
class LeaderElectionRecord:
    """The current leader. An empty `holder_identity` means that the lock is free; times are informational."""

    holder_identity: str = ""
    lease_duration_s: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    leader_transitions: int = 0


class ResourceLock(Protocol):
    """A record on the server with optimistic locking. All methods raise only ApiError."""

    @property
    def identity(self) -> str:
        """The identity under which this process holds the lock."""
        ...

    async def get(self) -> LeaderElectionRecord | None:
        """Read the record from the server; None if it does not exist."""
        ...

    async def create(self, record: LeaderElectionRecord) -> None:
        """Write the first record. Raises if one exists."""
        ...

    async def update(self, record: LeaderElectionRecord) -> None:
        """Replace the record last read or written here. Raises ConflictError if it has changed."""
        ...


class LeaseLock:
    """`ResourceLock` on one lease.

    Invariants: writes have the resourceVersion of the last response, so of two writers one gets a ConflictError; only
    our five fields and our labels are modified, everything else is preserved (`strategy`, `preferredHolder`, annotations); a
    failed request changes no state here.

    Use a client with its own transport, so that renewals never queue behind other requests. It must not be fenced: a fence
    would keep the leader from renewing its own lease.
    """

    def __init__(
        self, client: RestClient, namespace: str, name: str, *, identity: str, labels: Mapping[str, str] | None = None
    ) -> None:
        """Use the lease `namespace/name` as `identity`; `labels` are set with every write.

        Two processes with the same `identity` both hold the lease: take `hostname_uuid()`, not the name of the program. Raises
        TypeError for a client whose writes pass a fence or a gate.
        """
        if not (namespace and name and identity):
            raise ValueError("a lease lock needs a namespace, a name and an identity")
        if isinstance(client.transport, (FencedTransport, GatedTransport)):
            raise TypeError(
                "a lease that must pass its own fence can be neither acquired nor renewed: use another client"
            )
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._labels = dict(labels or {})
        self._lease: dict[str, Any] = {}

    @property
    def identity(self) -> str:
        """See `ResourceLock.identity`."""
        return self._identity

    async def get(self) -> LeaderElectionRecord | None:
        """See `ResourceLock.get`. Raises DecodeError for an undecodable lease."""
        try:
            raw = await self._client.get(LEASES, self._namespace, self._name)
        except NotFoundError:
            return None
        return self._remember(raw)

    async def create(self, record: LeaderElectionRecord) -> None:
        """See `ResourceLock.create`."""
        metadata = {"name": self._name, "namespace": self._namespace}
        blank = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
        self._remember(await self._client.create(LEASES, self._namespace, self._changed(blank, record)))

    async def update(self, record: LeaderElectionRecord) -> None:
        """See `ResourceLock.update`. Raises RuntimeError before the first `get` or `create`."""
        if not self._lease:
            raise RuntimeError("nothing to update yet: call get or create first")
        body = self._changed(self._lease, record)
        self._remember(await self._client.update(LEASES, self._namespace, self._name, body))

    def _changed(self, lease: dict[str, Any], record: LeaderElectionRecord) -> dict[str, Any]:
        metadata = dict(lease["metadata"])
        if self._labels:
            metadata["labels"] = {**(metadata.get("labels") or {}), **self._labels}
        return {**lease, "metadata": metadata, "spec": {**(lease.get("spec") or {}), **_spec_of(record)}}

    def _remember(self, raw: bytes) -> LeaderElectionRecord:
        record = record_of(decode_response(raw, Lease, request=f"lease {self}"))
        self._lease = decode_response(raw, dict[str, Any], request=f"lease {self}")
        return record

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"


def record_of(lease: Lease) -> LeaderElectionRecord:
    """Return the record of a lease."""
    spec = lease.spec or LeaseSpec()
    return LeaderElectionRecord(
        holder_identity=spec.holder_identity or "",
        lease_duration_s=spec.lease_duration_seconds or 0,
        acquire_time=spec.acquire_time,
        renew_time=spec.renew_time,
        leader_transitions=spec.lease_transitions or 0,
    )


def _spec_of(record: LeaderElectionRecord) -> dict[str, object]:
    return {
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": record.lease_duration_s,
        "acquireTime": _micro_time(record.acquire_time),
        "renewTime": _micro_time(record.renew_time),
        "leaseTransitions": record.leader_transitions,
    }


def _micro_time(value: datetime | None) -> str | None:
    """Return a `metav1.MicroTime`: Go parses exactly six fractional digits, and writes a Z."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


RETRY_S: Final = 5.0
"""The pause before a broken watch is reopened: the polling interval of a candidate with default times."""
log = structlog.get_logger(__name__)


class _Event(Struct, frozen=True):
    type: str
    object: msgspec.Raw


_decoder: Final = msgspec.json.Decoder(_Event)


class LeaseWatch:
    """Watches the lease `namespace/name`. Requires permission to `watch` it, which can be granted for this name only."""

    def __init__(self, client: RestClient, namespace: str, name: str) -> None:
        LEASES.check_object(
            namespace, name
        )  # without a namespace, the leases of this name in all namespaces would be watched
        self._client = client
        self._options = ListOptions(namespace, field_selector=f"metadata.name={name}")
        self._name = f"{namespace}/{name}"

    async def run(self, seen: Callable[[LeaderElectionRecord | None], None]) -> None:
        """Until cancelled, call `seen` with each record of the lease, or with None when the lease is deleted.

        Does not raise ApiError.
        """
        while True:
            try:
                await self._watch(seen)
            except ForbiddenError as error:
                log.info("lease_not_watched", lease=self._name, error=str(error))
                return
            except (ApiError, msgspec.DecodeError) as error:
                log.debug("lease_watch_failed", lease=self._name, error=str(error))
            await asyncio.sleep(RETRY_S)

    async def _watch(self, seen: Callable[[LeaderElectionRecord | None], None]) -> None:
        async with self._client.watch(LEASES, self._options) as batches:
            async for lines in batches:
                for line in lines:
                    event = _decoder.decode(line)
                    if event.type == "DELETED":
                        seen(None)
                    elif event.type in {"ADDED", "MODIFIED"}:
                        seen(record_of(msgspec.json.decode(event.object, type=Lease)))
