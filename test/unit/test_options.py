"""Options of tests: pytest knows those of all folders at once when it is given all folders."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_no_two_folders_have_an_option_of_the_same_name() -> None:
    """Or none of their tests can be collected together, which is how CI runs them."""
    found = [
        option
        for conftest in sorted(TESTS.glob("**/conftest.py"))
        for option in re.findall(r"addoption\(\s*\"(--[a-z-]+)\"", conftest.read_text())
    ]
    assert "--seed" in found
    assert sorted(set(found)) == sorted(found)
