"""The world of a seed: a model server, a faulty network, and their randomness and time.

A scenario is a coroutine function of a `World`. `run_seed` plays it once. The same seed plays identically in any process,
because nothing depends on real time, memory addresses or string hashes: `SeededLoop` numbers its tasks, all randomness comes
from the seed, and the cyclic garbage collector, whose timing depends on earlier code, is off.
"""

import asyncio
import gc
import hashlib
import random as global_random
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final

from fakes.virtual_loop import EPOCH, PROCESS, SeededLoop
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from simulation.clocks import Clocks
from simulation.faults import FaultyTransport, Network
from simulation.model.kinds import NAMESPACES
from simulation.model.server import ModelServer
from simulation.model.transport import ModelTransport
from simulation.weather import Weather
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.http import OnLeave, Request, Response, Transport, unchanged
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider

Scenario = Callable[["World"], Coroutine[object, object, None]]

LIMIT_S: Final = 6 * 3600.0
"""The maximum virtual time of a seed, in seconds; none needs more than a tenth of it."""

TICK: Final = timedelta(microseconds=1)
"""The minimum difference between two readings of the simulated wall clock, as with a real one."""


class OracleError(AssertionError):
    """An oracle or a checker found an error."""


def require(holds: object, message: str) -> None:
    if not holds:
        raise OracleError(message)


class SimulatedClock:
    """`workqueue.clock.Clock` of a machine in a world: the loop's time, and a wall clock without equal readings."""

    def __init__(self, clocks: Clocks, machine: str = "") -> None:
        """Without a machine, the wall clock is right."""
        self._clocks = clocks
        self._machine = machine
        self._last = EPOCH

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        self._last = max(EPOCH + timedelta(seconds=self.monotonic()), self._last + TICK)
        if not self._machine:
            return self._last
        return self._last + timedelta(seconds=self._clocks.ahead_s(self._machine, self.monotonic()))


def _drawn_version(seed: int) -> Kubernetes:
    """Return the Kubernetes version of a seed's cluster: usually one of four with the largest differences."""
    random = Random(f"kubernetes {seed}")
    minors = (20, 27, 33, 36) if random.random() < 0.8 else range(OLDEST.minor, NEWEST.minor + 1)
    return Kubernetes(random.choice(minors))


class World:
    """Everything that a scenario needs. Must be created on the loop that runs it.

    Invariant: `random` is the scenario's own. The product draws from `product_random`, and server, network and loop have their
    own sources, so that an additional request does not change the scenario.
    """

    def __init__(
        self,
        seed: int,
        *,
        calm_at: float = 60.0,
        weather: Weather | None = None,
        kubernetes: Kubernetes | None = None,
    ) -> None:
        """`kubernetes`: the version of the whole cluster, instead of the seed's."""
        self.seed = seed
        self.random = Random(f"scenario {seed}")
        self.product_random = Random(f"chance {seed}").random
        self.clocks = Clocks(seed)
        self.clock = SimulatedClock(self.clocks)
        self.kubernetes = kubernetes or _drawn_version(seed)
        self.server = ModelServer(seed, kubernetes=self.kubernetes)
        network = Random(f"network {seed}")
        self.network = Network(self.server, network, weather or Weather.draw(network), calm_at)
        self.trace: list[str] = []
        self.metrics: MetricsProvider = NO_METRICS
        """Of all processes of the operator."""

    @property
    def time(self) -> float:
        """Seconds since the start of the world."""
        return asyncio.get_running_loop().time()

    @property
    def calm_at(self) -> float:
        return self.network.calm_at

    def note(self, *what: object) -> None:
        """Record an event, for replays and for the test that compares two plays."""
        self.trace.append(f"{self.time:10.4f} {' '.join(map(str, what))}")

    def act(self, client: str, method: str, path: str, body: dict[str, Any]) -> int:
        """Send a request past the network, and record it. Return the status."""
        status = self.server.ask(client, method, path, body)
        self.note(client, method, path, body, status)
        return status

    def faulty(self, client: str) -> FaultyTransport:
        return FaultyTransport(self.network, client)

    def client(self, name: str, transport: Transport | None = None) -> RestClient:
        """Return a client whose requests are traced; without a transport, no fault affects it."""
        inner = transport or ModelTransport(self.server, name)
        return RestClient(self.traced(name, inner), clock=self.clock, field_manager=name)

    def traced(self, name: str, inner: Transport) -> Transport:
        """Wrap a transport so that its requests and responses are traced."""
        return _TracedTransport(self, name, inner)

    async def create_namespaces(self, *names: str) -> None:
        admin = self.client("admin")
        for name in names:
            await admin.create(NAMESPACES, "", {"metadata": {"name": name}})

    def spawn(self, process: str, body: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run `body` as its own process, which `SeededLoop.stall` can stop for a while."""
        token = PROCESS.set(process)
        try:
            return asyncio.create_task(body, name=process)
        finally:
            PROCESS.reset(token)

    def stall(self, process: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        self.note("stall", process, f"{seconds:.3f}")
        loop.stall(process, seconds)


class _TracedTransport:
    """Traces every request and its outcome."""

    def __init__(self, world: World, name: str, inner: Transport) -> None:
        self._world = world
        self._name = name
        self._inner = inner

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        what = f"{self._name} {request.method} {request.path} {_query(request)}"
        try:
            response = await self._inner.send(request, on_leave)
        except Exception as error:
            self._world.note(what, type(error).__name__)
            raise
        self._world.note(what, response.status)
        return response


def _query(request: Request) -> str:
    return "&".join(f"{name}={value}" for name, value in sorted(request.query.items()))


def run_seed(
    scenario: Scenario, seed: int, *, weather: Weather | None = None, kubernetes: Kubernetes | None = None
) -> list[str]:
    """Play a scenario with a seed, and return its trace. Raises what the scenario raises, with the end of the trace as a note.

    Faults and Kubernetes version come from the seed by default.
    """
    trace: list[str] = []
    make = partial(World, seed, weather=weather, kubernetes=kubernetes)
    global_random.seed(f"product {seed}")  # for code that uses the module `random` directly
    collecting = gc.isenabled()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=lambda: SeededLoop(seed)) as runner:
            runner.run(_play(scenario, make, trace))
    except BaseException as error:
        error.add_note("the end of the trace:\n  " + "\n  ".join(trace[-60:]))
        raise
    finally:
        if collecting:
            gc.enable()
    return trace


def digest(trace: list[str]) -> str:
    return hashlib.sha256("\n".join(trace).encode()).hexdigest()


async def _play(scenario: Scenario, make: Callable[[], World], trace: list[str]) -> None:
    world = make()
    world.trace = trace
    crashed: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: crashed.append(repr(context)))
    async with asyncio.timeout(LIMIT_S):
        await scenario(world)
    await asyncio.sleep(1.0)  # cancelled tasks may need a few turns of the loop
    leaked = [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()]
    require(not leaked, f"tasks outlived the world: {sorted(task.get_name() for task in leaked)}")
    require(not crashed, f"callbacks crashed: {crashed}")
    require(world.server.open_watches == 0, f"{world.server.open_watches} watches outlived their clients")
