"""Serves a page, and stands in for a browser as far as HTTP goes."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, cast
from urllib.parse import urlsplit

import aiohttp

from hack.control_plane import ControlPlane
from hack.page_cluster import PageCluster
from support.waiting import until
from tfjob_operator.cli.commands.dashboard_ import listen
from tfjob_operator.cli.page import __main__ as addon
from tfjob_operator.cli.page.authenticator import ENTER, SESSION, LocalAuthenticator
from tfjob_operator.cli.page.cluster_authenticator import LOGIN, ClusterAuthenticator
from tfjob_operator.cli.page.run import serving
from tfjob_operator.cli.page.server import Page, Parts
from tfjob_operator.cli.target import Target

LIMIT_S: Final = 20.0
JOBS: Final = {"{namespace}/{name}": "nlp/bert", "{namespace}/{kind}/{name}": "nlp/tfjob.tensorflow.org/old"}
PAGES: Final = {"/": "/", **{f"/{route}": f"/{job}" for route, job in JOBS.items()}}
"""Those whose response is the same for all that were let in."""
MIXED: Final = {"/-/stream": "/-/stream?job=nlp/bert", "/-/curves": "/-/curves?run=nlp/bert"}
"""Those whose response has what its viewer may see of what was asked for."""
READS: Final = {
    "/-/log/{namespace}/{name}": "/-/log/nlp/bert-worker-0",
    **{
        f"/-/{what}/{route}": f"/-/{what}/{job}"
        for what in ("logs", "manifest", "explain", "usage", "tensorboard")
        for route, job in JOBS.items()
    },
}
"""Those that are refused to who may not see what was asked for."""


def routes_of(authenticator: LocalAuthenticator | ClusterAuthenticator) -> set[str]:
    """All routes of a page, as the application has them."""
    parts = Parts(*[cast("Any", None)] * len(Parts._fields))
    return {
        each.resource.canonical for each in Page(authenticator, parts).application().router.routes() if each.resource
    }


class Browser:
    """Sends requests to one page. `links` are those that the page has printed."""

    def __init__(self, http: aiohttp.ClientSession, links: list[str]) -> None:
        self.http = http
        self.links = links
        address = urlsplit(links[0])
        self.home = f"{address.scheme}://{address.netloc}"

    async def get(
        self, path: str, method: str = "GET", body: str = "", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Return code, headers and body."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        address = self.home + path
        async with self.http.request(method, address, data=body, headers=given, allow_redirects=False) as response:
            return response.status, dict(response.headers), await response.read()

    async def log_in(self, token: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Send the form."""
        return await self.get(LOGIN, "POST", json.dumps({"token": token}), Content_Type="application/json", **headers)

    async def enter(self) -> None:
        """Use the newest address."""
        code, _, body = await self.get(ENTER, TFJob_Token=self.links[-1].partition("#token=")[2])
        assert code == 200
        self.http.headers[SESSION] = json.loads(body)["session"]

    @asynccontextmanager
    async def stream(self, path: str = "stream", **headers: str) -> AsyncIterator[AsyncIterator[tuple[str, str, Any]]]:
        """Open a stream; inside the block iterate over its events: ID, kind, data."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.get(f"{self.home}/-/{path}", headers=given) as response:
            assert response.status == 200
            yield _events(response)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, Any]]:
    fields: dict[str, str] = {}
    with suppress(aiohttp.ClientPayloadError):  # the page ends a stream by closing its connection
        async for line in response.content:
            name, _, value = line.decode().rstrip("\n").partition(":")
            if name:
                fields[name] = value.strip()
            elif fields:
                data = fields.get("data")
                yield fields.get("id", ""), fields["event"], json.loads(data) if data else None
                fields = {}


@asynccontextmanager
async def a_browser(links: list[str]) -> AsyncIterator[Browser]:
    """Open a browser, which believes any certificate."""
    timeout, connector = aiohttp.ClientTimeout(LIMIT_S), aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        yield Browser(http, links)


@asynccontextmanager
async def a_page(
    cluster: PageCluster | ControlPlane, *, everywhere: bool | None = None, enter: bool = True, flags: str = ""
) -> AsyncIterator[Browser]:
    """Serve a page on a free port, which has read all; with `enter` the browser was let in."""
    links: list[str] = []
    read = Target(kubeconfig=str(cluster.kubeconfig)).access
    with listen(0) as listening:
        page = serving(read, listening, links.append, everywhere=everywhere, flags=flags)
        async with page, a_browser(links) as browser:
            if enter:
                await browser.enter()
                await rows_of(browser)
            yield browser


async def rows_of(browser: Browser, **headers: str) -> dict[str, Any]:
    """What the list shows once everything was read: rows by key, and under "" the state of the page."""
    found: dict[str, Any] = {}
    async with browser.stream(**headers) as events:
        await until_known(events, found, lambda: bool((found.get("") or {}).get("synced")))
    return found


async def until_known(events: Any, known: dict[str, Any], holds: Callable[[], bool]) -> None:
    """Read a stream until something holds for what is known."""
    async for _, kind, data in events:
        if kind == "rows":
            take(known, data)
        if holds():
            return
    raise AssertionError("the stream has ended")


def jobs_in(known: dict[str, Any]) -> set[str]:
    """The keys of the jobs of a list."""
    return {*known} - {""}


async def until_jobs(events: Any, known: dict[str, Any], wanted: set[str]) -> None:
    """Read a stream until the list has these jobs."""
    await until_known(events, known, lambda: jobs_in(known) == wanted)


async def views(events: Any) -> AsyncIterator[Any]:
    """The views of a job in a stream."""
    async for _, kind, data in events:
        if kind == "job":
            yield data


def take(known: dict[str, Any], data: Any) -> None:
    """Apply a message to what is known, as the page does."""
    if data["full"]:
        known.clear()
    if data["state"]:
        known[""] = data["state"]
    known |= {row["key"]: row for row in data["rows"]}
    for key in data["gone"]:
        known.pop(key, None)


@asynccontextmanager
async def a_cluster_page(cluster: PageCluster, **plan: Any) -> AsyncIterator[Browser]:
    """Serve a page as it runs in a cluster, on a free port, which has read all."""
    read = Target(kubeconfig=str(cluster.kubeconfig), namespace=plan.get("namespace")).access
    with listen(0) as listening:
        home = f"http{'s' * ('certificate' in plan)}://127.0.0.1:{listening.getsockname()[1]}/"
        async with addon.serving(addon.ClusterPageOptions(read, listening, **plan)), a_browser([home]) as browser:

            async def is_ready() -> bool:
                return (await browser.get("/readyz"))[0] == 200

            await until(is_ready, "the page has read all", limit_s=LIMIT_S)
            yield browser
