"""The Python SDKs that are tried, each in a virtual environment of its own in the cache, and the run of their programs.

Every package of an environment is pinned in `requirements/`; its folder is named by a hash of these, so that a
change makes a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress
from hack.matrix.cluster import MANIFESTS, ROOT, at_work, control_plane
from hack.matrix.programs.steps import MARK
from hack.matrix.releases import FetchError
from hack.matrix.report import Report, Result

REQUIREMENTS: Final = Path(__file__).parent / "requirements"
FETCH_LIMIT_S: Final = 600.0  # 60 to 150 MB unpacked; ten seconds with a fast index
PROGRAM_LIMIT_S: Final = 300.0  # half a minute on a quiet machine


@dataclass(frozen=True, slots=True)
class Sdk:
    """One release of an SDK, and the module under `programs` that creates, watches and deletes a job with it.

    newest_python: the newest Python for which one of its packages has a wheel; None where all are for any Python.
    """

    package: str
    version: str
    program: str
    newest_python: tuple[int, int] | None = None

    @property
    def client(self) -> str:
        """The name in the results."""
        return f"{self.package} {self.version}"

    @property
    def requirements(self) -> Path:
        """The file with every package of its environment."""
        return REQUIREMENTS / f"{self.package}-{self.version}.txt"

    def runs_on(self, python: tuple[int, int]) -> bool:
        """Whether its packages can be had for this Python."""
        return self.newest_python is None or python <= self.newest_python

    @property
    def needs(self) -> str:
        """The Python that it needs, in words."""
        return "Python" if self.newest_python is None else f"Python {'.'.join(map(str, self.newest_python))} or older"


SDKS: Final = (
    Sdk("kubeflow-tfjob", "0.1.3", "tfjob", newest_python=(3, 11)),
    Sdk("kubeflow-training", "1.7.0", "training"),
    Sdk("kubeflow-training", "1.8.1", "training"),
    Sdk("kubeflow-training", "1.9.4", "training"),
)


def environment_name(sdk: Sdk, requirements: bytes, python: tuple[int, int]) -> str:
    """Return the folder's name for an environment: other packages or another Python make another one."""
    digest = hashlib.sha256(requirements).hexdigest()[:8]
    return f"sdk-{sdk.package}-{sdk.version}-py{python[0]}{python[1]}-{digest}"


def python_of(sdk: Sdk) -> Path:
    """Return the Python of an SDK's environment, which is made if it is not in the cache. Raises FetchError."""
    root = packages.root()
    target = root / environment_name(sdk, sdk.requirements.read_bytes(), sys.version_info[:2])
    if not target.is_dir():
        progress = Progress("sdk-matrix")
        progress.say(f"installing {sdk.client} and what it needs into {target}")
        try:
            with tempfile.TemporaryDirectory(prefix="sdk-", dir=root) as work:
                _install(sdk, Path(work) / "venv", LoggedRunner(root / "sdk-matrix.log", progress))
                _keep(Path(work) / "venv", target)
        except (ControlPlaneError, OSError) as error:
            raise FetchError(f"cannot get {sdk.client} for Python {sys.version.split()[0]}: {error}") from error
    return target / "bin" / "python"


def _keep(made: Path, target: Path) -> None:
    """Put an environment into its place, unless another process was faster, with the same packages. Raises OSError."""
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _install(sdk: Sdk, venv: Path, runner: LoggedRunner) -> None:
    runner.run(sys.executable, "-m", "venv", "--without-pip", str(venv), limit_s=60.0)
    runner.run(
        *(sys.executable, "-m", "pip", f"--python={venv / 'bin' / 'python'}", "install", "--quiet", "--no-input"),
        *("--disable-pip-version-check", "--no-deps", f"--requirement={sdk.requirements}"),
        limit_s=FETCH_LIMIT_S,
    )


@dataclass(slots=True)
class Running:
    """A program of an SDK that has been started."""

    sdk: Sdk
    process: subprocess.Popen[bytes]
    log: Path


@contextlib.contextmanager
def started(sdk: Sdk, python: Path, kubeconfig: Path, namespace: str, log: Path) -> Iterator[Running]:
    """Start an SDK's program in its environment; it ends with the block at the latest."""
    command = [
        *(str(python), "-m", f"hack.matrix.programs.{sdk.program}"),
        *(f"--kubeconfig={kubeconfig}", f"--namespace={namespace}"),
    ]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    settings.pop("KUBECONFIG", None)
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent, env=settings) as process,
    ):
        try:
            yield Running(sdk, process, log)
        finally:
            if process.poll() is None:
                process.kill()


def results_of(running: Running) -> list[Result]:
    """Wait for a program's end and return the results of its steps; if it breaks off, that is a failed result as well."""
    start = time.monotonic()
    problem = ""
    try:
        code = running.process.wait(PROGRAM_LIMIT_S)
        problem = f"the program ended with code {code}" if code else ""
    except subprocess.TimeoutExpired:
        problem = f"the program did not end within {PROGRAM_LIMIT_S:.0f} s"
    text = running.log.read_text(errors="replace")
    results = list(parse_steps(running.sdk.client, text.splitlines()))
    if problem or not results:
        results.append(
            Result(running.sdk.client, "the program", problem or "it told nothing", text, time.monotonic() - start)
        )
    return results


def parse_steps(client: str, lines: Sequence[str]) -> Iterator[Result]:
    """Find the steps that a program reported in all that its SDK printed."""
    for line in lines:
        if line.startswith(MARK):
            told = json.loads(line.removeprefix(MARK))
            yield Result(client, told["check"], told["problem"], told["output"], told["seconds"])


# The lives of a job by each SDK, all at once, each in a namespace of its own of one control plane, where its user may edit.


ACCOUNT: Final = "notebook"


def run(chosen: Sequence[Sdk], report: Report) -> None:
    """Run the programs of these SDKs, except those that are too old for this Python.

    Raises FetchError before any of them when one cannot be had, and ControlPlaneError.
    """
    left_out = [sdk for sdk in chosen if not sdk.runs_on(sys.version_info[:2])]
    for sdk in left_out:
        report.leave_out(sdk.client, f"needs {sdk.needs}")
    pythons = {sdk: python_of(sdk) for sdk in chosen if sdk not in left_out}
    if not pythons:
        return
    with control_plane("sdks") as (plane, server):
        plane.run_kubectl("apply", "--server-side", "-k", str(MANIFESTS / "overlays" / "standalone"))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        with at_work(plane), contextlib.ExitStack() as stack:
            programs = []
            for sdk, python in pythons.items():
                namespace = f"sdk-{sdk.package}-{sdk.version.replace('.', '-')}"
                plane.create_namespace(namespace)
                # As docs/notebook.md says.
                binding = ("create", "rolebinding", "notebook", "--clusterrole=edit", f"--user={ACCOUNT}")
                plane.run_kubectl("-n", namespace, *binding)
                log = plane.directory / "logs" / f"{namespace}.log"
                kubeconfig = plane.kubeconfig_for(ACCOUNT)
                programs.append(stack.enter_context(started(sdk, python, kubeconfig, namespace, log)))
            for program in programs:
                for result in results_of(program):
                    report.add(result, server)
