"""`make demo-page`: the examples' jobs, and the live page of them, until Ctrl-C.

One more job runs on, so that there is something to watch. The hollow node runs no programs, so there are no logs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack.demo.errors import DemoError

if TYPE_CHECKING:
    from hack.control_plane import ControlPlane
    from hack.demo.teller import Teller

ROOT: Final = Path(__file__).parents[2]
RUNS_ON: Final = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "runs-on", "namespace": "default"},
    "spec": {
        "tfReplicaSpecs": {
            type_: {
                "replicas": replicas,
                "restartPolicy": "ExitCode",
                "template": {
                    "metadata": {"annotations": {"hollow.tfjob.kubeflow.org/run": run}},
                    "spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]},
                },
            }
            for type_, replicas, run in (
                ("Chief", 1, "forever"),
                ("PS", 2, "forever"),
                ("Worker", 3, "20s:137, forever"),
            )
        }
    },
}


async def keep_up(plane: ControlPlane, teller: Teller) -> None:
    """Create the jobs and serve the page, until cancelled. Raises ControlPlaneError, DemoError when the page ends by itself."""
    examples = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
    for path in examples:
        await asyncio.to_thread(plane.run_kubectl, "create", "-f", str(path))
    await asyncio.to_thread(plane.run_kubectl, "create", "-f", "-", input=json.dumps(RUNS_ON))
    teller.say(f"{len(examples) + 1} jobs created")
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
