"""`make demo-page`: the examples' jobs, and the live page of them, until Ctrl-C.

One more job runs on, so that there is something to watch. No program runs: by their scripts, pods print progress as Keras does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from hack.demo.stage import DemoError
from hack.hollow_node.script import LOG, RUN
from hack.page_objects import a_job, wanting

if TYPE_CHECKING:
    from hack.control_plane import ControlPlane
    from hack.demo.stage import Teller

ROOT: Final = Path(__file__).parents[2]
RUNS: Final = {"Chief": "forever", "PS": "forever", "Worker": "20s:137, forever"}
"""How the pods of the job that runs on end, by their type."""


def _runs_on() -> dict[str, Any]:
    spec = wanting(Chief=1, PS=2, Worker=3)
    for type_, replica in spec["tfReplicaSpecs"].items():
        annotations = {RUN: RUNS[type_], LOG: "keras 500 every 2s"}
        replica["template"] = {**replica["template"], "metadata": {"annotations": annotations}}
        replica["restartPolicy"] = "ExitCode"
    return a_job("runs-on", spec=spec, namespace="default")


def _with_a_log(job: dict[str, Any]) -> dict[str, Any]:
    """Let the pods of a TFJob print what a training of a few seconds would."""
    for replica in job["spec"]["tfReplicaSpecs"].values():
        meta = replica["template"].setdefault("metadata", {})
        meta["annotations"] = {LOG: "keras 10 every 0.2s", **meta.get("annotations", {})}
    return job


async def keep_up(plane: ControlPlane, teller: Teller) -> None:
    """Create the jobs and serve the page, until cancelled. Raises ControlPlaneError, DemoError when the page ends by itself."""
    examples = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
    documents = [document for path in examples for document in yaml.safe_load_all(path.read_text())]
    jobs = [_with_a_log(document) for document in documents if document["kind"] == "TFJob"]
    for job in jobs:
        await asyncio.to_thread(plane.run_kubectl, "create", "-f", "-", input=json.dumps(job))
    await asyncio.to_thread(plane.run_kubectl, "create", "-f", "-", input=json.dumps(_runs_on()))
    teller.say(f"{len(jobs) + 1} jobs created")
    command = (sys.executable, "-m", "tfjob_operator.cli", "dashboard", "--all-namespaces")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    )
    try:
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    raise DemoError(f"the page ended with code {code}")
