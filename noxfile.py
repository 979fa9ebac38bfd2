"""The unit tests on each Python that setup.cfg names: `make unit-all`. A Python that this machine lacks is skipped."""

from __future__ import annotations

import configparser
import os
from pathlib import Path

import nox

ROOT = Path(__file__).parent
_CLASSIFIER = "Programming Language :: Python :: 3."

nox.needs_version = ">=2025.2"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"
# Interpreters of pyenv, before its shims: those fail for versions that are not active.
_installed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
os.environ["PATH"] = os.pathsep.join([*map(str, sorted(_installed.glob("3.*/bin"), reverse=True)), os.environ["PATH"]])


def _pythons() -> list[str]:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    lines = settings["metadata"]["classifiers"].splitlines()
    return [f"3.{line.removeprefix(_CLASSIFIER)}" for line in lines if line.startswith(_CLASSIFIER)]


@nox.session(python=_pythons())
def unit(session: nox.Session) -> None:
    """Run the unit tests, or what is given after `--`."""
    session.install("--editable", ".[test]", "--constraint", "hack/constraints.txt")
    session.run(
        "python",
        "-m",
        "pytest",
        "-q",
        *(session.posargs or ("-n", "auto", "--dist", "worksteal", "test/unit", "hack/examples")),
    )
