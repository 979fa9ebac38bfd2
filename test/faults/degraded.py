"""A degraded API server: it rejects a write, something else answers in its place, or watches stop.

The operator is not killed. A rejection happens once, and the operator retries; with `REFUSED`, every status is rejected for a
while, as by etcd's limit or a policy. Other faults last for the whole run: clients
read the operator's metrics in a loop, or its stderr cannot be written.
"""

import asyncio
import fcntl
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from faults.operator_process import OperatorProcess
from faults.processes import beside
from faults.scheme import IMPATIENT_S, Case, Nth, Play, Scheme, Write, name, nothing
from hack.control_plane.run.parts import any_free
from hack.fault_proxy.proxy import Action, Exchange, Proxy, Seen, answer_html, answer_status, error_event, slow_down

LANES: Final = 10
FROZEN_S: Final = 2.0
SLOW_BYTES_PER_S: Final = 10.0
REFUSALS: Final[Mapping[str, Action]] = {
    "409": answer_status(409, "Conflict"),
    "429": answer_status(429, "TooManyRequests", retry_after_s=1),
    "500": answer_status(500, "InternalError"),
    "503": answer_status(503, "ServiceUnavailable"),
    "html": answer_html(502),
    "slow": slow_down(SLOW_BYTES_PER_S),
}
"""What replaces the response. With `slow`, the operator times out after the write was executed."""


def _is_watch(seen: Seen) -> bool:
    return seen.verb == "watch"


async def _cut(proxy: Proxy) -> None:
    proxy.cut_streams()


async def _reset(proxy: Proxy) -> None:
    proxy.cut_streams(reset=True)


async def _half_close(proxy: Proxy) -> None:
    proxy.half_close_streams()


async def _freeze(proxy: Proxy) -> None:
    proxy.freeze_streams()
    await asyncio.sleep(FROZEN_S)
    proxy.thaw_streams()


async def _expire(proxy: Proxy) -> None:
    """Cut the watches and respond that they cannot be resumed, so everything is listed again."""
    proxy.rule(_is_watch, error_event(410, "Expired"), times=len(proxy.streams))
    proxy.cut_streams()


INTERRUPTIONS: Final[Mapping[str, Callable[[Proxy], Awaitable[None]]]] = {
    "cut": _cut,
    "reset": _reset,
    "half-close": _half_close,
    "frozen": _freeze,
    "expired": _expire,
}
"""What happens to all watches before the server gets the write."""
REFUSED: Final = "status-refused"
REFUSED_S: Final = 15.0
"""Less than the time after which the operator emits a Warning, which a run without faults does not have."""
SCRAPED: Final = "scraped"
SCRAPERS: Final = 40
PROBE_EVERY_S: Final = 0.2
ANSWER_S: Final = 10.0
"""A probe without response for this time has failed; ten operators share the machine."""


@contextmanager
def _blocked() -> Iterator[int]:
    """Yield a full pipe without a reader."""
    reader, writer = os.pipe2(os.O_NONBLOCK)
    try:
        os.write(writer, b"x" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
        os.set_blocking(writer, True)
        yield writer
    finally:
        os.close(reader)
        os.close(writer)


@contextmanager
def _broken() -> Iterator[int]:
    """Yield a pipe whose reader was closed."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@contextmanager
def _full() -> Iterator[int]:
    """Yield a file on a full disk."""
    with Path("/dev/full").open("wb", buffering=0) as file:
        yield file.fileno()


STDERRS: Final[Mapping[str, Callable[[], AbstractContextManager[int]]]] = {
    "stderr-blocked": _blocked,
    "stderr-broken": _broken,
    "disk-full": _full,
}
"""The operator's standard error."""
DROPPING: Final = frozenset({"stderr-broken", "disk-full"})
"""With these, no line can be written, so dropped lines must be counted. A blocked pipe may have thousands in its queue."""
FAULTS: Final = (*REFUSALS, REFUSED, *INTERRUPTIONS, SCRAPED, *STDERRS)


STATUS: Final = "/status"


class _StatusesFrom:
    """Matches a status write, and from then on every one for `REFUSED_S`."""

    def __init__(self, write: Write) -> None:
        self._is_first = Nth(write)
        self._until = 0.0

    def __call__(self, seen: Seen) -> bool:
        if self._is_first(seen):
            self._until = time.monotonic() + REFUSED_S
        return seen.number > 0 and time.monotonic() < self._until and name(seen).endswith(STATUS)


def _applies(case: Case) -> bool:
    """Play faults that last for the whole run once per pod: they are the same for every write. Only a status is refused."""
    if case.fault == REFUSED:
        return case.write is not None and case.write.what.endswith(STATUS)
    lasts = case.fault == SCRAPED or case.fault in STDERRS
    return not lasts or (case.write is not None and case.write.what.startswith("create pods/") and case.write.nth == 1)


class Asking:
    """Clients of the operator's endpoints: one probes its health, `scrapers` others read its metrics, in a loop."""

    def __init__(self, operator: OperatorProcess, session: aiohttp.ClientSession, scrapers: int) -> None:
        operator.monitoring_port = any_free()
        self._url = f"http://127.0.0.1:{operator.monitoring_port}"
        self._operator, self._session = operator, session
        self._answered = False
        self.loops = (self._probe(), *(self._scrape() for _ in range(scrapers)))

    async def judge(self, asking: list[asyncio.Task[None]], *, dropping: bool) -> None:
        """Report unanswered probes and, if the operator is `dropping` log lines, a missing count of them."""
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        if not self._answered:
            self._operator.complaints.append("/healthz was never answered")
        if "\ntf_operator_log_lines_dropped_total 0" in await self._get("/metrics") and dropping:
            self._operator.complaints.append("no log line was counted as dropped")

    async def _get(self, path: str) -> str:
        async with self._session.get(self._url + path) as response:
            response.raise_for_status()
            return await response.text()

    async def _probe(self) -> None:
        while True:
            try:
                await self._get("/healthz")
                self._answered = True
            except (aiohttp.ClientError, TimeoutError) as error:
                if self._answered:  # it is starting until then
                    self._operator.complaints.append(f"/healthz: {error!r}")
            await asyncio.sleep(PROBE_EVERY_S)

    async def _scrape(self) -> None:
        while True:
            try:
                await self._get("/metrics")
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(PROBE_EVERY_S)


@asynccontextmanager
async def _arrange(play: Play) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    assert play.case.write is not None
    fault = play.case.fault
    if fault in REFUSALS:
        play.proxy.rule(Nth(play.case.write), REFUSALS[fault])
        yield nothing
    elif fault == REFUSED:
        play.proxy.rule(_StatusesFrom(play.case.write), REFUSALS["500"], times=math.inf)
        yield nothing
    elif fault in INTERRUPTIONS:
        interrupting = set[asyncio.Future[None]]()

        async def interrupt(exchange: Exchange) -> web.StreamResponse:
            interrupting.add(asyncio.ensure_future(INTERRUPTIONS[fault](play.proxy)))
            return await exchange.forward()

        async def interrupted() -> None:
            await asyncio.gather(*interrupting)

        play.proxy.rule(Nth(play.case.write), interrupt)
        yield interrupted
    else:
        with STDERRS.get(fault, nullcontext)() as play.operator.stderr:
            timeout, connector = aiohttp.ClientTimeout(ANSWER_S), aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
                asking = Asking(play.operator, session, SCRAPERS if fault == SCRAPED else 0)
                async with beside(*asking.loops) as tasks:
                    yield partial(asking.judge, tasks, dropping=fault in DROPPING)


DEGRADED: Final = Scheme(FAULTS, _arrange, LANES, applies=_applies, patience_s=IMPATIENT_S)
