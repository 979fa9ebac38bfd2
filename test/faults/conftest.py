"""Options of the crash matrix."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
MATRIX = "ends_as_without_a_fault"
TENTHS = [*"0123456789", "commit"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of these tests; pytest knows them when it is given a path in this folder."""
    parser.addoption("--whole", action="store_true", help="play all matrices whole, planted bugs, stopped leaders")
    parser.addoption(
        "--tenth", choices=TENTHS, default=None, help="play this tenth, or the one that the hash of the commit names"
    )
    parser.addoption(
        "--walks", type=int, default=100, metavar="NUMBER", help="how many jobs are edited at random (100)"
    )
    parser.addoption(
        "--walk-seed", type=int, default=None, help="draw these edits and changes of version, not new ones"
    )
    parser.addoption(
        "--case", action="append", default=[], help="play this case only, WORKLOAD:WRITE:FAULT, as it is told"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that `-m 'not integration'` leaves all of them out.

    They depend on how busy the machine is: they are for `make faults`, and a part of the matrices for who asks for one.
    """
    nightly = pytest.mark.skip(reason="a part of make faults")
    whole = config.getoption("whole", False)
    some = config.getoption("tenth", None) is not None or config.getoption("case", [])
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if not whole and not (some and MATRIX in item.name):
                item.add_marker(nightly)
