"""The commands of the docs, run as written, in the order of reading."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import pytest

from hack.control_plane import ControlPlane
from integration.cluster import Cluster, replica, specs
from integration.https import Serving, kubelet_is_at, serving
from integration.test_dashboard import dashboard
from support.library import library
from support.pages import ROOT, Command, blocks, pages
from support.waiting import eventually
from unit.cli.kubelet import Cluster as LogServer
from unit.cli.kubelet import Handler

LIMIT_S: Final = 120
STORY: Final = (
    "docs/tfjob.md",
    "docs/write-a-controller.md",
    "docs/operations.md",
    "docs/install.md",
)
"""The pages whose commands run here, one after the other, on one cluster: the last commands of the last page remove all.

The block with the operator, which is in the last page, comes before all others.
"""
PLUGIN_PAGE: Final = "docs/kubectl-tfjob.md"
"""Its commands run here, too, each on the job that it is about."""
SERVER: Final = "tfjob-operator --kubeconfig"
"""The command that does not end: it runs until all pages are done."""
KNOWS_A_CRD: Final = 21
"""The minor version of kubectl from which on its kustomize sets images beside a CRD that has `containers`, as the page says."""
PLACEHOLDERS: Final = {"NAME": "mnist"}
"""What a reader puts in for the words in capitals."""


class Elsewhere(NamedTuple):
    """Commands that are not run here, by what they begin with, and why not."""

    page: str
    start: str
    why: str


NO_PROGRAMS = "the programs of pods run on a real node only"
ELSEWHERE: Final = (
    Elsewhere("README.md", "", "e2e/test_readme.py types them on a real node, and says which it cannot"),
    Elsewhere("docs/install.md", "openssl", "unit/hack/test_release.py makes such a key, and signs with it"),
    Elsewhere("docs/install.md", "make release", "`make e2e` builds a dry run, which e2e/test_readme.py installs"),
    Elsewhere("docs/install.md", "make publish", "test_publish.py, to a real registry"),
    Elsewhere("docs/install.md", "oras", "test_publish.py gets the same files by its requests"),
    Elsewhere("docs/install.md", "kubectl apply -k manifests/addons/admission", "Kubernetes 1.30: test_admission_policy.py"),
    Elsewhere("docs/install.md", "docker", "it needs Docker and a registry; `make image` builds the same"),
    Elsewhere("docs/install.md", "skopeo", "it needs a registry"),
    Elsewhere("docs/install.md", "sed", "unit/hack/test_release.py runs both on a manifest"),
    Elsewhere("docs/install.md", "kubectl -n kubeflow rollout", "the operator's pods need a node: e2e/test_readme.py"),
    Elsewhere("docs/install.md", "python3 -m venv", "e2e/test_readme.py"),
    Elsewhere("docs/install.md", "~/.tfjob/bin/pip", "e2e/test_readme.py"),
    Elsewhere("docs/install.md", "helm", "test_chart.py, test/chart and e2e/test_chart.py do it, with each Helm"),
    Elsewhere("docs/install.md", "kubectl -n kubeflow port-forward", f"{NO_PROGRAMS}: test_cluster_page.py runs the page"),
    Elsewhere("docs/install.md", "kubectl -n kubeflow create token", "since kubectl 1.24; by the API: test_cluster_page.py"),
    Elsewhere("docs/install.md", "kubectl -n kubeflow logs", NO_PROGRAMS),
    Elsewhere(PLUGIN_PAGE, "kubectl cp", NO_PROGRAMS),
    Elsewhere(PLUGIN_PAGE, "pip install", "`make sdk-matrix` installs it, and runs the cells of the page"),
    Elsewhere(PLUGIN_PAGE, "kubectl -n team create rolebinding", "`make sdk-matrix`: for its user"),
    Elsewhere("docs/migration.md", "kubectl tfjob migrate", "test_migrate.py, test_migrate_by_namespace.py"),
    Elsewhere("docs/migration.md", "less plan.sh", "it waits for keys"),
    Elsewhere("docs/migration.md", "sh plan.sh", "unit/cli/test_migration_plan.py runs it, with an error in each step"),
    Elsewhere("docs/migration.md", "kubectl get", "test_migrate.py, and after a migration test_migrate_by_namespace.py"),
    Elsewhere("docs/migration.md", "kubectl delete", "the same"),
    Elsewhere("docs/migration.md", "kubectl patch", "the same"),
    Elsewhere("docs/operations.md", "helm upgrade", "test_chart.py does it, with each Helm"),
    Elsewhere("docs/operations.md", "kubectl -n kubeflow rollout", "no Deployments are run here: test_rolling_back.py does it"),
    Elsewhere("docs/operations.md", "kubectl tfjob suspend", "test_runbooks.py, on a job that does not restart"),
    Elsewhere("docs/operations.md", "kubectl tfjob resume", "the same"),
    Elsewhere("docs/operations.md", "kubectl kustomize", "its cluster has the CRD of rules: unit/test_manifests.py runs sed"),
    Elsewhere("docs/queues.md", "", "they need Kueue: unit/test_docs.py reads them"),
    Elsewhere("docs/runbooks.md", "kubectl -n kubeflow logs", NO_PROGRAMS),
    Elsewhere("docs/runbooks.md", "kubectl tfjob", "test_runbooks.py, on jobs that stand still"),
    Elsewhere("docs/runbooks.md", "kubectl -n NAMESPACE", "the same"),
    Elsewhere("docs/runbooks.md", "kubectl get tfjobs", "the same"),
    Elsewhere("docs/tfjob.md", "kubectl logs", NO_PROGRAMS),
    Elsewhere("docs/tfjob.md", "kubectl port-forward", f"{NO_PROGRAMS}: e2e/test_versions.py asks TensorBoard for its page"),
    Elsewhere("docs/tfjob.md", "kubectl tfjob", "journeys/test_journeys.py, with what each command prints"),
    Elsewhere("docs/tfjob.md", "kubectl get tfjob/", "the same"),
    Elsewhere("docs/tfjob.md", "kubectl get services", "the same"),
    Elsewhere("docs/tfjob.md", "kubectl get pod/", "the same"),
    Elsewhere("docs/tfjob.md", "kubectl taint", "the same"),
    Elsewhere("docs/troubleshooting.md", "", "journeys/test_journeys.py, with what each command prints"),
    Elsewhere("docs/write-a-controller.md", "make library", "unit/test_library.py installs the wheel into an environment"),
    Elsewhere("docs/write-a-controller.md", "python3 -m venv", "the same"),
    Elsewhere("docs/write-a-controller.md", ". ~/controller", "the same"),
    Elsewhere("docs/write-a-controller.md", "pip install", "the same; PYTHONPATH has the package"),
    Elsewhere("docs/write-a-controller.md", "make control-plane", "test_control_plane.py; here is a cluster already"),
    Elsewhere("docs/write-a-controller.md", "exit", "it ends the shell of `make control-plane`"),
    Elsewhere(PLUGIN_PAGE, "pipx install", "test_wheel.py installs the same into an environment of its own"),
    Elsewhere(PLUGIN_PAGE, "kubectl tfjob dashboard", "it does not end: test_dashboard.py, test/browser"),
    Elsewhere(PLUGIN_PAGE, "kubectl tfjob completion", "it writes beside the plugin: unit/cli/test_global_options.py"),
    Elsewhere("hack/hollow_node/README.md", "python -m hack.hollow_node", "a synopsis; test_scheduling.py"),
    Elsewhere("manifests/chart/README.md", "helm upgrade", "test/chart and e2e/test_chart.py do it, with each Helm"),
)  # fmt: skip


def is_elsewhere(command: Command) -> bool:
    return any(command.page == each.page and command.text.startswith(each.start) for each in ELSEWHERE)


def test_every_command_of_every_page_is_run_or_it_is_said_why_not() -> None:
    """A page that gets commands is put into the story, or each of them into the table."""
    left = [
        command
        for page in pages()
        for block in blocks(page)
        for command in block
        if page not in {*STORY, PLUGIN_PAGE} and not is_elsewhere(command)
    ]
    assert left == []


def test_no_reason_is_left_of_a_command_that_is_gone() -> None:
    """The table says nothing that no page says."""
    shown = [command for page in pages() for block in blocks(page) for command in block]
    stale = [
        each
        for each in ELSEWHERE
        if not any(command.page == each.page and command.text.startswith(each.start) for command in shown)
    ]
    assert stale == []


class Reader:
    """A person in a clone of the project, with a cluster, who types what the pages say."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self._home = home
        self._clone = home / "clone"
        self._environment = self._at_home(plane)
        self._servers = ExitStack()
        self.plane = plane

    def _at_home(self, plane: ControlPlane) -> dict[str, str]:
        """A clone with files of the release, a kubeconfig where kubectl looks for it, and the programs in the PATH."""
        self._clone.mkdir()
        for entry in ROOT.iterdir():
            (self._clone / entry.name).symlink_to(entry)
        job = (ROOT / "manifests" / "examples" / "01-mnist.yaml").read_text()
        (self._clone / "job.yaml").write_text(job.replace("  namespace: kubeflow\n", ""))
        for name, overlay in ("install", "standalone"), ("install-kubeflow", "kubeflow"):
            made = plane.run_kubectl("kustomize", str(ROOT / "manifests" / "overlays" / overlay))
            (self._clone / f"{name}.yaml").write_text(made.stdout)
        (self._home / ".kube").mkdir()
        (self._home / ".kube" / "config").write_bytes(plane.kubeconfig.read_bytes())
        programs = self._home / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(plane.kubectl)
        environment = self._home / "controller" / "bin"
        environment.mkdir(parents=True)
        python = environment / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        config = str(self._home / ".kube" / "config")
        return {**os.environ, "HOME": str(self._home), "PATH": path, "KUBECONFIG": config, "PYTHONPATH": str(library())}

    def has(self, file: str, text: str) -> None:
        """Write a file that a page says to write."""
        (self._clone / file).write_text(text)

    def runs(self, block: list[Command], code: int = 0) -> str:
        """Type the commands of a block into one shell; the first that fails ends it, with the exit code that is expected.

        Return what they print.
        """
        here = [command for command in block if not is_elsewhere(command)]
        typed = [command for command in here if not command.text.startswith(SERVER)]
        script = "\n".join(["set -e", *(self._filled(command.text) for command in typed)])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._clone,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        where = f"{block[0].page}, line {block[0].line}"
        assert done.returncode == code, f"{where}:\n{script}\n{done.stdout}{done.stderr}"
        for server in here[len(typed) :]:  # a command that does not end is the last of its block
            self._servers.enter_context(self._serving(server))
        return done.stdout

    def is_done(self) -> None:
        """End what still runs, and look how it ended."""
        self._servers.close()

    @contextmanager
    def _serving(self, command: Command) -> Iterator[None]:
        log = self._home / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command.text} --monitoring-port=0"],  # not 8443, which others may have
                cwd=self._clone,
                env=self._environment,
                stdout=output,
                stderr=output,
            )
        with process:
            try:
                eventually(
                    lambda: "operator_ready" in log.read_text() or process.poll() is not None, "the operator runs"
                )
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                code = process.wait(LIMIT_S)
        assert code == 0, log.read_text()
        assert "Traceback" not in log.read_text()

    @staticmethod
    def _filled(text: str) -> str:
        for word, meaning in PLACEHOLDERS.items():
            text = text.replace(word, meaning)
        return text


def yaml_after(words: str, minor: int = KNOWS_A_CRD) -> str:
    """The file that docs/install.md has people write after these words, who have a kubectl of this minor version."""
    page = (ROOT / "docs" / "install.md").read_text().partition(words)[2]
    text = page.split("```yaml\n")[1].split("```")[0].replace("PATH/TO/", "")
    return text if minor >= KNOWS_A_CRD else text.partition("images:\n")[0]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """On a cluster of their own: the pages create namespaces, and remove the CRD."""
    with ControlPlane.start("pages") as plane:
        yield Reader(plane, tmp_path)


def test_the_commands_of_the_pages_work_as_written(reader: Reader) -> None:
    """From the start of the operator to the removal of everything."""
    minor = reader.plane.version.minor
    reader.has("kustomization.yaml", yaml_after("Write a `kustomization.yaml` of your own", minor))
    story = [block for page in STORY for block in blocks(page)]
    start = next(block for block in story if block[-1].text.startswith(SERVER))
    reader.runs(start)
    reader.plane.wait_for_crd("tfjobs.kubeflow.org")  # a reader types more slowly than this test
    for block in (each for each in story if each is not start):
        reader.runs(block)
    reader.is_done()


RUNS: Final = {"submit": None, "watch": "3s:0", "wait": "3s:0"}
"""How long the replicas of the job `mnist` run for a verb; None: there is no such job yet. For all others they run on."""
FAIL: Final = {
    "kubectl tfjob submit Mnist": 1,
    "kubectl tfjob validate": 1,
    "kubectl tfjob migrate --check": 3,  # as on the page: no Deployment of this operator serves the jobs
}
"""Commands that do not exit with 0 on the page, and their exit codes."""


def test_the_commands_of_the_plugin_s_page_work_as_written(
    cluster: Cluster, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Each verb in the situation that the page shows it in."""
    reader = Reader(control_plane, tmp_path)
    here = Command(PLUGIN_PAGE, 1, f"kubectl config set-context --current --namespace={cluster.namespace}")
    reader.runs([here])
    page = (ROOT / PLUGIN_PAGE).read_text()
    reader.has("train.py", "print('trained')\n")
    reader.has("program.yaml", page.partition("```yaml\n# program.yaml\n")[2].partition("```")[0])
    unknown = specs(Worker=replica(2))
    unknown["tfReplicaSpecs"]["Worker"]["template"]["spec"]["serviceAccountName"] = "nobody"
    with cluster.operator(), cluster.node(), serving(tmp_path, NodeStandIn) as node:
        kubelet_is_at(control_plane, f"node-{cluster.namespace}", node.port)
        measures(control_plane, cluster, node)
        try:
            cluster.create("why", unknown)
            for command in (each for block in blocks(PLUGIN_PAGE) for each in block if not is_elsewhere(each)):
                words = command.text.split()
                if "mnist" in words:
                    begin(cluster, RUNS.get(words[2], "600s:0"))
                code = next((code for start, code in FAIL.items() if command.text.startswith(start)), 0)
                printed = reader.runs([command], code)
                if words[2] in {"logs", "top"}:
                    assert printed == shown_after(command)
                if words[2] == "top":
                    used = usage_on_page(control_plane, cluster.namespace)
                    assert used["message"] == ""
                    assert {
                        name: (each["cpu"] * 1000, each["memory"] / 2**20) for name, each in used["pods"].items()
                    } == {name: (int(cpu), int(memory)) for name, (_, (cpu, memory)) in WRITES.items()}
        finally:
            control_plane.run_kubectl("delete", "apiservice", METRICS_API, "--ignore-not-found")


METRICS_API: Final = "v1beta1.metrics.k8s.io"
METRICS: Final = "/apis/metrics.k8s.io/v1beta1"
WRITES: Final = {
    "mnist-chief-0": (("epoch 3: saved", "step 1200: loss 0.041"), ("212", "741")),
    "mnist-worker-0": (("ready", "step 1200: loss 0.043"), ("501", "1024")),
    "mnist-worker-1": (("ready", "step 1200: loss 0.040"), ("498", "1011")),
}
"""What the replicas of the job have written, and what they use: thousandths of a core, mebibytes."""


def written() -> LogServer:
    """The logs of the replicas."""
    logs = LogServer()
    for name, (lines, _) in WRITES.items():
        logs.pod(name)
        logs.write(name, *lines)
        logs.exit(name, 0)
    return logs


class NodeStandIn(Handler):
    """Stands for the kubelet, which has logs, and for metrics-server, which asks kubelets for what pods use."""

    backend = written()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == METRICS:
            pods = {
                "name": "pods",
                "singularName": "",
                "namespaced": True,
                "kind": "PodMetrics",
                "verbs": ["get", "list"],
            }
            found = {"groupVersion": METRICS.removeprefix("/apis/"), "resources": [pods]}
            self.answer({"kind": "APIResourceList", "apiVersion": "v1", **found})
        elif path.startswith(METRICS):
            items = [
                {"metadata": {"name": name}, "containers": [{"name": "tensorflow", "usage": usage}]}
                for name, (_, (cpu, memory)) in WRITES.items()
                for usage in [{"cpu": f"{cpu}000000n", "memory": f"{int(memory) * 1024}Ki"}]
            ]
            self.answer({"kind": "PodMetricsList", "items": items})
        else:
            super().do_GET()


def measures(plane: ControlPlane, cluster: Cluster, node: Serving) -> None:
    """Have the API server pass on what it is asked of metrics, as where metrics-server is installed."""
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": node.port}]}
    at = {"name": "metrics", "namespace": cluster.namespace, "port": node.port}
    spec = {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100}
    spec |= {"insecureSkipTLSVerify": True, "service": at}
    head = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": METRICS_API}}
    cluster.post({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"}, "spec": service})
    plane.run_kubectl("create", "-f", "-", input=json.dumps({**head, "spec": spec}))
    path = f"{METRICS}/namespaces/{cluster.namespace}/pods"

    def asked() -> str:
        answer = plane.run_kubectl("get", "--raw", path, check=False)
        return answer.stdout + answer.stderr

    # The API server checks an APIService again after up to 30s if a check fails.
    eventually(lambda: '"items"' in asked(), "there are metrics", limit_s=120, yet=asked)


def usage_on_page(plane: ControlPlane, namespace: str) -> Any:
    """Return the usage that the dashboard shows for the job, once it has listed the job's pods."""
    with dashboard(plane.kubeconfig, "-n", namespace) as page:

        def usage() -> Any:
            return json.loads(page.open(f"/-/usage/{namespace}/mnist").read())

        eventually(lambda: usage()["pods"].keys() == WRITES.keys(), "the usage of all pods is shown", yet=usage)
        return usage()


def shown_after(command: Command) -> str:
    lines = (ROOT / command.page).read_text().splitlines()[command.line :]
    return "".join(f"{line}\n" for line in lines[: lines.index("```")])


def begin(cluster: Cluster, run: str | None) -> None:
    """Have a job `mnist` that has just begun, and whose replicas run as told; None: have none."""
    cluster.kubectl("delete", "tfjob", "mnist", "--ignore-not-found")
    eventually(lambda: not any(name.startswith("mnist-") for name in cluster.names("pods")), "its pods are gone")
    if run is None:
        return
    spec = specs(Chief=replica(run=run), Worker=replica(2, run=run))
    for each in spec["tfReplicaSpecs"].values():
        asked = {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "4"}}
        each["template"]["spec"]["containers"][0]["resources"] = asked
    cluster.create("mnist", spec)

    def begun() -> bool:
        pods = [each for each in cluster.items("pods") if each["metadata"]["name"].startswith("mnist-")]
        runs_on = run not in RUNS.values()  # else they may have ended, and be gone, before all of them run
        return len(pods) == 3 and (not runs_on or all(each["status"]["phase"] == "Running" for each in pods))

    eventually(begun, "its pods have begun", yet=lambda: cluster.kubectl("get", "pods"))
