"""Where the API server is and how we prove who we are: kubeconfig or in-cluster, read by the `kubernetes` package.

That package is imported here alone, and only when settings are loaded: it costs 40 MB and 0.3 s. Its objects do not leave
this module; what leaves is `Settings`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from api.client.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TOKEN_REFRESH_S = 60.0
"""How old a token may get before it is asked for again: the kubelet rotates mounted tokens long before they expire, and
client-go re-reads the file once a minute."""


class ConfigError(ApiError):
    """The kubeconfig or the in-cluster environment can not be used."""


async def _no_authorization() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a transport needs to know about a server.

    `authorization` is awaited before each request and answers the value of the Authorization header, or None.
    """

    server: str
    ssl_context: ssl.SSLContext | None = None
    tls_server_name: str | None = None
    proxy: str | None = None
    authorization: Callable[[], Awaitable[str | None]] = field(default=_no_authorization)


class _TokenSource:
    """Answers the Authorization header, asking `read` in a thread at most once per `TOKEN_REFRESH_S`.

    `read` may open a file or start a credential plugin, so it never runs on the loop. When it fails the last good value
    stays in use: an expired token is refused by the server, which is an error that says more than ours would.
    """

    def __init__(self, read: Callable[[], str | None], first: str | None) -> None:
        self._read = read
        self._value = first
        self._next_read: float | None = None
        self._lock = asyncio.Lock()

    async def __call__(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if self._next_read is None:
            self._next_read = now + TOKEN_REFRESH_S
        if now < self._next_read or self._lock.locked():
            return self._value
        async with self._lock:
            self._next_read = now + TOKEN_REFRESH_S
            with contextlib.suppress(Exception):  # a plugin may raise anything; see the class docstring
                self._value = await asyncio.to_thread(self._read)
        return self._value


def load_settings(kubeconfig: str | None = None, *, master: str | None = None) -> Settings:
    """Read the settings: from `kubeconfig` if given, else from the pod's service account, else from the default kubeconfig.

    `master` overrides the server's URL. Blocks (files, perhaps a credential plugin): call it before the loop starts.
    Raises ConfigError with a message for a person.
    """
    from kubernetes.client import Configuration
    from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

    configuration = Configuration()
    try:
        if kubeconfig is not None:
            load_kube_config(kubeconfig, client_configuration=configuration, persist_config=False)
        else:
            try:
                load_incluster_config(client_configuration=configuration)
            except ConfigException:
                load_kube_config(client_configuration=configuration, persist_config=False)
    except (ConfigException, OSError, ValueError, TypeError) as error:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "neither in-cluster settings nor a kubeconfig"
        raise ConfigError(f"{where} can not be used: {error}") from error
    return _settings_of(configuration, master)


def _settings_of(configuration: Any, master: str | None) -> Settings:
    server = (master or configuration.host).rstrip("/")
    context: ssl.SSLContext | None = None
    if server.startswith("https"):
        try:
            context = _ssl_context(configuration)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the certificates of the configuration can not be used: {error}") from error

    def read() -> str | None:
        value = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        return _capitalised(value) if value else None

    first = read()
    return Settings(
        server=server,
        ssl_context=context,
        tls_server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
        authorization=_TokenSource(read, first) if first is not None else _no_authorization,
    )


def _ssl_context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _capitalised(value: str) -> str:
    """The in-cluster loader writes the scheme as `bearer`; some proxies compare it by letter case."""
    scheme, _, rest = value.partition(" ")
    return f"{scheme.capitalize()} {rest.strip()}" if rest else value
