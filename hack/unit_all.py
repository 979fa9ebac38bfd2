"""The unit tests on each Python that the project supports and this machine has.

Run as `python -m hack.unit_all [--others] [pytest's arguments]`. With --others the Python that runs this is left out: `make
test` has run them there.

Interpreters are looked for on the path and in pyenv's folder. Each gets a virtual environment in the cache of this machine's
user, with the packages of setup.cfg as hack/constraints.txt pins them, named by a hash of both, so that a change makes a new
one. Exit codes: 0 if all tests that ran passed, else 1. A Python that is missing is reported, and is no failure.
"""

from __future__ import annotations

import configparser
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hack import packages
from hack.control_plane.build.commands import LoggedRunner
from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).parents[1]
SETTINGS: Final = ROOT / "setup.cfg"
CONSTRAINTS: Final = ROOT / "hack" / "constraints.txt"
_VERSION: Final = "Programming Language :: Python :: 3."
_EVERY_UNIT_TEST: Final = ("-n", "auto", "--dist", "worksteal", "test/unit")
_INSTALL_LIMIT_S: Final = 600.0  # 60 MB; ten seconds with a fast index


def versions(settings: configparser.ConfigParser) -> list[str]:
    """Return the Pythons that setup.cfg names, such as "3.11"."""
    named = settings["metadata"]["classifiers"].split("\n")
    return [f"3.{each.removeprefix(_VERSION)}" for each in named if each.startswith(_VERSION)]


def requirements(settings: configparser.ConfigParser) -> list[str]:
    """Return what the project and its tests need to run."""
    wanted = f"{settings['options']['install_requires']}\n{settings['options.extras_require']['test']}"
    return [line.replace(" ", "") for line in wanted.split("\n") if line.strip()]


def find(version: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the interpreter of a version: on the path, else the newest of pyenv's."""
    on_path = shutil.which(f"python{version}", path=environment.get("PATH", ""))
    if on_path is not None and _is(version, Path(on_path)):  # pyenv's shims may exist for versions that are not active
        return Path(on_path)
    folder = Path(environment.get("PYENV_ROOT") or Path(environment.get("HOME", "/")) / ".pyenv") / "versions"
    found = [path for path in folder.glob(f"{version}.*/bin/python") if _is(version, path)]
    return max(
        found, key=lambda path: [int(part) for part in path.parts[-3].split(".") if part.isdigit()], default=None
    )


def _is(version: str, python: Path) -> bool:
    code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def environment_of(version: str, python: Path) -> Path:
    """Return the Python of an environment with all that the unit tests need, made if it is not in the cache.

    For the version of the running Python that is the running Python itself. Raises ControlPlaneError.
    """
    if version == _this_version():
        return Path(sys.executable)
    settings = read_settings()
    wanted = requirements(settings)
    digest = hashlib.sha256("\n".join([str(python), *wanted]).encode() + CONSTRAINTS.read_bytes()).hexdigest()[:8]
    target = packages.root() / f"unit-py{version}-{digest}"
    if not target.is_dir():
        progress = Progress("unit-all")
        progress.say(f"installing what the unit tests need for {python} into {target}")
        runner = LoggedRunner(packages.root() / "unit-all.log", progress)
        with tempfile.TemporaryDirectory(prefix="unit-", dir=packages.root()) as work:
            venv = Path(work) / "venv"
            runner.run(str(python), "-m", "venv", "--without-pip", str(venv), limit_s=60.0)
            runner.run(
                *(sys.executable, "-m", "pip", f"--python={venv / 'bin' / 'python'}", "install", "--quiet"),
                *("--no-input", "--disable-pip-version-check", f"--constraint={CONSTRAINTS}", *wanted),
                limit_s=_INSTALL_LIMIT_S,
            )
            venv.rename(target)
    return target / "bin" / "python"


def _this_version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def read_settings() -> configparser.ConfigParser:
    """Return the project's setup.cfg."""
    settings = configparser.ConfigParser()
    settings.read(SETTINGS)
    return settings


def main(arguments: Sequence[str]) -> int:
    """Run the unit tests on each Python, and print a line for each; return the exit code."""
    told: list[str] = []
    failed = False
    others, given = "--others" in arguments, [each for each in arguments if each != "--others"]
    for version in versions(read_settings()):
        if others and version == _this_version():
            continue
        python = find(version)
        if python is None:
            told.append(f"Python {version}: left out, there is none on this machine")
            continue
        try:
            inside = environment_of(version, python)
        except ControlPlaneError as error:
            told.append(f"Python {version}: no environment for {python}: {error}")
            failed = True
            continue
        command = [str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", *(given or _EVERY_UNIT_TEST)]
        code = subprocess.run(
            command, cwd=ROOT, check=False, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        ).returncode
        told.append(f"Python {version}: {'passed' if code == 0 else f'FAILED, pytest ended with {code}'} ({python})")
        failed = failed or code != 0
    print("\n".join(told))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
