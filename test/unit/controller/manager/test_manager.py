"""A manager of controllers that are not the operator's; `test_app.py` has the operator's, with election and gates."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.cluster import ModelCluster
from fakes.transport import FakeResponse, FakeTransport
from kit.virtual_loop import VirtualClock
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.core import CONFIG_MAPS
from tfjob_operator.api.meta import ObjectMeta, Resource, Struct, meta_key
from tfjob_operator.controller.leaderelection import GatedTransport
from tfjob_operator.controller.manager import Controller, Manager
from tfjob_operator.controller.manager.controller import STUCK_S
from tfjob_operator.controller.manager.manager import STILL_SYNCING_S
from tfjob_operator.controller.observability.http_server import Check
from tfjob_operator.informers import CacheSyncTimeoutError, Codec, EventHandlerFuncs, SharedInformerFactory

KETTLES = Resource("example.com", "v1", "kettles", "Kettle")
"""Of a CRD that the server does not have."""


class ConfigMap(Struct, frozen=True):
    """What these tests read of a ConfigMap."""

    metadata: ObjectMeta


def key_of(item: ConfigMap) -> str:
    return meta_key(item.metadata)


class Probes:
    """Stands in for the page server: holds the checks while they are served."""

    def __init__(self) -> None:
        self.healthz: Mapping[str, Check] = {}
        self.readyz: Mapping[str, Check] = {}

    @asynccontextmanager
    async def serving(self, *, healthz: Mapping[str, Check], readyz: Mapping[str, Check]) -> AsyncIterator[None]:
        self.healthz, self.readyz = healthz, readyz
        yield
        self.healthz = self.readyz = {}

    def complaints(self) -> dict[str, str | None]:
        return {name: check() for name, check in (*self.healthz.items(), *self.readyz.items())}


class Bench(ModelCluster[Any]):
    def __init__(self) -> None:
        super().__init__("ns")
        self.informers = SharedInformerFactory(self.client, clock=VirtualClock())
        self.stop = asyncio.Event()
        self.probes: Any = Probes()

    async def create(self, name: str) -> None:
        await self.client.create(CONFIG_MAPS, "ns", {"metadata": {"name": name}})

    @asynccontextmanager
    async def running(self, manager: Manager) -> AsyncIterator[None]:
        await self.begin()
        task = asyncio.create_task(manager.run())
        await asyncio.sleep(1.0)
        yield
        self.stop.set()
        await task


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_two_controllers_share_informers_and_end_together(bench: Bench) -> None:
    """The same cache, a queue each."""
    seen: dict[str, set[str]] = {"names": set(), "keys": set()}
    config_maps = bench.informers.informer(Codec(CONFIG_MAPS, ConfigMap))

    async def note_name(name: str) -> None:
        seen["names"].add(name)

    async def note_key(key: str) -> None:
        seen["keys"].add(key)

    first, second = Controller("first", note_name), Controller("second", note_key)
    handler = EventHandlerFuncs[ConfigMap](on_add=lambda item, _: first.queue.add(item.metadata.name))
    config_maps.add_event_handler(handler)
    second.watch(config_maps, key_of)
    manager = Manager(bench.informers, first, second, stop=bench.stop)
    async with bench.running(manager):
        assert [manager.is_leading] == [True]
        await bench.create("a")
        await asyncio.sleep(1.0)
        assert seen == {"names": {"a"}, "keys": {"ns/a"}}
    assert [manager.is_leading] == [False]
    await bench.create("b")
    await asyncio.sleep(60.0)
    assert seen == {"names": {"a"}, "keys": {"ns/a"}}


async def test_one_controller_that_is_stuck_makes_the_process_unhealthy(bench: Bench) -> None:
    """LE-13: the others may go on working; the probe reports how many workers hang."""

    async def hang(_: str) -> None:
        await asyncio.get_running_loop().create_future()

    async def work(_: str) -> None: ...

    stuck, fine = Controller("stuck", hang, clock=VirtualClock()), Controller("fine", work, clock=VirtualClock())
    manager = Manager(bench.informers, fine, stuck, stop=bench.stop, pages=bench.probes)
    async with bench.running(manager):
        assert bench.probes.complaints() == {"lease": None, "workers": None, "operator": None}
        stuck.queue.add("a")
        await asyncio.sleep(STUCK_S + 1.0)
        assert bench.probes.complaints()["workers"] == "all 1 workers have been busy with the same keys for 1801 s"
    assert bench.probes.complaints() == {}, "the pages end with the manager"


async def test_an_informer_without_a_watch_makes_the_process_not_ready_and_is_named(bench: Bench) -> None:
    """After a minute, and until a watch is open again; a reconnect that takes seconds is nothing."""
    informer = bench.informers.informer(Codec(CONFIG_MAPS, ConfigMap))
    manager = Manager(bench.informers, stop=bench.stop, pages=bench.probes)
    async with bench.running(manager):
        for seconds, problem in ((0.0, None), (59.0, None), (75.0, "no open watch: configmaps for 75s"), (0.0, None)):
            informer._reflector._disconnected_since = asyncio.get_running_loop().time() - seconds if seconds else None
            assert bench.probes.complaints()["operator"] == problem


async def test_a_cache_that_waits_for_its_crd_is_named_and_logged_every_minute(bench: Bench) -> None:
    """A process that waits in silence looks like one that works."""
    bench.informers.informer(Codec(CONFIG_MAPS, ConfigMap))
    bench.informers.informer(Codec(KETTLES, ConfigMap))
    manager = Manager(bench.informers, stop=bench.stop, pages=bench.probes)
    with capture_logs() as logs:
        running = asyncio.create_task(manager.run())
        await asyncio.sleep(2 * STILL_SYNCING_S + 1.0)
        bench_says = bench.probes.complaints()["operator"]
        bench.stop.set()
        await running
    assert bench_says == (
        "caches not synced: kettles.example.com; not served by the API server (is the CRD installed?): kettles.example.com"
    )
    assert [line["why"] for line in logs if line["event"] == "caches_not_synced"] == [bench_says] * 2


async def test_a_process_is_not_ready_while_a_kind_that_it_can_do_without_is_not_served(bench: Bench) -> None:
    """An API of `--apis` whose CRD was forgotten: all others are served."""
    bench.informers.informer(Codec(CONFIG_MAPS, ConfigMap))
    bench.informers.informer(Codec(KETTLES, ConfigMap), required=False)
    manager = Manager(bench.informers, stop=bench.stop, pages=bench.probes)
    async with bench.running(manager):
        assert manager.is_leading
        complaint = "not served by the API server (is the CRD installed?): kettles.example.com"
        assert bench.probes.complaints()["operator"] == complaint


async def test_a_manager_with_a_limit_gives_up_on_a_cache_that_does_not_sync(bench: Bench) -> None:
    """As controller-runtime's CacheSyncTimeout."""
    bench.informers.informer(Codec(KETTLES, ConfigMap))
    manager = Manager(bench.informers, stop=bench.stop, sync_timeout_s=120.0)
    with pytest.raises(CacheSyncTimeoutError, match="kettles"):
        await manager.run()
    assert asyncio.get_running_loop().time() == pytest.approx(120.0)


async def test_what_runs_beside_begins_before_the_caches_are_filled_and_ends_at_the_end(bench: Bench) -> None:
    """The check of the CRD, say, or the measurement of the loop's lag: nothing waits for them."""
    ended: list[str] = []

    async def look() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("look")

    bench.informers.informer(Codec(CONFIG_MAPS, ConfigMap))
    manager = Manager(
        bench.informers, stop=bench.stop, background={"look": look}, on_synced=lambda: ended.append("synced")
    )
    async with bench.running(manager):
        assert ended == ["synced"]
    assert ended == ["synced", "look"]


async def test_a_manager_ends_if_what_runs_beside_it_fails(bench: Bench) -> None:
    """An informer that fails by a bug would else leave the operator at work without what it watches."""

    async def fail() -> None:
        raise ArithmeticError

    bench.informers.informer(Codec(CONFIG_MAPS, ConfigMap))
    with pytest.RaisesGroup(ArithmeticError):
        await Manager(bench.informers, stop=bench.stop, background={"nodes": fail}).run()


async def test_a_manager_without_controllers_stops_though_a_write_hangs(bench: Bench) -> None:
    """It may have a gate all the same, through which something beside it writes."""
    gate = GatedTransport(FakeTransport(FakeResponse(after_s=3600.0)))
    write = asyncio.create_task(gate.send(Request("POST", "/api/v1/namespaces/ns/configmaps")))
    running = asyncio.create_task(Manager(bench.informers, stop=bench.stop, work_gate=gate).run())
    await asyncio.sleep(1.0)
    bench.stop.set()
    await running
    assert not write.done(), "nobody waits so long"
    write.cancel()
    await asyncio.wait([write])


async def sync_nothing(_key: str) -> None:
    pass


def test_two_controllers_that_would_share_a_name_or_a_queue_are_refused(bench: Bench) -> None:
    """ "should return an error on name collision": the metrics of both would be one; of a queue, each gets half of the keys."""
    first, second = Controller("kettle", sync_nothing), Controller("kettle", sync_nothing)
    with pytest.raises(ValueError, match="two controllers have the same name: kettle, kettle"):
        Manager(bench.informers, first, second, stop=bench.stop)
    other = Controller("other", sync_nothing, queue=first.queue)
    with pytest.raises(ValueError, match="two controllers have the same queue: kettle, other"):
        Manager(bench.informers, first, other, stop=bench.stop)


async def test_a_controller_and_an_informer_of_which_a_manager_has_only_one_are_refused(bench: Bench) -> None:
    """Keys of the one would never be synced; the other would never have any."""
    bench.stop.set()  # a manager that refuses nothing ends, too
    controller = Controller("kettle", sync_nothing)
    controller.watch(bench.informers.informer(Codec(CONFIG_MAPS, ConfigMap)), key_of)
    with pytest.raises(ValueError, match="kettle watches configmaps: pass it to the manager, too"):
        await Manager(bench.informers, stop=bench.stop).run()
    others = SharedInformerFactory(bench.client)
    with pytest.raises(ValueError, match="kettle watches configmaps, which this manager does not start"):
        await Manager(others, controller, stop=bench.stop).run()


async def test_a_manager_runs_once(bench: Bench) -> None:
    """The second run would work with the caches of the first, which nobody updates any more."""
    manager = Manager(bench.informers, stop=bench.stop)
    async with bench.running(manager):
        pass
    with pytest.raises(RuntimeError, match="a manager runs once"):
        await manager.run()
