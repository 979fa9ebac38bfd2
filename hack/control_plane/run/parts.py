"""The command lines of etcd, kube-apiserver, kube-controller-manager and the balancer (pure).

In: where the files of an instance are and which ports it has. Out: argument lists. Everything listens on loopback and
speaks TLS with certificates on both sides, etcd too: other users of the machine can reach a loopback port as well.

A control plane has one etcd and one API server, or several of each (`Shape`): then the API servers are behind a balancer.
"""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hack.control_plane.build.commands import ControlPlaneError
from hack.control_plane.run.pki import Authority, Credential
from hack.kubernetes_versions import INSECURE_PORTS_GONE, Kubernetes

LOOPBACK = "127.0.0.1"
SERVICE_RANGE = "10.96.0.0/16"
FIRST_SERVICE_ADDRESS = "10.96.0.1"  # the ClusterIP of the API server itself; its certificate must carry it
ETCD_QUOTA_BYTES = 8 << 30  # etcd's greatest sane value: a load test must not end in etcd's alarm about space
ETCD_SOCKET_FILE = "localhost:2379"  # in the form of an address, as etcd wants it
ETCD_SOCKET = f"unix://{ETCD_SOCKET_FILE}"
# The controllers that an operator's objects and its users' quotas and schedules need.
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
    """How many members etcd has, how many API servers there are, and how much etcd may store."""

    etcd_members: int = 1
    apiservers: int = 1
    etcd_quota_bytes: int = ETCD_QUOTA_BYTES

    @property
    def etcds(self) -> list[str]:
        """The names of etcd's members."""
        return _names("etcd", self.etcd_members)

    @property
    def servers(self) -> list[str]:
        """The names of the API servers."""
        return _names("kube-apiserver", self.apiservers)

    @property
    def is_single(self) -> bool:
        """Whether there is one of each, and so no balancer."""
        return self.etcd_members == self.apiservers == 1


SINGLE = Shape()


def _names(part: str, number: int) -> list[str]:
    return [part if each == 1 else f"{part}-{each}" for each in range(1, number + 1)]


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one instance on loopback. The further ones are those of a control plane of several parts."""

    etcd: int
    kube_apiserver: int
    kube_controller_manager: int
    more_etcds: tuple[int, ...] = ()
    etcd_peers: tuple[int, ...] = ()
    more_apiservers: tuple[int, ...] = ()
    balancer: int = 0

    @property
    def etcds(self) -> tuple[int, ...]:
        """Where each member of etcd listens for clients."""
        return (self.etcd, *self.more_etcds)

    @property
    def apiservers(self) -> tuple[int, ...]:
        """Where each API server listens."""
        return (self.kube_apiserver, *self.more_apiservers)

    @property
    def server(self) -> int:
        """Where clients find the API: at the balancer, if there is one."""
        return self.balancer or self.kube_apiserver


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one instance that its parts read."""

    folder: Path
    authority: Authority
    server: Credential
    kubelet_client: Credential
    token_signer: Credential
    controller_manager_kubeconfig: Path


def etcd_command(program: Path, files: Files, ports: Ports, quota_bytes: int = ETCD_QUOTA_BYTES) -> list[str]:
    """Return the command of an etcd that has one member."""
    client = f"https://{LOOPBACK}:{ports.etcd}"
    return [
        str(program),
        f"--data-dir={files.folder / 'etcd'}",
        # The API server uses the socket, a file in the private folder that nobody else can reach: TLS between the two would
        # be a tenth of the cost of a write. The port is for whoever wants to send requests to etcd itself.
        f"--listen-client-urls={client},{ETCD_SOCKET}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls=https://{LOOPBACK}:0",  # it has no peers: any port will do
        *_etcd_tls(files),
        # A single member elects itself: waiting a second for the votes of others only makes the start slower.
        "--heartbeat-interval=20",
        "--election-timeout=200",
        f"--quota-backend-bytes={quota_bytes}",
        "--logger=zap",
    ]


def etcd_member_command(program: Path, files: Files, ports: Ports, shape: Shape, number: int) -> list[str]:
    """Return the command of one of several members of etcd, which are numbered from 0.

    They take their time over elections, as etcd's defaults say: two cores have to serve all of them.
    """
    peers = dict(zip(shape.etcds, ports.etcd_peers, strict=True))
    name = shape.etcds[number]
    client, peer = (f"https://{LOOPBACK}:{port}" for port in (ports.etcds[number], peers[name]))
    return [
        str(program),
        f"--name={name}",
        f"--data-dir={files.folder / name}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={','.join(f'{each}=https://{LOOPBACK}:{port}' for each, port in peers.items())}",
        *_etcd_tls(files),
        f"--quota-backend-bytes={shape.etcd_quota_bytes}",
        "--logger=zap",
    ]


def _etcd_tls(files: Files) -> list[str]:
    """Return the flags by which etcd serves clients and peers, with TLS on both sides."""
    own, authority = files.server, files.authority.certificate
    return [
        f"--cert-file={own.certificate}",
        f"--key-file={own.key}",
        f"--trusted-ca-file={authority}",
        "--client-cert-auth",
        f"--peer-cert-file={own.certificate}",
        f"--peer-key-file={own.key}",
        f"--peer-trusted-ca-file={authority}",
        "--peer-client-cert-auth",
    ]


def etcd_flags(files: Files, ports: Ports) -> list[str]:
    """Return the flags by which an API server reaches all members of etcd."""
    return [
        f"--etcd-servers={','.join(f'https://{LOOPBACK}:{port}' for port in ports.etcds)}",
        f"--etcd-cafile={files.authority.certificate}",
        f"--etcd-certfile={files.server.certificate}",
        f"--etcd-keyfile={files.server.key}",
    ]


def balancer_command(ports: Ports) -> list[str]:
    """Return the command of the balancer before the API servers."""
    backends = [f"--backend={port}" for port in ports.apiservers]
    return [sys.executable, "-m", "hack.balancer", f"--port={ports.balancer}", *backends]


def kube_apiserver_command(
    program: Path,
    files: Files,
    port: int,
    extra: Sequence[str] = (),
    *,
    etcd: Sequence[str] = (f"--etcd-servers={ETCD_SOCKET}",),
    serving: Credential | None = None,
) -> list[str]:
    """Return the command of kube-apiserver. If a flag is given twice, the later one counts, so `extra` overrides ours.

    But for the address of etcd, of which it would use both. `serving` is its certificate, if it has one of its own.
    """
    own = serving or files.server
    return [
        str(program),
        *etcd,
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={own.certificate}",
        f"--tls-private-key-file={own.key}",
        f"--cert-dir={files.folder / 'pki'}",
        f"--client-ca-file={files.authority.certificate}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-key-file={files.token_signer.certificate}",
        f"--service-account-signing-key-file={files.token_signer.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        # Endpoints may not name a loopback address, and there is no node that would use them.
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        # For `kubectl logs` and `exec`. Kubelets serve with certificates that they have signed themselves.
        f"--kubelet-client-certificate={files.kubelet_client.certificate}",
        f"--kubelet-client-key={files.kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
        *extra,
    ]


def kube_controller_manager_command(
    program: Path, files: Files, ports: Ports, version: Kubernetes, extra_controllers: Sequence[str] = ()
) -> list[str]:
    """Return the command of a kube-controller-manager of this version; `extra_controllers` run beside CONTROLLERS."""
    return [
        str(program),
        f"--kubeconfig={files.controller_manager_kubeconfig}",
        f"--controllers={','.join([*CONTROLLERS, *extra_controllers])}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.kube_controller_manager}",
        # Unless told not to, an old one also serves without TLS, on a fixed port that all instances on the machine share.
        *([] if version.has(INSECURE_PORTS_GONE) else ["--port=0"]),
        f"--tls-cert-file={files.server.certificate}",
        f"--tls-private-key-file={files.server.key}",
        f"--service-account-private-key-file={files.token_signer.key}",
        f"--root-ca-file={files.authority.certificate}",
        "--leader-elect=false",
        # With the default of 20 requests a second, a test that deletes a hundred pods would have to wait.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--concurrent-gc-syncs=40",
        "--concurrent-namespace-syncs=20",
    ]


# Choose free ports on loopback.
#
# A port that is free when we look may be taken when a part starts: the keeper then tries again with others. Ports are chosen
# below the range that the kernel uses for outgoing connections. Inside it, any client on the machine may get the
# port of an API server that is being restarted, and a client that tries to reach that server may even connect to itself.


LOWEST = 20000  # below are the well-known ports of other development tools
USUAL_OUTGOING_START = 32768
OUTGOING_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
TRIES = 200


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the port right now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Go's servers do: TIME_WAIT does not count
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def any_free() -> int:
    """Return a port that nobody listens on now, for a program that listens at once."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def choose_ports(wanted: Sequence[int] = (), free: Callable[[int], bool] = is_free, shape: Shape = SINGLE) -> Ports:
    """Return the ports of a control plane: the wanted three unchecked (a collision is found at the start), else free ones."""
    if len(wanted) == 3:
        etcd, apiserver, manager = wanted
        return Ports(etcd, apiserver, manager)
    more_etcds, more_apiservers = shape.etcd_members - 1, shape.apiservers - 1
    further = 0 if shape.is_single else more_etcds + shape.etcd_members + more_apiservers + 1
    etcd, apiserver, manager, *others = _free(3 + further, free)
    left = iter(others)
    return Ports(
        etcd,
        apiserver,
        manager,
        more_etcds=tuple(islice(left, more_etcds)),
        more_apiservers=tuple(islice(left, more_apiservers)),
        balancer=next(left, 0),
        etcd_peers=tuple(left),
    )


def _free(number: int, free: Callable[[int], bool]) -> list[int]:
    low, high = _bounds()
    chosen: list[int] = []
    for _ in range(TRIES):
        port = random.randrange(low, high)  # noqa: S311 - not a secret
        if port not in chosen and free(port):
            chosen.append(port)
        if len(chosen) == number:
            return chosen
    raise ControlPlaneError(f"found no {number} free ports on {LOOPBACK} between {low} and {high}")


def _bounds() -> tuple[int, int]:
    try:
        outgoing = int(OUTGOING_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        outgoing = USUAL_OUTGOING_START
    # If nearly all ports are for outgoing connections, there is no range of our own, and we use all from LOWEST on.
    return (LOWEST, outgoing) if outgoing - LOWEST >= 1000 else (LOWEST, 65536)
