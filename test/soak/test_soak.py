"""A long day: random users and troubles, and an operator that must weigh afterwards what it weighed before.

`make soak` plays half an hour, `make soak MINUTES=480` a night. The processes are real; the pods run on a hollow node.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from random import Random
from statistics import linear_regression, median
from typing import Final

import pytest

from faults.field import node
from faults.processes import PATIENT, ROOT, program, say
from hack.audit import AuditLog
from hack.control_plane import ControlPlane
from hack.fault_proxy import Proxy
from hack.image.build import SETTINGS
from integration.replicas import Replica
from soak.ledger import conclude
from soak.troubles import Troubles
from soak.users import User
from soak.weight import GROWTH, Weight, at_rest, weigh
from tfjob_operator.api.client import HttpTransport, RestClient, load_settings

USERS: Final = 6
AGENT: Final = "tfjob-operator"
SAMPLE_S: Final = 5.0
QUIET_S: Final = 60.0
"""How long nothing may be written after the last job is gone."""


def test_an_operator_that_has_worked_for_long_weighs_what_it_did_at_first(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """Memory, open files, threads and tasks are the same at rest; every job came to its end; then nothing is written.

    With a planted bug, something of that must be otherwise.
    """
    planted = pytestconfig.getoption("planted")
    # A test that is a coroutine has little time.
    found = asyncio.run(compare(pytestconfig.getoption("minutes") * 60.0, tmp_path, planted))
    conclude(found, planted)


async def compare(seconds: float, tmp_path: Path, planted: str) -> list[str]:
    """Let a day pass, compare what the operator has at rest at noon and in the evening, and return what is wrong."""
    seed = int(time.time())
    say(f"\nseed {seed}, {seconds / 60:g} minutes{f', with {planted}' if planted else ''}")
    audit = AuditLog(tmp_path)
    plane = await asyncio.to_thread(ControlPlane.start, "soak", extra_apiserver_args=audit.flags)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(plane.stop)
        plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests" / "base" / "crd.yaml"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        namespaces = [f"user-{number}" for number in range(USERS)]
        for namespace in namespaces:
            await asyncio.to_thread(plane.create_namespace, namespace)
        await asyncio.to_thread(plane.restart_controller_manager)  # its garbage collector knows the kind now
        await stack.enter_async_context(node(plane, tmp_path, time_scale=0.2))
        kubeconfig = plane.kubeconfig_for("operator-in-trouble", ["system:masters"])
        proxy = await stack.enter_async_context(Proxy(kubeconfig, serving=plane.server_credential("fault-proxy")))
        proxied = proxy.kubeconfig_through(tmp_path / "proxied")
        operator = stack.enter_context(
            Replica(proxied, tmp_path / "operator.log", *PATIENT, program=program(planted), variables=SETTINGS)
        )
        transport = await stack.enter_async_context(HttpTransport(load_settings(str(plane.kubeconfig))))
        client = RestClient(transport)
        users = [User(client, name, Random(f"{seed}/{name}")) for name in namespaces]
        troubles = Troubles(plane, proxy, Random(seed))
        await asyncio.to_thread(operator.wait_for, "operator_ready")
        # The first half fills the caches: those of events and of equal values have room for what some thousand jobs bring.
        await day(users, troubles, operator, seconds / 2)
        before = await at_rest(operator)
        samples = await day(users, troubles, operator, seconds / 2)
        after = await at_rest(operator)
        written = sum(1 for entry in audit.news() if is_write(entry))
        assert written
        await asyncio.sleep(QUIET_S)
        idle = [entry["requestURI"] for entry in audit.news() if is_write(entry)]
        report(users, troubles, before, after, samples)
        wrong = [each for user in users for each in user.wrong]
        wrong += [f"at rest it wrote to {uri}" for uri in idle]
        return wrong + judge(operator, before, after)


def judge(operator: Replica, before: Weight, after: Weight) -> list[str]:
    wrong = []
    if "Traceback" in operator.text():
        wrong.append("a traceback is in the operator's log")
    if after.memory_mb > before.memory_mb * GROWTH or after[1:] != before[1:]:
        wrong.append(f"the operator has {after}, and had {before}")
    return wrong


async def day(users: list[User], troubles: Troubles, operator: Replica, seconds: float) -> list[tuple[float, Weight]]:
    """Let users and troubles go on for so long, and all jobs come to their ends; return what the operator had meanwhile."""
    end, samples = time.monotonic() + seconds, []
    making = asyncio.create_task(troubles.run())
    working = [asyncio.create_task(user.work(lambda: time.monotonic() >= end)) for user in users]
    try:
        while time.monotonic() < end:
            await asyncio.sleep(SAMPLE_S)
            samples.append((time.monotonic(), await asyncio.to_thread(weigh, operator)))
    finally:
        making.cancel()
        await asyncio.wait([making])
    await asyncio.gather(*working)
    return samples


def is_write(entry: dict[str, object]) -> bool:
    """Whether an entry of the audit log is a write of the operator; its lease is renewed by the clock."""
    target = entry.get("objectRef")
    lease = isinstance(target, dict) and target.get("resource") == "leases"
    return (
        entry.get("userAgent") == AGENT and entry.get("verb") in {"create", "patch", "update", "delete"} and not lease
    )


def report(
    users: list[User], troubles: Troubles, before: Weight, after: Weight, samples: list[tuple[float, Weight]]
) -> None:
    """Print what happened, and the slopes of what was sampled."""
    ended: dict[str, int] = {}
    for user in users:
        for kind, number in user.ended.items():
            ended[kind] = ended.get(kind, 0) + number
    say(f"jobs: {sum(ended.values())} {ended}\ntroubles: {sum(troubles.seen.values())} {troubles.seen}")
    say(f"at rest before: {before}\nat rest after:  {after}")
    if len(samples) > 2:
        times = [moment for moment, _ in samples]
        for name in Weight._fields:
            values = [getattr(weight, name) for _, weight in samples]
            slope = linear_regression(times, values).slope * 3600
            say(f"{name}: median {median(values):.1f}, slope {slope:+.2f} an hour")
