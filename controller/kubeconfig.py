"""Reads the entries of the operator's kubeconfig with the public API of the `kubernetes` package.

That package takes 0.15 s of CPU and 23 MB, so it is imported only here, and only if there is a kubeconfig. `api.kubeconfig`
merges and validates the files first; the package gets one cluster and one user.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.access import Access, AccessError, read_text

if TYPE_CHECKING:
    from tfjob_operator.api.kubeconfig import Kubeconfig

_LOADING: Final = threading.Lock()
"""The `kubernetes` package caches temporary files by content for the whole process, so only one thread at a time may read
a kubeconfig."""


def read_entries(found: Kubeconfig) -> Access:
    """Return the access for a cluster and a user. Raises AccessError, which unlike the package's errors quotes no entry."""
    from tempfile import TemporaryDirectory  # half a megabyte, which a pod does not need

    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config_from_dict

    document = {
        "clusters": [{"name": "c", "cluster": dict(found.cluster)}],
        "users": [{"name": "u", "user": dict(found.user)}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    read = Configuration()
    read.proxy = None  # otherwise it would be read from the environment
    with _LOADING, TemporaryDirectory(prefix="tfjob-operator-") as scratch:
        try:
            load_kube_config_from_dict(
                document, client_configuration=read, persist_config=False, temp_file_path=scratch
            )
            authority, certificate, key = (
                read_text(Path(file)) if file else None for file in (read.ssl_ca_cert, read.cert_file, read.key_file)
            )
        except AccessError:
            raise
        except Exception as error:  # noqa: BLE001 - what the package raises may quote the entries, so it is not a cause
            raise AccessError(f"the kubeconfig is invalid ({type(error).__name__})") from None
        return replace(
            found.known,
            server=read.host,
            authority=authority,
            verify=read.verify_ssl,
            tls_server_name=read.tls_server_name or None,
            proxy=read.proxy,
            certificate=certificate,
            key=key,
            authorization=read.get_api_key_with_prefix("BearerToken"),
        )
