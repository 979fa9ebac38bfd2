"""The cells of docs/notebook.md, as printed there: once with pods that succeed, once with pods that fail.

Runs in a process of its own: the SDK takes the kubeconfig and the namespace from the environment when it is imported, as a
notebook does. The hollow node runs no programs, so annotations say what the pods print and how they end.
"""

from __future__ import annotations

import linecache
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import yaml

from hack.matrix.programs.steps import LOG, RUN, Where, expect, output_of, step

PAGE: Final = Path(__file__).parents[3] / "docs" / "notebook.md"
CELL: Final = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
INSTALLS: Final = re.compile(r"^pip install kubeflow-training==(\S+)$", re.MULTILINE)
PRINTED: Final = "keras 3 every 0.2s"
FAILED: Final = "container tensorflow exited with code 1"


def run_apart(cluster: Where) -> None:
    """Run the page in another process, in the namespace of `cluster`, if this is the release that it installs."""
    installs = INSTALLS.search(PAGE.read_text())
    if installs is None or installs[1] != version("kubeflow-training"):
        return
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = cluster.namespace
    own = Path(f"{cluster.namespace}.kubeconfig").absolute()
    own.write_text(yaml.safe_dump(config))
    subprocess.run([sys.executable, "-m", __spec__.name], env={**os.environ, "KUBECONFIG": str(own)}, check=True)


@dataclass
class Notebook:
    """A kernel: cells share one scope. `run` is what the first container of each pod does."""

    run: str
    scope: dict[str, Any] = field(default_factory=dict)

    def play(self) -> None:
        """Run all cells; each reports itself."""
        from kubernetes.client import CustomObjectsApi

        create = CustomObjectsApi.create_namespaced_custom_object

        def create_scripted(api: Any, *arguments: Any, **settings: Any) -> Any:
            job = arguments[-1]
            for replica in job.spec.tf_replica_specs.values():
                replica.template.metadata.annotations = {RUN: self.run, LOG: PRINTED}
            return create(api, *arguments, **settings)

        with patch.object(CustomObjectsApi, "create_namespaced_custom_object", create_scripted):
            for number, cell in enumerate(CELL.finditer(PAGE.read_text()), start=1):
                name = f"docs/notebook.md, cell {number}, pods {self.run}"
                step(name, partial(self._run_cell, name, cell["code"], cell["shown"] or ""))

    def _run_cell(self, name: str, code: str, shown: str) -> None:
        # The SDK reads the source of a function; for code that is in no file Python looks here, as IPython does it.
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        said = output_of(lambda: exec(compile(code, name, "exec"), self.scope))  # noqa: S102 - our own page
        missing = [line for line in shown.splitlines() if line not in said]
        expect(not missing, f"{missing} is not in what it prints: {said}")
        if "wait_for_job_conditions" in code:
            expect(FAILED in said if self.run.endswith(":1") else "succeeded" in said, said)


if __name__ == "__main__":
    for script in ("1s:0", "1s:1"):
        Notebook(script).play()
