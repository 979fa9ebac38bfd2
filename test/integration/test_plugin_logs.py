"""`kubectl tfjob logs` through a real API server, which proxies to a kubelet that interrupts its responses."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from hack.control_plane import ControlPlane
from hack.http_server import Handler
from integration.cluster import Cluster, replica, specs
from integration.https import kubelet_is_at, serving
from integration.plugin import Plugin
from support.waiting import eventually

SECOND = b"2026-01-01T00:00:0"
LONG = b"x" * 10_000_000
STAMPS = (SECOND + b"0.1Z ", SECOND + b"0.1Z ", SECOND + b"1.000000002Z ", SECOND + b"2Z ", SECOND + b"2Z ")
TEXTS = (b"one", b"two", LONG, b"\xff\x1b[2J", b"end")
LINES = tuple(stamp + text for stamp, text in zip(STAMPS, TEXTS, strict=True))


class Kubelet:
    """The requests that it got, and after how many bytes its next streams break off."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.cuts: list[int] = []


@pytest.fixture
def kubelet_of_logs(tmp_path: Path) -> Iterator[tuple[Kubelet, int]]:
    """A kubelet that serves only logs, and its port."""
    told = Kubelet()

    class Logs(Handler):
        def do_GET(self) -> None:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            told.asked.append(query)
            since = query.get("sinceTime", "").encode()[:19]  # a kubelet leaves out what is older
            log = b"".join(line + b"\n" for line in LINES if line[:19] >= since)
            cut = told.cuts.pop(0) if told.cuts else None
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            sent = log[:cut]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(sent), sent) if sent else b"")
            if cut is None:
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True

    with serving(tmp_path, Logs) as server:
        yield told, server.port


def test_a_log_that_breaks_off_twice_is_printed_once(
    control_plane: ControlPlane, cluster: Cluster, plugin: Plugin, kubelet_of_logs: tuple[Kubelet, int]
) -> None:
    """In a line of ten megabytes, and between two lines with the same timestamp; bytes that are not UTF-8 stay unchanged."""
    kubelet, port = kubelet_of_logs
    kubelet.cuts = [5_000_000, len(b"\n".join(LINES[:1])) + 1]
    with cluster.operator(), cluster.node():
        kubelet_is_at(control_plane, f"node-{cluster.namespace}", port)
        cluster.create("mnist", specs(Worker=replica(run="15s:0")))
        eventually(lambda: cluster.state("mnist") == "Running", "it runs")
        output = plugin.raw("logs", "mnist", "--follow")
        assert output.splitlines() == [b"worker-0 | " + text for text in TEXTS]
        assert len(kubelet.asked) >= 3
        assert [query.get("sinceTime") for query in kubelet.asked[:2]] == [None, "2026-01-01T00:00:00Z"]
        assert plugin.raw("logs", "mnist", "--no-prefix", "--tail=2").splitlines() == list(LINES)
        assert kubelet.asked[-1]["tailLines"] == "2"
        assert "follow" not in kubelet.asked[-1]
