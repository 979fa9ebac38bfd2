"""Settings from a kubeconfig, read by the `kubernetes` package, and the processes of its credential plugins.

That package is imported only here, and only when a kubeconfig is read: it costs 19 MB and 0.3 s. Its objects stay in this
module, which returns `Settings`. Whoever shows its error messages must cut them: they quote whole entries of the
kubeconfig. It could also run credential plugins, but without a time limit; here a plugin that hangs is killed.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import structlog

from tfjob_operator.api.client.auth.credentials import (
    FILE_REFRESH_S,
    FileReader,
    PluginReader,
    RefreshedCredentials,
    Trust,
    address_of,
    authorization,
    usable_proxy,
)
from tfjob_operator.api.client.http.errors import ConfigError, CredentialsError
from tfjob_operator.api.client.http.messages import Credentials, CredentialSource, FixedCredentials, Origin, Settings

PLUGIN_LIMIT_S: Final = 45.0
"""How long a plugin may take. Less than `READ_LIMIT_S`, so that requests that wait report its failure."""
_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The extension of a kubeconfig's cluster entry that is meant for plugins."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin as a kubeconfig describes it. `cluster` is the kubeconfig's cluster entry, if the plugin asks for it."""

    command: tuple[str, ...]
    api_version: str
    environment: Mapping[str, str] = field(repr=False)
    folder: str | None = None
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    limit_s: float = PLUGIN_LIMIT_S

    def __call__(self) -> Mapping[str, str]:
        """Run it and return the `status` of its ExecCredential. Blocks, for `limit_s` at most.

        Raises CredentialsError when it fails or does not end, OSError when it cannot be started, and whatever the parsing
        of its output raises. What it writes to standard error is dropped, since it may contain anything, unless we run in a
        terminal: there somebody may be asked to log in.
        """
        output = self._run(interactive=sys.stdout is not None and sys.stdout.isatty())
        response = json.loads(output)
        if (response["apiVersion"], response["kind"]) != (self.api_version, "ExecCredential"):
            raise ValueError("not an ExecCredential of the requested apiVersion")
        status: Mapping[str, str] = response["status"]
        return status

    def _run(self, *, interactive: bool) -> bytes:
        told = {"KUBERNETES_EXEC_INFO": json.dumps(self._info(interactive=interactive))}
        elsewhere = None if interactive else subprocess.DEVNULL
        # The session makes it the first of a group, so that it can be ended with all that it has started.
        process = subprocess.Popen(  # noqa: S603 - whoever wrote the kubeconfig may have it run what he likes
            self.command,
            stdin=elsewhere,
            stdout=subprocess.PIPE,
            stderr=elsewhere,
            cwd=self.folder,
            env={**self.environment, **told},
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            raise CredentialsError(f"it did not exit within {self.limit_s:g}s and was killed") from None
        finally:
            if process.returncode is None:
                _kill(process)
        if process.returncode:
            raise CredentialsError(f"exit code {process.returncode}")
        return output

    def _info(self, *, interactive: bool) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self.cluster is not None:
            extensions = self.cluster.get("extensions") or ()
            configured = {each["name"]: each["extension"] for each in extensions}
            config = {"config": configured[_EXTENSION]} if _EXTENSION in configured else {}
            spec["cluster"] = {**self.cluster, **config}
        return {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that still runs, and its group. What has left the group may keep the pipe open; nobody reads from it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


_LOADING: Final = threading.Lock()
"""The `kubernetes` package keeps the temporary files that it makes, for the whole process and by their content; so one
thread at a time may read a kubeconfig."""
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Found:
    """What the `kubernetes` package has read, and what may change while the process runs, which the package does not follow."""

    configuration: Any
    token_file: Path | None = None
    plugin: Plugin | None = None
    auth_provider: bool = False
    names_proxy: bool = False


def read_kubeconfig(path: str, master: str | None = None) -> Settings:
    """Read files, with colons between. Raises ConfigError, CredentialsError, OSError, and what the parser raises."""
    with _LOADING, TemporaryDirectory(prefix="tfjob-operator-") as scratch:
        return _settings(_find(path, scratch), master, Path(scratch))


def proxy_of_environment(server: str) -> str | None:
    """Return the proxy that the environment names for a server, if any: none for loopback and for what NO_PROXY lists."""
    from kubernetes.client import Configuration
    from kubernetes.client.rest import should_bypass_proxies

    configuration = Configuration()
    configuration.host = server
    if not configuration.proxy or _is_this_machine(server):
        return None
    if should_bypass_proxies(server, configuration.no_proxy or ""):
        return None
    return str(configuration.proxy)


def _find(path: str, scratch: str) -> _Found:
    """Let the package read a kubeconfig from which the plugin and the token file were removed.

    It would run the plugin at once, hide its failure and forget when its certificate expires; and it would read the token
    file only once.
    """
    from kubernetes.client import Configuration
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    document = KubeConfigMerger(path).config
    if document is None:
        raise ConfigError("no such file")
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
    address = address_of(server)
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
        # A proxy that the kubeconfig names always applies.
        proxy=usable_proxy(configuration.proxy if found.names_proxy else proxy_of_environment(server)),
    )


def _credentials(found: _Found, trust: Trust | None, scratch: Path) -> CredentialSource:
    """Choose how credentials are kept up to date. Files in `scratch` hold what the kubeconfig embeds, and vanish after this."""
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


def _is_this_machine(server: str) -> bool:
    """Return whether a URL leads to loopback. Go's clients never use a proxy of the environment for that."""
    host = Origin.of(server).host
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
