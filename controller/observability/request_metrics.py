"""Requests to the API server, under client-go's names (A7)."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Histogram

from tfjob_operator.api.client import metrics as names

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tfjob_operator.api.client.metrics import Attempt

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""All that `RestClient` sends."""
CODES: Final = ("200", "201", "401", "403", "404", "409", "422", "429", "500", "503", "504", names.NO_ANSWER)
"""Outcomes that are there, at zero, from the first scrape: an alert on the first failure needs the zero before it. Others
appear when they happen; there are no more of them than HTTP has codes."""
RETRIED_CODES: Final = ("200", "201", "429", "500", "503", "504", names.NO_ANSWER)


class PrometheusRequestMetrics:
    """`RequestMetrics` for the clients of one server, which is the label `host`."""

    def __init__(self, registry: CollectorRegistry, host: str) -> None:
        """Make all series; `host` is the server's name and port."""
        self._host = host
        counters = {
            metric: Counter(metric.name, metric.help, metric.labels, registry=registry) for metric in names.COUNTERS
        }
        self._requests, self._retries = counters[names.REQUESTS], counters[names.RETRIES]
        for method, code in product(METHODS, CODES):
            self._requests.labels(code, method, host)
        for method, code in product(METHODS, RETRIED_CODES):
            self._retries.labels(code, method, host)
        families = {
            metric: Histogram(metric.name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)
            for metric in names.HISTOGRAMS
        }
        for family, method in product(families.values(), METHODS):
            family.labels(method, host)
        self._duration, self._wait = families[names.REQUEST_DURATION], families[names.RATE_LIMITER_DURATION]
        self._sent, self._received = families[names.REQUEST_SIZE], families[names.RESPONSE_SIZE]

    def attempted(self, attempt: Attempt) -> None:
        """See `RequestMetrics.attempted`."""
        self._requests.labels(attempt.code, attempt.verb, self._host).inc()
        if attempt.is_retry:
            self._retries.labels(attempt.code, attempt.verb, self._host).inc()
        self._sent.labels(attempt.verb, self._host).observe(attempt.request_bytes)
        if attempt.seconds is not None:
            self._duration.labels(attempt.verb, self._host).observe(attempt.seconds)
        if attempt.response_bytes is not None:
            self._received.labels(attempt.verb, self._host).observe(attempt.response_bytes)

    def throttled(self, verb: str, seconds: float) -> None:
        """See `RequestMetrics.throttled`."""
        self._wait.labels(verb, self._host).observe(seconds)
