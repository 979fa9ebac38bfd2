"""The operator and a hollow node as processes, in addition to a control plane.

The operator uses the service account of the manifests, so it has exactly the permissions that the applied manifests grant.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from hack.control_plane import ControlPlane, ControlPlaneError
from hack.control_plane.build.commands import log_tail

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = ROOT / "manifests"
READY_LIMIT_S: Final = 180.0  # 1 to 2s on an idle machine; 15s with 100,000 pods
STOP_LIMIT_S: Final = 30.0  # the operator releases its lease and exits within ten seconds
ACCOUNT: Final = "system:serviceaccount:kubeflow:tf-job-operator"
ACCOUNT_GROUPS: Final = ("system:serviceaccounts", "system:serviceaccounts:kubeflow")
MONITORING_KINDS: Final = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}


@contextlib.contextmanager
def at_work(plane: ControlPlane, *node_flags: str) -> Iterator[None]:
    """Run operator and hollow node inside the block, on a control plane to which the manifests were applied."""
    plane.restart_controller_manager()  # otherwise its garbage collector may need 30s to discover TFJobs
    with operator(plane), hollow_node(plane, *node_flags):
        yield


def operator(plane: ControlPlane) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run the operator under its service account."""
    account = plane.kubeconfig_for(ACCOUNT, ACCOUNT_GROUPS)
    flags = (f"--kubeconfig={account}", "--monitoring-port=0")
    return running(plane, "tfjob_operator.controller", *flags, environment={"KUBEFLOW_NAMESPACE": "kubeflow"})


def hollow_node(plane: ControlPlane, *flags: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run a hollow node for all pods."""
    return running(plane, "hack.hollow_node", f"--kubeconfig={plane.kubeconfig}", *flags, ready="runs the pods")


@contextlib.contextmanager
def running(
    plane: ControlPlane,
    module: str,
    *arguments: str,
    ready: str = "operator_ready",
    environment: Mapping[str, str] = os.environ,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of the project inside the block; the block starts when the module's log contains `ready`.

    Raises ControlPlaneError if the module crashes, does not start, or does not exit with 0.
    """
    log = plane.directory / "logs" / f"{module}-{time.monotonic_ns()}.log"
    command = (sys.executable, "-m", module, *arguments)
    environ = os.environ | environment
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=environ) as process:
        try:
            deadline = time.monotonic() + READY_LIMIT_S
            while ready not in log.read_text(errors="replace"):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ControlPlaneError(f"{module} did not start; {log_tail(log)}")
                time.sleep(0.05)
            yield process
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_LIMIT_S)
            if process.poll() != 0:
                raise ControlPlaneError(f"{module} did not exit with 0 ({process.poll()}); {log_tail(log)}")
        finally:
            process.kill()


def open_crd(group: str, kind: str, plural: str, version: str = "v1") -> dict[str, Any]:
    """Return a CRD without a schema."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }
