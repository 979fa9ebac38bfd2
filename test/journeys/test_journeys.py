"""The sessions in the docs: every command on a real API server, with the output that the docs show.

Pods run on hollow nodes; `IMAGES` defines what the images of the docs do there. Other sessions are tested elsewhere: the
first job in test/e2e/test_readme.py (real node), the notebook in `make sdk-matrix`, upgrade by Helm and uninstall in `make
chart` and test/integration/test_chart.py, the controller from the wheel in test/integration/test_wheel.py.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from hack.control_plane import ControlPlane
from journeys.story import Story, is_as_shown
from support.pages import ROOT
from support.waiting import eventually

pytestmark = pytest.mark.integration

TROUBLESHOOTING: Final = "docs/troubleshooting.md"
STORIES: Final = {
    "a broken image": (TROUBLESHOOTING, "An image cannot be pulled"),
    "out of memory": (TROUBLESHOOTING, "A container runs out of memory"),
    "a quota": (TROUBLESHOOTING, "A quota is used up"),
    "a wrong field": (TROUBLESHOOTING, "A field is misspelled"),
    "a killed worker": (TROUBLESHOOTING, "A worker is killed"),
    "suspend and resume": ("docs/tfjob.md", "Suspending"),
    "scale": ("docs/tfjob.md", "Elastic jobs"),
    "a failure policy": ("docs/tfjob.md", "Failure policy"),
    "a grace period": ("docs/tfjob.md", "How a job ends"),
    "a shared network": ("docs/tfjob.md", "Pods and Services"),
    "restarts": (TROUBLESHOOTING, "A job is restarted again and again"),
    "two namespaces": (TROUBLESHOOTING, "A job is not found"),
    "no permissions": (TROUBLESHOOTING, "Permission is denied"),
}
NO_OPERATOR: Final = (TROUBLESHOOTING, "No operator is running")
IMAGES: Final = """
registry.example.com/mnist:1: {run: "6s:0", log: "keras 3 every 2s", memory: 700Mi}
registry.example.com/mnist:11: {run: image-pull-back-off}
registry.example.com/mnist:killed: {run: "1s:137, 6s:0"}
registry.example.com/resnet:1: {run: forever}
registry.example.com/bert:1: {run: "1s:42, 2s:0"}
registry.example.com/bert:crash: {run: "1s:42"}
registry.example.com/bert:wrong: {run: "1s:2"}
registry.example.com/export:chief: {run: "1s:0"}
registry.example.com/export:worker: {run: "5s:0"}
"""
NODES: Final = """
- {name: node-1}
- {name: node-2, taints: [{key: spare, value: "true", effect: NoSchedule}]}
"""
AT_ONCE: Final = 3
"""Stories that are played beside each other: most of their time they wait for the operator and for pods."""


class Place:
    """A cluster as the documents' reader has it: operator, users' roles, nodes."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self._folder = folder
        self._begun = 0
        plane.run_kubectl("apply", "--server-side", "-f", str(ROOT / "manifests/base/user-roles.yaml"))
        plane.create_namespace("kubeflow")
        (folder / "images.yaml").write_text(IMAGES)
        (folder / "nodes.yaml").write_text(NODES)
        self.operator = self._start("tfjob_operator.controller", "--monitoring-port=0", ready="operator_ready")
        files = [f"--{each}={folder / each}.yaml" for each in ("images", "nodes")]
        self._node = self._start("hack.hollow_node", *files, ready="runs the pods")

    def _start(self, module: str, *flags: str, ready: str) -> subprocess.Popen[bytes]:
        log = self._folder / f"{module}.log"
        command = [sys.executable, "-m", module, *flags, f"--kubeconfig={self.plane.kubeconfig}"]
        with log.open("wb") as out:
            environment = {**os.environ, "KUBEFLOW_NAMESPACE": "kubeflow"}
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=environment)
        eventually(lambda: ready in log.read_text() or process.poll() is not None, f"{module} is ready")
        assert process.poll() is None, log.read_text()
        return process

    def story(self) -> Story:
        self._begun += 1
        namespace, folder = f"story{self._begun:02}", self._folder / str(self._begun)
        folder.mkdir()
        self.plane.create_namespace(namespace)
        return Story(self.plane, namespace, folder)

    def stop_operator(self) -> None:
        """Stop it, as a scale to zero does."""
        self.operator.send_signal(signal.SIGTERM)
        assert self.operator.wait(60) == 0

    def close(self) -> None:
        for process in (self.operator, self._node):
            process.terminate()
            process.wait(20)
        names = [*(f"story{number:02}" for number in range(1, self._begun + 1)), "team-b", "kubeflow"]
        self.plane.run_kubectl("delete", "namespace", *names, "--ignore-not-found", "--wait=false")
        self.plane.run_kubectl("delete", "-f", str(ROOT / "manifests/base/user-roles.yaml"))


@pytest.fixture(scope="module")
def place(control_plane: ControlPlane, crd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One cluster for all stories."""
    made = Place(control_plane, tmp_path_factory.mktemp("journeys"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def told(place: Place, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[str]]]:
    """The stories of this session, played beside each other: by name, what they print."""
    wanted = [name for name in STORIES if any(f"[{name}]" in item.name for item in request.session.items)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(place.story().follow, *STORIES[name]) for name in wanted}


@pytest.mark.parametrize("name", STORIES)
def test_a_reader_of_the_documents_gets_there(told: dict[str, Future[str]], name: str) -> None:
    told[name].result()


def test_a_job_waits_for_an_operator_that_is_not_running(place: Place, told: dict[str, Future[str]]) -> None:
    """The last story, since it stops the operator that the others need."""
    for story in told.values():
        story.exception()
    place.stop_operator()
    place.story().follow(*NO_OPERATOR)


@pytest.mark.parametrize(
    ("printed", "shown", "is_same"),
    [
        ("NAME  AGE\na     12s\n", ("NAME   AGE", "a      3m20s"), True),
        ("NAME  AGE\nb     12s\n", ("NAME   AGE", "a      12s"), False),
        ("a\nb\nc\n", ("a", "...", "c"), True),
        ("a\nb\nc\n", ("a", "b"), False),
        ("a long line (5s ago) that\nis broken", ("a long line (15s", "ago) that is broken"), True),
    ],
    ids=["another age", "another name", "lines left out", "a line more", "broken elsewhere"],
)
def test_an_answer_is_compared_without_times_and_line_breaks(
    printed: str, shown: tuple[str, ...], *, is_same: bool
) -> None:
    assert is_as_shown(printed, shown) is is_same
