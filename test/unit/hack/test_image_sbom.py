"""What the image is made of, as a document of CycloneDX."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from hack.image import build
from hack.image.build import DPKG, IMAGE, REQUIREMENTS, Layer, digests_of, document, image_component, parts_list

DIGEST: Final = f"sha256:{'a' * 64}"
OTHER_DIGEST: Final = f"sha256:{'b' * 64}"
LOCK: Final = f"# made\nMsg.Spec==0.22.0 \\\n    --hash=sha256:{'1' * 64} \\\n    --hash=sha256:{'2' * 64}\n"
STATUS: Final = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u13
Description: GNU C Library
 with a second line

Package: python3
Status: install ok installed
Architecture: amd64
Version: 3.11.2-1+b1
"""
MSGSPEC: Final = "Metadata-Version: 2.4\nName: msg_spec\nVersion: 0.22.0\nLicense-Expression: BSD-3-Clause\n\nText.\n"
OURS: Final = "Metadata-Version: 2.1\nName: tfjob-operator\nVersion: 0.1.0\nLicense: Apache-2.0\n\nName: not a field\n"


def packed(folder: Path, name: str, **files: str) -> Layer:
    """A layer with these files."""
    for path, text in files.items():
        file = folder / name / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return build.pack(folder / name, folder / f"{name}.tar")


@pytest.fixture
def image(tmp_path: Path) -> list[Layer]:
    """The layers of a small image."""
    return [
        packed(tmp_path, "debian", **{DPKG: STATUS, "usr/bin/tool": "METADATA"}),
        packed(tmp_path, "dependencies", **{"opt/x/msg_spec-0.22.0.dist-info/METADATA": MSGSPEC}),
        packed(tmp_path, "operator", **{"opt/x/tfjob_operator-0.1.0.dist-info/METADATA": OURS}),
    ]


def described(image: list[Layer], digest: str = DIGEST) -> dict[str, Any]:
    return document(image_component(IMAGE, digest), image, release="bookworm", locked=digests_of(LOCK))


def test_every_package_in_the_image_is_a_component(image: list[Layer]) -> None:
    """D23: Debian's and Python's, by the names that databases of vulnerabilities know them by; wheels with their digests."""
    components = {each["name"]: each for each in described(image)["components"]}
    purls = {name: each.get("purl") for name, each in components.items()}
    assert purls == {
        "libc6": "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64&distro=bookworm",
        "python3": "pkg:deb/debian/python3@3.11.2-1%2Bb1?arch=amd64&distro=bookworm",
        "msg-spec": "pkg:pypi/msg-spec@0.22.0",
        "tfjob-operator": None,
    }
    assert [each["content"] for each in components["msg-spec"]["hashes"]] == ["1" * 64, "2" * 64]
    assert components["msg-spec"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert components["tfjob-operator"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]


def test_the_document_names_its_image_and_is_the_same_for_the_same_image(image: list[Layer]) -> None:
    """By the digest of the manifest, by which an image is pulled. No time and no random number is in it."""
    first = described(image)
    assert first["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert json.dumps(first) == json.dumps(described(image))
    assert first["serialNumber"] != described(image, OTHER_DIGEST)["serialNumber"]


def test_a_package_that_is_not_locked_can_not_get_into_the_image_unseen(image: list[Layer]) -> None:
    """D23."""
    with pytest.raises(KeyError, match="msg-spec"):
        document(image_component(IMAGE, DIGEST), image, release="bookworm", locked={})


def test_all_digests_of_the_lock_are_read() -> None:
    """As many as are in the file."""
    text = REQUIREMENTS.read_text()
    locked = digests_of(text)
    assert len(locked) == text.count("==")
    assert sum(map(len, locked.values())) == text.count("--hash=")


def test_it_lies_beside_the_archive(tmp_path: Path) -> None:
    """With the ending by which tools know the format."""
    assert parts_list(tmp_path / "tfjob-operator.tar") == tmp_path / "tfjob-operator.cdx.json"
