"""What an elector needs of a lock: a record that all candidates see, and writes that only one of them can win."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class LeaderElectionRecord:
    """Who leads. An empty `holder_identity` means that the lock is free; the times are for people, not compared (LE-04)."""

    holder_identity: str = ""
    lease_duration_s: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    leader_transitions: int = 0


class ResourceLock(Protocol):
    """A record on the server with optimistic locking (LE-09). All methods raise ApiError and no other error."""

    @property
    def identity(self) -> str:
        """The name under which this process holds the lock."""
        ...

    async def get(self) -> LeaderElectionRecord | None:
        """Read the record from the server; None if there is none."""
        ...

    async def create(self, record: LeaderElectionRecord) -> None:
        """Write the first record. Raises if there is one."""
        ...

    async def update(self, record: LeaderElectionRecord) -> None:
        """Replace the record last read or written here. Raises ConflictError if it is another one by now."""
        ...
