"""Quantities as users and API servers write them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.api.resources import format_quantity, parse_quantity

QUANTITIES = [
    ("1", 1),
    (2, 2),
    (0.5, "0.5"),
    ("500m", "0.5"),
    ("1.5Gi", 3 * 2**29),
    ("1k", 1000),
    ("2M", 2_000_000),
    ("1E", 10**18),
    ("1e3", 1000),
    ("1E3", 1000),
    ("12e-1", "1.2"),
    (".5", "0.5"),
    ("5.", 5),
    ("+3", 3),
    ("7n", "0.000000007"),
    ("1Ei", 2**60),
]


@pytest.mark.parametrize(("text", "number"), QUANTITIES, ids=[str(text) for text, _ in QUANTITIES])
def test_quantities_are_read_as_the_api_server_reads_them(text: object, number: Any) -> None:
    """Decimal, binary and exponent forms."""
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize(
    "text", ["", "x", "1K", "1Ki2", "-1", "1e999999999", "1 Gi", "9" * 50, None, True, [], {}, "١"]
)
def test_what_is_no_quantity_is_none(text: object) -> None:
    """No text raises, and no exponent makes a huge number."""
    assert parse_quantity(text) is None


@given(st.integers(0, 2**62), st.sampled_from(["", "m", "k", "Ki", "Gi", "n"]))
def test_a_quantity_that_is_written_means_at_least_what_was_read(digits: int, suffix: str) -> None:
    """Thousandths are exact; finer fractions are rounded up."""
    number = parse_quantity(f"{digits}{suffix}")
    assert number is not None
    again = parse_quantity(format_quantity(number))
    assert again is not None
    assert 0 <= again - number < Decimal("0.001")
