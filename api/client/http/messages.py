"""`Request`, `Response`, the single-method protocol `Transport`, and the settings and credentials of a server.

All layers above HTTP send a `Request` and read a `Response`. In tests, the implementation of `Transport` calls a simulated API
server. Requests are serialized here, and any value that could inject a header or request is rejected.
"""

from __future__ import annotations

import base64
import math
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol, Self, TypeAlias
from urllib.parse import unquote, urlencode, urlsplit

from tfjob_operator.api.client.http.errors import CredentialsError

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """A server or a proxy. `basic` is the header made from the URL's user and password, so the repr excludes it."""

    scheme: str
    host: str
    port: int
    path: str = ""
    basic: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse a URL. Raises ValueError, which does not quote the URL, since the URL may contain a password."""
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            host = host if host.isascii() else host.encode("idna").decode()
            port = _PORTS[parts.scheme] if parts.port is None else parts.port
        except (ValueError, KeyError):
            host = ""
        if not host:
            raise ValueError("the address of a server or proxy must have the form https://host:port")
        basic = None
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            basic = f"Basic {base64.b64encode(user.encode()).decode()}"
        return cls(parts.scheme, host, port, parts.path.rstrip("/"), basic)

    def __str__(self) -> str:
        """Return the address for display, without user, password and query, which may be secrets."""
        return f"{self.scheme}://{self.host_header}{self.path}"

    @property
    def tls(self) -> bool:
        """True if TLS is used."""
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """Host and port for CONNECT."""
        return f"{self._url_host}:{self.port}"

    @property
    def host_header(self) -> str:
        """Host and port for the Host header, without the default port."""
        return self._url_host if self.port == _PORTS[self.scheme] else self.authority

    @property
    def _url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a request.

    `authorization` is the whole header. A new certificate comes with a new `ssl_context`, so that connections with the
    old one are not reused. The credentials are fresh for `fresh_s` seconds.
    """

    authorization: str | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = None
    fresh_s: float = math.inf


class CredentialSource(Protocol):
    """Provides a transport with credentials before each request."""

    async def get(self) -> Credentials:
        """Return the current credentials. Raises CredentialsError if there are none."""
        ...

    def refused(self) -> None:
        """Report that the server returned 401, so that reloadable credentials are reloaded."""
        ...


@dataclass(frozen=True, slots=True)
class FixedCredentials:
    """Credentials that never change."""

    credentials: Credentials = field(default_factory=Credentials)

    async def get(self) -> Credentials:
        """See `CredentialSource.get`."""
        return self.credentials

    def refused(self) -> None:
        """Do nothing: there are no other credentials."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a transport for one server. URLs are excluded from the repr: show one as `str(Origin.of(url))`."""

    server: str = field(repr=False)
    credentials: CredentialSource = field(default_factory=FixedCredentials, repr=False)
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)


JSON: Final = "application/json"
"""The default content type of requests and responses."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request.

    `total_s` limits the whole exchange, from the wait for a free connection to the last byte of the response. If `idle_s` is
    set, the response is an endless stream: `total_s` limits the time until the response head, and `idle_s` limits every pause
    after that. Both are finite, so no exchange can hang. With `gzip` the response may be compressed.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    total_s: float = 40.0
    idle_s: float | None = None
    accept: str = JSON
    gzip: bool = False

    @property
    def stream(self) -> bool:
        """True if the response is a stream."""
        return self.idle_s is not None

    def target(self) -> str:
        """Return the path with the encoded query."""
        return f"{self.path}?{_encoded(tuple(self.query.items()))}" if self.query else self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    """Return an encoded query.

    Cached, since all writes of a client have the same query, and encoding it costs as much as a header.
    """
    return urlencode(query)


class Response(Protocol):
    """A response whose head has arrived. It must be closed in any case."""

    @property
    def status(self) -> int:
        """The HTTP status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, with case-insensitive names."""
        ...

    async def body(self) -> bytes:
        """Read the whole body. Raises TransportError."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Read the body as it arrives, in chunks of any size. Raises TransportError if the connection breaks."""
        ...

    def close(self) -> None:
        """Release the connection if the whole body was read, else close it immediately. Idempotent."""
        ...


OnLeave: TypeAlias = Callable[[Request], Request]
"""Called immediately before a request is sent; returns the request to send in its place."""


def unchanged(request: Request) -> Request:
    """Return the request unchanged: the default `OnLeave`."""
    return request


class Transport(Protocol):
    """An HTTP connection to one server."""

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """Send a request and wait for the head of the response, whatever its status. Raises TransportError.

        `on_leave` is called after waiting for credentials and a connection. If it raises, nothing is sent. Cancelling
        closes the connection immediately.
        """
        ...


_BODY_EXPECTED: Final = frozenset({"POST", "PUT", "PATCH"})
"""Requests with these methods have a Content-Length even without a body."""


class RequestWriter:
    """Serializes requests to one server, optionally through a proxy."""

    def __init__(self, server: Origin, *, proxy: Origin | None = None, user_agent: str) -> None:
        """Serialize requests to `server`; an empty `user_agent` omits the User-Agent header.

        Raises ValueError for invalid header values.
        """
        absolute = proxy is not None and not server.tls  # TLS uses a tunnel, so the proxy does not see the request
        self._prefix = f"http://{server.host_header}{server.path}" if absolute else server.path
        self._fixed = _header("Host", server.host_header) + _user_agent(user_agent)
        if absolute and proxy is not None and proxy.basic is not None:
            self._fixed += _header("Proxy-Authorization", proxy.basic)
        self._basic = server.basic
        self._credentials: Credentials | None = None
        self._headers: dict[tuple[str, bool], str] = {}

    def write(self, request: Request, credentials: Credentials) -> bytes:
        """Return the whole request, to be sent in a single write.

        Raises ValueError or CredentialsError; neither quotes a value.
        """
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
        """Return the headers common to all requests for the same kind of response. Cached."""
        # Usually no compression: on the same network plain JSON is faster than gzip.
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
    """Return a CONNECT request to a proxy, without our credentials, which are for the server behind it."""
    basic = "" if proxy.basic is None else _header("Proxy-Authorization", proxy.basic)
    head = f"CONNECT {server.authority} HTTP/1.1\r\n{_header('Host', server.authority)}{_user_agent(user_agent)}"
    return f"{head}{basic}\r\n".encode("ascii")


def _user_agent(name: str) -> str:
    return _header("User-Agent", name) if name else ""


def _header(name: str, value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        raise ValueError(f"{name} would have a character that no header may have")
    return f"{name}: {value}\r\n"
