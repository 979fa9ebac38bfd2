"""Who may look at the page, and what every response says to browsers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hack.page_cluster import PageCluster
from tfjob_operator.cli.page.authenticator import ENTER, HEADERS, MAX_SESSIONS, LocalAuthenticator, read_files
from unit.cli.page.browser import MIXED, PAGES, READS, a_cluster_page, a_page, routes_of

BOTH = pytest.mark.parametrize("serve", [a_page, a_cluster_page])
Serve = Callable[[PageCluster], Any]


async def test_nothing_is_shown_to_who_was_not_let_in(page_cluster: PageCluster) -> None:
    """Of the cluster: pages and scripts are the same for everybody. No path leads to another file of the server."""
    read = MIXED | READS
    assert routes_of(LocalAuthenticator(1, lambda: None)) == {*read, *PAGES, "/-/static/{file}", ENTER}
    async with a_page(page_cluster, enter=False) as browser:
        for secret in ("", "wrong"):
            for path in (*read.values(), "/nothing/at/all/here"):
                code, _, body = await browser.get(path, TFJob_Session=secret, Cookie=f"session={secret}")
                assert code == 401, path
                assert b"Access denied" in body
            assert (await browser.get("/-/enter", TFJob_Token=secret))[0] == 401
        for path in PAGES.values():
            assert (await browser.get(path))[::2] == (200, read_files()["index.html"].body)
        assert (await browser.get("/-/static/..%2fserver.py"))[0] == 400
        assert (await browser.get("/-/static/server.py"))[0] == 404
        assert (await browser.get("/-/static/icon.svg"))[1]["Content-Type"] == "image/svg+xml"
        assert (await browser.get("/?token=" + browser.links[0].partition("token=")[2]))[0] == 200
        assert len(browser.links) == 1


async def test_a_token_lets_in_one_browser_for_a_secret_that_no_other_server_is_sent(page_cluster: PageCluster) -> None:
    """No cookie is set: a browser sends those to all ports of this machine. Another token is printed."""
    async with a_page(page_cluster, enter=False) as browser:
        [address] = browser.links
        token = address.removeprefix(f"{browser.home}/#token=")
        code, headers, _ = await browser.get("/-/enter", TFJob_Token=token)
        assert code == 200
        assert "Set-Cookie" not in headers
        assert len(browser.links) == 2
        assert (await browser.get("/-/enter", TFJob_Token=token))[0] == 401
        assert (await browser.get("/-/manifest/team/none"))[0] == 401
        await browser.enter()
        assert (await browser.get("/-/manifest/team/none"))[0] == 404
        assert len(browser.links) == 3


@BOTH
async def test_every_response_forbids_other_hosts_scripts_and_frames(page_cluster: PageCluster, serve: Serve) -> None:
    """Pages, files, errors, streams, health, logins and refusals alike."""
    page_cluster.tokens["good"] = "ann", ()
    paths = ("/", "/-/static/main.js", "/-/static/nothing.js", "/-/log/team/none", "/-/explain/team/none", "/healthz")
    async with serve(page_cluster) as browser:
        answers = [await browser.log_in(token) for token in ("good", "wrong")]
        for sent in ({}, {"Authorization": "Bearer good"}, {"method": "POST"}, {"Host": "evil.example"}):
            answers += [await browser.get(path, **sent) for path in paths]
        async with browser.http.get(f"{browser.home}/-/stream", headers={"Authorization": "Bearer good"}) as stream:
            answers.append((stream.status, dict(stream.headers), b""))
    for code, headers, _ in answers:
        assert {name: headers.get(name) for name in HEADERS} == HEADERS, code
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert "http" not in policy


@BOTH
async def test_the_page_takes_nothing_but_questions(page_cluster: PageCluster, serve: Serve) -> None:
    """Also from a browser that was let in; in a cluster it takes logins, too."""
    async with serve(page_cluster) as browser:
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            for path in ("/", "/-/manifest/team/mnist", "/healthz"):
                code, headers, _ = await browser.get(path, method=method)
                assert (code, headers["Allow"]) == (405, "GET, HEAD")


async def test_another_name_for_this_address_is_refused(page_cluster: PageCluster) -> None:
    """Else a page elsewhere could let its own name resolve to this address, and read the responses (DNS rebinding).

    `localhost` may be another address, ::1, where a program of somebody else listens.
    """
    async with a_page(page_cluster) as browser:
        port = browser.home.rpartition(":")[2]
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"localhost:{port}"):
            assert (await browser.get("/", Host=host))[0] == 421, host


async def test_what_another_page_asks_is_refused_whatever_the_browser_sends(page_cluster: PageCluster) -> None:
    """Other ports of this machine are of the same site to a browser. Following a link is allowed."""
    async with a_page(page_cluster) as browser:
        asks = {"Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}
        assert (await browser.get("/-/manifest/team/x", Sec_Fetch_Site="same-site", **asks))[0] == 403
        assert (await browser.get("/-/static/main.js", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors"))[0] == 403
        framed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
        assert (await browser.get("/", Sec_Fetch_Site="cross-site", **framed))[0] == 403
        followed = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
        assert (await browser.get("/", Sec_Fetch_Site="cross-site", **followed))[0] == 200
        assert (await browser.get("/-/static/main.js", Sec_Fetch_Site="same-origin", **asks))[0] == 200


async def test_a_malformed_request_is_refused_and_not_logged(
    page_cluster: PageCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reaches the port could fill the terminal or the log with tracebacks."""
    async with a_page(page_cluster, enter=False) as browser:
        host, _, port = browser.home.removeprefix("http://").partition(":")
        for request in ("GET / HTTP/9", "nonsense", "GET / HTTP/1.1\r\nno header", f"GET /{'a' * 9000} HTTP/1.1"):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"{request}\r\n\r\n".encode())
            assert b" 400 Bad Request" in await reader.readline()
            writer.close()
    assert [each.getMessage() for each in caplog.records if each.exc_info] == []


def test_the_oldest_of_many_browsers_is_forgotten() -> None:
    """Sessions are bounded; a secret is known as long as it is kept."""
    authenticator = LocalAuthenticator(1, lambda: None)
    first = authenticator.create_session(authenticator.token)
    assert first is not None
    assert authenticator.knows(first)
    for _ in range(MAX_SESSIONS):
        assert authenticator.create_session(authenticator.token)
    assert not authenticator.knows(first)
    assert not authenticator.knows("")
    assert authenticator.create_session("\ud800") is None
