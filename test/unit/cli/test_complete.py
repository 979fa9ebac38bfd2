"""What Tab offers after `kubectl tfjob`: the protocol is that of cobra, which kubectl speaks with its plugins."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from tfjob_operator.cli.app import COMMANDS
from tfjob_operator.cli.complete import FILES, NO_FILES, complete
from unit.cli.conftest import Server, job, run


def test_first_the_verbs_are_offered_with_what_they_do() -> None:
    """Those that begin with what was typed."""
    found, directive = complete([""])
    assert found == [f"{verb}\t{text}" for verb, text in COMMANDS.items()]
    assert directive == NO_FILES
    assert [each.partition("\t")[0] for each in complete(["s"])[0]] == [
        verb for verb in COMMANDS if verb.startswith("s")
    ]


def test_then_options_names_of_jobs_or_files(server: Server, kubeconfig: Path) -> None:
    """Files are left to the shell; a cluster that does not answer offers nothing."""
    server.answers("/apis/kubeflow.org/v1/namespaces/other/tfjobs", {"items": [job("mnist"), job("cifar")]})
    target = ["--kubeconfig", str(kubeconfig), "-n", "other"]
    assert complete(["wait", *target, "m"]) == (["mnist"], NO_FILES)
    assert complete(["wait", "--kubeconfig", str(kubeconfig), ""]) == ([], NO_FILES)
    assert complete(["wait", "-n", ""]) == ([], NO_FILES)
    assert [each.partition("\t")[0] for each in complete(["wait", "--t"])[0]] == ["--timeout", "--token"]
    assert complete(["validate", ""]) == ([], FILES)
    assert complete(["nothing", "-"]) == ([], NO_FILES)


def test_jobs_of_tensorflow_org_are_offered_where_a_verb_takes_them(server: Server, kubeconfig: Path) -> None:
    """With their kind where a job of kubeflow.org has the same name."""
    place = "namespaces/other/tfjobs"
    server.answers(f"/apis/kubeflow.org/v1/{place}", {"items": [job("mnist")]})
    server.answers(f"/apis/tensorflow.org/v1alpha1/{place}", {"items": [job("mnist"), job("old")]})
    target = ["--kubeconfig", str(kubeconfig), "-n", "other"]
    assert complete(["status", *target, ""])[0] == ["mnist", "tfjob.tensorflow.org/mnist", "old"]
    assert complete(["status", *target, "tfjob."])[0] == ["tfjob.tensorflow.org/mnist"]
    assert complete(["suspend", *target, ""])[0] == ["mnist"]


@pytest.mark.parametrize("folder", ["bin"])
def test_the_program_that_kubectl_asks_is_written_where_one_says(tmp_path: Path, folder: str) -> None:
    """It can be started, and speaks the protocol: the last line is the directive."""
    place = tmp_path / folder
    place.mkdir()
    result = run("completion", "--install", "--folder", str(place))
    program = place / "kubectl_complete-tfjob"
    assert result.stdout == f"{program} written\n"
    assert "is not in the PATH" in result.stderr
    said = subprocess.run([program, "resu"], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"resume\t{COMMANDS['resume']}", ":4"]
    assert program.read_text() == run("completion").stdout


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    """The error says what to do."""
    result = run("completion", "--install", "--folder", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert "choose a folder of the PATH with --folder" in result.stderr


def test_where_the_program_is_already_it_stays_as_it_is(tmp_path: Path, mocker: MockerFixture) -> None:
    """pipx has put links to both programs into the PATH; an archive has both, and krew a link to one."""
    own, links = tmp_path / "own", tmp_path / "links"
    own.mkdir()
    links.mkdir()
    for name in ("kubectl-tfjob", "kubectl_complete-tfjob"):
        (own / name).write_text("#!/bin/sh\n")
    (links / "kubectl-tfjob").symlink_to(own / "kubectl-tfjob")
    mocker.patch("sys.argv", [str(links / "kubectl-tfjob")])
    written = run("completion", "--install")
    assert written.stdout == f"{links}/kubectl_complete-tfjob written\n"
    assert (links / "kubectl_complete-tfjob").read_text() == f'#!/bin/sh\nexec {own}/kubectl_complete-tfjob "$@"\n'
    (links / "kubectl_complete-tfjob").unlink()
    (links / "kubectl_complete-tfjob").symlink_to(own / "kubectl_complete-tfjob")
    again = run("completion", "--install")
    assert again.stdout == f"{links}/kubectl_complete-tfjob already exists\n"
    assert (own / "kubectl_complete-tfjob").read_text() == "#!/bin/sh\n"
