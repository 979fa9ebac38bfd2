"""The best load generator that we could write here: prebuilt requests over kept-alive TLS, and next to no work per response.

It is the yardstick for our client, so it does nothing that a client must do: no objects, no event loop, no error handling.
One thread waits with epoll for whichever of its connections has a response, looks for the response's end, and sends the
next request.
"""

from __future__ import annotations

import base64
import json
import select
import socket
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self
from urllib.parse import urlsplit

_READ: Final = 65_536
_HEAD_END: Final = b"\r\n\r\n"
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"


class LoadError(Exception):
    """The server closed a connection, or its response is not a success."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and the TLS context with which it knows us."""

    host: str
    port: int
    tls: ssl.SSLContext

    @classmethod
    def of(cls, kubeconfig: Path) -> Self:
        """Read a kubeconfig of our own control plane, which is JSON with everything embedded."""
        document = json.loads(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        tls = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]))
        with TemporaryDirectory(prefix="tfjob-bench-") as private:
            certificate, key = Path(private, "cert"), Path(private, "key")
            certificate.write_text(_decoded(user["client-certificate-data"]))
            key.write_text(_decoded(user["client-key-data"]))
            tls.load_cert_chain(certificate, key)
        address = urlsplit(cluster["server"])
        return cls(address.hostname or "", address.port or 443, tls)

    def request(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
        """Return a whole request, ready to be sent."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nUser-Agent: bench\r\n"
            f"Accept: application/json\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class _Connection:
    """One kept-alive connection with at most one request under way."""

    __slots__ = ("answer", "socket", "wanted")

    def __init__(self, target: Target) -> None:
        plain = socket.create_connection((target.host, target.port), timeout=30.0)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = target.tls.wrap_socket(plain, server_hostname=target.host)
        self.socket.settimeout(None)  # with a limit Python would poll before every read; epoll has done that already
        self.answer = b""
        self.wanted = 0

    def send(self, request: bytes) -> None:
        self.answer = b""
        self.wanted = 0
        self.socket.sendall(request)

    def read(self) -> bool:
        """Read what is there; say whether the response is complete."""
        while True:
            data = self.socket.recv(_READ)
            if not data:
                raise LoadError("the server closed a connection")
            self.answer += data
            if self._is_complete():
                return True
            if not self.socket.pending():
                return False

    def _is_complete(self) -> bool:
        if self.answer.endswith(_LAST_CHUNK):
            return True
        if not self.wanted:
            end = self.answer.find(_HEAD_END)
            if end < 0:
                return False
            head = self.answer[:end].lower()
            place = head.find(b"\r\ncontent-length: ")
            if place < 0:
                self.wanted = -1  # chunked
            else:
                self.wanted = end + len(_HEAD_END) + int(head[place + 18 :].partition(b"\r\n")[0])
        return len(self.answer) == self.wanted


class RawLoad:
    """A number of connections to one server. Use as a context manager."""

    def __init__(self, target: Target, connections: int) -> None:
        self._connections = {}
        self._poll = select.epoll()
        for _ in range(connections):
            connection = _Connection(target)
            number = connection.socket.fileno()
            self._connections[number] = connection
            self._poll.register(number, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for connection in self._connections.values():
            connection.socket.close()

    def send(self, requests: Iterable[bytes]) -> None:
        """Send all requests, on all connections at once. Raises LoadError at the first response that is not a success."""
        waiting = iter(requests)
        busy = 0
        for number, connection in self._connections.items():
            if self._start(connection, waiting):
                self._poll.modify(number, select.EPOLLIN)
                busy += 1
        while busy:
            for number, _ in self._poll.poll():
                connection = self._connections[number]
                if connection.read():
                    if not connection.answer.startswith(b"HTTP/1.1 20"):
                        raise LoadError(connection.answer[:1000].decode(errors="replace"))
                    if not self._start(connection, waiting):
                        # What may still come, such as a TLS session ticket, is not a response to wait for.
                        self._poll.modify(number, 0)
                        busy -= 1

    @staticmethod
    def _start(connection: _Connection, waiting: Iterator[bytes]) -> bool:
        request = next(waiting, None)
        if request is None:
            return False
        connection.send(request)
        return True


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
