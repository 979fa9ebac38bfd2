"""Debian packages that development tools need: installed if they are plain programs, unpacked if they are services.

In: names of packages. Out: programs on the path, or a folder with the package's files in the cache of this machine's user.
A package with a service is never installed, since Debian starts services at once; its files are put into the cache and run
from there. A package that is there already needs no network.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hack.control_plane.build.apt import PrivateApt, is_installed
from hack.control_plane.build.binaries import cache_folder
from hack.control_plane.build.commands import LoggedRunner, Progress, output_of


def root() -> Path:
    """Return the folder in which this project keeps what it fetched or built, made if need be."""
    folder = cache_folder().parent
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def install(packages: Sequence[str]) -> None:
    """Install what is missing of these packages; root or sudo is needed only if something is. Raises ControlPlaneError."""
    missing = [package for package in packages if not is_installed(package)]
    if missing:
        with _apt() as apt:
            apt.install(missing)


def unpack(package: str) -> Path:
    """Return the folder with a package's files (`usr/bin/...`), fetched if it is not in the cache. Raises ControlPlaneError."""
    target = root() / "unpacked" / package
    if target.is_dir():
        return target
    target.parent.mkdir(exist_ok=True)
    with _apt() as apt, tempfile.TemporaryDirectory(prefix="unpack-", dir=target.parent) as work:
        archive = apt.download(package, Path(work))
        output_of("dpkg-deb", "-x", str(archive), f"{work}/files", limit_s=300.0)
        with contextlib.suppress(OSError):  # another process was faster, with the same files
            (Path(work) / "files").rename(target)
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
