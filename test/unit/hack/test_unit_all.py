"""On which Pythons the unit tests run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hack import unit_all
from hack.control_plane import ControlPlaneError

if TYPE_CHECKING:
    from pytest_mock import MockerFixture


def interpreter(path: Path, version: str) -> Path:
    """A script that prints the version as a Python of that version would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def test_they_run_on_every_python_that_setup_cfg_names() -> None:
    """A Python that is added there is tested as well."""
    settings = unit_all.read_settings()
    assert unit_all.versions(settings) == ["3.11", "3.12", "3.13"]
    assert settings["options"]["python_requires"] == ">=3.11"
    needed = unit_all.requirements(settings)
    assert {"msgspec", "pytest", "hypothesis"} <= {each.partition(">")[0] for each in needed}


def test_an_interpreter_is_taken_from_the_path_or_from_pyenv(tmp_path: Path) -> None:
    """The path comes first, unless it has a shim for another version; of pyenv's versions the newest is taken."""
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    assert unit_all.find("3.12", environment) is None
    versions = tmp_path / ".pyenv" / "versions"
    interpreter(versions / "3.12.9" / "bin" / "python", "3.12")
    newest = interpreter(versions / "3.12.10" / "bin" / "python", "3.12")
    interpreter(versions / "3.1.5" / "bin" / "python", "3.1")
    assert unit_all.find("3.12", environment) == newest
    on_path = interpreter(tmp_path / "bin" / "python3.12", "3.11")
    assert unit_all.find("3.12", environment) == newest
    interpreter(on_path, "3.12")
    assert unit_all.find("3.12", environment) == on_path


def test_a_python_that_is_not_there_is_reported_and_fails_nothing(
    mocker: MockerFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine need not have all versions."""
    mocker.patch.object(unit_all, "find", return_value=None)
    assert unit_all.main([]) == 0
    assert "Python 3.12: left out, there is none on this machine" in capsys.readouterr().out


def test_the_python_that_ran_them_already_can_be_left_out(
    mocker: MockerFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--others`: the tests need not run again on the Python of `make test`."""
    mocker.patch.object(unit_all, "find", return_value=None)
    assert unit_all.main(["--others"]) == 0
    told = capsys.readouterr().out
    assert f"Python 3.{sys.version_info[1]}:" not in told
    assert told.count("left out") == 2


@pytest.mark.parametrize(("code", "word"), [(0, "passed"), (1, "FAILED")])
def test_what_came_of_each_is_reported(
    code: int, word: str, tmp_path: Path, mocker: MockerFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """One failure fails the whole run."""
    python = interpreter(tmp_path / "python", "3.11")
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    mocker.patch.object(unit_all, "find", return_value=python)
    mocker.patch.object(unit_all, "environment_of", return_value=python)
    assert unit_all.main(["test/unit/api"]) == code
    assert f"Python 3.13: {word}" in capsys.readouterr().out


def test_the_python_that_asks_needs_no_other_environment(tmp_path: Path) -> None:
    """It has all that the tests need, since it runs this one."""
    own = ".".join(map(str, sys.version_info[:2]))
    assert unit_all.environment_of(own, tmp_path / "no such python") == Path(sys.executable)


def test_an_environment_that_can_not_be_made_is_a_failure(
    tmp_path: Path, mocker: MockerFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise nobody would notice that nothing was tested."""

    def refuse(_version: str, _python: Path) -> Path:
        raise ControlPlaneError("no index")

    mocker.patch.object(unit_all, "find", return_value=tmp_path)
    mocker.patch.object(unit_all, "environment_of", refuse)
    assert unit_all.main([]) == 1
    assert "no index" in capsys.readouterr().out
