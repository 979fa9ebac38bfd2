"""Kubeconfig files are read as kubectl reads them (client-go's `tools/clientcmd`)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfjob_operator.cli import kubeconfig as module
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.kubeconfig import read_access
from unit.cli.conftest import kubeconfig_of


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig of this machine, and no pod around the test."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(module, "_IN_CLUSTER", tmp_path / "pod")


def write(path: Path, document: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_the_current_context_says_server_and_namespace(tmp_path: Path) -> None:
    """`kubectl` without options."""
    access = read_access(write(tmp_path / "k", kubeconfig_of("https://a:6443/", token="t")))
    assert (access.server, access.namespace, access.token) == ("https://a:6443", "team", "t")


def test_options_win_over_the_context(tmp_path: Path) -> None:
    """`--context` and `--namespace`."""
    document = kubeconfig_of("https://a")
    document["contexts"].append({"name": "there", "context": {"cluster": "d"}})
    document["clusters"].append({"name": "d", "cluster": {"server": "https://d"}})
    path = write(tmp_path / "k", document)
    assert read_access(path, "there").server == "https://d"
    assert read_access(path, "there").namespace == "default"
    assert read_access(path, None, "mine").namespace == "mine"


def test_of_several_files_the_first_that_sets_a_value_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KUBECONFIG with a separator; a file that is not there is skipped."""
    first = write(tmp_path / "1", {"clusters": [{"name": "c", "cluster": {"server": "https://first"}}]})
    second = write(tmp_path / "2", kubeconfig_of("https://second", token="t"))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([first, str(tmp_path / "none"), second]))
    access = read_access()
    assert (access.server, access.token, access.namespace) == ("https://first", "t", "team")


def test_the_file_in_the_home_folder_is_the_last_resort(tmp_path: Path) -> None:
    """~/.kube/config."""
    write(tmp_path / "home/.kube/config", kubeconfig_of("https://home"))
    assert read_access().server == "https://home"


def test_paths_are_relative_to_their_file_and_a_token_file_wins(tmp_path: Path) -> None:
    """Certificates in files, and embedded; `tokenFile` over `token`."""
    document = kubeconfig_of("https://a", token="old", tokenFile="secret/token")
    document["users"][0]["user"] |= {
        "client-certificate": "cert.pem",
        "client-key-data": base64.b64encode(b"KEY").decode(),
    }
    document["clusters"][0]["cluster"]["certificate-authority"] = "ca.pem"
    write(tmp_path / "secret/token", "new\n")
    write(tmp_path / "cert.pem", "CERT")
    write(tmp_path / "ca.pem", "CA")
    access = read_access(write(tmp_path / "k", document))
    assert (access.token, access.certificate, access.key, access.authority) == ("new", "CERT", "KEY", "CA")
    assert "KEY" not in repr(access)
    assert "new" not in repr(access)


def test_a_pod_without_a_kubeconfig_uses_its_own_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As client-go's InClusterConfig; an address of IPv6 gets its brackets."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name, text in (("token", "t\n"), ("ca.crt", "CA"), ("namespace", "own\n")):
        write(tmp_path / "pod" / name, text)
    access = read_access()
    assert (access.server, access.namespace, access.token) == ("https://[fd00::1]:443", "own", "t")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("a: [", "is not valid YAML, line"),
        ("- a", "is not a mapping"),
        ({}, "no cluster configured"),
        ({**kubeconfig_of("https://a"), "current-context": ""}, "no current context"),
        ({**kubeconfig_of("https://a"), "current-context": "gone"}, 'context "gone" does not exist'),
        ({**kubeconfig_of("https://a"), "clusters": [{"name": "x"}]}, "has no cluster with a server"),
        (kubeconfig_of("https://a", **{"auth-provider": {"name": "gcp"}}), "removed in Kubernetes 1.26"),
        (
            kubeconfig_of("https://a", **{"client-key-data": "%"}),
            "client-key-data of the kubeconfig is not valid base64",
        ),
        (kubeconfig_of("https://a", tokenFile="gone"), "cannot read"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said_in_one_line(tmp_path: Path, document: Any, says: str) -> None:
    """And never quotes what may be a secret."""
    with pytest.raises(CliError) as raised:
        read_access(write(tmp_path / "k", document))
    assert says in raised.value.message
    assert "\n" not in raised.value.message


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    """Unlike those of KUBECONFIG."""
    with pytest.raises(CliError, match="kubeconfig file"):
        read_access(str(tmp_path / "none"))


PARTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
ENTRY_KEYS = st.sampled_from(
    ("server", "certificate-authority-data", "token", "exec", "namespace", "cluster", "user", "proxy-url")
)


def entries(kind: str) -> st.SearchStrategy[Any]:
    """Entries of one kind: whole ones whose fields are anything, and nonsense."""
    about = st.dictionaries(ENTRY_KEYS, PARTS | st.just("c"), max_size=4)
    return st.lists(st.fixed_dictionaries({"name": st.just("c"), kind: about | PARTS}), max_size=2) | PARTS


@given(clusters=entries("cluster"), users=entries("user"), contexts=entries("context"), current=st.just("c") | PARTS)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_in_a_kubeconfig_it_is_read_or_refused(
    tmp_path: Path, clusters: Any, users: Any, contexts: Any, current: Any
) -> None:
    """No traceback, and what was read is text."""
    document = {"current-context": current, "clusters": clusters, "users": users, "contexts": contexts}
    with contextlib.suppress(CliError):
        access = read_access(write(tmp_path / "k", document))
        for text in (access.server, access.namespace, access.token or "", access.proxy or ""):
            assert isinstance(text, str)
