"""The release before this one, out of git's history: its code and its CRD, to be run in turn with the present ones."""

import io
import json
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fakes.manifests import read_document
from faults.processes import ROOT, program
from hack.package_links import link_packages

UNTAGGED: Final = "13dd495327cde9553024a2e1f60e29cb327148fc"
"""What counts as the release before as long as no version is tagged: the last state before the status had `begun.network` and
`begun.madeOf`, networks were shared and events of creations batched."""
TAGS: Final = "v*"
NEEDED: Final = ("api", "cli", "controller", "informers", "workqueue", "tfjob_operator", "manifests", "setup.cfg")
KEEPS: Final = "x-kubernetes-preserve-unknown-fields"
WHERE: Final = """
import sys, tfjob_operator.controller.app
print(*(each.__file__ for name, each in sys.modules.items() if name.partition(".")[0] == "tfjob_operator"), sep="\\n")
"""


class NotThereError(Exception):
    """The release before cannot be run here; the text says why."""


@dataclass(frozen=True)
class Release:
    """A release of the operator. `bug` is one of `bugs.py`, which only the present one can have."""

    name: str
    root: Path
    bug: str = ""

    @property
    def program(self) -> tuple[str, ...]:
        return program(self.bug)

    @property
    def crd(self) -> Path:
        return self.root / "manifests" / "base" / "crd.yaml"

    def strict_crd(self, folder: Path) -> Path:
        """Write its CRD so that the API server keeps no field of the status that is not in it; return the path."""
        crd = read_document(self.crd)
        for version in crd["spec"]["versions"]:
            status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
            for known in (status["begun"], status["restarts"]["items"]):
                known.pop(KEEPS, None)
        path = folder / "strict-crd.json"
        path.write_text(json.dumps(crd))
        return path


def present(bug: str = "") -> Release:
    """Return the release that is being worked at."""
    return Release("the present one", ROOT, bug)


def before(folder: Path) -> Release:
    """Unpack the release before into a folder: the newest tag of a version before HEAD, else UNTAGGED.

    Raises NotThereError.
    """
    commit = _newest_tag() or UNTAGGED
    try:
        packed = _git("archive", "--format=tar", commit, "--", *NEEDED)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotThereError(f"git has no {commit} here, as in a shallow clone or an archive of the sources") from error
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    # Without links, Python would fall back to the packages of the present checkout: its editable install knows them by name.
    link_packages(folder, folder)
    # The packages that it needs are those of the present environment.
    asked = subprocess.run([sys.executable, "-c", WHERE], cwd=folder, capture_output=True, text=True, check=False)
    if asked.returncode:
        raise NotThereError(f"{commit} does not start with the packages of today: {asked.stderr.splitlines()[-1]}")
    if elsewhere := [path for path in asked.stdout.splitlines() if not path.startswith(str(folder))]:
        raise AssertionError(f"Python imports {elsewhere} from outside of {folder}")
    return Release(commit, folder)


def _newest_tag() -> str:
    try:
        return _git("describe", "--tags", "--abbrev=0", f"--match={TAGS}", "HEAD^").decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*command: str) -> bytes:
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, check=True).stdout
