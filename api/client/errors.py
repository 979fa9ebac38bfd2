"""Errors of API requests. Those in `http.errors` mean that no response arrived; only this module converts responses to errors.

ApiError                            communication with the API server failed
+-- TransportError                  no usable response; the server may or may not have processed the request
|   +-- ConnectError                no connection: the server has not seen the request
|   |   +-- TLSError                a certificate was rejected, ours or the peer's
|   |   +-- CredentialsError        there is no token or certificate to send: a file or a plugin failed
|   +-- RequestTimeoutError         the timeout of the request was reached
|   +-- ConnectionLostError         the connection broke before the response was complete
+-- DecodeError                     the response could not be decoded
+-- StatusError                     the server returned an error; `code`, `reason`, `message`, `details`
    +-- NoStatusError               400, 404, 409, 410, 422, any other code below 500: an error without a Status
    +-- BadRequestError             reason BadRequest, 400
    +-- UnauthorizedError           401
    +-- ForbiddenError              403
    |   +-- NamespaceTerminatingError   creates are rejected because the namespace is terminating
    +-- NotFoundError               reason NotFound, 404
    +-- ConflictError               reason Conflict, 409: the resourceVersion or a precondition did not match
    |   +-- AlreadyExistsError      reason AlreadyExists, 409 on create
    +-- ExpiredError                reasons Expired and Gone, 410: the resourceVersion is too old
    +-- InvalidError                reason Invalid, 422
    +-- TooManyRequestsError        429
    +-- ServerError                 any 5xx
        +-- TooLargeResourceVersionError   504 with this cause: the version is newer than this server's data

Classes that make a statement about an object (it is gone, its name is taken, it is invalid) are selected only by the reason in
a Status. Proxies return the same codes, and so do webhooks that give no reason, so a code alone proves nothing.

No message contains a secret: it consists of the path of the request, the server's message without quoted values, and the
operating system's message.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from tfjob_operator.api.client.http.errors import (
    ApiError,
    ConnectError,
    ConnectionLostError,
    CredentialsError,
    RequestTimeoutError,
    TLSError,
    TransportError,
)
from tfjob_operator.api.meta import Struct
from tfjob_operator.api.protobuf import MAGIC, STATUS, MalformedError, open_envelope, read
from tfjob_operator.api.text import clean, without_values

__all__ = [
    "AlreadyExistsError",
    "ApiError",
    "BadRequestError",
    "ConflictError",
    "ConnectError",
    "ConnectionLostError",
    "CredentialsError",
    "DecodeError",
    "ExpiredError",
    "ForbiddenError",
    "InvalidError",
    "NamespaceTerminatingError",
    "NoStatusError",
    "NotFoundError",
    "RequestTimeoutError",
    "ServerError",
    "Status",
    "StatusCause",
    "StatusDetails",
    "StatusError",
    "TLSError",
    "TooLargeResourceVersionError",
    "TooManyRequestsError",
    "TransportError",
    "UnauthorizedError",
    "error_from_event",
    "error_from_response",
    "parse_http_date",
    "parse_retry_after",
]

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_BODY_EXCERPT: Final = 200
"""The most characters of a body other than a Status (such as a load balancer's HTML) in an error message."""


class StatusCause(Struct, frozen=True):
    """A cause inside a Status: the field and the error."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Struct, frozen=True):
    """The machine-readable part of a Status."""

    name: str = ""
    kind: str = ""
    causes: list[StatusCause] | None = None
    retry_after_seconds: int = 0


class Status(Struct, frozen=True):
    """The server's description of a failure (`kind: Status`)."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class DecodeError(ApiError):
    """A response could not be decoded."""


class StatusError(ApiError):
    """The server returned an error, or a redirect, which is never followed.

    `status_message` is the server's message, truncated and sanitized (`api.text`). `retry_after_s` is the requested
    delay in seconds, from the Retry-After header or the Status.
    """

    def __init__(self, status: Status, *, request: str = "", retry_after_s: float | None = None) -> None:
        text_of_server = clean(without_values(status.message))
        text = text_of_server or clean(status.reason) or "no message"
        # The text of an unknown API group is "404 page not found".
        super().__init__(f"{status.code} {text.removeprefix(f'{status.code} ')}", request=request)
        self.code = status.code
        self.reason = status.reason
        self.status_message = text_of_server
        self.details = status.details
        self.retry_after_s = retry_after_s


class NoStatusError(StatusError):
    """An error without a Status, from a proxy or for an unknown API. It proves nothing about an object and is retried."""


class BadRequestError(StatusError):
    """400: the request is malformed."""


class UnauthorizedError(StatusError):
    """401: credentials are missing or were rejected."""


class ForbiddenError(StatusError):
    """403: RBAC, a quota or an admission plugin denied the request."""


class NamespaceTerminatingError(ForbiddenError):
    """403 on create: the namespace is terminating, so the object would be deleted with it."""


class NotFoundError(StatusError):
    """404: the object does not exist, or the server does not serve its kind."""


class ConflictError(StatusError):
    """409: the object has changed since it was read, or a precondition failed."""

    @property
    def by_field_manager(self) -> bool:
        """True if another manager owns a field of an apply: only `force`, or leaving out the field, resolves that."""
        causes = (self.details.causes if self.details else None) or ()
        return any(cause.reason == "FieldManagerConflict" for cause in causes)


class AlreadyExistsError(ConflictError):
    """409 on create: an object with this name exists."""


class ExpiredError(StatusError):
    """410: the resourceVersion or continue token is too old."""


class InvalidError(StatusError):
    """422: the server's validation rejected the object."""


class TooManyRequestsError(StatusError):
    """429: retry after `retry_after_s`."""


class ServerError(StatusError):
    """5xx: the server or a proxy failed."""


class TooLargeResourceVersionError(ServerError):
    """504: the requested resourceVersion is newer than this server's data."""


_BY_REASON: Final[Mapping[str, type[StatusError]]] = {
    "BadRequest": BadRequestError,
    "Unauthorized": UnauthorizedError,
    "Forbidden": ForbiddenError,
    "NotFound": NotFoundError,
    "Conflict": ConflictError,
    "Invalid": InvalidError,
    "TooManyRequests": TooManyRequestsError,
}

_BY_CODE: Final[Mapping[int, type[StatusError]]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    429: TooManyRequestsError,
}
"""Errors that the status code alone determines: whoever returned it, the request is retried."""

_status_decoder = msgspec.json.Decoder(Status)


def error_from_response(
    code: int, body: bytes, *, request: str, retry_after: str | None = None, now: datetime | None = None
) -> StatusError:
    """Return the error for an HTTP failure. Never raises, whatever the response contains.

    `body` may be a Status, the HTML of a load balancer, or empty. `retry_after` is the raw header, in seconds or as a date; a
    date is compared with `now` (default: the system clock).
    """
    return _classify(_read_status(code, body), request=request, retry_after_s=parse_retry_after(retry_after, now))


def error_from_event(raw: bytes | msgspec.Raw, *, request: str) -> StatusError:
    """Return the error for the object of an ERROR event in a watch."""
    return _classify(_read_status(500, bytes(raw)), request=request, retry_after_s=None)


def parse_retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds of a Retry-After header, which is a number or a date; None if absent or invalid, never negative."""
    if not value:
        return None
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return float(value)
    date = parse_http_date(value)
    return None if date is None else max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def parse_http_date(value: str) -> datetime | None:
    """Return the date of an HTTP header with its timezone, or None if it is invalid."""
    try:
        if value.endswith(" GMT") and len(value) == 29:
            day, hour, minute, second = (int(value[at : at + 2]) for at in (5, 17, 20, 23))
            month = _MONTHS.index(value[8:11]) + 1
            return datetime(int(value[12:16]), month, day, hour, minute, second, tzinfo=UTC)
        # Takes half a megabyte. API servers do not send dates here, but proxies may.
        from email.utils import parsedate_to_datetime

        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)  # HTTP dates without a zone are GMT


def _read_status(code: int, body: bytes) -> Status:
    try:
        status = _status_in_protobuf(body) if body.startswith(MAGIC) else _status_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError, MalformedError):
        status = Status()
    if status.kind == "Status":
        # A proxy may change an error's code, but not to a success.
        return status if status.code >= 400 else msgspec.structs.replace(status, code=code)
    if 300 <= code < 400:  # the target is not quoted: a login redirect may contain a ticket
        return Status(code=code, message="a redirect, which is not followed: is this the address of an API server?")
    text = " ".join(body[: 4 * _BODY_EXCERPT].decode("utf-8", "replace").split())[:_BODY_EXCERPT]
    return Status(code=code, message=text or "the response has no body")


def _status_in_protobuf(body: bytes) -> Status:
    """Decode a Status in a list's encoding. Raises IndexError, MalformedError or msgspec.DecodeError."""
    kind, begin, end = open_envelope(body)
    return msgspec.convert(read(body, begin, end, STATUS) | {"kind": kind}, Status)


def _classify(status: Status, *, request: str, retry_after_s: float | None) -> StatusError:
    details = status.details
    if retry_after_s is None and details is not None and details.retry_after_seconds > 0:
        retry_after_s = float(details.retry_after_seconds)
    return _class_of(status)(status, request=request, retry_after_s=retry_after_s)


def _class_of(status: Status) -> type[StatusError]:
    causes = (status.details.causes if status.details else None) or ()
    if any(cause.reason == "NamespaceTerminating" for cause in causes):
        return NamespaceTerminatingError
    # servers before 1.19 give the reason only in the cause's message; before 1.17, only in the Status's message.
    too_large = "Too large resource version"
    if any(cause.reason == "ResourceVersionTooLarge" or too_large in cause.message for cause in causes):
        return TooLargeResourceVersionError
    if status.reason == "Timeout" and too_large in status.message:
        return TooLargeResourceVersionError
    if status.reason == "AlreadyExists":
        return AlreadyExistsError
    if status.reason in {"Expired", "Gone"}:
        return ExpiredError
    if status.code >= 500:
        return ServerError
    by_code = _BY_CODE.get(status.code, StatusError if status.kind else NoStatusError)
    return _BY_REASON.get(status.reason, by_code)
