"""The programs of a node: from Debian's packages, and built from its source package of Kubernetes.

They are fetched outside of the sandbox, which has no network. `iptables` and the others of `INSTALLED` are plain programs and
get installed. containerd comes with a service, so it is unpacked into the cache and run from there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hack import packages
from hack.control_plane.build.binaries import find_or_build_programs

INSTALLED: Final = (
    "runc",
    "containernetworking-plugins",  # /usr/lib/cni
    "iptables",
    "conntrack",
    "ethtool",
    "iproute2",
    "socat",
    "dnsmasq-base",  # without the service, which is in `dnsmasq`
)


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of programs; `containerd` is the folder with all programs of containerd."""

    kubelet: Path
    kube_scheduler: Path
    kube_proxy: Path
    containerd: Path
    catatonit: Path

    def to_json(self) -> dict[str, str]:
        """Return the paths as text."""
        return {name: str(path) for name, path in asdict(self).items()}

    @classmethod
    def from_json(cls, content: dict[str, str]) -> Tools:
        """Read what `to_json` made."""
        return cls(**{name: Path(path) for name, path in content.items()})


def prepare() -> Tools:
    """Find, install or build everything: a minute and more the first time, then at once. Raises ControlPlaneError."""
    packages.install(INSTALLED)
    programs = find_or_build_programs(
        ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kubelet", "kube-scheduler", "kube-proxy"]
    )
    return Tools(
        kubelet=programs["kubelet"],
        kube_scheduler=programs["kube-scheduler"],
        kube_proxy=programs["kube-proxy"],
        containerd=packages.unpack("containerd") / "usr" / "bin",
        catatonit=packages.unpack("catatonit") / "usr" / "bin" / "catatonit",
    )
