"""The real node of a session, with the operator on it as its users install it. Outside of the sandbox all is skipped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.cluster import NodeCluster
from hack.control_plane import ControlPlaneError
from hack.real_node.inside import FOLDER_VARIABLE
from hack.real_node.node import RealNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
IMAGE = PROJECT / "build" / "tfjob-operator.tar"
FIGURES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and leave them all out where there is no sandbox."""
    outside = FOLDER_VARIABLE not in os.environ
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if outside:
                item.add_marker(pytest.mark.skip(reason="needs the sandbox of a real node: make e2e"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured."""
    for figure in config.stash.get(FIGURES, []):
        terminalreporter.write_line(figure)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Tell something that was measured; it is printed at the end of the session."""
    return request.config.stash.setdefault(FIGURES, []).append


@pytest.fixture(scope="session")
def node() -> Iterator[RealNode]:
    """A real node; its end is also the end of what tests leave on it."""
    if not IMAGE.exists():
        pytest.fail(f"no image at {IMAGE}: python -m hack.image", pytrace=False)
    try:
        node = RealNode.start()
    except ControlPlaneError as error:
        pytest.fail(f"no node: {error}", pytrace=False)
    with node:
        node.containers.import_image(IMAGE)
        yield node


@pytest.fixture(scope="session")
def cluster(node: RealNode) -> NodeCluster:
    """The node with the operator, from `kubectl apply -k`."""
    plane = node.plane
    plane.run_kubectl("apply", "-k", str(PROJECT / "manifests" / "overlays" / "standalone"))
    plane.wait_for_crd("tfjobs.kubeflow.org")
    plane.restart_controller_manager()  # its garbage collector knows TFJobs now
    cluster = NodeCluster(node)
    cluster.wait_for_operator()
    return cluster
