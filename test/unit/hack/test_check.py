"""`make lint` and `make quick`: which checks run, and on what."""

import re
import signal
import subprocess
import sys

import pytest
from pytest_mock import MockerFixture

from hack import check

TESTS = {
    "test/unit/test_docs.py": "",
    "test/unit/api/v1/test_types.py": "",
    "test/unit/api/test_meta.py": "",
    "test/unit/cli/test_list.py": "from tfjob_operator.api.v1 import (\n    constants,\n    types,\n)\n",
    "test/unit/cli/test_watch.py": "from tfjob_operator.api.v1.types_of_old import x\n",
    "test/unit/hack/test_weight.py": "from hack.weight import count\n",
    "test/unit/hack/test_chart.py": "import fakes.manifests\n",
}


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        (["docs/tfjob.md"], set()),
        (["api/v1/types.py"], {"test/unit/api/v1/test_types.py", "test/unit/cli/test_list.py"}),
        (["test/unit/api/test_meta.py"], {"test/unit/api/test_meta.py"}),
        (["test/fakes/manifests.py"], {"test/unit/hack/test_chart.py"}),
        (["hack/weight.py"], {"test/unit/hack/test_weight.py", "test/unit/hack/test_chart.py"}),
    ],
)
def test_a_changed_file_chooses_the_tests_that_import_or_mirror_it(changed: list[str], chosen: set[str]) -> None:
    """And always those that read the whole tree."""
    assert check.tests_of(changed, TESTS) == {"test/unit/test_docs.py", *chosen}


def test_every_check_runs_though_the_first_one_failed(
    capsys: pytest.CaptureFixture[str], mocker: MockerFixture
) -> None:
    """A long line must not hide what mypy found. The last line names what failed: `| tail` shows it."""
    run = mocker.patch.object(check, "_passes", side_effect=lambda *command, **_: command[0] != "ruff")
    mocker.patch.object(sys, "argv", ["check"])
    assert check.main() == 1
    assert [call.args[0] for call in run.call_args_list] == [
        *("ruff", "ruff", "mypy", "codespell_lib", "hack.check_behaviours")
    ]
    assert capsys.readouterr().out == "failed: ruff (see the output above)\n"


def test_tests_without_time_left_are_not_taken_for_tests_that_hang(
    capsys: pytest.CaptureFixture[str], mocker: MockerFixture
) -> None:
    """A cold mypy may leave them half of the time that all steps share. What has failed by then is printed."""
    started = mocker.patch("subprocess.Popen").return_value
    started.communicate.side_effect = subprocess.TimeoutExpired("pytest", 70.4), ("1 failed\n", None)
    assert not check._passes("pytest", limit_s=70.4)
    started.send_signal.assert_called_once_with(signal.SIGINT)
    said = r"1 failed\nstopped: .* of 70s \(what the checks above left of 120s\); run `make quick` again"
    assert re.search(said, capsys.readouterr().out)


def test_a_base_that_this_clone_does_not_have_is_named(
    capsys: pytest.CaptureFixture[str], mocker: MockerFixture
) -> None:
    """A clone without a remote has no `origin/main`."""
    mocker.patch.object(sys, "argv", ["check", "--since", "nowhere/main"])
    with pytest.raises(SystemExit, match="2"):
        check.main()
    assert re.search(r"nowhere/main.*make quick BASE=COMMIT", capsys.readouterr().err)
