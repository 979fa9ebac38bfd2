"""Servers that the API server calls, such as kubelets and webhooks: here with TLS, on a free port of this machine."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from hack.control_plane import ControlPlane
from hack.control_plane.run.pki import Authority
from tfjob_operator.cli.target import Target


class Serving(NamedTuple):
    """Where a server listens, and the certificate of its authority."""

    port: int
    authority: bytes


class Handler(BaseHTTPRequestHandler):
    """Answers with JSON or text, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def answer(self, body: Any, code: int = 200) -> None:
        """Send text as it is, and anything else as JSON."""
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def kubelet_is_at(plane: ControlPlane, node: str, port: int) -> None:
    """Have the API server ask here for the logs of a node's pods."""
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    with Target(kubeconfig=str(plane.kubeconfig)).session() as session:
        session.patch(f"/api/v1/nodes/{node}/status", {"status": status})


@contextmanager
def serving(folder: Path, handler: type[BaseHTTPRequestHandler]) -> Iterator[Serving]:
    """Serve until the block ends; an authority is made in `folder`, which must exist."""
    authority = Authority.make(folder)
    served = authority.server("server", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served.certificate, served.key)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever, args=[0.05])
    thread.start()
    try:
        yield Serving(listening.server_port, authority.certificate.read_bytes())
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
