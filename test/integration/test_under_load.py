"""Client and informers while the API server is killed and restarted under load.

A proxy between them acts as load balancer: while the server is down it accepts connections and closes them without a response.
`test_faults.py` has refused connections.
"""

import asyncio
from random import Random
from types import ModuleType
from typing import Final

import pytest

from hack.control_plane import ControlPlane
from hack.fault_proxy.proxy import Proxy
from integration.faults.config_maps import PATIENCE_S, ConfigMaps, Versions, config_maps, load
from integration.faults.follower import Follower, follower
from support.library import example
from support.waiting import until

pytestmark = pytest.mark.nightly

MANY: Final = 30  # writes that there must be before the restart, and again after it
SOURCES: Final = 15
PAUSE_S: Final = 0.02  # between two writes of a writer; that is load enough for two cores
MOST_LISTS: Final = 4  # the first, one after the restart, and two for errors while the server starts
MOST_READS: Final = 30  # about one a second while the server is away
CATCH_UP_S: Final = 0.2  # it may take a moment until the controller knows what is true on the server
QUIET_S: Final = 1.5


def writes(proxy: Proxy) -> int:
    return sum(seen.verb not in {"get", "list", "watch"} for seen in proxy.history)


async def restart_under_load(plane: ControlPlane, it: ConfigMaps) -> None:
    """Restart the server under load, and return when it is under load again."""
    await until(lambda: len(it.written) > MANY, "many objects are written", yet=lambda: len(it.written))
    await asyncio.to_thread(plane.restart_apiserver)
    before = len(it.written)
    await until(lambda: len(it.written) > before + MANY, "many more are written", yet=lambda: len(it.written))


async def test_caches_and_handlers_are_true_again_after_the_server_was_killed_under_load(
    control_plane: ControlPlane, namespace: str
) -> None:
    """RF-01, RF-14, RF-16, SI-11: whatever was missed is found, and finding it takes few requests"""
    async with (
        config_maps(control_plane, namespace) as it,
        follower(control_plane, namespace) as everything,
        follower(control_plane, namespace, label_selector="side=left") as some,
        follower(control_plane, namespace, name="still") as still,
    ):
        await it.put("still")
        async with it.churned(30, Random(3), pause_s=PAUSE_S):
            await restart_under_load(control_plane, it)
        await until(
            lambda: still.count("list") > 1, "it has listed again"
        )  # a restarted server has no history, so the version has expired
        await settle(everything, await it.truth())
        await settle(some, await it.truth(label_selector="side=left"))
        key = f"{namespace}/still"
        await settle(still, {key: (await it.truth())[key]})


async def settle(follows: Follower, truth: Versions) -> None:
    """Wait until an informer's handler has the server's state; check its cache, notifications and number of requests."""
    await until(lambda: follows.handler.now == truth, "the handler has heard of all")
    assert follows.cached == truth
    assert follows.handler.faults == []
    assert follows.count("list") <= MOST_LISTS
    assert len(follows.proxy.history) <= MOST_READS


async def test_the_mirror_example_converges_after_a_restart_under_load_and_then_writes_no_more(
    control_plane: ControlPlane, namespace: str
) -> None:
    """C2, ESR: the wanted state is reached, and stays"""
    mirror = example("mirror")
    stop, dice = asyncio.Event(), Random(4)

    async def disturb() -> None:
        name = f"s{dice.randrange(SOURCES)}"
        await it.change(name, str(dice.random()))
        await it.delete(f"{name}-mirror")

    async with config_maps(control_plane, namespace) as it, Proxy(control_plane.kubeconfig) as proxy:
        for number in range(SOURCES):
            await it.put(f"s{number}", labels={"mirror": "yes"})
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run(mirror, proxy.url, stop), name="mirror")
            async with load(disturb, pause_s=PAUSE_S):
                await restart_under_load(control_plane, it)

            async def is_mirrored() -> bool:
                return mirrored(await it.contents())

            await until(is_mirrored, "all is mirrored", limit_s=PATIENCE_S, tick_s=CATCH_UP_S)
            await asyncio.sleep(CATCH_UP_S)
            before = writes(proxy)
            await asyncio.sleep(QUIET_S)
            assert writes(proxy) == before
            assert mirrored(await it.contents())
            stop.set()


async def run(mirror: ModuleType, url: str, stop: asyncio.Event) -> None:
    async with mirror.HttpTransport(mirror.Settings(url)) as transport:
        await mirror.run(transport, stop)


def mirrored(contents: dict[str, str]) -> bool:
    """Whether each source, and nothing else, has a copy that is like it."""
    sources = {name: data for name, data in contents.items() if not name.endswith("-mirror")}
    return contents == sources | {f"{name}-mirror": data for name, data in sources.items()}
