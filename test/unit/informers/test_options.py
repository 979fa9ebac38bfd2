"""The options of a reflector."""

from __future__ import annotations

import pytest

from tfjob_operator.informers.reflector import ReflectorOptions


@pytest.mark.parametrize(
    ("minimum", "fraction", "seconds"),
    [
        pytest.param(300.0, 0.0, 300, id="shortest"),
        pytest.param(300.0, 0.999999, 599, id="longest"),
        pytest.param(1000.0, 0.5, 1500, id="a larger minimum doubles too"),
        pytest.param(10.0, 0.0, 300, id="a smaller one is ignored"),
    ],
)
def test_watch_timeouts_spread_between_the_minimum_and_twice_that(
    minimum: float, fraction: float, seconds: int
) -> None:
    """RF-09, reflector_test.go:TestWatchTimeout"""
    assert ReflectorOptions(min_watch_timeout_s=minimum).watch_timeout_s(fraction) == seconds


@pytest.mark.parametrize(
    ("explicit", "version", "always_page", "size"),
    [
        pytest.param(0, "", False, 500, id="a quorum read comes in pages"),
        pytest.param(0, "0", False, 500, id="the first list too, if the server can"),
        pytest.param(0, "7", False, 0, id="at a known version the watch cache answers in one piece"),
        pytest.param(0, "7", True, 500, id="unless there is no watch cache"),
        pytest.param(50, "7", False, 50, id="explicit"),
    ],
)
def test_pages_are_asked_for_where_they_make_sense(explicit: int, version: str, always_page: bool, size: int) -> None:
    """RF-07, reflector_test.go:TestReflectorWatchListPageSize, TestReflectorNotPaginatingNotConsistentReads"""
    assert ReflectorOptions(page_size=explicit).page_size_at(version, always_page=always_page) == size
