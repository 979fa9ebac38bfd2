"""Where the API server is and how we prove who we are: kubeconfig or in-cluster, read by the `kubernetes` package.

That package is imported here alone, and only when settings are loaded: it costs 40 MB and 0.3 s. Its objects do not leave
this module; what leaves is `Settings`. Its messages do not leave unseen either: they quote whole kubeconfig entries.
"""

from __future__ import annotations

import ipaddress
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import structlog

from tfjob_operator.api.client.credential_plugin import Plugin
from tfjob_operator.api.client.credential_readers import FileReader, PluginReader, authorization
from tfjob_operator.api.client.credentials import FILE_REFRESH_S, Credentials, FixedCredentials, RefreshedCredentials
from tfjob_operator.api.client.errors import ApiError, ConfigError
from tfjob_operator.api.client.origin import Origin
from tfjob_operator.api.client.tls import Trust

if TYPE_CHECKING:
    from tfjob_operator.api.client.credentials import CredentialSource

_LOADING: Final = threading.Lock()
"""The `kubernetes` package remembers the files it made by what is in them, for the whole process."""

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.IGNORECASE)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a transport needs to know about a server. URLs may hold passwords, so they are not in the repr.

    `str(Origin.of(url))` is what of one may be shown.
    """

    server: str = field(repr=False)
    credentials: CredentialSource = field(default_factory=FixedCredentials, repr=False)
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class _Found:
    """What the `kubernetes` package found, and beside it what changes while we run and is therefore ours to look after."""

    configuration: Any
    token_file: Path | None = None
    plugin: Plugin | None = None
    auth_provider: bool = False
    names_proxy: bool = False


def load_settings(kubeconfig: str | None = None, *, master: str | None = None) -> Settings:
    """Read the settings: from `kubeconfig` if given, else from the pod's service account, else from the default kubeconfig.

    `master` overrides the server's URL. Needs no loop and blocks (files): call it before the loop starts, or as
    `await asyncio.to_thread(load_settings, ...)`. A credential plugin is not started yet; the first request does that.

    Raises ConfigError with a message for a person.
    """
    in_cluster = kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ
    path = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    try:
        with _LOADING, TemporaryDirectory(prefix="tfjob-operator-") as scratch:
            found = _find_in_cluster() if in_cluster else _find_in_kubeconfig(path, scratch)
            return _settings(found, master, Path(scratch))
    except Exception as error:  # noqa: BLE001 - for files written by hand the package raises whatever its parsing meets
        where = "the service account of this pod" if in_cluster else f"kubeconfig {path}"
        raise ConfigError(f"{where} can not be used: {_without_secrets(error)}") from None


def _find_in_cluster() -> _Found:
    from kubernetes.client import Configuration
    from kubernetes.config import load_incluster_config
    from kubernetes.config.incluster_config import SERVICE_TOKEN_FILENAME

    configuration = Configuration()
    load_incluster_config(client_configuration=configuration, try_refresh_token=False)
    return _Found(configuration, token_file=Path(SERVICE_TOKEN_FILENAME))


def _find_in_kubeconfig(path: str, scratch: str) -> _Found:
    """Let the package read a kubeconfig, with a plugin and a token file taken out of its sight.

    It would run the plugin at once, hide its failure and forget when its certificate expires, and read the file once.
    """
    from kubernetes.client import Configuration
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    document = KubeConfigMerger(path).config
    if document is None:
        raise ConfigError("there is no such file")
    found = _Found(Configuration())
    context = document["contexts"].get_with_name(document["current-context"])["context"]
    cluster = document["clusters"].get_with_name(context["cluster"])["cluster"]
    found.names_proxy = "proxy-url" in cluster
    entry = document["users"].get_with_name(context.safe_get("user"), safe=True)
    if entry is not None and entry.safe_get("user"):
        user = entry["user"]
        base = Path(user.path).resolve().parent
        found.auth_provider = "auth-provider" in user
        if user.safe_get("exec"):
            read = ExecProvider(user["exec"], str(base), cluster)
            about = read.cluster.value if read.cluster is not None else None
            found.plugin = Plugin(tuple(read.args), read.api_version, read.env, read.cwd, about)
        elif user.safe_get("tokenFile"):
            found.token_file = base / user["tokenFile"]  # wins over a token, as in client-go
        for name in ("exec", "tokenFile"):
            user.value.pop(name, None)
    loader = KubeConfigLoader(document, config_base_path=None, temp_file_path=scratch)
    loader.load_and_set(found.configuration)
    if "server" not in cluster:
        raise ConfigError("the cluster has no server")
    return found


def _settings(found: _Found, master: str | None, scratch: Path) -> Settings:
    configuration = found.configuration
    if master:
        configuration.host = master
    server = configuration.host.rstrip("/")
    try:
        address = Origin.of(server)
    except ValueError:
        raise ConfigError("the address of the API server must be like https://host:port") from None
    trust = None
    if address.tls:
        authority = configuration.ssl_ca_cert
        trust = Trust(Path(authority).read_text("utf-8") if authority else None, verify=configuration.verify_ssl)
        if not trust.verify:
            log.warning("server_not_verified", server=str(address), because="insecure-skip-tls-verify")
    return Settings(
        server=server,
        credentials=_credentials(found, trust, scratch),
        tls_server_name=configuration.tls_server_name or None,
        proxy=_proxy(found, server, address.host),
    )


def _credentials(found: _Found, trust: Trust | None, scratch: Path) -> CredentialSource:
    """Choose how credentials are kept true. Files in `scratch` hold what the kubeconfig embeds, and vanish after this."""
    configuration = found.configuration
    certificate, key = (
        Path(name) if name and trust else None for name in (configuration.cert_file, configuration.key_file)
    )
    context = trust.context(certificate, key) if trust else None

    def read_header() -> Credentials:
        value = configuration.get_api_key_with_prefix(
            "BearerToken"
        )  # asks an auth provider again when its token expired
        return Credentials(authorization(value, "the user") if value else None, context, FILE_REFRESH_S)

    if found.plugin is not None:
        return RefreshedCredentials(PluginReader(found.plugin.command[0], found.plugin, trust, context))
    first = read_header()
    if found.auth_provider:
        return RefreshedCredentials(read_header, first=first)
    if any(file is not None and scratch in file.parents for file in (certificate, key)):
        certificate = key = None
    if found.token_file is None and certificate is None:
        return FixedCredentials(first)
    reader = FileReader(found.token_file, certificate, key, trust, context, first.authorization)
    return RefreshedCredentials(reader, first=reader())


def _proxy(found: _Found, server: str, host: str) -> str | None:
    """The proxy, if any: a kubeconfig's own always applies, one of the environment not to this machine and NO_PROXY."""
    from kubernetes.client.rest import should_bypass_proxies

    proxy: str | None = found.configuration.proxy
    if not proxy:
        return None
    if not found.names_proxy and (
        _is_this_machine(host) or should_bypass_proxies(server, found.configuration.no_proxy or "")
    ):
        return None
    scheme = proxy.partition("://")[0]
    if scheme not in {"http", "https"}:
        named = scheme if _SCHEME.fullmatch(scheme) else "nothing"  # what is no URL may begin with a password
        raise ConfigError(f"a proxy must be reached by http or https, not by {named}")
    try:
        Origin.of(proxy)
    except ValueError:
        raise ConfigError("the address of the proxy must be like http://host:port") from None
    return proxy


def _is_this_machine(host: str) -> bool:
    """Go's clients never use a proxy of the environment for these."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _without_secrets(error: Exception) -> str:
    if isinstance(error, ApiError):
        return error.message
    if isinstance(error, OSError):  # the file's name and the system's words
        return str(error)
    if type(error).__name__ == "ConfigException":  # names entries by quoting them whole, as a dict
        return str(error).partition("{")[0].strip()
    mark = getattr(error, "problem_mark", None)
    where = f" near line {mark.line + 1}" if mark is not None else ""
    return f"something in it is not what it should be{where} ({type(error).__name__})"
