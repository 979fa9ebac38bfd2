"""Subjects `watch` and `sync`: our informer against the official client."""

# mypy: disallow-untyped-calls=False
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from hack.bench.field import memory
from hack.bench.load import MeasureError
from hack.bench.measuring import Bench, Numbers, Result, child, interleaved, once, ratio
from hack.bench.playback import Player

COUNT: Final = 10_000
"""As many pods as a large training cluster has."""

# Subject `watch`: from the bytes of a watch to objects in a store, ours against `kubernetes.watch.Watch` with typed models.
#
# The bytes are recorded from the real server: a watch that begins with all the pods there are. They are played back in memory.
# Ours runs the full production path: REST client, line framing, codec, reflector, FIFO, store with two indices. The
# official one gets a line at a time, which suits its framing best, and keeps the typed objects in a dict. Time is CPU time:
# each is one thread that never waits, and other processes do not count.


WATCH_ROUNDS: Final = 7
REPEATS: Final = 5
"""Ours goes through the recording this many times a round, each time into a new store: once takes only 0.1 s."""

CHUNK: Final = 65_536
"""Bytes that arrive together. When events come faster than they are decoded our transport hands out up to 256 KB at once; when
they come slower, one at a time, speed does not matter."""


def measure_watch(bench: Bench) -> list[Result]:
    """Record, then decode in turns."""
    bench.say(f"creating {COUNT:,} pods, and recording a watch of them")
    bench.field.fill(COUNT)
    recording = bench.scratch / "watch"
    recording.write_bytes(asyncio.run(_record(str(bench.field.plane.kubeconfig))))
    bench.say(f"decoding the events: ours, then the official watch, {WATCH_ROUNDS} times")
    with child(our_watch, recording) as our, child(official_watch, recording) as their:
        measured = interleaved({"ours": our, "official": their}, WATCH_ROUNDS)
    rates = {side: [numbers["rate"] for numbers in turns] for side, turns in measured.items()}
    return [
        Result("watch_decode_speedup", ratio(rates["ours"], rates["official"]), "x", ">= 60"),
        Result("watch_decode", median(rates["ours"]), "objects/s"),
        Result("watch_decode_official", median(rates["official"]), "objects/s"),
    ]


async def _record(kubeconfig: str) -> bytes:
    from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient, load_settings
    from tfjob_operator.api.core import PODS

    lines: list[bytes] = []
    options = ListOptions("bench", resource_version="0")  # such a watch begins with everything that exists
    async with (
        HttpTransport(load_settings(kubeconfig)) as transport,
        asyncio.timeout(60.0),
        RestClient(transport).watch(PODS, options) as batches,
    ):
        async for batch in batches:
            lines += batch
            if len(lines) >= COUNT:
                break
    return b"".join(line + b"\n" for line in lines)


def our_watch(recording: Path) -> Callable[[], Numbers]:
    """Prepare a whole informer over a transport that plays the recording."""
    recorded = recording.read_bytes()
    chunks = [recorded[start : start + CHUNK] for start in range(0, len(recorded), CHUNK)]
    lines = recorded.splitlines()
    last = msgspec.json.decode(lines[-1])["object"]["metadata"]["resourceVersion"]
    return lambda: {"rate": REPEATS * len(lines) / sum(asyncio.run(_play(chunks, last)) for _ in range(REPEATS))}


async def _play(chunks: list[bytes], last: str) -> float:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.core import PODS
    from tfjob_operator.api.meta import OWNER_INDEX, index_by_owner
    from tfjob_operator.controller.jobs.children import Pod
    from tfjob_operator.informers import Codec, ListWatch, ReflectorOptions, SharedIndexInformer

    player = Player(chunks)
    source = ListWatch(RestClient(player), Codec(PODS, Pod))
    options = ReflectorOptions(stream_lists=False)  # only the changes after an empty list are measured
    informer = SharedIndexInformer(source, PODS, indexers={OWNER_INDEX: index_by_owner}, options=options)
    running = asyncio.create_task(informer.run())
    await informer.wait_for_sync()
    seconds = await player.play(until=lambda: informer.indexer.resource_version == last)
    informer.stop()
    await running
    return seconds


def official_watch(recording: Path) -> Callable[[], Numbers]:
    """Prepare `Watch.stream` over a response that holds the recording."""
    from kubernetes import client
    from kubernetes.watch import Watch

    lines = recording.read_bytes().splitlines(keepends=True)

    class Answer:
        status = 200

        def stream(self, **_: object) -> Iterator[bytes]:
            return iter(lines)

        def close(self) -> None:
            pass

        release_conn = close

    def run() -> Numbers:
        store: dict[str, object] = {}
        began = time.thread_time()
        # With a time limit, it does not open the watch again when the stream ends.
        for event in Watch(client.V1Pod).stream(lambda **_: Answer(), timeout_seconds=1):
            pod = event["object"]
            store[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod
        return {"rate": len(store) / (time.thread_time() - began)}

    return run


# Subject `sync`: from nothing to a full cache of 10,000 pods, ours against `kubernetes.informer.SharedInformer`.
#
# Time runs from the start of the informer until a handler has heard of every pod. Memory is the growth of
# the resident memory (VmRSS) between two moments: everything is imported and one request was made; half a second after the
# end. Each run is a fresh process.


ROUNDS: Final = 3
SETTLE_S: Final = 0.5


def measure_sync(bench: Bench) -> list[Result]:
    """Sync both informers, three times each."""
    bench.say(f"creating {COUNT:,} pods, and syncing: ours, then the official informer, {ROUNDS} times")
    bench.field.fill(COUNT)
    kubeconfig = str(bench.field.plane.kubeconfig)
    sides = {"ours": lambda: once(ours, kubeconfig), "official": lambda: once(official, kubeconfig)}
    measured = interleaved(sides, ROUNDS)

    def column(side: str, name: str) -> list[float]:
        return [numbers[name] for numbers in measured[side]]

    return [
        Result("informer_sync_speedup", ratio(column("official", "seconds"), column("ours", "seconds")), "x", ">= 6"),
        Result("informer_memory_ratio", ratio(column("ours", "grown"), column("official", "grown")), "x", "<= 0.0667"),
        *(
            Result(f"informer_{name}{suffix}", median(column(side, key)), unit)
            for name, key, unit in (
                ("sync", "seconds", "s"),
                ("memory", "grown", "MB VmRSS"),
                ("peak", "peak", "MB VmHWM"),
            )
            for side, suffix in (("ours", ""), ("official", "_official"))
        ),
    ]


def ours(kubeconfig: str) -> Callable[[], Numbers]:
    """Prepare the shared informer as the operator uses it: an index by owner beside the one by namespace, and a handler."""
    from tfjob_operator.api.client import load_settings

    settings = load_settings(kubeconfig)
    return lambda: asyncio.run(_sync(settings))


async def _sync(settings: Any) -> Numbers:
    from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient
    from tfjob_operator.api.core import PODS
    from tfjob_operator.api.core_messages import POD
    from tfjob_operator.api.meta import OWNER_INDEX, index_by_owner
    from tfjob_operator.controller.jobs.children import Pod
    from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedInformerFactory

    added: list[None] = []
    async with HttpTransport(settings) as transport, asyncio.TaskGroup() as tasks:
        client = RestClient(transport)
        await client.list_page(PODS, ListOptions(namespace="bench", limit=1))
        factory = SharedInformerFactory(client)
        informer = factory.informer(
            Codec(PODS, Pod, message=POD), namespace="bench", indexers={OWNER_INDEX: index_by_owner}
        )
        registration = informer.add_event_handler(
            EventHandlerFuncs[Pod](on_add=lambda _pod, _initial: added.append(None))
        )
        growth = _Growth()
        factory.start(tasks)
        await registration.wait_for_sync()
        growth.stop()
        await asyncio.sleep(SETTLE_S)
        numbers = growth.numbers()
        await factory.shut_down()
    if len(added) != COUNT:
        raise MeasureError(f"our informer added {len(added)} pods, not {COUNT}")
    return numbers


def official(kubeconfig: str) -> Callable[[], Numbers]:
    """Prepare the `kubernetes` package's informer, with a handler. It cannot be stopped cleanly; the process is killed."""
    from kubernetes import client, config
    from kubernetes.informer import ADDED, SharedInformer

    config.load_kube_config(kubeconfig)
    core = client.CoreV1Api()
    core.list_namespaced_pod("bench", limit=1)
    complete = threading.Event()
    added: list[None] = []

    def on_added(_pod: object) -> None:
        added.append(None)
        if len(added) == COUNT:
            complete.set()

    def sync() -> Numbers:
        informer = SharedInformer(core.list_namespaced_pod, namespace="bench")
        informer.add_event_handler(ADDED, on_added)
        growth = _Growth()
        informer.start()
        if not complete.wait(250.0):
            raise MeasureError(f"the official informer added {len(added)} pods within 250 s")
        growth.stop()
        time.sleep(SETTLE_S)
        return growth.numbers()

    return sync


class _Growth:
    """Time and memory since this object was made."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # this resets the peak to the memory that is currently resident
        self._before = memory()["rss"]
        self._began = time.perf_counter()

    def stop(self) -> None:
        self._seconds = time.perf_counter() - self._began

    def numbers(self) -> Numbers:
        now = memory()
        return {"seconds": self._seconds, "grown": now["rss"] - self._before, "peak": now["peak"] - self._before}
