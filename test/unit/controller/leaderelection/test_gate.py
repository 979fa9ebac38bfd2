"""The gate: what passes it before and after `drain` is called."""

from __future__ import annotations

import asyncio

import pytest

from tfjob_operator.api.client import Request
from tfjob_operator.controller.leaderelection import GatedTransport
from unit.controller.leaderelection.test_fence import WRITES, SlowTransport


async def test_what_is_under_way_is_awaited() -> None:
    """D24: all of it, also what waits for a connection."""
    wire = SlowTransport(delay_s=2.0, line_s=1.0)
    gate = GatedTransport(wire)
    sending = [asyncio.create_task(gate.send(Request(method, "/"))) for method in WRITES]
    await asyncio.sleep(0.5)
    await gate.drain()
    assert asyncio.get_running_loop().time() == 3.0
    assert [(await answer).status for answer in sending] == [200] * len(WRITES)


@pytest.mark.parametrize("method", WRITES)
async def test_no_write_begins_after_the_drain_was_asked_for(method: str) -> None:
    """D24: a later write waits until it is cancelled; it does not fail, so its caller reports no failure."""
    wire = SlowTransport(delay_s=1.0)
    gate = GatedTransport(wire)
    first = asyncio.create_task(gate.send(Request("POST", "/first")))
    await asyncio.sleep(0.5)
    draining = asyncio.create_task(gate.drain())
    await asyncio.sleep(0)
    late = asyncio.create_task(gate.send(Request(method, "/late")))
    await draining
    await first
    await asyncio.sleep(600.0)
    assert not late.done()
    late.cancel()
    await asyncio.wait([late])
    assert late.cancelled()
    assert [request.path for request in wire.requests] == ["/first"]


async def test_reads_pass_a_drained_gate() -> None:
    """D24: the caches are kept up to date until the end."""
    wire = SlowTransport()
    gate = GatedTransport(wire)
    await gate.drain()
    assert (await gate.send(Request("GET", "/"))).status == 200


async def test_a_write_that_fails_or_is_cancelled_is_not_waited_for() -> None:
    """D24: it has ended, so it is no longer under way."""
    gate = GatedTransport(SlowTransport(delay_s=60.0))
    writing = asyncio.create_task(gate.send(Request("POST", "/")))
    await asyncio.sleep(1.0)
    draining = asyncio.create_task(gate.drain())
    await asyncio.sleep(1.0)
    writing.cancel()
    await draining
    assert asyncio.get_running_loop().time() == 2.0


async def test_the_one_who_wrote_has_seen_the_response_when_the_drain_ends() -> None:
    """D24: otherwise the event of a pod's creation would be lost though the pod exists."""
    gate = GatedTransport(SlowTransport(delay_s=1.0))
    seen: list[str] = []

    async def write() -> None:
        await gate.send(Request("POST", "/"))
        seen.append("answered")
        await gate.send(Request("POST", "/"))
        seen.append("never")

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.5)
    await gate.drain()
    assert seen == ["answered"]
    writing.cancel()
    await asyncio.wait([writing])
