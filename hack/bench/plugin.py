"""Subject `plugin`: how long `kubectl tfjob` takes to start, beside `kubectl get tfjobs` of the same server.

The plugin is installed from its wheel, as users have it: an editable install finds its modules in another way. Every run is a
new process. CPU seconds are compared, since wall time on a shared machine depends more on its other programs.
"""

from __future__ import annotations

import json
import os
import resource
import site
import subprocess
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from hack.bench.bench import Bench
from hack.bench.child import MeasureError
from hack.bench.measure import interleaved, ratio
from hack.bench.result import Result, at_most
from hack.plugin.archive import build_wheel, run

ROUNDS: Final = 15
JOBS: Final = 10
START_S: Final = 0.25
"""In seconds: so short that a person does not notice it."""
TIMES_KUBECTL: Final = 1.5
TIMES_CLICK: Final = 2.0
"""What start-up, up to the parsed command line, may cost beside the import of the parser."""


class Run(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def measure(bench: Bench) -> list[Result]:
    """Install the plugin, and start it and kubectl in turns."""
    kubectl = bench.cluster.kubectl
    bench.say("building the wheel and installing it")
    program = install(bench.scratch)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["KUBECONFIG"] = str(bench.cluster.kubeconfig)
    _create_jobs(kubectl, environment)
    bench.say(f"starting kubectl tfjob and kubectl, {ROUNDS} times each")

    def side(*command: str) -> Callable[[], Run]:
        return lambda: _run(command, environment)

    python = str(program.with_name("python"))
    runs = interleaved(
        {
            "kubectl": side(kubectl, "get", "tfjobs"),
            "list": side(str(program), "list"),
            "help": side(str(program), "--help"),
            "python": side(python, "-c", "pass"),
            "click": side(python, "-c", "import click"),
        },
        ROUNDS,
    )
    cpu = {name: [each.cpu for each in found] for name, found in runs.items()}
    wall = {name: median(each.wall for each in found) for name, found in runs.items()}
    return [
        Result("plugin_help", wall["help"], "s", at_most(START_S)),
        Result("plugin_list", wall["list"], "s", at_most(START_S)),
        Result("plugin_kubectl_get", wall["kubectl"], "s"),
        Result("plugin_list_cpu", median(cpu["list"]), "CPU s"),
        Result("plugin_python_cpu", median(cpu["python"]), "CPU s"),
        Result("plugin_startup_vs_click", ratio(cpu["help"], cpu["click"]), "x CPU", at_most(TIMES_CLICK)),
        Result("plugin_list_vs_kubectl_get", ratio(cpu["list"], cpu["kubectl"]), "x CPU", at_most(TIMES_KUBECTL)),
    ]


def install(scratch: Path) -> Path:
    """Install the wheel of this checkout in an environment of its own; return the program. Raises CalledProcessError.

    Third-party packages are those of the environment that runs this, found by its path.
    """
    folder = scratch / "environment"
    wheel = build_wheel(scratch)
    venv.create(folder, with_pip=True, symlinks=True)
    options = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    run([str(folder / "bin/python"), "-m", "pip", "install", *options, str(wheel)], folder)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (packages / "third-parties.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "kubectl-tfjob"


def _create_jobs(kubectl: str, environment: dict[str, str]) -> None:
    container = {"name": "tensorflow", "image": "train:1"}
    spec = {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}
    about = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "spec": spec}
    items = [about | {"metadata": {"name": f"job-{number}"}} for number in range(JOBS)]
    jobs = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    done = subprocess.run(
        [kubectl, "apply", "-f", "-"], input=jobs, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MeasureError(f"the jobs could not be created: {done.stderr}")


def _run(command: Sequence[str], environment: dict[str, str]) -> Run:
    """Run a program to its end; it must succeed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    wall = time.perf_counter() - began
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise MeasureError(f"{' '.join(command)} has failed: {done.stderr.decode(errors='replace')[-1000:]}")
    return Run(wall, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
