"""Which release is the one before, and when its changes come."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest
from pytest_mock import MockerFixture

from faults import releases
from faults.releases import NotThereError, before
from faults.upgrade import CHANGES, ORDERS, WAYS, Course, courses


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.CalledProcessError(128, "git")])
def test_without_git_or_its_history_it_is_said_why_there_is_no_release_before(
    tmp_path: Path, mocker: MockerFixture, error: Exception
) -> None:
    """As in an archive of the sources, or a shallow clone."""
    mocker.patch.object(releases, "_git", side_effect=error)
    with pytest.raises(NotThereError, match=f"git has no {releases.UNTAGGED}"):
        before(tmp_path)


def test_a_release_runs_its_own_packages(tmp_path: Path, mocker: MockerFixture) -> None:
    """Python would otherwise import those of the present checkout, through its editable install."""
    mocker.patch.object(releases, "_newest_tag", return_value="HEAD")
    assert before(tmp_path).root == tmp_path
    assert (tmp_path / "tfjob_operator" / "api").resolve() == tmp_path.resolve() / "api"


def test_every_workload_gets_each_way_in_one_of_three_waves_and_changes_within_its_writes() -> None:
    """A change comes after one more write at least, and all of them within as many as there are without a change."""
    writes = {"plain": 3, "held": 20, "alpha": 31}
    waves = [courses(writes, ORDERS[0], turn, Random(1)) for turn in range(len(WAYS))]
    for found in zip(*waves, strict=True):
        assert {case.way for case in found} == set(WAYS)
        for case in found:
            assert len(case.terms) == CHANGES
            assert min(case.terms) > 0
            assert sum(case.terms) <= writes[case.workload]


def test_a_case_is_read_as_it_is_told() -> None:
    """So that one that went wrong can be played again."""
    case = Course("short-lived", "crd-first", "killed", (3, 1, 12))
    assert Course.parse(str(case)) == case
