"""One namespace of the API server with an operator and a hollow node in it, and jobs to run there."""

from __future__ import annotations

import contextlib
import json
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
BOTH_KUBELETS = pytest.mark.parametrize("kubelet", [OLDEST, NEWEST], ids=str)
"""For tests of how pods end: on a hollow node that behaves as the oldest kubelet, and on one as the newest."""


class Cluster:
    """One namespace of the API server, with the processes that serve it."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, kubelet: Kubernetes = NEWEST) -> None:
        self._plane = plane
        self._kubelet = kubelet
        self.namespace = namespace
        self._folder = folder
        self._started = 0

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self._plane.run_kubectl(*arguments, f"--namespace={self.namespace}", input=stdin).stdout

    def create(self, name: str, spec: dict[str, Any]) -> None:
        """Create a TFJob, as a user would."""
        job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}
        self.kubectl("create", "-f", "-", stdin=json.dumps(job))

    def items(self, resource: str) -> list[dict[str, Any]]:
        """All objects of a resource."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", resource, "--output=json"))["items"]
        return found

    def names(self, resource: str) -> list[str]:
        """The names of all objects of a resource, sorted."""
        return sorted(item["metadata"]["name"] for item in self.items(resource))

    def job(self, name: str) -> dict[str, Any]:
        """One TFJob."""
        found: dict[str, Any] = json.loads(self.kubectl("get", "tfjob", name, "--output=json"))
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
        selected = f"--field-selector=involvedObject.name={name},involvedObject.kind=TFJob"
        found = json.loads(self.kubectl("get", "events", selected, "--output=json"))["items"]
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
        command = ["-m", "hack.hollow_node", f"--name=node-{self.namespace}", f"--kubernetes={self._kubelet}"]
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
        command = (
            sys.executable,
            *program,
            f"--kubeconfig={self._plane.kubeconfig}",
            f"--namespace={self.namespace}",
        )
        with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT) as process:
            try:
                eventually(lambda: ready in log.read_text() or process.poll() is not None, f"{program} is ready")
                assert process.poll() is None, log.read_text()
                yield process
                assert "Traceback" not in log.read_text()
            finally:
                if process.poll() is None:
                    process.kill()


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
