"""`python -m hack.browser`: install what the browser tests of the dashboard need.

Installs Debian's Chromium, and downloads playwright (by pip) and axe-core, an accessibility checker (by npm), into the user's
cache. Exit code 2: something is not available on this machine.

Playwright is not a dependency of the test environment: its driver takes 130 MB, and only these tests need it.
"""

import os
import shutil
import sys
import tarfile
import tempfile
from ctypes.util import find_library
from pathlib import Path
from typing import Final

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress

PLAYWRIGHT: Final = "1.65.2"
AXE: Final = "4.14.1"
PACKAGES: Final = ("chromium", "fonts-dejavu-core", "libatomic1")
"""The last one is for Playwright's Node.js; a bare Debian 12 has it only with a compiler."""
FETCH_LIMIT_S: Final = 600.0


def chromium() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    return shutil.which("chromium")


def playwright() -> Path:
    """Return the folder for `sys.path` that contains playwright once `prepare` has run."""
    return packages.root() / f"playwright-{PLAYWRIGHT}-py{sys.version_info[0]}{sys.version_info[1]}"


def axe() -> Path:
    """Return the path of axe-core, which exists once `prepare` has run."""
    return packages.root() / f"axe-core-{AXE}.js"


def missing() -> tuple[str, str] | None:
    """Return what a test lacks to use the browser, and the command that installs it; None if it can."""
    if chromium() is not None and playwright().is_dir():
        return None
    return "Chromium" if chromium() is None else "playwright", ".venv/bin/python -m hack.browser"


def prepare() -> None:
    """Install what is missing; axe-core only if npm is available. Raises ControlPlaneError."""
    progress = Progress("browser")
    runner = LoggedRunner(packages.root() / "browser.log", progress)
    if chromium() is None or find_library("atomic") is None:
        progress.say("installing Chromium (Debian's package)")
        packages.install(PACKAGES)
    packages.install_wheels(playwright().name, f"playwright=={PLAYWRIGHT}")
    if not axe().is_file():
        npm = shutil.which("npm")
        if npm is None:
            progress.say("skipping axe-core: npm is not installed")
            return
        progress.say(f"downloading axe-core {AXE}")
        _fetch_axe(runner, npm)


def _fetch_axe(runner: LoggedRunner, npm: str) -> None:
    with tempfile.TemporaryDirectory(prefix="axe-", dir=packages.root()) as work:
        runner.run(npm, "pack", "--silent", f"--pack-destination={work}", f"axe-core@{AXE}", limit_s=FETCH_LIMIT_S)
        with tarfile.open(Path(work) / f"axe-core-{AXE}.tgz") as archive:
            found = archive.extractfile("package/axe.min.js")
            if found is None:
                raise ControlPlaneError("the package axe-core does not contain axe.min.js")
            unpacked = Path(work) / "axe.min.js"
            unpacked.write_bytes(found.read())
        unpacked.replace(axe())


def main() -> int:
    """Install everything; return the exit code."""
    try:
        prepare()
    except ControlPlaneError as error:
        print(f"skipping the browser tests of the dashboard: {error}", file=sys.stderr)
        return 2
    print(f"{chromium()} {playwright()}{os.linesep}{axe() if axe().is_file() else 'no axe-core'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
