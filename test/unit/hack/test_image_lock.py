"""The digests of the image's packages: they match the operator's requirements and the versions that its tests use (D23)."""

import re
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hack.debian import IMAGE, IMAGE_PYTHON
from hack.image import lock
from hack.image.build import BUILD_REQUIREMENTS, PROJECT, REQUIREMENTS, requirements

ENTRY = re.compile(r"^([a-z0-9._-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


def locked(file: Path) -> dict[str, tuple[str, int]]:
    """Version and number of digests of each package in a file, all of whose lines are understood."""
    text = file.read_text()
    assert ENTRY.sub("", text).strip().startswith("# Made by")
    assert len(ENTRY.sub("", text).strip().splitlines()) == 1
    return {
        canonicalize_name(name): (version, digests.count("sha256")) for name, version, digests in ENTRY.findall(text)
    }


def needed() -> set[str]:
    """The names of all packages that the operator needs, directly or indirectly, with the image's Python."""
    there = {"extra": "", "python_version": IMAGE_PYTHON, "python_full_version": f"{IMAGE_PYTHON}.0"}
    todo, names = [Requirement(text) for text in requirements()], set[str]()
    while todo:
        name = canonicalize_name(todo.pop().name)
        if name not in names:
            names.add(name)
            found = [Requirement(text) for text in requires(name) or ()]
            todo += [each for each in found if each.marker is None or each.marker.evaluate(there)]
    return names


def test_the_image_gets_all_that_the_operator_needs_and_nothing_else() -> None:
    """D23: pip would refuse to build an image with too few packages, but not with too many."""
    assert set(locked(REQUIREMENTS)) == needed()


def test_the_image_gets_what_the_tests_run_with() -> None:
    """D23: a new version in hack/constraints.txt needs new digests: `python -m hack.image.lock`."""
    constraints = (PROJECT / "hack" / "constraints.txt").read_text()
    tested: dict[str, str] = {
        canonicalize_name(name): version for name, version in re.findall(r"^(\S+)==(\S+)$", constraints, re.MULTILINE)
    }
    versions = {name: version for name, (version, _) in locked(REQUIREMENTS).items()}
    assert versions == {name: tested[name] for name in versions}


def test_both_stages_of_the_image_begin_with_one_base_that_is_pinned_by_digest() -> None:
    """D23: a tag can be moved to another image, a digest cannot."""
    lines = (PROJECT / "Dockerfile").read_text().splitlines()
    (base,) = [line for line in lines if line.startswith("ARG BASE=")]
    assert re.fullmatch(rf"ARG BASE=python:{re.escape(IMAGE_PYTHON)}\.\d+-slim-{IMAGE}@sha256:[0-9a-f]{{64}}", base)
    assert [line.split()[1] for line in lines if line.startswith("FROM ")] == ["${BASE}", "${BASE}"]


def test_what_builds_the_wheel_is_pinned_too() -> None:
    """D23: it is code that runs when the image is built."""
    (name, (version, digests)), *others = locked(BUILD_REQUIREMENTS).items()
    assert (name, digests, others) == ("setuptools", 1, [])
    assert Requirement(lock.SETUPTOOLS).specifier.contains(version)
    assert lock.SETUPTOOLS.replace(" ", "") in (PROJECT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["aiohttp", "httptools", "msgspec", "yarl"])
def test_packages_with_machine_code_have_a_digest_for_each_kind_of_machine(name: str) -> None:
    """D23: the Dockerfile builds for all of them."""
    assert locked(REQUIREMENTS)[name][1] == len(lock.PLATFORMS)


def test_a_lock_is_written_in_the_form_that_pip_reads() -> None:
    """One package after the other, with all of its digests."""
    text = lock.written({("b", "2"): {"1" * 64}, ("a", "1.0"): {"3" * 64, "2" * 64}})
    entries = text.split("\n", 1)[1]
    assert entries == (
        f"a==1.0 \\\n    --hash=sha256:{'2' * 64} \\\n    --hash=sha256:{'3' * 64}\nb==2 \\\n    --hash=sha256:{'1' * 64}\n"
    )
