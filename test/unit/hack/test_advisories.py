"""hack/advisories.sh: what it makes of pip-audit's report, which a shell script in the place of Python prints."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "hack" / "advisories.sh"
BAD = {"name": "a", "version": "1.0", "vulns": [{"id": "PYSEC-1", "aliases": [], "fix_versions": ["1.1"]}]}
GOOD = {"name": "b", "version": "2", "vulns": []}
SKIPPED = {"name": "c", "skip_reason": "not found"}
PYTHON = """#!/bin/sh
case "$*" in
    -c*) echo {folder} ;;
    *pip_audit*) cat {folder}/report; echo no connection >&2; exit 1 ;;
    *json.tool*) exec {python} "$@" ;;
    *--target=*) mkdir {folder}/advisories--2.10.1-11.12.0.new ;;
esac
"""


def look_up(folder: Path, report: str) -> subprocess.CompletedProcess[str]:
    """Run the script with this report."""
    for each in ("hack", ".venv/bin"):
        (folder / each).mkdir(parents=True)
    shutil.copy(SCRIPT, folder / "hack")
    python = folder / ".venv" / "bin" / "python"
    python.write_text(PYTHON.format(folder=folder, python=sys.executable))
    python.chmod(0o755)
    (folder / "report").write_text(report)
    return subprocess.run([folder / "hack" / "advisories.sh"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("packages", "code", "said"), [([GOOD, BAD], 1, '"id": "PYSEC-1"'), ([GOOD], 0, "no known vuln")]
)
def test_a_known_vulnerability_is_printed_and_fails(packages: object, code: int, said: str, tmp_path: Path) -> None:
    done = look_up(tmp_path, json.dumps({"dependencies": packages}))
    assert done.returncode == code
    assert said in done.stdout


@pytest.mark.parametrize(
    ("report", "said"),
    [("", "vulnerabilities: no connection"), (json.dumps({"dependencies": [GOOD, SKIPPED]}), "no data about some")],
)
def test_packages_that_were_not_looked_up_are_not_taken_for_safe(report: str, said: str, tmp_path: Path) -> None:
    """pip-audit ends with 1 without a database, and with 0 where an index has no advisories."""
    done = look_up(tmp_path, report)
    assert done.returncode == 2
    assert said in done.stderr
