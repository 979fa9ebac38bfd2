"""The code and CRDs of earlier releases, from git, which alternate with those of this checkout."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fakes.manifests import read_document
from faults.processes import ROOT, program
from hack.earlier import COMMITS, PREVIOUS, unpack

TAGS: Final = "v*"
RETRYABLE: Final = "--retryable-exit-codes"
"""The flag that came with the retry of exit code 134."""
NEEDED: Final = ("api", "cli", "controller", "informers", "workqueue", "tfjob_operator", "manifests", "setup.cfg")
KEEPS: Final = "x-kubernetes-preserve-unknown-fields"
WHERE: Final = """
import sys, tfjob_operator.controller.%s
print(*(each.__file__ for name, each in sys.modules.items() if name.partition(".")[0] == "tfjob_operator"), sep="\\n")
"""


class NotThereError(Exception):
    """The previous release cannot be run here, for the reason in the message."""


@dataclass(frozen=True)
class Release:
    """A release of the operator. `bug`: a name in `bugs.py`, only for this checkout."""

    name: str
    root: Path
    bug: str = ""

    @property
    def program(self) -> tuple[str, ...]:
        return program(self.bug)

    @property
    def crd(self) -> Path:
        """The CRD of kubeflow.org."""
        return self.root / "manifests" / "base" / "crd.yaml"

    @property
    def alpha_crd(self) -> Path:
        """The CRD of tensorflow.org."""
        return self.root / "manifests" / "addons" / "alpha" / "crd.yaml"

    def knows(self, flag: str) -> bool:
        """Return True if its operator has a flag."""
        return flag in (self.root / "controller" / "options.py").read_text()

    def strict_crd(self, folder: Path) -> Path:
        """Write its CRD such that the API server prunes unknown status fields; return the path."""
        crd = read_document(self.crd)
        for version in crd["spec"]["versions"]:
            status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
            for known in (status["begun"], status["restarts"]["items"]):
                known.pop(KEEPS, None)
        path = folder / "strict-crd.json"
        path.write_text(json.dumps(crd))
        return path


def present(bug: str = "") -> Release:
    """Return this checkout as a release."""
    return Release("this checkout", ROOT, bug)


def before(folder: Path) -> Release:
    """Unpack the previous release into a folder: that of the latest version tag before HEAD, or else `PREVIOUS`.

    Raises NotThereError.
    """
    tag = _newest_tag()
    return _unpack(folder, tag.removeprefix("v"), tag) if tag else known(folder, PREVIOUS)


def known(folder: Path, name: str) -> Release:
    """Unpack a release of `COMMITS` into a folder. Raises NotThereError."""
    return _unpack(folder, name, COMMITS[name])


def _unpack(folder: Path, name: str, commit: str) -> Release:
    try:
        unpack(folder, commit, NEEDED)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotThereError(f"{name} ({commit}) is not in git's history here: use a full clone") from error
    # It uses the dependencies of this environment.
    program = "composition" if (folder / "controller" / "composition.py").exists() else "app"  # until 0.2.1
    asked = subprocess.run(
        [sys.executable, "-c", WHERE % program], cwd=folder, capture_output=True, text=True, check=False
    )
    if asked.returncode:
        said = asked.stderr.splitlines()[-1]
        if "tfjob_operator" in said:
            raise AssertionError(f"{name} lacks a module of its own: {said}")
        raise NotThereError(f"{name} does not start with the packages of this environment: {said}")
    if elsewhere := [path for path in asked.stdout.splitlines() if not path.startswith(str(folder))]:
        raise AssertionError(f"Python imports {elsewhere} from outside of {folder}")
    return Release(name, folder)


def _newest_tag() -> str:
    try:
        return _git("describe", "--tags", "--abbrev=0", f"--match={TAGS}", "HEAD^").decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*command: str) -> bytes:
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=True).stdout
