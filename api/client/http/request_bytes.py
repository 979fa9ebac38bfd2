"""Requests as bytes. Anything that could be taken for more than one header or request is refused here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.client.http.credentials import Credentials
from tfjob_operator.api.client.http.errors import CredentialsError

if TYPE_CHECKING:
    from tfjob_operator.api.client.http.messages import Request
    from tfjob_operator.api.client.http.origin import Origin

_BODY_EXPECTED: Final = frozenset({"POST", "PUT", "PATCH"})
"""Requests with these methods state a Content-Length even without a body."""


class RequestWriter:
    """Writes requests to one server, perhaps through a proxy."""

    def __init__(self, server: Origin, *, proxy: Origin | None = None, user_agent: str) -> None:
        """Write requests to `server`; no `user_agent` is sent if it is empty.

        Raises ValueError for a server or a user agent with a character that no header may have.
        """
        absolute = proxy is not None and not server.tls  # TLS goes through a tunnel, of which the proxy sees nothing
        self._prefix = f"http://{server.host_header}{server.path}" if absolute else server.path
        self._fixed = _header("Host", server.host_header) + _user_agent(user_agent)
        if absolute and proxy is not None and proxy.basic is not None:
            self._fixed += _header("Proxy-Authorization", proxy.basic)
        self._basic = server.basic
        self._credentials: Credentials | None = None
        self._headers: dict[tuple[str, bool], str] = {}

    def write(self, request: Request, credentials: Credentials) -> bytes:
        """Return the whole request, to be sent in one piece. Raises ValueError, or CredentialsError; neither quotes a value."""
        if credentials is not self._credentials:
            self._headers.clear()
            self._credentials = credentials
        headers = self._headers.get((request.accept, request.gzip)) or self._make_headers(request, credentials)
        body = request.body
        line = f"{request.method} {self._prefix}{request.target()} HTTP/1.1"
        if not (line.isascii() and line.isprintable() and line.count(" ") == 2):
            raise ValueError("the method, path or query of a request has a character that must be quoted")
        if body is not None:
            kind = request.content_type
            if not (kind.isascii() and kind.isprintable()):
                raise ValueError("the content type of a request has a character that no header may have")
            head = f"{line}\r\n{headers}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            return head.encode("ascii") + body
        empty = "Content-Length: 0\r\n" if request.method in _BODY_EXPECTED else ""
        return f"{line}\r\n{headers}{empty}\r\n".encode("ascii")

    def _make_headers(self, request: Request, credentials: Credentials) -> str:
        """Return the headers of all requests that want the same kind of response; they are made once."""
        # Mostly no compression: a server on the same network sends plain JSON faster than gzip.
        encoding = "gzip" if request.gzip else "identity"
        made = f"{self._fixed}{_header('Accept', request.accept)}Accept-Encoding: {encoding}\r\n"
        made += self._authorization(credentials)
        self._headers[request.accept, request.gzip] = made
        return made

    def _authorization(self, credentials: Credentials) -> str:
        value = credentials.authorization or self._basic
        if value is None:
            return ""
        try:
            return _header("Authorization", value)
        except ValueError as error:
            raise CredentialsError(f"the credentials cannot be used: {error}") from None


def tunnel_request(server: Origin, proxy: Origin, user_agent: str) -> bytes:
    """Return the request that asks a proxy for a tunnel. Our credentials are for the server behind it, and are not included."""
    basic = "" if proxy.basic is None else _header("Proxy-Authorization", proxy.basic)
    head = f"CONNECT {server.authority} HTTP/1.1\r\n{_header('Host', server.authority)}{_user_agent(user_agent)}"
    return f"{head}{basic}\r\n".encode("ascii")


def _user_agent(name: str) -> str:
    return _header("User-Agent", name) if name else ""


def _header(name: str, value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"{name} would have a character that no header may have")
    return f"{name}: {value}\r\n"
