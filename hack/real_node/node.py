"""A running node with its control plane, for tests.

    with RealNode.start() as node:
        node.containers.import_image(Path("image.tar"))
        node.plane.run_kubectl("get", "nodes")

It works only in the sandbox (`python -m hack.real_node run -- ...`), and everything ends with the sandbox. Use it from the main
thread: when a thread ends, the kernel kills the processes that this thread started.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from hack.control_plane import ControlPlane
from hack.control_plane.build.binaries import find_or_build, version_of
from hack.control_plane.build.commands import ControlPlaneError, log_tail, output_of
from hack.control_plane.run.part import Part
from hack.image import build
from hack.kubernetes_versions import (
    CGROUP_V1_REFUSED,
    CONTAINER_RUNTIME_INTERFACE_ONLY,
    INSECURE_PORTS_GONE,
    TAINT_EVICTION_CONTROLLER,
    Kubernetes,
)
from hack.real_node.inside import FOLDER_VARIABLE, NODE_ADDRESS, TOOLS_FILE
from hack.real_node.machine import Tools
from hack.stoppable import Stoppable

# The command lines and configuration files of a node's parts (pure).
#
# They depend on paths and versions. Settings differ from Kubernetes' defaults only to use fewer resources or to report sooner.


NODE: Final = "real-node"
POD_RANGE: Final = "10.244.0.0/24"
CLUSTER_DOMAIN: Final = "cluster.local"
PAUSE_IMAGE: Final = "localhost/pause:1"
# Files in the folder of a node.
SOCKET: Final = "containerd.sock"
NETWORKS: Final = "cni"
KUBELET_SETTINGS: Final = "kubelet.json"
TOLERATION_S: Final = 5
"""How long pods stay on a node that is not ready; Kubernetes' default of five minutes is too long for tests."""

APISERVER_ARGUMENTS: Final = (
    # Reachable by pods, but not from outside of the sandbox.
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


def controllers(version: Kubernetes) -> tuple[str, ...]:
    """Return the additional controllers that a node needs, for a kube-controller-manager of this version."""
    return (*CONTROLLERS, "taint-eviction-controller") if version.has(TAINT_EVICTION_CONTROLLER) else CONTROLLERS


def containerd_settings(folder: Path) -> str:
    """Return containerd's configuration."""
    return f"""
version = 2
root = "{folder / "containerd"}"
state = "{folder / "containerd-state"}"
[grpc]
  address = "{folder / SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # In a container that runs tests, even root may lack the permission to lower a process's score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder / NETWORKS}"
"""


def network(folder: Path) -> dict[str, Any]:
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
            "dataDir": str(folder / "addresses"),
        },
    }
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def kubelet_settings(authority: Path, version: Kubernetes) -> dict[str, Any]:
    """Return the configuration of a kubelet of this version; `authority` is the CA of the kubelet's clients."""
    # The version of control groups depends on the machine.
    by_version = {"failCgroupV1": False} if version.has(CGROUP_V1_REFUSED) else {}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(authority)}},
        "authorization": {"mode": "Webhook"},
        # The machine's tree of control groups must not be changed; containers still get their limits.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [NODE_ADDRESS],
        "resolvConf": "",
        # A developer's disk is often nearly full; evictions for that would be irrelevant.
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 240,
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        # The defaults (5 requests per second, bursts of 10) would delay the kubelet's reports for fifty concurrent jobs.
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "eventRecordQPS": 0,
        **by_version,
    }


def kubelet_command(program: Path, folder: Path, kubeconfig: Path, version: Kubernetes) -> list[str]:
    """Return the command of a kubelet of this version."""
    return [
        str(program),
        f"--config={folder / KUBELET_SETTINGS}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={folder / 'kubelet'}",
        f"--cert-dir={folder / 'kubelet-pki'}",
        f"--volume-plugin-dir={folder / 'volume-plugins'}",
        *([] if version.has(CONTAINER_RUNTIME_INTERFACE_ONLY) else ["--container-runtime=remote"]),
        f"--container-runtime-endpoint=unix://{folder / SOCKET}",
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


# containerd's command line `ctr`: import of images, and processes of containers. Kubernetes uses the namespace `k8s.io`.


class Containers:
    """containerd for an administrator. All methods except `answers` raise ControlPlaneError."""

    def __init__(self, programs: Path, socket: Path) -> None:
        self.address = str(socket)
        self._command = (str(programs / "ctr"), f"--address={socket}", "--namespace=k8s.io")

    def _ctr(self, *arguments: str, limit_s: float = 60.0) -> str:
        return output_of(*self._command, *arguments, limit_s=limit_s)

    def answers(self) -> bool:
        """Return whether containerd accepts requests."""
        try:
            return bool(self._ctr("version", limit_s=5.0))
        except ControlPlaneError:
            return False

    def import_image(self, file: Path) -> None:
        """Import an OCI archive under the name in it."""
        self._ctr("images", "import", "--no-unpack", str(file), limit_s=300.0)

    def tag(self, name: str, other: str) -> None:
        """Give an image a second name."""
        self._ctr("images", "tag", name, other)

    def remove_image(self, name: str) -> None:
        """Remove an image if it exists; containers that use it continue."""
        self._ctr("images", "remove", name)

    def kill(self, container: str, signal: str = "SIGKILL") -> None:
        """Send a signal to all processes of a container, by its ID."""
        self._ctr("tasks", "kill", f"--signal={signal}", "--all", container)

    def memory(self, container: str) -> int:
        """Return the bytes of memory that a container's processes hold."""
        return sum(_resident(int(line.split()[0])) for line in self._ctr("tasks", "ps", container).splitlines()[1:])


def _resident(process: int) -> int:
    """Return the bytes of a process's own and shared memory (VmRSS)."""
    status = Path(f"/proc/{process}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def pause_image(tools: Tools, name: str, work: Path) -> Path:
    """Create the image of the pause process, which is Debian's catatonit in its pause mode."""
    tree = work / "pause"
    tree.mkdir()
    shutil.copy(tools.catatonit, tree / "catatonit")
    made = build.pack(tree, work / "pause-layer.tar")
    target = work / "pause.tar"
    build.write(target, name, [made], {"Entrypoint": ["/catatonit", "-P"]})
    return target


PROJECT: Final = Path(__file__).resolve().parents[2]
READY_LIMIT_S: Final = 120.0  # 10s on a quiet machine
POLL_S: Final = 0.2


class RealNode(Stoppable):
    """A cluster of one node; invariant: after `stop` none of its parts runs."""

    def __init__(self, plane: ControlPlane, folder: Path, tools: Tools) -> None:
        """Use `start`."""
        self.plane = plane
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        self._folder = folder
        self._tools = tools
        self._kubelet_version = version_of(tools.kubelet)
        self.containers = Containers(tools.containerd, folder / SOCKET)
        self._parts = {
            name: Part(name, self.logs / f"{name}.log")
            for name in ("containerd", "kube-scheduler", "kubelet", "kube-proxy", "dns")
        }

    @classmethod
    def start(cls) -> Self:
        """Start a control plane and a node, and return when pods can run. Raises ControlPlaneError outside of the sandbox."""
        sandbox = os.environ.get(FOLDER_VARIABLE)
        if sandbox is None:
            raise ControlPlaneError("a real node runs only in its sandbox: python -m hack.real_node run -- COMMAND")
        tools = Tools(
            **{name: Path(path) for name, path in json.loads((Path(sandbox) / TOOLS_FILE).read_text()).items()}
        )
        manager = find_or_build().kube_controller_manager
        plane = ControlPlane.start(
            "real-node",
            extra_apiserver_args=APISERVER_ARGUMENTS,
            extra_controllers=controllers(version_of(manager)),
        )
        node = cls(plane, Path(sandbox) / "node", tools)
        try:
            node._start()
        except BaseException:
            node.stop()
            raise
        return node

    def stop(self) -> None:
        """Stop all parts, then the control plane. Containers end with the sandbox."""
        for part in reversed(self._parts.values()):
            part.kill()
        self.plane.stop()

    def stop_kubelet(self) -> None:
        """Kill the kubelet; its containers continue, as on a disconnected node."""
        self._parts["kubelet"].kill()

    def start_kubelet(self) -> None:
        """Start the kubelet, also again; does not wait."""
        kubeconfig = self.plane.kubeconfig_for(f"system:node:{NODE}", ["system:masters", "system:nodes"])
        self._launch("kubelet", kubelet_command(self._tools.kubelet, self._folder, kubeconfig, self._kubelet_version))

    def is_ready(self) -> bool:
        """Return whether the node's Ready condition is True at the API server."""
        path = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
        return self.plane.run_kubectl("get", "node", NODE, "-o", path, check=False).stdout == "True"

    def _start(self) -> None:
        folder, tools = self._folder, self._tools
        (folder / NETWORKS).mkdir()
        settings = folder / "containerd.toml"
        settings.write_text(containerd_settings(folder))
        (folder / NETWORKS / "10-pods.conflist").write_text(json.dumps(network(folder)))
        authority = self.plane.directory / "pki" / "ca.crt"
        (folder / KUBELET_SETTINGS).write_text(json.dumps(kubelet_settings(authority, self._kubelet_version)))
        self._launch("containerd", [str(tools.containerd / "containerd"), f"--config={settings}"])
        self._until(self.containers.answers, "containerd answers")
        self.containers.import_image(pause_image(tools, PAUSE_IMAGE, folder))
        scheduler = self.plane.kubeconfig_for("system:kube-scheduler")
        version = version_of(tools.kube_scheduler)
        self._launch("kube-scheduler", kube_scheduler_command(tools.kube_scheduler, scheduler, version))
        self.start_kubelet()
        proxy = self.plane.kubeconfig_for("system:kube-proxy")
        self._launch("kube-proxy", kube_proxy_command(tools.kube_proxy, proxy))
        (port,) = self.plane.ports_of(["kube-apiserver"])
        names = (str(self.plane.directory), str(port), NODE_ADDRESS, str(folder / "hosts"))
        self._launch("dns", [sys.executable, "-m", "hack.real_node.dns", *names])
        self._until(self.is_ready, "the node is ready")

    def _launch(self, name: str, command: list[str]) -> None:
        # containerd searches PATH for its shims; those of its own version come first.
        if not os.environ["PATH"].startswith(f"{self._tools.containerd}:"):
            os.environ["PATH"] = f"{self._tools.containerd}:{os.environ['PATH']}"
        self._parts[name].start(command, PROJECT)

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_LIMIT_S
        while not holds():
            for part in self._parts.values():
                part.check()
            if time.monotonic() > deadline:
                tails = "\n".join(log_tail(part.log) for part in self._parts.values() if part.log.exists())
                raise ControlPlaneError(f"not within {READY_LIMIT_S:.0f} s: {what}\n{tails}")
            time.sleep(POLL_S)
