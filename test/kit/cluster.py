"""Test a controller in a simulated cluster with random faults. Provisional: this may change in a minor version.

`simulate` is a fixture of pytest. It plays a controller and its users once for each seed, on virtual time:

    from kubecontrollers.testing.cluster import Cluster, Simulate

    async def controller(cluster: Cluster) -> None:
        await run(cluster.transport(), clock=cluster.clock)

    async def users(cluster: Cluster) -> None:
        await cluster.client.create(CONFIG_MAPS, "default", {"metadata": {"name": "a"}})
        await cluster.settle()
        assert cluster.get(CONFIG_MAPS, "default", "a-copy") is not None

    def test_each_config_map_gets_a_copy(simulate: Simulate) -> None:
        simulate(controller, users)
"""

import asyncio
import builtins
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, Protocol

import msgspec
import structlog
from structlog.typing import EventDict

from kit.checks import WriteChecks
from kit.clocks import SimulatedClock
from kit.faults import Faults
from kit.model.controllers import GarbageCollector
from kit.model.kinds import KINDS, Kind
from kit.model.transport import ModelTransport
from kit.model.versions import NEWEST
from kit.processes import Process
from kit.virtual_loop import NETWORK
from kit.world import OracleError, World, play_seeds, run_seed
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.http import OnLeave, Request, Response, Transport, unchanged
from tfjob_operator.api.core import LEASES
from tfjob_operator.api.meta import Resource
from tfjob_operator.controller.leaderelection import LeadershipLostError
from tfjob_operator.workqueue import Clock

FAULTS_S: Final = 60.0
"""How long faults occur."""
KILLS: Final = (0.0, 0.03, 0.15)
STALLS: Final = (0.0, 0.0, 0.01)
"""How often the process of the controller is killed or stalled at a request, drawn once for each seed."""
STALLS_S: Final = (0.5, 3.0, 20.0)
DOWN_S: Final = (0.0, 1.0, 10.0)
"""How long a killed process is down."""
PAUSES_S: Final = (0.0, 0.0, 0.1, 1.0, 5.0)
"""How long users wait before each of their requests at most, drawn for each."""
SETTLED_S: Final = 340.0
"""How long faults may have effects: a frozen watch is detected after 80s, then up to two back-offs of 60s follow; expectations
expire after 300s."""
QUIET_S: Final = 60.0
"""A controller without writes for this long is at rest."""
MOST_WRITES: Final = 2000
"""The number of writes after the end of the faults with which a controller does not come to rest."""
OLDEST_SUPPORTED: Final = 25

Program = Callable[["Cluster"], Coroutine[object, object, None]]
"""A controller, which runs until it is cancelled, or the users of a cluster."""


class ObjectClass(Protocol):
    """A class of objects, such as a subclass of the library's `Kind`."""

    @property
    def resource(self) -> Resource: ...


class Cluster:
    """A simulated cluster: the model of an API server, a garbage collector, the controller under test, and its users.

    Namespaces: `default` and `kube-system`. `random`: the users' source of random numbers, which depends on the seed alone.
    """

    def __init__(self, world: World, controller: Program, violated: Callable[[str], None]) -> None:
        """`violated` is called with a description of what the controller did wrong."""
        self._world = world
        self._controller = _Controller(world, partial(controller, self), violated)
        self.random: Random = world.random
        self.client = RestClient(_PausingTransport(world), clock=world.clock, field_manager="users")
        """The users' client: no fault affects it, and it waits for a random time before each request."""
        self.clock: Clock = SimulatedClock(world.clocks, "controller")
        """The clock of the controller's machine. In half of the seeds its wall clock is wrong, and set during the faults."""

    @property
    def time(self) -> float:
        """The virtual time in seconds since the start of the cluster."""
        return self._world.time

    def transport(self) -> Transport:
        """Return a connection of the controller under test, with the faults of the seed; for calls within its program only."""
        return self._controller.transport()

    def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object as it is stored, None if it does not exist."""
        found = self._world.server.storage.collections[resource.plural].objects.get((namespace, name))
        return None if found is None else _copy(found.body)

    def list(self, resource: Resource, namespace: str | None = None) -> list[dict[str, Any]]:
        """Return all objects of a namespace, or of all namespaces, as they are stored, sorted by name."""
        objects = self._world.server.storage.collections[resource.plural].objects
        return [_copy(each.body) for key, each in sorted(objects.items()) if namespace in {None, key[0]}]

    def writes(self) -> builtins.list[str]:
        """Return the method and path of each request of the controller that changed something, in order, without leases."""
        writes = self._world.server.writes
        return [
            f"{each.method} {each.path}"
            for each in writes
            if each.client.startswith("controller.") and f"/{LEASES.plural}" not in each.path
        ]

    async def settle(self) -> None:
        """Wait until faults have ended and the controller is at rest: it runs, and has not written for a minute.

        Renewals of leases are not counted. Raises OracleError if it does not come to rest.
        """
        controller, world = self._controller, self._world
        await asyncio.sleep(max(0.0, world.calm_at - world.time))
        controller.writes = 0
        await asyncio.sleep(SETTLED_S)
        while world.time < controller.wrote_at + QUIET_S:  # noqa: ASYNC110 - a write postpones the end
            await asyncio.sleep(controller.wrote_at + QUIET_S - world.time)


class _PausingTransport:
    """A perfect connection of users, who take their time."""

    def __init__(self, world: World) -> None:
        self._random = world.random
        self._inner = world.traced("users", ModelTransport(world.server, "users"))

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        await asyncio.sleep(self._random.uniform(0.0, self._random.choice(PAUSES_S)))
        return await self._inner.send(request, on_leave)


class _Controller(Process):
    """The process of the controller under test. It is killed and stalled at random requests until the faults end."""

    def __init__(
        self, world: World, main: Callable[[], Coroutine[object, object, None]], violated: Callable[[str], None]
    ) -> None:
        super().__init__(world, "controller")
        self._main = main
        self._violated = violated
        self._random = Random(f"fate {world.seed}")
        self.clients: set[str] = set()
        self.writes = 0
        self.wrote_at = 0.0

    def transport(self) -> Transport:
        self.clients.add(self.name)
        return _FatefulTransport(self, self._world.traced(self.name, self._connect(self.name)))

    def happens(self, rate: float) -> bool:
        return not self._world.network.is_calm and self._random.random() < rate

    async def meet_fate(self) -> None:
        """Perhaps kill or stall the process, between two calls."""
        faults = self._world.network.faults
        if self.happens(faults.stalls):
            self.stall(self._random.choice(STALLS_S))
            await asyncio.sleep(0)
        if self.happens(faults.kills):
            self._die()
            await asyncio.get_running_loop().create_future()

    def note_write(self) -> None:
        """Count a write, accepted or not."""
        self.writes += 1
        self.wrote_at = self._world.time
        if self._world.network.is_calm and self.writes > MOST_WRITES:
            self._violated(f"the controller does not come to rest: {self.writes} writes since the end of the faults")

    async def supervise(self) -> None:
        """Start the process whenever it has ended. Raises the exception with which it crashed."""
        while True:
            self.start()
            assert self._task is not None
            await asyncio.wait([self._task])
            await asyncio.sleep(self._random.choice(DOWN_S))

    async def _live(self) -> None:
        try:
            await self._main()
        except LeadershipLostError:
            self._world.note("lost the lease", self.name)
        else:
            raise OracleError("the controller has ended; it should run until it is cancelled")


class _FatefulTransport:
    """A connection of the controller, whose process may die before or after each request."""

    def __init__(self, process: _Controller, inner: Transport) -> None:
        self._process = process
        self._inner = inner

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        await self._process.meet_fate()
        if request.method != "GET" and f"/{LEASES.plural}" not in request.path:
            self._process.note_write()
        response = await self._inner.send(request, on_leave)
        try:
            await self._process.meet_fate()
        except BaseException:
            response.close()
            raise
        return response


class Simulate:
    """The fixture: plays a controller and its users once for each seed."""

    def __init__(self, test: str, first: int | None = None, count: int | None = None) -> None:
        """Play only the seed `first`, or `count` seeds from it on."""
        self._test = test
        self._first = first
        self._count = count

    def __call__(
        self,
        controller: Program,
        users: Program,
        *,
        seeds: int = 50,
        kinds: Iterable[Kind | Resource | ObjectClass] = (),
        faults: Faults | None = None,
        kubernetes: int | None = None,
        identical_children: int | None = 1,
        may_raise: tuple[type[Exception], ...] = (),
    ) -> None:
        """Play all seeds. The first failure ends the test; its notes have the requests and a command that replays it.

        `controller` runs until it is cancelled. The faults of a seed kill its process between any two requests and run it
        again. `users` creates and changes objects, waits for `Cluster.settle`, and asserts what must hold then.

        - seeds: how many seeds; `--kube-seeds` replaces it.
        - kinds: more kinds than those of `model.kinds.KINDS`; a resource, or a class with one, stands for a custom resource
          with a status.
        - faults: replaces the seed's faults; `faults.CALM` has none.
        - kubernetes: the minor version of the API server, instead of the seed's.
        - identical_children: how many identical children with generated names an owner may have; None: any number.
        - may_raise: errors that a sync may raise beside those of the API, such as those of another service.

        Logs are shown when a single seed is played. Raises OracleError if a sync raises another error, the controller does not
        come to rest, or it breaks one of the rules in `checks.WriteChecks`, and whatever `controller` or `users` raises.
        """
        given = [_kind_of(each) for each in kinds]
        play = partial(
            play_cluster,
            controller,
            users,
            kinds=given,
            faults=faults,
            kubernetes=kubernetes,
            identical_children=identical_children,
            may_raise=may_raise,
        )
        if self._first is not None:
            seeds = 1
        first, count = self._first or 0, self._count or seeds
        # The logs of many seeds are of no use, and take time.
        play_seeds(partial(play, quiet=count > 1), range(first, first + count), f"pytest '{self._test}' --kube-seed=")


def _kind_of(given: Kind | Resource | ObjectClass) -> Kind:
    if isinstance(given, Kind):
        return given
    return Kind(given if isinstance(given, Resource) else given.resource, status=True, custom=True)


@contextmanager
def _watched_logs(crashed: Callable[[BaseException], None], *, quiet: bool) -> Iterator[None]:
    """Call `crashed` with each error that the library logs as one of a sync's own; if `quiet`, drop all logs."""
    before = structlog.get_config()

    def watch(_: object, __: str, line: EventDict) -> EventDict:
        if line["event"] == "sync_crashed":
            crashed(line["exc_info"])
        if quiet:
            raise structlog.DropEvent
        return line

    wrapper = structlog.make_filtering_bound_logger("error") if quiet else before["wrapper_class"]
    structlog.configure(processors=[watch, *before["processors"]], wrapper_class=wrapper)
    try:
        yield
    finally:
        structlog.configure(**before)


def play_cluster(
    controller: Program,
    users: Program,
    seed: int,
    *,
    kinds: Iterable[Kind] = (),
    faults: Faults | None = None,
    kubernetes: int | None = None,
    identical_children: int | None = 1,
    may_raise: tuple[type[Exception], ...] = (),
    quiet: bool = False,
) -> list[str]:
    """Play a controller and its users with a seed, and return the history. The arguments are those of `Simulate`."""
    fate = Random(f"cluster {seed}")
    minor = kubernetes or fate.choice(range(OLDEST_SUPPORTED, NEWEST + 1))
    drawn = Faults.draw(Random(f"faults {seed}"))
    drawn = faults or replace(drawn, kills=fate.choice(KILLS), stalls=fate.choice(STALLS))
    clocks_differ = faults is None and fate.random() < 0.5

    def make() -> World:
        world = World(seed, calm_at=FAULTS_S, faults=drawn, kinds=(*KINDS, *kinds), kubernetes=minor)
        if clocks_differ:
            world.clocks.let_differ(FAULTS_S)
        return world

    async def scenario(world: World) -> None:
        await _play(world, controller, users, identical_children, may_raise, quiet=quiet)

    try:
        return run_seed(scenario, seed, make)
    except BaseException as error:
        error.add_note(f"Kubernetes 1.{minor}, {drawn}")
        raise


async def _play(
    world: World,
    program: Program,
    users: Program,
    identical_children: int | None,
    may_raise: tuple[type[Exception], ...],
    *,
    quiet: bool,
) -> None:
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def violated(what: str, cause: BaseException | None = None) -> None:
        world.note("VIOLATED", what)
        if not failed.done():
            error = OracleError(what)
            error.__cause__ = cause
            failed.set_exception(error)

    def crashed(error: BaseException) -> None:
        if not isinstance(error, may_raise):
            violated(f"a sync raised {error!r}, which may_raise does not allow", error)

    await world.create_namespaces("default", "kube-system")
    GarbageCollector(world.server, Random(f"garbage collector {world.seed}"))
    cluster = Cluster(world, program, violated)
    controller = cluster._controller
    WriteChecks(world.server, controller.clients, violated, identical_children=identical_children)
    supervisor = asyncio.create_task(controller.supervise(), name="supervisor", context=NETWORK)
    acting = asyncio.create_task(users(cluster), name="users")
    with _watched_logs(crashed, quiet=quiet):
        try:
            await asyncio.wait([supervisor, acting, failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (acting, supervisor):
                task.cancel()
            await asyncio.wait([acting, supervisor])
            await controller.kill()
    for each in (failed, supervisor, acting):
        if each.done() and not each.cancelled():
            each.result()
    failed.cancel()


def _copy(body: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(body))
    return copied
