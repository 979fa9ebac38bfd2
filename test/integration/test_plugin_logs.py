"""`kubectl tfjob logs` through a real API server, which proxies to a kubelet that interrupts its responses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.control_plane import ControlPlane
from integration.cluster import Cluster, replica, specs
from integration.https import kubelet_is_at, serving
from integration.plugin import Plugin
from support.waiting import eventually
from unit.cli.kubelet import Cluster as LogServer
from unit.cli.kubelet import Handler

SECOND = "2026-01-01T00:00:0"
LONG = b"x" * 10_000_000
STAMPS = tuple(SECOND + each for each in ("0.1Z", "0.1Z", "1.000000002Z", "2Z", "2Z"))
TEXTS = (b"one", b"two", LONG, b"\xff\x1b[2J", b"end")


@pytest.fixture
def kubelet_of_logs(tmp_path: Path) -> Iterator[tuple[LogServer, int]]:
    """A kubelet that serves only logs, and its port."""
    told = LogServer()
    told.pod("mnist-worker-0")
    for stamp, text in zip(STAMPS, TEXTS, strict=True):
        told.write("mnist-worker-0", text.decode("utf-8", "surrogateescape"), at=stamp)
    told.exit("mnist-worker-0", 0)
    with serving(tmp_path, type("Bound", (Handler,), {"backend": told})) as server:
        yield told, server.port


def test_a_log_that_breaks_off_twice_is_printed_once(
    control_plane: ControlPlane, cluster: Cluster, plugin: Plugin, kubelet_of_logs: tuple[LogServer, int]
) -> None:
    """In a line of ten megabytes, and between two lines with the same timestamp; bytes that are not UTF-8 stay unchanged."""
    logs, port = kubelet_of_logs
    logs.cuts = [5_000_000, len(f"{STAMPS[0]} one\n")]
    with cluster.operator(), cluster.node():
        kubelet_is_at(control_plane, f"node-{cluster.namespace}", port)
        cluster.create("mnist", specs(Worker=replica(run="15s:0")))
        eventually(lambda: cluster.state("mnist") == "Running", "it runs")
        output = plugin.raw("logs", "mnist", "--follow")
        assert output.splitlines() == [b"worker-0 | " + text for text in TEXTS]
        assert len(logs.queries) >= 3
        assert [query.get("sinceTime") for query in logs.queries[:2]] == [None, "2026-01-01T00:00:00Z"]
        assert plugin.raw("logs", "mnist", "--no-prefix", "--tail=2").splitlines() == [*TEXTS[-2:]]
        assert logs.queries[-1]["tailLines"] == "2"
        assert "follow" not in logs.queries[-1]
