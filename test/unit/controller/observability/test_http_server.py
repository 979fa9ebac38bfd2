"""The three pages, without a socket; `test/integration/test_process.py` asks for them over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from structlog.testing import capture_logs

from tfjob_operator.controller.observability.http_server import make_app
from tfjob_operator.controller.observability.metrics import CONTENT_TYPE, new_registry

if TYPE_CHECKING:
    from collections.abc import Callable


async def ask(path: str, *, method: str = "GET", **checks: Callable[[], str | None]) -> web.Response:
    """Ask for a page of a process with these checks for both its health and its readiness."""
    app = make_app(new_registry(), healthz=checks, readyz=checks)
    request = make_mocked_request(method, path)
    answer = await (await app.router.resolve(request)).handler(request)
    assert isinstance(answer, web.Response)
    return answer


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_probe_is_answered_with_ok_or_with_what_is_wrong(path: str) -> None:
    """LE-13: the kubelet reads the code, people the text."""
    answer = await ask(path, lease=lambda: None, workers=lambda: None)
    assert (answer.status, answer.text) == (200, "ok")
    answer = await ask(path, lease=lambda: None, workers=lambda: "all asleep")
    assert (answer.status, answer.text) == (500, "[+]lease ok\n[-]workers failed: all asleep\n")


async def test_metrics_come_in_the_format_that_they_claim() -> None:
    """Prometheus decides by the header how to read the page."""
    answer = await ask("/metrics")
    assert answer.headers["Content-Type"] == CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
    assert isinstance(answer.body, bytes)
    assert b"# TYPE process_cpu_seconds_total counter" in answer.body


async def test_a_bug_in_a_page_is_told_and_answered() -> None:
    """D11: aiohttp's own log is off, since it tells of whatever strangers send."""

    def broken() -> str | None:
        raise ZeroDivisionError

    app = make_app(new_registry(), healthz={"broken": broken}, readyz={})
    request = make_mocked_request("GET", "/healthz")
    handler = (await app.router.resolve(request)).handler
    with capture_logs() as lines, pytest.raises(web.HTTPInternalServerError):
        await app.middlewares[0](request, handler)
    assert [(line["event"], line["path"]) for line in lines] == [("page_crashed", "/healthz")]


@pytest.mark.parametrize(("method", "path"), [("POST", "/metrics"), ("DELETE", "/healthz"), ("GET", "/debug")])
async def test_there_is_nothing_else(method: str, path: str) -> None:
    """No other method and no other page: nobody is asked who he is here."""
    with pytest.raises((web.HTTPNotFound, web.HTTPMethodNotAllowed)):
        await ask(path, method=method)
