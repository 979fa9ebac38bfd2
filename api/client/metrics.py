"""What requests tell about themselves: the names of client-go's metrics (A7), and the port behind which they are counted.

Nothing here knows Prometheus. An adapter makes the families below, adds the label `host`, and turns one call of the port into
the series that it means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

NO_ANSWER: Final = "<error>"
"""What client-go writes into the label `code` when no answer came."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family; `buckets` (upper bounds, in the unit of the name) are there for histograms alone."""

    name: str
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()


# A7, component-base: from the 5 ms of an answer out of the watch cache to the 60 s after which the server gives up.
DURATION_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# A7, component-base: from an empty body to the 16 MB of a full list.
SIZE_BUCKETS: Final = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)

REQUESTS: Final = Metric(
    "rest_client_requests_total", "Requests by outcome, each attempt once", ("code", "method", "host")
)
REQUEST_DURATION: Final = Metric(
    "rest_client_request_duration_seconds",
    "Seconds from sending a request to the end of its answer, without watches",
    ("verb", "host"),
    DURATION_BUCKETS,
)
RATE_LIMITER_DURATION: Final = Metric(
    "rest_client_rate_limiter_duration_seconds",
    "Seconds that a request waited for our own rate limit",
    ("verb", "host"),
    DURATION_BUCKETS,
)
REQUEST_SIZE: Final = Metric(
    "rest_client_request_size_bytes", "Bytes of a request's body", ("verb", "host"), SIZE_BUCKETS
)
RESPONSE_SIZE: Final = Metric(
    "rest_client_response_size_bytes", "Bytes of an answer's body, without watches", ("verb", "host"), SIZE_BUCKETS
)
RETRIES: Final = Metric(
    "rest_client_request_retries_total", "Attempts of a request after its first, by outcome", ("code", "verb", "host")
)

COUNTERS: Final = (REQUESTS, RETRIES)
HISTOGRAMS: Final = (REQUEST_DURATION, RATE_LIMITER_DURATION, REQUEST_SIZE, RESPONSE_SIZE)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one request, at its end; of a watch, when its head arrived.

    `verb` is the HTTP method, also for watches, as in client-go. `code` is the HTTP status as text, or `NO_ANSWER`.
    `seconds` and `response_bytes` are None for a watch; `response_bytes` also where no answer was read to its end.
    """

    verb: str
    code: str
    is_retry: bool
    request_bytes: int
    seconds: float | None
    response_bytes: int | None


class RequestMetrics(Protocol):
    """Where requests are counted."""

    def attempted(self, attempt: Attempt) -> None:
        """Count one attempt."""
        ...

    def throttled(self, verb: str, seconds: float) -> None:
        """Count the wait, perhaps of 0 seconds, that the client-side rate limit imposed on a request."""
        ...


class NoRequestMetrics:
    """Counts nothing."""

    def attempted(self, attempt: Attempt) -> None:
        """Do nothing."""

    def throttled(self, verb: str, seconds: float) -> None:
        """Do nothing."""
