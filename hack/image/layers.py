"""Folders to image layers: uncompressed tar files with the same bytes for the same content.

In: a folder of this machine. Out: a tar file, owned by root, its entries sorted and without the times of this run.
"""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer on disk. `digest` is the hex SHA-256 of the tar file, `size` its bytes."""

    path: Path
    digest: str
    size: int


def pack(folder: Path, target: Path, prefix: str = "") -> Layer:
    """Pack the content of `folder` into the tar file `target`, below `prefix` in the image; devices are left out."""

    def normal(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if entry.isdev():
            return None
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        return entry

    draft = target.with_name(f"{target.name}.draft")
    with tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, arcname=f"{prefix}{path.name}", filter=normal)
    draft.rename(target)
    return read(target)


def read(path: Path) -> Layer:
    """Return the layer in a tar file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Layer(path, digest, path.stat().st_size)
