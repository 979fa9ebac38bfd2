"""What else can go wrong at a write: it is refused, or answered by something that is no API server, or watches stop with it.

Nobody dies. A refusal is told once, as a server in trouble does it for a moment, and the operator tries again.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from faults.scheme import IMPATIENT_S, Scheme
from faults.writes import Nth
from hack.fault_proxy.actions import answer_html, answer_status, error_event, slow_down

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from aiohttp import web

    from faults.scheme import Play
    from hack.fault_proxy.proxy import Action, Exchange, Proxy, Seen

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
"""In place of the response; of `slow` the operator gives up, when it has been carried out."""


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
    """Cut the watches, and say that they cannot be continued: all is listed anew."""
    proxy.rule(_is_watch, error_event(410, "Expired"), times=len(proxy.streams))
    proxy.cut_streams()


INTERRUPTIONS: Final[Mapping[str, Callable[[Proxy], Awaitable[None]]]] = {
    "cut": _cut,
    "reset": _reset,
    "half-close": _half_close,
    "frozen": _freeze,
    "expired": _expire,
}
"""What becomes of all watches before the server sees the write."""
FAULTS: Final = (*REFUSALS, *INTERRUPTIONS)


@asynccontextmanager
async def _arrange(play: Play) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    assert play.case.write is not None
    fault, interrupting = play.case.fault, set[asyncio.Future[None]]()

    async def interrupt(exchange: Exchange) -> web.StreamResponse:
        interrupting.add(asyncio.ensure_future(INTERRUPTIONS[fault](play.proxy)))
        return await exchange.forward()

    async def over() -> None:
        await asyncio.gather(*interrupting)

    play.proxy.rule(Nth(play.case.write), REFUSALS.get(fault, interrupt))
    yield over


AILING: Final = Scheme(FAULTS, _arrange, LANES, patience_s=IMPATIENT_S)
