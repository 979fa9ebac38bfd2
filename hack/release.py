"""`make release`: build all files of a version in build/release/, with checksums, a signature and provenance.

    python -m hack.release --version=VERSION --key=release.key [--url=URL] [--registry=HOST/PATH]
    python -m hack.release --dry-run

A release is built from a clean checkout whose commit has the tag of the version. A dry run builds the same files from any
checkout, and signs them with a key that is not kept. Needs root, for the image.

The version, URL and registry are maintained in setup.cfg; `make renew` copies them into every other file that names them
(`versioned`).
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from packaging.utils import parse_wheel_filename

from hack import library, packages
from hack.chart.__main__ import pack as pack_chart
from hack.control_plane.build.binaries import find_or_build_programs
from hack.control_plane.build.commands import ControlPlaneError, Progress, output_of
from hack.image import build as image
from hack.image.build import OWN, PROJECT, SETUP, VERSION
from hack.plugin import archive as plugin
from hack.plugin.archive import Packed
from tfjob_operator.cli.yaml_text import yaml_text

OUTPUT: Final = PROJECT / "build" / "release"
SUMS: Final = "SHA256SUMS"
SIGNATURE: Final = "SHA256SUMS.sig"
PUBLIC_KEY: Final = "release.pub"
PROVENANCE: Final = "provenance.intoto.json"
INSTALLS: Final = {
    "standalone": "install.yaml",
    "kubeflow": "install-kubeflow.yaml",
    "namespaced": "install-namespaced.yaml",
    "monitoring": "install-monitoring.yaml",
}
"""The file that is made of each overlay."""
BUILDER: Final = "urn:tfjob-operator:make-release"

URL: Final = SETUP["release"]["url"]
"""The address that has a folder with the files of each version."""
REGISTRY: Final = SETUP["release"]["registry"]
"""The OCI registry of releases, with the path of their repositories; empty if there is none."""
EXAMPLE_REGISTRY: Final = "registry.example.com/team"
"""In the documentation, while there is no registry."""

# The version in other files.

VERSIONED: Final = (
    "Dockerfile",
    "CONTRIBUTING.md",
    "Makefile",
    "README.md",
    "controller/options.py",
    "docs/install.md",
    "docs/operations.md",
    "manifests/addons/page-base/deployment.yaml",
    "manifests/base/deployment.yaml",
    "manifests/chart/Chart.yaml",
    "manifests/overlays/kubeflow/kustomization.yaml",
    "manifests/overlays/standalone/kustomization.yaml",
)
_VERSION: Final = re.compile(
    r"((?:tfjob[-_]operator(?:-image|-manifests|-release)?[:/-]|tf-job-operator-chart-|kubecontrollers-"
    r"|VERSION=|--version |(?:tag|example) `v?|\.tar:)"
    r"|VERSION: Final = \"|image\.version=\"|^(?:appV|v)ersion: )\d+\.\d+\.\d+",
    re.MULTILINE,
)


_ADDRESSES: Final = (
    (re.compile(r"((?:export RELEASE|URL)=)\S+(?=/\d+\.\d+\.\d+)"), URL),
    (re.compile(r"(export REGISTRY=)\S+"), REGISTRY or EXAMPLE_REGISTRY),
)


def versioned() -> dict[Path, str]:
    """Return the files that name the version, each with its text updated to the version and addresses in setup.cfg."""
    return {PROJECT / name: _updated((PROJECT / name).read_text()) for name in VERSIONED}


def _updated(text: str) -> str:
    for pattern, current in ((_VERSION, VERSION), *_ADDRESSES):
        text = pattern.sub(rf"\g<1>{current}", text)
    return text


# What is released.


class Source(NamedTuple):
    """The commit that is built, and its time in seconds since 1970."""

    commit: str
    time: str


def source(version: str, *, dry_run: bool) -> Source:
    """Return the commit of this checkout.

    Raises ControlPlaneError if the commit does not have the version's tag, or the checkout has changes.
    """
    if version != VERSION:
        raise ControlPlaneError(
            f"setup.cfg has version {VERSION}, not {version}: change it there, then run `make renew`"
        )
    if not dry_run:
        if changes := _git("status", "--porcelain"):
            raise ControlPlaneError(f"the checkout has changes that are not committed:\n{changes}")
        if f"v{version}" not in _git("tag", "--points-at=HEAD").split():
            raise ControlPlaneError(f"the commit of this checkout does not have the tag v{version}")
    return Source(*_git("log", "-1", "--format=%H %ct").split())


def _git(*arguments: str) -> str:
    return output_of("git", "-C", str(PROJECT), *arguments).strip()


def build(target: Path, made_of: Source, url: str, registry: str) -> None:
    """Write the files of a release, without checksums and signature. Raises ControlPlaneError, CalledProcessError.

    registry: that of the image in manifests and chart; empty if the image is loaded into nodes.
    """
    progress = Progress("release")
    os.environ["SOURCE_DATE_EPOCH"] = made_of.time
    os.umask(0o022)  # modes of files are recorded in packages
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="tfjob-release-") as name:
        scratch = Path(name)
        progress.say("wheels and source distribution")
        wheel = plugin.build_wheel(scratch)
        for made in (wheel, plugin.build_sdist(scratch), library.build_wheel(scratch)):
            shutil.copy(made, target)
        progress.say("the operator's image")
        full_name = f"{registry}/{OWN}:{VERSION}" if registry else image.IMAGE
        short_name = full_name.removeprefix("docker.io/library/")
        reference = f"{short_name}@{_image(target, full_name)}"
        progress.say("manifests and chart")
        _manifests(target, reference)
        pack_chart(target, image=reference)
        progress.say("the plugin, for each platform")
        packed = plugin.pack_all(wheel, target)
        (target / plugin.MANIFEST).write_text(yaml_text(plugin.manifest(VERSION, url, packed), sort_keys=False))
        for each in packed:
            _write_json(target / each.platform.archive.replace(".tar.gz", ".cdx.json"), plugin_parts(target, each))
    _write_json(target / PROVENANCE, provenance(checksums(target), made_of))
    progress.say(f"{target}: {len(list(target.iterdir()))} files")


def _image(target: Path, full_name: str) -> str:
    """Build the image into build/, where `make e2e` finds it, and write a compressed copy into `target`.

    Return its digest.
    """
    built = PROJECT / "build" / "tfjob-operator.tar"
    digest = image.build(built, full_name)
    name = f"tfjob-operator-image-{VERSION}-{output_of('dpkg', '--print-architecture').strip()}"
    with (
        built.open("rb") as plain,
        (target / f"{name}.tar.gz").open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0, filename="") as compressed,
    ):
        shutil.copyfileobj(plain, compressed)
    shutil.copy(image.parts_list(built), target / f"{name}.cdx.json")
    return digest


def _manifests(target: Path, reference: str) -> None:
    kubectl = find_or_build_programs(["kubectl"])["kubectl"]
    manifests = PROJECT / "manifests"
    for overlay, name in INSTALLS.items():
        text = output_of(str(kubectl), "kustomize", str(manifests / "overlays" / overlay))
        (target / name).write_text(with_image(text, reference))
    files = {
        str(path.relative_to(PROJECT)): (path.read_bytes(), 0o644)
        for path in manifests.rglob("*")
        if path.is_file() and manifests / "chart" not in path.parents
    }
    (target / f"tfjob-operator-manifests-{VERSION}.tar.gz").write_bytes(plugin.pack(files))


def with_image(text: str, reference: str) -> str:
    """Return manifests whose pods run the operator's image by this reference."""
    return re.sub(r"(?<=image: )tfjob-operator:\S+", reference, text)


def plugin_parts(target: Path, packed: Packed) -> dict[str, Any]:
    """Return the SBOM of the plugin for one platform."""
    locked: dict[tuple[str, str], list[str]] = {}
    for wheel in packed.wheels:
        name, version, *_ = parse_wheel_filename(wheel.name)
        locked.setdefault((name, str(version)), []).append(hashlib.sha256(wheel.read_bytes()).hexdigest())
    system = packed.platform
    purl = f"pkg:generic/kubectl-tfjob@{VERSION}?arch={system.arch}&os={system.os}"
    subject = image.component("application", "kubectl-tfjob", VERSION, purl, packed.digest)
    return image.document(subject, [image.read(target / system.archive)], locked=locked)


def provenance(digests: Mapping[str, str], made_of: Source) -> dict[str, Any]:
    """Return the provenance of files with their SHA-256: an in-toto statement with an SLSA 1.0 predicate."""
    python = ".".join(map(str, sys.version_info[:3]))
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{BUILDER}:v1",
                "externalParameters": {"version": VERSION},
                "internalParameters": {"SOURCE_DATE_EPOCH": made_of.time},
                "resolvedDependencies": [{"name": "tfjob-operator", "digest": {"gitCommit": made_of.commit}}],
            },
            "runDetails": {"builder": {"id": BUILDER, "version": {"python": python}}},
        },
    }


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")


# Checksums and the signature.


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder, keyed and sorted by file name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def sign(folder: Path, key: Path) -> None:
    """Write the checksums of all files, their signature and the public key; verify the signature. Raises ControlPlaneError."""
    sums, signature, public = (str(folder / name) for name in (SUMS, SIGNATURE, PUBLIC_KEY))
    Path(sums).write_text("".join(f"{digest}  {name}\n" for name, digest in checksums(folder).items()))
    output_of("openssl", "pkey", "-in", str(key), "-pubout", "-out", public)
    output_of("openssl", "dgst", "-sha256", "-sign", str(key), "-out", signature, sums)
    verify(folder)


def verify(folder: Path) -> list[str]:
    """Verify signature and checksums as users do; return the names of the signed files. Raises ControlPlaneError."""
    sums, signature, public = (str(folder / name) for name in (SUMS, SIGNATURE, PUBLIC_KEY))
    if not Path(sums).is_file():
        raise ControlPlaneError(f"{folder} has no signed release: build one with `make release`")
    output_of("openssl", "dgst", "-sha256", "-verify", public, "-signature", signature, sums)
    signed = {name: digest for digest, name in map(str.split, Path(sums).read_text().splitlines())}
    found = checksums(folder)
    if changed := [name for name, digest in signed.items() if found.get(name) != digest]:
        raise ControlPlaneError(f"{folder}: missing or not as signed: {', '.join(changed)}")
    return [*signed]


def check(key: Path) -> None:
    """Sign an empty folder. Raises ControlPlaneError if that fails: README.md verifies signatures with `openssl dgst`."""
    with tempfile.TemporaryDirectory(prefix="tfjob-key-") as folder:
        try:
            sign(Path(folder), key)
        except ControlPlaneError as error:
            needed = "an RSA or ECDSA key without a passphrase, such as `openssl ecparam -name prime256v1 -genkey`"
            raise ControlPlaneError(f"{key} cannot sign a release, which needs {needed}: {error}") from error


def new_key(path: Path) -> Path:
    """Write a new private key for signatures, and return its path. Raises ControlPlaneError."""
    output_of("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
    return path


def main() -> int:
    """Build a release; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.release", description="Build the files of a release.")
    parser.add_argument(
        "--version", default=VERSION, help="the version, which must be that of setup.cfg and of the tag"
    )
    parser.add_argument("--key", type=Path, help="the private key that signs the checksums, a PEM file")
    parser.add_argument("--url", default=f"{URL}/{VERSION}", help="where the files will be published")
    parser.add_argument("--registry", default=REGISTRY, help="the registry of the image, HOST[:PORT][/PATH]")
    parser.add_argument("--dry-run", action="store_true", help="from any checkout, signed with a key that is not kept")
    given = parser.parse_args()
    if given.key is None and not given.dry_run:
        parser.error("a release is signed: --key=FILE (`make release VERSION=... KEY=FILE`); without one, --dry-run")
    if given.key is not None and not given.key.is_file():
        parser.error(f"--key={given.key}: no such file")
    try:
        made_of = source(given.version, dry_run=given.dry_run)
        packages.install(["openssl"])
        with tempfile.TemporaryDirectory(prefix="tfjob-key-") as folder:
            key = given.key or new_key(Path(folder) / "release.key")
            check(key)
            build(OUTPUT, made_of, given.url, given.registry)
            sign(OUTPUT, key)
    except (ControlPlaneError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in sorted(OUTPUT.iterdir()):
        print(f"{path.stat().st_size / 1e6:9.3f} MB  {path.relative_to(PROJECT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
