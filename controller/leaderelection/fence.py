"""The fence sends a write only if the lease stays valid for a while; the gate sends none once shutdown has started.

An elector notices the loss of its lease only while it runs. A process that was frozen (SIGSTOP, a suspended machine, a blocked
loop) continues wherever it was, assuming that it still leads. So each write checks the clock, which must be a `LeaseClock`: the
loop's time does not advance while a machine is suspended. If a write is in progress when the fence closes, it is aborted twice:
by us, if we are running, and by the API server, since each write specifies its timeout.

Two cases cannot be prevented by any client: a process frozen between the check and the system call sends the bytes when it
resumes, and packets may be delayed. Both windows are small: one step of the loop in the first case. In the second it is one
round trip, since aborting a write closes its connection (see `api.client.http.transport`). Also, a hypervisor may pause a VM
including its clocks. That is why writes also have preconditions that the server checks: unique names, UIDs for deletes,
resource versions for the status.

A lease can be released only when none of our writes can take effect any more. An interrupted write may take effect for as long
as the API server processes it. So the gate waits for writes in progress, which takes milliseconds. Callers that would start
another write are suspended until their task is cancelled. An error instead would be reported on jobs that are not at fault.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from tfjob_operator.api.client import Request, Response, Transport
from tfjob_operator.api.client.errors import ConnectError, RequestTimeoutError
from tfjob_operator.api.client.http import OnLeave, unchanged
from tfjob_operator.workqueue.clock import Clock, LoopClock

READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that always pass. All others may modify something."""


class FencedError(ConnectError):
    """The request was not sent: this process does not hold the lease, or the lease ends too soon."""


class Fence:
    """Open until a time of the monotonic clock; renewals of the lease extend this time.

    Invariants: the fence is closed before the first `open_until`, from the time last given to `open_until`, and after `close`.
    It is not `quiescent` while a write that passed, but got no response, may still take effect.
    """

    def __init__(self, clock: Clock) -> None:
        """Create a closed fence, which only the elector with this fence opens.

        Raises ValueError for a `LoopClock`, which does not advance while the machine is suspended: use a `LeaseClock`.
        """
        if type(clock) is LoopClock:
            raise ValueError("the loop's time does not advance while the machine is suspended: use a LeaseClock")
        self.clock = clock
        self._has_elector = False
        self._end = -math.inf
        self._quiescent_at = -math.inf
        self._limits: set[asyncio.Timeout] = set()

    def attach(self, clock: Clock) -> None:
        """Note that an elector with this clock opens the fence. Raises ValueError for a second elector, or another clock."""
        if self._has_elector:
            raise ValueError("another elector opens this fence, also while this one does not hold its lease")
        if type(clock) is not type(self.clock):
            raise ValueError(f"the fence has a {type(self.clock).__name__}, the elector a {type(clock).__name__}")
        self._has_elector = True

    def open_until(self, end: float) -> None:
        """Let writes pass until the monotonic clock reaches `end`."""
        self._has_elector = True
        self._end = end
        self._update_limits()

    def close(self) -> None:
        """Let no writes pass."""
        self._end = -math.inf
        self._update_limits()

    @contextmanager
    def waiting(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Inside the context, let the timeout `limit` expire when the fence closes, even if that time is extended."""
        self._limits.add(limit)
        try:
            yield
        finally:
            self._limits.discard(limit)

    def fix_limit(self, limit: asyncio.Timeout) -> float:
        """Fix `limit` at the current end of the fence; return the seconds until then. Raises FencedError if closed."""
        remaining = self.check()
        self._limits.discard(limit)
        _let_expire(limit, remaining)
        return remaining

    def _update_limits(self) -> None:
        for limit in self._limits:
            _let_expire(limit, self.remaining())

    def remaining(self) -> float:
        """Return the seconds until the fence closes; 0 if closed."""
        return max(0.0, self._end - self.clock.monotonic())

    def check(self) -> float:
        """Return the seconds until the fence closes. Raises FencedError if closed.

        Raises RuntimeError if no elector has this fence: it would never open.
        """
        if not self._has_elector:
            raise RuntimeError("no elector opens this fence: pass the same Fence to LeaderElector(fence=)")
        remaining = self.remaining()
        if not remaining:
            raise FencedError("this process does not hold the lease, so it must not write")
        return remaining

    def unanswered(self, within_s: float) -> None:
        """Record a write that got no response and may still take effect within `within_s` seconds."""
        self._quiescent_at = max(self._quiescent_at, self.clock.monotonic() + within_s)

    @property
    def quiescent(self) -> bool:
        """True if no write that has passed can still take effect."""
        return self.clock.monotonic() >= self._quiescent_at


class FencedTransport:
    """A `Transport` whose writes pass a fence; reads and watches always pass. Dry runs and access reviews count as writes.

    Invariants: the fence is checked for every request, including retries of `RestClient`; neither do we await a write, nor does
    the server process it, for longer than the fence had left when the write's bytes were sent. Before that, a write waits for a
    connection as long as the fence is open; renewals of the lease extend this wait.
    """

    def __init__(self, transport: Transport, fence: Fence) -> None:
        """Send through `transport` while `fence` is open.

        Raises TypeError for a `GatedTransport`, in which a write would wait until the lease ends: gate the fenced transport.
        """
        if isinstance(transport, GatedTransport):
            raise TypeError("the gate belongs outside of the fence: GatedTransport(FencedTransport(transport, fence))")
        self._transport = transport
        self._fence = fence

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """See `Transport.send`. Raises FencedError instead of sending a write if the fence is closed."""
        if request.method in READS:
            return await self._transport.send(request, on_leave)
        limit = asyncio.timeout(self._fence.check())
        sent_with_s: float | None = None

        def leave(leaving: Request) -> Request:
            """Return the request with the fence's remaining time as its timeout. Raises FencedError if the fence is closed."""
            nonlocal sent_with_s
            sent_with_s = self._fence.fix_limit(limit)
            leaving = on_leave(leaving)
            return replace(leaving, query={**leaving.query, "timeout": _timeout_of(sent_with_s)})

        try:
            # The response head is sent after the write took effect, so reading the body needs no timeout here.
            async with limit:
                with self._fence.waiting(limit):
                    return await self._transport.send(request, leave)
        except ConnectError:
            raise  # it did not reach the server
        except BaseException as error:  # including cancellation
            ended = isinstance(error, TimeoutError) and limit.expired()
            if sent_with_s is None:
                if ended:
                    raise FencedError("the lease ended before it could be sent", request=str(request)) from error
                raise
            self._fence.unanswered(sent_with_s)
            if ended:
                raise RequestTimeoutError("the lease ended before the response came", request=str(request)) from error
            raise


def _let_expire(limit: asyncio.Timeout, in_s: float) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + in_s)


def _timeout_of(remaining: float) -> str:
    """Return the timeout parameter of a write: without it the API server may process it for up to a minute.

    The timeout is never more than the remaining time, and is in steps of 100 ms, so that concurrent writes share one encoded
    query. It is never zero, which the server treats as unlimited.
    """
    return f"{int(remaining * 10) * 100 or max(1, int(remaining * 1000))}ms"


class GatedTransport:
    """A `Transport` whose writes pass a gate; reads and watches always pass.

    Invariants: no write starts after `drain` was called. When `drain` has returned, no write is in progress, and each caller
    that got a response has continued to its next await.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._in_progress = 0
        self._draining = False
        self._empty = asyncio.Event()

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """See `Transport.send`. A write after `drain` waits until cancelled."""
        if request.method in READS:
            return await self._transport.send(request, on_leave)
        if self._draining:
            await asyncio.get_running_loop().create_future()
        self._in_progress += 1
        try:
            return await self._transport.send(request, on_leave)
        finally:
            self._in_progress -= 1
            if not self._in_progress:
                self._empty.set()

    async def drain(self) -> None:
        """Let no new write start, and wait for those in progress."""
        self._draining = True
        while self._in_progress:
            self._empty.clear()
            await self._empty.wait()
