"""Our own creates and deletes that the cache does not reflect yet.

A cache lags behind our own writes. Until the creates and deletes of a sync are observed, another sync would repeat them. So
while a job has unsatisfied expectations, its status is computed, but nothing is created or deleted. Unlike client-go's
counters, expectations identify the children: creations by name, deletions by UID.

If a watch was interrupted for too long, a list replaces it. That list does not contain a child that was created and deleted in
between. So a list also satisfies the expectation of a creation, if it is at least as new as the response to the create.
An older list, from a stale watch cache, does not.

Invariants:

- An event that comes twice, or belongs to another child, does not satisfy the expectation of a missing child.
- Records belong to a job's namespace and UID. So a job that is deleted and recreated starts without records, and
  objects of other namespaces satisfy no expectation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tfjob_operator.api.meta import (
    Meta,
    OwnerKey,
    meta_key,
    owner_uid_key,
    version_number,
)
from tfjob_operator.workqueue.clock import Clock

EXPIRY_S: Final = 300.0
"""An event that has not arrived after five minutes was lost. Continuing is better than blocking."""
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
        """Return True if nothing is outstanding, or it has expired. Call this before reading the cache."""
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
        """Record creates before the first of them is sent."""
        self._record(owner).creations.update((_key(kind, name), None) for name in names)
        self._drop_if_met(owner)

    def expect_deletions(self, owner: OwnerKey, kind: str, uids: Iterable[str]) -> None:
        """Record deletes before they are sent."""
        self._record(owner).deletions.update(_key(kind, uid) for uid in uids)
        self._drop_if_met(owner)

    def creation_answered(self, job: Meta, kind: str, name: str, version: str) -> None:
        """Record the resourceVersion in the response to a create; its event may have arrived earlier."""
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
        """Satisfy an expectation: the child is gone or terminating, or its delete failed. Idempotent."""
        if record := self._records.get(owner):
            record.deletions.discard(_key(kind, uid))
            self._drop_if_met(owner)

    def forget(self, owner: OwnerKey) -> None:
        """Forget all state of a deleted owner."""
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
