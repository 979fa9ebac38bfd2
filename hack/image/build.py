"""What goes into the operator's image, and the build of it.

Three layers, the slow ones kept in the cache: Debian with its Python (debootstrap; made again when it is a month old, for
Debian's security updates), the dependencies (made again when a digest of theirs changes), and
the operator itself.

Everything is verified: Debian's packages by the signature of its archive, the dependencies and the tools that build the wheel
by the digests in requirements.txt and build-requirements.txt (`hack.image.lock` makes them).
"""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any, Final

from hack import packages
from hack.control_plane.build.apt import debian_sources
from hack.control_plane.build.commands import LoggedRunner, output_of
from hack.control_plane.errors import ControlPlaneError
from hack.control_plane.progress import Progress
from hack.image import archive, layers, sbom
from hack.image.layers import Layer

PROJECT: Final = Path(__file__).resolve().parents[2]
IMAGE: Final = "docker.io/library/tfjob-operator:0.1.0"
"""What a container runtime makes of the manifests' `tfjob-operator:0.1.0`; the archive is found under this name."""
RELEASE: Final = "bookworm"
PYTHON: Final = "3.11"  # the release's own
USER: Final = "65532:65532"
SITE: Final = "opt/tfjob-operator"
REQUIREMENTS: Final = Path(__file__).with_name("requirements.txt")
BUILD_REQUIREMENTS: Final = Path(__file__).with_name("build-requirements.txt")
RENEWED_AFTER_S: Final = 30 * 86400.0
SOURCES: Final = (
    "tfjob_operator",
    "api",
    "cli",
    "controller",
    "informers",
    "workqueue",
    "setup.cfg",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
UNUSED: Final = (
    *("usr/share/doc", "usr/share/man", "usr/share/locale"),
    *("var/cache/apt", "var/cache/ldconfig", "var/lib/apt/lists", "var/log"),  # some of them with times of this run
)
OF_PIP: Final = ("RECORD", "direct_url.json")
"""Files of a package's metadata that name folders of this machine, so that no two builds would be the same."""
OPTIMIZE: Final = 2
"""Without docstrings and asserts, which the operator does not need: a process of 40 MB becomes 3.5 MB smaller."""
COMPILE: Final = ("-m", "compileall", "-q", "-f", "-o", str(OPTIMIZE), "--invalidation-mode=unchecked-hash")
"""The image is read-only when it runs, and without bytecode a start takes seconds. Layers have no times, hence the mode."""
SETTINGS: Final = {"PYTHONOPTIMIZE": str(OPTIMIZE), "MALLOC_TRIM_THRESHOLD_": "131072"}
"""What keeps the process small (docs/design/memory.md)."""
CONFIG: Final[dict[str, Any]] = {
    "User": USER,
    "Entrypoint": ["/usr/bin/python3", "-m", "tfjob_operator.controller"],
    "Env": [
        "PATH=/usr/local/bin:/usr/bin:/bin",
        f"PYTHONPATH=/{SITE}",
        "PYTHONDONTWRITEBYTECODE=1",
        *(f"{name}={value}" for name, value in SETTINGS.items()),
    ],
    "WorkingDir": "/",
    "Labels": {
        "org.opencontainers.image.title": "tfjob-operator",
        "org.opencontainers.image.description": "A Kubernetes operator for TFJob",
        "org.opencontainers.image.licenses": "Apache-2.0",
    },
}


def build(target: Path) -> None:
    """Write the image to `target`, an OCI archive, and what it is made of beside it.

    Raises ControlPlaneError: not root, no Debian mirror, a failing tool.
    """
    if os.geteuid() != 0:
        raise ControlPlaneError("root is needed to build the image: debootstrap makes files of all kinds")
    progress = Progress("image")
    runner = LoggedRunner(packages.root() / "image.log", progress)
    with tempfile.TemporaryDirectory(prefix="image-", dir=packages.root()) as name:
        work = Path(name)
        made = [_debian(work, runner, progress), _dependencies(work, runner, progress), _operator(work, runner)]
        digest = archive.write(target, IMAGE, made, CONFIG)
        locked = sbom.digests_of(REQUIREMENTS.read_text())
        parts = sbom.document(IMAGE, digest, made, release=RELEASE, locked=locked)
    parts_list(target).write_text(json.dumps(parts, indent=1) + "\n")
    progress.say(f"{target}: {target.stat().st_size / 1e6:.0f} MB, {digest}, with {len(parts['components'])} packages")


def parts_list(image: Path) -> Path:
    """Return where the list of what an image is made of lies: beside its archive, with CycloneDX's ending."""
    return image.with_suffix(".cdx.json")


def _debian(work: Path, runner: LoggedRunner, progress: Progress) -> Layer:
    kept = packages.root() / f"image-{RELEASE}-{_digest()}.tar"
    if kept.exists() and time.time() - kept.stat().st_mtime < RENEWED_AFTER_S:
        return layers.read(kept)
    packages.install(["debootstrap"])
    progress.say(f"debootstrap: Debian {RELEASE} with Python, about a minute")
    mirror = next((source.uri for source in debian_sources() if source.release == RELEASE), None)
    if mirror is None:
        raise ControlPlaneError(
            f"apt on this machine knows no source of Debian {RELEASE}; has `apt-get update` been run?"
        )
    tree = work / "debian"
    options = ("--variant=minbase", "--include=python3", "--force-check-gpg")
    runner.run("debootstrap", *options, RELEASE, str(tree), mirror, limit_s=1800.0)
    for unused in UNUSED:
        shutil.rmtree(tree / unused, ignore_errors=True)
    library = f"usr/lib/python{PYTHON}"
    for compiled in (tree / library).rglob("__pycache__"):  # Debian's own, with docstrings
        shutil.rmtree(compiled)
    skip = ("-x", "/(lib2to3|test)/")  # some files in there are not Python 3
    runner.run("chroot", str(tree), "/usr/bin/python3", *COMPILE, *skip, f"/{library}", limit_s=600.0)
    return layers.pack(tree, kept)


def _dependencies(work: Path, runner: LoggedRunner, progress: Progress) -> Layer:
    kept = packages.root() / f"image-dependencies-{_digest(REQUIREMENTS.read_bytes())}.tar"
    if kept.exists():
        return layers.read(kept)
    progress.say("installing the operator's dependencies into a layer of their own")
    site = work / "dependencies" / SITE
    _pip(runner, "install", f"--target={site}", "--require-hashes", f"--requirement={REQUIREMENTS}")
    _finish(site)
    return layers.pack(work / "dependencies", kept)


def _operator(work: Path, runner: LoggedRunner) -> Layer:
    # Built in a copy: setuptools leaves folders beside the sources.
    sources = work / "sources"
    sources.mkdir()
    for name in SOURCES:
        path = PROJECT / name
        if path.is_dir():
            shutil.copytree(path, sources / name, symlinks=True)
        else:
            shutil.copy(path, sources / name)
    # In an environment of our own: with its build isolation pip would fetch the tools itself, in any version.
    venv.create(work / "tools", with_pip=True)
    python, wheels = str(work / "tools" / "bin" / "python"), work / "wheels"
    tools = ("--require-hashes", "--only-binary=:all:", f"--requirement={BUILD_REQUIREMENTS}")
    runner.run(python, "-m", "pip", "install", "--quiet", *tools, limit_s=600.0)
    wheel = ("--no-deps", "--no-build-isolation", f"--wheel-dir={wheels}", str(sources))
    runner.run(python, "-m", "pip", "wheel", "--quiet", *wheel, limit_s=600.0)
    site = work / "operator" / SITE
    _pip(runner, "install", f"--target={site}", "--no-deps", *map(str, wheels.glob("*.whl")))
    _finish(site)
    return layers.pack(work / "operator", work / "operator.tar")


def _pip(runner: LoggedRunner, *arguments: str) -> None:
    # For the image's Python, which need not be the one that builds it.
    target = ("--only-binary=:all:", f"--python-version={PYTHON}", "--no-compile", "--quiet")
    runner.run(sys.executable, "-m", "pip", *arguments, *target, limit_s=900.0)


def requirements() -> list[str]:
    """Return from setup.cfg what the operator requires, and what the page does, which runs from the same image."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(PROJECT / "setup.cfg")
    both = settings["options"]["install_requires"], settings["options.extras_require"]["dashboard"]
    return [line for each in both for line in each.split("\n")[1:]]


def _finish(site: Path) -> None:
    for unused in (site / "bin", *site.rglob("tests")):
        shutil.rmtree(unused, ignore_errors=True)
    for name in OF_PIP:
        for file in site.glob(f"*.dist-info/{name}"):
            file.unlink()
    # If this Python has another version than the image's, the bytecode is not used, and the operator starts slowly.
    output_of(sys.executable, *COMPILE, "-s", str(site), "-p", f"/{SITE}", str(site), limit_s=600.0)


def _digest(content: bytes = b"") -> str:
    """Return the digest in the name of a kept layer: of its content, of what was left out, and of how it was compiled."""
    return hashlib.sha256(content + " ".join((*UNUSED, *OF_PIP, *COMPILE)).encode()).hexdigest()[:16]
