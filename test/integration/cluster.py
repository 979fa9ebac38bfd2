"""One namespace of the API server with an operator and a hollow node in it, and jobs to run there."""

from __future__ import annotations

import contextlib
import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from hack.hollow_node.script import RUN
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from support.waiting import eventually

ROOT = Path(__file__).parents[2]
BOTH_KUBELETS = pytest.mark.parametrize(
    "kubelet", [pytest.param(OLDEST, marks=pytest.mark.nightly), pytest.param(NEWEST)], ids=str
)
"""For tests of how pods end: on a hollow node that behaves as the newest kubelet, and nightly on one as the oldest."""
GROUPS = {
    "tfjobs": "apis/kubeflow.org/v1",
    "jobs": "apis/batch/v1",
    "deployments": "apis/apps/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "podgroups.scheduling.volcano.sh": "apis/scheduling.volcano.sh/v1beta1",
    "podgroups.scheduling.x-k8s.io": "apis/scheduling.x-k8s.io/v1alpha1",
}
"""Where resources are served that are not in the core API; those of two groups have the group in their name."""


class Namespace:
    """One namespace of the API server, with the rights of the administrator."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.plane.run_kubectl(*arguments, f"--namespace={self.namespace}", input=stdin).stdout

    def api(self, method: str, resource: str, name: str = "", body: object = None, query: str = "") -> Any:
        """Send a request about objects of the namespace, which must succeed. Cheaper than kubectl, so polls use it."""
        code, found = self._ask(method, resource, name, body, query)
        assert code < 300, found
        return found

    def find(self, resource: str, name: str) -> Any:
        """One object; None when it is not there."""
        code, found = self._ask("GET", resource, name)
        return None if code == http.client.NOT_FOUND else found

    def _ask(self, method: str, resource: str, name: str, body: object = None, query: str = "") -> tuple[int, Any]:
        group = GROUPS.get(resource, "api/v1")
        plural = resource.partition(".")[0]
        path = f"/{group}/namespaces/{self.namespace}/{plural}{name and '/'}{name}{query and '?'}{query}"
        return self.plane.request(method, path, body)

    def items(self, resource: str) -> list[dict[str, Any]]:
        """All objects of a resource."""
        found: list[dict[str, Any]] = self.api("GET", resource)["items"]
        return found

    def names(self, resource: str) -> list[str]:
        """The names of all objects of a resource, sorted."""
        return sorted(item["metadata"]["name"] for item in self.items(resource))


class Cluster(Namespace):
    """A namespace with the processes that serve it."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, kubelet: Kubernetes = NEWEST) -> None:
        super().__init__(plane, namespace)
        self._kubelet = kubelet
        self._folder = folder
        self._started = 0

    def create(self, name: str, spec: dict[str, Any]) -> None:
        """Create a TFJob."""
        job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}
        self.api("POST", "tfjobs", body=job)

    def job(self, name: str) -> dict[str, Any]:
        """One TFJob."""
        found: dict[str, Any] = self.api("GET", "tfjobs", name)
        return found

    def state(self, name: str) -> str:
        """What the STATE column shows."""
        conditions = self.job(name).get("status", {}).get("conditions", [])
        return conditions[-1]["type"] if conditions else ""

    def wait_for(self, name: str, state: str) -> dict[str, Any]:
        """Wait until the job is in that state; return its status."""
        eventually(lambda: self.state(name) == state, f"{name} is {state}")
        status: dict[str, Any] = self.job(name)["status"]
        return status

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """The events on a job as (type, reason, message); one with a count of n is listed n times."""
        selected = f"fieldSelector=involvedObject.name={name},involvedObject.kind=TFJob"
        found = self.api("GET", "events", query=selected)["items"]
        return [(event["type"], event["reason"], event["message"]) for event in found for _ in range(event["count"])]

    @contextlib.contextmanager
    def operator(self, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run an operator for this namespace; on leaving, SIGTERM must end it with 0 within ten seconds."""
        with self._process(
            ("-m", "tfjob_operator.controller", "--monitoring-port=0", *flags), "operator_ready"
        ) as process:
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(10) == 0

    @contextlib.contextmanager
    def node(self, nodes: str = "") -> Iterator[None]:
        """Run a hollow node for this namespace, which behaves as the kubelet of the version that the test asks for.

        `nodes` describes several nodes, as in a file of `--nodes`; they take the pods of this namespace alone.
        """
        name = f"node-{self.namespace or 'of-all'}"
        command = ["-m", "hack.hollow_node", f"--name={name}", f"--kubernetes={self._kubelet}"]
        if nodes:
            file = self._folder / "nodes.yaml"
            file.write_text(nodes)
            command.append(f"--nodes={file}")
        with self._process(command, "runs the pods") as process:
            try:
                yield
            finally:  # also after a test that failed, for it takes its Node away, which the next test would find
                process.terminate()
                process.wait(10)

    @contextlib.contextmanager
    def _process(self, program: Sequence[str], ready: str) -> Iterator[subprocess.Popen[bytes]]:
        self._started += 1
        log = self._folder / f"process-{self._started}.log"
        command = [sys.executable, *program, f"--kubeconfig={self.plane.kubeconfig}"]
        if self.namespace:
            command.append(f"--namespace={self.namespace}")
        with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT) as process:
            try:
                eventually(lambda: ready in log.read_text() or process.poll() is not None, f"{program} is ready")
                assert process.poll() is None, log.read_text()
                yield process
                assert "Traceback" not in log.read_text()
            finally:
                if process.poll() is None:
                    process.kill()


class SharedOperator:
    """An operator and a hollow node for all namespaces, started on demand and shared by the tests of a module."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._kubelet: Kubernetes | None = None
        self._running = contextlib.ExitStack()

    def start(self, kubelet: Kubernetes) -> None:
        """Start both unless they run already, the node as a kubelet of that version."""
        if kubelet == self._kubelet:
            return
        self.stop()
        cluster = Cluster(self._plane, "", self._folder, kubelet)
        self._running.enter_context(cluster.operator())
        self._running.enter_context(cluster.node())
        self._kubelet = kubelet

    def stop(self) -> None:
        """Stop both. The operator must exit with 0, without a traceback in its log."""
        self._kubelet = None
        self._running.close()


def replica(replicas: int = 1, policy: str = "Never", run: str = "1s:0") -> dict[str, Any]:
    """An entry of tfReplicaSpecs whose pods do what the script `run` says."""
    return {
        "replicas": replicas,
        "restartPolicy": policy,
        "template": {
            "metadata": {"annotations": {RUN: run}},
            "spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]},
        },
    }


def specs(**replicas: dict[str, Any]) -> dict[str, Any]:
    """The specification of a job with these replicas."""
    return {"tfReplicaSpecs": replicas}


def with_policy(spec: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """The specification with these fields of a run policy."""
    return spec | {"runPolicy": policy}
