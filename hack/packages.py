"""Packages for development tools: Debian packages and Python wheels, in the user's cache.

Plain programs are installed. A Debian package that contains a service is only unpacked into the cache and run from there,
because Debian starts services on installation. A package that is already present needs no network.
"""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hack import debian
from hack.control_plane.build import apt
from hack.control_plane.build.binaries import cache_folder
from hack.control_plane.build.commands import LoggedRunner, Progress

PIP_LIMIT_S: Final = 1800.0  # TensorFlow takes 1.5 GB


def root() -> Path:
    """Return the project's cache folder, created if necessary."""
    folder = cache_folder().parent
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def install(packages: Sequence[str]) -> None:
    """Install the missing packages; needs root or sudo only if there are any. Raises ControlPlaneError."""
    with _workshop() as (work, runner, progress):
        apt.install(packages, work, runner, progress)


def unpack(package: str) -> Path:
    """Return the folder with the files of a package of `debian.PROGRAMS` (`usr/bin/...`); download it if it is not cached.

    Raises ControlPlaneError.
    """
    target = root() / "unpacked" / debian.PROGRAMS / package
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _workshop() as (work, runner, progress):
        private = apt.PrivateApt(work, runner, progress, debian.PROGRAMS)
        private.prepare()
        files = private.unpack(package, work)
        with contextlib.suppress(OSError):  # another process created the same folder first
            files.rename(target)
    return target


def install_wheels(name: str, *arguments: str) -> Path:
    """Return a cache folder with Python packages; install them with pip if they are not cached. Raises ControlPlaneError."""
    target = root() / name
    if not target.is_dir():
        progress = Progress("packages")
        progress.say(f"fetching {name}")
        with tempfile.TemporaryDirectory(prefix="wheels-", dir=root()) as work:
            folder = Path(work) / "packages"
            pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check")
            runner = LoggedRunner(root() / "packages.log", progress)
            runner.run(*pip, "--only-binary=:all:", f"--target={folder}", *arguments, limit_s=PIP_LIMIT_S)
            folder.chmod(0o755)  # pods run as another user
            with contextlib.suppress(OSError):  # another process created the same folder first
                folder.rename(target)
    return target


@contextlib.contextmanager
def _workshop() -> Iterator[tuple[Path, LoggedRunner, Progress]]:
    """Yield an empty folder in the cache, removed at the end, and a runner with its log there."""
    progress = Progress("packages")
    work = Path(tempfile.mkdtemp(prefix="apt-", dir=root()))
    try:
        yield work, LoggedRunner(root() / "packages.log", progress), progress
    finally:
        shutil.rmtree(work, ignore_errors=True)
