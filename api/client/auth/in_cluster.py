"""The settings of a pod: the two variables and the files that every kubelet gives it.

They are read here, and not by the `kubernetes` package, whose import costs 0.3 s, and 19 MB for as long as the process lives.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tfjob_operator.api.client.auth.addresses import address_of, usable_proxy
from tfjob_operator.api.client.auth.credentials import RefreshedCredentials
from tfjob_operator.api.client.auth.readers import FileReader
from tfjob_operator.api.client.auth.tls import Trust
from tfjob_operator.api.client.http.errors import ConfigError
from tfjob_operator.api.client.http.settings import Settings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token and the authority that signed the API server's certificate."""

SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT: Final = "KUBERNETES_SERVICE_PORT"
"""With the variable before it, the address of the API server's service. That one also tells a program that it runs in a pod."""

_PROXIES: Final = ("https_proxy", "http_proxy", "all_proxy")


def read_service_account(master: str | None = None) -> Settings:
    """Read the settings of this pod; `master` overrides the server's URL.

    The token is read again as it rotates. Raises ConfigError, CredentialsError or OSError.
    """
    server = (master or _server()).rstrip("/")
    address = address_of(server)
    context = trust = None
    if address.tls:
        trust = Trust(_authority(SERVICE_ACCOUNT / "ca.crt"))
        context = trust.context()
    reader = FileReader(SERVICE_ACCOUNT / "token", None, None, trust, context)
    return Settings(server, RefreshedCredentials(reader, first=reader()), proxy=_proxy(server))


def _server() -> str:
    host, port = os.environ.get(SERVICE_HOST), os.environ.get(SERVICE_PORT)
    if not host or not port:
        raise ConfigError(f"{SERVICE_HOST} and {SERVICE_PORT} are not both set")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _authority(file: Path) -> str:
    authority = file.read_text("utf-8")
    if not authority.strip():  # without an authority the system's would be trusted
        raise ConfigError(f"{file} is empty")
    return authority


def _proxy(server: str) -> str | None:
    """Return the proxy of the environment. Few pods have one, so its rules are imported only then."""
    if not any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES):
        return None
    from tfjob_operator.api.client.auth.kubeconfig import proxy_of_environment

    return usable_proxy(proxy_of_environment(server))
