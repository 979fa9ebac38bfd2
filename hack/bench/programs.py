"""Subject `plugin`: the start of `kubectl tfjob`, relative to `kubectl get tfjobs` on the same server.

The plugin is installed from its wheel, as for users, because an editable install finds modules in another way. Every run is a
new process. CPU seconds are compared, because wall time on a shared machine depends on other programs.
"""

import json
import os
import resource
import site
import subprocess
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from hack.bench.measuring import Bench, Result, interleaved, ratio
from hack.plugin.archive import build_wheel, run

ROUNDS: Final = 15
JOBS: Final = 10


class Run(NamedTuple):
    """Seconds of one run."""

    wall: float
    cpu: float


def measure_plugin(bench: Bench) -> list[Result]:
    """Install the plugin, and run it and kubectl alternately."""
    plane = bench.field.plane
    bench.say("building the wheel and installing it")
    program = install(bench.scratch)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["KUBECONFIG"] = str(plane.kubeconfig)
    container = {"name": "tensorflow", "image": "train:1"}
    spec = {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}
    about = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "spec": spec}
    items = [about | {"metadata": {"name": f"job-{number}"}} for number in range(JOBS)]
    plane.run_kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    bench.say(f"starting kubectl tfjob and kubectl, {ROUNDS} times each")
    python = str(program.with_name("python"))
    commands = {
        "kubectl": (str(plane.kubectl), "get", "tfjobs"),
        "list": (str(program), "list"),
        "help": (str(program), "--help"),
        "python": (python, "-c", "pass"),
        "click": (python, "-c", "import click"),
    }
    sides: dict[str, Callable[[], Run]] = {
        name: partial(_run, command, environment) for name, command in commands.items()
    }
    runs = interleaved(sides, ROUNDS)
    cpu = {name: [each.cpu for each in found] for name, found in runs.items()}
    wall = {name: median(each.wall for each in found) for name, found in runs.items()}
    return [
        Result("plugin_help", wall["help"], "s", "<= 0.25"),  # too short to notice
        Result("plugin_list", wall["list"], "s", "<= 0.25"),
        Result("plugin_kubectl_get", wall["kubectl"], "s"),
        Result("plugin_list_cpu", median(cpu["list"]), "CPU s"),
        Result("plugin_python_cpu", median(cpu["python"]), "CPU s"),
        Result("plugin_startup_vs_click", ratio(cpu["help"], cpu["click"]), "x CPU", "<= 2"),
        Result("plugin_list_vs_kubectl_get", ratio(cpu["list"], cpu["kubectl"]), "x CPU", "<= 1.5"),
    ]


def install(scratch: Path) -> Path:
    """Install the wheel of this checkout in its own environment; return the program. Raises CalledProcessError.

    A path file adds the third-party packages of the current environment.
    """
    folder = scratch / "environment"
    wheel = build_wheel(scratch)
    venv.create(folder, with_pip=True, symlinks=True)
    options = ("--quiet", "--no-index", "--no-deps", "--disable-pip-version-check")
    run([str(folder / "bin/python"), "-m", "pip", "install", *options, str(wheel)], folder)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    (packages / "third-parties.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "kubectl-tfjob"


def _run(command: tuple[str, ...], environment: dict[str, str]) -> Run:
    """Run a program, which must succeed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - began
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(wall, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
