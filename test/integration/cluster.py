"""A namespace of the API server with an operator and a hollow node, in which jobs run."""

import contextlib
import http.client
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from hack.hollow_node.script import RUN
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes
from hack.objects import an_object
from integration.operator_process import ROOT, OperatorProcess
from support.waiting import LIMIT_S, eventually
from tfjob_operator.api.v1.constants import TFJOBS

BOTH_KUBELETS = pytest.mark.parametrize(
    "kubelet", [pytest.param(OLDEST, marks=pytest.mark.nightly), pytest.param(NEWEST)], ids=str
)
"""For tests of how pods end: on a hollow node that behaves as the newest kubelet, and nightly on one as the oldest."""
GROUPS = {
    "tfjobs": "apis/kubeflow.org/v1",
    "tfjobs.kubeflow.org": "apis/kubeflow.org/v1",
    "tfjobs.tensorflow.org": "apis/tensorflow.org/v1alpha1",
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
        return self.plane.request(method, f"{self._path(resource, name)}{query and '?'}{query}", body)

    def _path(self, resource: str, name: str) -> str:
        plural = resource.partition(".")[0]
        return f"/{GROUPS.get(resource, 'api/v1')}/namespaces/{self.namespace}/{plural}{name and '/'}{name}"

    def post(self, *bodies: dict[str, Any]) -> None:
        """Create objects of any kind."""
        for body in bodies:
            group = f"api{'s' if '/' in body['apiVersion'] else ''}/{body['apiVersion']}"
            path = f"/{group}/namespaces/{self.namespace}/{body['kind'].lower()}s"
            code, found = self.plane.request("POST", path, body)
            assert code < 300, found

    def patch(self, resource: str, name: str, change: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Change an object by a merge patch, or by the operations of a JSON patch."""
        kind = "application/json-patch+json" if isinstance(change, list) else "application/merge-patch+json"
        code, found = self.plane.request("PATCH", self._path(resource, name), change, content_type=kind)
        assert code < 300, found

    def items(self, resource: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api("GET", resource)["items"]
        return found

    def names(self, resource: str) -> list[str]:
        """The names of all objects of a resource, sorted."""
        return sorted(item["metadata"]["name"] for item in self.items(resource))

    def uids(self, *resources: str) -> dict[str, str]:
        """The UIDs of all objects of these resources, by `resource/name`."""
        meta = ((resource, item["metadata"]) for resource in resources for item in self.items(resource))
        return {f"{resource}/{each['name']}": each["uid"] for resource, each in meta}


class Cluster(Namespace):
    """A namespace with the processes that serve it."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, kubelet: Kubernetes = NEWEST) -> None:
        super().__init__(plane, namespace)
        self._kubelet = kubelet
        self._folder = folder
        self._started = 0

    def create(self, name: str, spec: dict[str, Any]) -> None:
        self.post(tfjob(name, spec))

    def job(self, name: str) -> dict[str, Any]:
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

    def active(self, name: str) -> int:
        """How many workers of a job its status counts as active."""
        count: int = self.job(name)["status"]["replicaStatuses"]["Worker"]["active"]
        return count

    def wait_for_no_children(self) -> None:
        eventually(lambda: not self.names("pods") and not self.names("services"), "no children are left")

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """The events on a job as (type, reason, message); one with a count of n is listed n times."""
        selected = f"fieldSelector=involvedObject.name={name},involvedObject.kind=TFJob"
        found = self.api("GET", "events", query=selected)["items"]
        return [(event["type"], event["reason"], event["message"]) for event in found for _ in range(event["count"])]

    def created(self, name: str) -> int:
        """How many events about created pods the job has."""
        return [reason for _, reason, _ in self.events(name)].count("SuccessfulCreatePod")

    def warnings(self, name: str) -> list[tuple[str, str]]:
        """The Warnings on a job as (reason, message)."""
        return [(reason, message) for kind, reason, message in self.events(name) if kind == "Warning"]

    def start(self, *flags: str, **options: Any) -> OperatorProcess:
        """Start an operator for this namespace, with the options of `OperatorProcess`."""
        options = {"kubeconfig": self.plane.kubeconfig} | options
        return OperatorProcess(options.pop("kubeconfig"), self._log(), *self._scope, *flags, **options)

    @contextlib.contextmanager
    def operator(self, *flags: str, **options: Any) -> Iterator[OperatorProcess]:
        """Run an operator for this namespace; on leaving, SIGTERM must end it with 0 within ten seconds."""
        with self.start(*flags, **options) as operator:
            operator.wait_for("operator_ready")
            yield operator
            if operator.process.poll() is None:
                code, took = operator.end()
                assert (code, took < 10.0) == (0, True), operator.text()
            assert "Traceback" not in operator.text(), operator.text()

    @contextlib.contextmanager
    def node(self, nodes: str = "") -> Iterator[None]:
        """Run a hollow node for this namespace, which behaves as the kubelet of the version that the test asks for.

        `nodes` describes several nodes, as in a file of `--nodes`; they take the pods of this namespace alone.
        """
        log, file = self._log(), self._folder / "nodes.yaml"
        command = [sys.executable, "-m", "hack.hollow_node", f"--kubeconfig={self.plane.kubeconfig}", *self._scope]
        command += [f"--name=node-{self.namespace or 'of-all'}", f"--kubernetes={self._kubelet}"]
        if nodes:
            file.write_text(nodes)
            command.append(f"--nodes={file}")
        with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT) as process:
            try:
                eventually(
                    lambda: "runs the pods" in log.read_text() or process.poll() is not None, "the node is ready"
                )
                assert process.poll() is None, log.read_text()
                yield
                assert "Traceback" not in log.read_text()
            finally:  # also after a test that failed, for it takes its Node away, which the next test would find
                process.terminate()
                process.wait(LIMIT_S)

    @property
    def _scope(self) -> list[str]:
        return [f"--namespace={self.namespace}"] if self.namespace else []

    def _log(self) -> Path:
        self._started += 1
        return self._folder / f"process-{self._started}.log"


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


def replica(
    replicas: int = 1, policy: str = "Never", run: str = "1s:0", *, notes: Any = None, **container: Any
) -> dict[str, Any]:
    """An entry of tfReplicaSpecs whose pods do what the script `run` says; `notes` are more annotations of theirs.

    `container` has fields of their only container.
    """
    return {
        "replicas": replicas,
        "restartPolicy": policy,
        "template": {
            "metadata": {"annotations": {RUN: run, **(notes or {})}},
            "spec": {"containers": [{"name": "tensorflow", "image": "train:1", **container}]},
        },
    }


def specs(**replicas: dict[str, Any]) -> dict[str, Any]:
    return {"tfReplicaSpecs": replicas}


tfjob = partial(an_object, TFJOBS)
"""The manifest of a job."""


def with_policy(spec: dict[str, Any], **policy: Any) -> dict[str, Any]:
    return spec | {"runPolicy": policy}
