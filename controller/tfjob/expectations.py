"""Creates and deletes of ours that the cache does not show yet.

A cache lags behind our own writes. Until the creates and deletes of one sync have been observed, a second one would repeat
them; so a job with unmet expectations gets its status computed but neither creates nor deletes (EX-09). Children are expected
one by one, creations by name and deletions by UID, and not as counts.

Invariants:

- An event that comes twice, or belongs to another child, never stands in for one that is missing (B11, B18).
- Records belong to a job's namespace and UID: a job that is deleted and created again under its name starts with none (EX-06,
  EX-08), and objects in other namespaces meet none of them (D2).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.controller.tfjob.children import OwnerKey
    from tfjob_operator.workqueue.clock import Clock

EXPIRY_S: Final = 300.0
"""EX-02: an event that has not come after five minutes was lost; going on is better than standing still."""


EXPIRY_SLACK_S: Final = 0.1
"""Who looks again does so a little later, since a timer may fire a rounding error early."""


@dataclass(slots=True)
class _Record:
    born: float
    creations: set[str] = field(default_factory=set)
    deletions: set[str] = field(default_factory=set)


class Expectations:
    """Expected creations and deletions, per owner. A record exists only while something in it is outstanding.

    `kind` tells pods and services of one name apart. All methods are synchronous, so between two awaits nothing changes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[OwnerKey, _Record] = {}

    def satisfied(self, owner: OwnerKey) -> bool:
        """Whether nothing is outstanding, or what is has expired (EX-01). Ask before reading the cache (EX-04)."""
        record = self._records.get(owner)
        if record is None:
            return True
        if self._clock.monotonic() - record.born > EXPIRY_S:
            del self._records[owner]
            return True
        return False

    def expires_in_s(self, owner: OwnerKey) -> float | None:
        """Return the seconds until the expectations expire; None when nothing is outstanding."""
        record = self._records.get(owner)
        if record is None:
            return None
        return max(0.0, record.born + EXPIRY_S - self._clock.monotonic()) + EXPIRY_SLACK_S

    def expect_creations(self, owner: OwnerKey, kind: str, names: Iterable[str]) -> None:
        """Record creates that are about to be sent; before the first of them leaves (EX-04)."""
        self._record(owner).creations.update(_key(kind, name) for name in names)
        self._drop_if_met(owner)

    def expect_deletions(self, owner: OwnerKey, kind: str, uids: Iterable[str]) -> None:
        """Record deletes that are about to be sent."""
        self._record(owner).deletions.update(_key(kind, uid) for uid in uids)
        self._drop_if_met(owner)

    def creation_observed(self, owner: OwnerKey, kind: str, name: str) -> None:
        """Meet an expectation: the child is in the cache, or its create failed or was never sent."""
        if record := self._records.get(owner):
            record.creations.discard(_key(kind, name))
            self._drop_if_met(owner)

    def deletion_observed(self, owner: OwnerKey, kind: str, uid: str) -> None:
        """Meet an expectation: the child is gone or is being deleted, or its delete failed. Counted once (EX-07)."""
        if record := self._records.get(owner):
            record.deletions.discard(_key(kind, uid))
            self._drop_if_met(owner)

    def forget(self, owner: OwnerKey) -> None:
        """Drop the records of an owner: it is gone (EX-08)."""
        self._records.pop(owner, None)

    def _record(self, owner: OwnerKey) -> _Record:
        record = self._records.get(owner)
        if record is None:
            record = self._records[owner] = _Record(self._clock.monotonic())
        return record

    def _drop_if_met(self, owner: OwnerKey) -> None:
        record = self._records[owner]
        if not record.creations and not record.deletions:
            del self._records[owner]


def _key(kind: str, identity: str) -> str:
    return f"{kind}/{identity}"
