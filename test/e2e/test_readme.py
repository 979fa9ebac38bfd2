"""The README's way from the files of a release to a finished job, typed from its text on the real node: with kubectl and Helm.

`make e2e` builds the files before, as a dry run. The shell is in an empty folder, without the checkout and its environment.
Not typed here: `make demo` and `make test` (.ci/run), and the lines for kind and k3s, which import the same archive.
"""

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from e2e.cluster import IMAGE, OPERATOR, NodeCluster
from e2e.conftest import IMAGE as ARCHIVE
from e2e.conftest import install, uninstall
from e2e.test_chart import HELM
from hack.image.build import VERSION
from hack.matrix.releases import cached
from hack.publish import __main__ as publish
from hack.release import EXAMPLE_REGISTRY, INSTALLS, OUTPUT
from support.machine import lacks
from support.pages import below, blocks
from support.registry import registry

ELSEWHERE: Final = (
    "make ",
    "kind ",
    "k3s ",
    "docker ",
    "kubectl tfjob migrate ",
)  # the last: integration/test_migrate.py
ONLY: Final = {
    "kubectl": ("kubectl apply ", "kubectl -n kubeflow rollout ", "kubectl delete --ignore-not-found -f install.yaml"),
    "helm": ("helm ", "kubectl delete crd,clusterrole "),
}
"""What belongs to one of the two ways to install."""
DOWNLOAD: Final = "export RELEASE="
TOOLS: Final = ("curl", "openssl", "sha256sum", "gunzip", "gzip", "sh", "tar", "mkdir", "bash", "env", "ctr")
"""What the README asks for, besides kubectl, python3 and helm."""
METRICS: Final = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8443/metrics').read().decode())"
LIMIT_S: Final = 300.0
END: Final = "end-of-command"


class Shell:
    """A user's shell in an empty folder, with the programs that the README asks for and no others."""

    def __init__(self, cluster: NodeCluster, home: Path) -> None:
        programs, folder = home / "bin", home / "download"
        programs.mkdir()
        folder.mkdir()
        for name in TOOLS:
            found = shutil.which(name)
            assert found is not None, f"{name} is not installed"
            (programs / name).symlink_to(found)
        (programs / "kubectl").symlink_to(cluster.node.plane.kubectl)
        (programs / "python3").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
        helm = cached("helm", HELM)
        if helm is not None:
            (programs / "helm").symlink_to(helm)
        environment = {
            "HOME": str(home),
            "PATH": str(programs),
            "KUBECONFIG": str(cluster.node.plane.kubeconfig),
            "CONTAINERD_ADDRESS": cluster.node.containers.address,
        }
        pipe = subprocess.PIPE
        self._bash = subprocess.Popen(
            ["bash"], cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
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
    cluster.node.containers.import_image(ARCHIVE)  # removed by a test that may then fail or be skipped
    install(cluster.node.plane)
    cluster.wait_for_operator()


@pytest.fixture
def shell(bare: NodeCluster, tmp_path: Path) -> Iterator[Shell]:
    """On the node, which does not have the operator's image either."""
    for name in (IMAGE, IMAGE.partition(":")[0] + digest()):
        bare.node.containers.remove_image(f"docker.io/library/{name}")
    shell = Shell(bare, tmp_path)
    yield shell
    shell.close()


def digest() -> str:
    """The digest by which the manifests of the release name the image, with the @ before it."""
    found = re.search(
        rf"image: {IMAGE}(@sha256:[0-9a-f]{{64}})$", (OUTPUT / INSTALLS["standalone"]).read_text(), re.MULTILINE
    )
    assert found is not None
    return found[1]


@pytest.mark.parametrize("way", ONLY)
def test_the_readme_leads_from_the_files_of_a_release_to_a_finished_job_and_back(
    shell: Shell, cluster: NodeCluster, way: str, figure: Callable[[str], None]
) -> None:
    """Each command succeeds, and shows what the README says that it shows; all programs report the version of the release."""
    if way == "helm" and cached("helm", HELM) is None:
        pytest.skip(lacks(f"helm {HELM}", "make chart"))
    others = next(starts for name, starts in ONLY.items() if name != way)
    commands = [command.text for block in blocks("README.md") for command in block]
    printed: dict[str, str] = {}
    metrics = ""
    start = time.monotonic()
    for command in commands:
        if command.startswith((*ELSEWHERE, *others)):
            continue
        typed = f"{DOWNLOAD}{OUTPUT.as_uri()}" if command.startswith(DOWNLOAD) else command
        printed[command] = shell.types(typed)
        if command.startswith("kubectl tfjob watch"):
            seconds = time.monotonic() - start
            figure(f"README, with {way}: {len(printed)} commands, {seconds:.0f} s to a finished job")
            within = ("exec", "-n", "kubeflow", OPERATOR, "--", "python3")
            metrics = cluster.kubectl(*within, "-c", METRICS)
            program = cluster.kubectl(*within, "-m", "tfjob_operator.controller", "--version")

    def of(start: str) -> str:
        return next(text for command, text in printed.items() if command.startswith(start))

    assert of("openssl ") == "Verified OK\n"
    assert of("sha256sum ").splitlines()[-1].endswith(": OK")
    versions = dict(line.split(maxsplit=1) for line in of("kubectl tfjob version").splitlines())
    assert versions["kubectl-tfjob"] == VERSION
    assert versions["operator"].startswith(f"{IMAGE}{digest()} ")
    assert program == f"tfjob-operator {VERSION}\n"
    assert f'tf_operator_build_info{{version="{VERSION}"}} 1.0' in metrics.splitlines()
    assert "hello" in of("kubectl tfjob list")
    assert "Succeeded" in of("kubectl tfjob watch hello").splitlines()[-1]
    last = "100/100 - 1s - 50ms/step - loss: 0.20"
    assert [f"worker-{index} | {last}" in of("kubectl tfjob logs") for index in (0, 1)] == [True, True]
    assert "hello" in of("kubectl tfjob explain hello")
    left = cluster.kubectl("get", "crd,clusterroles,deployments", "--all-namespaces", "--output=name")
    assert [name for name in left.splitlines() if "tfjob" in name or "tf-job" in name] == []


def test_instead_of_loading_the_image_a_node_pulls_it_from_the_registry_that_it_was_published_to(
    shell: Shell, cluster: NodeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its digest, after the command of docs/install.md has put the registry into the manifests."""
    into_manifests = next(
        each.text for each in below("docs/install.md", "An image in a registry") if "sed" in each.text
    )
    with registry(tmp_path) as address:
        monkeypatch.setattr(sys, "argv", ["hack.publish", f"--registry={address}/team"])
        assert publish.main() == 0
        file = Path(shutil.copy(OUTPUT / INSTALLS["standalone"], tmp_path / "download"))
        typed = into_manifests.replace(EXAMPLE_REGISTRY, f"{address}/team")
        subprocess.run(["bash", "-c", typed], cwd=file.parent, check=True)
        for command in ONLY["kubectl"][:2]:
            shell.types(
                next(each.text for block in blocks("README.md") for each in block if each.text.startswith(command))
            )
        images = "-o=jsonpath={.items[*].status.containerStatuses[*].imageID}"
        pulled = cluster.kubectl("get", "pods", "-n", "kubeflow", images).split()
        assert {*pulled} == {f"{address}/team/tfjob-operator{digest()}"}
        cluster.kubectl("delete", "--ignore-not-found", "-f", str(file))
