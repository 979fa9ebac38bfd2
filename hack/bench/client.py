"""Subject `client`: what each trick of the connection gains, by switching it off.

The server does nothing but respond over TLS, in a process of its own, so what is measured is the CPU time of the client: of all
of `RestClient.create`, and of reading a long list. The variants run in processes of their own, too, and take turns.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from mmap import mmap
from pathlib import Path
from statistics import median
from typing import Any, Final

from hack.bench.bench import Bench
from hack.bench.child import Arguments, Child, Numbers, memory
from hack.bench.cluster import CONNECTIONS, NAMESPACE
from hack.bench.measure import interleaved, ratio
from hack.bench.pods import pod_body
from hack.bench.result import Result, at_least
from hack.control_plane.run.pki import Authority
from tfjob_operator.api.client import RestClient

NOW: Final = "as_it_is"
ROUNDS: Final = 15
CREATES: Final = 2_000
LISTS: Final = 5
"""As many lists are read at once, as by the informers of an operator that starts."""
WORTH_IT: Final = at_least(1.1)
"""A trick that gains less than a tenth is not worth its lines."""
FOR_MEMORY: Final = {"own_buffers"}
"""Tricks that make nothing faster, but keep an idle operator small. They take no more lines than doing without."""
WORTH_KEEPING: Final = at_least(1.0)
"""In MB: 1 MB is 3 % of an idle operator's memory."""


def measure(bench: Bench) -> list[Result]:
    """Let the variants take turns, each once with creates and once with lists."""
    bench.say(f"{CREATES} creates and {LISTS} lists of 5 MB from a server that does nothing, {ROUNDS} times each way")
    authority = Authority.make(bench.scratch)
    credential = authority.server("idle", ["127.0.0.1"])
    with ExitStack() as stack:
        served = stack.enter_context(
            Child(server, certificate=str(credential.certificate), key=str(credential.key), pod=pod_body(0, NAMESPACE))
        ).go()
        children = {
            name: stack.enter_context(
                Child(client, variant=name, port=int(served["port"]), authority=str(authority.certificate))
            )
            for name in VARIANTS
        }
        for child in children.values():
            child.go(verb="create", count=CONNECTIONS)  # opens the connections
        turns = {
            f"{verb} {name}": partial(child.go, verb=verb, count=count)
            for verb, count in (("create", CREATES), ("list", LISTS))
            for name, child in children.items()
        }
        measured = interleaved(turns, ROUNDS)
    cpu = {name: [numbers["cpu"] for numbers in all_] for name, all_ in measured.items()}
    rss = {name: median(numbers["rss"] for numbers in all_) for name, all_ in measured.items()}
    results = [
        Result("client_create_cpu", median(cpu[f"create {NOW}"]) / CREATES * 1e6, "us"),
        Result("client_list_cpu", median(cpu[f"list {NOW}"]) / LISTS * 1e3, "ms"),
    ]
    for name in [name for name in VARIANTS if name != NOW]:
        slower = {verb: ratio(cpu[f"{verb} {name}"], cpu[f"{verb} {NOW}"]) for verb in ("create", "list")}
        more = rss[f"list {name}"] - rss[f"list {NOW}"]
        results += [
            Result(f"client_{name}_gain", max(slower.values()), "x", None if name in FOR_MEMORY else WORTH_IT),
            *(Result(f"client_{name}_{verb}", value, "x") for verb, value in slower.items()),
            Result(f"client_{name}_memory", more, "MB more", WORTH_KEEPING if name in FOR_MEMORY else None),
        ]
    return results


# The variants; each switches one trick off


def _as_it_is() -> None:
    pass


def _a_timer_for_each_exchange() -> None:
    """Set a timer for each exchange, instead of keeping one that checks, when it fires, whether the deadline was moved."""
    from tfjob_operator.api.client.http import connection

    class Deadline:
        def __init__(self, loop: asyncio.AbstractEventLoop, expire: Callable[[], None]) -> None:
            self._loop = loop
            self._expire = expire
            self._timer: asyncio.TimerHandle | None = None

        def set(self, at: float) -> None:
            self.cancel()
            if at < math.inf:
                self._timer = self._loop.call_at(at, self._expire)

        def cancel(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    module: Any = connection
    module.Deadline = Deadline


def _a_buffer_for_each_connection() -> None:
    """Give each connection a buffer, instead of one to all of them."""
    from tfjob_operator.api.client.http import connection
    from tfjob_operator.api.client.http import transport as making

    class Connection(connection.Connection):
        def __init__(self, buffer: memoryview, *rest: Any) -> None:
            super().__init__(memoryview(mmap(-1, len(buffer))), *rest)

    module: Any = making
    module.Connection = Connection


def _bytes_instead_of_a_buffer() -> None:
    """Read in asyncio's usual way, in which each read makes a new bytes object."""
    from tfjob_operator.api.client.http import connection
    from tfjob_operator.api.client.http import transport as making

    class Copying(asyncio.Protocol):
        def __init__(self, inner: connection.Connection) -> None:
            self._inner: Any = inner

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._inner.connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            self._inner.connection_lost(exc)

        def eof_received(self) -> None:
            self._inner.eof_received()

        def data_received(self, data: bytes) -> None:
            self._inner._buffer = memoryview(data)  # noqa: SLF001 - as below
            self._inner.buffer_updated(len(data))

    shared: Any = making.Dialer
    adopt = shared._adopt  # noqa: SLF001 - there is no public way to switch this off

    async def copying(self: Any, protocol: Callable[[], Any], *rest: Any) -> None:
        await adopt(self, lambda: Copying(protocol()), *rest)

    shared._adopt = copying  # noqa: SLF001


VARIANTS: Final[dict[str, Callable[[], None]]] = {
    NOW: _as_it_is,
    "own_timers": _a_timer_for_each_exchange,
    "own_buffers": _a_buffer_for_each_connection,
    "no_buffer": _bytes_instead_of_a_buffer,
}


@contextmanager
def client(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """One variant of `api.client`."""
    VARIANTS[arguments["variant"]]()
    from tfjob_operator.api.client import HttpTransport, RestClient, Settings
    from tfjob_operator.api.client.auth.credentials import Trust
    from tfjob_operator.api.client.http import Credentials, FixedCredentials

    trust = Trust(Path(arguments["authority"]).read_text())
    settings = Settings(
        f"https://127.0.0.1:{arguments['port']}", FixedCredentials(Credentials("Bearer t", trust.context()))
    )
    with asyncio.Runner() as runner:
        transport = HttpTransport(settings)
        runner.run(transport.__aenter__())
        rest = RestClient(transport, field_manager="bench")

        def turn(arguments: Arguments) -> Numbers:
            work = _create if arguments["verb"] == "create" else _list
            began = time.process_time()
            runner.run(work(rest, arguments["count"]))
            return {"cpu": time.process_time() - began, "rss": memory()["rss"]}

        yield turn
        runner.run(transport.__aexit__(None, None, None))


async def _create(rest: RestClient, count: int) -> None:
    from tfjob_operator.api.core import PODS

    body = pod_body(0, NAMESPACE)
    left = iter(range(count))

    async def work() -> None:
        for _ in left:
            await rest.create(PODS, NAMESPACE, body)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CONNECTIONS):
            tasks.create_task(work())


async def _list(rest: RestClient, count: int) -> None:
    from tfjob_operator.api.client import ListOptions
    from tfjob_operator.api.core import PODS

    async def take(chunks: AsyncIterator[bytes]) -> None:
        async for _ in chunks:
            pass

    await asyncio.gather(*(rest.read_list(PODS, ListOptions(), take) for _ in range(count)))


@contextmanager
def server(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """Respond to a POST with a pod, and to anything else with a list of pods of 5 MB."""
    import json

    pod = json.dumps(arguments["pod"]).encode()
    listed = b'{"items":[' + b",".join([pod] * (5_000_000 // len(pod))) + b"]}"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    created, list_ = head % len(pod) + pod, head % len(listed) + listed

    class Idle(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport: Any = transport
            self._heard = b""

        def data_received(self, data: bytes) -> None:
            self._heard += data
            head, end, body = self._heard.partition(b"\r\n\r\n")
            wanted = int(head.rpartition(b"Content-Length: ")[2].partition(b"\r\n")[0]) if head[:4] == b"POST" else 0
            if end and len(body) >= wanted:
                self._heard = b""
                self._transport.write(created if wanted else list_)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(arguments["certificate"], arguments["key"])
    loop = asyncio.new_event_loop()
    listening = loop.run_until_complete(loop.create_server(Idle, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield lambda _: {"port": listening.sockets[0].getsockname()[1]}
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
