"""The bounds of the search.

pytest test/worlds             within the bounds of the settings: three minutes on one core
pytest test/worlds --deep 0    with watches that lag without bound, and pods that need time to start
pytest test/worlds --deep 1    and with one more fault (minutes to hours, gigabytes)
"""

import pytest
from pytest_mock import MockerFixture

from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option; it is known when this folder, or something in it, is named on the command line."""
    text = "walk the worlds without bounds on lag, and with so many more surprises"
    parser.getgroup("worlds").addoption("--deep", type=int, default=None, metavar="SURPRISES", help=text)


@pytest.fixture
def deep(request: pytest.FixtureRequest) -> int | None:
    """How many more surprises; None for the bounds of every day."""
    found: int | None = request.config.getoption("deep", default=None)
    return found


@pytest.fixture(autouse=True)
def one_window(mocker: MockerFixture) -> None:
    """Let both windows for counters be one second: the worlds have no other period, and its length decides nothing."""
    mocker.patch("tfjob_operator.controller.jobs.pending.START_WINDOW_S", COUNTER_WINDOW_S)
