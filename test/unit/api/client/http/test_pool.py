"""Pool: which request is next, which connection it gets, and that no slot is ever lost."""

import asyncio
import ssl
from typing import cast

import pytest

from tfjob_operator.api.client.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from tfjob_operator.api.client.http.connection import Connection
from tfjob_operator.api.client.http.transport import Pool

FAR = 1000.0


class FakeConnection:
    """The part of a connection that the pool uses."""

    def __init__(self, number: int, context: ssl.SSLContext | None) -> None:
        self.number = number
        self.context = context
        self.owner: Pool | None = None
        self.gone = False
        self.error: Exception | None = None

    def abort(self) -> None:
        if not self.gone:
            self.gone = True
            if self.owner is not None:
                self.owner.lost(cast("Connection", self))
                asyncio.get_running_loop().call_soon(self.owner.closed, cast("Connection", self))

    def fail(self, error: Exception) -> None:
        self.error = error
        self.abort()


class Bench:
    """A pool, and the connections that it made. Dialing takes `dial_s` seconds and fails with `error`."""

    def __init__(self, *, max_connections: int = 0, pool_s: float = 20.0, dial_s: float = 0.0) -> None:
        self.made: list[FakeConnection] = []
        self.dial_s = dial_s
        self.error: Exception | None = None
        self.pool = Pool(self._dial, max_connections=max_connections, pool_s=pool_s)

    async def _dial(self, context: ssl.SSLContext | None) -> Connection:
        await asyncio.sleep(self.dial_s)
        if self.error is not None:
            raise self.error
        self.made.append(FakeConnection(len(self.made), context))
        return cast("Connection", self.made[-1])

    async def get(
        self, *, until: float = FAR, fresh: bool = False, context: ssl.SSLContext | None = None
    ) -> FakeConnection:
        taken = None if fresh else self.pool.take(context)
        return cast("FakeConnection", taken or await self.pool.acquire(context, until, fresh=fresh))

    def give_back(self, *connections: FakeConnection) -> None:
        for connection in connections:
            self.pool.released(cast("Connection", connection))


async def test_the_connection_that_was_used_last_is_used_next_unless_a_fresh_one_is_wanted() -> None:
    """So surplus connections stay idle and can be closed, and the used ones seldom hit a server's idle limit."""
    bench = Bench()
    bench.give_back(await bench.get(), await bench.get())
    assert [(await bench.get(fresh=fresh)).number for fresh in (False, True, False, False)] == [1, 2, 0, 3]


async def test_a_place_goes_to_whoever_waited_longest() -> None:
    """No request overtakes another: neither one in the queue nor a new one that comes when a connection becomes free."""
    bench = Bench(max_connections=1)
    connection = await bench.get()
    order: list[str] = []

    async def use(name: str) -> None:
        got = await bench.get()
        order.append(name)
        await asyncio.sleep(1)
        bench.give_back(got)

    waiting = [asyncio.create_task(use(name)) for name in "abc"]
    await asyncio.sleep(0)
    bench.give_back(connection)
    assert bench.pool.take(None) is None
    late = asyncio.create_task(use("late"))
    await asyncio.wait([*waiting, late])
    assert order == ["a", "b", "c", "late"]
    assert len(bench.made) == 1


async def test_no_more_connections_are_open_at_once_than_allowed() -> None:
    bench = Bench(max_connections=3, dial_s=0.1)
    busy = most = 0

    async def use() -> None:
        nonlocal busy, most
        got = await bench.get()
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(1)
        busy -= 1
        bench.give_back(got)

    await asyncio.gather(*(use() for _ in range(20)))
    assert (most, len(bench.made)) == (3, 3)


async def test_the_wait_for_a_place_and_a_connection_has_one_limit() -> None:
    """With a full pool the request was never sent, and the error says so instead of blaming the server."""
    bench = Bench(max_connections=1, pool_s=20.0, dial_s=15.0)
    first = asyncio.create_task(bench.get())
    await asyncio.sleep(0)
    with pytest.raises(ConnectError, match="connection timed out"):
        await bench.get()
    assert asyncio.get_running_loop().time() == 20
    bench.give_back(await first)


async def test_the_limit_of_the_exchange_holds_in_line_too() -> None:
    bench = Bench(max_connections=1)
    await bench.get()
    with pytest.raises(RequestTimeoutError):
        await bench.get(until=5.0)
    assert asyncio.get_running_loop().time() == 5


@pytest.mark.parametrize("moment", ["in line", "with the place given", "while the connection is made"])
async def test_whoever_gives_up_takes_no_place_along(moment: str) -> None:
    bench = Bench(max_connections=1)
    connection = await bench.get()
    waiting = asyncio.create_task(bench.get(fresh=True))
    await asyncio.sleep(0)
    if moment != "in line":
        bench.dial_s = 10.0
        bench.give_back(connection)
    if moment == "while the connection is made":
        await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.wait([waiting])
    bench.dial_s = 0.0
    if moment == "in line":
        bench.give_back(connection)
    async with asyncio.timeout(1):
        assert await bench.get() is connection


async def test_a_connection_that_can_not_be_made_takes_no_place() -> None:
    bench = Bench(max_connections=1)
    bench.error = ConnectError("refused")
    for _ in range(3):
        with pytest.raises(ConnectError, match="refused"):
            await bench.get()
    bench.error = None
    assert (await bench.get()).number == 0


async def test_a_connection_that_is_lost_is_not_lent_out_and_frees_its_place() -> None:
    bench = Bench(max_connections=1)
    idle = await bench.get()
    bench.give_back(idle)
    idle.abort()
    used = await bench.get()
    assert used is not idle
    waiting = asyncio.create_task(bench.get())
    await asyncio.sleep(0)
    used.abort()
    assert (await waiting).number == 2


async def test_a_connection_that_breaks_while_it_is_made_is_a_connect_error() -> None:
    bench = Bench(max_connections=1)

    async def dial(context: ssl.SSLContext | None) -> Connection:
        dead = FakeConnection(0, context)
        dead.abort()
        return cast("Connection", dead)

    bench.pool._dial = dial
    for _ in range(2):
        with pytest.raises(ConnectError, match="closed the connection"):
            await bench.get()


async def test_what_was_made_with_other_credentials_is_closed_and_not_used() -> None:
    """A connection authenticates with the certificate of its handshake, so one with the old certificate must not be used."""
    old, new = ssl.create_default_context(), ssl.create_default_context()
    bench = Bench()
    connections = [await bench.get(context=old) for _ in range(3)]
    bench.give_back(*connections)
    assert (await bench.get(context=new)).number == 3
    assert all(connection.gone for connection in connections)


async def test_closing_ends_whatever_is_under_way() -> None:
    bench = Bench(max_connections=3)
    idle, busy, _ = [await bench.get() for _ in range(3)]
    bench.give_back(idle)
    bench.dial_s = 100.0
    making = asyncio.create_task(bench.get(fresh=True))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(bench.get())
    await asyncio.sleep(0)
    await bench.pool.aclose()
    assert isinstance(busy.error, ConnectionLostError)  # the server may have acted
    for ended in (making, waiting, asyncio.create_task(bench.get())):
        with pytest.raises(ConnectError, match="the transport was closed"):
            await ended
    assert all(connection.gone for connection in bench.made)
    assert asyncio.get_running_loop().time() == 0
