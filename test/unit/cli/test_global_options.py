"""Options of all commands, completion, and the page that lists them, which is made from the code."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from hack.objects import a_kubeconfig
from hack.plugin import reference
from tfjob_operator.cli.complete import FILES, NO_FILES, argument_of, complete
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.main import COMMANDS
from tfjob_operator.cli.options import GLOBAL_OPTIONS
from tfjob_operator.cli.target import Target
from unit.cli.conftest import Server, job, run

EXPECTED: dict[str, tuple[list[str], str, Any]] = {
    "-n": (["other"], "namespace", "other"),
    "--context": (["there"], "namespace", "elsewhere"),
    "--kubeconfig": (["{folder}/second"], "authorization", "Bearer of the second file"),
    "--cluster": (["d"], "server", "https://d.example"),
    "--user": (["v"], "authorization", "Bearer of v"),
    "-s": (["https://e.example"], "server", "https://e.example"),
    "--token": (["mine"], "authorization", "Bearer mine"),
    "--as": (["bob"], "impersonate", (("Impersonate-User", "bob"),)),
    "--as-group": (["x"], "impersonate", (("Impersonate-User", "amy"), ("Impersonate-Group", "x"))),
    "--as-uid": (["7"], "impersonate", (("Impersonate-User", "amy"), ("Impersonate-Uid", "7"))),
    "--certificate-authority": (["{folder}/ca"], "authority", "another authority"),
    "--insecure-skip-tls-verify": ([], "verify", False),
    "--request-timeout": (["5s"], "timeout_s", 5.0),
}
"""The first name of each option, values for it, and the field of Access that becomes another one."""


def test_every_global_option_is_tried() -> None:
    assert list(EXPECTED) == [names[0] for names, _ in GLOBAL_OPTIONS]


@pytest.mark.parametrize("option", EXPECTED)
def test_an_option_changes_how_the_cluster_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mocker: MockerFixture, option: str
) -> None:
    config = a_kubeconfig("https://127.0.0.1:1", {"token": "of u"})
    if option in {"--as-group", "--as-uid"}:
        config["users"][0]["user"]["as"] = "amy"
    config["clusters"][0]["cluster"]["certificate-authority-data"] = "YQ=="
    config["contexts"].append({"name": "there", "context": {"cluster": "c", "user": "u", "namespace": "elsewhere"}})
    config["clusters"].append({"name": "d", "cluster": {"server": "https://d.example"}})
    config["users"].append({"name": "v", "user": {"token": "of v"}})
    for name, text in (
        ("first", json.dumps(config)),
        ("second", json.dumps(a_kubeconfig("https://127.0.0.1:1", {"token": "of the second file"}))),
        ("ca", "another authority"),
    ):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "first"))
    mocker.patch("http.client.HTTPConnection.connect", side_effect=OSError)
    values, field, expected = EXPECTED[option]
    given = [option, *(value.format(folder=tmp_path) for value in values)]
    spy = mocker.spy(Target, "access")
    found = []
    for arguments in (["list"], [*given, "list"], ["list", *given]):
        run(*arguments)
        found.append(getattr(spy.spy_return, field))
    assert found[0] != expected
    assert found[1:] == [expected, expected]


def test_an_option_after_the_command_goes_before_one_before_it(server: Server) -> None:
    """As in kubectl, where the last one counts."""
    run("-n", "a", "--kubeconfig", str(server.kubeconfig), "list", "-n", "b")
    assert server.asked[0][1].startswith("/apis/kubeflow.org/v1/namespaces/b/")


def test_impersonation_is_sent_with_every_request(server: Server) -> None:
    server.run("list", "--as=bob", "--as-group=a", "--as-group=b")
    (_, _, headers, _), *_ = server.asked
    assert (headers["Impersonate-User"], headers.get_all("Impersonate-Group")) == ("bob", ["a", "b"])


def test_a_kubeconfig_may_impersonate_too(tmp_path: Path) -> None:
    path = tmp_path / "config"
    user = {"as": "amy", "as-groups": ["a"], "as-user-extra": {"Reason": ["why"]}}
    path.write_text(json.dumps(a_kubeconfig("http://127.0.0.1:1", user)))
    extra = ("Impersonate-Extra-reason", "why")
    assert Target(kubeconfig=str(path)).access().impersonate == (
        ("Impersonate-User", "amy"),
        ("Impersonate-Group", "a"),
        extra,
    )
    assert Target(kubeconfig=str(path), as_="bob").access().impersonate == (("Impersonate-User", "bob"),)
    path.write_text(json.dumps(a_kubeconfig("http://127.0.0.1:1")))
    with pytest.raises(CliError, match="requires a user: pass --as"):
        Target(kubeconfig=str(path), as_group=("a",)).access()


def test_a_token_goes_before_other_credentials(tmp_path: Path) -> None:
    """A credential plugin is not run then."""
    path = tmp_path / "config"
    path.write_text(json.dumps(a_kubeconfig("http://127.0.0.1:1", {"exec": {"command": "login"}, "username": "u"})))
    access = Target(kubeconfig=str(path), token="mine").access()
    assert (access.authorization, access.plugin) == ("Bearer mine", None)


@pytest.mark.parametrize(("section", "override"), [("cluster", {"cluster": "x"}), ("user", {"user": "x"})])
def test_what_an_option_names_must_be_there(tmp_path: Path, section: str, override: dict[str, Any]) -> None:
    path = tmp_path / "config"
    path.write_text(json.dumps(a_kubeconfig("http://127.0.0.1:1")))
    with pytest.raises(CliError, match=f'{section} "x" does not exist'):
        Target(kubeconfig=str(path), **override).access()


def test_a_server_and_a_token_need_no_kubeconfig(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipeline there may be none."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    run("list", "--server", server.url, "--token", "mine")
    assert server.asked[0][2]["Authorization"] == "Bearer mine"


def test_a_request_timeout_ends_a_request(server: Server, mocker: MockerFixture) -> None:
    mocker.patch("http.client.HTTPConnection.getresponse", side_effect=TimeoutError)
    result = server.run("list", "--request-timeout=7")
    assert f"error: {server.url} did not answer within 7s\n" in result.stderr


def test_the_version_of_the_plugin_is_an_option_as_well() -> None:
    assert run("--version").output.startswith("kubectl-tfjob ")


def test_first_the_verbs_are_offered_with_what_they_do() -> None:
    found, directive = complete([""])
    assert found == [f"{verb}\t{text}" for verb, text in COMMANDS.items()]
    assert directive == NO_FILES
    assert [each.partition("\t")[0] for each in complete(["s"])[0]] == [
        verb for verb in COMMANDS if verb.startswith("s")
    ]


def test_then_options_names_of_jobs_or_files(server: Server) -> None:
    server.answers("/apis/kubeflow.org/v1/namespaces/other/tfjobs", {"items": [job("mnist"), job("cifar")]})
    target = ["--kubeconfig", str(server.kubeconfig), "-n", "other"]
    assert complete(["wait", *target, "m"]) == (["mnist"], NO_FILES)
    assert complete(["wait", "--kubeconfig", str(server.kubeconfig), ""]) == ([], NO_FILES)
    assert complete(["wait", "-n", ""]) == ([], NO_FILES)
    assert [each.partition("\t")[0] for each in complete(["wait", "--t"])[0]] == ["--timeout", "--token"]
    assert complete(["validate", ""]) == ([], FILES)
    assert complete(["nothing", "-"]) == ([], NO_FILES)


def test_the_name_of_a_job_is_called_job_where_it_must_exist() -> None:
    """By that the shell offers jobs. `submit` names a new one."""
    assert [verb for verb in COMMANDS if "NAME" in argument_of(verb)] == ["submit"]
    assert argument_of("status") == "JOB"


def test_jobs_of_tensorflow_org_are_offered_where_a_verb_takes_them(server: Server) -> None:
    place = "namespaces/other/tfjobs"
    server.answers(f"/apis/kubeflow.org/v1/{place}", {"items": [job("mnist")]})
    server.answers(f"/apis/tensorflow.org/v1alpha1/{place}", {"items": [job("mnist"), job("old")]})
    target = ["--kubeconfig", str(server.kubeconfig), "-n", "other"]
    assert complete(["status", *target, ""])[0] == ["mnist", "tfjob.tensorflow.org/mnist", "old"]
    assert complete(["status", *target, "tfjob."])[0] == ["tfjob.tensorflow.org/mnist"]
    assert complete(["suspend", *target, ""])[0] == ["mnist"]


def test_the_program_that_kubectl_asks_is_written_where_one_says(tmp_path: Path) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    result = run("completion", "--install", "--folder", str(place))
    program = place / "kubectl_complete-tfjob"
    assert result.stdout == f"{program} written\n"
    assert "is not in the PATH" in result.stderr
    said = subprocess.run([program, "resu"], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"resume\t{COMMANDS['resume']}", ":4"]
    assert program.read_text() == run("completion").stdout


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
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


def test_the_reference_says_what_the_program_has(check_generated: Callable[[Path, str], None]) -> None:
    check_generated(reference.PAGE, reference.page())
