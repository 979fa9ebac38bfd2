"""The Dockerfile, as far as it can be checked without a registry: what it copies is there, and it agrees with `hack.image`."""

from __future__ import annotations

import re
from pathlib import Path

from hack.image import build

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COPIED = [name for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for name in line.split()[:-1]]


def test_what_is_copied_is_there_and_gets_past_dockerignore() -> None:
    """A file that is ignored is missing in the build, with an error that names neither file."""
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert COPIED
    for name in COPIED:
        assert (ROOT / name).exists(), name
        assert name in let_in, name


def test_both_ways_to_the_image_copy_the_same_sources() -> None:
    """A new package of ours has to get into both."""
    assert set(COPIED) == {*build.SOURCES, "hack/constraints.txt"}


def test_both_images_have_the_same_user_and_labels() -> None:
    """And neither is root's."""
    assert f"USER {build.USER}" in DOCKERFILE.splitlines()
    assert build.CONFIG["User"] == build.USER == "65532:65532"
    for label, value in build.CONFIG["Labels"].items():
        assert f'{label}="{value}"' in DOCKERFILE
