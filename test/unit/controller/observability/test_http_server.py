"""The three pages, the HTTP by which they are read, and how many connections may last how long, without a socket.

`test/integration/test_process.py` uses one.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from email.parser import BytesParser
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from tfjob_operator.controller.observability.http_server import (
    CONNECTION_TIMEOUT_S,
    MAX_CONNECTIONS,
    MAX_REQUEST_BYTES,
    METRICS_RATE,
    ConnectionLimiter,
    PageProtocol,
    Pages,
    ScrapeLimiter,
)
from tfjob_operator.controller.observability.metrics import CONTENT_TYPE, new_registry


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Line(asyncio.Transport):
    """A connection that records what is written to it, and when it was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = self.closing = False
        self.ended_at: float | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.ended_at = asyncio.get_running_loop().time()

    def reply(self) -> Reply:
        head, _, body = self.sent.partition(b"\r\n\r\n")
        status, _, rest = head.partition(b"\r\n")
        return Reply(int(status.split()[1]), dict(BytesParser().parsebytes(rest).items()), body)


def connect(connections: ConnectionLimiter, **checks: Callable[[], str | None]) -> tuple[PageProtocol, Line]:
    conversation, line = PageProtocol(Pages(new_registry(), healthz=checks, readyz=checks), connections), Line()
    conversation.connection_made(line)
    return conversation, line


def talk(*pieces: bytes, **checks: Callable[[], str | None]) -> Line:
    conversation, line = connect(ConnectionLimiter(), **checks)
    for piece in pieces:
        conversation.data_received(piece)
    conversation.connection_lost(None)
    return line


def ask(path: str, *, method: str = "GET", **checks: Callable[[], str | None]) -> Reply:
    line = talk(f"{method} {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode(), **checks)
    assert line.closed
    return line.reply()


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_probe_is_answered_with_ok_or_with_what_is_wrong(path: str) -> None:
    """LE-13: the kubelet reads the code, people the text."""
    answer = ask(path, lease=lambda: None, workers=lambda: None)
    assert (answer.status, answer.body) == (200, b"ok")
    answer = ask(path, lease=lambda: None, workers=lambda: "all asleep")
    assert (answer.status, answer.body) == (500, b"[+]lease ok\n[-]workers failed: all asleep\n")


async def test_metrics_come_in_the_format_that_they_claim() -> None:
    """Prometheus decides by the header how to read the page."""
    answer = ask("/metrics")
    assert answer.headers["Content-Type"] == CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert b"# TYPE process_cpu_seconds_total counter" in answer.body


async def test_a_bug_in_a_page_is_logged_and_is_a_500() -> None:
    """D11: malformed requests of strangers are not logged, the operator's own errors are."""

    def broken() -> str | None:
        raise ZeroDivisionError

    with capture_logs() as lines:
        answer = ask("/healthz", broken=broken)
    assert answer.status == 500
    assert [(line["event"], line["path"]) for line in lines] == [("page_crashed", "/healthz")]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/metrics", 405),
        ("DELETE", "/healthz", 405),
        ("GET", "/debug", 404),
        ("GET", "/healthz?verbose", 200),
        ("GET", "http://here:8443/healthz", 200),
        ("GET", "//healthz/../healthz", 404),
        ("HEAD", "/healthz", 200),
    ],
)
async def test_there_is_nothing_else(method: str, path: str, status: int) -> None:
    """There is no authentication, so there is no other method and no other page.

    A query is ignored; a proxy sends the whole URL; `..` is not resolved. HEAD gets the length of the body, and no body.
    """
    answer = ask(path, method=method)
    assert (answer.status, "Allow" in answer.headers) == (status, status == 405)
    if status == 200:
        assert (answer.headers["Content-Length"], answer.body) == ("2", b"" if method == "HEAD" else b"ok")


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01 this is not HTTP\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT here:443 HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: here\r\nContent-Length: many\r\n\r\n",
        b"GET /" + b"x" * MAX_REQUEST_BYTES,
    ],
    ids=["TLS", "HTTP/2", "a tunnel", "no number", "no end"],
)
async def test_what_is_no_request_for_a_page_is_refused_and_told_nowhere(text: bytes) -> None:
    """D11: strangers could fill the log."""
    with capture_logs() as lines:
        line = talk(text)
    assert (line.reply().status, line.closed) == (400, True)
    assert lines == []


async def test_a_request_may_come_in_pieces_and_carry_what_nobody_asked_for() -> None:
    """Byte by byte, with a body, asking for another protocol: there is one response, once the request is complete."""
    text = b"GET /healthz HTTP/1.1\r\nHost: here\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 3\r\n\r\nabc"
    pieces = [text[at : at + 1] for at in range(len(text))]
    assert talk(*pieces[:-4]).sent == b""
    line = talk(*pieces, *pieces)
    assert line.sent.count(b"HTTP/1.1 200 OK") == 1, "whoever sends a second request must connect again"
    assert line.reply().headers["Connection"] == "close"
    assert talk(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n" * 2).sent.count(b"HTTP/1.1") == 1


async def test_metrics_are_rendered_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often they are asked for; a second later they are new."""
    rendered: list[float] = []

    def render(_registry: object) -> bytes:
        rendered.append(asyncio.get_running_loop().time())
        return b""

    monkeypatch.setattr("tfjob_operator.controller.observability.http_server.exposition", render)
    pages = Pages(new_registry(), healthz={}, readyz={})
    for _ in range(20):
        pages.response("GET", "/metrics")
        await asyncio.sleep(0.1)
    assert rendered == pytest.approx([0.0, 1.0], abs=0.11)


async def test_who_asks_for_metrics_in_a_loop_keeps_nobody_else_waiting() -> None:
    """50 pages a second, to addresses in turn: four hundred connections of one do not keep Prometheus out."""
    turns, served = ScrapeLimiter(), Counter[str]()

    def loop(address: str) -> None:
        served[address] += 1
        turns.take(address, lambda: loop(address))

    for _ in range(400):
        turns.take("10.0.0.1", lambda: loop("10.0.0.1"))
    await asyncio.sleep(60.0)
    assert served["10.0.0.1"] == pytest.approx(61 * METRICS_RATE, abs=1)
    asked_at = asyncio.get_running_loop().time()
    answered = asyncio.Event()
    turns.take("10.0.0.2", answered.set)
    await answered.wait()
    assert asyncio.get_running_loop().time() - asked_at < 3 / METRICS_RATE
    turns.close()


async def test_after_a_flood_the_next_one_is_served_at_once() -> None:
    turns, served = ScrapeLimiter(), Counter[str]()
    for _ in range(2 * METRICS_RATE):
        turns.take("10.0.0.1", lambda: served.update(["early"]))
    await asyncio.sleep(10.0)
    for _ in range(2 * METRICS_RATE):
        turns.take("10.0.0.2", lambda: served.update(["late"]))
    assert served == {"early": 2 * METRICS_RATE, "late": METRICS_RATE}, "and no more than in any other second"
    await asyncio.sleep(2.0)
    turns.close()


async def test_who_has_hung_up_takes_no_turn_and_is_forgotten() -> None:
    """Clients that connect, ask and hang up in a loop would fill memory, and keep their own address waiting for minutes."""
    turns, served = ScrapeLimiter(), Counter[str]()
    gone = [lambda number=number: served.update([str(number)]) for number in range(METRICS_RATE + 5_000)]
    for each in gone:
        turns.take("10.0.0.1", each)
    for each in gone:
        turns.leave("10.0.0.1", each)
    turns.take("10.0.0.1", lambda: served.update(["late"]))
    await asyncio.sleep(2 / METRICS_RATE)
    assert served["late"] == 1
    assert len(served) == METRICS_RATE + 1
    turns.take("10.0.0.1", gone[0])
    turns.leave("10.0.0.1", gone[0])
    turns.take("10.0.0.2", lambda: served.update(["another"]))
    await asyncio.sleep(2 / METRICS_RATE)
    assert served["another"] == 1
    turns.close()


async def test_a_connection_that_is_lost_gives_up_its_turn() -> None:
    """Its turn would be spent on nobody, and until then the connection stay in memory."""
    pages, served = Pages(new_registry(), healthz={}, readyz={}), Counter[str]()
    for _ in range(METRICS_RATE):
        pages.limiter.take("10.0.0.1", lambda: None)
    lost = PageProtocol(pages, ConnectionLimiter())
    lost.connection_made(asyncio.Transport({"peername": ("10.0.0.2", 1)}))
    lost.data_received(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
    lost.connection_lost(None)
    pages.limiter.take("10.0.0.3", lambda: served.update(["late"]))
    await asyncio.sleep(1.5 / METRICS_RATE)
    assert served["late"] == 1
    pages.limiter.close()


async def test_nobody_stays_longer_than_a_visit_takes() -> None:
    """D11: whatever the client sends, or does not read, meanwhile."""
    protocol, line = connect(ConnectionLimiter())
    protocol.data_received(b"GET /healthz?")
    for _ in range(100):
        await asyncio.sleep(CONNECTION_TIMEOUT_S / 50)
        protocol.data_received(b"x")
    assert line.ended_at == pytest.approx(CONNECTION_TIMEOUT_S)


async def test_a_visitor_that_has_left_is_not_closed_again() -> None:
    """D11: nor is it counted any more."""
    connections = ConnectionLimiter()
    for _ in range(3 * MAX_CONNECTIONS):
        protocol, line = connect(connections)
        protocol.connection_lost(None)
        await asyncio.sleep(CONNECTION_TIMEOUT_S / 100)
        assert line.ended_at is None
    await asyncio.sleep(2 * CONNECTION_TIMEOUT_S)
    assert line.ended_at is None


async def test_when_there_are_too_many_the_oldest_goes() -> None:
    """D11: a flood keeps nobody out who comes after it."""
    connections = ConnectionLimiter()
    lines = [connect(connections)[1] for _ in range(MAX_CONNECTIONS + 2)]
    assert [line.ended_at is None for line in lines] == [False] * 2 + [True] * MAX_CONNECTIONS
    await asyncio.sleep(1.0)
    assert sum(line.ended_at is None for line in lines) == MAX_CONNECTIONS


async def test_who_is_being_answered_when_the_server_ends_has_a_moment_for_it() -> None:
    """A scrape that was answered is not cut off; a client that has asked nothing yet is not waited for."""
    connections = ConnectionLimiter()
    (_, idle), (quick, served), (_, stuck) = (connect(connections) for _ in range(3))
    served.closing = stuck.closing = True
    asyncio.get_running_loop().call_later(0.2, quick.connection_lost, None)
    await connections.close(0.5)
    assert (idle.ended_at, served.ended_at, stuck.ended_at) == (0.0, None, 0.5)


async def test_a_server_that_has_answered_everybody_ends_at_once() -> None:
    connections = ConnectionLimiter()
    await connections.close(0.5)
    quick, served = connect(connections)
    served.closing = True
    asyncio.get_running_loop().call_later(0.1, quick.connection_lost, None)
    await connections.close(0.5)
    assert asyncio.get_running_loop().time() == pytest.approx(0.1)
