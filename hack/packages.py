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

from hack.control_plane.build.apt import PrivateApt, is_installed
from hack.control_plane.build.binaries import cache_folder
from hack.control_plane.build.commands import LoggedRunner, Progress, output_of

PIP_LIMIT_S: Final = 1800.0  # TensorFlow takes 1.5 GB


def root() -> Path:
    """Return the project's cache folder, created if necessary."""
    folder = cache_folder().parent
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def install(packages: Sequence[str]) -> None:
    """Install the missing packages; needs root or sudo only if there are any. Raises ControlPlaneError."""
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        with _apt() as apt:
            apt.install(missing)


def unpack(package: str) -> Path:
    """Return the folder with a package's files (`usr/bin/...`); download the package if it is not cached.

    Raises ControlPlaneError.
    """
    target = root() / "unpacked" / package
    if target.is_dir():
        return target
    target.parent.mkdir(exist_ok=True)
    with _apt() as apt, tempfile.TemporaryDirectory(prefix="unpack-", dir=target.parent) as work:
        archive = apt.download(package, Path(work))
        output_of("dpkg-deb", "-x", str(archive), f"{work}/files", limit_s=300.0)
        with contextlib.suppress(OSError):  # another process created the same folder first
            (Path(work) / "files").rename(target)
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
def _apt() -> Iterator[PrivateApt]:
    progress = Progress("packages")
    work = Path(tempfile.mkdtemp(prefix="apt-", dir=root()))
    try:
        apt = PrivateApt(work, LoggedRunner(root() / "packages.log", progress), progress)
        apt.prepare()
        yield apt
    finally:
        shutil.rmtree(work, ignore_errors=True)
