"""A namespace of the session's control plane for each integration test.

A test uses one of two fixtures. `served`: its jobs run with an operator and a node that the tests of the module share and do
not configure or stop. `cluster`: nothing runs, and the test starts its own operator and node with its flags. The shared
operator is stopped before, because it would also act on these jobs.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.control_plane import ControlPlane
from hack.kubernetes_versions import NEWEST, Kubernetes
from integration.cluster import Cluster, SharedOperator
from integration.plugin import Plugin
from integration.stage import Stage

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of these tests; pytest knows them when it is given a path in this folder."""
    parser.addoption("--creates", type=int, default=1000, help="how many TFJobs to fuzz the CRD's schema with")
    parser.addoption("--record", action="store_true", help="write what the server answers into test/data/recordings")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that `-m 'not integration'` leaves all of them out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A fresh namespace in which pods can be created; its deletion is not waited for, since it takes five seconds."""
    name = f"test-{secrets.token_hex(4)}"
    control_plane.create_namespace(name)
    yield name
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kubelet() -> Kubernetes:
    """The version of the kubelet that the hollow node of a test imitates; `BOTH_KUBELETS` adds a run with the oldest."""
    return NEWEST


@pytest.fixture(scope="module")
def shared_operator(
    control_plane: ControlPlane, crd: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedOperator]:
    """The operator and node that `served` starts and `cluster` stops."""
    shared = SharedOperator(control_plane, tmp_path_factory.mktemp("shared-operator"))
    yield shared
    shared.stop()


@pytest.fixture
def cluster(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, shared_operator: SharedOperator, kubelet: Kubernetes
) -> Cluster:
    """The namespace of a test, with nothing running in it."""
    shared_operator.stop()
    return Cluster(control_plane, namespace, tmp_path, kubelet)


@pytest.fixture
def served(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, shared_operator: SharedOperator, kubelet: Kubernetes
) -> Cluster:
    """The namespace of a test, with the operator and the node of its module."""
    shared_operator.start(kubelet)
    return Cluster(control_plane, namespace, tmp_path, kubelet)


@pytest.fixture
def plugin(control_plane: ControlPlane, namespace: str, crd: None) -> Plugin:
    """The plugin as a user of the namespace calls it."""
    return Plugin(control_plane.kubeconfig, namespace, control_plane.kubectl)


@pytest.fixture
def stage(control_plane: ControlPlane, cluster: Cluster) -> Iterator[Stage]:
    """A namespace in which jobs get into trouble."""
    with Stage(control_plane, cluster) as found:
        yield found
