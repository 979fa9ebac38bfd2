"""The releases of Debian that this project names, and the only place that names them.

Programs that are downloaded and unpacked come from `PROGRAMS`, so that every machine runs the same versions. Tools that are
installed (compiler, debootstrap, Chromium) come from the machine's own release.
"""

from typing import Final

PROGRAMS: Final = "bookworm"
"""The release of etcd, kubectl, the source of Kubernetes, HAProxy, Prometheus, and containerd."""
IMAGE: Final = "trixie"
"""The release in the operator's image."""
IMAGE_PYTHON: Final = "3.13"
"""Python of `IMAGE`."""
MACHINES: Final = {"bookworm": "12", "trixie": "13"}
"""The releases on which development is supported, with their numbers."""
