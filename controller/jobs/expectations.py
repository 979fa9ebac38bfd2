"""Our own creates and deletes that the cache does not reflect yet, and the event handlers that observe them.

A cache lags behind our own writes. Until the creates and deletes of a sync are observed, another sync would repeat them. So
while a job has unsatisfied expectations, its status is computed, but nothing is created or deleted (EX-09). Unlike client-go's
counters, expectations identify the children: creations by name, deletions by UID.

If a watch was interrupted for too long, a list replaces it. That list does not contain a child that was created and deleted in
between. So a list also satisfies the expectation of a creation, if it is at least as new as the response to the create (EX-10).
An older list, from a stale watch cache, does not.

Handlers run on the loop and must not block it: they only record events and queue the key of the job that controls the child.

Invariants:

- An event that comes twice, or belongs to another child, does not satisfy the expectation of a missing child (B11, B18).
- Records belong to a job's namespace and UID. So a job that is deleted and recreated starts without records (EX-06, EX-08), and
  objects of other namespaces satisfy no expectation (D2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from tfjob_operator.api.meta import (
    Meta,
    Object,
    ObjectMeta,
    OwnerKey,
    controller_of,
    key_of_owner,
    meta_key,
    object_key,
    owner_uid_key,
    version_number,
)
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.api.v1alpha1.types import AlphaJob
from tfjob_operator.controller.jobs.children import ChildMeta
from tfjob_operator.informers import Tombstone, object_of
from tfjob_operator.workqueue import RateLimitingQueue
from tfjob_operator.workqueue.clock import Clock

EXPIRY_S: Final = 300.0
"""EX-02: an event that has not arrived after five minutes was lost. Continuing is better than blocking."""
EXPIRY_SLACK_S: Final = 0.1
"""Delay after the expiry at which a job is queued, since a timer may fire early by a rounding error."""


@dataclass(slots=True)
class _Record:
    """The children still expected; creations map to the version in the response, None until known. `job` is "" at first."""

    born: float
    creations: dict[str, int | None] = field(default_factory=dict)
    deletions: set[str] = field(default_factory=set)
    job: str = ""


class Expectations:
    """Outstanding creations and deletions by owner; `kind` distinguishes children of the same name. Synchronous."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[OwnerKey, _Record] = {}
        self._listed: dict[str, int] = {}
        """The version of the last list, by kind."""

    def satisfied(self, owner: OwnerKey) -> bool:
        """Return True if nothing is outstanding, or it has expired (EX-01). Call this before reading the cache (EX-04)."""
        record = self._records.get(owner)
        if record is None or self._drop_if_missed(owner, record):
            return True
        if self._clock.monotonic() - record.born > EXPIRY_S:
            del self._records[owner]
            return True
        return False

    def expected(self, owner: OwnerKey, kind: str) -> list[str]:
        """Return the names of the outstanding creations of a kind. Call this before reading the cache, like `satisfied`."""
        record = self._records.get(owner)
        prefix = _key(kind, "")
        return [key.removeprefix(prefix) for key in record.creations if key.startswith(prefix)] if record else []

    def expires_in_s(self, owner: OwnerKey) -> float | None:
        """Return the seconds until the next sync: 0 if a list satisfied the last expectation, None if nothing is expected."""
        record = self._records.get(owner)
        if record is None:
            return None
        if self._drop_if_missed(owner, record):
            return 0.0
        return max(0.0, record.born + EXPIRY_S - self._clock.monotonic()) + EXPIRY_SLACK_S

    def expect_creations(self, owner: OwnerKey, kind: str, names: Iterable[str]) -> None:
        """Record creates before the first of them is sent (EX-04)."""
        self._record(owner).creations.update((_key(kind, name), None) for name in names)
        self._drop_if_met(owner)

    def expect_deletions(self, owner: OwnerKey, kind: str, uids: Iterable[str]) -> None:
        """Record deletes before they are sent."""
        self._record(owner).deletions.update(_key(kind, uid) for uid in uids)
        self._drop_if_met(owner)

    def creation_answered(self, job: Meta, kind: str, name: str, version: str) -> None:
        """Record the resourceVersion in the response to a create; its event may have arrived earlier (EX-10)."""
        record = self._records.get(owner_uid_key(job))
        if record is not None and (key := _key(kind, name)) in record.creations:
            record.creations[key] = version_number(version)
            record.job = meta_key(job)

    def listed(self, kind: str, version: str) -> list[str]:
        """Record that the cache contains a list of a kind at a version. Call this after the events of the list.

        Returns the keys of jobs whose last expectation was satisfied by this list: no event will queue these jobs.
        """
        number = version_number(version)
        if number is None:
            self._listed.pop(kind, None)
            return []
        self._listed[kind] = number
        return [record.job for owner, record in [*self._records.items()] if self._drop_if_missed(owner, record)]

    def creation_observed(self, owner: OwnerKey, kind: str, name: str) -> None:
        """Satisfy an expectation: the cache contains the child, or its create failed or was not sent."""
        if record := self._records.get(owner):
            record.creations.pop(_key(kind, name), None)
            self._drop_if_met(owner)

    def deletion_observed(self, owner: OwnerKey, kind: str, uid: str) -> None:
        """Satisfy an expectation: the child is gone or terminating, or its delete failed. Idempotent (EX-07)."""
        if record := self._records.get(owner):
            record.deletions.discard(_key(kind, uid))
            self._drop_if_met(owner)

    def forget(self, owner: OwnerKey) -> None:
        """Forget all state of a deleted owner (EX-08)."""
        self._records.pop(owner, None)

    def _record(self, owner: OwnerKey) -> _Record:
        record = self._records.get(owner)
        if record is None:
            record = self._records[owner] = _Record(self._clock.monotonic())
        return record

    def _drop_if_missed(self, owner: OwnerKey, record: _Record) -> bool:
        """Drop a record if a list is new enough to contain all of its outstanding children. Return True if dropped."""
        if record.deletions or not all(self._is_missed(key, version) for key, version in record.creations.items()):
            return False
        del self._records[owner]
        return True

    def _is_missed(self, key: str, version: int | None) -> bool:
        return version is not None and version <= self._listed.get(key.partition("/")[0], 0)

    def _drop_if_met(self, owner: OwnerKey) -> None:
        record = self._records[owner]
        if not record.creations and not record.deletions:
            del self._records[owner]


def _key(kind: str, identity: str) -> str:
    return f"{kind}/{identity}"


class Feed:
    """Queues keys, but only while the workers of this process run: until then they would not be processed (D6)."""

    def __init__(self, queue: RateLimitingQueue[str]) -> None:
        self._queue = queue
        self._open = False

    def open(self, jobs: Iterable[Object]) -> None:
        """Queue keys from now on, and the cached jobs now, with low priority (PQ-04)."""
        if not self._open:
            self._open = True
            for job in jobs:
                self._queue.add(meta_key(job.metadata), low_priority=True)

    def add(self, key: str, *, low_priority: bool = False) -> None:
        """Queue a key, if `open` was called."""
        if self._open:
            self._queue.add(key, low_priority=low_priority)

    def after(self, key: str, *waits_s: float | None) -> None:
        """Queue a key after the shortest of these delays in seconds; None is ignored."""
        for wait_s in waits_s:
            if wait_s is not None:
                self._queue.add_after(key, wait_s)

    @property
    def is_busy(self) -> bool:
        """True if jobs are queued."""
        return len(self._queue) > 0


class Child(Protocol):
    """A child of any kind."""

    @property
    def metadata(self) -> ChildMeta:
        """Its metadata."""
        ...


C = TypeVar("C", bound=Child)


J = TypeVar("J", TFJob, AlphaJob)


class JobHandler(Generic[J]):
    """Queues every job that changes and is accepted by `takes`; calls `forget` for deleted jobs."""

    def __init__(
        self, feed: Feed, forget: Callable[[ObjectMeta], None], takes: Callable[[J], bool] = lambda _job: True
    ) -> None:
        self._feed = feed
        self._forget = forget
        self._takes: Callable[[J], bool] = takes

    def on_add(self, job: J, is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Queue a new job. Those of the initial list have low priority (PQ-04)."""
        if self._takes(job):
            self._feed.add(meta_key(job.metadata), low_priority=is_in_initial_list)

    def on_update(self, old: J, new: J, /) -> None:
        """Queue a changed job. If the UID differs, the job was deleted and recreated unobserved (EX-08, SI-11)."""
        if old.metadata.uid != new.metadata.uid:
            self._forget(old.metadata)
        if self._takes(new):
            self._feed.add(meta_key(new.metadata))

    def on_delete(self, gone: J | Tombstone[J], /) -> None:
        """Forget a job. The garbage collector deletes its children."""
        self._forget(object_of(gone).metadata)


class OwnedChildHandler(Generic[C]):
    """Satisfies expectations from the events of one kind of children, and queues the job that controls them.

    Expectations are found by the owner's UID in the child's namespace. So an expectation is not satisfied by a child of an
    earlier job of the same name (EX-06), or by a child in another namespace that names our job as owner (D2).
    """

    def __init__(self, owner_kind: str, kind: str, feed: Feed, expectations: Expectations) -> None:
        """`owner_kind` is the kind of the jobs, `kind` the name under which these children are expected."""
        self._owner_kind = owner_kind
        self._kind = kind
        self._feed = feed
        self._expectations = expectations

    def on_add(self, child: C, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Satisfy the expectation of a creation, and queue the job."""
        self._seen(child.metadata)

    def on_update(self, old: C, new: C, /) -> None:
        """Queue the job of a changed child. If the UID differs, the child was deleted and recreated."""
        if old.metadata.uid != new.metadata.uid or controller_of(old.metadata) != controller_of(new.metadata):
            self._gone(old.metadata)
        self._seen(new.metadata)

    def on_delete(self, gone: C | Tombstone[C], /) -> None:
        """Satisfy the expectation of a deletion, and queue the job."""
        self._gone(object_of(gone).metadata)

    def on_list(self, resource_version: str, /) -> None:
        """Satisfy the expectations of children missing from a list, and queue their jobs (EX-10)."""
        for job in self._expectations.listed(self._kind, resource_version):
            self._feed.add(job)

    def _seen(self, meta: ChildMeta) -> None:
        owner = controller_of(meta)
        if owner is None or owner.kind != self._owner_kind:
            return
        if meta.deletion_timestamp is not None:  # terminating counts as deleted (EX-05)
            self._expectations.deletion_observed(key_of_owner(meta, owner), self._kind, meta.uid)
        else:
            self._expectations.creation_observed(key_of_owner(meta, owner), self._kind, meta.name)
        self._feed.add(object_key(meta.namespace, owner.name))

    def _gone(self, meta: ChildMeta) -> None:
        owner = controller_of(meta)
        if owner is None or owner.kind != self._owner_kind:
            return
        self._expectations.deletion_observed(key_of_owner(meta, owner), self._kind, meta.uid)
        self._feed.add(object_key(meta.namespace, owner.name))
