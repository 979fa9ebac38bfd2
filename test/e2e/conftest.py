"""The real node of a session, with the operator installed as by users. Outside of the sandbox all tests are skipped."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster import NodeCluster
from e2e.stand_in import import_stand_in
from hack.control_plane import ControlPlane, ControlPlaneError
from hack.real_node.inside import FOLDER_VARIABLE
from hack.real_node.node import RealNode

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
STANDALONE = str(PROJECT / "manifests" / "overlays" / "standalone")
IMAGE = PROJECT / "build" / "tfjob-operator.tar"
EVERY_API = "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1,tensorflow.org/v1alpha1"
FIGURES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and skip them all outside of the sandbox."""
    outside = FOLDER_VARIABLE not in os.environ
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if outside:
                item.add_marker(pytest.mark.skip(reason="needs the sandbox of a real node: make e2e"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for figure in config.stash.get(FIGURES, []):
        terminalreporter.write_line(figure)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Record something that was measured; it is printed at the end of the session."""
    return request.config.stash.setdefault(FIGURES, []).append


@pytest.fixture(scope="session")
def node() -> Iterator[RealNode]:
    """A real node; whatever tests leave on it is gone with it."""
    if not IMAGE.exists():
        pytest.fail(f"no image at {IMAGE}: python -m hack.image", pytrace=False)
    try:
        node = RealNode.start()
    except ControlPlaneError as error:
        pytest.fail(f"no node: {error}", pytrace=False)
    with node:
        node.containers.import_image(IMAGE)
        yield node


def install(plane: ControlPlane) -> None:
    plane.run_kubectl("apply", "--server-side", "--force-conflicts", "-k", STANDALONE)
    plane.wait_for_crd("tfjobs.kubeflow.org")
    plane.restart_controller_manager()  # its garbage collector knows TFJobs now


def uninstall(plane: ControlPlane) -> None:
    """Remove the operator, its namespace, and with the CRD all jobs."""
    plane.run_kubectl("delete", "--ignore-not-found", "-k", STANDALONE, limit_s=180.0)


@pytest.fixture(scope="session")
def cluster(node: RealNode) -> NodeCluster:
    """The node with the operator, from `kubectl apply -k`."""
    install(node.plane)
    cluster = NodeCluster(node)
    cluster.wait_for_operator()
    return cluster


@pytest.fixture(scope="module")
def logs_addon(cluster: NodeCluster) -> Iterator[None]:
    """The right to read logs."""
    addon = str(PROJECT / "manifests" / "addons" / "logs")
    cluster.kubectl("apply", "-k", addon)
    yield
    cluster.kubectl("delete", "-k", addon)


@pytest.fixture(scope="session")
def images(node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Stand-ins for the images that users' manifests name."""
    import_stand_in(node.containers, IMAGE, tmp_path_factory.mktemp("stand-in"))


@pytest.fixture(scope="session")
def every_api(cluster: NodeCluster, images: None, tmp_path_factory: pytest.TempPathFactory) -> NodeCluster:
    """The operator with every API, from a kustomization as in docs/install.md. It stays like this for later tests."""
    folder = tmp_path_factory.mktemp("every-api")
    manifests = Path("../" * len(folder.parts)) / (PROJECT / "manifests").relative_to("/")
    bases = [str(manifests / each) for each in ("overlays/standalone", "addons/alpha")]
    (folder / "kustomization.yaml").write_text(json.dumps({"bases": bases, "patchesStrategicMerge": ["flags.yaml"]}))
    file = "--controller-config-file=/etc/config/controller_config_file.yaml"
    arguments = ["--monitoring-port=8443", file, EVERY_API]
    container = {"name": "operator", "args": arguments}
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": {"containers": [container]}}}}
    patch["metadata"] = {"name": "tf-job-operator", "namespace": "kubeflow"}
    (folder / "flags.yaml").write_text(json.dumps(patch))
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    cluster.node.plane.wait_for_crd("tfjobs.tensorflow.org")
    cluster.node.plane.restart_controller_manager()  # its garbage collector knows TfJobs now
    cluster.wait_for_operator()
    return cluster
