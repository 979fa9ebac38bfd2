"""Half an hour of random users and faults, after which the operator must use as much memory as before.

`make soak` runs half an hour, `make soak MINUTES=480` a night. The processes are real; the pods run on a hollow node.
"""

import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import pytest

from faults.field import seeing
from faults.processes import beside, say
from hack.audit import AuditLog
from hack.fault_proxy import Proxy
from soak.ledger import conclude
from soak.troubles import Troubles
from soak.users import Worker
from soak.weight import at_rest, cluster, judge, operating

USERS: Final = 6
AGENT: Final = "tfjob-operator"
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
    namespaces = [f"user-{number}" for number in range(USERS)]
    async with contextlib.AsyncExitStack() as stack:
        plane = await stack.enter_async_context(cluster(tmp_path, namespaces, "soak", extra_apiserver_args=audit.flags))
        kubeconfig = plane.kubeconfig_for("operator-in-trouble", ["system:masters"])
        proxy = await stack.enter_async_context(Proxy(kubeconfig, serving=plane.server_credential("fault-proxy")))
        proxied = proxy.kubeconfig_through(tmp_path / "proxied")
        operator = await stack.enter_async_context(operating(proxied, tmp_path, planted))
        sight = await stack.enter_async_context(seeing(plane))
        users = [Worker(sight, name, Random(f"{seed}/{name}")) for name in namespaces]
        troubles = Troubles(plane, proxy, Random(seed))
        # The first half fills the caches: those of events and of equal values have room for what some thousand jobs bring.
        await day(users, troubles, seconds / 2)
        before = await at_rest(operator)
        await day(users, troubles, seconds / 2)
        after = await at_rest(operator)
        written = sum(1 for entry in audit.news() if is_write(entry))
        assert written
        await asyncio.sleep(QUIET_S)
        idle = [entry["requestURI"] for entry in audit.news() if is_write(entry)]
        ended = sum((user.ended for user in users), Counter[str]())
        say(f"jobs: {ended.total()} {dict(ended)}\ntroubles: {sum(troubles.seen.values())} {troubles.seen}")
        say(f"at rest before: {before}\nat rest after:  {after}")
        wrong = [each for user in users for each in user.wrong]
        wrong += [f"at rest it wrote to {uri}" for uri in idle]
        return wrong + judge(operator, before, after, len(after))


async def day(users: list[Worker], troubles: Troubles, seconds: float) -> None:
    """Let users and troubles go on for so long, and all jobs come to their ends."""
    end = time.monotonic() + seconds
    working = [asyncio.create_task(user.work(lambda: time.monotonic() >= end)) for user in users]
    async with beside(troubles.run()):
        await asyncio.sleep(seconds)
    await asyncio.gather(*working)


def is_write(entry: dict[str, object]) -> bool:
    """Whether an entry of the audit log is a write of the operator; its lease is renewed by the clock."""
    target = entry.get("objectRef")
    lease = isinstance(target, dict) and target.get("resource") == "leases"
    return (
        entry.get("userAgent") == AGENT and entry.get("verb") in {"create", "patch", "update", "delete"} and not lease
    )
