"""A degraded cluster: parts of etcd and API servers fail one after the other, while new jobs keep coming.

`make degraded` creates jobs for ten minutes without faults, then for ten minutes with them. The operator's memory after both
is compared, since its caches grow with the first thousands of jobs (docs/design/scale.md). In both periods many jobs start at
once. All processes are real; the pods run on a hollow node.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from faults.processes import say
from hack.control_plane.run.parts import Shape
from integration.operator_process import OperatorProcess
from soak.cluster_troubles import ClusterTroubles
from soak.identity import Identity
from soak.ledger import Ledger, conclude, ledger
from soak.stream import Stream
from soak.weight import at_rest, cluster, judge, operating
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.v1.constants import TFJOBS

CLUSTER: Final = Shape(etcd_members=3, apiservers=2, etcd_quota_bytes=256 << 20)
NAMESPACES: Final = ("red", "green", "blue")
STUCK_S: Final = 150.0
"""When nothing has changed for so long after the last trouble, what is left is stuck. Retries wait for a minute at most."""
PAUSE_S: Final = 80.0
"""A little longer than a trouble lets jobs wait. What hundreds of jobs leave that begin at once would be compared otherwise."""
TICK_S: Final = 1.0


def test_no_job_is_lost_or_stuck_and_no_child_created_twice_in_a_degraded_cluster(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Every job that an API server took has succeeded; the operator ran through, and weighs what it did.

    With a planted bug, the violations that it leads to are required.
    """
    planted = pytestconfig.getoption("planted")
    seconds = pytestconfig.getoption("minutes") * 60.0
    found = asyncio.run(play(seconds, tmp_path, planted, pytestconfig.getoption("trouble")))
    conclude(found, planted)


async def play(seconds: float, folder: Path, planted: str, only: list[str]) -> list[str]:
    """Let jobs and troubles come for so long; return what is wrong then."""
    seed = int(time.time())
    say(f"\nseed {seed}, {seconds / 60:g} minutes{f', with {planted}' if planted else ''}")
    async with contextlib.AsyncExitStack() as stack:
        apart = ["--disable-admission-plugins=ServiceAccount"]
        plane = await stack.enter_async_context(
            cluster(folder, NAMESPACES, "degraded", shape=CLUSTER, extra_apiserver_args=apart)
        )
        identity = await asyncio.to_thread(Identity, plane, folder)
        operator = await stack.enter_async_context(operating(identity.kubeconfig, folder, planted))
        settings = load_settings(str(plane.kubeconfig))
        clients = [
            RestClient(await stack.enter_async_context(HttpTransport(settings, max_connections=0))) for _ in range(2)
        ]
        kept = await stack.enter_async_context(ledger(clients[0]))
        stream = Stream(clients[1], kept, NAMESPACES, Random(seed))
        troubles = ClusterTroubles(plane, identity, operator)

        async with asyncio.TaskGroup() as calm:
            calm.create_task(stream.run(_over_in(seconds)))
            calm.create_task(_pause(operator, seconds))
        await rest(kept)
        before = await at_rest(operator)
        made, stream.refused = kept.accepted, type(stream.refused)()
        began = time.monotonic()
        over = _over_in(seconds)
        async with asyncio.TaskGroup() as day:
            faults = day.create_task(troubles.run(over, only))
            day.create_task(stream.run(lambda: over() and faults.done()))
        took_s, jobs = time.monotonic() - began, kept.accepted - made
        wrong = await rest(kept)
        after = await at_rest(operator) if not wrong else before
        wrong += kept.violations() + judge(operator, before, after)
        report(kept, troubles, stream, f"{jobs} jobs in {took_s:.0f} s, {jobs / took_s:.1f} a second")
        say(f"memory before {before.memory_mb:.1f} MB, after {after.memory_mb:.1f} MB\n{before}\n{after}")
        say(f"violations: {len(wrong)}")
        return wrong


async def _pause(operator: OperatorProcess, seconds: float) -> None:
    """Stop the operator in the middle of so many seconds, so that hundreds of jobs begin at once when it goes on."""
    await asyncio.sleep(seconds / 2)
    operator.process.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(min(PAUSE_S, seconds / 4))
    finally:
        operator.process.send_signal(signal.SIGCONT)


async def rest(kept: Ledger) -> list[str]:
    """Wait until all jobs have ended and are gone with their children; return what is left when that does not go on."""
    left, since = -1, time.monotonic()
    while True:
        now = len(kept.unfinished), kept.left(TFJOBS), kept.left(PODS), kept.left(SERVICES) - 1  # `kubernetes` stays
        if not any(now):
            return []
        if sum(now) != left:
            left, since = sum(now), time.monotonic()
        if time.monotonic() - since > STUCK_S:
            names = ("unfinished", "jobs", "pods", "services")
            return [f"at rest there are {', '.join(f'{each} {name}' for each, name in zip(now, names, strict=True))}"]
        await asyncio.sleep(TICK_S)


def report(kept: Ledger, troubles: ClusterTroubles, stream: Stream, jobs: str) -> None:
    took = sorted(job.took_s for job in kept.jobs.values() if job.end)
    say(f"{jobs}; {kept.children} children; they took {took[len(took) // 2]:.1f} s, the longest {took[-1]:.1f} s")
    say(f"troubles: {troubles.seen}\nusers were told: {dict(stream.refused)}")


def _over_in(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
