"""`python -m hack.browser`: a real browser for the tests of the page: Debian's Chromium, and what drives it.

In: Debian's packages, the package index that pip knows, npm's registry. Out: Chromium on the path; playwright, and axe-core,
which finds faults of accessibility, in the cache of this machine's user. Exit code 2 says that something cannot be had here.

Playwright is not a package of the test environment: its driver has 130 MB, and only these tests need it.
"""

import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from hack import packages
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress

PLAYWRIGHT: Final = "1.65.2"
AXE: Final = "4.14.1"
PACKAGES: Final = ("chromium", "fonts-dejavu-core")
FETCH_LIMIT_S: Final = 600.0


def chromium() -> str | None:
    """Return the browser's program, None where there is none."""
    return shutil.which("chromium")


def playwright() -> Path:
    """Return the folder for `sys.path` with playwright, which may not be there (yet)."""
    return packages.root() / f"playwright-{PLAYWRIGHT}-py{sys.version_info[0]}{sys.version_info[1]}"


def axe() -> Path:
    """Return axe-core's file, which may not be there (yet)."""
    return packages.root() / f"axe-core-{AXE}.js"


def missing() -> str:
    """Return in words what keeps a test from using the browser, "" if nothing does."""
    if chromium() is None:
        return "there is no Chromium: python -m hack.browser installs it"
    return "" if playwright().is_dir() else "there is no playwright: python -m hack.browser fetches it"


def prepare() -> None:
    """Install and fetch what is missing; axe-core only if npm is there. Raises ControlPlaneError."""
    progress = Progress("browser")
    runner = LoggedRunner(packages.root() / "browser.log", progress)
    if chromium() is None:
        progress.say("installing Chromium (Debian's package)")
        packages.install(PACKAGES)
    packages.install_wheels(playwright().name, f"playwright=={PLAYWRIGHT}")
    if not axe().is_file():
        npm = shutil.which("npm")
        if npm is None:
            progress.say("axe-core is left out: there is no npm to fetch it with")
            return
        progress.say(f"fetching axe-core {AXE}")
        _fetch_axe(runner, npm)


def _fetch_axe(runner: LoggedRunner, npm: str) -> None:
    with tempfile.TemporaryDirectory(prefix="axe-", dir=packages.root()) as work:
        runner.run(npm, "pack", "--silent", f"--pack-destination={work}", f"axe-core@{AXE}", limit_s=FETCH_LIMIT_S)
        with tarfile.open(Path(work) / f"axe-core-{AXE}.tgz") as archive:
            found = archive.extractfile("package/axe.min.js")
            if found is None:
                raise ControlPlaneError("the package axe-core has no axe.min.js")
            unpacked = Path(work) / "axe.min.js"
            unpacked.write_bytes(found.read())
        unpacked.replace(axe())


def main() -> int:
    """Make the browser ready; return the exit code."""
    try:
        prepare()
    except ControlPlaneError as error:
        print(f"the tests of the page in a browser are left out: {error}", file=sys.stderr)
        return 2
    print(f"{chromium()} {playwright()}{os.linesep}{axe() if axe().is_file() else 'no axe-core'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
