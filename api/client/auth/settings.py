"""Settings of a person or a pod: from a named kubeconfig, the pod's service account, or the default kubeconfig."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfjob_operator.api.client.auth.in_cluster import SERVICE_HOST, read_service_account
from tfjob_operator.api.client.http.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from tfjob_operator.api.client.http.settings import Settings


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
        raise ConfigError(f"{where} cannot be used: {_without_secrets(error)}") from None


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
