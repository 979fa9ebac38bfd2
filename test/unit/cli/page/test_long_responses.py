"""Streams, logs and curves: how many there may be, and what ends them."""

import asyncio
import socket

import pytest

from hack.objects import a_job, a_pod
from hack.page_cluster import PageCluster
from tfjob_operator.cli.page import long_responses
from unit.cli.page.browser import Browser, a_cluster_page

ANN = "Bearer ann"
BEN = "Bearer ben"
PATHS = ("stream", "log/team/mnist-worker-0?follow=true", "logs/team/mnist?follow=true", "curves?run=team/mnist")


@pytest.fixture
def cluster(page_cluster: PageCluster) -> PageCluster:
    """A job with a log of megabytes, for ann and ben."""
    page_cluster.put("tfjobs", a_job("mnist", "Running"))
    page_cluster.put("pods", a_pod("mnist"))
    page_cluster.write_log("mnist-worker-0", b"%b\n" % (b"x" * 1_000) * 10_000)
    for name in ("ann", "ben"):
        page_cluster.tokens[name] = name, ()
        page_cluster.grant(name, resources="tfjobs pods events pods/log")
    return page_cluster


def not_reading(browser: Browser, path: str) -> socket.socket:
    """A connection whose other side sends a request, and reads nothing."""
    host, _, port = browser.home.removeprefix("http://").partition(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    connection.sendall(f"GET /-/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: {ANN}\r\n\r\n".encode())
    return connection


async def test_a_viewer_may_have_so_many_open_and_all_viewers_some_more(
    cluster: PageCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they are. One that reads nothing is closed, and makes room."""
    monkeypatch.setattr(long_responses, "MAX_PER_VIEWER", 4)
    monkeypatch.setattr(long_responses, "MAX_OPEN", 5)
    monkeypatch.setattr(long_responses, "STALLED_S", 60.0)
    async with a_cluster_page(cluster) as browser:
        silent = [not_reading(browser, path) for path in PATHS]
        await counted(browser, 4)
        for path in PATHS:
            code, headers, body = await browser.get(f"/-/{path}", Authorization=ANN)
            assert (code, headers["Retry-After"]) == (429, "10"), path
            assert b'"You have 4 streams and l' in body
        async with browser.stream(Authorization=BEN):
            code, headers, body = await browser.get(f"/-/{PATHS[1]}", Authorization=BEN)
            assert (code, headers["Retry-After"]) == (503, "10")
            assert b'"Too many streams and ' in body
        silent.pop().close()
        await counted(browser, 3)
        async with browser.stream(Authorization=ANN):
            pass  # it was opened
        for each in silent:
            each.close()
        await counted(browser, 0)
        monkeypatch.setattr(long_responses, "STALLED_S", 0.1)
        with not_reading(browser, PATHS[1]), not_reading(browser, PATHS[2]):
            await counted(browser, 2)
            await counted(browser, 0)


async def counted(browser: Browser, count: int) -> None:
    """Wait until so many are open, as the page counts them."""
    while f"\ntfjob_page_streams {count}\n".encode() not in (await browser.get("/metrics"))[2]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("path", PATHS[1:])
async def test_what_is_open_ends_when_the_right_to_it_is_withdrawn_though_nothing_is_written(
    cluster: PageCluster, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """After the time for which answers are kept; the review is asked again, and a second request is refused."""
    monkeypatch.setattr(long_responses, "CHECK_S", 0.02)
    monkeypatch.setattr("tfjob_operator.cli.page.reviews.ALLOWED_TTL_S", 0.1)
    async with a_cluster_page(cluster) as browser:
        async with browser.http.get(f"{browser.home}/-/{path}", headers={"Authorization": ANN}) as response:
            assert response.status == 200
            cluster.rights = {each for each in cluster.rights if each[0] != "ann" or each[2] != "pods/log"}
            with pytest.raises(Exception, match="not completed"):
                await response.read()
        if "curves" not in path:
            assert (await browser.get(f"/-/{path}", Authorization=ANN))[0] == 403
