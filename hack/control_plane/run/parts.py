"""The command lines of etcd, kube-apiserver, kube-controller-manager and the balancer (pure), and free ports for them.

Everything listens on loopback and uses mutual TLS, including etcd, because other users of the machine can reach loopback
ports. A control plane has one etcd and one API server, or several of each (`Shape`) with a balancer in front.
"""

import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hack.control_plane.build.commands import ControlPlaneError
from hack.kubernetes_versions import INSECURE_PORTS_GONE, Kubernetes

LOOPBACK = "127.0.0.1"
SERVICE_RANGE = "10.96.0.0/16"
FIRST_SERVICE_ADDRESS = "10.96.0.1"  # the ClusterIP of the API server itself; its certificate must carry it
ETCD_QUOTA_BYTES = 8 << 30  # etcd's largest recommended value, so load tests do not raise its alarm about space
ETCD_SOCKET_FILE = "localhost:2379"  # in the form of an address, as etcd requires
# The controllers that the operator's objects, quotas and CronJobs need.
CONTROLLERS = (
    "garbagecollector",
    "namespace",
    "serviceaccount",
    "serviceaccount-token",
    "root-ca-cert-publisher",
    "resourcequota",
    "cronjob",
    "job",
    "clusterrole-aggregation",  # fills `view`, `edit` and `admin`, which are empty without it
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of etcd members and API servers, and etcd's storage quota."""

    etcd_members: int = 1
    apiservers: int = 1
    etcd_quota_bytes: int = ETCD_QUOTA_BYTES

    @property
    def etcds(self) -> list[str]:
        """The names of the etcd members."""
        return _names("etcd", self.etcd_members)

    @property
    def servers(self) -> list[str]:
        """The names of the API servers."""
        return _names("kube-apiserver", self.apiservers)


SINGLE = Shape()


def _names(part: str, number: int) -> list[str]:
    return [part if each == 1 else f"{part}-{each}" for each in range(1, number + 1)]


@dataclass(frozen=True, slots=True)
class Ports:
    """The loopback ports of one instance: the client port and the peer port of each etcd member, and so on."""

    etcds: tuple[int, ...]
    peers: tuple[int, ...]
    apiservers: tuple[int, ...]
    manager: int
    balancer: int

    @property
    def server(self) -> int:
        """The port for API clients: that of the balancer if there are several API servers."""
        return self.balancer if len(self.apiservers) > 1 else self.apiservers[0]


def etcd_command(program: Path, folder: Path, ports: Ports, shape: Shape, number: int) -> list[str]:
    """Return the command of a member of etcd; members are numbered from 0."""
    name = shape.etcds[number]
    client, peer = (f"https://{LOOPBACK}:{port}" for port in (ports.etcds[number], ports.peers[number]))
    members = (f"{each}=https://{LOOPBACK}:{port}" for each, port in zip(shape.etcds, ports.peers, strict=True))
    # The API server uses the socket in the private folder, because TLS between the two would be a tenth of the cost of a
    # write. The port is for direct requests to etcd.
    # A single member elects itself, so it need not wait a second for the votes of others.
    alone = shape.etcd_members == 1
    own, authority = folder / "pki" / "server", folder / "pki" / "ca.crt"
    return [
        str(program),
        f"--name={name}",
        f"--data-dir={folder / name}",
        f"--listen-client-urls={client}{f',unix://{ETCD_SOCKET_FILE}' if alone else ''}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={','.join(members)}",
        *(("--heartbeat-interval=20", "--election-timeout=200") if alone else ()),
        *(f"--cert-file={own}.crt", f"--key-file={own}.key", f"--trusted-ca-file={authority}", "--client-cert-auth"),
        *(f"--peer-cert-file={own}.crt", f"--peer-key-file={own}.key", f"--peer-trusted-ca-file={authority}"),
        "--peer-client-cert-auth",
        f"--quota-backend-bytes={shape.etcd_quota_bytes}",
        "--logger=zap",
    ]


def etcd_flags(folder: Path, ports: Ports) -> list[str]:
    """Return the flags with which an API server reaches etcd: the socket of a single member, or the ports of all members."""
    if len(ports.etcds) == 1:
        return [f"--etcd-servers=unix://{ETCD_SOCKET_FILE}"]
    own = folder / "pki" / "server"
    return [
        f"--etcd-servers={','.join(f'https://{LOOPBACK}:{port}' for port in ports.etcds)}",
        *(f"--etcd-cafile={folder / 'pki' / 'ca.crt'}", f"--etcd-certfile={own}.crt", f"--etcd-keyfile={own}.key"),
    ]


def kube_apiserver_command(
    program: Path, folder: Path, port: int, extra: Sequence[str] = (), *, name: str, etcd: Sequence[str]
) -> list[str]:
    """Return the command of kube-apiserver. If a flag occurs twice, the last one counts, so `extra` overrides the others.

    The address of etcd is an exception: kube-apiserver would use both addresses. `name` is the name of its certificate files.
    """
    pki = folder / "pki"
    return [
        str(program),
        *etcd,
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={pki / name}.crt",
        f"--tls-private-key-file={pki / name}.key",
        f"--cert-dir={pki}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        # Not needed: no node uses these Endpoints, and they must not contain a loopback address anyway.
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        # For `kubectl logs` and `exec`. Kubelets use self-signed certificates.
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        *extra,
    ]


def kube_controller_manager_command(
    program: Path, folder: Path, port: int, version: Kubernetes, extra_controllers: Sequence[str] = ()
) -> list[str]:
    """Return the command of a kube-controller-manager of this version; `extra_controllers` run beside CONTROLLERS."""
    pki = folder / "pki"
    return [
        str(program),
        f"--kubeconfig={pki / 'kube-controller-manager.kubeconfig'}",
        f"--controllers={','.join([*CONTROLLERS, *extra_controllers])}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        # By default an old one also serves without TLS, on a fixed port that all instances on the machine would share.
        *([] if version.has(INSECURE_PORTS_GONE) else ["--port=0"]),
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        f"--service-account-private-key-file={pki / 'service-account.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        "--leader-elect=false",
        # The default of 20 requests a second would delay tests that delete a hundred pods.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--concurrent-gc-syncs=40",
        "--concurrent-namespace-syncs=20",
    ]


def haproxy_settings(ports: Ports) -> str:
    """Return the configuration of the balancer: HAProxy, as in front of the API servers of a cluster.

    A server that refuses connections counts as down at once. A server that reports not ready counts as down after three
    reports. The balancer does not verify the servers' certificates, because the clients do. Connections to a server that is
    down are closed.
    """
    servers = "".join(f"  server {port} {LOOPBACK}:{port}\n" for port in ports.apiservers)
    return f"""
defaults
  mode tcp
  timeout connect 5s
  timeout client 24h
  timeout server 24h
  option redispatch 1
listen apiservers
  bind {LOOPBACK}:{ports.balancer}
  balance leastconn
  option httpchk GET /readyz
  default-server check check-ssl verify none inter 500ms fall 3 rise 1 on-marked-down shutdown-sessions
  default-server observe layer4 error-limit 1 on-error mark-down
{servers}"""


# Chooses free ports on loopback.
#
# A free port may be taken before a part starts; the start is then repeated with other ports. Ports are below the kernel's
# range for outgoing connections. Inside that range any client on the machine could get the port of an API server that is
# being restarted, and a client that connects to that server could even connect to itself.


LOWEST = 20000  # lower ports are used by other development tools
OUTGOING_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 200


def is_free(port: int) -> bool:
    """Return True if a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as in Go's servers: TIME_WAIT does not matter
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def any_free() -> int:
    """Return a free port for a program that starts to listen at once."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def choose_ports(free: Callable[[int], bool] = is_free, shape: Shape = SINGLE) -> Ports:
    """Return free ports for a control plane."""
    chosen = iter(_free(2 * shape.etcd_members + shape.apiservers + 2, free))
    etcds, peers, apiservers = (
        tuple(islice(chosen, number)) for number in (shape.etcd_members, shape.etcd_members, shape.apiservers)
    )
    return Ports(etcds, peers, apiservers, next(chosen), next(chosen))


def _free(number: int, free: Callable[[int], bool]) -> list[int]:
    outgoing = int(OUTGOING_RANGE.read_text().split()[0])
    # If nearly all ports are for outgoing connections, no other range exists: use all from LOWEST on.
    high = outgoing if outgoing - LOWEST >= 1000 else 65536
    chosen: list[int] = []
    for _ in range(TRIES):
        port = random.randrange(LOWEST, high)  # noqa: S311 - not a secret
        if port not in chosen and free(port):
            chosen.append(port)
        if len(chosen) == number:
            return chosen
    raise ControlPlaneError(f"found no {number} free ports on {LOOPBACK} between {LOWEST} and {high}")
