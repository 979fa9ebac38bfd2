"""Staleness: an operator moves to an API server whose watch caches lag.

From the write of the case on, the caches of all resources, of jobs or of children lag, because the watch caches of one API
server are independent. The operator moves to that server at once or ten writes later, by a restart or by new connections of
the same process. When it is idle there, the server catches up.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import web

from faults.census import CHILDREN
from faults.field import REQUEST_S, Field
from faults.scheme import Nth, Play, Scheme
from hack.fault_proxy.etcd import EtcdProxy, etcd_proxy
from hack.fault_proxy.proxy import Exchange
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient, load_settings
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS

LANES: Final = 4
LAGS: Final = {
    "jobs": (f"/{TFJOBS.plural}/",),
    "children": tuple(f"/{resource.plural}/" for resource in CHILDREN),
    "all": ("/",),
}
"""Parts of the etcd keys that each kind of lag affects."""
LATER, AT_ONCE, MOVED = "later", "restart", "moved"
FAULTS: Final = (*(f"{lag}-{move}" for move in (LATER, AT_ONCE) for lag in LAGS), f"all-{MOVED}")
LATER_WRITES: Final = 10
QUIET_S: Final = 1.0
"""An operator without writes for this time has done everything that follows from its view."""
LIMIT_S: Final = 180.0
TICK_S: Final = 0.02


@dataclass(frozen=True)
class Second:
    """Another API server on the same etcd; `etcd` is the proxy in between."""

    url: str
    etcd: EtcdProxy
    client: RestClient

    async def catch_up(self, field: Field) -> None:
        """Wait until its watch caches show everything written so far."""
        for resource in (TFJOBS, *CHILDREN):
            listed = json.loads(await field.client.list_page(resource, ListOptions()))
            # A watch cache never reaches the version of the list itself if another resource has that version.
            newest = str(max((int(item["metadata"]["resourceVersion"]) for item in listed["items"]), default=0))
            what = f"the other API server shows {resource.plural} of version {newest}"
            await until(partial(self._shows, resource, newest), what, limit_s=LIMIT_S, tick_s=TICK_S)

    async def _shows(self, resource: Resource, version: str) -> bool:
        try:
            # Without a limit the list comes from the cache, which waits some seconds for a version it does not have yet.
            await self.client.list_page(resource, ListOptions(namespace="default", resource_version=version))
        except ApiError:
            return False
        return True


class Journey:
    """One operator that moves to a lagging server."""

    def __init__(self, play: Play, second: Second) -> None:
        lag, _, self._move = play.case.fault.partition("-")
        self._keys = LAGS[lag]
        self._play = play
        self._second = second
        self._rest: asyncio.Task[None] | None = None

    async def begin(self, exchange: Exchange) -> web.StreamResponse:
        """Pass the write, which the other server does not see, nor anything after it."""
        self._second.etcd.freeze(self._keys)
        self._rest = asyncio.create_task(self._go_on(), name="journey")
        return await exchange.forward()

    async def end(self) -> None:
        if self._rest is not None:
            await self._rest

    def cancel(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        self._second.etcd.thaw()

    async def _go_on(self) -> None:
        proxy, operator = self._play.proxy, self._play.operator
        if self._move == LATER:
            await self._quiet(enough=proxy.writes + LATER_WRITES)
        watches = self._watches()
        proxy.server = self._second.url
        if self._move == MOVED:
            proxy.cut_streams()
        else:
            operator.kill()
        await until(lambda: self._watches() > watches, "the operator watches again", limit_s=LIMIT_S)
        await self._quiet()
        self._second.etcd.thaw()

    def _watches(self) -> int:
        return sum(seen.verb == "watch" and seen.place.resource == PODS.plural for seen in self._play.proxy.history)

    async def _quiet(self, enough: int | None = None) -> None:
        """Wait until there was no write for a while, or the given number of writes."""
        proxy, clock = self._play.proxy, asyncio.get_running_loop().time
        writes, since = proxy.writes, clock()
        while clock() - since < QUIET_S and (enough is None or proxy.writes < enough):
            await asyncio.sleep(TICK_S)
            if proxy.writes != writes:
                writes, since = proxy.writes, clock()


@asynccontextmanager
async def staleness(field: Field) -> AsyncIterator[Scheme]:
    """Run the lagging API servers, one per lane, inside the block; stop the field with them."""
    free: asyncio.Queue[Second] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        for number in range(LANES):
            socket = f"localhost:{2380 + number}"
            etcd = await stack.enter_async_context(etcd_proxy(field.plane.directory / socket, field.plane.etcd_socket))
            url = await asyncio.to_thread(field.plane.start_another_apiserver, socket)
            settings = load_settings(str(field.plane.kubeconfig_for(f"test-{number}", ["system:masters"], server=url)))
            transport = await stack.enter_async_context(HttpTransport(settings))
            free.put_nowait(Second(url, etcd, RestClient(transport, request_s=REQUEST_S)))

        @asynccontextmanager
        async def arrange(play: Play) -> AsyncIterator[Callable[[], Awaitable[None]]]:
            second = await free.get()
            await second.catch_up(field)
            journey = Journey(play, second)
            assert play.case.write is not None
            play.proxy.rule(Nth(play.case.write), journey.begin)
            try:
                yield journey.end
            finally:
                journey.cancel()
                free.put_nowait(second)

        yield Scheme(FAULTS, arrange, LANES)
