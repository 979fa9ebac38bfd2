"""The artifacts of a release: its image, its chart, and all other files.

Each is a manifest and blobs, as in the OCI image specification 1.1. They contain no times, so the same files give the same
digests.
"""

import hashlib
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from hack.control_plane.build.commands import ControlPlaneError
from hack.image.build import INDEX, MEDIA, OWN, VERSION

MANIFEST: Final = f"{MEDIA}.manifest.v1+json"
IMAGE: Final = OWN
"""The repository of the image. That of the chart has the chart's name, as Helm requires."""
FILES: Final = f"{OWN}-release"
"""The repository of all other files."""
TITLE: Final = "org.opencontainers.image.title"
"""The annotation with the name under which clients such as oras save a file."""


class Manifest(NamedTuple):
    """A manifest or an index, as it is stored."""

    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        """Return `sha256:` and the digest of the stored bytes."""
        return digest_of(self.data)


class Artifact(NamedTuple):
    """What is pushed to one repository.

    blobs: by digest. manifests: in the order in which they are pushed; the last one gets the tag.
    """

    repository: str
    blobs: dict[str, bytes | Path]
    manifests: tuple[Manifest, ...]

    @property
    def digest(self) -> str:
        """Return the digest by which clients refer to the artifact."""
        return self.manifests[-1].digest


def digest_of(data: bytes) -> str:
    """Return `sha256:` and the hex digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def image(archive: Path, work: Path) -> Artifact:
    """Return the image in an OCI archive, which is unpacked into the folder `work`.

    Raises ControlPlaneError if it has no index.
    """
    with tarfile.open(archive) as packed:
        packed.extractall(work, filter="data")

    def stored(described: dict[str, Any]) -> Path:
        return work / "blobs" / str(described["digest"]).replace(":", "/")

    top = json.loads((work / "index.json").read_bytes())["manifests"][0]
    if top["mediaType"] != INDEX:
        raise ControlPlaneError(
            f"{archive.name} was built by an older version, without an index: build the release again"
        )
    index = Manifest(INDEX, stored(top).read_bytes())
    manifests = [Manifest(each["mediaType"], stored(each).read_bytes()) for each in json.loads(index.data)["manifests"]]
    blobs: dict[str, bytes | Path] = {}
    for manifest in map(json.loads, (each.data for each in manifests)):
        blobs |= {each["digest"]: stored(each) for each in (manifest["config"], *manifest["layers"])}
    return Artifact(IMAGE, blobs, (*manifests, index))


def chart(package: Path) -> Artifact:
    """Return a Helm chart as `helm pull oci://...` expects it."""
    data = package.read_bytes()
    with tarfile.open(package) as packed:
        name = min(packed.getnames(), key=len).partition("/")[0]
        metadata = packed.extractfile(f"{name}/Chart.yaml")
        about = yaml.safe_load(metadata.read()) if metadata else {}
    annotations = {f"org.opencontainers.image.{key}": about[key] for key in ("version", "description")}
    config = json.dumps(about, sort_keys=True).encode()
    manifest = {
        "config": _described("application/vnd.cncf.helm.config.v1+json", config),
        "layers": [_described("application/vnd.cncf.helm.chart.content.v1.tar+gzip", data)],
        "annotations": {TITLE: name, **annotations},
    }
    return Artifact(name, {digest_of(each): each for each in (config, data)}, (_manifest(manifest),))


def files(paths: Sequence[Path]) -> Artifact:
    """Return files as one artifact, each with its name as the title."""
    config = b"{}"
    blobs: dict[str, bytes | Path] = {digest_of(config): config}
    layers = []
    for path in paths:
        data = path.read_bytes()
        layers.append({**_described("application/octet-stream", data), "annotations": {TITLE: path.name}})
        blobs[digest_of(data)] = path
    manifest = {
        "artifactType": "application/vnd.tfjob-operator.release",
        "config": _described("application/vnd.oci.empty.v1+json", config),
        "layers": layers,
        "annotations": {TITLE: FILES, "org.opencontainers.image.version": VERSION},
    }
    return Artifact(FILES, blobs, (_manifest(manifest),))


def _described(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(data), "size": len(data)}


def _manifest(content: dict[str, Any]) -> Manifest:
    return Manifest(
        MANIFEST, json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, **content}, sort_keys=True).encode()
    )
