"""Kubeconfig files for one control plane.

In: the server's address, the authority and a client's credential. Out: a file with all of these embedded, so that it can
be handed to any client and does not depend on the files that it was made from. The file is JSON, which is YAML too.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from hack.control_plane.run.pki import Credential


def write_kubeconfig(path: Path, *, server: str, authority: Path, user: str, credential: Credential) -> Path:
    """Write the kubeconfig of one user, readable by its owner alone; return its path."""
    context = "tfjob-control-plane"
    cluster = {"server": server, "certificate-authority-data": _embedded(authority)}
    identity = {
        "client-certificate-data": _embedded(credential.certificate),
        "client-key-data": _embedded(credential.key),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": user}}],
        "current-context": context,
    }
    # Written under another name and renamed: a reader never sees half of it, and two writers do each other no harm.
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(document, file, indent=2)
    draft.rename(path)
    return path


def _embedded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
