"""Kubeconfigs are read by client-go's rules (`tools/clientcmd`), in the plugin and through the `kubernetes` package alike."""

from __future__ import annotations

import base64
import contextlib
import json
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from tfjob_operator.api import access as access_module
from tfjob_operator.api.access import Access, AccessError
from tfjob_operator.api.client.auth.kubeconfig import read_entries
from tfjob_operator.api.kubeconfig import Kubeconfig, read_kubeconfig
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.target import Target

V1, BETA = (f"client.authentication.k8s.io/{version}" for version in ("v1", "v1beta1"))
SERVER = "https://a:6443"
TEXTS = {
    "ca.pem": "CA",
    "cert.pem": "CERT",
    "key.pem": "KEY",
    "token": "of-file\n",
    "sub/ca.pem": "SUB",
    "empty.pem": "",
}


def config(user: Any = None, *, server: str | None = SERVER, **cluster: Any) -> dict[str, Any]:
    """A kubeconfig with one context; names with `_` in place of `-`."""
    about = {name.replace("_", "-"): value for name, value in cluster.items()}
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": about | ({"server": server} if server else {})}],
        "users": [{"name": "u", "user": user or {}}],
    }


def data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def plugin(version: str = V1, mode: str | None = "Never", *, token: str = "of-plugin", **entry: Any) -> dict[str, Any]:
    """A user with a plugin that prints a token."""
    printed = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}})
    about = {"apiVersion": version, "command": "sh", "args": ["-c", f"echo '{printed}'"]}
    return {"exec": about | ({"interactiveMode": mode} if mode else {}) | entry}


CERTIFICATE = {"client-certificate-data": data("CERT"), "client-key-data": data("KEY")}
FILES = {"client-certificate": "cert.pem", "client-key": "key.pem"}
PAIR = {"certificate": "CERT", "key": "KEY"}


class Case(NamedTuple):
    """Files, the first of which is named `config` and given alone unless there are several; the access or the refusal.

    `package` says what the `kubernetes` package does by itself, where that is not what client-go does.
    """

    files: Any
    expected: dict[str, Any] | str
    package: str = ""


ACCEPTED: Mapping[str, Case] = {
    "neither": Case(config(), {}),
    "no users": Case(config() | {"users": None}, {}),
    "a user of the context that is not there": Case(config() | {"users": [{"name": "v", "user": {"token": "t"}}]}, {}),
    "token": Case(config({"token": "t"}), {"authorization": "Bearer t"}),
    "token with a line break": Case(config({"token": "t\n"}), {"authorization": "Bearer t"}, "sends the line break"),
    "tokenFile": Case(config({"tokenFile": "token"}), {"authorization": "Bearer of-file"}, "sends the line break"),
    "tokenFile and token": Case(
        config({"tokenFile": "token", "token": "t"}), {"authorization": "Bearer of-file"}, "prefers the token"
    ),
    "tokenFile that is gone, and token": Case(
        config({"tokenFile": "gone", "token": "t"}), {"authorization": "Bearer t"}
    ),
    "password": Case(config({"username": "ada", "password": "p"}), {"authorization": "Basic YWRhOnA="}),
    "username alone": Case(config({"username": "ada"}), {"authorization": "Basic YWRhOg=="}, "sends nothing"),
    "password alone": Case(config({"password": "p"}), {}),
    "empty token and password": Case(
        config({"token": "", "username": "ada", "password": "p"}), {"authorization": "Basic YWRhOnA="}
    ),
    "certificate": Case(config(CERTIFICATE), PAIR),
    "certificate in files": Case(config(FILES), PAIR),
    "certificate, and its key in a file": Case(
        config({**CERTIFICATE, "client-key-data": "", "client-key": "key.pem"}), PAIR, "takes the empty data"
    ),
    "certificate and token": Case(config({**CERTIFICATE, "token": "t"}), {**PAIR, "authorization": "Bearer t"}),
    "key alone": Case(config({"client-key-data": data("KEY")}), {}, "has a key without a certificate"),
    "key alone, gone": Case(config({"client-key": "gone"}), {}, "refuses it"),
    "authority": Case(config(certificate_authority_data=data("CA")), {"authority": "CA"}),
    "authority with line breaks": Case(config(certificate_authority_data="Q0\nE=\n"), {"authority": "CA"}),
    "authority in a file": Case(config(certificate_authority="sub/ca.pem"), {"authority": "SUB"}),
    "authority by an absolute path": Case(config(certificate_authority="{folder}/ca.pem"), {"authority": "CA"}),
    "insecure": Case(config(insecure_skip_tls_verify=True), {"verify": False}),
    "insecure: false": Case(config(insecure_skip_tls_verify=False), {}),
    "tls-server-name": Case(config(tls_server_name="kubernetes"), {"tls_server_name": "kubernetes"}),
    "proxy-url": Case(config(proxy_url="http://p:3128"), {"proxy": "http://p:3128"}),
    "a path of the server": Case(config(server="https://r/k8s/c-1/"), {"server": "https://r/k8s/c-1"}),
    "no TLS": Case(
        config({**FILES, "token": "t"}, server="http://a"), {"server": "http://a", "authorization": "Bearer t"}
    ),
    "extensions": Case(config(extensions=[{"name": "e", "extension": {"a": 1}}]), {}),
    "unknown fields": Case(config({"token": "t", "color": 5}) | {"preferences": {}}, {"authorization": "Bearer t"}),
    "as": Case(config({"as": "amy"}), {"impersonate": (("Impersonate-User", "amy"),)}),
    "exec": Case(config(plugin()), {"authorization": "Bearer of-plugin"}),
    "exec of v1beta1": Case(config(plugin(BETA, None)), {"authorization": "Bearer of-plugin"}),
    "exec with a variable": Case(
        config(plugin(token="'$WHO'", env=[{"name": "WHO", "value": "me"}])), {"authorization": "Bearer me"}
    ),
    "exec by a relative path": Case(config(plugin(command="./plug.sh", args=["t"])), {"authorization": "Bearer t"}),
    "exec and token": Case(config({**plugin(), "token": "t"}), {"authorization": "Bearer t"}),
    "exec and tokenFile": Case(
        config({**plugin(), "tokenFile": "token"}), {"authorization": "Bearer of-file"}, "sends the line break"
    ),
    "exec and password": Case(
        config({**plugin(), "username": "ada", "password": "p"}), {"authorization": "Basic YWRhOnA="}, "runs the plugin"
    ),
    "exec and certificate": Case(config({**plugin(), **CERTIFICATE}), PAIR, "runs the plugin"),
    "several files: the first cluster wins": Case(
        [config(server="https://first") | {"users": []}, config({"token": "t"})],
        {"server": "https://first", "authorization": "Bearer t"},
    ),
    "several files: a user is not merged": Case(
        [config({"token": "t"}), config({**CERTIFICATE, "username": "ada"})], {"authorization": "Bearer t"}
    ),
    "several files: the first context is the current one": Case(
        [config(), {"current-context": "y", "contexts": [{"name": "y", "context": {}}]}], {}, "takes the last"
    ),
    "several files: the authority beside its own": Case(
        [{}, ("sub/second", config(certificate_authority="ca.pem"))], {"authority": "SUB"}
    ),
    "several files: one is missing": Case([config({"token": "t"}), None], {"authorization": "Bearer t"}),
    "several files: one is empty": Case([config(), ""], {}, "refuses an empty file"),
    "several files: one twice": Case([config(), config()], {}),
}

REFUSED: Mapping[str, Case] = {
    "token and password": Case(
        config({"token": "t", "username": "ada", "password": "p"}),
        'user "u": token and password are both set',
        "sends the token",
    ),
    "token and username": Case(
        config({"token": "t", "username": "ada"}), "token and username are both", "sends the token"
    ),
    "tokenFile and username": Case(
        config({"tokenFile": "token", "username": "ada"}), "tokenFile and username are both", "sends the token"
    ),
    "authority twice": Case(
        config(certificate_authority="ca.pem", certificate_authority_data=data("CA")),
        "certificate-authority and certificate-authority-data of the kubeconfig are both set",
        "takes the data",
    ),
    "certificate twice": Case(
        config({**CERTIFICATE, **FILES}), "client-certificate-data of the kubeconfig are both", "takes the data"
    ),
    "key twice": Case(
        config({**CERTIFICATE, "client-key": "key.pem"}), "client-key-data of the kubeconfig are both", "takes the data"
    ),
    "certificate without a key": Case(
        config({"client-certificate": "cert.pem"}), "client-certificate is set without client-key", "takes it"
    ),
    "authority and insecure": Case(
        config(certificate_authority="ca.pem", insecure_skip_tls_verify=True),
        "insecure-skip-tls-verify are both",
        "takes it",
    ),
    "authority that is gone": Case(config(certificate_authority="gone.pem"), "gone.pem: No such file"),
    "authority that is empty": Case(config(certificate_authority="empty.pem"), "empty.pem is empty", "trusts no one"),
    "certificate that is gone": Case(config({**FILES, "client-certificate": "gone"}), "gone: No such file"),
    "token file that is gone": Case(config({"tokenFile": "gone"}), "gone: No such file"),
    "key that is not base64": Case(
        config({**CERTIFICATE, "client-key-data": "%"}), "client-key-data of the", "takes nothing"
    ),
    "no server": Case(config(server=None), 'cluster "c": server is missing', "asks localhost"),
    "no such cluster": Case(config() | {"clusters": [{"name": "d", "cluster": {}}]}, 'cluster "c": server is missing'),
    "no current context": Case(config() | {"current-context": ""}, "no current context"),
    "no such context": Case(config() | {"current-context": "gone"}, 'context "gone" does not exist'),
    "auth-provider oidc": Case(
        config({"auth-provider": {"name": "oidc"}}), "auth-provider is not supported", "sends nothing"
    ),
    "auth-provider and exec": Case(
        config({**plugin(), "auth-provider": {"name": "gcp", "config": {"access-token": "t"}}}),
        "auth-provider",
        "sends it",
    ),
    "exec without a command": Case(config(plugin(command="")), 'user "u": exec.command is missing', "sends nothing"),
    "exec without a version": Case(config(plugin(apiVersion="")), "exec.apiVersion must be one of", "sends nothing"),
    "exec of v1alpha1": Case(
        config(plugin("client.authentication.k8s.io/v1alpha1")), "exec.apiVersion must be one of", "runs it"
    ),
    "exec of v1 without a mode": Case(config(plugin(V1, None)), "exec.interactiveMode must be one of", "runs it"),
    "exec with another mode": Case(config(plugin(V1, "Maybe")), "exec.interactiveMode must be one of", "runs it"),
    "exec with a bad variable": Case(
        config(plugin(env=[{"value": "v"}])), "exec.args must be strings", "sends nothing"
    ),
    "as-groups without as": Case(
        config({"as-groups": ["a"]}), "impersonating a UID or groups requires a user", "ignores it"
    ),
    "as-user-extra that is no list": Case(
        config({"as": "amy", "as-user-extra": {"team": "ab"}}), "as-user-extra: team must be a list", "ignores it"
    ),
    "as with a line break": Case(config({"as": "a\nb"}), "printable ASCII", "ignores it"),
    "token of another alphabet": Case(config({"token": "tü"}), "not allowed in a header", "sends it"),
    "token with a line break inside": Case(config({"token": "t\nt"}), "not allowed in a header", "sends it"),
    "token that is a number": Case(config({"token": 5}), 'user "u": token must be a string', "sends it"),
    "server that is a list": Case(config(server=["a"]), 'cluster "c": server must be a string'),  # type: ignore[arg-type]
    "insecure as a text": Case(config(insecure_skip_tls_verify="yes"), "must be true or false", "does not verify"),
    "two of one name": Case(config() | {"users": [{"name": "u"}, {"name": "u"}]}, "each with a name of its own"),
    "users that are no list": Case(config() | {"users": {"u": {}}}, "users must be a list"),
    "a user that is a text": Case(
        config() | {"users": [{"name": "u", "user": "s3cret"}]}, "users must be a list of mappings"
    ),
    "no mapping": Case("- s3cret", "is not a mapping"),
    "no YAML": Case("a: [s3cret", "is not valid YAML, line"),
    "nested without an end": Case("[" * 50_000, "is nested too deeply"),
}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty home, which is where we are, with the files that kubeconfigs name; no cluster around."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        write(tmp_path / name, text)
    script = (
        f'#!/bin/sh\necho \'{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{"token": "\'$1\'"}}}}\'\n'
    )
    write(tmp_path / "plug.sh", script)
    (tmp_path / "plug.sh").chmod(0o700)
    return tmp_path


def write(path: Path, document: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = document if isinstance(document, str) else json.dumps(document)
    path.write_text(text.replace("{folder}", str(path.parent)))
    return str(path)


def written(case: Case, folder: Path) -> str:
    """Write the files of a case, and return KUBECONFIG: bare names, as people have them in the folder where they are."""
    names = []
    for number, each in enumerate(case.files if isinstance(case.files, list) else [case.files]):
        name, document = each if isinstance(each, tuple) else (f"config{number}", each)
        names.append(name)
        if document is not None:
            write(folder / name, document)
    return ":".join(names)


def found_in(kubeconfig: str) -> Kubeconfig:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", kubeconfig)
        found = read_kubeconfig()
    assert found is not None
    return found


def through_package(found: Kubeconfig) -> Access:
    return found.complete(read_entries(found))


def by_package(kubeconfig: str) -> dict[str, Any] | None:
    """What the `kubernetes` package makes of the files by itself, None if it refuses them."""
    read = Configuration()
    read.host = "http://localhost"
    try:
        load_kube_config(  # type: ignore[no-untyped-call]
            kubeconfig, client_configuration=read, persist_config=False
        )
        pems = [Path(name).read_text() if name else None for name in (read.ssl_ca_cert, read.cert_file, read.key_file)]
    except Exception:  # noqa: BLE001 - whatever it trips over
        return None
    keys = ("server", "verify", "tls_server_name", "proxy", "authorization", "authority", "certificate", "key")
    header = read.get_api_key_with_prefix("BearerToken")
    return dict(zip(keys, (read.host, read.verify_ssl, read.tls_server_name, read.proxy, header, *pems), strict=True))


@pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED)
def test_both_readers_give_the_access_that_client_go_does(folder: Path, case: Case) -> None:
    """And the `kubernetes` package by itself does too, but where the case says what it does instead."""
    assert isinstance(case.expected, dict)
    kubeconfig = written(case, folder)
    found = found_in(kubeconfig)
    assert found.access() == through_package(found)
    access = found.access().log_in()
    expected = Access(**{"server": SERVER, "context": "x", "namespace": "team", **case.expected})
    assert replace(access, plugin=None, fresh_s=expected.fresh_s) == expected
    package = by_package(kubeconfig)
    agrees = package is not None and all(getattr(access, name) == value for name, value in package.items())
    assert agrees == (not case.package), package


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_client_go_refuses_is_refused_by_both_readers_with_the_name_of_the_field(folder: Path, case: Case) -> None:
    """In one line that quotes no secret; the `kubernetes` package accepts it where the case says so."""
    kubeconfig = written(case, folder)
    for reader in (Kubeconfig.access, through_package):
        with pytest.raises(AccessError) as raised:
            reader(found_in(kubeconfig))
        assert str(case.expected) in raised.value.message
        assert "\n" not in raised.value.message
        assert "s3cret" not in "".join(traceback.format_exception(raised.value))
    assert (by_package(kubeconfig) is None) == (not case.package), by_package(kubeconfig)


def test_a_file_that_was_named_must_be_there(folder: Path) -> None:
    """Unlike those of KUBECONFIG; without any, ~/.kube/config is read."""
    with pytest.raises(AccessError, match="kubeconfig file none not found"):
        read_kubeconfig("none")
    assert read_kubeconfig() is None
    write(folder / ".kube/config", config(server="https://home"))
    found = read_kubeconfig()
    assert found is not None
    assert found.known.server == "https://home"


def test_options_go_before_the_context(folder: Path) -> None:
    """`--context` and `--namespace`; `--server` discards the name in the certificate, as in client-go."""
    document = config(tls_server_name="kubernetes")
    document["contexts"].append({"name": "there", "context": {"cluster": "d"}})
    document["clusters"].append({"name": "d", "cluster": {"server": "https://d"}})
    target = Target(kubeconfig=write(folder / "k", document))
    there = replace(target, context="there").access()
    assert (there.server, there.namespace) == ("https://d", "default")
    assert replace(target, namespace="mine").access().namespace == "mine"
    assert target.access("a").namespace == "a"
    assert target.access().tls_server_name == "kubernetes"
    assert replace(target, server="https://e").access().tls_server_name is None


def test_a_pod_without_a_kubeconfig_uses_its_own_token(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As client-go's InClusterConfig; an address of IPv6 gets its brackets."""
    with pytest.raises(CliError, match="no cluster configured"):
        Target().access()
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(access_module, "SERVICE_ACCOUNT", folder)
    write(folder / "ca.crt", "CA")
    write(folder / "namespace", "own\n")
    expected = Access("https://[fd00::1]:443", namespace="own", authority="CA", authorization="Bearer of-file")
    assert Target().access() == expected


def test_what_is_read_shows_no_secret(folder: Path) -> None:
    """In a repr, which a traceback or a log may have."""
    found = found_in(write(folder / "k", config({"token": "s3cret", **CERTIFICATE}, proxy_url="http://u:s3cret@p")))
    assert "s3cret" not in f"{found}{found.access()}"
    assert "KEY" not in f"{found}{found.access()}"


CLUSTER: dict[str, Any] = {
    "tls_server_name": "kubernetes",
    "proxy_url": "http://p:3128",
    "certificate_authority_data": data("CA"),
    "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
}
ASKING = plugin(env=[{"name": "WHO", "value": "me"}], provideClusterInfo=True)
IMPERSONATING = {"as": "amy", "as-uid": "1", "as-groups": ["a"], "as-user-extra": {"team": ["b"]}}
WHOLE = (
    config({**ASKING, **IMPERSONATING}, **CLUSTER),
    config({**CERTIFICATE, "token": "t"}, insecure_skip_tls_verify=True),
)
NONSENSE: tuple[Any, ...] = (None, True, 0, 5, 1.5, "", "x", "\x00", "ü", [], [5], [[]], {}, {"x": 5}, {"x": ["y"]})


def replaced(part: Any) -> Iterator[Any]:
    """Yield the document with each of its parts in turn replaced by each nonsense."""
    yield from NONSENSE
    for key in [*part] if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ():
        for other in replaced(part[key]):
            copy = part.copy()
            copy[key] = other
            yield copy


@pytest.mark.parametrize("document", WHOLE, ids=["plugin", "token"])
def test_whatever_is_in_a_kubeconfig_it_is_read_or_refused(folder: Path, document: dict[str, Any]) -> None:
    for each in replaced(document):
        with contextlib.suppress(AccessError):
            found = read_kubeconfig(write(folder / "k", each))
            if found is not None:
                assert found.access() == through_package(found), each
