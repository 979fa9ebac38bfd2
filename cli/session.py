"""Sequential requests to the API server over a persistent connection.

A command sends a handful of requests and ends, so `http.client` of the standard library is used. Importing it takes a fifth of
the time needed to import the operator's client, which is made for thousands of concurrent requests (`docs/design/plugin.md`).
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import ssl
import time
from contextlib import suppress
from email.message import Message
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

from tfjob_operator.api.access import Access, AccessError
from tfjob_operator.api.retry import MAX_REQUEST_RETRIES, retry_delay
from tfjob_operator.cli.errors import ApiServerError, CliError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

JSON: Final = "application/json"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""kubectl's `Accept` header that requests columns from the server."""
MERGE_PATCH: Final = "application/merge-patch+json"
_MAX_READ: Final = 65_536
"""The most bytes per read of a stream."""
_MIN_TIMEOUT_S: Final = 0.001
"""Zero would make a socket non-blocking."""
_MAX_SHOWN: Final = 300
"""The most characters shown of a body that is not a Status, such as a proxy's page."""


class RequestCredentials(NamedTuple):
    """The Authorization header and the TLS context, each None if not used."""

    header: str | None
    context: ssl.SSLContext | None


class SessionCredentials:
    """A user's credentials for all connections of a command; created on first use, so a credential plugin runs once."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = Lock()
        self._shown: RequestCredentials | None = None

    def get(self) -> RequestCredentials:
        """Return the credentials. Raises CliError for invalid certificates, and if a credential plugin fails."""
        with self._lock:
            if self._shown is None:
                self._shown = self._make()
            return self._shown

    def renew(self, refused: RequestCredentials) -> bool:
        """Return True if `get` now returns other credentials than the rejected ones: plugins' tokens expire within minutes."""
        with self._lock:
            if self._access.plugin is None:
                return False
            if self._shown is refused:
                self._shown = None  # otherwise another connection has already renewed them
            return True

    def _make(self) -> RequestCredentials:
        try:
            access = self._access.log_in()
            return RequestCredentials(access.authorization, access.tls_context())
        except AccessError as error:
            raise CliError(error.message) from error


class StreamBrokenError(CliError):
    """A watch or a stream broke off; it can be requested again."""


class Session:
    """Requests of one user to one server. All methods raise ApiServerError for error responses, CliError for other errors."""

    def __init__(
        self, access: Access, credentials: SessionCredentials | None = None, *, until: float = math.inf
    ) -> None:
        """Create a session; nothing is sent. `credentials` can be shared by sessions of the same user.

        A request that is not answered, or not yet to be retried, at `until` (`time.monotonic`) fails.
        """
        self.namespace = access.namespace
        self._access = access
        self._address = urlsplit(access.server)
        self._credentials = credentials or SessionCredentials(access)
        self._until = until
        self._aborted = Event()
        self._headers: dict[str, str] = {"User-Agent": "kubectl-tfjob"}
        self._shown = RequestCredentials(None, None)
        self._connection: http.client.HTTPConnection | None = None
        self._sock: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def another(self, *, until: float = math.inf) -> Session:
        """Return a session with its own connection and these credentials, for concurrent requests or for those with a limit."""
        return Session(self._access, self._credentials, until=until)

    def abort(self) -> None:
        """Abort another thread's request, which fails as if the connection was lost. No request is retried from then on."""
        self._aborted.set()
        if self._sock is not None:
            with suppress(OSError):  # already closed
                # leave TLS unchanged, which the other thread is reading
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def get(self, path: str, *, accept: str = JSON, **query: str | int | None) -> Any:
        """Return the decoded response."""
        return self._decoded("GET", path, query, {"Accept": accept})

    def read(self, path: str, **query: str | int | None) -> bytes:
        """Return the raw response: a log, or the input of a typed decoder."""
        return self._whole(self._send("GET", path, query, {"Accept": f"{JSON}, */*"}))

    def create(self, path: str, body: Mapping[str, Any], **query: str) -> Any:
        """Create an object, and return the result."""
        return self._decoded("POST", path, query, {"Content-Type": JSON}, json.dumps(body).encode())

    def patch(self, path: str, body: Mapping[str, Any], **query: str) -> Any:
        """Merge `body` into an object, and return the result."""
        return self._decoded("PATCH", path, query, {"Content-Type": MERGE_PATCH}, json.dumps(body).encode())

    def delete(self, path: str, body: Mapping[str, Any]) -> Any:
        """Delete an object with the given DeleteOptions, and return the response."""
        return self._decoded("DELETE", path, {}, {"Content-Type": JSON}, json.dumps(body).encode())

    def stream(self, path: str, **query: str | int | None) -> Iterator[bytes]:
        """Yield the chunks of a response, possibly forever, as they arrive. Raises StreamBrokenError."""
        response = self._send("GET", path, query, {"Accept": "*/*"}, is_stream=True)
        try:
            while part := response.read1(_MAX_READ):
                yield part
        except (OSError, http.client.HTTPException) as error:
            raise StreamBrokenError(f"connection to {self._access.shown} lost: {error}") from error
        finally:
            if not response.isclosed():
                self.close()

    def watch(
        self, path: str, *, accept: str = JSON, limit_s: float = math.inf, **query: str | int | None
    ) -> Generator[dict[str, Any], None, None]:
        """Yield the events of a watch until the server ends it. Close the generator to stop earlier.

        Raises StreamBrokenError if the connection is dead or breaks in the middle of an event, or after `limit_s` seconds.
        """
        until = time.monotonic() + limit_s
        response = self._send("GET", path, {**query, "watch": "true"}, {"Accept": accept})
        try:
            while line := self._line(response, until):
                yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise StreamBrokenError(f"connection to {self._access.shown} lost: {error}") from error
        finally:
            self.close()  # the rest of the response was not read; the next request connects again

    def _line(self, response: http.client.HTTPResponse, until: float) -> bytes:
        if self._sock is not None and not response.isclosed():
            self._sock.settimeout(_seconds_until(until))
        return response.readline()

    def _decoded(
        self, method: str, path: str, query: Mapping[str, Any], headers: Mapping[str, str], body: bytes | None = None
    ) -> Any:
        response = self._send(method, path, query, headers, body)
        try:
            return json.loads(self._whole(response))
        except ValueError as error:
            raise CliError(f"the response of {self._access.shown} is not JSON: is it an API server?") from error

    def _whole(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise CliError(f"connection to {self._access.shown} lost: {error}") from error

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        is_stream: bool = False,
    ) -> http.client.HTTPResponse:
        """Send a request and return the response when its head arrives. Outdated credentials are renewed once.

        A request is repeated if the server asks for it, as long as neither the session nor --request-timeout ends before.
        """
        given = {name: value for name, value in query.items() if value not in {None, ""}}
        target = self._address.path + path + (f"?{urlencode(given)}" if given else "")
        limit_s = None if is_stream else self._access.timeout_s
        until = self._until if limit_s is None else min(self._until, time.monotonic() + limit_s)
        retries = 0
        while True:
            response = self._response(method, target, headers, body, until)
            if response.status == http.client.UNAUTHORIZED and self._credentials.renew(self._shown):
                self.close()
                self._connection = None
                response = self._response(method, target, headers, body, until)
            if response.status < http.client.BAD_REQUEST:
                return response
            refusal = _refusal(response)
            if not response.isclosed():
                self.close()
            delay_s = retry_delay(response.status, _retry_after(response))
            if delay_s is None or retries == MAX_REQUEST_RETRIES or time.monotonic() + delay_s > until:
                raise refusal
            if self._aborted.wait(delay_s):
                raise refusal
            retries += 1

    def _response(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, until: float
    ) -> http.client.HTTPResponse:
        patience_s = _seconds_until(until)
        try:
            connection = self._connected()
            is_old = connection.sock is not None
            try:
                return self._asked(connection, (method, target, body), headers, patience_s)
            except (http.client.RemoteDisconnected, ConnectionError):
                if not is_old or method != "GET":
                    raise
                connection.close()  # closed by the server in the meantime
                return self._asked(connection, (method, target, body), headers, patience_s)
        except ssl.SSLCertVerificationError as error:
            raise CliError(f"cannot verify the certificate of {self._access.shown}: {error.verify_message}") from error
        except TimeoutError as error:
            self.close()  # a late response would be taken for that of the next request
            limit = f" within {round(patience_s, 1):g}s" if patience_s is not None else ""
            raise CliError(f"{self._access.shown} did not answer{limit}") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise CliError(f"cannot connect to {self._access.shown}: {why}") from error

    def _asked(
        self,
        connection: http.client.HTTPConnection,
        request: tuple[str, str, bytes | None],
        headers: Mapping[str, str],
        patience_s: float | None,
    ) -> http.client.HTTPResponse:
        if connection.sock is None:
            connection.timeout = self._access.timeout_s if patience_s is None else patience_s
            connection.connect()
            _keep_alive(connection)
        self._sock = connection.sock
        connection.sock.settimeout(patience_s)
        sent = Message()  # unlike a dict it can contain a header twice
        for name, value in (*self._headers.items(), *headers.items(), *self._access.impersonate):
            sent[name] = value
        connection.request(*request, sent)  # type: ignore[arg-type]  # its `items` are all that is used
        return connection.getresponse()

    def close(self) -> None:
        """Close the connection; the next request reopens it."""
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            self._shown = self._credentials.get()
            if self._shown.header:
                self._headers["Authorization"] = self._shown.header
            self._connection = _connect(self._access, self._shown.context)
        return self._connection


def _connect(access: Access, context: ssl.SSLContext | None) -> http.client.HTTPConnection:
    address, proxy = access.route()
    hop = proxy or address
    if proxy and proxy.scheme != "http":
        raise CliError("the address of the proxy must have the form http://host:port")
    host, port = hop.hostname or "", hop.port or (443 if hop.scheme == "https" else 80)
    if context is None:
        plain = http.client.HTTPConnection(host, port)
        if proxy:
            plain.set_tunnel(address.hostname or "", address.port or 80)
        return plain
    secure = _Secure(host, port, context=context)
    secure.verified_as = access.tls_server_name
    if proxy:
        secure.set_tunnel(address.hostname or "", address.port or 443)
    return secure


class _Secure(http.client.HTTPSConnection):
    """A connection with a separate server name for certificate verification."""

    verified_as: str | None = None

    def connect(self) -> None:
        """Connect, through the tunnel if there is one, and start TLS."""
        http.client.HTTPConnection.connect(self)
        context: ssl.SSLContext = self._context  # type: ignore[attr-defined]  # typeshed leaves it out
        name = self.verified_as or self._tunnel_host or self.host  # type: ignore[attr-defined]
        self.sock = context.wrap_socket(self.sock, server_hostname=name)


def _keep_alive(connection: http.client.HTTPConnection) -> None:
    """Set TCP keepalive as Go's clients do: it detects a dead peer within a minute, however long a watch is silent."""
    sock = connection.sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # macOS has other names for the first
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _seconds_until(until: float) -> float | None:
    """Return the timeout of a socket that is to end at a time; None for math.inf."""
    return None if until == math.inf else max(until - time.monotonic(), _MIN_TIMEOUT_S)


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    """Return the seconds of the header Retry-After; None without one, or if it is a date, which client-go ignores too."""
    given = response.headers.get("Retry-After", "")
    return float(given) if given.isdecimal() and given.isascii() else None


def _refusal(response: http.client.HTTPResponse) -> ApiServerError:
    """Return the error for an error response: a Status, or any other body from a server or proxy."""
    try:
        body = response.read(65_536)
    except (OSError, http.client.HTTPException):
        body = b""  # the connection was lost, so only the status code shows the error
    try:
        status = json.loads(body)
        message, reason = str(status["message"]), str(status.get("reason", ""))
    except (ValueError, KeyError, TypeError):
        text = " ".join(body.decode(errors="replace").split())[:_MAX_SHOWN]
        message, reason = f"{response.status} {response.reason}: {text}".rstrip(": "), ""
    if response.status == http.client.UNAUTHORIZED:
        message = f"{message}: the credentials in the kubeconfig were rejected; log in again"
    return ApiServerError(message, code=response.status, reason=reason)
