"""What keeps the operator's memory small. Each test runs a process of its own, since imports count for a whole process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

# Modules that must not be imported: what each costs, in MB without docstrings, and what would need it.
HEAVY = {
    "kubernetes": "20; only a kubeconfig needs it",
    "aiohttp": "12",
    "yaml": "1; only a configuration file or a kubeconfig needs it",
    "importlib.metadata": "1; the version stands in `options`",
    "http.server": "1 with what it imports; prometheus_client has servers of its own",
    "urllib.request": "the same",
    "wsgiref.simple_server": "the same",
    "email.message": "the same",
    "email.utils": "0.4; dates in headers that API servers do not send",
    "tempfile": "0.5 with shutil, bz2 and lzma",
    "difflib": "0.1; misspelt fields",
    "tenacity": "0.5; an event that could not be written at once",
    "hashlib": "0.6; the name of a large job's ConfigMap",
}


def run(code: str, **environ: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environ},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_an_operator_in_a_pod_imports_nothing_heavy() -> None:
    """Each of these modules was once imported without need."""
    code = """
import sys
from tfjob_operator.controller.__main__ import main
from tfjob_operator.controller.__main__ import reduce_memory
reduce_memory()
import tfjob_operator.controller.composition
print(*sys.modules)
"""
    imported = set(run(code).split())
    assert "tfjob_operator.controller.tfjob.tfjob_controller" in imported
    assert not [name for name in imported if name.startswith("tfjob_operator.controller.alpha")], "it was not asked for"
    assert {name: why for name, why in HEAVY.items() if name in imported} == {}


def test_a_page_of_metrics_is_the_same_without_the_servers_of_prometheus_client() -> None:
    """And the modules that were left out can be imported as ever."""
    code = """
import os, sys
if "small" in os.environ:
    from tfjob_operator.controller.__main__ import reduce_memory
    reduce_memory()
from tfjob_operator.controller.observability.metrics import PrometheusMetrics, exposition
from prometheus_client import CollectorRegistry, disable_created_metrics
disable_created_metrics()
from tfjob_operator.workqueue.metrics import QUEUE_DURATION, Metric
registry = CollectorRegistry()
metrics = PrometheusMetrics(registry)
metrics.counter(Metric("a_total", "A"), "x").inc()
metrics.histogram(QUEUE_DURATION, "tfjob").observe(0.5)
metrics.gauge(Metric("g", "G"), "x", read=lambda: 7.0)
print(exposition(registry).decode())
import http.server, urllib.error, urllib.request, wsgiref.simple_server
assert issubclass(wsgiref.simple_server.WSGIServer, http.server.HTTPServer)
assert issubclass(urllib.error.HTTPError, OSError) and urllib.request.Request("http://a").host == "a"
"""
    page = run(code, small="1")
    assert 'workqueue_queue_duration_seconds_count{name="tfjob"} 1.0' in page
    assert page == run(code)


@pytest.mark.parametrize(
    "needs",
    ["from urllib.request import build_opener; build_opener().open", "import http.server; http.server.HTTPServer"],
)
def test_a_prometheus_client_that_needs_its_servers_is_imported_as_usual(needs: str, tmp_path: Path) -> None:
    """Another version may use the servers during its import: that costs memory then, and breaks nothing."""
    package = tmp_path / "prometheus_client"
    package.mkdir()
    (package / "__init__.py").write_text("from . import exposition\nwhole = True\n")
    (package / "exposition.py").write_text(f"from wsgiref.simple_server import WSGIServer\n{needs}\n")
    code = """
from tfjob_operator.controller.__main__ import import_prometheus_client
import_prometheus_client()
import http.server, prometheus_client
assert prometheus_client.whole and issubclass(prometheus_client.exposition.WSGIServer, http.server.HTTPServer)
"""
    run(code, PYTHONPATH=f"{tmp_path}:{ROOT}")


def test_a_connection_with_tls_takes_no_more_than_it_is_given() -> None:
    """The number is set as an attribute of a class of asyncio, which another version of Python might ignore."""
    code = """
import asyncio, asyncio.sslproto, ssl, tracemalloc
from tfjob_operator.controller.__main__ import TLS_READ_BYTES, reduce_memory
reduce_memory()
context = ssl.create_default_context()
context.check_hostname = False
async def measure():
    tracemalloc.start()
    asyncio.sslproto.SSLProtocol(asyncio.get_running_loop(), asyncio.Protocol(), context, None)
    assert TLS_READ_BYTES <= tracemalloc.get_traced_memory()[1] < 2 * TLS_READ_BYTES
asyncio.run(measure())
"""
    run(code)


def test_the_operator_starts_as_the_image_starts_it() -> None:
    assert "Runs TFJobs" in run(
        "import sys; sys.argv = ['x', '--help']; import tfjob_operator.controller.__main__ as m; m.main()",
        PYTHONOPTIMIZE="2",
    )
