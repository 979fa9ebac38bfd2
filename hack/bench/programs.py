"""Subjects `plugin` and `startup`: programs from start to end."""

from __future__ import annotations

import json
import os
import re
import resource
import site
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from hack.bench.child import ROOT, MeasureError, memory_of
from hack.bench.result import Result, at_most, interleaved, ratio
from hack.bench.run import Bench
from hack.plugin.archive import build_wheel, run

# Subject `plugin`: how long `kubectl tfjob` takes to start, beside `kubectl get tfjobs` of the same server.
#
# The plugin is installed from its wheel, as users have it: an editable install finds its modules in another way. Every run is a
# new process. CPU seconds are compared, since wall time on a shared machine depends more on its other programs.


PLUGIN_ROUNDS: Final = 15
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


def measure_plugin(bench: Bench) -> list[Result]:
    """Install the plugin, and start it and kubectl in turns."""
    kubectl = bench.cluster.kubectl
    bench.say("building the wheel and installing it")
    program = install(bench.scratch)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["KUBECONFIG"] = str(bench.cluster.kubeconfig)
    _create_jobs(kubectl, environment)
    bench.say(f"starting kubectl tfjob and kubectl, {PLUGIN_ROUNDS} times each")

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
        PLUGIN_ROUNDS,
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


# Subject `startup`: what `python -m tfjob_operator.controller` costs before it has done anything.
#
# It runs as in production against the real server, told to serve a namespace that has no jobs. Python itself reports the time
# of each import (-X importtime, which makes imports a little slower); memory is the operator's VmRSS a second after it was
# ready.


ROUNDS: Final = 3
READY: Final = "operator_ready"
READY_LIMIT_S: Final = 30.0
SETTLE_S: Final = 1.0
OURS: Final = frozenset({"tfjob_operator"})
LINE: Final = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \|( +)(\S+)")


@dataclass(frozen=True, slots=True)
class Import:
    """One line of -X importtime: times in microseconds, and how deep inside other imports it happened."""

    own: int
    depth: int
    name: str

    @property
    def root(self) -> str:
        """The top-level package."""
        return self.name.partition(".")[0]


def measure_startup(bench: Bench) -> list[Result]:
    """Start it three times with the imports timed, and three times without."""
    bench.say(f"starting the operator, {ROUNDS} times with its imports timed and {ROUNDS} times without")
    kubeconfig = bench.cluster.kubeconfig
    imports: list[dict[str, float]] = []

    def timed() -> None:
        _, _, output = _start(kubeconfig, ["-X", "importtime"])
        imports.append(shares(parse(output.splitlines())))

    starts: list[tuple[float, float]] = []

    def plain() -> None:
        seconds, rss, _ = _start(kubeconfig, [])
        starts.append((seconds, rss))

    interleaved({"timed": timed, "plain": plain}, ROUNDS)
    return [
        Result("startup_ready", median(seconds for seconds, _ in starts), "s"),
        Result("startup_idle_memory", median(rss for _, rss in starts), "MB VmRSS"),
        *(
            Result(f"startup_import_{part}", median(round_[part] for round_ in imports), "ms")
            for part in ("kubernetes", "prometheus_client", "ours", "rest")
        ),
    ]


def parse(lines: Iterable[str]) -> list[Import]:
    """Return the imports that -X importtime lists, each after those inside it; other lines are left out."""
    found = (LINE.fullmatch(line.rstrip()) for line in lines)
    return [Import(int(match[1]), len(match[3]) // 2, match[4]) for match in found if match]


def shares(imports: Sequence[Import]) -> dict[str, float]:
    """Return milliseconds of `kubernetes` and `prometheus_client` with all that they import, of our own modules, the rest."""
    total = dict.fromkeys(("kubernetes", "prometheus_client", "ours", "rest"), 0.0)
    inside: list[Import] = []
    for module in reversed(imports):  # so that a module comes before those that it imports
        while inside and inside[-1].depth >= module.depth:
            inside.pop()
        inside.append(module)
        guilty = next((outer.root for outer in inside if outer.root in {"kubernetes", "prometheus_client"}), "rest")
        total["ours" if guilty == "rest" and module.root in OURS else guilty] += module.own / 1000
    return total


def _start(kubeconfig: Path, flags: Sequence[str]) -> tuple[float, float, str]:
    """Start the operator; return the seconds until it was ready, its memory then, and what it printed."""
    command = [
        sys.executable,
        *flags,
        "-m",
        "tfjob_operator.controller",
        "--kubeconfig",
        str(kubeconfig),
        "--namespace",
        "default",
    ]
    command += ["--json-log-format", "--monitoring-port=0"]
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=output, stderr=output, cwd=ROOT) as process:
            try:
                while True:
                    output.seek(0)
                    said = output.read().decode(errors="replace")
                    seconds = time.perf_counter() - began
                    if READY in said:
                        break
                    if process.poll() is not None or seconds > READY_LIMIT_S:
                        raise MeasureError(f"the operator is not ready after {seconds:.0f} s:\n{said[-4000:]}")
                    time.sleep(0.01)
                time.sleep(SETTLE_S)
                return seconds, memory_of(process.pid)["rss"], said
            finally:
                process.kill()
