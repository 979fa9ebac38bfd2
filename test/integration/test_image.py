"""The image of `make image` is reproducible, and has a valid SBOM."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from hack import packages
from hack.debian import IMAGE, IMAGE_PYTHON
from hack.image.build import OPTIMIZE, PROJECT, REQUIREMENTS, digests_of, parts_list
from support.machine import lacks

BUILD_LIMIT_S: Final = 900.0
VALIDATE: Final = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(sys.stdin.read())
sys.exit(None if error is None else str(error))
"""

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(os.geteuid() != 0, reason=lacks("root, who can build the image", "sudo")),
]


def build(target: Path, **environ: str) -> Path:
    """Build the image as `make image` does. Skips the test where there is no mirror of Debian's, or no index of packages."""
    command = [sys.executable, "-m", "hack.image", str(target)]
    settings = {**os.environ, **environ}
    done = subprocess.run(
        command, cwd=PROJECT, env=settings, capture_output=True, text=True, check=False, timeout=BUILD_LIMIT_S
    )
    if done.returncode:
        pytest.skip(f"the image can not be built here: {done.stderr[-600:]}")
    return target


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image, with whatever layers this machine has kept."""
    return build(tmp_path_factory.mktemp("image") / "first.tar")


def manifest_of(image: Path) -> dict[str, Any]:
    with tarfile.open(image) as archive:
        index = archive.extractfile("index.json")
        assert index is not None
        manifest, _ = json.loads(index.read())["manifests"]
    return dict(manifest)


def test_an_image_that_is_built_twice_has_the_same_digest(image: Path, tmp_path: Path) -> None:
    """D23: its packages are installed and compiled anew; Debian's archive changes from day to day, so that layer is kept."""
    kept = tmp_path / "cache" / packages.root().name
    kept.mkdir(parents=True)
    for layer in packages.root().glob(f"image-{IMAGE}-*.tar"):
        shutil.copy2(layer, kept)  # with its time: an old one is made again
    again = build(tmp_path / "second.tar", XDG_CACHE_HOME=str(kept.parent))
    assert [*kept.glob("image-dependencies-*.tar")]  # made, not found
    assert manifest_of(again)["digest"] == manifest_of(image)["digest"]
    assert parts_list(again).read_bytes() == parts_list(image).read_bytes()


def test_the_list_of_its_parts_has_all_that_is_locked_and_is_of_that_image(image: Path) -> None:
    """D23: with Debian's packages, of which Python is one."""
    parts = json.loads(parts_list(image).read_bytes())
    own = parts["metadata"]["component"]["hashes"][0]["content"]
    assert manifest_of(image)["digest"] == f"sha256:{own}"
    purls = {each["purl"].partition("?")[0] for each in parts["components"] if "purl" in each}
    locked = {f"pkg:pypi/{name}@{version}" for name, version in digests_of(REQUIREMENTS.read_text())}
    assert {purl for purl in purls if purl.startswith("pkg:pypi/")} == locked
    assert any(purl.startswith(f"pkg:deb/debian/python{IMAGE_PYTHON}@") for purl in purls)


def test_its_bytecode_is_that_of_its_own_python(image: Path) -> None:
    """Bytecode of the Python that built it would be ignored, and each start would compile everything."""
    used, compiled = ("opt/", f"usr/lib/python{IMAGE_PYTHON}/"), list[str]()
    with tarfile.open(image) as archive:
        listed = archive.extractfile("manifest.json")
        assert listed is not None
        for layer in json.loads(listed.read())[0]["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as files:
                compiled += [name for name in files.getnames() if name.startswith(used) and name.endswith(".pyc")]
    assert "opt/tfjob-operator/tfjob_operator/controller/__pycache__" in {str(Path(name).parent) for name in compiled}
    suffix = f".cpython-{IMAGE_PYTHON.replace('.', '')}.opt-{OPTIMIZE}.pyc"
    assert [name for name in compiled if not name.endswith(suffix)] == []


def test_the_list_of_its_parts_is_valid_by_the_schema_of_cyclonedx(image: Path) -> None:
    """By the validator of CycloneDX's own library."""
    tools = subprocess.run(
        ["hack/advisories.sh", "--tools"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    if not Path(tools.strip()).is_dir():
        pytest.skip(lacks("the validator of CycloneDX", "hack/advisories.sh"))
    done = subprocess.run(
        [sys.executable, "-c", VALIDATE],
        input=parts_list(image).read_text(),
        env={**os.environ, "PYTHONPATH": tools.strip()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
