"""`python -m hack.advisories`: look up known vulnerabilities of what the image installs, and of what builds it.

In: the lock (requirements.txt and build-requirements.txt of hack/image), the package index that pip knows, and the database of
advisories that pip-audit asks. Out: a line for each vulnerability. Exit codes: 0 none is known, 1 some are, 2 nothing is known,
since pip-audit or its database cannot be had here.

pip-audit is not a package of the test environment: it is fetched once, into the cache of this machine's user, and with it what
checks a document of CycloneDX against its schema (`validator`).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress
from hack.image.build import BUILD_REQUIREMENTS, REQUIREMENTS

PIP_AUDIT: Final = "2.10.1"
CYCLONEDX: Final = "11.12.0"
FETCH_LIMIT_S: Final = 600.0
LOOK_LIMIT_S: Final = 300.0


def tools() -> Path:
    """Return the folder for `PYTHONPATH` with pip-audit and the validator, which may not be there (yet)."""
    return packages.root() / f"pip-audit-{PIP_AUDIT}-cyclonedx-{CYCLONEDX}-py{sys.version_info[0]}{sys.version_info[1]}"


def prepare() -> None:
    """Fetch what is missing. Raises ControlPlaneError."""
    if tools().is_dir():
        return
    progress = Progress("advisories")
    progress.say(f"fetching pip-audit {PIP_AUDIT}")
    runner = LoggedRunner(packages.root() / "advisories.log", progress)
    with tempfile.TemporaryDirectory(prefix="pip-audit-", dir=packages.root()) as work:
        folder = Path(work) / "packages"
        wanted = (f"pip-audit=={PIP_AUDIT}", f"cyclonedx-python-lib[json-validation]=={CYCLONEDX}")
        quietly = ("--quiet", "--no-input", "--disable-pip-version-check", "--only-binary=:all:")
        runner.run(
            sys.executable, "-m", "pip", "install", *quietly, f"--target={folder}", *wanted, limit_s=FETCH_LIMIT_S
        )
        with contextlib.suppress(OSError):  # another process was faster, with the same files
            folder.rename(tools())


def environment() -> dict[str, str]:
    """Return the environment in which `sys.executable` finds the tools."""
    return {**os.environ, "PYTHONPATH": str(tools())}


def known() -> list[str]:
    """Return a line for each known vulnerability. Raises ControlPlaneError if nothing could be looked up."""
    locks = (f"--requirement={file}" for file in (REQUIREMENTS, BUILD_REQUIREMENTS))
    options = ("--require-hashes", "--disable-pip", "--progress-spinner=off", "--format=json")
    command = (sys.executable, "-m", "pip_audit", *options, *locks)
    try:
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=False, timeout=LOOK_LIMIT_S
        )
        report = json.loads(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise ControlPlaneError(f"pip-audit did not end within {LOOK_LIMIT_S:.0f} s") from error
    except ValueError as error:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ControlPlaneError(f"pip-audit could not look anything up: {last}") from error
    found = list(_lines_of(report["dependencies"]))
    skipped = [package["name"] for package in report["dependencies"] if "skip_reason" in package]
    if skipped and not found:  # an index without advisories says that it does not know the package
        raise ControlPlaneError(f"the index has nothing about {len(skipped)} packages, such as {skipped[0]}")
    return found


def _lines_of(dependencies: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for package in dependencies:
        for found in package.get("vulns", ()):
            mended = ", ".join(found["fix_versions"]) or "no version yet"
            names = ", ".join([found["id"], *found["aliases"]])
            yield f"{package['name']} {package['version']}: {names}; mended in {mended}"


def main() -> int:
    """Look up; return the exit code."""
    try:
        prepare()
        found = known()
    except ControlPlaneError as error:
        print(f"nothing is known about vulnerabilities: {error}", file=sys.stderr)
        return 2
    print("\n".join(found) or "no vulnerability is known of any package in the image's lock")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
