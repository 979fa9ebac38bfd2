"""The fence and the gate: a write is sent only if the lease will be valid for a while longer, and before the work is to end.

An elector notices the loss of its lease only when it runs. A process that was stopped (SIGSTOP, a suspended machine, a blocked
loop) wakes up in the middle of whatever it did, believing that it still leads. So each write asks the clock, which is to be
a `LeaseClock`: the loop's time stands still while a machine is suspended. A write that is under way when the fence shuts is
given up twice: by us, if we run, and by the API server, which is told with each write how long it may take.

What no client can prevent: a process that is stopped between the check and the system call that sends the bytes sends them
when it wakes, and packets may be late. Both windows are small (one step of the loop; one round trip, since what was given
up goes with its connection, see `api.client.http.transport`). And a hypervisor may pause a VM with all of its clocks. That is
why writes also carry preconditions that the server checks: names that can only be taken once, UIDs on deletes,
resourceVersions on status.

A lease can be given back only when no write of ours can take effect any more. A write that is cut off may take effect for
as long as the API server works on it. So at the gate writes under way are awaited, which takes milliseconds, and whoever would
begin another one waits until its task is cancelled: an error instead would be reported about jobs that have no fault.
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
from tfjob_operator.workqueue.clock import Clock

READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that always pass. Everything else might change something."""


class FencedError(ConnectError):
    """The request was not sent, because this process does not hold the lease (or not for long enough)."""


class Fence:
    """Open until a moment of the monotonic clock; renewals of the lease move that moment.

    Invariants: shut until the first `open_until`, from that moment on, and after `close`; not `settled` while a write that
    passed, and got no response, may still take effect.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = -math.inf
        self._settled_at = -math.inf
        self._line: set[asyncio.Timeout] = set()

    def open_until(self, end: float) -> None:
        """Let writes pass until the monotonic clock shows `end`."""
        self._end = end
        self._move_line()

    def close(self) -> None:
        """Let nothing pass any more."""
        self._end = -math.inf
        self._move_line()

    @contextmanager
    def line(self, limit: asyncio.Timeout) -> Iterator[None]:
        """While inside, let `limit`, which has been entered, expire when the fence shuts, also when that moment is moved."""
        self._line.add(limit)
        try:
            yield
        finally:
            self._line.discard(limit)

    def leave_line(self, limit: asyncio.Timeout) -> float:
        """Fix `limit` at the present end of the fence; return the seconds until then. Raises FencedError when it is shut."""
        remaining = self.check()
        self._line.discard(limit)
        _let_expire(limit, remaining)
        return remaining

    def _move_line(self) -> None:
        for limit in self._line:
            _let_expire(limit, self.remaining())

    def remaining(self) -> float:
        """Seconds until the fence shuts; 0 when it is shut."""
        return max(0.0, self._end - self._clock.monotonic())

    def check(self) -> float:
        """Return the seconds until the fence shuts. Raises FencedError when it is shut."""
        remaining = self.remaining()
        if not remaining:
            raise FencedError("this process does not hold the lease, so it must not write")
        return remaining

    def unanswered(self, within_s: float) -> None:
        """Note a write without a response that may take effect within so many seconds."""
        self._settled_at = max(self._settled_at, self._clock.monotonic() + within_s)

    @property
    def settled(self) -> bool:
        """Whether no write that has passed can take effect any more."""
        return self._clock.monotonic() >= self._settled_at


class FencedTransport:
    """A `Transport` whose writes pass a fence; reads and watches always pass. Dry runs and access reviews count as writes.

    Invariants: the fence is asked for every request, so also when `RestClient` sends one again; no write is waited for, or
    worked on by the server, for longer than the fence was open when its bytes were sent. Before that a write waits in line
    for as long as the fence is open, also if the lease is renewed meanwhile.
    """

    def __init__(self, transport: Transport, fence: Fence) -> None:
        self._transport = transport
        self._fence = fence

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """See `Transport.send`. Raises FencedError instead of sending a write when the fence is shut."""
        if request.method in READS:
            return await self._transport.send(request, on_leave)
        limit = asyncio.timeout(self._fence.check())
        sent_with_s: float | None = None

        def leave(leaving: Request) -> Request:
            """Return the request with the time that it has left. Raises FencedError if there is none."""
            nonlocal sent_with_s
            sent_with_s = self._fence.leave_line(limit)
            leaving = on_leave(leaving)
            return replace(leaving, query={**leaving.query, "timeout": _timeout_of(sent_with_s)})

        try:
            # The head of the response comes after the deed, so reading the body needs no limit of ours.
            async with limit:
                with self._fence.line(limit):
                    return await self._transport.send(request, leave)
        except ConnectError:
            raise  # the server has not seen it
        except BaseException as error:  # cancelled, too
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
    """Return the time limit that a write carries: without it the API server works on it for up to a minute.

    Never more than what remains, and in steps of a tenth of a second, so that the writes of one moment are encoded once. Not
    zero, which to the server means "as long as you like".
    """
    return f"{int(remaining * 10) * 100 or max(1, int(remaining * 1000))}ms"


class GatedTransport:
    """A `Transport` whose writes pass a gate; reads and watches always pass.

    Invariants: no write begins once `drain` was called; when `drain` has returned no write is under way, and the callers
    have handled their responses as far as that needs no further wait.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._under_way = 0
        self._draining = False
        self._empty = asyncio.Event()

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """See `Transport.send`. A write that comes after `drain` waits for ever."""
        if request.method in READS:
            return await self._transport.send(request, on_leave)
        if self._draining:
            await asyncio.get_running_loop().create_future()
        self._under_way += 1
        try:
            return await self._transport.send(request, on_leave)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._empty.set()

    async def drain(self) -> None:
        """Let no write begin any more, and wait for those that are under way."""
        self._draining = True
        while self._under_way:
            self._empty.clear()
            await self._empty.wait()
