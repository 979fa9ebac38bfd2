"""The README's way from nothing to a finished job, typed from its own text on the real node: with kubectl, and with Helm.

Not typed here: `make demo` and `make test` (.ci/run), `make image` (the target `make e2e` does the same first), the lines for
kind, minikube, k3s and a registry, which load the same archive and are not on this machine, and the one that names an image in
a registry. Python's packages come from the environment of the tests, since the sandbox has no network.
"""

import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from e2e.cluster import IMAGE, NodeCluster
from e2e.conftest import IMAGE as ARCHIVE
from e2e.conftest import PROJECT, install, uninstall
from e2e.test_chart import HELM
from hack.image.build import SOURCES
from hack.matrix.releases import cached
from support.pages import blocks

ELSEWHERE: Final = ("make ", "kind ", "minikube ", "k3s ", "skopeo ", "kubectl -n kubeflow set image ")
ONLY: Final = {
    "kubectl": ("kubectl apply ", "kubectl -n kubeflow rollout ", "kubectl delete -k "),
    "helm": ("helm ", "kubectl delete crd,clusterrole "),
}
"""What belongs to one of the two ways to install."""
LIMIT_S: Final = 300.0
END: Final = "end-of-command"


class Shell:
    """A reader's shell, in a clone of the project, with the programs that the README asks for."""

    def __init__(self, cluster: NodeCluster, home: Path) -> None:
        clone, programs = home / "clone", home / "bin"
        clone.mkdir()
        for name in (*SOURCES, "manifests"):
            (clone / name).symlink_to(PROJECT / name)
        (clone / "build").mkdir()  # of its own, since pip builds there
        (clone / "build" / ARCHIVE.name).symlink_to(ARCHIVE)
        programs.mkdir()
        (programs / "kubectl").symlink_to(cluster.node.plane.kubectl)
        (programs / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
        helm = cached("helm", HELM)
        if helm is not None:
            (programs / "helm").symlink_to(helm)
        environment = {
            "HOME": str(home),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(cluster.node.plane.kubeconfig),
            "CONTAINERD_ADDRESS": cluster.node.containers.address,
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this as --no-build-isolation
        }
        pipe = subprocess.PIPE
        self._bash = subprocess.Popen(
            ["bash"], cwd=clone, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )

    def types(self, command: str) -> str:
        """Type a command, which must succeed; return what it prints."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        timer = threading.Timer(LIMIT_S, self._bash.kill)
        timer.start()
        self._bash.stdin.write(f"{command}\necho {END} $?\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(END):
                break
            lines.append(line)
        timer.cancel()
        printed = "".join(lines)
        assert line == f"{END} 0\n", f"{command}: {printed}"
        return printed

    def close(self) -> None:
        with self._bash:
            self._bash.kill()


@pytest.fixture(scope="module")
def bare(cluster: NodeCluster, images: None) -> Iterator[NodeCluster]:
    """The node without the operator, which is installed again for the tests after these, and without what Helm has left."""
    uninstall(cluster.node.plane)
    left = ("crd,clusterroles", "--selector=app.kubernetes.io/name=tfjob-operator")
    cluster.node.plane.run_kubectl("delete", *left, "--ignore-not-found")
    yield cluster
    install(cluster.node.plane)
    cluster.wait_for_operator()


@pytest.fixture
def shell(bare: NodeCluster, tmp_path: Path) -> Iterator[Shell]:
    """On the node, which does not have the operator's image either."""
    bare.node.containers.remove_image(f"docker.io/library/{IMAGE}")
    shell = Shell(bare, tmp_path)
    yield shell
    shell.close()


@pytest.mark.parametrize("way", ONLY)
def test_the_readme_leads_from_nothing_to_a_finished_job_and_back(
    shell: Shell, cluster: NodeCluster, way: str, figure: Callable[[str], None]
) -> None:
    """Each command succeeds, and shows what the README says that it shows."""
    if way == "helm" and cached("helm", HELM) is None:
        pytest.skip(f"helm {HELM} is not in the cache: `make chart` fetches it")
    others = next(starts for name, starts in ONLY.items() if name != way)
    commands = [command.text for block in blocks("README.md") for command in block]
    printed: dict[str, str] = {}
    start = time.monotonic()
    for command in commands:
        if not command.startswith((*ELSEWHERE, *others)):
            printed[command] = shell.types(command)
            if command.startswith("kubectl tfjob watch"):
                seconds = time.monotonic() - start
                figure(f"README, with {way}: {len(printed)} commands, {seconds:.0f} s to a finished job")

    def of(start: str) -> str:
        return next(text for command, text in printed.items() if command.startswith(start))

    assert "hello" in of("kubectl tfjob list")
    assert "Succeeded" in of("kubectl tfjob watch hello").splitlines()[-1]
    last = "100/100 - 1s - 50ms/step - loss: 0.20"
    assert [f"worker-{index} | {last}" in of("kubectl tfjob logs") for index in (0, 1)] == [True, True]
    assert "hello" in of("kubectl tfjob explain hello")
    left = cluster.kubectl("get", "crd,clusterroles,deployments", "--all-namespaces", "--output=name")
    assert [name for name in left.splitlines() if "tfjob" in name or "tf-job" in name] == []
