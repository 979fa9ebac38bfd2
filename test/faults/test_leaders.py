"""Two real operators, of which the leader is stopped again and again: nobody writes without the lease, as the server says."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import sys
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

from faults.bugs import UNFENCED
from faults.field import ROOT, field
from faults.matrix import say
from faults.operator_process import BUGGY, OPERATOR
from integration.cluster import replica, specs
from support.waiting import until
from tfjob_operator.api.v1.constants import TFJOBS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

    from faults.field import Field

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
ROUNDS: Final = 3
PAUSE_S: Final = 0.3
LIMIT_S: Final = 120.0
FENCED_S: Final = 3.5
"""How long after the beginning of a renewal a write may be sent with these settings (`LeaderElectionConfig.fence_margin_s`)."""
ROUNDED_S: Final = 0.2
"""What the times of the API server, of this process and of the operator may differ in."""


class Operator:
    """One of the two. It is started again when it has ended, as a Deployment does it."""

    def __init__(self, field: Field, namespace: str, name: str, bug: str) -> None:
        kubeconfig = field.plane.kubeconfig_for(name, ["system:masters"])
        self.name = name
        self._command = (
            *(sys.executable, *((BUGGY, bug) if bug else OPERATOR), f"--kubeconfig={kubeconfig}"),
            *(f"--namespace={namespace}", "--monitoring-port=0", *QUICK),
        )
        self._log = field.folder / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None
        self.exits: list[int] = []

    async def run(self) -> None:
        """Keep it running until cancelled."""
        while True:
            with self._log.open("ab") as out:
                process = await asyncio.create_subprocess_exec(*self._command, stdout=out, stderr=out, cwd=ROOT)
            self._process = process
            try:
                self.exits.append(await process.wait())
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process that runs now."""
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, number)


class Writes:
    """What the server says: who held the lease since when, and who wrote when. Times are the server's own."""

    def __init__(self) -> None:
        self.reigns: list[tuple[str, str]] = []
        """Since when (the end of the request), and who; "" for a lease that was given back."""
        self.others: list[tuple[str, str, str]] = []
        """When a write arrived, from whom, and what it was."""
        self.renewals: list[tuple[str, str]] = []
        """When a request arrived that got or kept the lease, and from whom."""
        self.stops: list[tuple[datetime, str]] = []
        """When which operator was stopped."""

    def take(self, entries: Iterable[dict[str, Any]]) -> None:
        """Read new entries of the audit log."""
        for entry in entries:
            user, target = entry["user"]["username"], entry["objectRef"]
            if target["resource"] != "leases":
                what = f"{entry['verb']} {entry['requestURI']}"
                self.others.append((entry["requestReceivedTimestamp"], user, what))
            elif entry["responseStatus"]["code"] in {200, 201}:
                holder = entry["requestObject"]["spec"].get("holderIdentity")
                self.reigns.append((entry["stageTimestamp"], user if holder else ""))
                self.renewals.append((entry["requestReceivedTimestamp"], user))
        self.reigns.sort()
        self.renewals.sort()

    @property
    def leader(self) -> str:
        """Who has the lease."""
        return self.reigns[-1][1] if self.reigns else ""

    def without_the_lease(self) -> list[str]:
        """Return the writes that came after somebody else had got the lease, but for those that nobody could hold back."""
        return [
            f"{when} {user}: {what}" for when, user, what in self._late() if not self._was_on_its_way(when, user, what)
        ]

    def on_their_way(self) -> int:
        """How many writes came without the lease, and had been let through before their operator was stopped."""
        return sum(self._was_on_its_way(*each) for each in self._late())

    def _late(self) -> list[tuple[str, str, str]]:
        late = []
        for when, user, what in self.others:
            before = [name for since, name in self.reigns if since < when]
            if before and before[-1] not in {user, ""}:
                late.append((when, user, what))
        return late

    def _was_on_its_way(self, when: str, user: str, what: str) -> bool:
        """Return whether the fence let this write through before the stop: its bytes were then sent when the process went on.

        No client can prevent that (`leaderelection/fence.py`). A write says by its `timeout` how much of the lease was left.
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

    def count(self, user: str) -> int:
        """How many writes of this user there were."""
        return sum(name == user for _, name, _ in self.others)


def _time(stamp: str) -> datetime:
    return datetime.fromisoformat(stamp)


@asynccontextmanager
async def beside(*parts: Any) -> AsyncIterator[None]:
    """Run coroutines beside the block, and end them with it."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def users(field: Field, namespace: str) -> None:
    """Create a job every moment, so that whoever leads always has something to write."""
    for number in itertools.count():
        job = {"metadata": {"name": f"job-{number}"}, "spec": specs(Worker=replica(2, run="0.5s:0"))}
        head = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob"}
        await field.client.create(TFJOBS, namespace, head | job)
        await asyncio.sleep(PAUSE_S)


async def play(folder: Path, *, rounds: int, bug: str = "") -> Writes:
    """Stop the leader so often, each time until the other one has written; with a bug, only until that shows."""
    dice, writes = Random(1), Writes()
    async with field(folder, AUDITED) as it:
        namespace = await it.new_namespace("leaders")
        operators = {name: Operator(it, namespace, name, bug) for name in NAMES}

        def leader() -> str:
            writes.take(it.audit.news())
            return writes.leader

        async with beside(users(it, namespace), *(operator.run() for operator in operators.values())):
            for _ in range(rounds):
                await until(leader, limit_s=LIMIT_S)
                await asyncio.sleep(dice.uniform(0.5, 1.5))  # somewhere in the middle of its work
                old = leader()
                (new,) = set(NAMES) - {old}
                operators[old].signal(signal.SIGSTOP)
                writes.stops.append((datetime.now(UTC), old))
                try:
                    took_s = await writes_again(writes, leader, new)
                finally:
                    operators[old].signal(signal.SIGCONT)
                say(f"stopped the leader: the other one wrote after {took_s:.1f} s, lease {LEASE_S} s")
                await asyncio.sleep(1.0)  # what the one that goes on still does
                leader()
                if bug and writes.without_the_lease():
                    break
    return writes


async def writes_again(writes: Writes, leader: Callable[[], str], new: str) -> float:
    """Wait until an operator writes; return the seconds."""
    began, before = time.monotonic(), writes.count(new)
    await until(lambda: leader() and writes.count(new) > before, limit_s=LIMIT_S)
    return time.monotonic() - began


def test_a_leader_that_is_stopped_writes_nothing_once_it_has_lost_the_lease(tmp_path: Path) -> None:
    """B32: SIGSTOP for longer than the lease, SIGCONT when the other one has written; by what the server says of each write.

    What was between the fence and the network when the process was stopped does not count.
    """
    writes = asyncio.run(play(tmp_path, rounds=ROUNDS))
    assert writes.without_the_lease() == []
    assert all(writes.count(name) for name in NAMES)
    say(f"{len(writes.others)} writes; {writes.on_their_way()} without the lease had been let through before the stop")


def test_a_leader_without_a_fence_is_found(tmp_path: Path) -> None:
    """Between its awakening and the moment in which it notices, it goes on with what it was about to write."""
    writes = asyncio.run(play(tmp_path, rounds=10, bug=UNFENCED))
    assert writes.without_the_lease()
