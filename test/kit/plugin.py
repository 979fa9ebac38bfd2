"""The plugin of pytest: the fixture `simulate`. Provisional: it may change in a minor version.

pytest --kube-seeds=1000                    play more seeds of each test
pytest FILE::TEST --kube-seed=17            play one seed: the replay of a failure
pytest --kube-seed=5000 --kube-seeds=1000   play a thousand seeds from 5000 on
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kit.cluster import Simulate


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose seeds."""
    group = parser.getgroup("kube", "simulated Kubernetes clusters")
    group.addoption("--kube-seed", type=int, default=None, help="the first seed; without --kube-seeds the only one")
    group.addoption("--kube-seeds", type=int, default=None, help="the number of seeds of each test with `simulate`")


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Simulate:
    """Play a controller and its users in simulated clusters: see `Simulate`."""
    from kit.cluster import Simulate  # here, because pytest imports plugins at each start

    option = request.config.getoption
    return Simulate(request.node.nodeid, option("--kube-seed"), option("--kube-seeds"))
