"""Sends all requests of the plugin over persistent connections, one at a time, and limits their time, size and number.

A command sends a handful of requests and ends, so `http.client` of the standard library is used. Importing it takes a fifth of
the time needed to import the operator's client, which is made for thousands of concurrent requests (`docs/design/plugin.md`).
"""

from __future__ import annotations

import http.client
import io
import json
import math
import socket
import ssl
import time
from contextlib import suppress
from email.message import Message
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self, TypeVar
from urllib.parse import urlencode, urlsplit

from tfjob_operator.api.access import Access, AccessError
from tfjob_operator.api.retry import MAX_REQUEST_RETRIES, retry_delay
from tfjob_operator.cli.errors import ApiServerError, CliError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

T = TypeVar("T")
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
_MAX_READ: Final = 65_536
"""The most bytes per read of a response."""
_MAX_RECORD: Final = 16_384
"""The most bytes per write of a request: those of a TLS record, each of which has a time limit of its own."""
_MIN_TIMEOUT_S: Final = 0.001
"""Zero would make a socket non-blocking."""
_MAX_SHOWN: Final = 300
"""The most characters shown of a body that is not a Status, such as a proxy's page."""
_MAX_RESPONSE: Final = 256 * 1024 * 1024
"""The most bytes of a response, with its header. A page of 500 pods has 10 MiB; an object has 3 MiB at most."""
_MAX_EVENT: Final = 16 * 1024 * 1024
"""The most bytes of an event of a watch, the same as client-go's."""
PAGE: Final = 500
"""The number of objects in a page of a list, the same as kubectl's."""
_MAX_PAGES: Final = 2_000
"""A million objects: Kubernetes supports clusters with 150,000 pods."""
LOST_RETRY_S: Final = 1.0
"""The delay before a read is repeated whose connection was lost, the same as client-go's."""
_LOST: Final = (ConnectionError, http.client.IncompleteRead, ssl.SSLEOFError)
"""The errors of a connection that the peer or the network ended."""
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_META: Final = {"name": str, "namespace": str, "uid": str, "resourceVersion": str, "labels": dict, "annotations": dict}
"""The types of metadata that commands rely on; null is like missing."""


class InvalidObjectError(ValueError):
    """No object as API servers send it."""


def _integer(text: str) -> int:
    if not -(2**63) <= (number := int(text)) < 2**64:
        raise ValueError("a number is too large")
    return number


def _fraction(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError("a number is too large")
    return number


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_float=_fraction, parse_constant=_constant)


def decoded(body: bytes) -> dict[str, Any]:
    """Return the JSON object. Raises ValueError for anything else that a server may send."""
    try:
        text = body.decode()
        found = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:  # raise UnicodeEncodeError for half a surrogate pair
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("too many levels of nesting") from error
    if not isinstance(found, dict):
        raise InvalidObjectError("not an object")
    return found


def decoded_list(body: bytes) -> dict[str, Any]:
    """Return a list of objects. Raises ValueError."""
    found = decoded(body)
    items = found.get("items")
    if not isinstance(found.get("metadata"), dict) or not isinstance(items, list | None):
        raise InvalidObjectError("not a list")
    found["items"] = items or []
    for each in found["items"]:
        check_object(each)
    return found


def check_object(found: object) -> None:
    """Raise ValueError if an object has other metadata than API servers send."""
    meta = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(meta, dict) or not (meta.get("name") and meta.get("uid")):
        raise InvalidObjectError("not an object")
    for key, kind in _META.items():
        value = meta.get(key)
        texts = value.values() if isinstance(value, dict) else ()
        if not isinstance(value, kind | None) or not all(isinstance(text, str) for text in texts):
            raise InvalidObjectError(f"invalid metadata.{key}")


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


class NoResponseError(CliError):
    """No valid response has arrived: a write may have taken effect."""


class StreamBrokenError(CliError):
    """A watch or a stream broke off; it can be requested again."""


class Session:
    """Requests of one user to one server. All methods raise ApiServerError for error responses, CliError for other errors.

    A request is repeated like client-go's: after 429 and 5xx with Retry-After and, if it is a read, after its connection was
    lost. All that ends at the limit of --request-timeout, which does not concern the bodies of watches and streams.
    """

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
        self._connection: _Connection | None = None

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
        if self._connection is not None and self._connection.peer is not None:
            with suppress(OSError):  # already closed
                # leave TLS unchanged, which the other thread is reading
                socket.socket.shutdown(self._connection.peer, socket.SHUT_RDWR)

    def get(self, path: str, *, accept: str = JSON, **query: str | int | None) -> dict[str, Any]:
        """Return a decoded object, or a list."""
        return self._ask("GET", path, query, {"Accept": accept}, finish=self._parsed)

    def get_if_allowed(self, path: str, **query: str) -> dict[str, Any] | None:
        """Return a decoded object or a list; an empty one if it does not exist, None without permission."""
        try:
            return self.get(path, **query)
        except ApiServerError as error:
            if error.is_denied:
                return None
            if not error.is_not_found:
                raise
        return {}

    def read(self, path: str, **query: str | int | None) -> bytes:
        """Return the raw response: a log, or the input of a typed decoder."""
        return self._ask("GET", path, query, {"Accept": f"{JSON}, */*"}, finish=self._whole)

    def pages(
        self,
        path: str,
        most: int | None = None,
        *,
        parse: Callable[[bytes], dict[str, Any]] = decoded_list,
        **query: str,
    ) -> Iterator[dict[str, Any]]:
        """Yield a list page by page, until at least `most` objects were read; `parse` replaces decoding and its checks."""
        following, count = "", 0
        for _ in range(_MAX_PAGES):
            given = {"limit": PAGE, **query, "continue": following}
            page = self._ask("GET", path, given, {"Accept": JSON}, finish=partial(self._parsed, parse=parse))
            yield page
            count += len(page.get("items") or ())
            following = page["metadata"].get("continue") or ""
            if not following or (most is not None and count >= most):
                return
        raise CliError(f"the list {path} of {self._access.shown} has more than {_MAX_PAGES:,} pages")

    def create(self, path: str, body: Mapping[str, Any], **query: str) -> dict[str, Any]:
        """Create an object, and return the result. Raises NoResponseError."""
        return self._write("POST", path, body, JSON, query)

    def patch(self, path: str, body: Mapping[str, Any], **query: str) -> dict[str, Any]:
        """Merge `body` into an object, and return the result. Raises NoResponseError."""
        return self._write("PATCH", path, body, MERGE_PATCH, query)

    def delete(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Delete an object with the given DeleteOptions, and return the response. Raises NoResponseError."""
        return self._write("DELETE", path, body, JSON, {})

    def _write(
        self, method: str, path: str, body: Mapping[str, Any], kind: str, query: Mapping[str, str]
    ) -> dict[str, Any]:
        return self._ask(method, path, query, {"Content-Type": kind}, json.dumps(body).encode(), finish=self._parsed)

    def stream(self, path: str, **query: str | int | None) -> Iterator[bytes]:
        """Yield the chunks of a response, possibly forever, as they arrive. Raises StreamBrokenError."""
        response = self._ask("GET", path, query, {"Accept": "*/*"}, finish=self._unlimited, limit_s=math.inf)
        try:
            while part := response.read1(_MAX_READ):
                yield part
        except (OSError, http.client.HTTPException) as error:
            raise StreamBrokenError(f"connection to {self._access.shown} lost: {error}") from error
        finally:
            if not response.isclosed():
                response.close()
                self.close()

    def watch(
        self, path: str, *, limit_s: float = math.inf, **query: str | int | None
    ) -> Generator[dict[str, Any], None, None]:
        """Yield the changes of objects until the server ends the watch. Close the generator to stop earlier.

        Raises StreamBrokenError if the connection is dead or breaks within an event, at an ERROR event (the version is too
        old), and after `limit_s` seconds.
        """
        finish = partial(self._unlimited, until=time.monotonic() + limit_s)
        response = self._ask("GET", path, {**query, "watch": "true"}, {"Accept": JSON}, finish=finish)
        try:
            while line := response.readline(_MAX_EVENT):
                event = decoded(line)
                if event.get("type") == "ERROR":
                    raise StreamBrokenError(f"{self._access.shown} ended the watch: {event.get('object')}")
                if event.get("type") in _CHANGES:
                    check_object(event.get("object"))
                    yield event
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise StreamBrokenError(f"connection to {self._access.shown} lost: {error}") from error
        finally:
            response.close()
            self.close()  # the rest of the response was not read; the next request connects again

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        finish: Callable[[http.client.HTTPResponse], T],
        limit_s: float | None = None,
    ) -> T:
        """Send a request, repeatedly if needed, and return what `finish` makes of the response when its head has arrived.

        Outdated credentials are renewed once.
        """
        given = {name: value for name, value in query.items() if value not in {None, ""}}
        target = self._address.path + path + (f"?{urlencode(given)}" if given else "")
        limit_s = limit_s or self._access.timeout_s or math.inf
        until = min(self._until, time.monotonic() + limit_s)
        limit_s = until - time.monotonic()
        retries, is_renewed = 0, False
        response: http.client.HTTPResponse | None = None
        while True:
            was_kept = self._connection is not None and self._connection.sock is not None
            connection = self._connected(until)
            failure: CliError
            delay_s: float | None = None
            try:
                response = self._sent(connection, method, target, headers, body)
                if http.client.OK <= response.status < http.client.MULTIPLE_CHOICES:
                    return finish(response)
                failure, delay_s = _refusal(response), retry_delay(response.status, _retry_after(response))
                if response.status == http.client.UNAUTHORIZED and not is_renewed:
                    is_renewed = self._credentials.renew(self._shown)
                    if is_renewed:
                        self.close()
                        self._connection = None
                        continue
                if not response.isclosed():
                    response.close()
                    self.close()
            except (OSError, http.client.HTTPException, ValueError) as error:
                if response is not None:
                    response.close()
                self.close()  # a late response would be taken for that of the next request
                failure = self._no_response(error, limit_s)
                if method == "GET" and isinstance(error, _LOST):
                    delay_s = 0.0 if was_kept and not retries else LOST_RETRY_S
            if delay_s is None or retries == MAX_REQUEST_RETRIES or time.monotonic() + delay_s > until:
                raise failure
            if self._aborted.wait(delay_s):
                raise failure
            retries += 1

    def _connected(self, until: float) -> _Connection:
        """Return an open connection, with the limits of the next response. Raises CliError."""
        if self._connection is None:
            self._shown = self._credentials.get()
            if self._shown.header:
                self._headers["Authorization"] = self._shown.header
            self._connection = _Connection(self._access, self._shown.context)
        connection = self._connection
        connection.until, connection.left = until, _MAX_RESPONSE
        try:
            if connection.sock is None:
                connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise CliError(f"cannot verify the certificate of {self._access.shown}: {error.verify_message}") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise CliError(f"cannot connect to {self._access.shown}: {_why(error)}") from error
        if self._aborted.is_set():  # before there was a connection to shut down
            self.close()
            raise CliError(f"connection to {self._access.shown} lost")
        return connection

    def _sent(
        self, connection: _Connection, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> http.client.HTTPResponse:
        sent = Message()  # unlike a dict it can contain a header twice
        for name, value in (*self._headers.items(), *headers.items(), *self._access.impersonate):
            sent[name] = value
        connection.request(method, target, body, sent)  # type: ignore[arg-type]  # its `items` are all that is used
        return connection.getresponse()

    def _no_response(self, error: Exception, limit_s: float) -> NoResponseError:
        if isinstance(error, TimeoutError):
            limit = f" within {round(limit_s, 1):g}s" if limit_s < math.inf else ""
            return NoResponseError(f"{self._access.shown} did not answer{limit}")
        if isinstance(error, (OSError, http.client.HTTPException)):
            return NoResponseError(f"connection to {self._access.shown} lost: {_why(error)}")
        return NoResponseError(f"the response of {self._access.shown} is invalid: is it an API server?")

    def _parsed(
        self, response: http.client.HTTPResponse, parse: Callable[[bytes], dict[str, Any]] = decoded
    ) -> dict[str, Any]:
        return parse(self._whole(response))

    def _whole(self, response: http.client.HTTPResponse) -> bytes:
        parts = []
        while part := response.read(_MAX_READ):
            parts.append(part)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(parts)

    def _unlimited(self, response: http.client.HTTPResponse, until: float = math.inf) -> http.client.HTTPResponse:
        """Lift the limits of a response, which then ends at `until`."""
        if self._connection is not None:
            self._connection.until, self._connection.left = until, math.inf
        return response

    def close(self) -> None:
        """Close the connection; the next request reopens it."""
        if self._connection is not None:
            self._connection.close()


class _Connection(http.client.HTTPConnection):
    """A connection, possibly through a proxy. All operations end at `until`, and the response has at most `left` more bytes."""

    def __init__(self, access: Access, context: ssl.SSLContext | None) -> None:
        address, proxy = access.route()
        hop = proxy or address
        if proxy and proxy.scheme != "http":
            raise CliError("the address of the proxy must have the form http://host:port")
        super().__init__(hop.hostname or "", hop.port or (443 if hop.scheme == "https" else 80))
        self.default_port = 80 if context is None else 443  # is not written into the header Host
        self.until = self.left = math.inf
        self.peer: socket.socket | None = None
        """The last socket, also while only a response uses it."""
        self.response_class = partial(_Response, connection=self)  # type: ignore[assignment]  # it is only called
        self._context = context
        self._verified_as = access.tls_server_name or address.hostname
        self._create_connection = self._opened
        if proxy:
            self.set_tunnel(address.hostname or "", address.port or (80 if context is None else 443))

    def connect(self) -> None:
        """Connect, through the tunnel if there is one, and start TLS."""
        super().connect()
        _keep_alive(self.sock)
        if self._context is not None:
            self.sock.settimeout(_seconds_until(self.until))
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self._verified_as)
        self.peer = self.sock

    def send(self, data: Any) -> None:
        """Send bytes, in parts that have a time limit each."""
        for start in range(0, len(data), _MAX_RECORD):
            self.sock.settimeout(_seconds_until(self.until))
            super().send(data[start : start + _MAX_RECORD])

    def _opened(self, address: tuple[str, int], *_: object) -> socket.socket:
        """Connect to one of the addresses of a host, all within the limit."""
        failure = OSError("the host has no address")
        for found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            host, port = found[4][:2]
            try:
                return socket.create_connection((str(host), int(port)), _seconds_until(self.until))
            except OSError as error:
                failure = error
        raise failure


class _Response(http.client.HTTPResponse):
    """A response that keeps the limits of its connection."""

    def __init__(self, sock: socket.socket, *args: Any, connection: _Connection, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp = io.BufferedReader(_LimitedReader(self.fp.detach(), sock, connection))


class _LimitedReader(io.RawIOBase):
    """Reads from a socket within the limits of its connection."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, connection: _Connection) -> None:
        self._raw, self._sock, self._connection = raw, sock, connection

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read from the socket. Raises HTTPException for a response that is too large."""
        self._sock.settimeout(_seconds_until(self._connection.until))
        count = self._raw.readinto(buffer)
        self._connection.left -= count or 0
        if self._connection.left < 0:
            raise http.client.HTTPException(f"the response is larger than {_MAX_RESPONSE >> 20}Mi")
        return count

    def close(self) -> None:
        """Close the socket, if its connection is closed too."""
        self._raw.close()
        super().close()


def _keep_alive(sock: socket.socket) -> None:
    """Set TCP keepalive as Go's clients do: it detects a dead peer within a minute, however long a watch is silent."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # macOS has other names for the first
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _seconds_until(until: float) -> float | None:
    """Return the timeout of a socket that is to end at a time; None for math.inf."""
    return None if until == math.inf else max(until - time.monotonic(), _MIN_TIMEOUT_S)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


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
        status = decoded(body)
        message, reason = str(status["message"]), str(status.get("reason", ""))
    except (ValueError, KeyError):
        text = " ".join(body.decode(errors="replace").split())[:_MAX_SHOWN]
        message, reason = f"{response.status} {response.reason}: {text}".rstrip(": "), ""
    if response.status == http.client.UNAUTHORIZED:
        message = f"{message}: the credentials in the kubeconfig were rejected; log in again"
    return ApiServerError(message, code=response.status, reason=reason)
