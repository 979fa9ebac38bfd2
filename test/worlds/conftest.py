"""How far the worlds are walked.

pytest test/worlds             within the bounds of `worlds.settings`: about a minute on one core
pytest test/worlds --deep 0    with watches that lag as far as they like, and pods that take their time
pytest test/worlds --deep 1    and with one surprise more (minutes to hours, gigabytes)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tfjob_operator.controller.tfjob.window import COUNTER_WINDOW_S

if TYPE_CHECKING:
    from pytest_mock import MockerFixture


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option; it is known when this folder, or something in it, is named on the command line."""
    text = "walk the worlds without bounds on lag, and with so many more surprises"
    parser.getgroup("worlds").addoption("--deep", type=int, default=None, metavar="SURPRISES", help=text)


@pytest.fixture
def deep(request: pytest.FixtureRequest) -> int | None:
    """How many surprises more; None for the bounds of every day."""
    found: int | None = request.config.getoption("deep", default=None)
    return found


@pytest.fixture(autouse=True)
def one_window(mocker: MockerFixture) -> None:
    """Let both windows for counters be a second: the worlds know no other period, and which it is decides nothing."""
    mocker.patch("tfjob_operator.controller.tfjob.window.START_WINDOW_S", COUNTER_WINDOW_S)
