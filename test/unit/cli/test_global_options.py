"""Global options mean what they mean for kubectl, before the command or after it; each changes what is requested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.options import GLOBAL_OPTIONS
from tfjob_operator.cli.target import Target
from unit.cli.conftest import Server, kubeconfig_of, run

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
    """So one that is added gets a case."""
    assert list(EXPECTED) == [names[0] for names, _ in GLOBAL_OPTIONS]


@pytest.mark.parametrize("option", EXPECTED)
def test_an_option_changes_how_the_cluster_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mocker: MockerFixture, option: str
) -> None:
    """In both places; left out, the field is what the kubeconfig says."""
    config = kubeconfig_of("https://127.0.0.1:1", token="of u")
    if option in {"--as-group", "--as-uid"}:
        config["users"][0]["user"]["as"] = "amy"
    config["clusters"][0]["cluster"]["certificate-authority-data"] = "YQ=="
    config["contexts"].append({"name": "there", "context": {"cluster": "c", "user": "u", "namespace": "elsewhere"}})
    config["clusters"].append({"name": "d", "cluster": {"server": "https://d.example"}})
    config["users"].append({"name": "v", "user": {"token": "of v"}})
    for name, text in (
        ("first", json.dumps(config)),
        ("second", json.dumps(kubeconfig_of("https://127.0.0.1:1", token="of the second file"))),
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


def test_an_option_after_the_command_goes_before_one_before_it(server: Server, kubeconfig: Path) -> None:
    """As in kubectl, where the last one counts."""
    run("-n", "a", "--kubeconfig", str(kubeconfig), "list", "-n", "b")
    assert server.asked[0][1].startswith("/apis/kubeflow.org/v1/namespaces/b/")


def test_impersonation_is_sent_with_every_request(server: Server, kubeconfig: Path) -> None:
    """Groups as a header each."""
    run("list", f"--kubeconfig={kubeconfig}", "--as=bob", "--as-group=a", "--as-group=b")
    (_, _, headers, _), *_ = server.asked
    assert (headers["Impersonate-User"], headers.get_all("Impersonate-Group")) == ("bob", ["a", "b"])


def test_a_kubeconfig_may_impersonate_too(tmp_path: Path) -> None:
    """An option goes before it. Groups without a user are an error, as for kubectl."""
    path = tmp_path / "config"
    user = {"as": "amy", "as-groups": ["a"], "as-user-extra": {"Reason": ["why"]}}
    path.write_text(json.dumps(kubeconfig_of("http://127.0.0.1:1", **user)))
    extra = ("Impersonate-Extra-reason", "why")
    assert Target(kubeconfig=str(path)).access().impersonate == (
        ("Impersonate-User", "amy"),
        ("Impersonate-Group", "a"),
        extra,
    )
    assert Target(kubeconfig=str(path), as_="bob").access().impersonate == (("Impersonate-User", "bob"),)
    path.write_text(json.dumps(kubeconfig_of("http://127.0.0.1:1")))
    with pytest.raises(CliError, match="requires a user: pass --as"):
        Target(kubeconfig=str(path), as_group=("a",)).access()


def test_a_token_goes_before_other_credentials(tmp_path: Path) -> None:
    """A credential plugin is not run then."""
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig_of("http://127.0.0.1:1", exec={"command": "login"}, username="u")))
    access = Target(kubeconfig=str(path), token="mine").access()
    assert (access.authorization, access.plugin) == ("Bearer mine", None)


@pytest.mark.parametrize(("section", "override"), [("cluster", {"cluster": "x"}), ("user", {"user": "x"})])
def test_what_an_option_names_must_be_there(tmp_path: Path, section: str, override: dict[str, Any]) -> None:
    """In kubectl's words."""
    path = tmp_path / "config"
    path.write_text(json.dumps(kubeconfig_of("http://127.0.0.1:1")))
    with pytest.raises(CliError, match=f'{section} "x" does not exist'):
        Target(kubeconfig=str(path), **override).access()


def test_a_server_and_a_token_need_no_kubeconfig(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipeline there may be none."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    run("list", "--server", server.url, "--token", "mine")
    assert server.asked[0][2]["Authorization"] == "Bearer mine"


def test_a_request_timeout_ends_a_request(server: Server, kubeconfig: Path, mocker: MockerFixture) -> None:
    """The message has it."""
    mocker.patch("http.client.HTTPConnection.getresponse", side_effect=TimeoutError)
    result = run("list", f"--kubeconfig={kubeconfig}", "--request-timeout=7")
    assert f"error: {server.url} did not answer within 7s\n" in result.stderr


def test_the_version_of_the_plugin_is_an_option_as_well() -> None:
    """As for most programs."""
    assert run("--version").output.startswith("kubectl-tfjob ")
