"""The options of the soak test and of the degraded cluster."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of these tests; pytest knows them when it is given a path in this folder."""
    parser.addoption("--minutes", type=float, default=None, help="how long the operator is to work")
    parser.addoption(
        "--trouble", action="append", default=[], help="make this trouble only, again and again; repeatable"
    )
    parser.addoption(
        "--planted", default="", metavar="BUG", help="put this bug into the operator, and require that it is found"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave it out where nobody asked for it."""
    for item in items:
        if "test/soak/" in item.path.as_posix():
            item.add_marker(pytest.mark.integration)
            if config.getoption("minutes", None) is None:
                item.add_marker(pytest.mark.skip(reason="make soak, make degraded"))
