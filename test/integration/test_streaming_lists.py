"""Streaming lists on a real API server: one request if it supports them, else a rejection and a list; equal caches."""

from aiohttp import web
from structlog.testing import capture_logs

from hack.control_plane import ControlPlane
from hack.fault_proxy.proxy import Exchange
from hack.kubernetes_versions import STREAMING_LISTS
from integration.faults.config_maps import CONFIG_MAPS, OURS, config_maps
from integration.faults.follower import Follower, follower
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, Request, load_settings

COUNT = 120


def reads(follows: Follower) -> list[str]:
    """The requests so far: `stream` for a streaming list, `watch` and `list`."""
    return ["stream" if "sendInitialEvents" in seen.query else seen.verb for seen in follows.proxy.history]


async def test_streamed_or_listed_the_cache_is_the_same_and_follows_the_server(
    control_plane: ControlPlane, namespace: str
) -> None:
    """RF-27, RF-28, SV-09"""
    streams = control_plane.version.has(STREAMING_LISTS)
    async with config_maps(control_plane, namespace) as it:
        await it.put_all(f"m{number}" for number in range(COUNT))
        with capture_logs() as logs:
            async with (
                follower(control_plane, namespace, stream_lists=True) as ours,
                follower(control_plane, namespace) as lister,
            ):
                await until(
                    lambda: len(reads(ours)) == (1 if streams else 3) and len(reads(lister)) == 2, "both have listed"
                )
                assert reads(ours) == (["stream"] if streams else ["stream", "list", "watch"])
                assert reads(lister) == ["list", "watch"]
                assert [log["event"] for log in logs if log["log_level"] != "debug"] == []
                await until(
                    lambda: len(ours.handler.now) == COUNT, "all objects are cached", yet=lambda: len(ours.handler.now)
                )
                assert ours.cached == lister.cached == await it.truth()
                await it.put("new")
                await it.change("m0", "changed")
                for name in ("m1", "m2"):
                    await it.delete(name)
                    truth = await it.truth()
                    await until(lambda: ours.cached == lister.cached == truth, "both caches are right")  # noqa: B023
                    before = len(reads(ours))
                    ours.proxy.cut_streams()
                await until(lambda: len(reads(ours)) > before, "it reads again")
                assert set(reads(ours)[3:]) <= {"watch"}, "the stream goes on as a watch does, from the last version"
                assert ours.handler.faults == []


async def measured(http: HttpTransport, namespace: str) -> tuple[int, int, int]:
    """The bytes of a streaming list: of its first event, of all events but bookmarks, and of the whole."""
    query = {"watch": "true", "timeoutSeconds": "1", "allowWatchBookmarks": "true", "fieldSelector": OURS}
    query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    response = await http.send(Request("GET", CONFIG_MAPS.path(namespace), query))
    try:
        lines = (await response.body()).splitlines(keepends=True)
    finally:
        response.close()
    events = [line for line in lines if b'"BOOKMARK"' not in line]
    return len(lines[0]), sum(map(len, events)), sum(map(len, lines))


async def test_wherever_a_stream_breaks_the_cache_ends_with_the_truth(
    control_plane: ControlPlane, namespace: str
) -> None:
    """RF-28: in an event, between two, before and after the bookmark; without streaming lists the watch is cut instead"""
    streams = control_plane.version.has(STREAMING_LISTS)
    async with (
        HttpTransport(load_settings(str(control_plane.kubeconfig))) as http,
        config_maps(control_plane, namespace) as it,
    ):
        await it.put_all(f"m{number}" for number in range(5))
        event, before_bookmark, whole = await measured(http, namespace)
        assert (before_bookmark < whole) is streams
        # A stream that breaks before its first event counts as not served. The last cuts are in the event of the change.
        for length in range(event + 1 if streams else event // 2, whole + event, event // 2):

            async def cut(exchange: Exchange, length: int = length) -> web.StreamResponse:
                return await exchange.forward(cut_after=length)

            async with follower(control_plane, namespace, stream_lists=True, first=cut) as follows:
                await it.change("m0", str(length))
                truth = await it.truth()
                await until(lambda: follows.cached == truth, "the cache is right")  # noqa: B023
                assert ("list" in reads(follows)) is not streams
                assert len(reads(follows)) <= (2 if streams else 5)
