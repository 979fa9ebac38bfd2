"""A lock on a model server: one record with a version, and responses that are slow, lost or refused when a test says so."""

import asyncio
from collections.abc import Awaitable, Callable

from tfjob_operator.api.client.errors import AlreadyExistsError, ConflictError, Status
from tfjob_operator.controller.leaderelection import Fence, LeaderElectionRecord
from tfjob_operator.workqueue import LoopClock


class LockServer:
    """The record that all `ModelLock`s see; `history` holds (time, verb, record) of each write that took effect."""

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.record: LeaderElectionRecord | None = None
        self.version = 0
        self.history: list[tuple[float, str, LeaderElectionRecord]] = []
        self._now = now or LoopClock().monotonic

    def create(self, record: LeaderElectionRecord) -> int:
        """Return the version of the record. Raises AlreadyExistsError."""
        if self.record is not None:
            raise AlreadyExistsError(Status(code=409))
        return self.put(record, "create")

    def update(self, record: LeaderElectionRecord, version: int) -> int:
        """Return the new version. Raises ConflictError."""
        if self.record is None or version != self.version:
            raise ConflictError(Status(code=409))
        return self.put(record, "update")

    def put(self, record: LeaderElectionRecord | None, verb: str = "put") -> int:
        """Replace the record, as if another client had done so; return the new version."""
        self.record = record
        self.version += 1
        if record is not None:
            self.history.append((self._now(), verb, record))
        return self.version

    @property
    def holders(self) -> list[str]:
        """The holders in order; one that writes several times in a row is there once."""
        names: list[str] = []
        for _, _, record in self.history:
            if names[-1:] != [record.holder_identity]:
                names.append(record.holder_identity)
        return names


async def _at_once() -> None:
    """The default network: no delay, no failure."""


class ModelLock:
    """`ResourceLock` on a `LockServer`. `before` and `after` are awaited before and after the server acts.

    An error from `before` stands for a lost request, one from `after` for a lost response.
    """

    def __init__(self, server: LockServer, identity: str) -> None:
        self.server = server
        self.identity = identity
        self.calls: list[str] = []
        self.before: Callable[[], Awaitable[None]] = _at_once
        self.after: Callable[[], Awaitable[None]] = _at_once
        self._version = -1

    async def get(self) -> LeaderElectionRecord | None:
        self.calls.append("get")
        await self.before()
        record, version = self.server.record, self.server.version
        await self.after()
        self._version = version
        return record

    async def create(self, record: LeaderElectionRecord) -> None:
        self.calls.append("create")
        await self.before()
        version = self.server.create(record)
        await self.after()
        self._version = version

    async def update(self, record: LeaderElectionRecord) -> None:
        self.calls.append("update")
        await self.before()
        version = self.server.update(record, self._version)
        await self.after()
        self._version = version

    def __str__(self) -> str:
        return "ns/lock"


async def for_ever() -> None:
    """Work that does not end by itself, or a server that does not answer."""
    await asyncio.Event().wait()


async def renew(fence: Fence) -> None:
    """Renew as an elector does: every two seconds, for a lease of fifteen with a margin of two and a half."""
    while True:
        fence.open_until(asyncio.get_running_loop().time() + 12.5)
        await asyncio.sleep(2.0)
