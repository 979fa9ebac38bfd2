"""Settings of all unit tests."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings

# A busy machine is not a failure, and what fails must fail again: the same examples are drawn in each run. To draw others:
# pytest --hypothesis-profile=explore, perhaps with --hypothesis-seed=NUMBER.
settings.register_profile("project", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile("project")

FIRST: Final = ("test_never_two.py",)
"""Modules with a test of seconds. At the end of a run it would keep one worker of pytest-xdist busy while others wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest; keep the order otherwise."""
    items.sort(key=lambda item: item.path.name not in FIRST)
