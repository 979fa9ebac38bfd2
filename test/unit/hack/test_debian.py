"""The releases of Debian: one module names them, and the pages name those that are supported."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from hack import debian

ROOT: Final = Path(__file__).parents[3]
OURS: Final = "hack/debian.py"


def test_one_module_names_the_releases() -> None:
    """Any other place would be forgotten when the next release comes."""
    listed = subprocess.run(
        ["git", "ls-files", "hack", ".ci", "Makefile", "noxfile.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = re.compile(rf"\b(?:{'|'.join(debian.MACHINES)})\b")
    files = {name for name in listed.stdout.split() if names.search((ROOT / name).read_text(errors="replace"))}
    assert files == {OURS}


def test_programs_and_the_image_are_those_of_a_supported_release() -> None:
    """Both are used on machines of every supported release."""
    assert {debian.PROGRAMS, debian.IMAGE} <= debian.MACHINES.keys()


@pytest.mark.parametrize("page", ["README.md", "docs/install.md", "hack/bootstrap.sh"])
def test_pages_name_the_supported_releases(page: str) -> None:
    """Readers choose a machine by them."""
    assert f"Debian {' or '.join(debian.MACHINES.values())}" in (ROOT / page).read_text()
