"""Restart requests: what an annotation's value asks for, and the value that a new request gets."""

from datetime import UTC, datetime, timedelta

import pytest

from tfjob_operator.api.v1.restart_requests import MAX_LENGTH, new_request, why_ignored

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
EARLY, LATE = "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00"


@pytest.mark.parametrize(
    ("earlier", "expected"),
    [
        ([], "2026-11-29T12:00:00.000000Z"),
        (["", "any text", "2026-11-29T13:00:00", "2026-11-29T11:59:00Z"], "2026-11-29T12:00:00.000000Z"),
        (["2026-11-29T12:00:05Z", "2026-11-29T12:00:07.5+00:00"], "2026-11-29T12:00:07.500001Z"),
        (["2026-11-29T14:00:00+01:00"], "2026-11-29T13:00:00.000001Z"),
        ([EARLY, LATE], "2026-11-29T12:00:00.000000Z"),
    ],
    ids=["no earlier one", "no later time", "of a clock that is ahead", "in another zone", "the first and last times"],
)
def test_a_new_request_is_later_than_all_before_it(earlier: list[str], expected: str) -> None:
    """Else the operator would ignore the request of a user whose clock is behind."""
    request = new_request(NOW, earlier)
    assert request == expected
    assert len(request) <= MAX_LENGTH
    for each in earlier:
        for now in (NOW, NOW + timedelta(days=1)):
            assert not why_ignored(request, each, now)


@pytest.mark.parametrize("request_", ["", "a", EARLY, LATE, "2026-11-29", "24:00", "\ud800", "٢٠٢٦-١١-٢٩T00:00:00Z"])
@pytest.mark.parametrize("observed", ["", "b", EARLY, LATE])
def test_no_value_is_an_error(request_: str, observed: str) -> None:
    assert why_ignored(request_, observed, NOW) == "" or (request_, observed) == (EARLY, EARLY)
