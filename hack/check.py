"""The checks of `make lint` and `make quick`. All checks run before the command fails.

`python -m hack.check --since COMMIT` limits ruff and codespell to the files that differ from that commit. It also runs the unit
tests of these files. mypy and the check of the table of behaviors always cover all files, because a change can break other
files.

Exit codes: 0 all checks passed, 1 a check failed or the tests took too long, 2 invalid usage.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = ("api", "cli", "controller", "informers", "workqueue")
SOURCES: Final = (*PRODUCT, "tfjob_operator", "hack", "test", "conftest.py", "noxfile.py")
TEXTS: Final = ("docs", "manifests", ".ci", "Makefile", "setup.cfg", "pyproject.toml", *map(str, ROOT.glob("*.md")))
QUICK_S: Final = 120.0
WHOLE_TREE: Final = re.compile(r"test/unit/test_\w+\.py")
"""Tests that read the whole tree: imports, links in the docs, manifests, packages."""
_LINK: Final = re.compile(r"^\.venv/links/(?:tfjob_operator/(?=[^:]*/))?", re.MULTILINE)
"""mypy reads the product through the links made by hack/bootstrap.sh; its output is rewritten to paths of the checkout."""


def tests_of(changed: Iterable[str], tests: Mapping[str, str]) -> set[str]:
    """Return the paths in `tests` (path to text) of tests that import, mirror or are one of the changed files.

    Tests that read the whole tree are always included.
    """
    found = set(filter(WHOLE_TREE.fullmatch, tests))
    for path in map(Path, changed):
        if path.suffix != ".py" or path.parts[0] not in {*PRODUCT, "hack", "test"}:
            continue
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__").removeprefix("test.")
        package, _, module = name.rpartition(".")
        imported = re.compile(rf"\b{re.escape(name)}\b|\b{re.escape(package)} import (\([^)]*|.*)\b{module}\b")
        mirror = f"test/unit/{path.parent}/"
        found |= {each for each, text in tests.items() if each.startswith(mirror) or imported.search(text)}
        found |= {str(path)} & tests.keys()
    return found


def _changed(commit: str) -> list[str]:
    """Return the files that differ from the merge base with `commit`, including untracked ones."""
    base = _output("git", "merge-base", commit, "HEAD").strip()
    listed = _output("git", "diff", "--name-only", "--diff-filter=d", base)
    return (listed + _output("git", "ls-files", "--others", "--exclude-standard")).split()


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _passes(*command: str, limit_s: float | None = None) -> bool:
    """Run a Python module, print its output and duration, and return True if it succeeded within the limit."""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bytecode")}
    check = subprocess.Popen(
        (sys.executable, "-m", *command), cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    with check:
        try:
            output, _ = check.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            check.send_signal(signal.SIGINT)  # pytest then prints the failures so far
            output, _ = check.communicate()
            output += f"stopped: it exceeded its limit of {error.timeout:.0f}s (what the checks above left of {QUICK_S:.0f}s); "
            output += "run `make quick` again (mypy is faster with its cache), or `make unit`\n"
    passed = check.returncode == 0
    print(_LINK.sub("", output), end="")
    print(f"{'ok  ' if passed else 'FAIL'} {time.monotonic() - began:5.1f}s  {command[0]}", flush=True)
    return passed


def main() -> int:
    """Run the checks; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.check", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--since", metavar="COMMIT", help="check the files that differ from this commit, and their tests"
    )
    commit = parser.parse_args().since
    began = time.monotonic()
    try:
        changed = _changed(commit) if commit else []
    except subprocess.CalledProcessError as error:
        parser.error(f"{error.stderr.strip()}. Name a commit of this clone: make quick BASE=COMMIT")
    sources = [path for path in changed if path.endswith(".py")] if commit else SOURCES
    texts = [path for path in changed if not path.startswith("test/data/")] if commit else (*SOURCES, *TEXTS)
    steps = [("ruff", "check", *sources), ("ruff", "format", "--check", *sources)] if sources else []
    steps += [("mypy",), *([("codespell_lib", *texts)] if texts else []), ("hack.check_behaviours", "--quiet")]
    failed = [step[0] for step in steps if not _passes(*step)]
    if commit:
        tests = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("test/unit/**/test_*.py")}
        chosen = sorted(tests_of(changed, tests))
        left_s = max(1.0, QUICK_S - (time.monotonic() - began))
        if not _passes("pytest", "-q", "-n", "auto", "--dist", "worksteal", *chosen, limit_s=left_s):
            failed.append("pytest")
    if failed:
        print(f"failed: {', '.join(dict.fromkeys(failed))} (see the output above)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
