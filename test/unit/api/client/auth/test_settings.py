"""load_settings: kubeconfigs and service accounts of every kind, and secrets that must not leak from them."""

import asyncio
import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture
from structlog.testing import capture_logs

from fakes.loopback import server_context
from hack.control_plane.run.pki import Authority
from tfjob_operator.api import access
from tfjob_operator.api.access import AccessError
from tfjob_operator.api.client.auth.settings import load_settings, settings_of
from tfjob_operator.api.client.http import Credentials, Settings
from tfjob_operator.controller.kubeconfig import read_entries

SECRET = "s3cret-s3cret-s3cret"


@pytest.fixture(autouse=True)
def outside(mocker: MockerFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the machine's cluster, kubeconfig and proxies from the tests, and put temporary files where they are counted."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    (tmp_path / "temporary").mkdir()
    mocker.patch.object(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("HOME", str(tmp_path))


def write(path: Path, user: dict[str, Any] | None = None, **cluster: Any) -> str:
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:6443", **cluster}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", **({"user": "u"} if user is not None else {})}}],
        "current-context": "x",
        "users": [{"name": "u", "user": user}] if user is not None else [],
    }
    path.write_text(json.dumps(document))
    return str(path)


def plugin(tmp_path: Path, **status: str) -> dict[str, Any]:
    """The `exec` of a user whose plugin prints credentials, and counts its runs in `runs`."""
    version = "client.authentication.k8s.io/v1"
    (tmp_path / "answer").write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
    script = f"echo {SECRET} >&2; echo run >> {tmp_path}/runs; cat {tmp_path}/answer"
    return {"exec": {"apiVersion": version, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}}


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def credentials_of(settings: Settings) -> Credentials:
    async def get() -> Credentials:
        return await settings.credentials.get()

    return asyncio.run(get())


def header_of(settings: Settings) -> str | None:
    return credentials_of(settings).authorization


def presented(settings: Settings, authority: Authority, *, name: str = "127.0.0.1") -> str | None:
    """Shake hands in memory as a client with these settings; return the common name of the certificate it presented."""
    client_context = credentials_of(settings).ssl_context
    assert client_context is not None
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client_context.wrap_bio(down, up, server_hostname=name)
    server_side = server_context(authority).wrap_bio(up, down, server_side=True)
    for side in (client_side, server_side, client_side, server_side):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    certificate = server_side.getpeercert()
    if not certificate:
        return None
    subject: Any = certificate["subject"]
    return str(dict(pair for entry in subject for pair in entry)["commonName"])


async def get_later(settings: Settings, later_s: float = 61.0) -> Credentials:
    """The credentials that are sent a minute later, once the thread that reads them has ended."""
    await settings.credentials.get()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    loop.time = lambda: begin + later_s  # type: ignore[method-assign]
    await settings.credentials.get()
    for thread in threading.enumerate():
        if thread.name == "credentials":
            thread.join()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return await settings.credentials.get()


def test_a_token_file_is_read_again_when_it_rotates(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    settings = load_settings(write(tmp_path / "config", {"tokenFile": "token"}))
    (tmp_path / "token").write_text("new")
    assert header_of(settings) == "Bearer old"
    assert asyncio.run(get_later(settings)).authorization == "Bearer new"


def test_a_client_certificate_in_files_is_read_again_when_it_rotates(tmp_path: Path, authority: Authority) -> None:
    """A new certificate gets a new context, so that no connection of the old one is reused; otherwise the context is kept."""
    old, new = authority.client("old", "old"), authority.client("new", "new")
    for source, name in ((old.certificate, "tls.crt"), (old.key, "tls.key")):
        (tmp_path / name).write_bytes(source.read_bytes())
    user = {"client-certificate": "tls.crt", "client-key": "tls.key"}
    settings = load_settings(write(tmp_path / "config", user, **{"certificate-authority": str(authority.certificate)}))
    context = credentials_of(settings).ssl_context
    assert asyncio.run(get_later(settings)).ssl_context is context
    for source, name in ((new.certificate, "tls.crt"), (new.key, "tls.key")):
        (tmp_path / f"{name}.new").write_bytes(source.read_bytes())
        (tmp_path / f"{name}.new").rename(tmp_path / name)
    assert asyncio.run(get_later(settings, 200.0)).ssl_context is not context
    assert presented(settings, authority) == "new"


def test_a_plugin_is_run_by_the_first_request_and_not_again_while_its_token_lives(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What it writes to standard error is not in the operator's log."""
    user = plugin(tmp_path, token=SECRET, expirationTimestamp="2999-01-01T00:00:00Z")
    settings = load_settings(write(tmp_path / "config", user))
    assert not (tmp_path / "runs").exists()
    assert [header_of(settings), header_of(settings)] == [f"Bearer {SECRET}"] * 2
    assert len((tmp_path / "runs").read_text().splitlines()) == 1
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("change", [{"context": "b"}, {"server": "http://127.0.0.1:2"}], ids=["context", "server"])
def test_credentials_for_another_context_or_server_are_not_sent_to_the_first(change: dict[str, Any]) -> None:
    """The kubeconfig is read again each minute, and `kubectl config use-context` changes it."""
    first = access.Access("http://127.0.0.1:1", context="a", authorization="Bearer of-a")
    found = iter([first, replace(first, authorization="Bearer of-b", **change)])
    settings = settings_of(lambda: next(found))
    with capture_logs() as lines:
        assert asyncio.run(get_later(settings)).authorization == "Bearer of-a"
    assert [line["error"] for line in lines] == [
        "the kubeconfig names another context or server now: restart to use it"
    ]


def test_a_server_that_the_authority_did_not_sign_for_this_name_is_refused(
    tmp_path: Path, authority: Authority
) -> None:
    (tmp_path / "pki").mkdir()
    other = Authority.make(tmp_path / "pki")
    settings = load_settings(write(tmp_path / "c", {}, **{"certificate-authority": str(other.certificate)}))
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        presented(settings, authority)
    settings = load_settings(write(tmp_path / "c", {}, **{"certificate-authority": str(authority.certificate)}))
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        presented(settings, authority, name="elsewhere.example")


def test_insecure_skip_tls_verify_accepts_any_certificate_and_warns(tmp_path: Path, authority: Authority) -> None:
    with capture_logs() as lines:
        settings = load_settings(write(tmp_path / "config", {}, **{"insecure-skip-tls-verify": True}))
    assert presented(settings, authority, name="elsewhere.example") is None
    assert [line["event"] for line in lines] == ["server_not_verified"]


def test_master_overrides_the_server_and_the_name_in_its_certificate(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {"token": "t"}, **{"tls-server-name": "kubernetes"})
    assert load_settings(path).tls_server_name == "kubernetes"
    assert load_settings(path, master="https://10.0.0.1:443").tls_server_name is None
    assert load_settings(path, master="https://10.0.0.1:443/").server == "https://10.0.0.1:443"
    assert credentials_of(load_settings(path, master="http://127.0.0.1:8001")).ssl_context is None


@pytest.mark.parametrize(
    ("server", "environment", "cluster", "expected"),
    [
        ("https://10.0.0.1", {}, {}, None),
        ("https://10.0.0.1", {"HTTPS_PROXY": "http://p:3128"}, {}, "http://p:3128"),
        ("https://10.0.0.1", {"HTTP_PROXY": "http://p:3128"}, {}, None),
        ("http://10.0.0.1", {"http_proxy": "http://p:3128"}, {}, "http://p:3128"),
        ("https://10.0.0.1", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.0.0.0/8"}, {}, None),
        ("https://10.0.0.1", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "10.9.0.0/16"}, {}, "http://p:3128"),
        ("https://api.corp.example", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": ".corp.example"}, {}, None),
        ("https://api.example", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "*"}, {}, None),
        ("https://sub.a.example", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "b, a.example:443"}, {}, None),
        ("https://sub.a.example", {"HTTPS_PROXY": "p:3128", "NO_PROXY": "a.example:80"}, {}, "http://p:3128"),
        ("https://[fd00::1]", {"HTTPS_PROXY": "p:3128", "NO_PROXY": "[fd00::1]:80,fe80::/10"}, {}, "http://p:3128"),
        ("https://[fd00::1]", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": " [fd00::1]:443"}, {}, None),
        ("https://10.0.0.1", {"HTTPS_PROXY": "http://p:3128", "https_proxy": "http://q:1"}, {}, "http://p:3128"),
        ("https://a.example", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "A.EXAMPLE"}, {}, None),
        ("https://a.example.", {"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "a.example"}, {}, "http://p:3128"),
        ("https://10.0.0.1", {"ALL_PROXY": "http://p:3128"}, {}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:3128"}, {}, None),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://p:3128"}, {}, None),
        ("https://10.0.0.1", {}, {"proxy-url": "http://q:1"}, "http://q:1"),
        ("https://10.0.0.1", {"HTTPS_PROXY": "http://p:3128"}, {"proxy-url": "http://q:1"}, "http://q:1"),
        ("https://127.0.0.1", {"NO_PROXY": "*"}, {"proxy-url": "http://q:1"}, "http://q:1"),
    ],
)
def test_proxies_of_the_environment_have_exceptions_and_those_of_a_kubeconfig_have_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    server: str,
    environment: dict[str, str],
    cluster: dict[str, str],
    expected: str | None,
) -> None:
    """As in Go's clients: NO_PROXY has names and networks, loopback never uses a proxy; proxy-url applies always."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert load_settings(write(tmp_path / "config", {}, server=server, **cluster)).proxy == expected


def test_a_proxy_that_is_not_spoken_to_by_http_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {}, **{"proxy-url": f"socks5://ada:{SECRET}@q:1080"})
    with pytest.raises(AccessError, match="the address of the proxy must have the form http://host:port") as raised:
        load_settings(path)
    assert SECRET not in str(raised.value)


@pytest.fixture
def service_account(
    tmp_path: Path, mocker: MockerFixture, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> Path:
    """A pod's service account; the folder with its files."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("old\n")
    (tmp_path / "ca.crt").write_bytes(authority.certificate.read_bytes())
    mocker.patch.object(access, "SERVICE_ACCOUNT", tmp_path)
    return tmp_path


def test_in_a_cluster_the_service_account_is_used(
    service_account: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://p:3128")
    settings = load_settings()
    assert settings.proxy == "http://p:3128"
    assert settings.server == "https://[fd00::1]:443"
    assert header_of(settings) == "Bearer old"
    assert presented(settings, authority) is None


def test_in_a_cluster_the_token_is_read_again_and_one_that_is_gone_or_empty_leaves_the_last(
    service_account: Path,
) -> None:
    settings = load_settings()
    (service_account / "token").write_text("new\n")
    assert asyncio.run(get_later(settings)).authorization == "Bearer new"
    settings = load_settings()
    (service_account / "token").write_text("")
    with capture_logs() as lines:
        assert asyncio.run(get_later(settings)).authorization == "Bearer new"
        (service_account / "token").unlink()
        assert asyncio.run(get_later(settings, 1000.0)).authorization == "Bearer new"
    assert [line["event"] for line in lines] == ["credentials_not_refreshed"] * 2


def test_in_a_cluster_without_a_service_account_the_error_says_what_is_missing(service_account: Path) -> None:
    (service_account / "token").unlink()
    with pytest.raises(AccessError, match=f"cannot read {service_account}/token"):
        load_settings()
    (service_account / "ca.crt").unlink()
    with pytest.raises(AccessError, match=f"cannot read {service_account}/ca.crt"):
        load_settings()


def test_in_a_cluster_an_authority_that_is_empty_does_not_mean_all_of_the_world(service_account: Path) -> None:
    """Without an authority, OpenSSL would trust those of the system."""
    (service_account / "ca.crt").write_text("\n")
    with pytest.raises(AccessError, match=r"ca\.crt is empty"):
        load_settings()


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"])
def test_in_a_cluster_both_parts_of_the_address_are_needed(
    service_account: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setenv(missing, "")
    with pytest.raises(AccessError, match="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must both be set"):
        load_settings()


def test_in_a_cluster_master_overrides_the_server(service_account: Path) -> None:
    assert load_settings(master="https://10.0.0.1:443/").server == "https://10.0.0.1:443"
    plain = load_settings(master="http://127.0.0.1:8001")
    assert (credentials_of(plain).ssl_context, header_of(plain)) == (None, "Bearer old")
    with pytest.raises(AccessError, match="must have the form https://host:port"):
        load_settings(master="elsewhere")


def test_a_kubeconfig_that_was_named_wins_over_the_cluster(
    service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the flag, or by KUBECONFIG, over which the flag wins."""
    kubeconfig = write(service_account / "config", {})
    assert load_settings(kubeconfig).server == "https://127.0.0.1:6443"
    monkeypatch.setenv("KUBECONFIG", f"none:{kubeconfig}")
    assert load_settings().server == "https://127.0.0.1:6443"
    other = write(service_account / "other", {}, server="https://other")
    assert load_settings(other).server == "https://other"


def test_a_kubeconfig_that_cannot_be_used_is_one_error_without_secrets(tmp_path: Path) -> None:
    """Which one each mistake is: test_kubeconfig.py."""
    with pytest.raises(AccessError, match=r"kubeconfig file .*/config not found"):
        load_settings(str(tmp_path / "config"))
    (tmp_path / "config").write_text(f"users: [{{name: u, user: {{token: {SECRET}}}}}]")
    with pytest.raises(AccessError, match="no cluster configured: set KUBECONFIG or pass a kubeconfig"):
        load_settings(str(tmp_path / "config"))
    user = {"client-certificate-data": inline(tmp_path / "config"), "client-key-data": inline(tmp_path / "config")}
    with pytest.raises(AccessError, match="invalid certificate or key") as raised:
        load_settings(write(tmp_path / "config", {**user, "password": SECRET}))
    assert SECRET not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    "server", ["", "api.example:6443", "ftp://api.example", "https://", "https://a..b", "https://a:0"]
)
def test_an_address_that_is_none_is_refused_at_once(tmp_path: Path, server: str) -> None:
    with pytest.raises(AccessError, match=r"address|server"):
        load_settings(write(tmp_path / "config", {}, server=server))


def test_a_kubeconfig_of_the_environment_that_does_not_exist_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = str(tmp_path / "nope")
    monkeypatch.setenv("KUBECONFIG", missing)
    with pytest.raises(AccessError, match=f"no cluster configured: KUBECONFIG={missing} has none"):
        load_settings()


def test_settings_do_not_show_their_secrets(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path / "c", {"token": SECRET}, **{"proxy-url": f"http://ada:{SECRET}@q:1"}))
    assert SECRET not in repr(settings)


@pytest.mark.parametrize("in_memory", [True, False])
def test_no_key_is_left_in_a_file(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, *, in_memory: bool
) -> None:
    """OpenSSL and the `kubernetes` package need files; these exist, or are open, only while the settings are loaded."""
    if not in_memory:  # as on macOS
        monkeypatch.delattr(os, "memfd_create")
    client = authority.client("ada", "ada")
    embedded = {"client-certificate-data": inline(client.certificate), "client-key-data": inline(client.key)}
    answered = {"clientCertificateData": client.certificate.read_text(), "clientKeyData": client.key.read_text()}
    ca = {"certificate-authority-data": inline(authority.certificate)}
    for _ in range(2):  # the package remembers its files: the second time they must be made again
        settings = load_settings(write(tmp_path / "config", embedded, **ca), read_entries=read_entries)
        assert presented(settings, authority) == "ada"
    settings = load_settings(write(tmp_path / "config", plugin(tmp_path, **answered), **ca))
    assert presented(settings, authority) == "ada"
    assert [*(tmp_path / "temporary").iterdir()] == []
    opened = (str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
    assert not [name for name in opened if "memfd:client-certificate" in name]


def test_an_encrypted_key_fails_and_does_not_ask_the_terminal(tmp_path: Path, authority: Authority) -> None:
    from cryptography.hazmat.primitives import serialization

    client = authority.client("ada", "ada")
    key: Any = serialization.load_pem_private_key(client.key.read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(SECRET.encode()),
    )
    (tmp_path / "tls.key").write_bytes(encrypted)
    user = {"client-certificate": str(client.certificate), "client-key": "tls.key"}
    with pytest.raises(AccessError, match="SSL"):
        load_settings(write(tmp_path / "config", user))


def test_settings_can_be_loaded_beside_a_running_loop(tmp_path: Path, authority: Authority) -> None:
    """Many at once: the `kubernetes` package shares its files among them, and one must not delete another's."""
    client = authority.client("ada", "ada")
    user = {"client-certificate-data": inline(client.certificate), "client-key-data": inline(client.key)}
    path = write(tmp_path / "config", user, **{"certificate-authority-data": inline(authority.certificate)})

    async def load() -> list[Settings]:
        return await asyncio.gather(
            *(asyncio.to_thread(load_settings, path, read_entries=read_entries) for _ in range(16))
        )

    assert {settings.server for settings in asyncio.run(load())} == {"https://127.0.0.1:6443"}


def test_the_kubernetes_package_is_not_imported_in_a_pod(service_account: Path) -> None:
    """Nor before a kubeconfig is read: it costs 23 MB and 0.15 s, half of an idle operator's memory."""
    code = f"""
import sys
from pathlib import Path
from tfjob_operator.api import access
from tfjob_operator.api.access import AccessError
from tfjob_operator.api.client import load_settings
access.SERVICE_ACCOUNT = Path({str(service_account)!r})
assert load_settings().server == "https://[fd00::1]:443"
sys.exit("kubernetes" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
