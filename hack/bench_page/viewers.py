"""Subject `viewers`: a thousand jobs of ten pods each, and two hundred browsers that look at them.

The API server is a stand-in (`hack.page_cluster`), and the browsers are streams: what is measured is the page's own server,
from an event that the API server sends to the message about it in each browser. What a browser then needs to draw a row is
measured by the tests of the page (`test/browser`).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from hack.bench.child import ROOT, MeasureError
from hack.bench.result import Result, at_most
from hack.page_cluster import PageCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hack.bench.bench import Bench

JOBS: Final = 1_000
PODS: Final = 10
VIEWERS: Final = 200
CHANGES: Final = 20
LIMIT_S: Final = 120.0
_NAMES: Final = "training.kubeflow.org/"


def measure(bench: Bench) -> list[Result]:
    """Measure how long a change takes to reach all browsers, the memory of the page's server, and its requests meanwhile."""
    cluster = PageCluster()
    for number in range(JOBS):
        _fill(cluster, f"job-{number}")
    bench.say(f"{JOBS} jobs of {PODS} pods are there")
    with cluster.running(), _dashboard(cluster, bench.scratch) as (process, address):
        took, asked = asyncio.run(_look(bench, cluster, address))
        peak_mb = _peak_mb(process.pid)
    return [
        Result("page_event_to_all_200_viewers", median(took), "s", at_most(1.0)),
        Result("page_event_to_all_200_viewers_worst", max(took), "s"),
        Result("page_memory_peak", peak_mb, "MB", at_most(150.0)),
        Result("page_calls_while_200_look", asked, "calls", at_most(0)),
    ]


async def _look(bench: Bench, cluster: PageCluster, address: str) -> tuple[list[float], int]:
    home = address.partition("/?")[0]
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(None)
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, connector=connector, timeout=timeout) as http:
        async with http.get(address) as entered:
            if entered.status != 200:
                raise MeasureError(f"the page let nobody in: {entered.status}")
        viewers = [_Viewer() for _ in range(VIEWERS)]
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            looking = [tasks.create_task(each.look(http, f"{home}/-/stream")) for each in viewers]
            await asyncio.gather(*(each.until(lambda rows: len(rows) == JOBS) for each in viewers))
            bench.say(f"{VIEWERS} browsers show {JOBS} jobs")
            asked = cluster.asked
            took = [await _change(cluster, viewers, number) for number in range(CHANGES)]
            asked = cluster.asked - asked
            for each in looking:
                each.cancel()
    return took, asked


async def _change(cluster: PageCluster, viewers: list[_Viewer], number: int) -> float:
    key, state = f"team/job-{number}", "Succeeded"
    began = time.perf_counter()
    await asyncio.to_thread(cluster.put, "tfjobs", _job(f"job-{number}", state))
    await asyncio.gather(*(each.until(lambda rows: rows[key] == state) for each in viewers))
    return time.perf_counter() - began


class _Viewer:
    """A browser's stream: the states of all jobs by key."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._news = asyncio.Event()

    async def look(self, http: aiohttp.ClientSession, address: str) -> None:
        """Read until it is cancelled."""
        kind = ""
        async with http.get(address, read_bufsize=2**22) as response:
            async for line in response.content:
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"data: ") and kind == "rows":
                    self._states |= {row["key"]: row["state"] for row in json.loads(line[6:])["rows"]}
                    self._news.set()

    async def until(self, holds: Any) -> None:
        """Return when `holds` returns true for the states."""
        while not holds(self._states):
            self._news.clear()
            await self._news.wait()


@contextmanager
def _dashboard(cluster: PageCluster, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `kubectl tfjob dashboard`; yield its process and the address that it prints."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": cluster.url}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    command = [sys.executable, "-m", "tfjob_operator.cli", "dashboard", "--no-browser", "--port=0"]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = process.stdout or ()
            address = next((line.split()[-1] for line in lines if "token=" in line), "")
            if not address:
                raise MeasureError("the page did not start")
            yield process, address
        finally:
            process.kill()


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def _fill(cluster: PageCluster, name: str) -> None:
    cluster.put("tfjobs", _job(name, "Running"))
    for index in range(PODS):
        cluster.put("pods", _pod(name, index))
    cluster.put("events", _event(name))


def _job(name: str, state: str) -> dict[str, Any]:
    container = {
        "name": "tensorflow",
        "image": "registry.example.com/train:1",
        "env": [{"name": "A", "value": "b"}] * 20,
    }
    worker = {"replicas": PODS, "restartPolicy": "ExitCode", "template": {"spec": {"containers": [container]}}}
    times = {"lastTransitionTime": "2026-03-01T10:00:00Z", "lastUpdateTime": "2026-03-01T10:00:00Z"}
    conditions = [
        {"type": each, "status": "True", "reason": f"TFJob{each}", "message": f"TFJob {name} is {each}.", **times}
        for each in ("Created", state)
    ]
    return {
        "apiVersion": "kubeflow.org/v1",
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": "2026-03-01T10:00:00Z"},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
        "status": {"conditions": conditions, "startTime": "2026-03-01T10:00:00Z"},
    }


def _pod(job: str, index: int) -> dict[str, Any]:
    labels = {
        "operator-name": "tfjob-controller",
        "job-name": job,
        "replica-type": "worker",
        "replica-index": str(index),
    }
    state = {"running": {"startedAt": "2026-03-01T10:00:10Z"}}
    return {
        "apiVersion": "v1",
        "metadata": {
            "name": f"{job}-worker-{index}",
            "namespace": "team",
            "creationTimestamp": "2026-03-01T10:00:00Z",
            "labels": {_NAMES + key: value for key, value in labels.items()},
            "ownerReferences": [{"kind": "TFJob", "name": job, "uid": f"uid-{job}", "controller": True}],
        },
        "spec": {
            "nodeName": f"node-{index}",
            "containers": [{"name": "tensorflow", "image": "train:1", "env": [{"name": "A", "value": "b"}] * 20}],
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-03-01T10:00:05Z",
            "conditions": [
                {"type": each, "status": "True", "lastTransitionTime": "2026-03-01T10:00:10Z"}
                for each in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [{"name": "tensorflow", "image": "train:1", "ready": True, "state": state}],
        },
    }


def _event(job: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "metadata": {"name": f"{job}.1", "namespace": "team"},
        "involvedObject": {"kind": "TFJob", "name": job, "uid": f"uid-{job}"},
        "reason": "SuccessfulCreatePod",
        "message": f"Created pod: {job}-worker-0",
        "type": "Normal",
        "count": 1,
        "lastTimestamp": "2026-03-01T10:00:01Z",
    }
