"""The Dockerfile, as far as it can be checked without a registry: the files it copies exist, and `hack.image` agrees."""

import re
from pathlib import Path

from hack.debian import IMAGE as RELEASE
from hack.debian import IMAGE_PYTHON as PYTHON
from hack.image import build

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COPIED = [name for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for name in line.split()[:-1]]


def test_what_is_copied_is_there_and_gets_past_dockerignore() -> None:
    """An ignored file is missing in the build, with an error that does not mention .dockerignore."""
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert COPIED
    for name in COPIED:
        assert (ROOT / name).exists(), name
        assert name in let_in, name


def test_both_ways_to_the_image_copy_the_same_sources() -> None:
    """A new package of ours has to get into both."""
    locks = {str(file.relative_to(ROOT)) for file in (build.REQUIREMENTS, build.BUILD_REQUIREMENTS)}
    assert set(COPIED) == {*build.SOURCES, *locks}


def test_whatever_is_installed_is_what_it_was_when_it_was_chosen() -> None:
    """D23: each file is pinned by its digest, and pip fetches no build tool by itself; the base has at least a full version."""
    installs = re.findall(r"pip install (.+?)(?: \\)?$", DOCKERFILE, re.MULTILINE)
    assert len(installs) == 3
    for options in installs:
        assert "--require-hashes" in options or {"--no-deps", "--no-build-isolation"} <= set(options.split())
    assert re.search(
        rf"^ARG BASE=python:{re.escape(PYTHON)}\.\d+-slim-{RELEASE}(@sha256:[0-9a-f]{{64}})?$", DOCKERFILE, re.MULTILINE
    )
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${BASE}"}


def test_both_images_start_python_with_the_same_settings() -> None:
    """Above all those of memory; and the images have the bytecode that a Python with these settings looks for."""
    for variable in build.CONFIG["Env"]:
        if not variable.startswith(("PATH=", "PYTHONPATH=")):
            assert variable in DOCKERFILE.replace(" \\", "").split()
    assert f"PYTHONOPTIMIZE={build.OPTIMIZE}" in build.CONFIG["Env"]
    compiled = re.findall(r"python -m compileall (.+?) /", DOCKERFILE)
    assert len(compiled) == 2
    assert all(options.startswith(" ".join(build.COMPILE[2:])) for options in compiled)


def test_both_images_have_the_same_user_and_labels() -> None:
    """And the user is not root."""
    assert f"USER {build.USER}" in DOCKERFILE.splitlines()
    assert build.CONFIG["User"] == build.USER == "65532:65532"
    for label, value in build.CONFIG["Labels"].items():
        assert f'{label}="{value}"' in DOCKERFILE
