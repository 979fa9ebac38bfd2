"""Checks whether this machine can run a node.

The check yields the missing requirements, or none if the machine can run a node. Every check runs in its own namespaces and
leaves nothing behind.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack import packages
from hack.control_plane.build.binaries import find_or_build_programs

# The programs of a node, from Debian's packages or built from Debian's source package of Kubernetes.
#
# They are prepared outside of the sandbox, which has no network. `iptables` and the others of `INSTALLED` are plain programs
# and are installed. The package of containerd starts a service, so it is unpacked into the cache.


INSTALLED: Final = (
    "runc",
    "containernetworking-plugins",  # /usr/lib/cni
    "iptables",
    "conntrack",
    "ethtool",
    "iproute2",
    "socat",
    "dnsmasq-base",  # the program; `dnsmasq` has its service
    *("curl", "openssl"),  # for the commands of the README
)


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of programs; `containerd` is the folder with all programs of containerd."""

    kubelet: Path
    kube_scheduler: Path
    kube_proxy: Path
    containerd: Path
    catatonit: Path


def prepare() -> Tools:
    """Find, install or build a node's programs; the first call takes minutes, later calls take no time.

    Raises ControlPlaneError.
    """
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


NAMESPACES: Final = ("--net", "--mount", "--pid", "--ipc", "--uts")
TRY_LIMIT_S: Final = 20.0
OVERLAY: Final = (
    "mount -t tmpfs none /mnt && mkdir /mnt/a /mnt/b /mnt/c /mnt/d"
    " && mount -t overlay -o lowerdir=/mnt/a,upperdir=/mnt/b,workdir=/mnt/c none /mnt/d"
)
# The layout depends on the version of control groups; both support memory limits.
GROUP: Final = (
    "cd /sys/fs/cgroup && if [ -d memory ]; then cd memory; fi && group=$(mktemp -d try-XXXXXX) && rmdir $group"
)
# The node's requirements on the kernel, each with a check that performs the same operation as the node.
ATTEMPTS: Final = (
    ("network bridges (CONFIG_BRIDGE)", "ip link add try0 type bridge"),
    ("veth pairs (CONFIG_VETH)", "ip link add try1 type veth peer name try2"),
    ("overlay mounts (CONFIG_OVERLAY_FS)", OVERLAY),
    ("a writable /sys/fs/cgroup", GROUP),
)


def lacking() -> Iterator[str]:
    """Yield the requirements of a real node that this machine does not meet. Raises ControlPlaneError.

    The kernel is tried with `ip`, which a new machine does not have, so that is installed first.
    """
    if sys.platform != "linux" or shutil.which("apt-get") is None:
        yield "Debian is required: the node's programs come from its packages"
        return
    if os.geteuid() != 0:
        yield "root is required: a node creates namespaces, mounts and network devices (use sudo)"
        return
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        yield "unshare and setpriv are required: install the package util-linux"
        return
    packages.install(["iproute2"])
    if not any(Path("/sys/fs/cgroup").iterdir()):
        yield "control groups are required: nothing is mounted at /sys/fs/cgroup"
    if complaint := _try("true"):
        yield f"the kernel does not allow this user to create namespaces: {complaint}"
        return
    for what, attempt in ATTEMPTS:
        if complaint := _try(attempt):
            yield f"the kernel does not provide {what}: {complaint}"


def _try(script: str) -> str:
    command = ("unshare", *NAMESPACES, "--fork", "--mount-proc", "sh", "-c", script)
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TRY_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""
