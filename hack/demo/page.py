"""`make demo-page`: the dashboard with the example jobs, until Ctrl-C.

One additional job keeps running. No program runs: pods are scripted to print progress as Keras does.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from hack.control_plane import ControlPlane, ControlPlaneError
from hack.hollow_node.script import LOG, RUN
from hack.objects import a_job, wanting

ROOT: Final = Path(__file__).parents[2]
RUNS_ON: Final = {"Chief": "forever", "PS": "forever", "Worker": "20s:137, forever"}
"""The scripts of the pods of the running job, by type."""


def _jobs() -> list[dict[str, Any]]:
    """Return the TFJobs of the examples, whose pods print the output of a short training, and one that keeps running."""
    examples = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
    documents = [document for path in examples for document in yaml.safe_load_all(path.read_text())]
    jobs = [document for document in documents if document["kind"] == "TFJob"]
    for replica in (each for job in jobs for each in job["spec"]["tfReplicaSpecs"].values()):
        meta = replica["template"].setdefault("metadata", {})
        meta["annotations"] = {LOG: "keras 10 every 0.2s", **meta.get("annotations", {})}
    runs_on = a_job("runs-on", spec=wanting(Chief=1, PS=2, Worker=3), namespace="default")
    for kind, replica in runs_on["spec"]["tfReplicaSpecs"].items():
        annotations = {RUN: RUNS_ON[kind], LOG: "keras 500 every 2s"}
        replica["restartPolicy"] = "ExitCode"
        replica["template"] = {**replica["template"], "metadata": {"annotations": annotations}}
    return [runs_on, *jobs]


def keep_up(plane: ControlPlane) -> None:
    """Create the jobs and serve the dashboard until interrupted. Raises ControlPlaneError if the dashboard exits."""
    jobs = {"apiVersion": "v1", "kind": "List", "items": _jobs()}
    plane.run_kubectl("create", "-f", "-", input=json.dumps(jobs))
    command = (sys.executable, "-m", "tfjob_operator.cli", "dashboard", "--all-namespaces")
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)}, check=False)
    raise ControlPlaneError(f"the page ended with code {done.returncode}")
