"""Two real processes, one lease on a real API server: hand-overs, and never two writers.

What the processes do is in leader_process.py.
"""

from __future__ import annotations

import itertools
import logging
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from integration.cluster import Namespace

SCRIPT = Path(__file__).parent / "leader_process.py"
LEASE_S = 3.0
QUICK = (3.0, 2.0, 0.5)
"""Lease duration, renew deadline and retry period: as quick as whole seconds allow."""
PATIENT = (15.0, 10.0, 0.5)
"""As `QUICK`, but long enough that the lease never expires before it is released, however busy the machine is."""
RETRY_S = 0.5 * 2.2
"""The longest pause of a candidate between two reads of the lease."""
SLACK_S = 4.0
"""What a busy machine may add to a hand-over."""
LIMIT_S = 40.0

log = logging.getLogger(__name__)


class Lines:
    """Reads the lines of a process in a thread, with the time at which each came."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[tuple[float, str]] = []
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, name=f"lines-of-{process.pid}")
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append((time.monotonic(), line.strip()))
                self._news.notify_all()

    def wait_for(self, word: str, *, since: float = 0.0) -> float:
        """Wait for the first `word` that came after `since`; return the time at which it came."""
        deadline = time.monotonic() + LIMIT_S
        with self._news:
            while True:
                for when, line in self.lines:
                    if line == word and when > since:
                        return when
                assert self._news.wait(deadline - time.monotonic()), f"no {word!r} within {LIMIT_S:.0f} s: {self.lines}"

    def end(self) -> None:
        """End the process and the thread."""
        if self.process.poll() is None:
            self.process.kill()  # also ends one that is stopped
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Election(Namespace):
    """A ConfigMap, the names that are written into it, and the processes that write them."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace)
        self._readers: list[Lines] = []
        self.kubectl("create", "configmap", "counter", "--from-literal=writer=nobody")
        watch = ("get", "configmap", "counter", "--watch", "--output=jsonpath={.data.writer}{'\\n'}")
        self.writes = self._start(str(plane.kubectl), f"--kubeconfig={plane.kubeconfig}", f"-n{namespace}", *watch)
        self.writes.wait_for("nobody")

    def start(self, identity: str, times: tuple[float, ...] = QUICK) -> Lines:
        """Start a process that takes part in the election."""
        target = (str(self.plane.kubeconfig), self.namespace, identity)
        return self._start(sys.executable, str(SCRIPT), *target, *map(str, times))

    def _start(self, *command: str) -> Lines:
        lines = Lines(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        self._readers.append(lines)
        return lines

    def two(self, times: tuple[float, ...] = QUICK) -> tuple[Lines, Lines]:
        """A leader "a" and a candidate "b" that has seen a's lease."""
        a = self.start("a", times)
        a.wait_for("wrote")
        b = self.start("b", times)
        time.sleep(2 * RETRY_S)
        assert not b.lines
        return a, b

    def reigns(self) -> list[tuple[str, int]]:
        """Who wrote, in the order of the server, and how often in a row."""
        names = [name for _, name in self.writes.lines]
        return [(name, len(list(group))) for name, group in itertools.groupby(names)]

    def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.api("GET", "leases", "counter")["spec"]
        return spec

    def end(self) -> None:
        for reader in self._readers:
            reader.end()


@pytest.fixture
def election(control_plane: ControlPlane, namespace: str) -> Iterator[Election]:
    election = Election(control_plane, namespace)
    yield election
    election.end()


def test_the_lease_is_one_that_every_other_client_can_read(election: Election) -> None:
    """LE-01, leaselock_test.go:TestLeaseConversion: as it is stored on the server, and as kubectl shows it."""
    a = election.start("a")
    a.wait_for("wrote")
    lease = election.lease()
    micro = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
    assert micro.fullmatch(lease.pop("acquireTime"))
    assert micro.fullmatch(lease.pop("renewTime"))
    assert lease.pop("leaseTransitions", 0) == 0
    assert lease == {"holderIdentity": "a", "leaseDurationSeconds": 3}
    assert re.search(r"Holder Identity: +a\n", election.kubectl("describe", "lease", "counter"))


def test_a_leader_that_is_stopped_is_succeeded_at_once(election: Election) -> None:
    """LE-11, leaderelection_test.go:TestReleaseOnCancellation_Leases: without waiting for the lease to run out."""
    a, b = election.two(PATIENT)
    told = time.monotonic()
    a.process.send_signal(signal.SIGTERM)
    took = b.wait_for("leading") - told
    log.info("hand-over took %.2f s", took)
    assert took < PATIENT[0] / 2
    assert a.process.wait(LIMIT_S) == 0
    assert a.lines[-1][1] == "stopped"
    b.wait_for("wrote")
    assert election.lease()["leaseTransitions"] == 1
    election.writes.wait_for("b")
    assert [name for name, _ in election.reigns()] == ["nobody", "a", "b"]


def test_a_leader_that_is_killed_is_succeeded_when_its_lease_has_run_out(election: Election) -> None:
    """LE-04, LE-05: not earlier, since nobody can know that it is dead, and not much later."""
    a, b = election.two()
    killed = time.monotonic()
    a.process.kill()
    took = b.wait_for("leading") - killed
    log.info("hand-over took %.2f s", took)
    assert LEASE_S - 0.5 - RETRY_S < took < LEASE_S + RETRY_S + SLACK_S
    election.writes.wait_for("b")
    assert [name for name, _ in election.reigns()] == ["nobody", "a", "b"]


def test_a_leader_that_is_frozen_writes_nothing_when_it_wakes(election: Election) -> None:
    """LE-04, LE-10, B1: it still believes that it leads and its next write is due, but its successor has led for seconds."""
    a, b = election.two()
    a.wait_for("wrote", since=time.monotonic())  # so that it sleeps now, and is between two writes
    a.process.send_signal(signal.SIGSTOP)
    frozen = time.monotonic()
    took = b.wait_for("leading") - frozen
    log.info("hand-over took %.2f s", took)
    assert took < LEASE_S + RETRY_S + SLACK_S
    election.writes.wait_for("b")
    before = len(a.lines)
    a.process.send_signal(signal.SIGCONT)
    assert a.process.wait(LIMIT_S) == 3, "it has lost the lease, and knows it"
    assert [line for _, line in a.lines[before:]] == ["stopped"]
    election.writes.wait_for("b", since=time.monotonic())
    assert [name for name, _ in election.reigns()] == ["nobody", "a", "b"]


def test_a_leader_that_was_frozen_unnoticed_goes_on(election: Election) -> None:
    """LE-07: it was frozen for longer than its lease, but there was no candidate; it writes only under a renewed lease."""
    a = election.start("a")
    a.wait_for("wrote")
    a.process.send_signal(signal.SIGSTOP)
    time.sleep(LEASE_S + 1.0)
    a.process.send_signal(signal.SIGCONT)
    a.wait_for("wrote", since=time.monotonic())
    assert "stopped" not in [line for _, line in a.lines]
    assert election.lease().get("leaseTransitions", 0) == 0


def test_two_that_freeze_in_turn_never_write_together(election: Election) -> None:
    """LE-10: the one that wakes finds the other leading, exits, and is restarted; each leader's writes are one unbroken row."""
    leader, candidate = election.two()
    for successor in ("c", "d"):
        leader.wait_for("wrote", since=time.monotonic())
        leader.process.send_signal(signal.SIGSTOP)
        candidate.wait_for("wrote")
        leader.process.send_signal(signal.SIGCONT)
        assert leader.process.wait(LIMIT_S) == 3
        leader, candidate = candidate, election.start(successor)
        time.sleep(2 * RETRY_S)
    election.writes.wait_for("c", since=time.monotonic())
    assert [name for name, _ in election.reigns()] == ["nobody", "a", "b", "c"]
