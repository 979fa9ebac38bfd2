"""The manifest by which krew finds and installs the plugin. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from hack.plugin.platforms import Platform

PLUGIN: Final = "tfjob"
SHORT: Final = "Run and watch TFJobs"
DESCRIPTION: Final = """\
Verbs for TFJobs of kubeflow.org: why a job does not run, the logs of all its
replicas over restarts, its TensorBoard, what it uses; suspend, resume, restart
and scale; manifests checked without a cluster.
"""
CAVEATS: Final = """\
It needs Python 3.11, 3.12 or 3.13 as python3.
For completion by Tab (kubectl 1.26 and newer): kubectl tfjob completion --install
"""


def manifest(version: str, url: str, homepage: str, digests: Iterable[tuple[Platform, str]]) -> dict[str, Any]:
    """Return the manifest of a release whose archives lie at `url`; `digests` are the SHA-256 of the archives."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": platform.os, "arch": platform.arch}},
            "uri": f"{url.rstrip('/')}/{platform.archive}",
            "sha256": digest,
            "bin": "kubectl-tfjob",
        }
        for platform, digest in digests
    ]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": f"v{version}",
            "homepage": homepage,
            "shortDescription": SHORT,
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": platforms,
        },
    }
