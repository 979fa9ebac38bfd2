"""HTTP servers for tests and benchmarks: a thread on a free loopback port, with responses as JSON, text or chunks."""

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

ACCEPT_STEPS: Final = 3
"""Iterations of the loop from the accept to the call of `connection_made`."""


async def stop_accepting(listener: socket.socket) -> None:
    """Stop accepting connections on a socket of asyncio that will be closed, and wait until each accepted one has its protocol.

    asyncio takes a connection in several steps. If the listener were closed between them, asyncio would forget the connection
    without closing it: its client would wait, and the socket would stay open.
    """
    asyncio.get_running_loop().remove_reader(listener)
    for _ in range(ACCEPT_STEPS):
        await asyncio.sleep(0)


class Handler(BaseHTTPRequestHandler):
    """A request handler that logs nothing and tolerates disconnecting clients."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise a second small write waits 40 ms for the client's ACK

    def answer(self, body: Any, code: int = 200) -> None:
        """Send bytes and text unchanged, anything else as JSON."""
        data = (
            body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin(self, kind: str = "application/json") -> None:
        """Start a chunked response."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        """Send a chunk; an empty one ends the response."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def handle(self) -> None:
        """Serve a connection until either side closes it."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Discard log messages."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve inside the block; yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        listening.daemon_threads = True
        if tls is not None:
            listening.socket = tls.wrap_socket(listening.socket, server_side=True)
        thread = threading.Thread(target=listening.serve_forever, args=[0.01])
        thread.start()
        try:
            yield listening.server_port
        finally:
            listening.shutdown()
            thread.join()
