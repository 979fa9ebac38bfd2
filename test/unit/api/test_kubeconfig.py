"""Kubeconfigs are read by client-go's rules (`tools/clientcmd`), in the plugin and through the `kubernetes` package alike."""

import base64
import contextlib
import json
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

from tfjob_operator.api import access as access_module
from tfjob_operator.api.access import Access, AccessError
from tfjob_operator.api.kubeconfig import Kubeconfig, read_kubeconfig
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.target import Target
from tfjob_operator.controller.kubeconfig import read_entries

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


Rows = dict[str, tuple[Any, ...]]
"""Files, the first of which is named `config` and given alone unless there are several, or the user in one; the access or the
refusal; and what the `kubernetes` package does by itself, where that is not what client-go does."""


ADA = {"username": "ada", "password": "p"}
BASIC = {"authorization": "Basic YWRhOnA="}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


ACCEPTED_USERS: Rows = {
    "token": ({"token": "t"}, bearer("t")),
    "token with a line break": ({"token": "t\n"}, bearer("t"), "sends the line break"),
    "tokenFile": ({"tokenFile": "token"}, bearer("of-file"), "sends the line break"),
    "tokenFile and token": ({"tokenFile": "token", "token": "t"}, bearer("of-file"), "prefers the token"),
    "tokenFile that is gone, and token": ({"tokenFile": "gone", "token": "t"}, bearer("t")),
    "password": (ADA, BASIC),
    "username alone": ({"username": "ada"}, {"authorization": "Basic YWRhOg=="}, "sends nothing"),
    "password alone": ({"password": "p"}, {}),
    "empty token and password": ({"token": "", **ADA}, BASIC),
    "certificate": (CERTIFICATE, PAIR),
    "certificate in files": (FILES, PAIR),
    "certificate, and its key in a file": ({**CERTIFICATE, "client-key-data": "", "client-key": "key.pem"}, PAIR,
        "takes the empty data"),
    "certificate and token": ({**CERTIFICATE, "token": "t"}, {**PAIR, **bearer("t")}),
    "key alone": ({"client-key-data": data("KEY")}, {}, "has a key without a certificate"),
    "key alone, gone": ({"client-key": "gone"}, {}, "refuses it"),
    "as": ({"as": "amy"}, {"impersonate": (("Impersonate-User", "amy"),)}),
    "exec": (plugin(), bearer("of-plugin")),
    "exec of v1beta1": (plugin(BETA, None), bearer("of-plugin")),
    "exec with a variable": (plugin(token="'$WHO'", env=[{"name": "WHO", "value": "me"}]), bearer("me")),
    "exec by a relative path": (plugin(command="./plug.sh", args=["t"]), bearer("t")),
    "exec and token": ({**plugin(), "token": "t"}, bearer("t")),
    "exec and tokenFile": ({**plugin(), "tokenFile": "token"}, bearer("of-file"), "sends the line break"),
    "exec and password": ({**plugin(), **ADA}, BASIC, "runs the plugin"),
    "exec and certificate": ({**plugin(), **CERTIFICATE}, PAIR, "runs the plugin"),
}  # fmt: skip
ACCEPTED: Rows = {
    "neither": (config(), {}),
    "no users": (config() | {"users": None}, {}),
    "a user of the context that is not there": (config() | {"users": [{"name": "v", "user": {"token": "t"}}]}, {}),
    "authority": (config(certificate_authority_data=data("CA")), {"authority": "CA"}),
    "authority with line breaks": (config(certificate_authority_data="Q0\nE=\n"), {"authority": "CA"}),
    "authority in a file": (config(certificate_authority="sub/ca.pem"), {"authority": "SUB"}),
    "authority by an absolute path": (config(certificate_authority="{folder}/ca.pem"), {"authority": "CA"}),
    "insecure": (config(insecure_skip_tls_verify=True), {"verify": False}),
    "insecure: false": (config(insecure_skip_tls_verify=False), {}),
    "tls-server-name": (config(tls_server_name="kubernetes"), {"tls_server_name": "kubernetes"}),
    "proxy-url": (config(proxy_url="http://p:3128"), {"proxy": "http://p:3128"}),
    "a path of the server": (config(server="https://r/k8s/c-1/"), {"server": "https://r/k8s/c-1"}),
    "no TLS": (config({**FILES, "token": "t"}, server="http://a"), {"server": "http://a", **bearer("t")}),
    "extensions": (config(extensions=[{"name": "e", "extension": {"a": 1}}]), {}),
    "unknown fields": (config({"token": "t", "color": 5}) | {"preferences": {}}, bearer("t")),
    "several files: the first cluster wins": ([config(server="https://first") | {"users": []}, config({"token": "t"})],
        {"server": "https://first", **bearer("t")}),
    "several files: a user is not merged": ([config({"token": "t"}), config({**CERTIFICATE, "username": "ada"})], bearer("t")),
    "several files: the first current-context counts": (
        [config(), {"current-context": "y", "contexts": [{"name": "y", "context": {}}]}], {}, "takes the last"),
    "several files: the authority beside its own": ([{}, ("sub/second", config(certificate_authority="ca.pem"))],
        {"authority": "SUB"}),
    "several files: one is missing": ([config({"token": "t"}), None], bearer("t")),
    "several files: one is empty": ([config(), ""], {}, "refuses an empty file"),
    "several files: one twice": ([config(), config()], {}),
}  # fmt: skip

REFUSED_USERS: Rows = {
    "token and password": ({"token": "t", **ADA}, 'user "u": token and password are both set', "sends the token"),
    "token and username": ({"token": "t", "username": "ada"}, "token and username are both", "sends the token"),
    "tokenFile and username": ({"tokenFile": "token", "username": "ada"}, "tokenFile and username are both",
        "sends the token"),
    "certificate twice": ({**CERTIFICATE, **FILES}, "client-certificate-data of the kubeconfig are both", "takes the data"),
    "key twice": ({**CERTIFICATE, "client-key": "key.pem"}, "client-key-data of the kubeconfig are both", "takes the data"),
    "certificate without a key": ({"client-certificate": "cert.pem"}, "client-certificate is set without client-key",
        "takes it"),
    "certificate that is gone": ({**FILES, "client-certificate": "gone"}, "gone: No such file"),
    "token file that is gone": ({"tokenFile": "gone"}, "gone: No such file"),
    "key that is not base64": ({**CERTIFICATE, "client-key-data": "%"}, "client-key-data of the", "takes nothing"),
    "auth-provider oidc": ({"auth-provider": {"name": "oidc"}}, "auth-provider is not supported", "sends nothing"),
    "auth-provider and exec": ({**plugin(), "auth-provider": {"name": "gcp", "config": {"access-token": "t"}}},
        "auth-provider", "sends it"),
    "exec without a command": (plugin(command=""), 'user "u": exec.command is missing', "sends nothing"),
    "exec without a version": (plugin(apiVersion=""), "exec.apiVersion must be one of", "sends nothing"),
    "exec of v1alpha1": (plugin("client.authentication.k8s.io/v1alpha1"), "exec.apiVersion must be one of", "runs it"),
    "exec of v1 without a mode": (plugin(V1, None), "exec.interactiveMode must be one of", "runs it"),
    "exec with another mode": (plugin(V1, "Maybe"), "exec.interactiveMode must be one of", "runs it"),
    "exec with a bad variable": (plugin(env=[{"value": "v"}]), "exec.args must be strings", "sends nothing"),
    "as-groups without as": ({"as-groups": ["a"]}, "impersonating a UID or groups requires a user", "ignores it"),
    "as-user-extra that is no list": ({"as": "amy", "as-user-extra": {"team": "ab"}}, "as-user-extra: team must be a list",
        "ignores it"),
    "as with a line break": ({"as": "a\nb"}, "printable ASCII", "ignores it"),
    "token of another alphabet": ({"token": "tü"}, "not allowed in a header", "sends it"),
    "token with a line break inside": ({"token": "t\nt"}, "not allowed in a header", "sends it"),
    "token that is a number": ({"token": 5}, 'user "u": token must be a string', "sends it"),
}  # fmt: skip
REFUSED: Rows = {
    "authority twice": (config(certificate_authority="ca.pem", certificate_authority_data=data("CA")),
        "certificate-authority and certificate-authority-data of the kubeconfig are both set", "takes the data"),
    "authority and insecure": (config(certificate_authority="ca.pem", insecure_skip_tls_verify=True),
        "insecure-skip-tls-verify are both", "takes it"),
    "authority that is gone": (config(certificate_authority="gone.pem"), "gone.pem: No such file"),
    "authority that is empty": (config(certificate_authority="empty.pem"), "empty.pem is empty", "trusts no one"),
    "no server": (config(server=None), 'cluster "c": server is missing', "asks localhost"),
    "no such cluster": (config() | {"clusters": [{"name": "d", "cluster": {}}]}, 'cluster "c": server is missing'),
    "no current context": (config() | {"current-context": ""}, "no current context"),
    "no such context": (config() | {"current-context": "gone"}, 'context "gone" does not exist'),
    "server that is a list": (config() | {"clusters": [{"name": "c", "cluster": {"server": ["a"]}}]},
        'cluster "c": server must be a string'),
    "insecure as a text": (config(insecure_skip_tls_verify="yes"), "must be true or false", "does not verify"),
    "two of one name": (config() | {"users": [{"name": "u"}, {"name": "u"}]}, "each with a name of its own"),
    "users that are no list": (config() | {"users": {"u": {}}}, "users must be a list"),
    "a user that is a text": (config() | {"users": [{"name": "u", "user": "s3cret"}]}, "users must be a list of mappings"),
    "no mapping": ("- s3cret", "is not a mapping"),
    "no YAML": ("a: [s3cret", "is not valid YAML, line"),
}  # fmt: skip


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


def written(files: Any, folder: Path) -> str:
    """Write the files of a case, and return KUBECONFIG: bare names, as people have them in the folder where they are."""
    names = []
    for number, each in enumerate(files if isinstance(files, list) else [files]):
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


def cases(users: Rows, others: Rows) -> pytest.MarkDecorator:
    rows = {id_: (config(user), *rest) for id_, (user, *rest) in users.items()} | others
    whole = [(files, expected, *(rest or [""])) for files, expected, *rest in rows.values()]
    return pytest.mark.parametrize(("files", "expected", "package_does"), whole, ids=rows)


@cases(ACCEPTED_USERS, ACCEPTED)
def test_both_readers_give_the_access_that_client_go_does(
    folder: Path, files: Any, expected: dict[str, Any], package_does: str
) -> None:
    kubeconfig = written(files, folder)
    found = found_in(kubeconfig)
    assert found.access() == through_package(found)
    access = found.access().log_in()
    wanted = Access(**{"server": SERVER, "context": "x", "namespace": "team", **expected})
    assert replace(access, plugin=None, fresh_s=wanted.fresh_s) == wanted
    package = by_package(kubeconfig)
    agrees = package is not None and all(getattr(access, name) == value for name, value in package.items())
    assert agrees == (not package_does), package


def test_a_file_that_is_nested_without_an_end_is_refused_by_both_readers(folder: Path) -> None:
    """PyYAML before 6.0.4 ends with an error of recursion; since then it is invalid YAML."""
    kubeconfig = written("[" * 50_000, folder)
    for reader in (Kubeconfig.access, through_package):
        with pytest.raises(AccessError, match=r"config0 is (nested too deeply|not valid YAML, line 1)$"):
            reader(found_in(kubeconfig))


@cases(REFUSED_USERS, REFUSED)
def test_what_client_go_refuses_is_refused_by_both_readers_with_the_name_of_the_field(
    folder: Path, files: Any, expected: str, package_does: str
) -> None:
    kubeconfig = written(files, folder)
    for reader in (Kubeconfig.access, through_package):
        with pytest.raises(AccessError) as raised:
            reader(found_in(kubeconfig))
        assert expected in raised.value.message
        assert "\n" not in raised.value.message
        assert "s3cret" not in "".join(traceback.format_exception(raised.value))
    assert (by_package(kubeconfig) is None) == (not package_does), by_package(kubeconfig)


def test_a_file_that_was_named_must_be_there(folder: Path) -> None:
    with pytest.raises(AccessError, match="kubeconfig file none not found"):
        read_kubeconfig("none")
    assert read_kubeconfig() is None
    write(folder / ".kube/config", config(server="https://home"))
    found = read_kubeconfig()
    assert found is not None
    assert found.known.server == "https://home"


def test_options_go_before_the_context(folder: Path) -> None:
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
