"""Settings of all unit tests."""

from collections.abc import Callable
from pathlib import Path
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make renew`."""
    parser.addoption("--renew", action="store_true", help="write generated files instead of comparing them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest; keep the order otherwise. With --renew, run nothing but the tests of generated files."""
    items.sort(key=lambda item: item.path.name not in FIRST)
    if config.getoption("--renew", default=False):
        items[:] = [item for item in items if "check_generated" in getattr(item, "fixturenames", ())]


@pytest.fixture
def check_generated(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Assert that a generated file of the repository has this text; `make renew` writes it instead."""

    def check(file: Path, text: str) -> None:
        if request.config.getoption("--renew", default=False):
            file.write_text(text)
        assert file.read_text() == text, f"{file} is out of date: run `make renew`"

    return check
