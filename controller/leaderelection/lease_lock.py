"""A lock that is a Lease of coordination.k8s.io/v1, as every other Kubernetes client reads and writes it (LE-01)."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from tfjob_operator.api.client.decoding import decode_response
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.coordination import LEASES, Lease, LeaseSpec
from tfjob_operator.controller.leaderelection.lock import LeaderElectionRecord

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from tfjob_operator.api.client import RestClient


class LeaseLock:
    """`ResourceLock` on one lease.

    Invariants: what is written carries the resourceVersion of the last response, so of two writers one gets a ConflictError
    (LE-09); of the lease only our five fields and our labels are changed, the rest is sent back as it came (`strategy`,
    `preferredHolder`, annotations); a failed call changes nothing here.

    Give it a client on a transport of its own, so that a renewal never waits behind other requests, and without a fence,
    which would keep the leader from renewing its own lease.
    """

    def __init__(
        self, client: RestClient, namespace: str, name: str, *, identity: str, labels: Mapping[str, str] | None = None
    ) -> None:
        """Use the lease `namespace/name` as `identity`; `labels` are put on it with every write."""
        if not (namespace and name and identity):
            raise ValueError("a lease lock needs a namespace, a name and an identity")
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
        """See `ResourceLock.get`. Raises DecodeError for a lease that cannot be decoded."""
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
            raise RuntimeError("there is nothing to update yet: call get or create first")
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
    """Return what a lease says of its holder."""
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
    """`metav1.MicroTime`: Go reads it with exactly six digits of a second, also where they are zeros, and writes a Z."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
