"""Who may look at the page, and what every response says to browsers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.page_cluster import PageCluster
from tfjob_operator.cli.page.entrance import HEADERS, MOST_SESSIONS, Door
from unit.cli.page.browser import a_page

PATHS = (
    "/",
    "/team/mnist",
    "/-/stream",
    "/-/manifest/team/mnist",
    "/-/explain/team/mnist",
    "/-/log/team/mnist-worker-0",
    "/-/static/main.js",
)


async def test_nothing_is_shown_to_who_was_not_let_in(page_cluster: PageCluster, page_kubeconfig: Path) -> None:
    """Neither pages nor data nor scripts; no path leads to another file of the server either."""
    async with a_page(page_kubeconfig) as browser:
        for path in (*PATHS, "/-/static/..%2fserver.py", "/-/nothing"):
            code, _, body = await browser.get(path)
            assert code == 401, path
            assert b"ccess denied" in body
        assert (await browser.get("/?token=wrong"))[0] == 401
        assert (await browser.get("/", Cookie=f"tfjob-page-{browser.home.rpartition(':')[2]}=wrong"))[0] == 401


async def test_a_token_lets_in_one_browser_for_a_cookie_that_no_script_sees(
    page_cluster: PageCluster, page_kubeconfig: Path
) -> None:
    """The token is used up by that, and another one is printed."""
    async with a_page(page_kubeconfig) as browser:
        [address] = browser.told
        code, headers, _ = await browser.get(address.removeprefix(browser.home))
        assert code == 200
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(headers["Set-Cookie"].split("; "))
        assert (await browser.get("/"))[0] == 200
        assert (await browser.get("/-/static/main.js"))[0] == 200
        assert len(browser.told) == 2
        browser.http.cookie_jar.clear()
        assert (await browser.get(address.removeprefix(browser.home)))[0] == 401
        await browser.enter()
        assert (await browser.get("/"))[0] == 200


async def test_every_response_forbids_other_hosts_scripts_and_frames(
    page_cluster: PageCluster, page_kubeconfig: Path
) -> None:
    """Pages, files, errors, streams and refusals alike."""
    async with a_page(page_kubeconfig) as browser:
        refused = [
            await browser.get("/"),
            await browser.get("/", method="POST"),
            await browser.get("/", Host="evil.example"),
        ]
        await browser.enter()
        paths = (
            "/",
            "/-/static/main.js",
            "/-/static/nothing.js",
            "/-/manifest/team/none",
            "/-/log/team/none",
            "/-/explain/team/none",
        )
        answers = [*refused, *[await browser.get(path) for path in paths]]
        async with browser.http.get(f"{browser.home}/-/stream") as stream:
            answers.append((stream.status, dict(stream.headers), b""))
        for code, headers, _ in answers:
            assert {name: headers.get(name) for name in HEADERS} == HEADERS, code
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_the_page_takes_nothing_but_questions(
    page_cluster: PageCluster, page_kubeconfig: Path, method: str
) -> None:
    """Also from a browser that was let in."""
    async with a_page(page_kubeconfig) as browser:
        await browser.enter()
        code, headers, _ = await browser.get("/", method=method)
        assert (code, headers["Allow"]) == (405, "GET, HEAD")


async def test_another_name_for_this_address_is_refused(page_cluster: PageCluster, page_kubeconfig: Path) -> None:
    """Else a page elsewhere could let its own name resolve to this address, and read the responses (DNS rebinding)."""
    async with a_page(page_kubeconfig) as browser:
        await browser.enter()
        port = browser.home.rpartition(":")[2]
        hosts = {"evil.example": 421, f"evil.example:{port}": 421, "127.0.0.1": 421, f"LOCALHOST:{port}": 200}
        for host, expected in hosts.items():
            assert (await browser.get("/", Host=host))[0] == expected, host


async def test_what_another_page_asks_is_refused_though_the_browser_sends_the_cookie(
    page_cluster: PageCluster, page_kubeconfig: Path
) -> None:
    """Other ports of this machine are of the same site to a browser. Following a link is allowed."""
    async with a_page(page_kubeconfig) as browser:
        await browser.enter()
        asks = {"Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}
        assert (await browser.get("/-/manifest/team/x", Sec_Fetch_Site="same-site", **asks))[0] == 403
        assert (await browser.get("/-/static/main.js", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors"))[0] == 403
        framed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
        assert (await browser.get("/", Sec_Fetch_Site="cross-site", **framed))[0] == 403
        followed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
        assert (await browser.get("/", Sec_Fetch_Site="cross-site", **followed))[0] == 200
        assert (await browser.get("/-/static/main.js", Sec_Fetch_Site="same-origin", **asks))[0] == 200


def test_the_oldest_of_many_browsers_is_forgotten() -> None:
    """Sessions are bounded; a secret is known as long as it is kept."""
    door = Door(1)
    first = door.let_in(door.token)
    assert first is not None
    assert door.knows(first)
    for _ in range(MOST_SESSIONS):
        assert door.let_in(door.token)
    assert not door.knows(first)
    assert not door.knows("")
    assert door.let_in("\ud800") is None
