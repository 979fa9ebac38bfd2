"""The fault proxy between a real client and a small server, all with TLS and certificates of one authority."""

import asyncio
import gc
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from hack.control_plane.run.folders import write_kubeconfig
from hack.control_plane.run.pki import Authority
from hack.fault_proxy.proxy import (
    LOOPBACK,
    Place,
    Proxy,
    Seen,
    answer_html,
    answer_status,
    delay_events,
    kill_after,
    kill_before,
    lose_reply,
    slow_down,
)
from hack.page_cluster import PageCluster
from support.waiting import until
from tfjob_operator.api.client import HttpTransport, ListOptions, RestClient, load_settings
from tfjob_operator.api.client.errors import ApiError, ConnectionLostError, ServerError, TooManyRequestsError
from tfjob_operator.api.core import CONFIG_MAPS, LEASES, PODS

pytestmark = pytest.mark.sockets

LINE = b'{"type":"BOOKMARK","object":{}}\n'


class Server:
    """An API server that has seen some requests, and sends lines on watches when told to."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.watches: list[web.StreamResponse] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen.append(f"{request.method} {request.path}")
        if "watch" not in request.query:
            return web.json_response({"kind": "Status", "path": request.path})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.watches.append(response)
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody sets this future")

    async def send(self) -> None:
        for response in self.watches:
            await response.write(LINE)


class Scene:
    """A client, the proxy that it goes through, and the server."""

    def __init__(self, server: Server, proxy: Proxy, client: RestClient, kubeconfig: Path) -> None:
        self.server = server
        self.proxy = proxy
        self.client = client
        self.kubeconfig = kubeconfig

    async def create(self, name: str = "a") -> Any:
        return json.loads(await self.client.create(PODS, "ns", {"metadata": {"name": name}}))


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    authority = Authority.make(folder)
    serving, user = authority.server("server", [LOOPBACK]), authority.client("admin", "admin")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate))
    tls.load_cert_chain(serving.certificate, serving.key)
    tls.verify_mode = ssl.CERT_REQUIRED
    server = Server()
    runner = web.ServerRunner(web.Server(server.handle, handler_cancellation=True, access_log=None), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0, ssl_context=tls).start()
    direct = write_kubeconfig(
        folder / "direct",
        server=f"https://{LOOPBACK}:{runner.addresses[0][1]}",
        authority=authority.certificate,
        user="admin",
        credential=user,
    )
    try:
        async with Proxy(direct, serving=authority.server("proxy", [LOOPBACK])) as proxy:
            through = proxy.kubeconfig_through(folder / "through")
            async with HttpTransport(load_settings(str(through))) as transport:
                yield Scene(server, proxy, RestClient(transport), through)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/api/v1/pods", Place("", "pods")),
        ("/api/v1/namespaces/ns", Place("", "namespaces", "ns")),
        ("/api/v1/namespaces/ns/pods/a/status", Place("ns", "pods", "a", "status")),
        ("/apis/apps/v1/namespaces/ns/deployments", Place("ns", "deployments")),
        ("/version", Place()),
    ],
)
def test_a_path_is_read(path: str, place: Place) -> None:
    assert Place.of(path) == place


def test_a_request_says_what_it_does() -> None:
    assert str(Seen("PATCH", "/api/v1/namespaces/ns/pods/a/status", {}, 0.0)) == "patch pods/a/status"
    assert Seen("GET", "/api/v1/pods", {}, 0.0).verb == "list"
    assert Seen("GET", "/api/v1/pods", {"watch": "true"}, 0.0).verb == "watch"


async def test_requests_pass_with_tls_and_only_writes_have_numbers(tmp_path: Path) -> None:
    """A lease is renewed by the clock, so its writes have none either."""
    async with scene(tmp_path) as it:
        assert (await it.create())["path"] == "/api/v1/namespaces/ns/pods"
        await it.client.get(PODS, "ns", "a")
        await it.client.create(LEASES, "ns", {})
        await it.client.delete(PODS, "ns", "a")
        assert [(str(seen), seen.number, seen.status) for seen in it.proxy.history] == [
            ("create pods", 1, 200),
            ("get pods/a", 0, 200),
            ("create leases", 0, 200),
            ("delete pods/a", 2, 200),
        ]
        assert len(it.server.seen) == 4


async def test_a_client_without_a_certificate_of_the_authority_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as it, aiohttp.ClientSession() as session:
        tls = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        with pytest.raises(aiohttp.ClientError):
            await (await session.get(f"{it.proxy.url}/version", ssl=tls)).read()
        assert it.server.seen == []


@pytest.mark.parametrize(("action", "arrives"), [(kill_before, 1), (kill_after, 2)])
async def test_the_client_is_killed_before_or_after_the_server_has_a_write(
    tmp_path: Path, action: Any, arrives: int
) -> None:
    """The write of the given number alone; its response is never delivered."""
    killed: list[int] = []
    async with scene(tmp_path) as it:
        it.proxy.rule(lambda seen: seen.number == 2, action(lambda: killed.append(len(it.server.seen))))
        await it.create("a")
        with pytest.raises(ConnectionLostError):
            await it.create("b")
        assert killed == [arrives]
        await it.create("c")
        assert len(it.server.seen) == arrives + 1


async def test_an_answer_is_lost_though_the_server_has_the_write(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.proxy.rule(lambda seen: seen.number == 1, lose_reply)
        with pytest.raises(ConnectionLostError):
            await it.create()
        assert it.server.seen == ["POST /api/v1/namespaces/ns/pods"]


async def test_answers_of_servers_in_trouble_and_of_other_proxies_are_given(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        it.proxy.rule(lambda seen: seen.number == 1, answer_status(429, "TooManyRequests"))
        with pytest.raises(TooManyRequestsError):
            await it.create()
        for number, code in ((2, 409), (3, 500), (4, 503)):
            it.proxy.rule(lambda seen: bool(seen.number), answer_status(code, f"Any{number}"))
            with pytest.raises(ApiError):
                await it.create()
        it.proxy.rule(lambda seen: seen.number == 5, answer_html(502))
        with pytest.raises(ServerError):
            await it.create()
        assert it.server.seen == []


async def test_a_response_is_slowed_down(tmp_path: Path) -> None:
    """At 10 bytes a second it would take seconds; so it is still under way when all of a fast one has arrived."""
    async with scene(tmp_path) as it:
        it.proxy.rule(lambda seen: seen.number == 1, slow_down(10))
        slow = asyncio.create_task(it.create("slow"))
        await until(lambda: it.proxy.streams, "a watch is open")
        await it.create("fast")
        assert not slow.done()
        slow.cancel()
        await asyncio.wait({slow})


async def test_watches_alone_are_frozen_and_others_go_on(tmp_path: Path) -> None:
    """Also those of another resource."""
    lines: dict[str, int] = {"pods": 0, "configmaps": 0}

    async def follow(client: RestClient, resource: Any) -> None:
        async with client.watch(resource, ListOptions(namespace="ns")) as batches:
            async for batch in batches:
                lines[resource.plural] += len(list(batch))

    async with scene(tmp_path) as it, asyncio.TaskGroup() as tasks:
        following = [tasks.create_task(follow(it.client, resource)) for resource in (PODS, CONFIG_MAPS)]
        await until(lambda: len(it.proxy.streams) == 2, "two watches are open")
        it.proxy.freeze_streams(lambda seen: seen.place.resource == "pods")
        await it.server.send()
        await until(lambda: lines["configmaps"] == 1, "a ConfigMap is heard of")
        await it.create()
        assert lines["pods"] == 0
        it.proxy.thaw_streams()
        await until(lambda: lines["pods"] == 1, "a pod is heard of")
        for task in following:
            task.cancel()


async def test_a_watch_is_cut_half_closed_or_late(tmp_path: Path) -> None:
    """The client sees an end in both cases, and after a delay all lines."""

    async def lines(count: int) -> int:
        found = 0
        async with it.client.watch(PODS, ListOptions(namespace="ns")) as batches:
            async for batch in batches:
                found += len(list(batch))
                if found == count:
                    break
        return found

    async with scene(tmp_path) as it:
        for end in (it.proxy.cut_streams, it.proxy.half_close_streams):
            watching = asyncio.create_task(lines(1))
            await until(lambda: it.proxy.streams, "a watch is open")
            end()
            with pytest.raises(ConnectionLostError):
                await watching
            await until(lambda: not it.proxy.streams, "no watch is open")
            it.server.watches.clear()
        it.proxy.rule(lambda seen: seen.verb == "watch", delay_events(0.05))
        watching = asyncio.create_task(lines(2))
        await until(lambda: it.server.watches, "the server has a watch")
        await it.server.send()
        await it.server.send()
        assert await watching == 2


async def test_a_connection_that_is_being_accepted_is_not_forgotten_if_the_proxy_begins_to_refuse(
    tmp_path: Path,
) -> None:
    """Otherwise it stays open, its client waits, and the garbage collection here warns about it."""
    async with scene(tmp_path) as it:
        for steps in range(4):  # the number of steps of the loop that asyncio has had for the connection
            with socket.create_connection((LOOPBACK, URL(it.proxy.url).port)):
                for _ in range(steps):
                    await asyncio.sleep(0)
                await it.proxy.refuse()
                await asyncio.sleep(0)
                gc.collect()
            await it.proxy.accept()


@pytest.mark.sockets
def test_a_connection_that_is_being_accepted_is_not_forgotten_if_the_cluster_of_the_page_stops() -> None:
    """Clients reconnect within milliseconds after their watches were closed."""
    with PageCluster().running() as cluster:
        for _ in range(20):
            clients = [socket.create_connection(cluster.address) for _ in range(20)]
            cluster.stop()
            gc.collect()
            for client in clients:
                client.close()
            cluster.start()
