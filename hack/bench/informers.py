"""Subjects `watch` and `sync`: our informer against the official client."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from hack.bench.child import Arguments, Child, MeasureError, Numbers, forget_peak, memory, once
from hack.bench.cluster import NAMESPACE
from hack.bench.playback import Player
from hack.bench.result import Result, at_least, at_most, interleaved, ratio
from hack.bench.run import PODS, Bench
from hack.bench.run import PODS as COUNT

# Subject `watch`: from the bytes of a watch to objects in a store, ours against `kubernetes.watch.Watch` with typed models.
#
# The bytes are recorded from the real server: a watch that begins with all the pods there are. They are played back in memory.
# Ours takes the whole way of production: REST client, line framing, codec, reflector, FIFO, store with two indices. The
# official one gets a line at a time, which suits its framing best, and keeps the typed objects in a dict. Time is CPU time:
# each is one thread that never waits, and other processes do not count.


WATCH_ROUNDS: Final = 7
REPEATS: Final = 5
"""Ours goes through the recording this many times a round, each time into a new store: once takes only 0.1 s."""

CHUNK: Final = 65_536
"""Bytes that arrive together. When events come faster than they are decoded our transport hands out up to 256 KB at once; when
they come slower, one at a time, speed does not matter."""

RECORD_LIMIT_S: Final = 60.0


def measure_watch(bench: Bench) -> list[Result]:
    """Record, then decode in turns."""
    count = bench.cluster.fill(PODS)
    recording = str(bench.scratch / "watch")
    bench.say(f"recording a watch of {count:,} pods")
    once(record, kubeconfig=str(bench.cluster.kubeconfig), recording=recording, count=count)
    bench.say(f"decoding the {count:,} events: ours, then the official watch, {WATCH_ROUNDS} times")
    with Child(our_watch, recording=recording) as our, Child(official_watch, recording=recording) as their:
        measured = interleaved({"ours": our.go, "official": their.go}, WATCH_ROUNDS)
    rates = {side: [numbers["rate"] for numbers in turns] for side, turns in measured.items()}
    return [
        Result("watch_decode_speedup", ratio(rates["ours"], rates["official"]), "x", at_least(60)),
        Result("watch_decode", median(rates["ours"]), "objects/s"),
        Result("watch_decode_official", median(rates["official"]), "objects/s"),
    ]


@contextmanager
def record(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """Write the bytes of a watch to a file."""
    from tfjob_operator.api.client import load_settings

    settings = load_settings(arguments["kubeconfig"])

    def run(_: Arguments) -> Numbers:
        Path(arguments["recording"]).write_bytes(asyncio.run(_record(settings, arguments["count"])))
        return {}

    yield run


async def _record(settings: Any, count: int) -> bytes:
    from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient
    from tfjob_operator.api.core import PODS as RESOURCE

    lines: list[bytes] = []
    async with HttpTransport(settings) as transport, asyncio.timeout(RECORD_LIMIT_S):
        # A watch from version 0 begins with everything that exists.
        options = ListOptions(NAMESPACE, resource_version="0")
        async with RestClient(transport).watch(RESOURCE, options) as batches:
            async for batch in batches:
                lines += batch
                if len(lines) >= count:
                    break
    return b"".join(line + b"\n" for line in lines)


@contextmanager
def our_watch(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """Prepare a whole informer over a transport that plays the recording."""
    recorded = Path(arguments["recording"]).read_bytes()
    chunks = [recorded[start : start + CHUNK] for start in range(0, len(recorded), CHUNK)]
    lines = recorded.splitlines()
    last = msgspec.json.decode(lines[-1])["object"]["metadata"]["resourceVersion"]

    def run(_: Arguments) -> Numbers:
        seconds = sum(asyncio.run(_play(chunks, last, len(lines))) for _ in range(REPEATS))
        return {"rate": REPEATS * len(lines) / seconds}

    yield run


async def _play(chunks: list[bytes], last: str, count: int) -> float:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.core import PODS as RESOURCE
    from tfjob_operator.api.meta import OWNER_INDEX, index_by_owner
    from tfjob_operator.controller.jobs.children import Pod
    from tfjob_operator.informers import Codec, ListWatch, ReflectorOptions, SharedIndexInformer

    player = Player(chunks)
    source = ListWatch(RestClient(player), Codec(RESOURCE, Pod))
    options = ReflectorOptions(stream_lists=False)  # only the changes after an empty list are measured
    informer = SharedIndexInformer(source, RESOURCE, indexers={OWNER_INDEX: index_by_owner}, options=options)
    running = asyncio.create_task(informer.run())
    await informer.wait_for_sync()
    seconds = await player.play(until=lambda: informer.indexer.resource_version == last)
    informer.stop()
    await running
    if len(informer.indexer) != count:
        raise MeasureError(f"{len(informer.indexer)} pods arrived in the store, not {count}")
    return seconds


@contextmanager
def official_watch(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """`Watch.stream` over a response that holds the recording."""
    from kubernetes import client
    from kubernetes.watch import Watch

    lines = Path(arguments["recording"]).read_bytes().splitlines(keepends=True)

    class Answer:
        status = 200

        def stream(self, **_: object) -> Iterator[bytes]:
            return iter(lines)

        def close(self) -> None:
            pass

        def release_conn(self) -> None:
            pass

    def run(_: Arguments) -> Numbers:
        store: dict[str, object] = {}
        began = time.thread_time()
        # With a time limit, it does not open the watch again when the stream ends.
        for event in Watch(client.V1Pod).stream(lambda **_: Answer(), timeout_seconds=1):
            pod = event["object"]
            store[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod
        seconds = time.thread_time() - began
        if len(store) != len(lines):
            raise MeasureError(f"{len(store)} pods arrived in the official store, not {len(lines)}")
        return {"rate": len(lines) / seconds}

    yield run


# Subject `sync`: from nothing to a full cache of 10,000 pods, ours against `kubernetes.informer.SharedInformer`.
#
# Time runs from the start of the informer until a handler has heard of every pod. Memory is how much the
# resident memory (VmRSS) has grown half a second later, from when everything was imported and one request had been made. Each
# run is a fresh process.


ROUNDS: Final = 3
SETTLE_S: Final = 0.5
SYNC_LIMIT_S: Final = 90.0


def measure_sync(bench: Bench) -> list[Result]:
    """Sync both informers, three times each."""
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
    ]


@contextmanager
def ours(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """Prepare the shared informer as the operator uses it: an index by owner beside the one by namespace, and a handler."""
    from tfjob_operator.api.client import load_settings

    settings = load_settings(arguments["kubeconfig"])
    yield lambda _: asyncio.run(_sync(settings, arguments["count"]))


async def _sync(settings: Any, count: int) -> Numbers:
    from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient
    from tfjob_operator.api.core import PODS
    from tfjob_operator.api.core_messages import POD
    from tfjob_operator.api.meta import OWNER_INDEX, index_by_owner
    from tfjob_operator.controller.jobs.children import Pod
    from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedInformerFactory

    told: list[None] = []
    async with HttpTransport(settings) as transport, asyncio.TaskGroup() as tasks:
        client = RestClient(transport)
        await client.list_page(PODS, ListOptions(namespace=NAMESPACE, limit=1))
        factory = SharedInformerFactory(client)
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
