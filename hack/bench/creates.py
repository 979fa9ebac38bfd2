"""Subject `creates`: pods created per second, by our client and by the best raw load generator.

Each has 32 requests in flight (as tasks or connections). Both are warm processes that take turns, with a few hundred pods per
turn. Bodies and raw requests are built before the measurement, which covers only the sending; our client encodes during it.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from statistics import median
from typing import Any, Final

from hack.bench.field import PODS
from hack.bench.load import CONNECTIONS, RawLoad, Target, pod_body
from hack.bench.measuring import Bench, Numbers, Result, child, interleaved, ratio

ROUNDS: Final = 21
"""The server's own speed jumps by up to 1.7x from second to second on a shared machine."""
SLICE: Final = 300
"""Pods per turn: a few tenths of a second, longer than a garbage collection of the server, shorter than its slow phases."""
FIRST: Final = 20_000
"""The number of the first pod: those before it are for other subjects."""


def measure_creates(bench: Bench) -> list[Result]:
    """Let the two take turns."""
    target, kubeconfig = bench.field.target, str(bench.field.plane.kubeconfig)
    bench.say(f"creating {SLICE} pods with {CONNECTIONS} requests at once: ours, raw, {ROUNDS} times")
    slices = count(FIRST, SLICE)
    with child(ours, kubeconfig) as our, child(raw, kubeconfig) as their:
        sides: dict[str, Callable[[], Numbers]] = {
            "ours": lambda: our(next(slices)),
            "raw": lambda: their(next(slices)),
        }
        for side in sides.values():
            side()  # opens the connections
        measured = interleaved(sides, ROUNDS)
    names = (pod_body(number)["metadata"]["name"] for number in range(FIRST, next(slices)))
    bench.field.send(target.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0") for name in names)
    rates = {name: [SLICE / numbers["seconds"] for numbers in turns] for name, turns in measured.items()}
    return [
        Result("create_vs_raw", ratio(rates["ours"], rates["raw"]), "x", ">= 0.8"),
        *(Result(f"create_{name}", median(rates[name]), "pods/s") for name in rates),
        *(
            Result(f"create_{name}_cpu", median(turn["cpu"] for turn in turns) / SLICE * 1e6, "us/pod")
            for name, turns in measured.items()
        ),
    ]


def ours(kubeconfig: str) -> Callable[[int], Numbers]:
    """Prepare `api.client`, one task for each request under way."""
    from tfjob_operator.api.client import HttpTransport, RestClient, load_settings
    from tfjob_operator.api.core import PODS as RESOURCE

    runner = asyncio.Runner()
    transport = HttpTransport(load_settings(kubeconfig))
    client = RestClient(transport, field_manager="bench")
    runner.run(transport.__aenter__())

    async def create(first: int) -> Numbers:
        waiting = iter(_bodies(first))

        async def work() -> None:
            for body in waiting:
                await client.create(RESOURCE, "bench", body)

        with _timed() as numbers:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(CONNECTIONS):
                    tasks.create_task(work())
        return numbers

    return lambda first: runner.run(create(first))


def raw(kubeconfig: str) -> Callable[[int], Numbers]:
    """Prepare `RawLoad`, one connection for each request under way."""
    target = Target.of(kubeconfig)
    load = RawLoad(target)

    def create(first: int) -> Numbers:
        requests = [target.request("POST", PODS, body) for body in _bodies(first)]
        with _timed() as numbers:
            load.send(requests)
        return numbers

    return create


def _bodies(first: int) -> list[dict[str, Any]]:
    return [pod_body(number) for number in range(first, first + SLICE)]


@contextmanager
def _timed() -> Iterator[Numbers]:
    """Measure wall time and this process's CPU time of the block."""
    numbers: Numbers = {}
    wall, cpu = time.perf_counter(), time.process_time()
    yield numbers
    numbers |= {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
