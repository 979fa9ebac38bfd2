"""A control plane with the operator and a hollow node, started step by step, as the checks of a client need them.

The operator runs under the account that the manifests give it, so it has exactly the permissions that the client applied.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from hack.control_plane import ControlPlane, ControlPlaneError
from hack.control_plane.build.commands import log_tail
from hack.kubernetes_versions import Kubernetes

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = ROOT / "manifests"
READY_LIMIT_S: Final = 60.0  # a second or two on a quiet machine
STOP_LIMIT_S: Final = 15.0  # the operator gives its lease back and ends within ten seconds
ACCOUNT: Final = "system:serviceaccount:kubeflow:tf-job-operator"
ACCOUNT_GROUPS: Final = ("system:serviceaccounts", "system:serviceaccounts:kubeflow")


@contextlib.contextmanager
def control_plane(name: str) -> Iterator[tuple[ControlPlane, Kubernetes]]:
    """Start a control plane; its version comes with it. Raises ControlPlaneError."""
    with ControlPlane.start(name) as plane:
        yield plane, plane.version


@contextlib.contextmanager
def at_work(plane: ControlPlane, *node_flags: str) -> Iterator[None]:
    """Run operator and hollow node on a plane where the manifests have been applied; both end with the block.

    Raises ControlPlaneError when one of them does not start, dies, or does not exit with 0.
    """
    plane.restart_controller_manager()  # otherwise its garbage collector may take half a minute to notice TFJobs
    with operator(plane), hollow_node(plane, *node_flags):
        yield


def operator(plane: ControlPlane) -> AbstractContextManager[None]:
    """Run the operator under its account; it ends with the block. Raises ControlPlaneError as `at_work` does."""
    account = plane.kubeconfig_for(ACCOUNT, ACCOUNT_GROUPS)
    program = ("-m", "tfjob_operator.controller", f"--kubeconfig={account}", "--monitoring-port=0")
    return _running("operator", program, "operator_ready", plane.directory / "logs")


def hollow_node(plane: ControlPlane, *flags: str) -> AbstractContextManager[None]:
    """Run a hollow node for all pods; it ends with the block. Raises ControlPlaneError as `at_work` does."""
    program = ("-m", "hack.hollow_node", f"--kubeconfig={plane.kubeconfig}", *flags)
    return _running("hollow-node", program, "runs the pods", plane.directory / "logs")


@contextlib.contextmanager
def _running(name: str, program: Sequence[str], ready: str, logs: Path) -> Iterator[None]:
    log = logs / f"{name}.log"
    environment = {**os.environ, "KUBEFLOW_NAMESPACE": "kubeflow"}
    command = (sys.executable, *program)
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, env=environment) as process:
        try:
            _until_ready(name, process, ready, log)
            yield
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_LIMIT_S)
            if process.poll() != 0:
                raise ControlPlaneError(f"the {name} did not end well ({process.poll()}); {log_tail(log)}")
        finally:
            if process.poll() is None:
                process.kill()


def _until_ready(name: str, process: subprocess.Popen[bytes], ready: str, log: Path) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while ready not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise ControlPlaneError(f"the {name} did not start; {log_tail(log)}")
        time.sleep(0.1)
