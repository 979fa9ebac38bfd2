"""The world of a seed: a model server, a faulty network, and their randomness and time.

A scenario is a coroutine function of a `World`. `run_seed` plays it once. The same seed plays identically in any process,
because nothing depends on real time, memory addresses or string hashes: `SeededLoop` numbers its tasks, all randomness comes
from the seed, and the cyclic garbage collector, whose timing depends on earlier code, is off.
"""

import asyncio
import gc
import hashlib
import random as global_random
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any, Final, TypeVar

from kit.clocks import Clocks, SimulatedClock
from kit.faults import Faults
from kit.model.kinds import KINDS, NAMESPACES, Kind
from kit.model.server import ModelServer
from kit.model.transport import ModelTransport
from kit.model.versions import NEWEST
from kit.network import FaultyTransport, Network
from kit.virtual_loop import PROCESS, SeededLoop
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.http import OnLeave, Request, Response, Transport, unchanged
from tfjob_operator.workqueue.metrics import NO_METRICS, MetricsProvider

W = TypeVar("W", bound="World")

LIMIT_S: Final = 6 * 3600.0
"""The maximum virtual time of a seed, in seconds; none needs more than a tenth of it."""


COLLECT_EVERY: Final = 25
"""Seeds between two garbage collections. The collector is off while a seed is played."""


class OracleError(AssertionError):
    """An oracle or a checker found an error."""


def require(holds: object, message: str) -> None:
    if not holds:
        raise OracleError(message)


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
        faults: Faults | None = None,
        kinds: Iterable[Kind] = KINDS,
        kubernetes: int = NEWEST,
    ) -> None:
        """`faults`: drawn from the seed by default. `kubernetes`: the minor version of the cluster."""
        self.seed = seed
        self.random = Random(f"scenario {seed}")
        self.product_random = Random(f"chance {seed}").random
        self.clocks = Clocks(seed)
        self.clock = SimulatedClock(self.clocks)
        self.server = ModelServer(seed, kinds=kinds, kubernetes=kubernetes)
        network = Random(f"network {seed}")
        self.network = Network(self.server, network, faults or Faults.draw(network), calm_at)
        self.trace: list[str] = []
        self.metrics: MetricsProvider = NO_METRICS
        """Of all processes."""

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


def run_seed(scenario: Callable[[W], Coroutine[object, object, None]], seed: int, make: Callable[[], W]) -> list[str]:
    """Play a scenario with a seed in a world that `make` creates on the seed's loop, and return its trace.

    Raises what the scenario raises, with the end of the trace as a note.
    """
    trace: list[str] = []
    global_random.seed(f"product {seed}")  # for code that uses the module `random` directly
    collecting = gc.isenabled()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=lambda: SeededLoop(seed)) as runner:
            runner.run(_play(scenario, make, trace))
    except BaseException as error:
        told = [line for line in trace if " GET " not in line and "/leases" not in line]
        error.add_note("the end of the trace, without reads and leases:\n  " + "\n  ".join(told[-60:]))
        raise
    finally:
        if collecting:
            gc.enable()
    return trace


def play_seeds(play: Callable[[int], object], seeds: Iterable[int], replay: str) -> None:
    """Play each seed. Raises the first failure, with a note of the command that replays it: `replay` and the seed."""
    for number, seed in enumerate(seeds):
        if number % COLLECT_EVERY == 0:
            gc.collect()
        try:
            play(seed)
        except Exception as error:
            error.add_note(f"replay: {replay}{seed}")
            raise


def digest(trace: list[str]) -> str:
    return hashlib.sha256("\n".join(trace).encode()).hexdigest()


async def _play(
    scenario: Callable[[W], Coroutine[object, object, None]], make: Callable[[], W], trace: list[str]
) -> None:
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
