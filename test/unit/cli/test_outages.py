"""`wait` and `watch` behind a proxy that misbehaves in every way: an exit code never says what did not happen.

`--seeds 200` plays more of them, and `--seed 7` the failing one again.
"""

import json
import socket
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest
from pytest_mock import MockerFixture

from tfjob_operator.cli import watches, watching
from tfjob_operator.cli.commands import watch_
from tfjob_operator.cli.errors import CliError
from unit.cli.conftest import job
from unit.cli.kubelet import Cluster, Handler

SEEDS: Final = 4
CODES: Final = {"Succeeded": 0, "Failed": 1, "deleted": 3, "replaced": 3}
UNKNOWN: Final = 4
HTML: Final = b"<html><b>Welcome to the proxy</b></html>"
OTHERS: Final = [job("other", "Failed", uid="u9"), job("other", "Succeeded", uid="u9")]


class Weather:
    """The faults of one seed, and when the job ends how. A fault affects one request; faults run out."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = cluster
        self.end = self.random.choice([*CODES])
        self.faults = self.random.randrange(1, 16)
        """How many are left."""
        self.requests = 0
        self.ends_at = self.random.randrange(2, 20)
        self.may_be_unknown = False
        self.log: list[str] = []

    @property
    def lie(self) -> dict[str, Any]:
        """The job with an end that is not its own, as only a response that is not the server's may have it."""
        return job("mnist", "Failed" if self.end == "Succeeded" else "Succeeded")

    def next_fault(self) -> "Fault | None":
        with self.cluster.condition:
            self.requests += 1
            if self.requests == self.ends_at:
                self._change()
            elif self.random.random() < 0.2:
                self.cluster.job_version += 1
                self.cluster.condition.notify_all()
            is_first = self.requests == 1
            if not self.faults or self.random.random() < (0.9 if is_first else 0.3):
                return None
            self.faults -= 1
            fault = self.random.choice(FAULTS)
            self.may_be_unknown |= is_first or fault is denies
            self.log.append(fault.__name__)
            return fault

    def _change(self) -> None:
        if self.end == "replaced":
            self.cluster.job = job("mnist", "Failed", uid="u2")
            self.cluster.job_version += 1
            self.cluster.condition.notify_all()
        elif self.end == "deleted":
            self.cluster.delete_job()
        else:
            self.cluster.end_job(self.end)


class Faulty(Handler):
    """Answers as the server does, or with a fault."""

    weather: Weather

    def do_GET(self) -> None:
        fault = self.weather.next_fault()
        if fault is None:
            super().do_GET()
        else:
            fault(self)

    def go_on(self) -> None:
        """Answer as the server does."""
        super().do_GET()

    def hang_up(self) -> None:
        self.close_connection = True
        with_reset = self.weather.random.random() < 0.5
        if with_reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.connection.shutdown(socket.SHUT_RDWR)


Fault = Callable[[Faulty], None]


class Wire:
    """Sends what is written a byte at a time, and at most `most` bytes."""

    def __init__(self, handler: Faulty, most: int) -> None:
        self._handler, self._left, self._wire = handler, most, handler.wfile

    def write(self, data: bytes) -> None:
        for byte in data:
            if not self._left:
                self._handler.hang_up()
                raise ConnectionAbortedError
            self._left -= 1
            self._wire.write(bytes([byte]))

    def flush(self) -> None:
        self._wire.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)


def cuts(handler: Faulty) -> None:
    handler.wfile = Wire(handler, handler.weather.random.randrange(1, 900))  # type: ignore[assignment]
    handler.go_on()


def drips(handler: Faulty) -> None:
    handler.wfile = Wire(handler, 1_000_000)  # type: ignore[assignment]
    handler.go_on()
    handler.hang_up()


def closes(handler: Faulty) -> None:
    handler.hang_up()


def stalls(handler: Faulty) -> None:
    """Until the client gives up."""
    handler.rfile.read(1)
    handler.close_connection = True


def stalls_after_the_head(handler: Faulty) -> None:
    handler.begin()
    stalls(handler)


def rejects(code: int, body: Any, **headers: str) -> Fault:
    def fault(handler: Faulty) -> None:
        sent = handler.weather.lie if body is None else body
        data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
        handler.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    fault.__name__ = f"{code} {str(body)[:30]}"
    return fault


def streams(*lines: Any) -> Fault:
    """Answers as a watch, whatever was asked."""

    def fault(handler: Faulty) -> None:
        handler.begin()
        for line in lines:
            handler.chunk((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        handler.chunk(b"")

    fault.__name__ = f"streams {str(lines)[:30]}"
    return fault


def event(kind: str, body: Any) -> dict[str, Any]:
    return {"type": kind, "object": body}


GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
denies = rejects(403, {"message": "no", "reason": "Forbidden"})
FAULTS: Final[list[Fault]] = [
    cuts, cuts, drips, closes, stalls, stalls_after_the_head, denies,
    rejects(429, {"message": "wait", "reason": "TooManyRequests"}, Retry_After="0"), rejects(429, b""),
    rejects(503, HTML), rejects(503, HTML, Retry_After="0"), rejects(500, {}), rejects(410, GONE),
    rejects(302, None, Location="/login"), rejects(404, HTML), rejects(204, b""), rejects(301, None),
    rejects(200, HTML), rejects(200, b'{"kind": "TFJob", "metadata": {"na'), rejects(200, b""), rejects(200, b"[" * 9999),
    rejects(200, {}), rejects(200, []), rejects(200, GONE), *(rejects(200, each) for each in OTHERS),
    rejects(200, {"kind": "TFJobList", "items": OTHERS, "metadata": {}}),
    rejects(200, job("mnist", "Failed") | {"metadata": {"name": "mnist", "namespace": "team"}}),
    rejects(200, job("mnist", "Failed") | {"apiVersion": "tensorflow.org/v1alpha1"}),
    streams(event("ERROR", GONE)), streams(event("ERROR", {})), streams(event("BOOKMARK", {})),
    streams(event("BOOKMARK", {"metadata": {}})), streams({}), streams([]), streams(event("DELETED", {})),
    streams(event("DELETED", {"metadata": {}})), streams(*(event("MODIFIED", each) for each in OTHERS)),
    streams(event("DELETED", OTHERS[0])), streams(event("MODIFIED", None)), streams(event("odd", OTHERS[0])),
    streams(b"<html>"), streams(b'{"type": "DELETED", "obj'), streams(b"", b""),
]  # fmt: skip


@pytest.fixture(autouse=True)
def short_pauses(mocker: MockerFixture) -> None:
    """What is repeated is repeated at once, and a silent watch is given up soon."""
    mocker.patch("tfjob_operator.cli.session.LOST_RETRY_S", 0.0)
    for name in ("RETRY_S", "FIRST_RETRY_DELAY_S", "MAX_RETRY_DELAY_S"):
        mocker.patch.object(watches, name, 0.001)
    mocker.patch.object(watches, "MAX_WATCH_S", 0.05)
    mocker.patch.object(watching, "_LOG_RETRY_S", 0.02)
    mocker.patch.object(watch_, "_MIN_REDRAW_S", 0.001)


@pytest.mark.parametrize("verb", ["wait", "watch"])
def test_an_exit_code_says_how_the_job_ended_or_that_this_is_unknown(request: pytest.FixtureRequest, verb: str) -> None:
    first, count = request.config.getoption("--seed"), request.config.getoption("--seeds")
    for seed in range(first or 0, (first or 0) + (count or (SEEDS if first is None else 1))):
        cluster = Cluster()
        cluster.pod("mnist-worker-0")
        Faulty.weather = weather = Weather(cluster, seed)
        with cluster.serving(Faulty):
            result = cluster.run(verb, "mnist", "--request-timeout=1s")
        told = f"seed {seed}: {result.exit_code}, {weather.end} {weather.log}\n{result.output}"
        assert "Traceback" not in result.output, told
        assert result.exit_code == CODES[weather.end] or (weather.may_be_unknown and result.exit_code == UNKNOWN), told


def test_a_read_that_fails_is_repeated_less_and_less_often(mocker: MockerFixture) -> None:
    mocker.patch.object(watches, "FIRST_RETRY_DELAY_S", 1.0)
    mocker.patch.object(watches, "MAX_RETRY_DELAY_S", 30.0)
    errors = iter([CliError("no response")] * 7)
    pauses: list[float] = []
    warnings: list[str] = []

    def read() -> str:
        for error in errors:
            raise error
        return "mnist"

    assert watches.retried(read, "the job", pause=pauses.append, warn=warnings.append) == "mnist"
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    assert warnings == ["cannot read the job, retrying: no response"]
