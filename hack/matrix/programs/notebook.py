"""Run the cells of docs/kubectl-tfjob.md as printed there: once with pods that succeed, once with pods that fail.

The cells run in a separate process, because the SDK reads kubeconfig and namespace from the environment when it is imported, as
in a notebook. The hollow node runs no programs, so annotations define what the pods print and how they end.
"""

import linecache
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import yaml

from hack.matrix.programs.steps import LOG, RUN, output_of

PAGE: Final = Path(__file__).parents[3] / "docs" / "kubectl-tfjob.md"
CELL: Final = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
INSTALLS: Final = re.compile(r"^pip install kubeflow-training==(\S+)$", re.MULTILINE)
PRINTED: Final = "keras 3 every 0.2s"
FAILED: Final = "container tensorflow exited with code 1"


def run_apart(kubeconfig: str, namespace: str) -> None:
    """Run the page in another process, in this namespace, if the page installs the SDK release of this environment."""
    installs = INSTALLS.search(PAGE.read_text())
    if installs is None or installs[1] != version("kubeflow-training"):
        return
    config = yaml.safe_load(Path(kubeconfig).read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    own = Path(f"{namespace}.kubeconfig").absolute()
    own.write_text(yaml.safe_dump(config))
    subprocess.run([sys.executable, "-S", "-m", __spec__.name], env={**os.environ, "KUBECONFIG": str(own)}, check=True)


def play(run: str) -> None:
    """Run all cells, which share one scope; `run` is what the first container of each pod does."""
    from kubernetes.client import CustomObjectsApi

    create = CustomObjectsApi.create_namespaced_custom_object

    def create_scripted(api: Any, *arguments: Any, **settings: Any) -> Any:
        job = arguments[-1]
        for replica in job.spec.tf_replica_specs.values():
            replica.template.metadata.annotations = {RUN: run, LOG: PRINTED}
        return create(api, *arguments, **settings)

    scope: dict[str, Any] = {}
    with patch.object(CustomObjectsApi, "create_namespaced_custom_object", create_scripted):
        for number, cell in enumerate(CELL.finditer(PAGE.read_text()), start=1):
            name, code = f"docs/kubectl-tfjob.md, cell {number}, pods {run}", cell["code"]
            # The SDK reads the source of a function. Here Python looks up source that is in no file, as it does for IPython.
            linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
            said = output_of(lambda name=name, code=code: exec(compile(code, name, "exec"), scope))  # type: ignore[misc]  # noqa: S102 - our own page
            assert all(line in said for line in (cell["shown"] or "").splitlines()), said
            if "wait_for_job_conditions" in code:
                assert (FAILED if run.endswith(":1") else "succeeded") in said, said


if __name__ == "__main__":
    for script in ("1s:0", "1s:1"):
        play(script)
