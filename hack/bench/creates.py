"""Subject `creates`: pods created per second, by our client, by the best raw load generator, by the typed official client.

Each has as many requests under way at once as the others (32: tasks, connections, threads), and all three are warm processes
that take turns with a few hundred pods each. Bodies and requests are made before the measured time, which covers only the
sending. A client that encodes the bodies itself does that within this time.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

from hack.bench.child import Arguments, Child, Numbers
from hack.bench.cluster import CONNECTIONS, NAMESPACE, RawLoad, Target, create_requests, pod_body
from hack.bench.result import Result, at_least, interleaved, ratio
from hack.bench.run import Bench

ROUNDS: Final = 21
"""The server's own speed jumps by up to 1.7x from second to second on a shared machine."""
SLICE: Final = 300
"""Pods per turn: a few tenths of a second, longer than a garbage collection of the server, shorter than its slow phases."""


def measure_creates(bench: Bench) -> list[Result]:
    """Let the three take turns."""
    cluster = bench.cluster
    kubeconfig = str(cluster.kubeconfig)
    bench.say(f"creating {SLICE} pods with {CONNECTIONS} requests at once: ours, raw, typed, {ROUNDS} times")
    with ExitStack() as stack:
        children = {
            name: stack.enter_context(Child(side, kubeconfig=kubeconfig))
            for name, side in (("ours", ours), ("raw", raw), ("typed", typed))
        }

        def turn(name: str, count: int = SLICE) -> Numbers:
            return children[name].go(first=cluster.take(count), count=count)

        for name in children:
            turn(name, CONNECTIONS)  # opens the connections
        measured = interleaved({name: partial(turn, name) for name in children}, ROUNDS)
    cluster.clear()
    rates = {name: [SLICE / numbers["seconds"] for numbers in turns] for name, turns in measured.items()}
    return [
        Result("create_vs_raw", ratio(rates["ours"], rates["raw"]), "x", at_least(0.8)),
        Result("create_vs_typed", ratio(rates["ours"], rates["typed"]), "x", at_least(1.7)),
        *(Result(f"create_{name}", median(rates[name]), "pods/s") for name in rates),
        *(
            Result(f"create_{name}_cpu", median(turn["cpu"] for turn in turns) / SLICE * 1e6, "us/pod")
            for name, turns in measured.items()
        ),
    ]


@contextmanager
def ours(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """`api.client`, one task for each request under way."""
    from tfjob_operator.api.client import HttpTransport, RestClient, load_settings

    settings = load_settings(arguments["kubeconfig"])
    with asyncio.Runner() as runner:
        transport = HttpTransport(settings)
        client = RestClient(transport, field_manager="bench")
        runner.run(transport.__aenter__())
        yield lambda slice_: runner.run(_create(client, _bodies(slice_)))
        runner.run(transport.__aexit__(None, None, None))


async def _create(client: Any, bodies: list[dict[str, Any]]) -> Numbers:
    from tfjob_operator.api.core import PODS

    waiting = iter(bodies)

    async def work() -> None:
        for body in waiting:
            await client.create(PODS, NAMESPACE, body)

    with _Stopwatch() as watch:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONNECTIONS):
                tasks.create_task(work())
    return watch.numbers


@contextmanager
def raw(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """`RawLoad`, one connection for each request under way."""
    target = Target.of(Path(arguments["kubeconfig"]))
    with RawLoad(target, CONNECTIONS) as load:

        def create(slice_: Arguments) -> Numbers:
            requests = create_requests(target, range(slice_["first"], slice_["first"] + slice_["count"]))
            with _Stopwatch() as watch:
                load.send(requests)
            return watch.numbers

        yield create


@contextmanager
def typed(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """Prepare the `kubernetes` package's `CoreV1Api` with its models, one thread for each request under way."""
    from kubernetes import client, config

    config.load_kube_config(arguments["kubeconfig"])
    configuration = client.Configuration.get_default_copy()
    configuration.connection_pool_maxsize = CONNECTIONS  # its default would throw connections away on a small machine
    api = client.ApiClient(configuration)
    core = client.CoreV1Api(api)

    def create(slice_: Arguments) -> Numbers:
        models = [api.deserialize(json.dumps(body), "V1Pod", "application/json") for body in _bodies(slice_)]
        with _Stopwatch() as watch:
            for _ in threads.map(lambda model: core.create_namespaced_pod(NAMESPACE, model), models):
                pass
        return watch.numbers

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        yield create


def _bodies(slice_: Arguments) -> list[dict[str, Any]]:
    return [pod_body(number, NAMESPACE) for number in range(slice_["first"], slice_["first"] + slice_["count"])]


class _Stopwatch:
    """Wall time and this process's CPU time of a `with` block."""

    def __init__(self) -> None:
        self.numbers: Numbers = {}

    def __enter__(self) -> Self:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._began
        self.numbers = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
