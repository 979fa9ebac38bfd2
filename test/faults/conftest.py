"""Options of the crash matrix."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
MATRIX = "ends_as_without_a_fault"
TENTHS = [*"0123456789", "commit"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; pytest knows them if it is given a path in this folder."""
    parser.addoption("--whole", action="store_true", help="play all matrices whole, planted bugs, stopped leaders")
    parser.addoption(
        "--tenth", choices=TENTHS, default=None, help="play this tenth, or the one that the hash of the commit names"
    )
    parser.addoption(
        "--walks", type=int, default=100, metavar="NUMBER", help="number of jobs that are edited randomly (100)"
    )
    parser.addoption(
        "--walk-seed", type=int, default=None, help="draw these edits and changes of version, not new ones"
    )
    parser.addoption(
        "--case", action="append", default=[], help="play only this case, WORKLOAD:WRITE:FAULT, as printed"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test in this folder, so that `-m 'not integration'` excludes them.

    They depend on the load of the machine, so they run in `make faults`, or partly on request.
    """
    nightly = pytest.mark.skip(reason="a part of make faults")
    whole = config.getoption("whole", False)
    some = config.getoption("tenth", None) is not None or config.getoption("case", [])
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if not whole and not (some and MATRIX in item.name):
                item.add_marker(nightly)
