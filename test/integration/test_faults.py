"""Client and informers under faults: a real API server behind a proxy that cuts, freezes, loses and rejects requests.

Expired versions are real: the server's history is compacted.
"""

import asyncio
import base64
import contextlib
import tracemalloc
from dataclasses import dataclass
from random import Random
from typing import Final

import pytest
from aiohttp import web

from hack.control_plane import ControlPlane, ControlPlaneError
from hack.fault_proxy.proxy import (
    Action,
    Exchange,
    Proxy,
    Seen,
    answer_html,
    answer_status,
    black_hole,
    delay,
    error_event,
    lose_reply,
    lose_request,
    rewrite,
)
from integration.faults.config_maps import CONFIG_MAPS, OURS, ConfigMap, ConfigMaps, config_maps, load
from integration.faults.follower import Follower, Replay, follower
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient, Settings, load_settings
from tfjob_operator.api.client.errors import AlreadyExistsError, ConnectionLostError
from tfjob_operator.informers import Codec, ListWatch
from tfjob_operator.informers.listwatch import PAGE_SIZE, Pager

FIRST_PAUSE_S: Final = 0.8  # RF-22, without jitter
SECOND_PAUSE_S: Final = 1.6
LAG_S: Final = 0.3  # a busy loop may note a request late, and the next one in time
EXPIRED: Final = error_event(410, "Expired")  # leads to a list


def is_watch(seen: Seen) -> bool:
    return seen.verb == "watch"


def is_list(seen: Seen) -> bool:
    return seen.verb == "list"


async def see(it: ConfigMaps, follows: Follower, name: str) -> None:
    """Create an object and wait until the handler has heard of it: from here on the watch is open and has brought something."""
    await it.put(name)
    await until(lambda: f"{it.namespace}/{name}" in follows.handler.now, f"{name} is heard of")


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_stream_that_breaks_is_resumed_from_the_last_version_without_a_list(
    control_plane: ControlPlane, namespace: str, *, reset: bool
) -> None:
    """RF-14: also when the connection is reset"""
    async with config_maps(control_plane, namespace) as it, follower(control_plane, namespace) as follows:
        await see(it, follows, "before")
        follows.begin_chapter()
        follows.proxy.cut_streams(reset=reset)
        await it.delete("before")
        await see(it, follows, "after")
        assert follows.story() == ["watch last"]
        assert follows.handler.now == await it.truth()
        assert not follows.handler.faults


async def test_a_frozen_stream_is_found_by_its_silence_and_reopened_without_a_list(
    control_plane: ControlPlane, namespace: str
) -> None:
    """RF-14, RF-29: the connection itself is intact, so no keepalive would ever detect this"""
    async with config_maps(control_plane, namespace) as it, follower(control_plane, namespace, idle_s=1.5) as follows:
        await see(it, follows, "before")
        follows.begin_chapter()
        follows.proxy.freeze_streams()
        await see(it, follows, "meanwhile")
        assert follows.story() == ["watch last"]
        assert not follows.handler.faults


async def test_a_stream_that_stalls_for_a_moment_is_kept(control_plane: ControlPlane, namespace: str) -> None:
    """RF-29: silence is no fault before its limit"""
    async with config_maps(control_plane, namespace) as it, follower(control_plane, namespace) as follows:
        await see(it, follows, "before")
        follows.begin_chapter()
        follows.proxy.freeze_streams()
        await it.put("meanwhile")
        await asyncio.sleep(0.5)
        assert len(follows.handler.now) == 1
        follows.proxy.thaw_streams()
        await see(it, follows, "after")
        assert follows.story() == []
        assert follows.handler.now == await it.truth()


async def test_a_refused_connection_is_tried_again_without_a_list(control_plane: ControlPlane, namespace: str) -> None:
    """RF-17, RF-22: what an API server looks like while it starts"""
    async with config_maps(control_plane, namespace) as it, follower(control_plane, namespace) as follows:
        await see(it, follows, "before")
        follows.begin_chapter()
        await follows.proxy.refuse()
        follows.proxy.cut_streams()
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(FIRST_PAUSE_S / 2)
        await follows.proxy.accept()
        await see(it, follows, "after")
        assert follows.story() == ["watch last"]
        assert follows.chapter[0].at - began >= FIRST_PAUSE_S


@dataclass(frozen=True)
class Case:
    """A fault, the requests that follow it, and the shortest pause before each of them but the first.

    A pause of 0 means at once, without another step of the back-off; None that it depends on which connection is used.
    """

    name: str
    fault: Action
    story: list[str]
    pauses: list[float | None]
    answer_s: float = 20.0


SHORT_S: Final = 2.5  # how long a request waits for a response
FUTURE: Final = str(10**15)
RETRIED: Final = ["watch last", "watch last"]
RELISTED: Final = ["watch last", "list last", "watch"]
RELISTED_LATER: Final = ["watch last", "list last", "list last", "watch"]
RELISTED_ANY: Final = ["watch last", "list last", "list any", "watch"]

WATCH_FAULTS: Final = [
    Case("http-429-retry-after", answer_status(429, "TooManyRequests", retry_after_s=2), RETRIED, [2.0]),
    Case("event-429", error_event(429, "TooManyRequests"), RETRIED, [0.8]),
    Case("lost", lose_request, RETRIED, [None]),
    Case("http-410", answer_status(410, "Expired"), RELISTED, [0.8, 0]),
    Case("event-410", EXPIRED, RELISTED, [0.8, 0]),
    Case("http-500", answer_status(500, "InternalError"), RELISTED, [0.8, 0]),
    Case("html-200", answer_html(200), RELISTED, [0.8, 0]),
    Case("black-hole", black_hole, RETRIED, [SHORT_S + 0.8], answer_s=SHORT_S),
]

LIST_FAULTS: Final = [
    Case("http-410", answer_status(410, "Expired"), RELISTED_ANY, [0.8, 0, 0]),
    Case("real-504", rewrite(resourceVersion=FUTURE), RELISTED_ANY, [0.8, 3.0, 0]),  # SV-02: the server responds late
    Case("http-429-retry-after", answer_status(429, "TooManyRequests", retry_after_s=3), RELISTED_LATER, [0.8, 3.0, 0]),
    Case("http-500", answer_status(500, "InternalError"), RELISTED_LATER, [0.8, 1.6, 0]),
    Case("html-200", answer_html(200), RELISTED_LATER, [0.8, 1.6, 0]),
    Case("lost", lose_reply, RELISTED_LATER, [0.8, None, 0]),
    Case("black-hole", black_hole, RELISTED_LATER, [0.8, SHORT_S + 1.6, 0], answer_s=SHORT_S),
]


async def play(case: Case, verb: str, plane: ControlPlane, it: ConfigMaps) -> Follower:
    """Let an informer of one object meet a fault, and wait until it has recovered."""
    async with follower(plane, it.namespace, name=case.name, answer_s=case.answer_s) as follows:
        await see(it, follows, case.name)
        if verb == "list":
            follows.proxy.rule(is_watch, EXPIRED)
        follows.proxy.rule(lambda seen: seen.verb == verb, case.fault)
        follows.begin_chapter()
        follows.proxy.cut_streams()
        await it.change(case.name, "news")
        await until(
            lambda: len(follows.handler.told) == 2 and bool(follows.proxy.streams),
            "two events are heard of, and it watches",
        )
        return follows


async def check_all(cases: list[Case], verb: str, plane: ControlPlane, namespace: str) -> None:
    """Play all cases at once, since they mostly wait, and compare the requests."""
    async with config_maps(plane, namespace) as it:
        played = await asyncio.gather(*(play(case, verb, plane, it) for case in cases))
    pairs = list(zip(cases, played, strict=True))
    assert {case.name: follows.story() for case, follows in pairs} == {case.name: case.story for case in cases}
    assert {case.name: follows.handler.faults for case, follows in pairs} == {case.name: [] for case in cases}
    for case, follows in pairs:
        for least, pause in zip(case.pauses, follows.pauses(), strict=True):
            if least is not None:
                assert pause > least - LAG_S, case.name
                assert least or pause < SECOND_PAUSE_S, f"{case.name}: not at once"


async def test_a_failed_watch_is_handled_as_in_client_go(control_plane: ControlPlane, namespace: str) -> None:
    """RF-16 to RF-18, RF-20 to RF-22: after a 429 the version is still good; after anything else a list makes sure"""
    await check_all(WATCH_FAULTS, "watch", control_plane, namespace)


async def test_a_failed_list_is_handled_as_in_client_go(control_plane: ControlPlane, namespace: str) -> None:
    """RF-03 to RF-06, RF-16, RF-22, WR-06: a version is given up at once if the server does not have it, and never otherwise"""
    await check_all(LIST_FAULTS, "list", control_plane, namespace)


async def test_what_happens_between_a_list_and_its_watch_is_reported_once(
    control_plane: ControlPlane, namespace: str
) -> None:
    """RF-01, SI-04: the watch is slow to open, and begins where the list ended"""
    async with config_maps(control_plane, namespace) as it, follower(control_plane, namespace) as follows:
        await see(it, follows, "a")
        follows.proxy.rule(is_watch, EXPIRED)
        follows.proxy.rule(is_watch, delay(0.5))
        follows.begin_chapter()
        follows.proxy.cut_streams()
        await until(lambda: follows.story() == RELISTED, "it has listed again", yet=follows.story)
        await it.change("a", "1")
        await it.put("b")
        await it.change("a", "2")
        await it.delete("b")
        await see(it, follows, "c")
        assert follows.story() == RELISTED
        assert follows.handler.told == it.written
        assert follows.handler.now == await it.truth()
        assert not follows.handler.faults


async def test_streams_that_are_cut_in_the_middle_of_an_object_lose_and_repeat_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    """RF-14: each version that the server ever made is told once, in order, without one list"""
    dice = Random(1)

    async def cut_somewhere(exchange: Exchange) -> web.StreamResponse:
        # At least one event arrives whole, of about 500 bytes: without any it would be a very short watch (RF-15).
        return await exchange.forward(cut_after=dice.randrange(1000, 4000))

    async with config_maps(control_plane, namespace) as it, follower(control_plane, namespace) as follows:
        await see(it, follows, "first")
        follows.proxy.rule(is_watch, cut_somewhere, times=30)
        follows.begin_chapter()
        follows.proxy.cut_streams()
        async with it.churned(10, dice):
            await until(lambda: len(follows.chapter) > 30, "30 requests are sent", yet=lambda: len(follows.chapter))
        truth = await it.truth()
        await until(lambda: follows.handler.now == truth, "the handler has heard of all")
        assert {step.partition(" ")[0] for step in follows.story()} == {"watch"}
        assert follows.handler.told == it.written
        assert follows.cached == truth
        assert not follows.handler.faults


async def test_a_bookmark_moves_the_version_so_that_an_idle_collection_needs_no_list(
    control_plane: ControlPlane, namespace: str
) -> None:
    """RF-10, SV-03, SV-05: etcd has compacted the version of the last event, and the informer does not notice"""
    async with (
        config_maps(control_plane, namespace) as it,
        config_maps(control_plane, "default") as elsewhere,
        follower(control_plane, namespace) as follows,
    ):
        await see(it, follows, "only")
        event = follows.informer.last_resource_version

        async def churn() -> None:
            await elsewhere.put(namespace)
            await elsewhere.delete(namespace)

        # A bookmark comes two seconds before this timeout, unless the server is so busy that it misses the moment.
        follows.proxy.rule(is_watch, rewrite(timeoutSeconds="4"), times=5)
        follows.proxy.cut_streams()
        # A bookmark has a new version only if something changed elsewhere since the watch was opened, so let it change.
        async with load(churn, pause_s=0.2):
            await until(lambda: follows.informer.last_resource_version != event, "a bookmark has come")
        await compact(control_plane, it, event)
        follows.begin_chapter()
        follows.proxy.cut_streams()
        await see(it, follows, "another")
        # A watch with the timeout above may end meanwhile and be reopened; the first begins at the bookmark. No list follows.
        assert follows.story()[0] == "watch last"
        assert {step.partition(" ")[0] for step in follows.story()} == {"watch"}
        assert follows.count("list") == 1


async def compact(plane: ControlPlane, it: ConfigMaps, version: str) -> None:
    """Let etcd forget `version`, and make sure that it did; the API server may have a snapshot of it."""
    await asyncio.to_thread(plane.etcd_call, "kv/compaction", {"revision": await it.revision(), "physical": True})
    any_key = base64.b64encode(b"/").decode()
    with pytest.raises(ControlPlaneError, match="compacted"):
        await asyncio.to_thread(plane.etcd_call, "kv/range", {"key": any_key, "revision": version})


async def test_what_the_server_has_forgotten_is_listed_anew(control_plane: ControlPlane, namespace: str) -> None:
    """RF-08, RF-16, SV-04, SV-05: a token of a list in pages, then the version of a watch."""
    async with (
        config_maps(control_plane, namespace) as it,
        Proxy(control_plane.kubeconfig) as proxy,
        HttpTransport(Settings(proxy.url)) as transport,
    ):
        await it.put_all(f"m{number:02}" for number in range(25))
        source = ListWatch(
            RestClient(transport), Codec(CONFIG_MAPS, ConfigMap), namespace=namespace, field_selector=OURS
        )
        page, in_pages = await Pager(source).list(ListOptions(), 10)
        assert (in_pages, len(page.items), len(proxy.history)) == (True, 25, 3)

        async def forget(exchange: Exchange) -> web.StreamResponse:
            await it.put("late")
            await asyncio.to_thread(control_plane.forget_before, await it.revision())
            return await exchange.forward()

        proxy.rule(lambda seen: "continue" in seen.query, forget)
        page, in_pages = await Pager(source).list(ListOptions(), 10)
        assert (in_pages, len(page.items)) == (True, 26)
        assert len(proxy.history) == 3 + 3, "a page, a token that is refused, and everything at once"
    await asyncio.to_thread(control_plane.restart_apiserver)  # then its cache knows nothing of the past
    async with config_maps(control_plane, namespace) as it, follower(control_plane, namespace) as follows:
        await see(it, follows, "before")
        follows.proxy.rule(is_watch, rewrite(resourceVersion="1"))
        follows.begin_chapter()
        follows.proxy.cut_streams()
        await it.delete("late")
        await see(it, follows, "after")
        assert follows.story() == RELISTED
        assert follows.handler.now == await it.truth()
        assert not follows.handler.faults


@pytest.mark.parametrize("fault", [lose_request, lose_reply])
async def test_a_create_that_is_lost_is_not_repeated_by_us_and_a_second_one_tells_whether_it_arrived(
    control_plane: ControlPlane, namespace: str, fault: Action
) -> None:
    """WR-06, WR-07: a lost reply becomes AlreadyExists, with the object there once"""
    async with (
        config_maps(control_plane, namespace) as it,
        Proxy(control_plane.kubeconfig) as proxy,
        HttpTransport(Settings(proxy.url)) as transport,
    ):
        lossy = RestClient(transport)
        proxy.rule(lambda seen: seen.verb == "create", fault)
        body = {"metadata": {"name": "one"}}
        with pytest.raises(ConnectionLostError):
            await lossy.create(CONFIG_MAPS, namespace, body)
        arrived = await it.truth()
        assert len(arrived) == (1 if fault is lose_reply else 0)
        with pytest.raises(AlreadyExistsError) if arrived else contextlib.nullcontext():
            await lossy.create(CONFIG_MAPS, namespace, body)
        assert [seen.verb for seen in proxy.history] == ["create", "create"]
        assert (await it.truth()).keys() == {f"{namespace}/one"}


CROWD: Final = 2000
CHURNED: Final = 100  # of them, changed, deleted and created again by a test
PADDING: Final = "x" * 4000  # the size of a pod


@pytest.fixture(scope="module")
def crowd(control_plane: ControlPlane) -> str:
    """A namespace with 2,000 config maps. It is not deleted, since that would be a load on the tests that follow."""
    name = "crowd"
    control_plane.create_namespace(name)

    async def fill() -> None:
        async with config_maps(control_plane, name) as it:
            await it.put_all([f"c{number}" for number in range(CROWD)], PADDING)

    asyncio.run(fill())
    return name


async def test_a_late_handler_hears_of_each_of_2000_objects_once_while_writers_go_on(
    control_plane: ControlPlane, crowd: str
) -> None:
    """SI-04, SI-07"""
    async with config_maps(control_plane, crowd) as it, follower(control_plane, crowd) as follows:
        handlers = [follows.handler]
        async with it.churned(CHURNED, Random(2)):
            for _ in range(3):
                await asyncio.sleep(0.3)
                handlers.append(Replay())
                await follows.informer.add_event_handler(handlers[-1]).wait_for_sync()
                assert len(handlers[-1].told) >= CROWD - CHURNED  # all of them, before it has synced
        truth = await it.truth()
        await until(lambda: all(handler.now == truth for handler in handlers), "all handlers have heard of all")
        assert [handler.faults for handler in handlers] == [[]] * 4
        assert follows.cached == truth
        assert follows.count("list") == 1


async def test_2000_objects_come_in_four_pages_when_the_cache_of_the_server_can_not_help(
    control_plane: ControlPlane, crowd: str
) -> None:
    """RF-04, RF-07, RF-08, SV-01"""
    async with config_maps(control_plane, crowd) as it, follower(control_plane, crowd) as follows:
        await see(it, follows, "one-more")
        before = follows.cached
        follows.begin_chapter()
        follows.proxy.rule(is_watch, EXPIRED)
        follows.proxy.rule(is_list, answer_status(410, "Expired"))
        follows.proxy.cut_streams()
        await until(lambda: bool(follows.story()) and follows.story()[-1] == "watch", "it watches", yet=follows.story)
        assert follows.story() == ["watch last", "list last", *["list any"] * 4, "watch"]
        pages = [seen.query for seen in follows.chapter if seen.verb == "list"][1:]
        assert [page.get("limit") for page in pages] == [str(PAGE_SIZE)] * 4
        assert ["continue" in page for page in pages] == [False, True, True, True]
        assert follows.cached == before


async def test_pages_keep_the_memory_below_what_the_collection_weighs(control_plane: ControlPlane, crowd: str) -> None:
    """RF-08: the bytes of only one page are in memory at a time, and it takes seconds"""
    settings = await asyncio.to_thread(load_settings, str(control_plane.kubeconfig))
    async with HttpTransport(settings) as transport, asyncio.timeout(10):
        source = ListWatch(RestClient(transport), Codec(CONFIG_MAPS, ConfigMap), namespace=crowd, field_selector=OURS)
        tracemalloc.start()
        try:
            page, in_pages = await Pager(source).list(ListOptions(), PAGE_SIZE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert in_pages
    assert len(page.items) >= CROWD - CHURNED
    assert peak < CROWD * len(PADDING)
