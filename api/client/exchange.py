"""A request and its response: rate-limited, retried if that is safe, checked and counted.

As in client-go, a request is retried if the server asks for it, or if a GET lost its connection (see
docs/design/client.md). All other errors are left to the caller, who knows the meaning of the request.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol, Self, TypeVar

import structlog

from tfjob_operator.api.client import errors
from tfjob_operator.api.client.http import Request, Response, Transport
from tfjob_operator.api.client.metrics import NO_RESPONSE, Attempt, RequestMetrics
from tfjob_operator.api.protobuf import MEDIA_TYPE
from tfjob_operator.api.retry import MAX_REQUEST_RETRIES, retry_delay
from tfjob_operator.workqueue.clock import Clock, LoopClock
from tfjob_operator.workqueue.metrics import Metric, MetricsProvider

T = TypeVar("T")
LOST_GET_DELAY_S: Final = 1.0
"""A GET that lost its connection is treated as if the server had asked for a delay of 1 s."""


def request_retry_delay(error: errors.StatusError | errors.ConnectionLostError, request: Request) -> float | None:
    """Return the delay in seconds before a request that failed with `error` is retried, or None if it must not be."""
    if isinstance(error, errors.ConnectionLostError):
        return LOST_GET_DELAY_S if request.method == "GET" else None
    if isinstance(error, errors.TooLargeResourceVersionError):
        return None  # handled immediately by the reflector; waiting would not help
    return retry_delay(error.code, error.retry_after_s)


LONG_WAIT_S: Final = 0.05
"""Shorter waits are normal, and not logged even at debug level."""
VERY_LONG_WAIT_S: Final = 1.0
"""From here on the client-side limit and not the server determines the throughput, so an administrator should raise
it."""
WARNING_EVERY_S: Final = 10.0
"""As in client-go: with a backlog every request waits, and one log line is enough."""
log = structlog.get_logger(__name__)


class Limiter(Protocol):
    """A client-side rate limiter, such as `workqueue.TokenBucket`."""

    async def wait(self) -> None:
        """Return when the next request may be sent."""
        ...


class Throttle:
    """Makes requests wait for a limiter; counts all waits and logs the long ones."""

    def __init__(self, limiter: Limiter, metrics: RequestMetrics | None, clock: Clock) -> None:
        self._limiter = limiter
        self._metrics = metrics
        self._clock = clock
        self._warned_at = -math.inf

    async def wait(self, request: Request) -> None:
        """Return when `request` may be sent. If this is cancelled, its turn goes to the next request."""
        started = self._clock.monotonic()
        await self._limiter.wait()
        now = self._clock.monotonic()
        waited = now - started
        if self._metrics is not None:
            self._metrics.throttled(request.method, waited)
        if waited <= LONG_WAIT_S:
            return
        tell = log.debug
        if waited > VERY_LONG_WAIT_S and now - self._warned_at >= WARNING_EVERY_S:
            self._warned_at = now
            tell = log.warning
        tell("request_throttled_by_client", request=str(request), waited_s=round(waited, 3))


class Counted:
    """Iterates over `chunks`. `count` is the number of bytes received, `ended` is True after the last chunk."""

    __slots__ = ("_chunks", "count", "ended")

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.count = 0
        self.ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self.ended = True
            raise
        self.count += len(chunk)
        return chunk


CLOCK_SKEW: Final = Metric(
    "clock_skew_seconds", "Seconds by which our clock is ahead of the API server's", labels=(), prefixed=True
)
COMPARE_EVERY_S: Final = 60.0
LONGEST_SKEW_S: Final = 10.0
"""Synchronized clocks differ by milliseconds; deadlines and TTLs are rarely shorter than this."""


CLOCK_STEP: Final = timedelta(seconds=2)
"""A server's clock that is behind our knowledge of it by this much was set back: `Date` has whole seconds."""


class ServerClock:
    """Compares the local clock with the `Date` of at most one response per minute, and logs a warning if they differ.

    The server sets the header between the start of the request and the end of the response, in whole seconds. A difference that
    this explains is not reported, so a slow response is not taken for clock skew.

    It is also a `Clock`: its wall clock is the API server's, which sets `creationTimestamp` and `deletionTimestamp`.
    """

    def __init__(self, metrics: MetricsProvider, clock: Clock) -> None:
        self._clock = clock
        self._due = -math.inf
        self._ahead_s = 0.0
        self._known: tuple[datetime, float] | None = None
        metrics.gauge(CLOCK_SKEW, read=lambda: self._ahead_s)

    def now(self) -> datetime:
        """Return the API server's time: never later than it is, and earlier by at most a second and the latency of a response.

        It does not depend on the local wall clock. Before the first response, it is the local time.
        """
        if self._known is None:
            return self._clock.now()
        date, at = self._known
        return date + timedelta(seconds=self._clock.monotonic() - at)

    def monotonic(self) -> float:
        """Return the local monotonic time."""
        return self._clock.monotonic()

    def compare(self, headers: Mapping[str, str], started: float) -> None:
        """Check the headers of a response that has just arrived; the request started at `started` (monotonic clock)."""
        now = self._clock.monotonic()
        header = headers.get("Date") if now >= self._due else None
        date = errors.parse_http_date(header) if header else None
        if date is None:
            return
        self._due = now + COMPARE_EVERY_S
        known = self.now() if self._known is not None else date
        # Both are at most the server's time, unless its clock was set back.
        self._known = max(date, known) if known - date < CLOCK_STEP else date, now
        most_s = (self._clock.now() - date).total_seconds()
        least_s = most_s - (now - started) - 1.0
        self._ahead_s = max(least_s, 0.0) + min(most_s, 0.0)
        if abs(self._ahead_s) > LONGEST_SKEW_S:
            log.warning("clock_skew", ahead_s=round(self._ahead_s))


class Exchange:
    """Sends requests and returns responses over one transport.

    Tasks may share it. Its methods may be cancelled; they raise ApiError.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        limiter: Limiter | None = None,
        metrics: RequestMetrics | None = None,
        clock: Clock | None = None,
        server_clock: ServerClock | None = None,
    ) -> None:
        self._transport = transport
        self._server_clock = server_clock
        self._metrics = metrics
        self._clock = clock or LoopClock()
        self._throttle = Throttle(limiter, self._metrics, self._clock) if limiter is not None else None

    async def read(self, request: Request) -> bytes:
        """Send a request and return the whole body of the response."""
        return await self._with_retries(request, self._read)

    async def read_while_it_arrives(self, request: Request, take: Callable[[AsyncIterator[bytes]], Awaitable[T]]) -> T:
        """Return what `take` returns for the response's chunks; `total_s` limits each attempt, including `take`."""

        async def attempt(request: Request, retries: int) -> T:
            limit = asyncio.timeout(request.total_s)
            try:
                async with limit:
                    return await self._take(request, retries, take)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise errors.RequestTimeoutError("timed out waiting for the response", request=str(request)) from None

        return await self._with_retries(request, attempt)

    async def open(self, request: Request, content_type: str = "json") -> Response:
        """Send a request and return the response as a stream, which the caller must close. Only retries are rate-limited."""

        async def attempt(request: Request, retries: int) -> Response:
            return await self._open(request, retries, content_type)

        return await self._with_retries(request, attempt, first_is_free=True)

    async def _with_retries(
        self, request: Request, attempt: Callable[[Request, int], Awaitable[T]], *, first_is_free: bool = False
    ) -> T:
        """Retry a request until it succeeds, `request_retry_delay` returns None, or `MAX_REQUEST_RETRIES` is reached."""
        retries = 0
        while True:
            if self._throttle is not None and (retries or not first_is_free):
                await self._throttle.wait(request)
            try:
                return await attempt(request, retries)
            except (errors.StatusError, errors.ConnectionLostError) as error:
                delay = request_retry_delay(error, request)
                if delay is None or retries == MAX_REQUEST_RETRIES:
                    raise
            await asyncio.sleep(delay)
            retries += 1

    async def _read(self, request: Request, retries: int) -> bytes:
        started = self._clock.monotonic()
        code, received = NO_RESPONSE, None
        try:
            response = await self._transport.send(request)
            try:
                body = await response.body()
            finally:
                response.close()
            code, received = str(response.status), len(body)
        finally:
            self._count(request, retries, code, self._clock.monotonic() - started, received)
        self._check(request, response, body, started)
        if not body.startswith(b"{"):
            raise errors.DecodeError("the response is not a JSON object", request=str(request))
        return body

    async def _take(self, request: Request, retries: int, take: Callable[[AsyncIterator[bytes]], Awaitable[T]]) -> T:
        started = self._clock.monotonic()
        code, received = NO_RESPONSE, None
        try:
            response = await self._transport.send(request)
            chunks = Counted(response.chunks())
            try:
                body = b"" if response.status == 200 else b"".join([chunk async for chunk in chunks])
                self._check(request, response, body, started)
                taken = await take(chunks)
            finally:
                response.close()
                code, received = str(response.status) if chunks.ended else NO_RESPONSE, chunks.count
        finally:
            self._count(request, retries, code, self._clock.monotonic() - started, received)
        return taken

    async def _open(self, request: Request, retries: int, content_type: str) -> Response:
        code, started = NO_RESPONSE, self._clock.monotonic()
        try:
            response = await self._transport.send(request)
            code = str(response.status)
        finally:
            self._count(request, retries, code)
        try:
            body = b"" if response.status == 200 else await response.body()
            self._check(request, response, body, started, content_type)
        except BaseException:
            response.close()
            raise
        return response

    def _count(
        self, request: Request, retries: int, code: str, seconds: float | None = None, received: int | None = None
    ) -> None:
        if self._metrics is None:
            return
        sent = 0 if request.body is None else len(request.body)
        self._metrics.attempted(Attempt(request.method, code, retries > 0, sent, seconds, received))

    def _check(
        self, request: Request, response: Response, body: bytes, started: float, content_type: str = "json"
    ) -> None:
        """Raise unless the response is a success of this content type. A proxy's login page must not be taken for an object."""
        headers = response.headers
        if self._server_clock is not None:
            self._server_clock.compare(headers, started)
        if 200 <= response.status < 300:
            kind = headers.get("Content-Type")
            # Kubernetes 1.20 serves its OpenAPI without a content type, which Go detects as text. HTML does not start
            # with a brace.
            unnamed = kind is not None and kind.startswith("text/plain") and body[:1] == b"{"
            asked = MEDIA_TYPE in request.accept and kind is not None and kind.startswith(MEDIA_TYPE)
            if kind is not None and content_type not in kind and not unnamed and not asked:
                wanted = "JSON" if content_type == "json" else content_type
                raise errors.DecodeError(f"the response is {kind}, not {wanted}", request=str(request))
            return
        retry_after = headers.get("Retry-After")
        now = self._clock.now()
        if retry_after is not None and not retry_after.strip().isdecimal():
            # A date in Retry-After refers to the server's clock, which may differ from ours.
            now = errors.parse_http_date(headers.get("Date", "")) or now
        raise errors.error_from_response(response.status, body, request=str(request), retry_after=retry_after, now=now)
