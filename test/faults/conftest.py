"""Options of the crash matrix."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of these tests; pytest knows them when it is given a path in this folder."""
    parser.addoption("--whole", action="store_true", help="play the whole crash matrix, not the tenth of this commit")
    parser.addoption("--tenth", type=int, default=None, metavar="SEED", help="play the tenth of this seed")
    parser.addoption(
        "--case", action="append", default=[], help="play this case only, WORKLOAD:WRITE:FAULT, as it is told"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that `-m 'not integration'` leaves all of them out.

    Planted bugs and stopped leaders depend on how busy the machine is: they are for `make faults`.
    """
    nightly = pytest.mark.skip(reason="a part of make faults")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if not config.getoption("whole", False) and "ends_as_without_a_fault" not in item.name:
                item.add_marker(nightly)
