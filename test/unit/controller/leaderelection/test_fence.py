"""Fence and gate: what passes them, until when, and what becomes of writes that are under way when they shut."""

import asyncio
import contextlib

import pytest
from pytest_mock import MockerFixture

from fakes.source import running
from fakes.transport import FakeResponse, FakeTransport, refusal
from kit.virtual_loop import VirtualClock
from tfjob_operator.api.client import Request, RestClient
from tfjob_operator.api.client.errors import ApiError, ConnectError, ConnectionLostError, RequestTimeoutError
from tfjob_operator.api.core import PODS
from tfjob_operator.controller.leaderelection import (
    Fence,
    FencedError,
    FencedTransport,
    GatedTransport,
    LeaderElector,
    LeaseLock,
)
from tfjob_operator.workqueue import LeaseClock, LoopClock
from unit.controller.leaderelection.model import LockServer, ModelLock, renew

WRITES = ["POST", "PUT", "PATCH", "DELETE", "BREW"]


def slow(delay_s: float = 0.0, *, line_s: float = 0.0, connections: int = 32) -> FakeTransport:
    """Return a transport whose responses come `delay_s` after a request was sent."""
    return FakeTransport(then_always=FakeResponse(after_s=delay_s), line_s=line_s, connections=connections)


@pytest.fixture
def fence() -> Fence:
    fence = Fence(VirtualClock())
    fence.attach(fence.clock)
    return fence


@pytest.mark.parametrize("method", WRITES)
async def test_a_fence_that_was_never_opened_lets_no_write_pass(fence: Fence, method: str) -> None:
    """LE-10: a candidate writes nothing, whatever the verb."""
    wire = slow()
    with pytest.raises(FencedError, match="does not hold the lease"):
        await FencedTransport(wire, fence).send(Request(method, "/api/v1/pods"))
    with pytest.raises(
        ConnectError
    ):  # so RestClient, which knows that the server has not acted, does not send it again
        await RestClient(FencedTransport(wire, fence)).create(PODS, "ns", {})
    assert wire.seen == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_reads_always_pass(fence: Fence, method: str) -> None:
    """LE-10: a candidate keeps its caches warm."""
    wire = slow(30.0)
    assert (await FencedTransport(wire, fence).send(Request(method, "/api/v1/pods"))).status == 200
    assert wire.seen == [(0.0, "begun"), (30.0, "done")]


async def test_a_leader_whose_machine_was_suspended_must_not_write(mocker: MockerFixture) -> None:
    """The loop's time stands still meanwhile, so by it the lease would still be valid (an EC2 instance that hibernates)."""
    fence = Fence(LeaseClock())
    booted = mocker.patch("time.clock_gettime", return_value=100.0)
    fence.open_until(112.5)
    assert fence.check() == 12.5
    booted.return_value += 60.0
    with pytest.raises(FencedError):
        fence.check()


async def test_writes_pass_up_to_the_end_and_not_at_it(fence: Fence) -> None:
    """LE-04: at the end itself the lease must be taken for expired."""
    transport = FencedTransport(slow(), fence)
    fence.open_until(10.0)
    await asyncio.sleep(9.9)
    await transport.send(Request("POST", "/"))
    await asyncio.sleep(0.1)
    assert asyncio.get_running_loop().time() == 10.0
    with pytest.raises(FencedError):
        await transport.send(Request("POST", "/"))
    assert fence.remaining() == 0.0


async def test_a_write_under_way_is_cut_off_when_the_fence_shuts(fence: Fence) -> None:
    """LE-10: its total timeout would let it live on for 30 s, while another process leads."""
    wire = slow(20.0)
    fence.open_until(10.0)
    await asyncio.sleep(4.0)
    with pytest.raises(RequestTimeoutError, match="the lease ended"):
        await FencedTransport(wire, fence).send(Request("POST", "/"))
    assert wire.seen == [(4.0, "begun"), (10.0, "cut off")]


async def test_the_server_is_told_how_long_it_has(fence: Fence) -> None:
    """LE-10: a write that waits in the server outlives a client that is frozen. Zero would mean: as long as it likes."""
    wire = slow()
    transport = FencedTransport(wire, fence)
    for end in (10.0, 2.5, 0.0001):
        fence.open_until(end)
        await transport.send(Request("POST", "/", {"fieldManager": "kettle"}))
    assert [request.query for request in wire.requests] == [
        {"fieldManager": "kettle", "timeout": text} for text in ("10000ms", "2500ms", "1ms")
    ]
    await transport.send(Request("GET", "/"))
    assert wire.requests[-1].query == {}
    wire.line_s = 7.0
    fence.open_until(10.0)
    await transport.send(Request("POST", "/", {"dryRun": "All"}))
    assert wire.requests[-1].query == {"dryRun": "All", "timeout": "3000ms"}, "what is left when the bytes leave"


async def test_the_body_of_a_response_may_come_after_the_end(fence: Fence) -> None:
    """LE-10: the server has acted before it sends the head of the response."""
    wire = FakeTransport(FakeResponse(body=(20.0, b"{}")))
    fence.open_until(10.0)
    assert await RestClient(FencedTransport(wire, fence)).create(PODS, "ns", {}) == b"{}"


async def test_a_write_without_a_response_is_unsettled_for_as_long_as_the_server_may_work_on_it(fence: Fence) -> None:
    """LE-11: whether it was cancelled, lost or timed out, it may still take effect."""
    fence.open_until(10.0)
    sending = asyncio.create_task(FencedTransport(slow(20.0), fence).send(Request("POST", "/")))
    quiescent = [fence.quiescent]
    await asyncio.sleep(4.0)
    sending.cancel()
    await asyncio.wait([sending])
    fence.unanswered(1.0)  # a later one may have less time left; the one that may take longest counts
    for pause in (0.0, 9.9, 0.1):
        await asyncio.sleep(pause)
        quiescent.append(fence.quiescent)
    assert quiescent == [True, False, False, True]


@pytest.mark.parametrize(
    ("error", "quiescent"),
    [(ConnectionLostError("reset"), False), (ConnectError("refused"), True)],
    ids=["lost", "refused"],
)
async def test_a_write_that_never_arrived_needs_no_settling(fence: Fence, error: ApiError, quiescent: bool) -> None:
    """LE-11: without a connection the server cannot have acted."""
    fence.open_until(10.0)
    with pytest.raises(type(error)):
        await FencedTransport(FakeTransport(error), fence).send(Request("POST", "/"))
    assert fence.quiescent is quiescent


async def test_each_retry_asks_again(fence: Fence) -> None:
    """LE-10: RestClient sends a write again when the server says Retry-After; the lease may be over by then."""
    wire = FakeTransport(then_always=refusal(429, retry_after="6"))
    fence.open_until(10.0)
    with pytest.raises(FencedError):
        await RestClient(FencedTransport(wire, fence)).create(PODS, "ns", {})
    assert wire.sent_at == [0.0, 6.0]


async def test_cancelling_and_foreign_timeouts_pass_through(fence: Fence) -> None:
    """LE-10: the fence turns only its own deadline into an error about the lease."""
    transport = FencedTransport(slow(20.0), fence)
    fence.open_until(100.0)
    with pytest.raises(TimeoutError) as caught:
        async with asyncio.timeout(1.0):
            await transport.send(Request("POST", "/"))
    assert not isinstance(caught.value, RequestTimeoutError)
    sending = asyncio.create_task(transport.send(Request("POST", "/")))
    await asyncio.sleep(1.0)
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sending
    assert sending.cancelled()
    with pytest.raises(TimeoutError, match="not the lease"):
        await FencedTransport(FakeTransport(TimeoutError("not the lease")), fence).send(Request("POST", "/"))


@pytest.mark.parametrize("delay_s", [1.0, 2.0, 8.0])
async def test_no_write_fails_in_a_long_line_while_the_lease_is_renewed(fence: Fence, delay_s: float) -> None:
    """D8: with a deadline that was set when each of a thousand came, a hundred failed at a second each, and most at two."""
    wire = slow(delay_s)
    transport = FencedTransport(wire, fence)
    async with running(renew(fence)):
        await asyncio.sleep(0)
        answers = await asyncio.gather(*(transport.send(Request("POST", "/")) for _ in range(1000)))
    assert len(answers) == 1000
    assert asyncio.get_running_loop().time() == delay_s * 32  # a thousand by thirty-two, rounded up
    assert {request.query["timeout"] for request in wire.requests} <= {"10500ms", "11500ms", "12500ms"}
    assert fence.quiescent


@pytest.mark.parametrize("how", ["lost", "closed"])
async def test_a_write_in_line_is_given_up_when_the_fence_shuts_at_last(fence: Fence, how: str) -> None:
    """D8, LE-10: not at the end of the lease that was known when it came, but at the real end. It was never sent."""
    loop = asyncio.get_running_loop()
    wire = slow(1.0, connections=1)
    fence.open_until(10.0)
    async with wire.places:
        sending = asyncio.create_task(FencedTransport(wire, fence).send(Request("POST", "/")))
        await asyncio.sleep(4.0)
        fence.open_until(14.0)
        if how == "closed":
            loop.call_at(12.0, fence.close)
        with pytest.raises(FencedError, match="the lease ended before it could be sent"):
            await sending
    assert loop.time() == (12.0 if how == "closed" else 14.0)
    assert wire.requests == []
    assert fence.quiescent


async def test_a_write_under_way_has_the_time_that_the_server_was_told(fence: Fence) -> None:
    """D8, LE-10: a renewal meanwhile gives it no more, for the server will have given the request up by then."""
    wire = slow(30.0, line_s=3.0)
    fence.open_until(10.0)
    sending = asyncio.create_task(FencedTransport(wire, fence).send(Request("POST", "/")))
    await asyncio.sleep(5.0)
    fence.open_until(20.0)
    with pytest.raises(RequestTimeoutError, match="the lease ended"):
        await sending
    assert wire.seen == [(3.0, "begun"), (10.0, "cut off")]
    assert wire.requests[0].query == {"timeout": "7000ms"}


async def test_a_write_that_was_cancelled_in_line_leaves_nothing_to_settle(fence: Fence) -> None:
    """D8, LE-11: a leader that stops need not keep its lease for what it has not sent."""
    fence.open_until(10.0)
    sending = asyncio.create_task(FencedTransport(slow(line_s=7.0), fence).send(Request("POST", "/")))
    await asyncio.sleep(1.0)
    sending.cancel()
    await asyncio.wait([sending])
    assert fence.quiescent


async def test_what_is_under_way_is_awaited() -> None:
    """D24: all of it, also what waits for a connection."""
    wire = slow(2.0, line_s=1.0)
    gate = GatedTransport(wire)
    sending = [asyncio.create_task(gate.send(Request(method, "/"))) for method in WRITES]
    await asyncio.sleep(0.5)
    await gate.drain()
    assert asyncio.get_running_loop().time() == 3.0
    assert [(await answer).status for answer in sending] == [200] * len(WRITES)


@pytest.mark.parametrize("method", WRITES)
async def test_no_write_begins_after_the_drain_was_asked_for(method: str) -> None:
    """D24: a later write waits until it is cancelled; it does not fail, so its caller reports no failure."""
    wire = slow(1.0)
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
    wire = slow()
    gate = GatedTransport(wire)
    await gate.drain()
    assert (await gate.send(Request("GET", "/"))).status == 200


async def test_a_write_that_fails_or_is_cancelled_is_not_waited_for() -> None:
    """D24: it has ended, so it is no longer under way."""
    gate = GatedTransport(slow(60.0))
    writing = asyncio.create_task(gate.send(Request("POST", "/")))
    await asyncio.sleep(1.0)
    draining = asyncio.create_task(gate.drain())
    await asyncio.sleep(1.0)
    writing.cancel()
    await draining
    assert asyncio.get_running_loop().time() == 2.0


async def test_the_one_who_wrote_has_seen_the_response_when_the_drain_ends() -> None:
    """D24: otherwise the event of a pod's creation would be lost though the pod exists."""
    gate = GatedTransport(slow(1.0))
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


async def test_a_fence_that_no_elector_opens_is_reported_and_not_retried() -> None:
    """An elector with a fence of its own, beside a transport with another one, blocked all writes for ever."""
    wire = slow()
    client = RestClient(FencedTransport(wire, Fence(VirtualClock())))
    LeaderElector(ModelLock(LockServer(), "me"))
    with pytest.raises(RuntimeError, match=r"pass the same Fence to LeaderElector\(fence=\)"):
        await client.create(PODS, "ns", {})
    assert wire.seen == []


def test_a_fence_whose_end_is_not_that_of_its_lease_is_refused() -> None:
    """A suspended machine, another elector or another clock would let two leaders write."""
    with pytest.raises(ValueError, match="use a LeaseClock"):
        Fence(LoopClock())
    with pytest.raises(ValueError, match="the fence has a VirtualClock, the elector a LeaseClock"):
        LeaderElector(ModelLock(LockServer(), "me"), fence=Fence(VirtualClock()), clock=LeaseClock())
    fence = Fence(VirtualClock())
    LeaderElector(ModelLock(LockServer(), "me"), fence=fence)
    with pytest.raises(ValueError, match="another elector opens this fence"):
        LeaderElector(ModelLock(LockServer(), "other"), fence=fence)


def test_a_transport_in_the_wrong_place_is_refused(fence: Fence) -> None:
    """A gate inside of a fence holds writes until the lease ends; a lease inside of either is never renewed."""
    gated, fenced = GatedTransport(slow()), FencedTransport(slow(), fence)
    with pytest.raises(TypeError, match="the gate belongs outside of the fence"):
        FencedTransport(gated, fence)
    for transport in (gated, fenced, GatedTransport(fenced)):
        with pytest.raises(TypeError, match="use another client"):
            LeaseLock(RestClient(transport), "ns", "lock", identity="me")
