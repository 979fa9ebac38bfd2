"""A cluster with a real node and the operator, used through kubectl."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hack.image import build
from hack.objects import an_object
from hack.real_node.node import RealNode
from support.waiting import eventually
from tfjob_operator.api.v1.constants import TFJOBS

NAMESPACE = "default"
OPERATOR = "deployment/tf-job-operator"
LIMIT_S = 180.0  # a pod starts within two seconds here; on a busy machine, after fifty others, it takes its time
IMAGE = build.IMAGE.rpartition("/")[2]
VISITOR = "visitor"
RUNS = Path("/var/tfjob-e2e")
"""A folder of the node, private to its sandbox, which is /runs in pods: files there outlive the pods."""


class NodeCluster:
    """The cluster of a session; jobs are in the namespace `default`."""

    def __init__(self, node: RealNode) -> None:
        self.node = node
        RUNS.mkdir(exist_ok=True)

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl, as the administrator."""
        return self.node.plane.run_kubectl(*arguments, input=stdin, check=check).stdout

    def get(self, kind: str, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        text = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(text) if text else {}
        return found

    def create(self, *jobs: dict[str, Any]) -> None:
        """Create jobs, all in one call."""
        self.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}))

    def delete(self, name: str) -> None:
        """Delete a job, without waiting; its children are collected afterwards."""
        self.kubectl("delete", "tfjob", name, "--wait=false", "--ignore-not-found")

    def state(self, name: str) -> str:
        conditions = self.get("tfjob", name).get("status", {}).get("conditions", [])
        return str(conditions[-1]["type"]) if conditions else ""

    def wait_for(self, name: str, state: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Wait until a job is in a state; return its status."""
        self.eventually(lambda: self.state(name) == state, f"{name} is {state}", limit_s, lambda: self.state(name))
        status: dict[str, Any] = self.get("tfjob", name)["status"]
        return status

    def pod(self, name: str) -> tuple[str, int]:
        """The UID of a pod and how often its container was restarted in it; "" and 0 when it is not there."""
        found = self.get("pod", name)
        statuses = found.get("status", {}).get("containerStatuses", [])
        return found.get("metadata", {}).get("uid", ""), sum(status["restartCount"] for status in statuses)

    def is_running(self, pod: str) -> bool:
        return bool(self.get("pod", pod).get("status", {}).get("phase") == "Running")

    def pods_of(self, job: str) -> list[str]:
        """The names of a job's pods that nobody is deleting."""
        items = json.loads(self.kubectl("get", "pods", "-n", NAMESPACE, "-l", f"job-name={job}", "-o", "json"))["items"]
        return sorted(item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"])

    def kill_container(self, pod: str, namespace: str = NAMESPACE, *, signal: str = "SIGKILL") -> None:
        """Kill the first process of a pod's container, from the node's side, as the kernel does when memory runs out.

        Or stop it with SIGSTOP, as if it hung.
        """
        self.node.containers.kill(self.container_id(pod, namespace), signal)

    def container_id(self, pod: str, namespace: str = NAMESPACE) -> str:
        """The ID of a pod's container in the node's runtime; waits until the kubelet has reported it.

        A process can run for seconds before the status of its pod says so.
        """

        def told() -> str:
            statuses = self.get("pod", pod, namespace).get("status", {}).get("containerStatuses", [{}])
            return str(statuses[0].get("containerID", "")).removeprefix("containerd://")

        self.eventually(told, f"the kubelet tells of the container of {pod}")
        return told()

    def warnings(self, job: str) -> list[str]:
        """The reasons of the Warnings on a job, in no particular order."""
        selected = f"--field-selector=involvedObject.name={job},type=Warning"
        return self.kubectl("get", "events", selected, "-o", "jsonpath={.items[*].reason}").split()

    def make_volume(self, claim: str, folder: Path, namespace: str = NAMESPACE) -> None:
        """Make a volume from a folder of the node, for the claim of this name, as a provisioner does elsewhere."""
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": str(folder)},
            "claimRef": {"name": claim, "namespace": namespace},
        }
        self._create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": claim}, "spec": spec})

    def claim_volume(self, name: str, folder: Path, namespace: str = NAMESPACE) -> None:
        """Make a volume from a folder of the node, and claim it."""
        self.make_volume(name, folder, namespace)
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        meta = {"name": name, "namespace": namespace}
        self._create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})

    def _create(self, content: dict[str, Any]) -> None:
        self.kubectl("create", "-f", "-", stdin=json.dumps(content))

    def page(self, service: str, path: str, *, namespace: str = NAMESPACE, token: str = "", until: str = "") -> Any:
        """A service's response to a pod that calls it by its name; JSON is decoded. "" where it is refused.

        With `until` it is the first line of the response that has this text in it: a stream does not end.
        """
        if not self.get("pod", VISITOR):
            self.kubectl("run", VISITOR, f"--image={IMAGE}", "--restart=Never", "--command", "--", "sleep", "3600")
            self.eventually(lambda: self.is_running(VISITOR), "the visitor runs")
        address = f"http://{service}.{namespace}.svc{path}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        opened = f"r.urlopen(r.Request({address!r}, headers={headers!r}), timeout=20)"
        found = f"next(each for each in {opened} if {until.encode()!r} in each)" if until else f"{opened}.read()"
        ask = f"import urllib.request as r; print({found}.decode())"
        text = self.kubectl("exec", VISITOR, "--", "python3", "-c", ask, check=False)
        return json.loads(text) if text.startswith(("{", "[")) else text

    def holder(self) -> str:
        """The holder of the lease: a pod's name and, since its process may be restarted, a suffix; empty when nobody leads."""
        return str(self.get("lease", "tf-operator", "kubeflow").get("spec", {}).get("holderIdentity", ""))

    def leader(self) -> str:
        """The pod that leads; empty when none does."""
        return self.holder().rpartition("_")[0]

    def wait_for_operator(self) -> None:
        """Wait until both replicas of the operator are ready, and one of them leads."""
        wait = ("rollout", "status", OPERATOR, "-n", "kubeflow", f"--timeout={LIMIT_S:.0f}s")
        self.node.plane.run_kubectl(*wait, limit_s=LIMIT_S + 10.0)  # kubectl should give up first, since it says why
        self.eventually(lambda: self.leader() in self.operators(), "somebody leads")

    def operators(self) -> list[str]:
        """The pods of the operator that nobody is deleting, found by the label in the trouble-shooting guide."""
        items = json.loads(
            self.kubectl("get", "pods", "-n", "kubeflow", "--selector=name=tf-job-operator", "-o", "json")
        )["items"]
        return [item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"]]

    def eventually(
        self, holds: Callable[[], Any], what: str, limit_s: float = LIMIT_S, yet: Callable[[], object] = str
    ) -> float:
        """Call `holds` until it returns true; return the seconds that it took."""
        start = time.monotonic()
        eventually(holds, what, limit_s=limit_s, yet=yet)
        return time.monotonic() - start


def runs(job: str) -> int:
    """How often the processes of a job have been started, over all its pods."""
    file = RUNS / job
    return len(file.read_text().splitlines()) if file.exists() else 0


def script(job: str, *, then: str) -> list[str]:
    """A command that notes its start, then runs `then`; `$RUN` is the number of the start, from 1."""
    return ["sh", "-c", f'echo run >> /runs/{job}; RUN=$(wc -l < /runs/{job}); echo "run $RUN of {job}"; {then}']


def replica(command: list[str], *, policy: str = "Never", replicas: int = 1) -> dict[str, Any]:
    """A replica that runs a command, in the only image that the node has: the operator's, with its shell and its Python."""
    container = {
        "name": "tensorflow",
        "image": IMAGE,
        "command": command,
        "volumeMounts": [{"name": "runs", "mountPath": "/runs"}],
    }
    pod = {
        "securityContext": {"runAsUser": 0},  # the folder is root's
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "runs", "hostPath": {"path": str(RUNS)}}],
    }
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": pod}}


job = partial(an_object, TFJOBS, namespace=NAMESPACE)
