"""What is in the image: its software bill of materials, a CycloneDX 1.5 document beside the archive.

In: the image's layers, which know what they hold (dpkg's list of packages, the metadata of Python's packages), and the lock,
which has the digests of the wheels. Out: one JSON document, the same for the same image: it has no time and no random number.
"""

from __future__ import annotations

import re
import tarfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from email.message import Message
from email.parser import HeaderParser
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import quote

from packaging.utils import canonicalize_name

from hack.image.layers import Layer

DPKG: Final = "var/lib/dpkg/status"
METADATA: Final = "*.dist-info/METADATA"
_LOCKED: Final = re.compile(r"^(\S+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)
_NAMESPACE: Final = uuid.UUID("6f0b1c0a-9a3e-5f57-9a55-8d1f6c1b7f55")
"""Of the serial numbers, which are made of the image's digest. Any UUID would do."""

Digests = dict[tuple[str, str], list[str]]
"""SHA-256 of the files of a package, by its name and version: one for each kind of machine that it has a file for."""


def digests_of(lock: str) -> Digests:
    """Return the digests in a requirements file."""
    found = _LOCKED.findall(lock)
    return {(canonicalize_name(name), version): re.findall("[0-9a-f]{64}", digests) for name, version, digests in found}


def document(name: str, digest: str, layers: Sequence[Layer], *, release: str, locked: Digests) -> dict[str, Any]:
    """Return the document of an image.

    name: as a container runtime calls it, with its tag. digest: that of its manifest. release: the Debian release in it.
    locked: of the wheels in it. Raises KeyError for a Python package that is neither locked nor of this project.
    """
    repository, _, version = name.rpartition(":")
    own = repository.rpartition("/")[2]
    components = [
        component for layer in layers for component in _components(layer, own=own, release=release, locked=locked)
    ]
    image = {
        "type": "container",
        "bom-ref": f"pkg:oci/{own}@{quote(digest)}?tag={version}",
        "name": own,
        "version": version,
        "purl": f"pkg:oci/{own}@{quote(digest)}?tag={version}",
        "hashes": [_hash(digest.removeprefix("sha256:"))],
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(_NAMESPACE, digest).urn,
        "version": 1,
        "metadata": {"component": image},
        "components": sorted(components, key=lambda each: each["bom-ref"]),
    }


def _components(layer: Layer, *, own: str, release: str, locked: Digests) -> Iterator[dict[str, Any]]:
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
                yield _of_python(HeaderParser().parsestr(file.read().decode()), own, locked)


def _of_debian(package: Message, release: str) -> dict[str, Any]:
    name, version, architecture = (str(package[key]) for key in ("Package", "Version", "Architecture"))
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}&distro={release}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _of_python(package: Message, own: str, locked: Digests) -> dict[str, Any]:
    name, version = canonicalize_name(str(package["Name"])), str(package["Version"])
    purl = f"pkg:pypi/{name}@{quote(version)}"
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if name == own:
        found["type"] = "application"
        del found["purl"]  # it is in no index
    else:
        found["hashes"] = [_hash(each) for each in locked[name, version]]
    if licence := _licence(package):
        found["licenses"] = [licence]
    return found


def _licence(package: Message) -> Mapping[str, Any] | None:
    """Return the licence as the package tells it: an SPDX expression since metadata 2.4, before that any words."""
    if expression := package["License-Expression"]:
        return {"expression": str(expression)}
    words = str(package["License"] or "").strip().partition("\n")[0]
    return {"license": {"name": words}} if words else None


def _hash(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}
