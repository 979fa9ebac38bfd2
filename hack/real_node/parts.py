"""The command lines and settings of a node's parts (pure).

In: where things are, and the version of a part. Out: argument lists, and the content of configuration files. Everything else
has Kubernetes' defaults; what is set lets a node live with what one machine has to spare, or lets it report sooner.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hack.kubernetes_versions import (
    CGROUP_V1_REFUSED,
    CONTAINER_RUNTIME_INTERFACE_ONLY,
    INSECURE_PORTS_GONE,
    TAINT_EVICTION_CONTROLLER,
    Kubernetes,
)
from hack.real_node.inside import NODE_ADDRESS

NODE: Final = "real-node"
POD_RANGE: Final = "10.244.0.0/24"
CLUSTER_DOMAIN: Final = "cluster.local"
PAUSE_IMAGE: Final = "localhost/pause:1"
TOLERATION_S: Final = 5
"""How long pods stay on a node that is not ready; Kubernetes' default is five minutes, too long for a test."""

APISERVER_ARGUMENTS: Final = (
    # Open to pods; nothing outside of the sandbox can reach this address.
    "--bind-address=0.0.0.0",
    f"--advertise-address={NODE_ADDRESS}",
    "--endpoint-reconciler-type=lease",
    f"--default-not-ready-toleration-seconds={TOLERATION_S}",
    f"--default-unreachable-toleration-seconds={TOLERATION_S}",
)
CONTROLLERS: Final = (
    "deployment",
    "replicaset",
    "endpoint",
    "endpointslice",
    "nodelifecycle",
    "podgc",
    "persistentvolume-binder",
)


@dataclass(frozen=True, slots=True)
class Places:
    """The files of a node."""

    folder: Path

    @property
    def socket(self) -> Path:
        """Where containerd listens."""
        return self.folder / "containerd.sock"

    @property
    def containerd_settings(self) -> Path:
        """The configuration of containerd."""
        return self.folder / "containerd.toml"

    @property
    def networks(self) -> Path:
        """The folder of the network plug-ins' configuration."""
        return self.folder / "cni"

    @property
    def kubelet_settings(self) -> Path:
        """The kubelet's configuration."""
        return self.folder / "kubelet.json"

    @property
    def hosts(self) -> Path:
        """The names that DNS resolves."""
        return self.folder / "hosts"


def controllers(version: Kubernetes) -> tuple[str, ...]:
    """Return the controllers that a node needs beside a control plane's own, in a kube-controller-manager of this version."""
    return (*CONTROLLERS, "taint-eviction-controller") if version.has(TAINT_EVICTION_CONTROLLER) else CONTROLLERS


def containerd_settings(places: Places) -> str:
    """Return containerd's configuration."""
    return f"""
version = 2
root = "{places.folder / "containerd"}"
state = "{places.folder / "containerd-state"}"
[grpc]
  address = "{places.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # In a container that runs tests nobody may have the right to lower a process's score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{places.networks}"
"""


def network(places: Places) -> dict[str, Any]:
    """Return the configuration of the pods' network: one bridge, addresses from one range."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_RANGE}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(places.folder / "addresses"),
        },
    }
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def kubelet_settings(authority: Path, version: Kubernetes) -> dict[str, Any]:
    """Return the configuration of a kubelet of this version; `authority` signs the certificates of its clients."""
    # The machine decides which control groups there are.
    by_version = {"failCgroupV1": False} if version.has(CGROUP_V1_REFUSED) else {}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(authority)}},
        "authorization": {"mode": "Webhook"},
        # The machine's tree of control groups is not ours to arrange; containers get their limits all the same.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [NODE_ADDRESS],
        "resolvConf": "",
        # A developer's disk is often nearly full, and an eviction for that would say nothing about the operator.
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 240,
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        # The default of 5 and 10 a second would make fifty jobs at once wait for the kubelet's reports.
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "eventRecordQPS": 0,
        **by_version,
    }


def kubelet_command(program: Path, places: Places, kubeconfig: Path, version: Kubernetes) -> list[str]:
    """Return the command of a kubelet of this version."""
    return [
        str(program),
        f"--config={places.kubelet_settings}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={places.folder / 'kubelet'}",
        f"--cert-dir={places.folder / 'kubelet-pki'}",
        f"--volume-plugin-dir={places.folder / 'volume-plugins'}",
        *([] if version.has(CONTAINER_RUNTIME_INTERFACE_ONLY) else ["--container-runtime=remote"]),
        f"--container-runtime-endpoint=unix://{places.socket}",
        f"--hostname-override={NODE}",
        f"--node-ip={NODE_ADDRESS}",
    ]


def kube_proxy_command(program: Path, kubeconfig: Path) -> list[str]:
    """Return the command of kube-proxy."""
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NODE}",
        f"--bind-address={NODE_ADDRESS}",
        f"--cluster-cidr={POD_RANGE}",
        "--proxy-mode=iptables",
        # These settings belong to the whole machine.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]


def kube_scheduler_command(program: Path, kubeconfig: Path, version: Kubernetes) -> list[str]:
    """Return the command of a kube-scheduler of this version."""
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        *([] if version.has(INSECURE_PORTS_GONE) else ["--port=0"]),
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
