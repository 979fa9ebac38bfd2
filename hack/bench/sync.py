"""Subject `sync`: from nothing to a full cache of 10,000 pods, ours against `kubernetes.informer.SharedInformer`.

Time runs from the start of the informer until a handler has heard of every pod. Memory is how much the
resident memory (VmRSS) has grown half a second later, from when everything was imported and one request had been made. Each
run is a fresh process.

Then our informer starts by a list and by a stream (RF-27), to see in the peaks (VmHWM) what a start holds besides the cache.
Where the server has no streaming lists, both come from `hack.bench.stand_in`, which sends this server's bytes.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, Final

from hack.bench.bench import PODS as COUNT
from hack.bench.bench import Bench
from hack.bench.child import Arguments, Child, MeasureError, Numbers, forget_peak, memory, once
from hack.bench.cluster import NAMESPACE
from hack.bench.measure import interleaved, ratio
from hack.bench.result import Result, at_least, at_most
from hack.bench.stand_in import stand_in
from hack.bench.watching import record

ROUNDS: Final = 3
SETTLE_S: Final = 0.5
SYNC_LIMIT_S: Final = 90.0


def measure(bench: Bench) -> list[Result]:
    """Sync both informers, three times each; then compare the two ways in which ours can start."""
    count = bench.cluster.fill(COUNT)
    page = bench.cluster.page(500)
    bench.say(
        f"syncing {count:,} pods of {len(page) / 500 / 1000:.1f} KB: ours, then the official informer, {ROUNDS} times"
    )
    arguments = {"kubeconfig": str(bench.cluster.kubeconfig), "count": count}
    measured = interleaved(
        {"ours": lambda: once(ours, **arguments), "official": lambda: once(official, **arguments)}, ROUNDS
    )

    def column(side: str, name: str) -> list[float]:
        return [numbers[name] for numbers in measured[side]]

    by_list, by_stream = _both_ways(bench, count)

    def peaks(ways: list[Numbers]) -> list[float]:
        return [numbers["peak"] for numbers in ways]

    return [
        Result("pod_json_size", len(page) / 500 / 1000, "KB"),
        Result(
            "informer_sync_speedup", ratio(column("official", "seconds"), column("ours", "seconds")), "x", at_least(6)
        ),
        Result(
            "informer_memory_ratio", ratio(column("ours", "grown"), column("official", "grown")), "x", at_most(1 / 15)
        ),
        Result("informer_sync", median(column("ours", "seconds")), "s"),
        Result("informer_sync_official", median(column("official", "seconds")), "s"),
        Result("informer_memory", median(column("ours", "grown")), "MB VmRSS"),
        Result("informer_memory_official", median(column("official", "grown")), "MB VmRSS"),
        Result("informer_peak", median(column("ours", "peak")), "MB VmHWM"),
        Result("informer_peak_official", median(column("official", "peak")), "MB VmHWM"),
        Result("informer_start_peak_ratio", ratio(peaks(by_list), peaks(by_stream)), "x by list", at_most(1.3)),
        Result("informer_start_peak_by_list", median(peaks(by_list)), "MB VmHWM"),
        Result("informer_start_peak_by_stream", median(peaks(by_stream)), "MB VmHWM"),
        Result("informer_start_memory_by_stream", median(numbers["grown"] for numbers in by_stream), "MB VmRSS"),
        Result("informer_start_by_list", median(numbers["seconds"] for numbers in by_list), "s"),
        Result("informer_start_by_stream", median(numbers["seconds"] for numbers in by_stream), "s"),
    ]


def _both_ways(bench: Bench, count: int) -> tuple[list[Numbers], list[Numbers]]:
    """Start ours by a list and by a stream, in turns."""
    with ExitStack() as stack:
        arguments: dict[str, Any] = {"kubeconfig": str(bench.cluster.kubeconfig), "count": count}
        who = "the server"
        if not bench.cluster.has_streaming_lists:
            who = "a stand-in with the server's bytes"
            listed, events = bench.scratch / "list", bench.scratch / "events"
            listed.write_bytes(bench.cluster.all())
            once(record, kubeconfig=str(bench.cluster.kubeconfig), recording=str(events), count=count)
            server = stack.enter_context(Child(stand_in, list=str(listed), watch=str(events)))
            arguments["server"] = f"http://127.0.0.1:{server.go()['port']:.0f}"
        bench.say(f"starting ours by a list and by a stream of {who}, {ROUNDS} times")
        ways = interleaved(
            {
                "list": lambda: once(ours, **arguments, stream_lists=False),
                "stream": lambda: once(ours, **arguments, stream_lists=True),
            },
            ROUNDS,
        )
    return ways["list"], ways["stream"]


@contextmanager
def ours(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """Prepare the shared informer as the operator uses it: an index by owner beside the one by namespace, and a handler."""
    from tfjob_operator.api.client import Settings, load_settings

    server = arguments.get("server")
    settings = Settings(server) if server else load_settings(arguments["kubeconfig"])
    yield lambda _: asyncio.run(_sync(settings, arguments["count"], stream_lists=arguments.get("stream_lists", True)))


async def _sync(settings: Any, count: int, *, stream_lists: bool) -> Numbers:
    from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient
    from tfjob_operator.api.core import PODS
    from tfjob_operator.api.core_messages import POD
    from tfjob_operator.api.meta import OWNER_INDEX, index_by_owner
    from tfjob_operator.controller.jobs.children import Pod
    from tfjob_operator.informers import Codec, EventHandlerFuncs, ReflectorOptions, SharedInformerFactory

    told: list[None] = []
    async with HttpTransport(settings) as transport, asyncio.TaskGroup() as tasks:
        client = RestClient(transport)
        await client.list_page(PODS, ListOptions(namespace=NAMESPACE, limit=1))
        factory = SharedInformerFactory(client, options=ReflectorOptions(stream_lists=stream_lists))
        codec = Codec(PODS, Pod, message=POD)
        informer = factory.informer(codec, namespace=NAMESPACE, indexers={OWNER_INDEX: index_by_owner})
        handler = EventHandlerFuncs[Pod](on_add=lambda _pod, _initial: told.append(None))
        registration = informer.add_event_handler(handler)
        growth = _Growth()
        factory.start(tasks)
        await registration.wait_for_sync()
        seconds = growth.seconds()
        await asyncio.sleep(SETTLE_S)
        numbers = growth.numbers(seconds)
        await factory.shut_down()
    if not len(told) == len(informer.indexer) == count:
        raise MeasureError(f"our informer told of {len(told)} pods and holds {len(informer.indexer)}, not {count}")
    return numbers


@contextmanager
def official(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """Prepare the `kubernetes` package's informer, with a handler. It cannot be stopped cleanly; the process is killed."""
    from kubernetes import client, config
    from kubernetes.informer import ADDED, SharedInformer

    config.load_kube_config(arguments["kubeconfig"])
    core = client.CoreV1Api()
    core.list_namespaced_pod(NAMESPACE, limit=1)
    complete = threading.Event()
    told: list[None] = []

    def on_added(_pod: object) -> None:
        told.append(None)
        if len(told) == arguments["count"]:
            complete.set()

    def sync(_: Arguments) -> Numbers:
        informer = SharedInformer(core.list_namespaced_pod, namespace=NAMESPACE)
        informer.add_event_handler(ADDED, on_added)
        growth = _Growth()
        informer.start()
        if not complete.wait(SYNC_LIMIT_S):
            raise MeasureError(f"the official informer told of {len(told)} pods within {SYNC_LIMIT_S:.0f} s")
        seconds = growth.seconds()
        time.sleep(SETTLE_S)
        return growth.numbers(seconds)

    yield sync


class _Growth:
    """Time and memory since this object was made."""

    def __init__(self) -> None:
        forget_peak()
        self._before = memory()
        self._began = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def numbers(self, seconds: float) -> Numbers:
        now = memory()
        return {
            "seconds": seconds,
            "grown": now["rss"] - self._before["rss"],
            "peak": now["peak"] - self._before["rss"],
        }
