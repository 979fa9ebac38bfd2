"""An archive of the plugin for one platform: two programs, and a folder with all their modules except Python's own.

krew unpacks the archive. Users without krew can use the plugin as a single file.
"""

import contextlib
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from packaging.requirements import Requirement

from hack import packages
from hack.image.build import SETUP, SOURCES

# The wheel of this checkout. It is built in a copy, because setuptools writes folders next to the sources.


ROOT: Final = Path(__file__).parents[2]
CONSTRAINTS: Final = ROOT / "hack" / "constraints.txt"


def build_wheel(scratch: Path) -> Path:
    """Build the wheel in a temporary folder, and return its path. Raises CalledProcessError."""
    return _build("wheel", scratch)


def build_sdist(scratch: Path) -> Path:
    """Build the source distribution as `build_wheel` builds the wheel.

    It is repacked, because setuptools stores the build time.
    """
    made = _build("sdist", scratch)
    files: dict[str, tuple[bytes, int]] = {}
    with tarfile.open(made) as unpacked:
        for member in unpacked:
            if (file := unpacked.extractfile(member)) is not None:
                files[member.name] = (file.read(), 0o644)
    made.write_bytes(pack(files, time=int(os.environ.get("SOURCE_DATE_EPOCH", "0"))))
    return made


def _build(kind: str, scratch: Path) -> Path:
    sources, target = scratch / f"{kind}-sources", scratch / kind
    target.mkdir()
    for name in SOURCES:
        path, copy = ROOT / name, sources / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, copy, symlinks=True, ignore=ignored, copy_function=_copy)
        else:
            _copy(path, copy)
    return run_backend(kind, sources, target)


def run_backend(kind: str, sources: Path, target: Path) -> Path:
    """Build a wheel or sdist of these sources in an empty folder, and return its path. Raises CalledProcessError."""
    run([sys.executable, "-c", f"import setuptools.build_meta as b; b.build_{kind}({str(target)!r})"], sources)
    (made,) = target.iterdir()
    return made


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy a file without its mode, because the mode depends on the checkout's umask and would be stored in the wheel."""
    shutil.copyfile(source, target)
    Path(target).chmod(0o644)


def run(command: Sequence[str], folder: Path) -> None:
    """Run a program with the standard umask and without PYTHON variables, so that it compiles the modules it installs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(command, cwd=folder, env=environment, umask=0o022, check=True, stdout=subprocess.DEVNULL)


# The systems for which the plugin is packed.


PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
"""As in setup.cfg. One archive contains the compiled modules for all of them; their file names differ."""


class Platform(NamedTuple):
    """An operating system and architecture by their krew names, and the wheel tags for pip's --platform."""

    os: str
    arch: str
    tags: tuple[str, ...]

    @property
    def archive(self) -> str:
        """Return the name of its archive."""
        return f"kubectl-tfjob-{self.os}-{self.arch}.tar.gz"

    @property
    def zipapp(self) -> str:
        """Return the name of the plugin as a single file."""
        return f"kubectl-tfjob-{self.os}-{self.arch}.pyz"


def _linux(arch: str, machine: str) -> Platform:
    # For glibc of CentOS 7 or later, as in Debian, Ubuntu, Fedora and RHEL, but not Alpine.
    return Platform(
        "linux", arch, tuple(f"{libc}_{machine}" for libc in ("manylinux2014", "manylinux_2_17", "manylinux_2_28"))
    )


PLATFORMS: Final = (
    _linux("amd64", "x86_64"),
    _linux("arm64", "aarch64"),
    Platform("darwin", "amd64", ("macosx_11_0_x86_64",)),
    Platform("darwin", "arm64", ("macosx_11_0_arm64",)),
)


CHECK: Final = """import sys

if not (3, 11) <= sys.version_info < (3, 15):
    sys.exit("error: kubectl tfjob needs Python 3.11 to 3.14 as python3; this is " + sys.version.split()[0])
"""
"""Prints a one-line error on a Python version without modules here."""
LAUNCHER: Final = f'''#!/usr/bin/env python3
"""Finds its modules beside itself, also through a link, as krew makes one."""
import os
{CHECK}
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from tfjob_operator.cli.{{module}} import main

main()
'''
PROGRAMS: Final = {"kubectl-tfjob": "__main__", "kubectl_complete-tfjob": "complete"}
LIB: Final = "lib"
EXTRAS: Final = ("cli", "dashboard")
NOT_NEEDED: Final = ("kubernetes", "prometheus-client")
"""Requirements of the operator alone, for its kubeconfig and its metrics."""


def requirements() -> list[str]:
    """Return the plugin's requirements from setup.cfg: those of the operator except NOT_NEEDED, and those of EXTRAS."""
    extras = (SETUP["options.extras_require"][extra] for extra in EXTRAS)
    listed = "".join([SETUP["options"]["install_requires"], *extras])
    return [each for each in listed.split("\n") if each and Requirement(each).name not in NOT_NEEDED]


def wheels_for(platform: Platform) -> list[Path]:
    """Return the wheels that the plugin needs on a platform, in the tested versions.

    pip downloads those that are not cached. Raises CalledProcessError.
    """
    pinned = CONSTRAINTS.read_text() + repr((platform, PYTHONS, requirements()))
    digest = hashlib.sha256(pinned.encode()).hexdigest()[:16]
    target = packages.root() / f"plugin-wheels-{platform.os}-{platform.arch}-{digest}"
    if not target.is_dir():
        with TemporaryDirectory(prefix="plugin-wheels-", dir=packages.root()) as work:
            folder = Path(work, "wheels")
            for python in PYTHONS:
                which = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
                which += [f"--platform={tag}" for tag in platform.tags]
                pip = [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "-qq",
                    f"--dest={folder}",
                    f"--constraint={CONSTRAINTS}",
                ]
                subprocess.run([*pip, *which, *requirements()], check=True, stdout=subprocess.DEVNULL)
            with contextlib.suppress(OSError):  # another process created the same files first
                folder.rename(target)
    return sorted(target.glob("*.whl"))


def contents(wheels: Iterable[Path]) -> dict[str, tuple[bytes, int]]:
    """Return the files of an archive by name, each with its mode."""
    files: dict[str, tuple[bytes, int]] = {"LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644)}
    for name, module in PROGRAMS.items():
        files[name] = (LAUNCHER.format(module=module).encode(), 0o755)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as unpacked:
            for name in unpacked.namelist():
                top = PurePosixPath(name).parts[0]
                if not name.endswith("/") and not top.endswith(".data"):
                    files[f"{LIB}/{name}"] = (unpacked.read(name), 0o644)
    return files


class Packed(NamedTuple):
    """The plugin for one platform: its wheels from other projects, and the SHA-256 of its archive."""

    platform: Platform
    wheels: list[Path]
    digest: str


def pack_all(wheel: Path, target: Path) -> list[Packed]:
    """Write the archives and the single files for all platforms into `target`. Raises CalledProcessError."""

    def packed(platform: Platform) -> Packed:
        wheels = wheels_for(platform)
        files = contents([*wheels, wheel])
        made = pack(files)
        (target / platform.archive).write_bytes(made)
        pack_file(files, target / platform.zipapp)
        return Packed(platform, wheels, hashlib.sha256(made).hexdigest())

    with ThreadPoolExecutor() as pool:
        return list(pool.map(packed, PLATFORMS))


def pack(files: Mapping[str, tuple[bytes, int]], *, time: int = 0) -> bytes:
    """Return an archive whose files have this time. Archives are reproducible."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, (data, mode) in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), mode, time
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


# The krew manifest of the plugin. Pure.


MANIFEST: Final = "tfjob.yaml"
DESCRIPTION: Final = """\
Commands for TFJobs of kubeflow.org: why a job does not run, the logs of all its
replicas across restarts, its TensorBoard and resource usage; suspend, resume,
restart and scale; validation of manifests without a cluster.
"""
CAVEATS: Final = """\
It needs Python 3.11 to 3.14 as python3.
For completion by Tab (kubectl 1.26 and newer): kubectl tfjob completion --install
"""


def manifest(version: str, url: str, made: Iterable[Packed]) -> dict[str, Any]:
    """Return the manifest of a release with archives at `url`."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": platform.os, "arch": platform.arch}},
            "uri": f"{url.rstrip('/')}/{platform.archive}",
            "sha256": digest,
            "bin": "kubectl-tfjob",
        }
        for platform, _, digest in made
    ]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "tfjob"},
        "spec": {
            "version": f"v{version}",
            "homepage": url,
            "shortDescription": "Create, inspect and debug TFJobs",
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": platforms,
        },
    }


# The plugin as a single executable file, for users who copy it into their PATH. shiv creates it.
#
# Compiled modules cannot be imported from a zip, so it unpacks itself on its first start into ~/.shiv or SHIV_ROOT.


ENTRY: Final = f"tfjob_operator.cli.{PROGRAMS['kubectl-tfjob']}:main"


def pack_file(files: Mapping[str, tuple[bytes, int]], target: Path) -> None:
    """Write the contents of an archive as one reproducible program. Raises CalledProcessError."""
    with TemporaryDirectory(prefix="tfjob-plugin-") as folder:
        modules, preamble = Path(folder, LIB), Path(folder, "preamble.py")
        for name, (data, _) in files.items():
            if name.startswith(f"{LIB}/"):
                file = Path(folder, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
        preamble.write_text(CHECK)
        shiv = [sys.executable, "-m", "shiv", f"--site-packages={modules}", f"--preamble={preamble}"]
        shiv += [f"--entry-point={ENTRY}", "--python=/usr/bin/env python3", "--compressed", "--reproducible"]
        environ = os.environ | {"SOURCE_DATE_EPOCH": "315532800"}  # the earliest time in a zip
        subprocess.run([*shiv, f"--output-file={target}"], check=True, env=environ, stdout=subprocess.DEVNULL)
    with zipfile.ZipFile(target, "a") as packed:
        for entry in packed.infolist():
            entry.external_attr = 0o100644 << 16  # the modes of shiv's own files depend on its installation
        packed.comment = b"kubectl tfjob"  # otherwise modes are not written
