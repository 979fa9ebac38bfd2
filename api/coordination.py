"""Leases of coordination.k8s.io/v1, by which the replicas of a controller agree on a leader, as frozen structs."""

from __future__ import annotations

from datetime import datetime

from tfjob_operator.api.meta import ObjectMeta, Resource, Struct

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")


class LeaseSpec(Struct, frozen=True):
    """Who holds a lease, since when and for how long. None is a field that nobody has set."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True):
    """A lease of coordination.k8s.io/v1, by which the replicas of a controller agree on a leader."""

    metadata: ObjectMeta
    spec: LeaseSpec | None = None
