"""Exchanges: retries and their limits, and waiting for the client-side limit."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from email.utils import format_datetime
from functools import partial
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from fakes.transport import FakeResponse, FakeTransport, refusal
from kit.virtual_loop import EPOCH, VirtualClock
from tfjob_operator.api.client import errors
from tfjob_operator.api.client.exchange import Exchange, ServerClock, Throttle
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.client.metrics import Attempt, RequestMetrics
from tfjob_operator.api.retry import MAX_REQUEST_RETRIES
from tfjob_operator.controller.observability.metrics import PrometheusMetrics, new_registry
from tfjob_operator.workqueue import LoopClock, TokenBucket
from tfjob_operator.workqueue.metrics import NO_METRICS

GET = Request("GET", "/api/v1/pods")
POST = Request("POST", "/api/v1/namespaces/ns/pods", body=b"{}")
WATCH = Request("GET", "/api/v1/pods", {"watch": "true"}, idle_s=80.0)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def gaps(transport: FakeTransport) -> list[float]:
    return [round(later - earlier, 6) for earlier, later in pairwise(transport.sent_at)]


class Books(RequestMetrics):
    """A fake of metrics and limiter in one, which lets each request wait as long as the test says."""

    def __init__(self, *waits: float) -> None:
        super().__init__(NO_METRICS, "")
        self.attempts: list[Attempt] = []
        self.throttles: list[tuple[str, float]] = []
        self.waits = 0
        self._seconds = list(waits)

    def attempted(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def throttled(self, verb: str, seconds: float) -> None:
        self.throttles.append((verb, round(seconds, 3)))

    async def wait(self) -> None:
        self.waits += 1
        if self._seconds:
            await asyncio.sleep(self._seconds.pop(0))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("code", [429, 500, 502, 503, 504, 599])
async def test_what_the_server_wants_later_is_sent_later(method: str, code: int) -> None:
    """WR-06, request_test.go:TestCheckRetryHandles429And5xx: any verb, on 429 and 5xx with a Retry-After."""
    transport = FakeTransport(refusal(code, retry_after="3"), FakeResponse(body=b'{"fine": 1}'))
    assert await Exchange(transport).read(Request(method, "/x")) == b'{"fine": 1}'
    assert gaps(transport) == [3.0]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refusal(429), errors.TooManyRequestsError),
        (refusal(500), errors.ServerError),
        (FakeResponse(502, b"<html>"), errors.ServerError),
        (refusal(409, "Conflict", retry_after="1"), errors.ConflictError),
        (refusal(503, retry_after="soon"), errors.ServerError),
        (refusal(503, retry_after="31"), errors.ServerError),
        (
            refusal(504, "Timeout", retry_after="1", causes=[{"reason": "ResourceVersionTooLarge"}]),
            errors.TooLargeResourceVersionError,
        ),
        (FakeResponse(302, b"", {"Retry-After": "1"}), errors.StatusError),
    ],
)
async def test_anything_else_the_server_says_is_for_the_caller(
    answer: FakeResponse, expected: type[errors.ApiError]
) -> None:
    """WR-06, with_retry_test.go:TestIsNextRetry: no retry without the header, for other codes, or for a wait beyond 30 s."""
    transport = FakeTransport(answer)
    with pytest.raises(expected):
        await Exchange(transport).read(GET)
    assert len(transport.requests) == 1
    assert transport.unclosed == 0


@pytest.mark.parametrize("method", METHODS)
async def test_a_lost_connection_is_tried_again_only_for_a_get(method: str) -> None:
    """WR-06, request_test.go:TestConnectionResetByPeerIsRetried: as if the server had asked for one second."""
    transport = FakeTransport(errors.ConnectionLostError("reset"), FakeResponse())
    if method == "GET":
        await Exchange(transport).read(Request(method, "/x"))
        assert gaps(transport) == [1.0]
        return
    with pytest.raises(errors.ConnectionLostError):
        await Exchange(transport).read(Request(method, "/x"))
    assert len(transport.requests) == 1


async def test_a_get_that_breaks_in_the_middle_of_its_body_is_tried_again() -> None:
    transport = FakeTransport(
        FakeResponse(body=(b'{"items":', errors.ConnectionLostError("reset"))), FakeResponse(body=b'{"items":[]}')
    )
    assert await Exchange(transport).read(GET) == b'{"items":[]}'
    assert transport.unclosed == 0


@pytest.mark.parametrize("body", [b"", b"OK", b"<html>Please log in</html>", b"[]", b"null", b"\x00k8s"])
async def test_a_2xx_without_an_object_is_an_error(body: bytes) -> None:
    """D19: whatever sent it may not have passed the request on; an error even if the caller ignores the response body."""
    transport = FakeTransport(FakeResponse(body=body))
    with pytest.raises(errors.DecodeError, match="POST /api/v1/namespaces/ns/pods: the response is not"):
        await Exchange(transport).read(POST)


@pytest.mark.parametrize(
    "error", [errors.ConnectError, errors.TLSError, errors.CredentialsError, errors.RequestTimeoutError]
)
async def test_no_connection_and_no_response_are_for_the_caller(error: type[errors.ApiError]) -> None:
    """WR-06: client-go retries only resets and EOF."""
    transport = FakeTransport(error("no"))
    with pytest.raises(error):
        await Exchange(transport).read(GET)


async def test_a_request_is_sent_eleven_times_at_most() -> None:
    """WR-06, request_test.go:TestRequestMaxRetries."""
    transport = FakeTransport(*[refusal(503, message=f"number {n}", retry_after="0") for n in range(20)])
    with pytest.raises(errors.ServerError, match="number 10"):
        await Exchange(transport).read(POST)
    assert len(transport.requests) == MAX_REQUEST_RETRIES + 1 == 11


async def test_a_date_in_retry_after_is_read_by_the_clock_that_wrote_it() -> None:
    ahead = EPOCH + timedelta(minutes=5)
    date, later = (format_datetime(moment, usegmt=True) for moment in (ahead, ahead + timedelta(seconds=4)))
    transport = FakeTransport(FakeResponse(503, b"", {"Date": date, "Retry-After": later}), FakeResponse())
    await Exchange(transport).read(GET)
    assert gaps(transport) == [4.0]


@pytest.mark.parametrize(
    ("failure", "wait"), [(refusal(429, retry_after="2"), 2.0), (errors.ConnectionLostError("reset"), 1.0)]
)
async def test_opening_a_watch_is_tried_again_like_a_get(failure: FakeResponse | Exception, wait: float) -> None:
    """WR-06, request_test.go:TestRequestWatchWithRetry."""
    transport = FakeTransport(failure, FakeResponse(body=(b"line\n",)))
    response = await Exchange(transport).open(WATCH)
    assert [chunk async for chunk in response.chunks()] == [b"line\n"]
    assert gaps(transport) == [wait]
    assert transport.unclosed == 1
    response.close()
    assert transport.unclosed == 0


async def test_a_refused_watch_is_closed_before_its_error_is_raised() -> None:
    transport = FakeTransport(refusal(410, "Expired"))
    with pytest.raises(errors.StatusError):
        await Exchange(transport).open(WATCH)
    assert transport.unclosed == 0


async def test_each_attempt_passes_the_rate_limit_but_a_watch_only_when_it_is_tried_again() -> None:
    """WR-06: retries are throttled too; WR-05: client-go does not hold back the opening of a watch."""
    books = Books()
    transport = FakeTransport(refusal(503, retry_after="1"), FakeResponse())
    exchange = Exchange(transport, limiter=books)
    await exchange.read(GET)
    assert books.waits == 2
    transport.then(FakeResponse(), refusal(503, retry_after="1"), FakeResponse())
    (await exchange.open(WATCH)).close()
    assert books.waits == 2
    (await exchange.open(WATCH)).close()
    assert books.waits == 3


async def test_each_attempt_is_counted_with_its_outcome_time_and_sizes() -> None:
    """A7: the metrics rest_client_* come from these counts; the code is "<error>" if there was no response."""
    books = Books()
    transport = FakeTransport(refusal(503, retry_after="1"), FakeResponse(200, b"{123}", after_s=0.25))
    exchange = Exchange(transport, metrics=books)
    await exchange.read(POST)
    transport.then(errors.ConnectError("refused"), FakeResponse())
    with pytest.raises(errors.ConnectError):
        await exchange.read(GET)
    (await exchange.open(WATCH)).close()
    size = len(refusal(503).body)
    assert books.attempts == [
        Attempt("POST", "503", is_retry=False, request_bytes=2, seconds=0.0, response_bytes=size),
        Attempt("POST", "200", is_retry=True, request_bytes=2, seconds=0.25, response_bytes=5),
        Attempt("GET", "<error>", is_retry=False, request_bytes=0, seconds=0.0, response_bytes=None),
        Attempt("GET", "200", is_retry=False, request_bytes=0, seconds=None, response_bytes=None),
    ]


def compared(transport: FakeTransport) -> tuple[Exchange, Callable[[], float | None]]:
    """An exchange that compares clocks, and what its gauge shows."""
    registry, clock = new_registry(), VirtualClock()
    exchange = Exchange(transport, clock=clock, server_clock=ServerClock(PrometheusMetrics(registry), clock))
    return exchange, partial(registry.get_sample_value, "clock_skew_seconds")


@pytest.mark.parametrize(
    ("date_s", "took_s", "ahead_s", "warned"),
    [
        (0, 0.0, 0.0, False),
        (-1, 0.0, 0.0, False),  # the server has dropped a fraction
        (0, 30.0, 0.0, False),  # a slow response, not a wrong clock
        (30, 30.0, 0.0, False),
        (-11, 0.0, 10.0, False),
        (-3601, 0.0, 3600.0, True),
        (3600, 0.5, -3599.5, True),
    ],
)
async def test_a_clock_that_differs_from_the_servers_is_measured_and_warned_about(
    date_s: float, took_s: float, ahead_s: float, *, warned: bool
) -> None:
    """By the `Date` of a response, as far as its way and its whole seconds cannot explain it."""
    date = format_datetime(EPOCH + timedelta(seconds=date_s), usegmt=True)
    exchange, skew = compared(FakeTransport(FakeResponse(headers={"Date": date}, after_s=took_s)))
    with capture_logs() as logs:
        await exchange.read(GET)
    assert skew() == pytest.approx(ahead_s)
    assert [line["event"] for line in logs] == ["clock_skew"] * warned


async def test_clocks_are_compared_once_a_minute() -> None:
    """Not for each of thousands of responses; one without a date is none."""
    late = format_datetime(EPOCH - timedelta(seconds=101), usegmt=True)
    transport = FakeTransport(FakeResponse(), *(FakeResponse(headers={"Date": late}) for _ in range(3)))
    exchange, skew = compared(transport)
    found = []
    for wait_s in (0, 0, 59, 1):
        await asyncio.sleep(wait_s)
        await exchange.read(GET)
        found.append(skew())
    assert found == pytest.approx([0.0, 100.0, 100.0, 160.0])


async def test_the_time_of_the_server_is_never_ahead_of_its_dates_and_goes_back_only_if_its_clock_was_set_back() -> (
    None
):
    """A `Date` has whole seconds, so one may be a second behind what is known from an earlier one."""
    hour, clock = timedelta(hours=1), VirtualClock()
    dates = [EPOCH - hour + timedelta(seconds=each) for each in (0, 59, 121, 60)]
    headers = [{"Date": format_datetime(date, usegmt=True)} for date in dates]
    server_clock = ServerClock(NO_METRICS, clock)
    exchange = Exchange(
        FakeTransport(*(FakeResponse(headers=each) for each in headers)), clock=clock, server_clock=server_clock
    )
    assert server_clock.now() == clock.now()
    found = []
    for _ in dates:
        await exchange.read(GET)
        found.append((server_clock.now() - EPOCH + hour).total_seconds())
        await asyncio.sleep(60.0)
    assert found == pytest.approx([0.0, 60.0, 121.0, 60.0])
    assert (server_clock.now() - EPOCH + hour).total_seconds() == pytest.approx(120.0)


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "text/plain", ""])
async def test_a_page_of_another_kind_is_no_response_even_with_code_200(kind: str) -> None:
    """A proxy's login page must not be taken for a created pod."""
    transport = FakeTransport(FakeResponse(200, b"<html>", {"Content-Type": kind}))
    with pytest.raises(errors.DecodeError, match="not JSON"):
        await Exchange(transport).read(POST)
    transport.then(FakeResponse(200, b"<html>", {"Content-Type": kind}))
    with pytest.raises(errors.DecodeError):
        await Exchange(transport).open(WATCH)
    assert transport.unclosed == 0


async def test_a_cancelled_request_closes_its_response() -> None:
    transport = FakeTransport(FakeResponse(body=(b"begun", 100.0)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await Exchange(transport).read(GET)
    assert transport.unclosed == 0


class Taker:
    """Collects chunks, separately for each attempt; fails with `error`, if given, after the first chunk."""

    def __init__(self, error: Exception | None = None) -> None:
        self.attempts: list[list[bytes]] = []
        self._error = error

    async def __call__(self, chunks: AsyncIterator[bytes]) -> bytes:
        taken: list[bytes] = []
        self.attempts.append(taken)
        async for chunk in chunks:
            taken.append(chunk)
            if self._error is not None:
                raise self._error
        return b"".join(taken)


LIST = Request("GET", "/api/v1/pods", total_s=70.0, idle_s=70.0)


async def test_a_list_that_breaks_under_way_is_read_anew_from_the_beginning() -> None:
    """D9d, WR-06: as any other GET; the second attempt begins without the chunks of the first."""
    broken = FakeResponse(body=(b'{"items":', b"[", errors.ConnectionLostError("reset")))
    transport = FakeTransport(broken, FakeResponse(body=(b'{"items":', b"[]}")))
    taker = Taker()
    assert await Exchange(transport).read_while_it_arrives(LIST, taker) == b'{"items":[]}'
    assert taker.attempts == [[b'{"items":', b"["], [b'{"items":', b"[]}"]]
    assert gaps(transport) == [1.0]
    assert transport.unclosed == 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal(403, "Forbidden"), errors.StatusError),
        (refusal(410, "Expired"), errors.StatusError),
        (FakeResponse(502, (b"<html>", b"</html>")), errors.ServerError),
        (FakeResponse(200, b"<html>", {"Content-Type": "text/html"}), errors.DecodeError),
        (FakeResponse(200, (b"{", errors.RequestTimeoutError("silence"))), errors.RequestTimeoutError),
    ],
)
async def test_only_a_list_is_read_as_a_list(answer: FakeResponse, error: type[errors.ApiError]) -> None:
    """D9d: a refusal is read to its end, and raised as for any request."""
    transport, taker = FakeTransport(answer), Taker()
    with pytest.raises(error):
        await Exchange(transport).read_while_it_arrives(LIST, taker)
    assert transport.unclosed == 0
    assert b"<" not in b"".join(chunk for attempt in taker.attempts for chunk in attempt)


async def test_what_the_taker_raises_comes_out_and_the_stream_is_closed() -> None:
    """D9d: garbage is not retried, since it would be the same the next time."""
    transport, taker = FakeTransport(FakeResponse(body=(b"{", b"}"))), Taker(errors.DecodeError("garbage"))
    with pytest.raises(errors.DecodeError, match="garbage"):
        await Exchange(transport).read_while_it_arrives(LIST, taker)
    assert taker.attempts == [[b"{"]]
    assert transport.unclosed == 0


async def test_a_list_that_trickles_ends_at_its_limit() -> None:
    """D9d: it is never silent for long enough to end by that, and must not hang."""
    transport = FakeTransport(FakeResponse(body=(b"{", *[part for _ in range(100) for part in (1.0, b" ")])))
    with pytest.raises(errors.RequestTimeoutError, match="GET /api/v1/pods: timed out waiting for the response"):
        await Exchange(transport).read_while_it_arrives(LIST, Taker())
    assert asyncio.get_running_loop().time() == 70.0
    assert transport.unclosed == 0


async def test_a_timeout_of_the_takers_own_is_not_blamed_on_the_server() -> None:
    transport = FakeTransport(FakeResponse())
    with pytest.raises(TimeoutError, match="mine"):
        await Exchange(transport).read_while_it_arrives(LIST, Taker(TimeoutError("mine")))


async def test_lists_pass_the_rate_limit_and_are_counted_as_other_requests() -> None:
    """D9d, WR-05, A7: though they are read as streams."""
    books = Books()
    transport = FakeTransport(
        FakeResponse(body=(b"123", 0.5, b"45")), FakeResponse(body=(b"1", errors.ConnectError("x")))
    )
    exchange = Exchange(transport, limiter=books, metrics=books)
    assert await exchange.read_while_it_arrives(LIST, Taker()) == b"12345"
    with pytest.raises(errors.ConnectError):
        await exchange.read_while_it_arrives(LIST, Taker())
    assert books.waits == 2
    assert books.attempts == [
        Attempt("GET", "200", is_retry=False, request_bytes=0, seconds=0.5, response_bytes=5),
        Attempt("GET", "<error>", is_retry=False, request_bytes=0, seconds=0.0, response_bytes=1),
    ]


LOGGED = {
    "up to 50 ms: counted, no line": ((0.0, 0.04), []),
    "more: a line for who debugs": ((0.06, 1.0), ["debug", "debug"]),
    "more than a second: a warning once in ten seconds": (
        (1.1, 2.0, 3.0, 6.0),
        ["warning", "debug", "debug", "warning"],
    ),
}


@pytest.mark.parametrize(("seconds", "levels"), LOGGED.values(), ids=LOGGED)
async def test_each_wait_is_counted_and_a_long_one_is_a_line(seconds: tuple[float, ...], levels: list[str]) -> None:
    """WR-05, request_test.go:TestTryThrottleWithInfoContextDeadline; in a backlog every request waits."""
    books = Books(*seconds)
    throttle = Throttle(books, books, LoopClock())
    with capture_logs() as lines:
        for _ in seconds:
            await throttle.wait(POST)
    assert books.throttles == [("POST", second) for second in seconds]
    assert [line["log_level"] for line in lines] == levels
    told = {"event": "request_throttled_by_client", "request": "POST /api/v1/namespaces/ns/pods"}
    assert all(line.items() >= told.items() for line in lines)
    assert [line["waited_s"] for line in lines] == [second for second in seconds if second > 0.05]


async def test_a_cancelled_wait_gives_its_turn_to_the_next_one() -> None:
    """WR-05, throttle_test.go:TestWait."""
    throttle = Throttle(TokenBucket(rate=1, burst=1), Books(), LoopClock())
    await throttle.wait(POST)
    first = asyncio.create_task(throttle.wait(POST))
    second = asyncio.create_task(throttle.wait(POST))
    await asyncio.sleep(0.5)
    first.cancel()
    await second
    assert asyncio.get_running_loop().time() <= 1.0 + 1e-6
