"""Servers that the API server calls, such as kubelets and webhooks: here with TLS, on a free port of this machine."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hack import http_server
from hack.control_plane import ControlPlane
from hack.control_plane.run.pki import Authority
from hack.http_server import Handler
from tfjob_operator.cli.target import Target


class Serving(NamedTuple):
    """Where a server listens, and the certificate of its authority."""

    port: int
    authority: bytes


def kubelet_is_at(plane: ControlPlane, node: str, port: int) -> None:
    """Have the API server ask here for the logs of a node's pods."""
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    with Target(kubeconfig=str(plane.kubeconfig)).session() as session:
        session.patch(f"/api/v1/nodes/{node}/status", {"status": status})


@contextmanager
def serving(folder: Path, handler: type[Handler]) -> Iterator[Serving]:
    """Serve until the block ends; an authority is made in `folder`, which must exist."""
    authority = Authority.make(folder)
    served = authority.server("server", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served.certificate, served.key)
    with http_server.serving(handler, context) as port:
        yield Serving(port, authority.certificate.read_bytes())
