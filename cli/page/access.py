"""Makes a kubeconfig into settings of the asynchronous client, so that the page acts as the plugin's user.

The kubeconfig is read again each minute: tokens in files rotate, and people log in again while the page is open.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.client.auth.credentials import (
    FILE_REFRESH_S,
    PluginReader,
    RefreshedCredentials,
    Trust,
    address_of,
    authorization,
    usable_proxy,
)
from tfjob_operator.api.client.http.errors import CredentialsError
from tfjob_operator.api.client.http.messages import Credentials, Settings
from tfjob_operator.cli.credential_plugin import run
from tfjob_operator.cli.errors import CliError
from tfjob_operator.cli.session import proxy_of_environment

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from tfjob_operator.cli.kubeconfig import Access

_WHERE: Final = "the kubeconfig"


def settings_of(read: Callable[[], Access]) -> Settings:
    """Return the settings for the server that `read` finds, with credentials that are refreshed by calling it again.

    Blocks (files). Raises CliError, ConfigError, CredentialsError, and OSError for certificates that cannot be used.
    """
    access = read()
    tls = address_of(access.server).tls
    trust = Trust(access.authority, verify=access.verify) if tls else None
    reader = _Reader(read, trust)
    proxy = access.proxy or proxy_of_environment(access.server)
    first = reader() if access.command is None else None  # a plugin may ask on the terminal: the first request runs it
    return Settings(
        access.server,
        RefreshedCredentials(reader, first=first),
        tls_server_name=access.tls_server_name,
        proxy=usable_proxy(proxy),
    )


class _Reader:
    """Reads credentials. A context is made anew only for another certificate: a new one closes all connections."""

    def __init__(self, read: Callable[[], Access], trust: Trust | None) -> None:
        self._read = read
        self._trust = trust
        self._pair: tuple[str | None, str | None] = (None, None)
        self._context: ssl.SSLContext | None = trust.context() if trust is not None else None

    def __call__(self) -> Credentials:
        """Return what the kubeconfig holds now. Raises CredentialsError."""
        try:
            access = self._read()
            context = self._context_of(access)
            if access.command is not None:
                return PluginReader(str(access.command.get("command")), _runs(access), self._trust, context)()
            return Credentials(_header(access), context, FILE_REFRESH_S)
        except CliError as error:
            raise CredentialsError(error.message) from error
        except OSError as error:
            raise CredentialsError(f"the certificates of {_WHERE} cannot be used: {error}") from error

    def _context_of(self, access: Access) -> ssl.SSLContext | None:
        pair = access.certificate, access.key
        if self._trust is not None and pair != self._pair:
            certificate, key = pair
            both = certificate and key
            self._context = (
                self._trust.context_from_pem(certificate or "", key or "") if both else self._trust.context()
            )
            self._pair = pair
        return self._context


def _runs(access: Access) -> Callable[[], Mapping[str, str]]:
    command, cluster = access.command or {}, access.cluster

    def status() -> Mapping[str, str]:
        try:
            return run(command, cluster)
        except CliError as error:
            raise CredentialsError(error.message) from error

    return status


def _header(access: Access) -> str | None:
    """Return the Authorization header. A password wins over a token, as in kubectl."""
    if access.basic is not None:
        return f"Basic {base64.b64encode(':'.join(access.basic).encode()).decode()}"
    return authorization(f"Bearer {access.token}", f"the token of {_WHERE}") if access.token else None
