"""The names under which requests are counted."""

from __future__ import annotations

from tfjob_operator.api.client import metrics


def test_the_families_are_those_of_client_go() -> None:
    """A7: dashboards and alerts of Kubernetes components know these names and labels."""
    assert {family.name: family.labels for family in (*metrics.COUNTERS, *metrics.HISTOGRAMS)} == {
        "rest_client_requests_total": ("code", "method", "host"),
        "rest_client_request_duration_seconds": ("verb", "host"),
        "rest_client_rate_limiter_duration_seconds": ("verb", "host"),
        "rest_client_request_size_bytes": ("verb", "host"),
        "rest_client_response_size_bytes": ("verb", "host"),
        "rest_client_request_retries_total": ("code", "verb", "host"),
    }


def test_histograms_have_rising_buckets_and_counters_have_none() -> None:
    assert all(family.buckets == () for family in metrics.COUNTERS)
    for family in metrics.HISTOGRAMS:
        assert len(family.buckets) >= 11
        assert list(family.buckets) == sorted(set(family.buckets))
