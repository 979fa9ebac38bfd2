"""The settings of a client, with credentials that are reloaded before tokens and certificates expire."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tfjob_operator.api.access import SERVICE_HOST, Access, AccessError, access_of_pod
from tfjob_operator.api.client.auth.credentials import RefreshedCredentials
from tfjob_operator.api.client.http.messages import Credentials, Settings

if TYPE_CHECKING:
    from tfjob_operator.api.kubeconfig import Kubeconfig

log = structlog.get_logger(__name__)


def load_settings(
    kubeconfig: str | None = None,
    *,
    master: str | None = None,
    read_entries: Callable[[Kubeconfig], Access] | None = None,
) -> Settings:
    """Read `kubeconfig` if given, else the files of KUBECONFIG, else the pod's service account, else ~/.kube/config.

    `master` overrides the server's URL. `read_entries` reads a cluster and a user; by default, `Kubeconfig.access` does. Needs
    no event loop and blocks: call it before the loop starts, or as `await asyncio.to_thread(load_settings, ...)`. A credential
    plugin is started by the first request, not here.

    Raises AccessError.
    """
    if SERVICE_HOST in os.environ and not (kubeconfig or os.environ.get("KUBECONFIG")):
        return settings_of(partial(access_of_pod, master))
    return settings_of(partial(_access_of_kubeconfig, kubeconfig, master, read_entries))


def settings_of(read: Callable[[], Access]) -> Settings:
    """Return settings whose credentials are reloaded with `read`. Blocks; raises AccessError."""
    access = read()
    if access.impersonate:
        raise AccessError("impersonation (`as`) is not supported")
    server, proxy = access.route()
    if server.scheme == "https" and not access.verify:
        log.warning("server_not_verified", server=access.shown, because="insecure-skip-tls-verify")
    reader = _Reader(read, access)
    # A plugin may prompt on the terminal, so it is not run before the first request.
    first = reader.credentials_of(access) if access.plugin is None else None
    return Settings(
        server=access.server,
        credentials=RefreshedCredentials(reader, first=first),
        tls_server_name=access.tls_server_name,
        proxy=proxy.geturl() if proxy else None,
    )


class _Reader:
    """Reloads credentials. The TLS context is replaced only if certificates changed, since a new one closes all connections."""

    def __init__(self, read: Callable[[], Access], first: Access) -> None:
        self._read = read
        self._for = (first.server, first.context)
        self._trusted: tuple[str | None, ...] | None = None
        self._tls: ssl.SSLContext | None = None

    def __call__(self) -> Credentials:
        """Return the current credentials. Raises AccessError."""
        access = self._read()
        if (access.server, access.context) != self._for:  # the credentials are for another server
            raise AccessError("the kubeconfig names another context or server now: restart to use it")
        return self.credentials_of(access.log_in(quiet=True))

    def credentials_of(self, access: Access) -> Credentials:
        """Return the credentials of an access after login. Raises AccessError."""
        trusted = (access.authority, access.certificate, access.key)
        if trusted != self._trusted:
            self._tls, self._trusted = access.tls_context(), trusted
        return Credentials(access.authorization, self._tls, access.fresh_s)


def _access_of_kubeconfig(
    file: str | None, master: str | None, read_entries: Callable[[Kubeconfig], Access] | None
) -> Access:
    # Imported here because a pod does not need this module: its imports take almost 1 MB.
    from tfjob_operator.api.kubeconfig import read_kubeconfig

    found = read_kubeconfig(file, cluster={"server": master} if master else {})
    if found is None:
        named = os.environ.get("KUBECONFIG")
        remedy = f"KUBECONFIG={named} has none" if named and not file else "set KUBECONFIG or pass a kubeconfig"
        raise AccessError(f"no cluster configured: {remedy}")
    return found.access() if read_entries is None else found.complete(read_entries(found))
