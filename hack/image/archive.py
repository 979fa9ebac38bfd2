"""Layers to one OCI archive, which `ctr images import`, `docker load`, `podman load` and `skopeo` read.

In: layers in their order, the image's name and configuration. Out: one tar file in the layout of the OCI image
specification 1.0: `oci-layout`, `index.json`, and blobs named by their SHA-256. As in an archive of `docker save` (since
Docker 25) there is a `manifest.json` too, which is all that `docker load` and minikube's Docker look for.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hack.control_plane.build.commands import output_of
from hack.image.layers import Layer

MEDIA = "application/vnd.oci.image"


def write(target: Path, name: str, layers: Sequence[Layer], config: Mapping[str, Any]) -> str:
    """Write the archive of an image for this machine's architecture; return the digest of its manifest, by which it is pulled.

    `config` is the part of that name in OCI's configuration: User, Entrypoint, Env, Labels. Raises ControlPlaneError.
    """
    draft = target.with_name(f"{target.name}.draft")
    with tarfile.open(draft, "w") as archive:
        _add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        for layer in layers:
            archive.add(layer.path, arcname=f"blobs/sha256/{layer.digest}", filter=_bare)
        image = {
            "architecture": output_of("dpkg", "--print-architecture").strip(),  # Debian's names are OCI's
            "os": "linux",
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
        described = _blob(archive, f"{MEDIA}.manifest.v1+json", manifest)
        described["annotations"] = {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        }
        _add(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [described]}).encode())
        docker = {
            "Config": f"blobs/{settings['digest'].replace(':', '/')}",
            "RepoTags": [name],
            "Layers": [f"blobs/sha256/{layer.digest}" for layer in layers],
        }
        _add(archive, "manifest.json", json.dumps([docker]).encode())
    draft.rename(target)
    return str(described["digest"])


def _blob(archive: tarfile.TarFile, media_type: str, content: Mapping[str, Any]) -> dict[str, Any]:
    data = json.dumps(content, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    _add(archive, f"blobs/sha256/{digest}", data)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def _bare(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
