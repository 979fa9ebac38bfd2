"""Where the API server is, and as whom: a named kubeconfig, the pod's service account, or the default kubeconfig.

The settings of a pod are the two variables and the files that every kubelet provides. They are read here, and not by the
`kubernetes` package, whose import costs 0.3 s, and 19 MB for as long as the process lives.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from tfjob_operator.api.client.auth.credentials import FileReader, RefreshedCredentials, Trust, address_of, usable_proxy
from tfjob_operator.api.client.http.errors import ApiError, ConfigError
from tfjob_operator.api.client.http.messages import Settings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token and the authority that signed the API server's certificate."""
SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT: Final = "KUBERNETES_SERVICE_PORT"
"""With the variable before it, the address of the API server's service. That one also tells a program that it runs in a pod."""
_PROXIES: Final = ("https_proxy", "http_proxy", "all_proxy")


def read_service_account(master: str | None = None) -> Settings:
    """Read the settings of this pod; `master` overrides the URL. Raises ConfigError, CredentialsError or OSError."""
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
        raise ConfigError(f"{SERVICE_HOST} and {SERVICE_PORT} must both be set")
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


def load_settings(kubeconfig: str | None = None, *, master: str | None = None) -> Settings:
    """Read the settings: from `kubeconfig` if given, else from the pod's service account, else from the default kubeconfig.

    `master` overrides the server's URL. Needs no loop and blocks (files): call it before the loop starts, or as
    `await asyncio.to_thread(load_settings, ...)`. A credential plugin is not started yet; the first request does that.

    Raises ConfigError with a message for a person.
    """
    in_cluster = kubeconfig is None and SERVICE_HOST in os.environ
    path = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    try:
        if in_cluster:
            return read_service_account(master)
        # Not for a pod: with what it imports in turn it is almost a megabyte, without the `kubernetes` package.
        from tfjob_operator.api.client.auth.kubeconfig import read_kubeconfig

        return read_kubeconfig(path, master)
    except Exception as error:  # noqa: BLE001 - for files written by hand parsers raise whatever they meet
        where = "the service account of this pod" if in_cluster else f"kubeconfig {path}"
        raise ConfigError(f"{where} cannot be loaded: {_without_secrets(error)}") from None


def _without_secrets(error: Exception) -> str:
    if isinstance(error, ApiError):
        return error.message
    if isinstance(error, OSError):  # the file's name and the system's words
        return str(error)
    if type(error).__name__ == "ConfigException":  # names entries by quoting them whole, as a dict
        return str(error).partition("{")[0].strip()
    mark = getattr(error, "problem_mark", None)
    where = f" near line {mark.line + 1}" if mark is not None else ""
    return f"invalid content{where} ({type(error).__name__})"
