"""pip-audit's report, as lines for people."""

from __future__ import annotations

import json
import subprocess

import pytest
from pytest_mock import MockerFixture

from hack import advisories
from hack.control_plane.build.commands import ControlPlaneError

BAD = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["1.1"], "description": "bad"}
WORSE = {"id": "GHSA-2", "aliases": [], "fix_versions": [], "description": "worse"}
PACKAGES = [{"name": "a", "version": "1.0", "vulns": [BAD, WORSE]}, {"name": "b", "version": "2", "vulns": []}]
LINES = ["a 1.0: PYSEC-1, CVE-1; mended in 1.1", "a 1.0: GHSA-2; mended in no version yet"]


@pytest.mark.parametrize(("packages", "code", "told"), [(PACKAGES, 1, LINES), (PACKAGES[1:], 0, None)])
def test_each_known_vulnerability_is_a_line_and_fails(
    mocker: MockerFixture, capsys: pytest.CaptureFixture[str], packages: object, code: int, told: list[str] | None
) -> None:
    """With the version that mends it."""
    mocker.patch.object(advisories, "prepare")
    report = json.dumps({"dependencies": packages, "fixes": []})
    mocker.patch("subprocess.run", return_value=subprocess.CompletedProcess([], code, report, "Found some"))
    assert advisories.main() == code
    said = capsys.readouterr().out.splitlines()
    assert said == (told or ["no vulnerability is known of any package in the image's lock"])


def test_a_database_that_is_out_of_reach_is_told_apart_from_a_vulnerability(
    mocker: MockerFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """pip-audit ends with 1 in both cases; without a report nothing was looked up."""
    mocker.patch.object(advisories, "prepare")
    failed = subprocess.CompletedProcess([], 1, "", "a traceback\nno connection\n")
    mocker.patch("subprocess.run", return_value=failed)
    assert advisories.main() == 2
    assert capsys.readouterr().err == (
        "nothing is known about vulnerabilities: pip-audit could not look anything up: no connection\n"
    )


def test_packages_that_were_not_looked_up_are_not_taken_for_safe(
    mocker: MockerFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """An index without advisories makes pip-audit skip every package, and end with 0."""
    mocker.patch.object(advisories, "prepare")
    report = json.dumps({"dependencies": [PACKAGES[1], {"name": "c", "skip_reason": "not found"}], "fixes": []})
    mocker.patch("subprocess.run", return_value=subprocess.CompletedProcess([], 0, report, "No known vulnerabilities"))
    assert advisories.main() == 2
    assert "the index has nothing about 1 packages, such as c" in capsys.readouterr().err


def test_without_pip_audit_it_says_so(mocker: MockerFixture, capsys: pytest.CaptureFixture[str]) -> None:
    """As where there is no package index."""
    mocker.patch.object(advisories, "prepare", side_effect=ControlPlaneError("no index"))
    assert advisories.main() == 2
    assert "no index" in capsys.readouterr().err
