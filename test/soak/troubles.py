"""The faults of a soak test: one after the other, without overlap."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from hack.control_plane import ControlPlane
from hack.fault_proxy import Action, Matcher, Proxy, Seen
from hack.fault_proxy.proxy import answer_html, answer_status, black_hole, delay, lose_reply, lose_request

EACH_S = 5.0
"""How long a trouble lasts, and how long it is quiet after it."""
OFTEN = 20
"""Requests that one trouble meets at most."""


def _writes(seen: Seen) -> bool:
    return seen.is_write


def _requests(seen: Seen) -> bool:
    return seen.verb != "watch"


class Troubles:
    """The troubles of one server, behind a proxy. `seen` counts them by name."""

    def __init__(self, plane: ControlPlane, proxy: Proxy, random: Random) -> None:
        self._plane = plane
        self._proxy = proxy
        self._random = random
        self.seen: dict[str, int] = {}

    async def run(self) -> None:
        """Make trouble until cancelled."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.refused,
            self.overloaded,
            self.not_the_server,
            self.lost,
            self.slow,
            self.silent,
            self.cut,
            self.half_closed,
            self.frozen,
            self.restarted,
        ]
        while True:
            for trouble in self._random.sample(kinds, len(kinds)):
                name = trouble.__name__
                self.seen[name] = self.seen.get(name, 0) + 1
                await trouble()
                await asyncio.sleep(EACH_S)

    async def _meet(self, matches: Matcher, action: Action, times: int = OFTEN) -> None:
        """Let a trouble meet so many requests, and be over after a while: on a busy machine few come meanwhile."""
        rule = self._proxy.rule(matches, action, times=times)
        await asyncio.sleep(EACH_S)
        self._proxy.withdraw(rule)

    async def refused(self) -> None:
        """The server fails."""
        await self._meet(_requests, answer_status(500, "InternalError"))

    async def overloaded(self) -> None:
        """The server asks to come again later."""
        await self._meet(_requests, answer_status(429, "TooManyRequests", retry_after_s=1))

    async def not_the_server(self) -> None:
        """A load balancer answers."""
        await self._meet(_requests, answer_html(503))

    async def lost(self) -> None:
        """Connections break, before and after the server has seen the request."""
        await self._meet(_writes, lose_reply, times=3)
        await self._meet(_writes, lose_request, times=3)

    async def slow(self) -> None:
        """Each request takes half a second."""
        await self._meet(_requests, delay(0.5))

    async def silent(self) -> None:
        """A write is never answered."""
        await self._meet(_writes, black_hole, times=1)

    async def cut(self) -> None:
        """All watches break."""
        self._proxy.cut_streams(reset=self._random.random() < 0.5)

    async def half_closed(self) -> None:
        """All watches are closed from one side."""
        self._proxy.half_close_streams()

    async def frozen(self) -> None:
        """Watches are silent for a while."""
        self._proxy.freeze_streams()
        await asyncio.sleep(EACH_S)
        self._proxy.thaw_streams()

    async def restarted(self) -> None:
        """The API server is killed, and started again."""
        await asyncio.to_thread(self._plane.restart_apiserver)
