"""Small HTTPS requests to the parts of a control plane, for readiness and for tests that need etcd itself.

In: a port on loopback, the authority and a client's credential. Out: the status and the body. The status is 0 if the server
does not respond: while a control plane starts, that is no error.
"""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

from hack.control_plane.run.pki import Credential

NO_RESPONSE = 0


class Requester:
    """Sends requests to the servers of one control plane with one client certificate, each on a new connection by default."""

    def __init__(self, authority: Path, credential: Credential, timeout_s: float = 5.0) -> None:
        self._context = ssl.create_default_context(cafile=str(authority))
        self._context.load_cert_chain(credential.certificate, credential.key)
        self._timeout = timeout_s

    def get(self, port: int, path: str) -> tuple[int, bytes]:
        """Return the status and the body of a GET."""
        return self._ask("GET", port, path, None)

    def post(self, port: int, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of a POST of JSON."""
        return self._ask("POST", port, path, body)

    def connect(self, port: int) -> http.client.HTTPSConnection:
        """Return a connection for many requests. It opens with the first one; the caller closes it."""
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=self._timeout, context=self._context)

    def _ask(self, method: str, port: int, path: str, body: bytes | None) -> tuple[int, bytes]:
        connection = self.connect(port)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return NO_RESPONSE, b""
        finally:
            connection.close()
