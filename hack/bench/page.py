"""Suite `page`: the dashboard with a thousand jobs of ten pods each, and two hundred browsers.

The dashboard runs in both modes: started by a user, and as in a cluster, where each browser belongs to a different user.

The API server is fake (`hack.page_cluster`), and the browsers are streams. The suite measures the time from an event of the API
server until each browser has the message. `test/browser` measures how long a browser draws a row.
"""

from __future__ import annotations

import asyncio
import json
import time
from statistics import median
from typing import Any, Final

import aiohttp

from hack.bench.field import memory
from hack.bench.measuring import Bench, Result
from hack.objects import a_job, a_pod, an_event, wanting
from hack.page_cluster import ADDON, DASHBOARD, PageCluster, enter, page_of

JOBS: Final = 1_000
PODS: Final = 10
VIEWERS: Final = 200
CHANGES: Final = 20
MOST_REVIEWS: Final = 10
"""Reviews of one viewer of a namespace: the token, jobs and pods, of all namespaces and of that one; repeated after 20s."""
LIMIT_S: Final = 120.0
ENV: Final = {"env": [{"name": "A", "value": "b"}] * 20}
"""Variables that make jobs and pods as large as usual."""


def measure(bench: Bench) -> list[Result]:
    """Measure how long a change takes to reach all browsers, and the memory and requests of the dashboard's server."""
    results: list[Result] = []
    for name, arguments in (("page", DASHBOARD), ("page_in_cluster", ADDON)):
        cluster = _cluster()
        bench.say(f"{JOBS} jobs of {PODS} pods are there")
        with cluster.running(), page_of(cluster.kubeconfig, *arguments) as (process, address):
            took, asked, reviewed = asyncio.run(_look(bench, cluster, address))
            peak_mb = memory(process.pid)["peak"]
        results += [
            Result(f"{name}_event_to_all_200_viewers", median(took), "s", "<= 1"),
            Result(f"{name}_event_to_all_200_viewers_worst", max(took), "s"),
            Result(f"{name}_memory_peak", peak_mb, "MB", "<= 150"),
            Result(f"{name}_calls_while_200_look", asked, "calls", "<= 0"),
            Result(f"{name}_reviews_of_200_viewers", reviewed, "reviews", f"<= {MOST_REVIEWS * VIEWERS}"),
        ]
    return results


def _cluster() -> PageCluster:
    """Return a fake API server with the jobs, and with viewers who may see the jobs in their namespace."""
    cluster = PageCluster()
    for name in (f"job-{number}" for number in range(JOBS)):
        cluster.put("tfjobs", _job(name, "Running"))
        cluster.put("events", an_event(name, message=f"Created pod: {name}-worker-0"))
        for index in range(PODS):
            pod = a_pod(name, index=index)
            pod["spec"]["containers"][0] |= ENV
            pod["status"]["conditions"] += [
                {"type": each, "status": "True"} for each in ("PodScheduled", "Initialized")
            ]
            cluster.put("pods", pod)
    for number in range(VIEWERS):
        cluster.tokens[f"token-{number}"] = f"viewer-{number}", ()
        cluster.grant(f"viewer-{number}", "team")
    return cluster


async def _look(bench: Bench, cluster: PageCluster, address: str) -> tuple[list[float], int, int]:
    """Return the seconds until each change reached all viewers, and the numbers of calls and token or access reviews."""
    home, _, token = address.partition("/#token=")
    session = await asyncio.to_thread(enter, address)
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(None)
    async with aiohttp.ClientSession(headers=session, connector=connector, timeout=timeout) as http:
        viewers = [_Viewer() for _ in range(VIEWERS)]
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            while not token and not (await http.get(f"{home}/readyz")).ok:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.1)  # a Service sends viewers only to ready pods
            looking = [
                tasks.create_task(each.look(http, f"{home}/-/stream", f"Bearer token-{number}"))
                for number, each in enumerate(viewers)
            ]
            await asyncio.gather(*(each.until(lambda rows: len(rows) == JOBS) for each in viewers))
            bench.say(f"{VIEWERS} browsers show {JOBS} jobs")
            asked = len(cluster.paths)
            took = [await _change(cluster, viewers, number) for number in range(CHANGES)]
            asked = len(cluster.paths) - asked
            for each in looking:
                each.cancel()
    return took, asked, len(cluster.reviews)


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

    async def look(self, http: aiohttp.ClientSession, address: str, authorization: str) -> None:
        """Read until cancelled. Only a dashboard in a cluster identifies viewers."""
        kind = ""
        async with http.get(address, headers={"Authorization": authorization}, read_bufsize=2**22) as response:
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


def _job(name: str, state: str) -> dict[str, Any]:
    spec = wanting(Worker=PODS)
    spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0] |= ENV
    return a_job(name, "Created", state, spec=spec)
