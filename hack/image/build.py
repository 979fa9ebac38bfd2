"""Builds the operator's image.

It has three layers. Debian with its Python (debootstrap) is cached, and renewed after a month for security updates. The
dependencies are cached, and renewed when a digest changes. The operator is built each time.

Everything is verified: Debian's packages by the signature of its archive; the dependencies and the build tools by the digests
in requirements.txt and build-requirements.txt, which `hack.image.lock` writes.
"""

from __future__ import annotations

import configparser
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import time
import uuid
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from packaging.utils import canonicalize_name

from hack import packages
from hack.control_plane.build.apt import debian_sources, sources_of
from hack.control_plane.build.commands import ControlPlaneError, LoggedRunner, Progress, output_of
from hack.debian import IMAGE as RELEASE
from hack.debian import IMAGE_PYTHON as PYTHON

# The image's software bill of materials, a CycloneDX 1.5 document beside the archive.
#
# It is made from the layers (dpkg's list of packages, the metadata of Python packages) and the lock files with the digests of
# wheels. It is reproducible: it contains no time and no random number.


OWN: Final = "tfjob-operator"
DPKG: Final = "var/lib/dpkg/status"
METADATA: Final = "*.dist-info/METADATA"
_LOCKED: Final = re.compile(r"^(\S+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
_NAMESPACE: Final = uuid.UUID("6f0b1c0a-9a3e-5f57-9a55-8d1f6c1b7f55")
"""The namespace of serial numbers, which are derived from the image's digest. An arbitrary UUID."""

Digests = dict[tuple[str, str], list[str]]
"""SHA-256 of the files of a package by its name and version; one file per platform."""


def digests_of(lock: str) -> Digests:
    """Return the digests in a requirements file."""
    found = _LOCKED.findall(lock)
    return {(canonicalize_name(name), version): re.findall("[0-9a-f]{64}", digests) for name, version, digests in found}


def image_component(name: str, digest: str) -> dict[str, Any]:
    """Return an image as a component. `name` is its full name with the tag, `digest` that of its index."""
    repository, _, version = name.rpartition(":")
    own = repository.rpartition("/")[2]
    purl = f"pkg:oci/{own}@{quote(digest)}?tag={version}"
    return component("container", own, version, purl, digest.removeprefix("sha256:"))


def component(kind: str, name: str, version: str, purl: str, digest: str) -> dict[str, Any]:
    """Return a component with one SHA-256."""
    found = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return {**found, "hashes": [_hash(digest)]}


def document(
    subject: Mapping[str, Any], layers: Sequence[Layer], *, release: str = "", locked: Digests
) -> dict[str, Any]:
    """Return the SBOM of a component that consists of these layers.

    release: the Debian release in it. locked: the digests of the wheels in it.
    Raises KeyError for a Python package that is neither locked nor of this project.
    """
    components = [each for layer in layers for each in _components(layer, release=release, locked=locked)]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(_NAMESPACE, subject["hashes"][0]["content"]).urn,
        "version": 1,
        "metadata": {"component": subject},
        "components": sorted(components, key=lambda each: each["bom-ref"]),
    }


def _components(layer: Layer, *, release: str, locked: Digests) -> Iterator[dict[str, Any]]:
    with tarfile.open(layer.path) as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isfile() else None
            if file is None:
                continue
            if entry.name == DPKG:
                for text in file.read().decode().split("\n\n"):
                    if text.strip():
                        yield _of_debian(HeaderParser().parsestr(text), release)
            elif fnmatchcase(entry.name, METADATA):
                yield _of_python(HeaderParser().parsestr(file.read().decode()), locked)


def _of_debian(package: Message, release: str) -> dict[str, Any]:
    name, version, architecture = (str(package[key]) for key in ("Package", "Version", "Architecture"))
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}&distro={release}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _of_python(package: Message, locked: Digests) -> dict[str, Any]:
    name, version = canonicalize_name(str(package["Name"])), str(package["Version"])
    purl = f"pkg:pypi/{name}@{quote(version)}"
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if name == OWN:
        found["type"] = "application"
        del found["purl"]  # not in an index
    else:
        found["hashes"] = [_hash(each) for each in locked[name, version]]
    if licence := _licence(package):
        found["licenses"] = [licence]
    return found


def _licence(package: Message) -> Mapping[str, Any] | None:
    """Return the package's license: an SPDX expression since metadata 2.4, free text before."""
    if expression := package["License-Expression"]:
        return {"expression": str(expression)}
    words = str(package["License"] or "").strip().partition("\n")[0]
    return {"license": {"name": words}} if words else None


def _hash(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}


# Image layers from folders: uncompressed, reproducible tar files, owned by root, sorted, and without timestamps.


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer on disk. `digest` is the hex SHA-256 of the tar file, `size` its bytes."""

    path: Path
    digest: str
    size: int


def pack(folder: Path, target: Path, prefix: str = "") -> Layer:
    """Pack the content of `folder` into the tar file `target`, below `prefix` in the image, without devices."""
    draft = target.with_name(f"{target.name}.draft")
    with tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(
                path,
                arcname=f"{prefix}{path.name}",
                filter=lambda entry: None if entry.isdev() else _without_times(entry, "root"),
            )
    draft.rename(target)
    return read(target)


def read(path: Path) -> Layer:
    """Return the layer in a tar file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Layer(path, digest, path.stat().st_size)


# The OCI archive, for `ctr images import`, `docker load`, `podman load` and `skopeo`.
#
# It is a tar file in the layout of the OCI image specification 1.0: `oci-layout`, `index.json`, and blobs named by their
# SHA-256. The image is an index, so that a node of another platform reports the reason when it pulls. Like an archive of
# `docker save` (since Docker 25) it also has a `manifest.json`, the only file that `docker load` and minikube's Docker read.


MEDIA: Final = "application/vnd.oci.image"
INDEX: Final = f"{MEDIA}.index.v1+json"


def write(target: Path, name: str, layers: Sequence[Layer], config: Mapping[str, Any]) -> str:
    """Write an image for this machine's architecture; return the digest of its index, as used in a pull.

    `config` is the field of the same name in the OCI image configuration: User, Entrypoint, Env, Labels. Raises
    ControlPlaneError.
    """
    draft = target.with_name(f"{target.name}.draft")
    with tarfile.open(draft, "w") as archive:
        _add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        for layer in layers:
            archive.add(layer.path, arcname=f"blobs/sha256/{layer.digest}", filter=_without_times)
        platform = {"architecture": architecture(), "os": "linux"}
        image = {
            **platform,
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
        }
        settings = _blob(archive, f"{MEDIA}.config.v1+json", image)
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{MEDIA}.manifest.v1+json",
            "config": settings,
            "layers": [
                {"mediaType": f"{MEDIA}.layer.v1.tar", "digest": f"sha256:{layer.digest}", "size": layer.size}
                for layer in layers
            ],
        }
        listed = {**_blob(archive, f"{MEDIA}.manifest.v1+json", manifest), "platform": platform}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [listed]}
        described = _blob(archive, INDEX, index)
        repository, _, tag = name.rpartition(":")
        # containerd imports the image under both names, so pods can also refer to it by digest.
        names = (
            {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag},
            {"io.containerd.image.name": f"{repository}@{described['digest']}"},
        )
        manifests = [{**described, "annotations": each} for each in names]
        _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}).encode())
        docker = {
            "Config": f"blobs/{settings['digest'].replace(':', '/')}",
            "RepoTags": [name],
            "Layers": [f"blobs/sha256/{layer.digest}" for layer in layers],
        }
        _add(archive, "manifest.json", json.dumps([docker]).encode())
    draft.rename(target)
    return str(described["digest"])


def architecture() -> str:
    """Return the architecture of this machine. Raises ControlPlaneError."""
    return output_of("dpkg", "--print-architecture").strip()  # Debian's names are OCI's


def _blob(archive: tarfile.TarFile, media_type: str, content: Mapping[str, Any]) -> dict[str, Any]:
    data = json.dumps(content, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    _add(archive, f"blobs/sha256/{digest}", data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _without_times(entry: tarfile.TarInfo, owner: str = "") -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = owner
    return entry


PROJECT: Final = Path(__file__).resolve().parents[2]
SETUP: Final = configparser.ConfigParser(interpolation=None)
"""setup.cfg, the only place where the version is maintained."""
SETUP.read_string((PROJECT / "setup.cfg").read_text())
VERSION: Final = SETUP["metadata"]["version"]
IMAGE: Final = f"docker.io/library/tfjob-operator:{VERSION}"
"""The full name of the image that the manifests call `tfjob-operator:VERSION`."""
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
    *("var/cache/apt", "var/cache/ldconfig", "var/lib/apt/lists", "var/log"),  # some of them contain timestamps
)
OF_PIP: Final = ("RECORD", "direct_url.json")
"""Files of a package's metadata that contain paths of this machine, which would prevent reproducible builds."""
OPTIMIZE: Final = 2
"""Without docstrings and asserts, which the operator does not need: saves 3.5 MB of 40 MB."""
COMPILE: Final = ("-m", "compileall", "-q", "-f", "-o", str(OPTIMIZE), "--invalidation-mode=unchecked-hash")
"""The running image is read-only, and without bytecode a start takes seconds. The mode does not need timestamps, which
layers do not have."""
SETTINGS: Final = {"PYTHONOPTIMIZE": str(OPTIMIZE), "MALLOC_TRIM_THRESHOLD_": "131072"}
"""Settings that save memory (docs/design/scale.md)."""
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
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.description": "A Kubernetes operator for TFJob",
        "org.opencontainers.image.licenses": "Apache-2.0",
    },
}


def build(target: Path, full_name: str = IMAGE) -> str:
    """Write the image to `target`, an OCI archive, and its SBOM beside it. Return the digest of the image's index.

    full_name: that of the image with its tag, under which nodes import the archive.
    Raises ControlPlaneError if not root, if there is no Debian mirror, or if a tool fails.
    """
    if os.geteuid() != 0:
        raise ControlPlaneError("root is required to build the image: debootstrap creates device files")
    progress = Progress("image")
    runner = LoggedRunner(packages.root() / "image.log", progress)
    with tempfile.TemporaryDirectory(prefix="image-", dir=packages.root()) as name:
        work = Path(name)
        base, tree = _debian(work, runner, progress), work / "base"
        tree.mkdir()
        runner.run("tar", "-xf", str(base.path), "-C", str(tree), limit_s=300.0)
        made = [base, _dependencies(work, tree, runner, progress), _operator(work, tree, runner)]
        digest = write(target, full_name, made, CONFIG)
        locked = digests_of(REQUIREMENTS.read_text())
        parts = document(image_component(full_name, digest), made, release=RELEASE, locked=locked)
    parts_list(target).write_text(json.dumps(parts, indent=1) + "\n")
    progress.say(f"{target}: {target.stat().st_size / 1e6:.0f} MB, {digest}, with {len(parts['components'])} packages")
    return digest


def parts_list(image: Path) -> Path:
    """Return the path of an image's SBOM: beside its archive, with CycloneDX's suffix."""
    return image.with_suffix(".cdx.json")


def _debian(work: Path, runner: LoggedRunner, progress: Progress) -> Layer:
    kept = packages.root() / f"image-{RELEASE}-{_digest()}.tar"
    if kept.exists() and time.time() - kept.stat().st_mtime < RENEWED_AFTER_S:
        return read(kept)
    packages.install(["debootstrap"])
    progress.say(f"debootstrap: Debian {RELEASE} with Python, about a minute")
    sources = sources_of(RELEASE, debian_sources())
    if not sources:
        raise ControlPlaneError("apt on this machine has no Debian archive; run `apt-get update`")
    tree = work / "debian"
    options = ("--variant=minbase", "--include=python3", "--force-check-gpg")
    runner.run("debootstrap", *options, RELEASE, str(tree), sources[0].uri, limit_s=1800.0)
    for unused in UNUSED:
        shutil.rmtree(tree / unused, ignore_errors=True)
    library = f"usr/lib/python{PYTHON}"
    for compiled in (tree / library).rglob("__pycache__"):  # Debian's bytecode, which has docstrings
        shutil.rmtree(compiled)
    skip = ("-x", "/(lib2to3|test)/")  # some files are not Python 3
    runner.run("chroot", str(tree), "/usr/bin/python3", *COMPILE, *skip, f"/{library}", limit_s=600.0)
    return pack(tree, kept)


def _dependencies(work: Path, tree: Path, runner: LoggedRunner, progress: Progress) -> Layer:
    kept = packages.root() / f"image-dependencies-{_digest(REQUIREMENTS.read_bytes())}.tar"
    if kept.exists():
        return read(kept)
    progress.say("installing the operator's dependencies into a separate layer")
    site = work / "dependencies" / SITE
    # The lock is complete; pip would select further packages by the version of this machine's Python.
    _pip(runner, "install", f"--target={site}", "--no-deps", "--require-hashes", f"--requirement={REQUIREMENTS}")
    _finish(site, tree, runner)
    return pack(work / "dependencies", kept)


def _operator(work: Path, tree: Path, runner: LoggedRunner) -> Layer:
    # Build in a copy, because setuptools writes folders next to the sources.
    sources = work / "sources"
    sources.mkdir()
    for name in SOURCES:
        path = PROJECT / name
        if path.is_dir():
            shutil.copytree(path, sources / name, symlinks=True)
        else:
            shutil.copy(path, sources / name)
    # In a separate environment: with build isolation pip would download the tools in any version.
    venv.create(work / "tools", with_pip=True)
    python, wheels = str(work / "tools" / "bin" / "python"), work / "wheels"
    tools = ("--require-hashes", "--only-binary=:all:", f"--requirement={BUILD_REQUIREMENTS}")
    runner.run(python, "-m", "pip", "install", "--quiet", *tools, limit_s=600.0)
    wheel = ("--no-deps", "--no-build-isolation", f"--wheel-dir={wheels}", str(sources))
    runner.run(python, "-m", "pip", "wheel", "--quiet", *wheel, limit_s=600.0)
    site = work / "operator" / SITE
    _pip(runner, "install", f"--target={site}", "--no-deps", *map(str, wheels.glob("*.whl")))
    _finish(site, tree, runner)
    return pack(work / "operator", work / "operator.tar")


def _pip(runner: LoggedRunner, *arguments: str) -> None:
    # For the image's Python, which may differ from this one.
    target = ("--only-binary=:all:", f"--python-version={PYTHON}", "--no-compile", "--quiet")
    runner.run(sys.executable, "-m", "pip", *arguments, *target, limit_s=900.0)


def requirements() -> list[str]:
    """Return the requirements in setup.cfg of the operator and the dashboard, which use the same image."""
    both = SETUP["options"]["install_requires"], SETUP["options.extras_require"]["dashboard"]
    return [line for each in both for line in each.split("\n")[1:]]


def _finish(site: Path, tree: Path, runner: LoggedRunner) -> None:
    """Remove unused files and compile the rest with the image's own Python, whose root `tree` is."""
    for unused in (site / "bin", *site.rglob("tests")):
        shutil.rmtree(unused, ignore_errors=True)
    for name in OF_PIP:
        for file in site.glob(f"*.dist-info/{name}"):
            file.unlink()
    inside = tree / SITE
    inside.parent.mkdir(exist_ok=True)
    shutil.move(site, inside)
    runner.run("chroot", str(tree), "/usr/bin/python3", *COMPILE, f"/{SITE}", limit_s=600.0)
    shutil.move(inside, site)


def _digest(content: bytes = b"") -> str:
    """Return the digest in the name of a cached layer: of its content, the omitted files, Python, and the compile options."""
    return hashlib.sha256(content + " ".join((*UNUSED, *OF_PIP, PYTHON, *COMPILE)).encode()).hexdigest()[:16]
