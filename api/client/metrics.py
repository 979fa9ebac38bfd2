"""Request metrics, named like client-go's."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Final

from tfjob_operator.workqueue.metrics import Counter, Metric, MetricsProvider

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""All methods of `RestClient`."""
NO_RESPONSE: Final = "<error>"
"""client-go's value of the label `code` if no response arrived."""
CODES: Final = ("200", "201", "401", "403", "404", "409", "422", "429", "500", "503", "504", NO_RESPONSE)
"""Outcomes whose series start at zero with the first scrape: an alert on the first failure needs the zero before it.
Others appear when they occur; their number is limited by HTTP's status codes."""
RETRIED_CODES: Final = ("200", "201", "429", "500", "503", "504", NO_RESPONSE)

# Those of component-base: 5 ms (a response from the watch cache) to 60 s (the server's timeout).
DURATION_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# component-base: from an empty body to a full list of 16 MB.
SIZE_BUCKETS: Final = (64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216)

_BY_VERB: Final = ("verb", "host")

REQUESTS: Final = Metric(
    "rest_client_requests_total", "Requests by outcome, each attempt once", labels=("code", "method", "host")
)
REQUEST_DURATION: Final = Metric(
    "rest_client_request_duration_seconds",
    "Seconds from sending a request to the end of its answer, without watches",
    DURATION_BUCKETS,
    _BY_VERB,
)
RATE_LIMITER_DURATION: Final = Metric(
    "rest_client_rate_limiter_duration_seconds",
    "Seconds that a request waited for our own rate limit",
    DURATION_BUCKETS,
    _BY_VERB,
)
REQUEST_SIZE: Final = Metric("rest_client_request_size_bytes", "Bytes of a request's body", SIZE_BUCKETS, _BY_VERB)
RESPONSE_SIZE: Final = Metric(
    "rest_client_response_size_bytes", "Bytes of an answer's body, without watches", SIZE_BUCKETS, _BY_VERB
)
RETRIES: Final = Metric(
    "rest_client_request_retries_total",
    "Attempts of a request after its first, by outcome",
    labels=("code", "verb", "host"),
)

HISTOGRAMS: Final = (REQUEST_DURATION, RATE_LIMITER_DURATION, REQUEST_SIZE, RESPONSE_SIZE)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished attempt at a request; for a watch, up to the response head.

    `verb` is the HTTP method, also for watches, as in client-go. `code` is the HTTP status as text, or `NO_RESPONSE`. `seconds`
    and `response_bytes` are None for a watch; `response_bytes` is also None if no response was read completely.
    """

    verb: str
    code: str
    is_retry: bool
    request_bytes: int
    seconds: float | None
    response_bytes: int | None


class RequestMetrics:
    """The request metrics of one server's clients."""

    def __init__(self, provider: MetricsProvider, host: str) -> None:
        """Create all series; `host` is the server's name and port."""
        self._provider = provider
        self._host = host
        self._requests = {key: self._counter(REQUESTS, *key) for key in product(CODES, METHODS)}
        self._retries = {key: self._counter(RETRIES, *key) for key in product(RETRIED_CODES, METHODS)}
        self._duration, self._wait, self._sent, self._received = (
            {method: provider.histogram(metric, method, host) for method in METHODS} for metric in HISTOGRAMS
        )

    def attempted(self, attempt: Attempt) -> None:
        """Count an attempt."""
        key = attempt.code, attempt.verb
        if key not in self._requests:
            self._requests[key] = self._counter(REQUESTS, *key)
        self._requests[key].inc()
        if attempt.is_retry:
            self._counter(RETRIES, *key).inc()
        self._sent[attempt.verb].observe(attempt.request_bytes)
        if attempt.seconds is not None:
            self._duration[attempt.verb].observe(attempt.seconds)
        if attempt.response_bytes is not None:
            self._received[attempt.verb].observe(attempt.response_bytes)

    def throttled(self, verb: str, seconds: float) -> None:
        """Count the seconds, possibly 0, that the client-side rate limit delayed a request."""
        self._wait[verb].observe(seconds)

    def _counter(self, metric: Metric, code: str, verb: str) -> Counter:
        return self._provider.counter(metric, code, verb, self._host)
