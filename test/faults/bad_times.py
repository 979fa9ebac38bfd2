"""How long the first pod of a job takes while clients loop over `/metrics`, or while standard error cannot be written.

    PYTHONPATH=.:test .venv/bin/python -m faults.bad_times [FAULT...]

The clients have one core, the API server and the operator the other. Prints, for each fault, three pairs of rounds without and
with it: median and 99th percentile of 50 jobs, from the create to the pod that an informer sees, and the slowest `/healthz`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from faults import ailing
from faults.crash import beside
from faults.field import Field, field
from faults.matrix import say
from faults.operator_process import OperatorProcess
from faults.scheme import Case, Play
from faults.workloads import workers
from hack.fault_proxy.proxy import Proxy
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.informers.store import NAMESPACE_INDEX

JOBS: Final = 50
EVERY_S: Final = 0.2
SCRAPERS: Final = 400
PAIRS: Final = 3
PATIENCE_S: Final = 120.0
SERVERS, CLIENTS = {0}, {1}


def pin(process: int, cores: set[int]) -> None:
    """Let a process, with all its threads, run on these cores only."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


async def play(it: Field, fault: str) -> str:
    """Create the jobs, and return the figures in a line."""
    namespace = await it.new_namespace("times")
    async with Proxy(it.kubeconfig, serving=it.serving) as proxy, AsyncExitStack() as stack:
        operator = OperatorProcess(it, namespace, it.plane.kubeconfig, history=proxy.history, flags=())
        play = Play(Case("plain", None, fault), proxy, operator, namespace)
        asking = await stack.enter_async_context(ailing.surroundings(play, SCRAPERS))
        await stack.enter_async_context(beside(operator))
        async with asyncio.timeout(PATIENCE_S):
            await asking.answered.wait()
        pin(operator.pid, SERVERS)
        asking.slowest_s = 0.0
        created: dict[str, float] = {}
        seen: dict[str, float] = {}
        async with asyncio.timeout(PATIENCE_S):
            for number in range(JOBS):
                name = f"job-{number}"
                body = {
                    "apiVersion": "kubeflow.org/v1",
                    "kind": "TFJob",
                    "metadata": {"name": name},
                    "spec": workers(1),
                }
                created[name] = time.monotonic()
                await it.client.create(TFJOBS, namespace, body)
                await _wait(it, namespace, seen, until=created[name] + EVERY_S)
            while len(seen) < JOBS:
                await _wait(it, namespace, seen, until=time.monotonic() + EVERY_S)
        took = sorted(seen[name] - created[name] for name in created)
        await asking.judge(dropping=fault in ailing.DROPPING)
    wrong = f"; {operator.complaints[0]}" if operator.complaints else ""
    return f"p50 {took[JOBS // 2]:.3f} s, p99 {took[-1]:.3f} s, /healthz at most {asking.slowest_s:.3f} s{wrong}"


async def _wait(it: Field, namespace: str, seen: dict[str, float], *, until: float) -> None:
    """Note when pods are seen."""
    while time.monotonic() < until:
        for pod in it.pods.indexer.by_index(NAMESPACE_INDEX, namespace):
            seen.setdefault(pod.metadata.name.removesuffix("-worker-0"), time.monotonic())
        await asyncio.sleep(0.005)


async def main() -> None:
    """Play the pairs."""
    pin(os.getpid(), SERVERS)  # what is started inherits it
    with tempfile.TemporaryDirectory() as folder:
        async with field(Path(folder)) as it:
            pin(os.getpid(), CLIENTS)
            for fault in sys.argv[1:] or (ailing.SCRAPED, *ailing.STDERRS):
                for _ in range(PAIRS):
                    say(f"without: {await play(it, '')}")
                    say(f"{fault}: {await play(it, fault)}")


if __name__ == "__main__":
    asyncio.run(main())
