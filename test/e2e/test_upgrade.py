"""Releases replace each other on a real node, each with its own image, while jobs of each of them run.

0.1.0 is upgraded to 0.2.1 and to this version, rolled back in the same steps, and upgraded at once. `make e2e-upgrade` builds
the releases from their commits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pytest

from e2e.cluster import RUNS, NodeCluster, job, replica, runs, script
from e2e.test_chart import HELM, RELEASE, WAIT
from hack.chart.helm import Helm
from hack.earlier import FIRST, FOLDER, IMAGE, PREVIOUS, PROJECT
from hack.image.build import VERSION
from hack.matrix.releases import cached
from hack.real_node.node import RealNode
from support.machine import lacks

pytestmark = pytest.mark.nightly
COURSE: Final = (FIRST, PREVIOUS, VERSION, PREVIOUS, FIRST, VERSION)
RUNNING, RESTARTED, SUSPENDED, SUCCEEDED, FAILED = "running", "restarted", "suspended", "succeeded", "failed"
CONDITIONS: Final = {
    RUNNING: "Running",
    RESTARTED: "Running",
    SUSPENDED: "Suspended",
    SUCCEEDED: "Succeeded",
    FAILED: "Failed",
}
"""The last condition of a job in each state."""
STARTS: Final = {RUNNING: 3, RESTARTED: 2, SUSPENDED: 1, SUCCEEDED: 1, FAILED: 1}
"""How often processes of a job in each state are started in all."""


class Built(NamedTuple):
    """A release that was built in a checkout."""

    version: str
    root: Path

    @property
    def manifests(self) -> tuple[str, str]:
        """The option of kubectl with what installs it. The first release has no files of its own."""
        file = self.root / "build" / "release" / "install.yaml"
        return ("-f", str(file)) if file.exists() else ("-k", str(self.root / "manifests" / "overlays" / "standalone"))

    @property
    def chart(self) -> Path:
        file = self.root / "build" / "release" / f"tf-job-operator-chart-{self.version}.tgz"
        return file if file.exists() else self.root / "manifests" / "chart"


class Way(Protocol):
    """How users change the version."""

    def change(self, to: Built) -> None:
        """Install a release in place of the one that is installed, if any."""


class ByKubectl:
    """As docs/operations.md describes: the manifests of a release replace those of another, without force."""

    def __init__(self, cluster: NodeCluster) -> None:
        self._cluster = cluster

    def change(self, to: Built) -> None:
        self._cluster.kubectl("apply", "--server-side", *to.manifests)


class ByHelm:
    """A chart replaces another; a version that was installed before comes back by `helm rollback`."""

    def __init__(self, helm: Helm) -> None:
        self._helm = helm
        self._revisions: dict[str, int] = {}
        self._revision = 0

    def change(self, to: Built) -> None:
        self._revision += 1
        if to.version in self._revisions and to.version != VERSION:
            self._helm("rollback", *RELEASE, str(self._revisions[to.version]), *WAIT)
        else:
            more = ("--create-namespace", "--reset-then-reuse-values")
            self._helm("upgrade", "--install", *RELEASE, str(to.chart), *WAIT, *more)
        self._revisions[to.version] = self._revision


class Job(NamedTuple):
    """A job that was created under a release and keeps its state until it may end."""

    name: str
    state: str

    @property
    def manifest(self) -> dict[str, Any]:
        until_end = "until test -e /runs/may-end; do sleep 0.5; done"
        then = {SUCCEEDED: "true", FAILED: "exit 1", RESTARTED: f"test $RUN -gt 1 || exit 130; {until_end}"}
        command = script(self.name, then=then.get(self.state, until_end))
        replicas = {"Worker": replica(command, policy="ExitCode", replicas=2 if self.state == RUNNING else 1)}
        if self.state == RUNNING:
            replicas["PS"] = replica(command, policy="ExitCode")
        made = job(self.name, replicas, cleanPodPolicy="None", backoffLimit=3)
        if self.state == SUSPENDED:
            made["spec"]["runPolicy"]["suspend"] = True
        return made


class Scene:
    """The jobs on the node, whose operator changes its version."""

    def __init__(self, cluster: NodeCluster) -> None:
        self._cluster = cluster
        self.jobs: list[Job] = []

    def begin(self, version: str, number: int) -> None:
        """Create a job in each state."""
        made = [Job(f"{state}-{number}-{version.replace('.', '-')}", state) for state in CONDITIONS]
        self._cluster.create(*(each.manifest for each in made))
        for each in made:
            self._cluster.wait_for(each.name, CONDITIONS[each.state])
        self.jobs += made
        self._cluster.eventually(self._all_run, "all replicas run and are counted", yet=lambda: str(self.kept()))

    def _all_run(self) -> bool:
        """Whether each job shows what it runs, so that its status stays as it is."""
        return all(
            runs(each.name) == (0 if each.state == SUSPENDED else STARTS[each.state])
            and self._active(each.name) == self._ready(each.name)
            for each in self.jobs
        )

    def _active(self, name: str) -> int:
        counts: Mapping[str, Any] = self._cluster.get("tfjob", name)["status"].get("replicaStatuses") or {}
        return sum(each.get("active", 0) for each in counts.values())

    def _ready(self, name: str) -> int:
        return sum(self._cluster.is_running(pod) for pod in self._cluster.pods_of(name))

    def kept(self) -> dict[str, object]:
        """Return what no change of the version changes: status and pods of each job, and the starts of its processes."""
        return {
            each.name: (
                self._cluster.get("tfjob", each.name)["status"],
                {pod: self._cluster.pod(pod) for pod in self._cluster.pods_of(each.name)},
                runs(each.name),
            )
            for each in self.jobs
        }

    def end(self) -> None:
        """Resume what is suspended and let all jobs end; check how often their processes were started."""
        (RUNS / "may-end").touch()
        for each in self.jobs:
            if each.state == SUSPENDED:
                resumed = '{"spec": {"runPolicy": {"suspend": false}}}'
                self._cluster.kubectl("patch", "tfjob", each.name, "--type=merge", "-p", resumed)
        for each in self.jobs:
            self._cluster.wait_for(each.name, "Failed" if each.state == FAILED else "Succeeded")
        found = {each.name: runs(each.name) for each in self.jobs}
        assert found == {each.name: STARTS[each.state] for each in self.jobs}


@pytest.fixture(scope="module")
def built(node: RealNode) -> dict[str, Built]:
    """The releases by version, with their images on the node."""
    found = {version: Built(version, FOLDER / version) for version in (FIRST, PREVIOUS)}
    for each in found.values():
        if not each.root.exists():
            pytest.skip(lacks(f"release {each.version}", "make e2e-upgrade"))
        node.containers.import_image(each.root / IMAGE)
    return {**found, VERSION: Built(VERSION, PROJECT)}


@pytest.fixture
def cluster(node: RealNode, built: Mapping[str, Built]) -> Iterator[NodeCluster]:
    """The node without an operator, before and after the test."""
    cluster = NodeCluster(node)
    shutil.rmtree(RUNS)
    RUNS.mkdir()
    yield cluster
    cluster.kubectl("delete", "tfjobs", "--all", "--wait=false", check=False)
    cluster.node.plane.run_kubectl("delete", "--ignore-not-found", *built[VERSION].manifests, limit_s=180.0)


@pytest.fixture(params=["kubectl", "helm"])
def way(request: pytest.FixtureRequest, cluster: NodeCluster, tmp_path: Path) -> Way:
    if request.param == "kubectl":
        return ByKubectl(cluster)
    program = cached("helm", HELM)
    if program is None:
        pytest.skip(lacks(f"helm {HELM}", "make chart"))
    return ByHelm(Helm(program, tmp_path, cluster.node.plane.kubeconfig))


def images(cluster: NodeCluster) -> list[str]:
    """Return the images of the operator's pods."""
    pods = (cluster.get("pod", name, "kubeflow") for name in cluster.operators())
    return [pod["spec"]["containers"][0]["image"] for pod in pods]


def ask(cluster: NodeCluster, release: Built, jobs: Sequence[Job]) -> None:
    """Let the plugin of a release list all jobs and explain some; it must succeed."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.node.plane.kubeconfig)}
    for words in (["list"], *(["explain", each.name] for each in jobs)):
        command = [sys.executable, "-m", "tfjob_operator.cli", *words, "--namespace=default"]
        done = subprocess.run(command, cwd=release.root, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{release.version} {words}: {done.stderr}"
        assert words[-1] in done.stdout or all(each.name in done.stdout for each in jobs), done.stdout


def test_jobs_of_each_release_go_on_while_releases_replace_each_other(
    cluster: NodeCluster, built: Mapping[str, Built], way: Way, figure: Callable[[str], None]
) -> None:
    """No pod is restarted or lost, and no status changes. All jobs end under the last release.

    The plugin of each release lists and explains the jobs of each other.
    """
    scene = Scene(cluster)
    for number, version in enumerate(COURSE):
        kept = scene.kept()
        way.change(built[version])
        cluster.wait_for_operator()
        assert {image.partition("@")[0].rpartition(":")[2] for image in images(cluster)} == {version}
        if number == 0:
            cluster.node.plane.wait_for_crd("tfjobs.kubeflow.org")
            cluster.node.plane.restart_controller_manager()  # its garbage collector knows TFJobs now
        scene.begin(version, number)
        now = scene.kept()
        assert {name: now[name] for name in kept} == kept, f"after the change to {version}"
        for release in built.values():
            ask(cluster, release, scene.jobs[-len(CONDITIONS) :])
        figure(f"{type(way).__name__}: {version} serves {len(scene.jobs)} jobs, of which {len(kept)} are as before")
    scene.end()
