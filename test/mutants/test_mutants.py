"""The tests find mistakes: with each mutant of mutants.csv in a copy of the product, the test that found it fails.

So a test may be merged or shortened as long as what it found is still found: then its row names another test.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from hack.check import PRODUCT
from mutants.rows import ROOT, Mutant, read

pytestmark = pytest.mark.nightly
NAME: Final = "tfjob_operator"
LIMIT_S: Final = 600.0
"""The tests of all rows together take a minute of CPU time, and other tests run beside them."""
HANGS_AFTER_S: Final = 60.0
FAILED: Final = frozenset({1, 2})
"""pytest's exit codes if a test fails or its module cannot be imported. Others mean that there is no such test."""
FOUND: Final = [each for each in read() if each.found_by]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the product, laid out as installed."""
    folder = tmp_path_factory.mktemp("mutants")
    for package in PRODUCT:
        shutil.copytree(ROOT / package, folder / NAME / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / NAME / "__init__.py", folder / NAME)
    return folder


def run(copy: Path, *tests: str, limit_s: float = LIMIT_S) -> tuple[int, str]:
    """Run tests of the checkout with the copy of the product; return pytest's exit code and output.

    The copy precedes the checkout in sys.path. Bytecode of unchanged modules is compiled once.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    where = f"pythonpath={copy} . test"
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--override-ini", where, *tests),
        cwd=ROOT,
        env=own | {"PYTHONPYCACHEPREFIX": str(copy / "bytecode")},
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )
    return done.returncode, done.stdout + done.stderr


def test_these_tests_pass_without_a_mutant(copy: Path) -> None:
    """Otherwise their failure would prove nothing."""
    code, output = run(copy, *sorted({each.found_by for each in FOUND}))
    assert code == 0, output


@pytest.mark.parametrize("mutant", FOUND, ids=[f"{each.number}-{each.file}" for each in FOUND])
def test_a_mutant_is_found(mutant: Mutant, copy: Path) -> None:
    """If its test was merged or shortened, change `found_by` to a test that fails, or make this one fail again."""
    file = copy / NAME / mutant.file
    original, written = file.read_text(), file.stat().st_mtime
    file.write_text(mutant.applied(original))
    # Bytecode is taken for that of a file if second and size agree, as they do if two words are swapped.
    os.utime(file, (written, written + int(mutant.number)))
    hangs = mutant.note == "hangs"
    try:
        code, output = run(copy, mutant.found_by, limit_s=HANGS_AFTER_S if hangs else LIMIT_S)
    except subprocess.TimeoutExpired:
        if not hangs:
            raise
        return
    finally:
        file.write_text(original)
        os.utime(file, (written, written))
    assert code in FAILED, (
        f"{mutant.found_by} does not find {mutant.old!r} -> {mutant.new!r} in {mutant.file}\n{output}"
    )
