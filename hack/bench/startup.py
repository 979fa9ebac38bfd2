"""Subject `startup`: what `python -m tfjob_operator.controller` costs before it has done anything.

It runs as in production against the real server, told to serve a namespace that has no jobs. Python itself reports the time of
each import (-X importtime, which makes imports a little slower); memory is the operator's VmRSS a second after it was ready.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from hack.bench.bench import Bench
from hack.bench.child import ROOT, MeasureError, memory_of
from hack.bench.measure import interleaved
from hack.bench.result import Result

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


def measure(bench: Bench) -> list[Result]:
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
