"""Two real operators whose leader is disturbed repeatedly, and the API server's record of their writes and their Lease.

A disturbance is a SIGSTOP, a network failure (`faults.cut`), or a changed clock.
"""

import asyncio
import itertools
import os
import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from dataclasses import field as field_of
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from faults.field import Field, field
from faults.processes import beside, program, python, say
from hack.audit import AuditLog
from integration.cluster import replica, specs, tfjob
from support.machine import lacks
from support.waiting import until
from tfjob_operator.api.v1.constants import TFJOBS

NAMES: Final = ("operator-a", "operator-b")
LEASE_S: Final = 4
QUICK: Final = (
    f"--leader-elect-lease-duration={LEASE_S}s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
)
AUDITED: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {
            "level": "Request",
            "users": list(NAMES),
            "verbs": ["create", "update"],
            "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}],
        },
        {"level": "Metadata", "users": list(NAMES), "verbs": ["create", "update", "patch", "delete"]},
        {"level": "None"},
    ],
}
PAUSE_S: Final = 0.3
LIMIT_S: Final = 120.0
FENCED_S: Final = 3.5
"""How long after the start of a renewal a write may be sent with these settings (`LeaderElectionConfig.fence_margin_s`)."""
ROUNDED_S: Final = 0.2
"""The maximum difference between the times of the API server, this process and the operator."""


@dataclass(frozen=True)
class Place:
    """How an operator is run: the prefix of its command, and its environment."""

    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field_of(default_factory=dict)


NOWHERE: Final = Place()


class Operator:
    """One of the two operators. It is restarted when it ends, as by a Deployment."""

    def __init__(self, field: Field, namespace: str, name: str, *, bug: str = "", place: Place = NOWHERE) -> None:
        kubeconfig = field.plane.kubeconfig_for(name, ["system:masters"])
        self.name = name
        where = (f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", "--monitoring-port=0")
        self._command = (*program(bug), *where, *QUICK)
        self._place = place
        self._log = field.folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        while True:
            environment = self._place.environment
            async with python(
                *self._command, log=self._log, prefix=self._place.prefix, environment=environment
            ) as process:
                self._process = process
                await process.wait()

    @property
    def is_ready(self) -> bool:
        """Whether it has filled its caches, and waits for or holds the lease."""
        log = self._log.read_bytes() if self._log.exists() else b""
        return log.rfind(b'"lease_awaited"') > log.rfind(b'"lease_lost"')

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, number)


class Writes:
    """The server's record of lease holders and writers. Times are the server's."""

    def __init__(self) -> None:
        self.reigns: list[tuple[str, str]] = []
        """When each holder got the lease (the end of the request); "" for a released lease."""
        self.others: list[tuple[str, str, str]] = []
        """When a write arrived, from which operator, and its content."""
        self.renewals: list[tuple[str, str]] = []
        """When a request that got or kept the lease arrived, and from which operator."""
        self._said: list[tuple[str, str, str]] = []
        self.stops: list[tuple[datetime, str]] = []
        """When each operator was stopped."""

    def take(self, entries: Iterable[dict[str, Any]]) -> None:
        for entry in entries:
            user, target = entry["user"]["username"], entry["objectRef"]
            if target["resource"] != "leases":
                what = f"{entry['verb']} {entry['requestURI']}"
                self.others.append((entry["requestReceivedTimestamp"], user, what))
            elif entry["responseStatus"]["code"] in {200, 201}:
                holder = entry["requestObject"]["spec"].get("holderIdentity")
                self.reigns.append((entry["stageTimestamp"], user if holder else ""))
                self.renewals.append((entry["requestReceivedTimestamp"], user))
                self._said.append(
                    (user, entry["requestReceivedTimestamp"], entry["requestObject"]["spec"]["renewTime"])
                )
        self.reigns.sort()
        self.renewals.sort()

    @property
    def leader(self) -> str:
        return self.reigns[-1][1] if self.reigns else ""

    def without_the_lease(self) -> list[str]:
        """Return writes after another operator got the lease, except those that no client can prevent."""
        return [
            f"{when} {user}: {what}" for when, user, what in self._late() if not self._was_on_its_way(when, user, what)
        ]

    def on_their_way(self) -> int:
        """Return how many writes came without the lease but had passed the fence before their operator was stopped."""
        return sum(self._was_on_its_way(*each) for each in self._late())

    def _late(self) -> list[tuple[str, str, str]]:
        late = []
        for when, user, what in self.others:
            before = [name for since, name in self.reigns if since < when]
            if before and before[-1] not in {user, ""}:
                late.append((when, user, what))
        return late

    def _was_on_its_way(self, when: str, user: str, what: str) -> bool:
        """Whether the fence passed this write before the stop, and its bytes were sent when the process continued.

        No client can prevent that (`leaderelection/fence.py`). The `timeout` of a write shows the remaining lease time.
        """
        left = re.search(r"[?&]timeout=(\d+)ms", what)
        renewed = [since for since, name in self.renewals if name == user and since < when]
        if left is None or not renewed:
            return False
        let_through = _time(renewed[-1]) + timedelta(seconds=FENCED_S, milliseconds=-int(left[1]))
        return any(
            name == user and let_through <= at + timedelta(seconds=ROUNDED_S) and at < _time(when)
            for at, name in self.stops
        )

    @property
    def reigns_begun(self) -> list[tuple[str, str]]:
        """When each holder of the lease got it and then renewed it."""
        return [each for before, each in pairwise([("", ""), *self.reigns]) if before[1] != each[1]]

    def wrong_s(self, user: str) -> list[float]:
        """Return the error of an operator's clock at each renewal, by the times it wrote into the lease."""
        return [(_time(said) - _time(when)).total_seconds() for name, when, said in self._said if name == user]

    def count(self, user: str) -> int:
        return sum(name == user for _, name, _ in self.others)


def _time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)


async def users(field: Field, namespace: str) -> None:
    """Create jobs continuously, so that the leader always has something to write."""
    for number in itertools.count():
        job = tfjob(f"job-{number}", specs(Worker=replica(2, run="0.5s:0")))
        await field.client.create(TFJOBS, namespace, job)
        await asyncio.sleep(PAUSE_S)


class Harm(ABC):
    """A disturbance of a leader, reverted when the other one has written. It is entered before the operators start."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def place(self, _name: str) -> Place:
        return NOWHERE

    @abstractmethod
    async def do(self, operator: Operator) -> None:
        """Disturb it."""

    @abstractmethod
    async def undo(self, operator: Operator) -> None:
        """Revert that."""


class Stop(Harm):
    """SIGSTOP for longer than the lease."""

    async def do(self, operator: Operator) -> None:
        operator.signal(signal.SIGSTOP)

    async def undo(self, operator: Operator) -> None:
        operator.signal(signal.SIGCONT)


@dataclass
class Match:
    """Two operators in one namespace, on a server that records their writes."""

    writes: Writes
    operators: Mapping[str, Operator]
    audit: AuditLog
    trouble: Harm

    def leader(self) -> str:
        self.writes.take(self.audit.news())
        return self.writes.leader

    async def harm(self, dice: Random) -> None:
        """Disturb the leader at some point of its work, until the other one has written."""
        both = self.operators.values()
        await until(
            lambda: self.leader() and all(each.is_ready for each in both),
            "one of two replicas leads, and both are ready",
            limit_s=LIMIT_S,
        )
        await asyncio.sleep(dice.uniform(0.5, 1.5))
        old = self.leader()
        (new,) = set(NAMES) - {old}
        await self.trouble.do(self.operators[old])
        self.writes.stops.append((datetime.now(UTC), old))
        harmed, before = time.monotonic(), self.writes.count(new)
        try:
            await until(
                lambda: self.leader() and self.writes.count(new) > before, "the new leader writes", limit_s=LIMIT_S
            )
        finally:
            await self.trouble.undo(self.operators[old])
        say(f"{type(self.trouble).__name__}: the other one wrote after {time.monotonic() - harmed:.1f} s")
        await asyncio.sleep(1.0)  # the remaining work of the new leader
        self.leader()


@asynccontextmanager
async def match(
    folder: Path, trouble: Callable[[Field], Harm], *, bug: str = "", place: Callable[[str], Place] | None = None
) -> AsyncIterator[Match]:
    """Run two operators, each in its own environment, and a user who creates jobs."""
    async with field(folder, AUDITED) as it, trouble(it) as harm:
        where = place or harm.place
        namespace = await it.new_namespace("leaders")
        operators = {name: Operator(it, namespace, name, bug=bug, place=where(name)) for name in NAMES}
        async with beside(users(it, namespace), *(operator.run() for operator in operators.values())):
            yield Match(Writes(), operators, it.audit, harm)


async def play(folder: Path, trouble: Callable[[Field], Harm], *, rounds: int, bug: str = "") -> Writes:
    """Disturb the leader this many times; with a bug, only until that is found."""
    dice = Random(1)
    async with match(folder, trouble, bug=bug) as it:
        for _ in range(rounds):
            await it.harm(dice)
            if bug and it.writes.without_the_lease():
                break
        return it.writes


LIBRARIES: Final = tuple(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


def why_no_clocks() -> str:
    """Return why clocks cannot be changed here, or ""."""
    return "" if LIBRARIES else lacks("libfaketime", "apt-get install libfaketime")


class Clocks:
    """The wall clocks of both operators, changed by libfaketime through a file each; monotonic clocks stay correct."""

    def __init__(self, folder: Path) -> None:
        self._files = {name: folder / f"{name}.clock" for name in NAMES}
        for file in self._files.values():
            file.write_text("+0\n")

    def place(self, name: str) -> Place:
        return Place(
            environment={
                "LD_PRELOAD": str(LIBRARIES[0]),
                "FAKETIME_TIMESTAMP_FILE": str(self._files[name]),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        )

    def move(self, name: str, seconds: int) -> None:
        """Move the clock of an operator by this number of seconds from the correct time."""
        file = self._files[name]
        new = file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(file)
