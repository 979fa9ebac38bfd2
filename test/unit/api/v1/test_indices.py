"""Sets of indices and their written form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.api.v1.types import format_indices, parse_indices


@pytest.mark.parametrize(
    ("indices", "text"), [(set(), ""), ({0}, "0"), ({0, 1, 2}, "0-2"), ({0, 2, 3, 4, 9}, "0,2-4,9")]
)
def test_neighbours_are_written_as_ranges(indices: set[int], text: str) -> None:
    """A thousand finished workers fit in a few characters."""
    assert format_indices(indices) == text
    assert parse_indices(text, 10) == indices


@given(st.sets(st.integers(0, 200)))
def test_what_is_written_is_read_back(indices: set[int]) -> None:
    """Any set survives."""
    assert parse_indices(format_indices(indices), 1000) == indices


@pytest.mark.parametrize("text", ["x", "1-", "-1", "5-2", "1--3", "0-999999999999", ",,", "1.5"])
def test_what_somebody_else_wrote_does_no_harm(text: str) -> None:
    """Malformed parts are ignored, and a huge range is cut."""
    assert parse_indices(text, 4) <= {0, 1, 2, 3}
