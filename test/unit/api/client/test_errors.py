"""Errors: the exceptions for responses of API servers and of proxies before them."""

import ast
import re
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.cases import for_each
from tfjob_operator.api.client import errors
from tfjob_operator.api.client.http import errors as http_errors
from tfjob_operator.api.text import MAX_BYTES

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def body(reason: str = "", message: str = "", code: int = 0, **details: object) -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return msgspec.json.encode(status | {"reason": reason, "code": code, "details": details or None})


def cause(reason: str, message: str = "") -> list[dict[str, str]]:
    return [{"reason": reason, "message": message, "field": "f"}]


TOO_LARGE = "Too large resource version: 9, current: 5"
HTML = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center>nginx</center></body></html>"


@pytest.mark.parametrize(
    ("code", "raw", "expected"),
    [
        (400, body("BadRequest"), errors.BadRequestError),
        (401, body("Unauthorized"), errors.UnauthorizedError),
        (401, HTML, errors.UnauthorizedError),
        (403, body("Forbidden"), errors.ForbiddenError),
        (403, HTML, errors.ForbiddenError),
        (403, body("Forbidden", causes=cause("NamespaceTerminating")), errors.NamespaceTerminatingError),
        (404, body("NotFound"), errors.NotFoundError),
        (404, b"404 page not found\n", errors.NoStatusError),
        (409, body("Conflict"), errors.ConflictError),
        (409, body("AlreadyExists"), errors.AlreadyExistsError),
        (410, body("Expired"), errors.ExpiredError),
        (410, body("Gone"), errors.ExpiredError),
        (410, b"", errors.NoStatusError),
        (422, body("Invalid", causes=cause("FieldValueRequired")), errors.InvalidError),
        (429, body("TooManyRequests"), errors.TooManyRequestsError),
        (429, b"Too many requests, please try again later.", errors.TooManyRequestsError),
        (500, body("InternalError"), errors.ServerError),
        (500, body("Expired"), errors.ExpiredError),
        (502, HTML, errors.ServerError),
        (503, b"", errors.ServerError),
        (504, body("Timeout"), errors.ServerError),
        (504, body("Timeout", causes=cause("ResourceVersionTooLarge")), errors.TooLargeResourceVersionError),
        (504, body("Timeout", causes=cause("", TOO_LARGE)), errors.TooLargeResourceVersionError),
        (504, body("Timeout", TOO_LARGE), errors.TooLargeResourceVersionError),
        (500, body("InternalError", TOO_LARGE), errors.ServerError),
        (302, b'<a href="https://login/?ticket=s3cret">Found</a>', errors.NoStatusError),
        (418, body("Teapot"), errors.StatusError),
        (500, b'{"kind": "Status", "code": "five hundred"}', errors.ServerError),
        (500, b'{"kind": "Status", "details": ' + b"[" * 5000, errors.ServerError),
        (503, b"\xff\xfe\x00", errors.ServerError),
        (500, b'{"kind":"Pod"}', errors.ServerError),
        (502, body("", code=200), errors.ServerError),
    ],
)
def test_each_response_becomes_exactly_one_class(code: int, raw: bytes, expected: type[errors.StatusError]) -> None:
    """RF-05, RF-06, SB-03: reasons and causes decide before the code; HTML, empty and broken bodies tell little."""
    error = errors.error_from_response(code, raw, request="GET /x")
    assert type(error) is expected
    assert error.code == code
    assert error.request == "GET /x"


def test_the_code_is_not_repeated() -> None:
    """The server's own text for an API group without a CRD begins with it."""
    error = errors.error_from_response(404, b"404 page not found\n", request="GET /apis/example.com/v1/zeds")
    assert str(error) == "GET /apis/example.com/v1/zeds: 404 page not found"


KNOWLEDGE = (
    errors.BadRequestError, errors.NotFoundError, errors.ConflictError, errors.ExpiredError, errors.InvalidError,
    errors.NamespaceTerminatingError,
)  # fmt: skip
BODIES = {
    "nothing": b"",
    "the page of a proxy": b"<html><body><h1>400 Bad request</h1>\nYour browser sent an invalid request.\n</body></html>\n",
    "text": b"page not found",
    "the JSON of a gateway": b'{"code":404,"reason":"NotFound","message":"no Route matched with those values"}',
    "an object": b'{"kind":"Pod","code":409,"reason":"AlreadyExists"}',
    "an empty object": b"{}",
    "a Status that is cut off": b'{"kind":"Status","reason":"NotFound","code":4',
    "a Status without a reason": body(),
    "a Status of a webhook": body(message='admission webhook "strict.io" denied the request: no'),
}


@pytest.mark.parametrize("raw", BODIES.values(), ids=BODIES)
@for_each("code", [302, 400, 401, 403, 404, 405, 409, 410, 412, 413, 422, 429, 451, 500, 502, 503, 504])
def test_only_the_reason_in_a_status_says_anything_about_an_object(code: int, raw: bytes) -> None:
    """D4: the same code from a proxy neither refuses a pod for good nor says that an object is gone or a name taken."""
    error = errors.error_from_response(code, raw, request="POST /x")
    assert not isinstance(error, KNOWLEDGE)
    assert error.code == code


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (raw, errors.StatusError if b"Status" in raw and raw.endswith(b"}") else errors.NoStatusError)
        for raw in BODIES.values()
    ],
    ids=BODIES,
)
def test_a_failure_without_a_status_has_a_class_of_its_own(raw: bytes, expected: type[errors.StatusError]) -> None:
    """D4: so that callers that must not give up can tell it from a refusal by the API server."""
    assert type(errors.error_from_response(400, raw, request="POST /x")) is expected


def test_a_message_is_a_short_line_that_says_what_was_asked_and_what_the_server_said() -> None:
    """The target of a redirect is not quoted: the URL of a single sign-on contains a ticket."""
    error = errors.error_from_response(409, body("Conflict", "the object has been modified"), request="PUT /api/v1/x")
    assert (str(error), error.reason) == ("PUT /api/v1/x: 409 the object has been modified", "Conflict")
    assert str(errors.error_from_response(503, b"", request="GET /x")) == "GET /x: 503 the response has no body"
    page = str(errors.error_from_response(502, HTML + b"x" * 10_000, request="GET /x"))
    assert ("502 Bad Gateway" in page, "\n" in page, len(page) < 250) == (True, False, True)
    elsewhere = b'<a href="https://login/?ticket=s3cret">Found</a>'
    redirect = str(errors.error_from_response(302, elsewhere, request="GET /x"))
    assert ("redirect" in redirect, "s3cret" in redirect) == (True, False)


def test_details_name_the_fields_that_are_wrong() -> None:
    raw = body("Invalid", name="mnist", kind="TFJob", causes=cause("FieldValueRequired", "needed"))
    details = errors.error_from_response(422, raw, request="").details
    assert details is not None
    assert (details.name, [each.message for each in details.causes or ()]) == ("mnist", ["needed"])


def test_an_error_event_is_read_like_a_response() -> None:
    """RF-06: an ERROR event carries a Status, or after a crash anything at all."""
    assert type(errors.error_from_event(body("Expired", code=410), request="WATCH pods")) is errors.ExpiredError
    assert type(errors.error_from_event(msgspec.Raw(b'{"kind":"Pod"}'), request="WATCH pods")) is errors.ServerError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("1", 1.0),
        (" 120 ", 120.0),
        ("0", 0.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("²", None),
        (format_datetime(NOW + timedelta(seconds=30), usegmt=True), 30.0),
        (format_datetime(NOW - timedelta(seconds=30), usegmt=True), 0.0),
        (format_datetime((NOW + timedelta(seconds=5)).astimezone(timezone(timedelta(hours=2)))), 5.0),
        ("Thu, 01 Jan 2026 00:00:07 -0000", 7.0),
        ("Thu Jan  1 00:00:09 2026", 9.0),
        ("Thu, 01 Jan 99999 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_read_as_seconds_and_as_a_date(value: str | None, seconds: float | None) -> None:
    """Both forms of RFC 9110, with the date's zone; never a negative wait."""
    assert errors.parse_retry_after(value, NOW) == seconds


@settings(deadline=None)  # a busy machine is not a failure
@given(st.integers(300, 599), st.binary(max_size=200), st.text(max_size=60))
def test_no_body_and_no_retry_after_header_can_raise(code: int, raw: bytes, value: str) -> None:
    assert errors.error_from_response(code, raw, request="GET /x").code >= 300
    seconds = errors.parse_retry_after(value, NOW)
    assert seconds is None or seconds >= 0


def test_the_header_wins_over_the_seconds_in_the_status() -> None:
    raw = body("TooManyRequests", retryAfterSeconds=7)
    assert errors.error_from_response(429, raw, request="").retry_after_s == 7.0
    assert errors.error_from_response(429, raw, request="", retry_after="2").retry_after_s == 2.0
    assert errors.error_from_response(429, body("TooManyRequests"), request="").retry_after_s is None


def errors_of(module: ModuleType) -> list[str]:
    tree = ast.parse(Path(module.__file__ or "").read_text())
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Error")]


def test_the_drawing_of_the_tree_is_the_tree() -> None:
    """The module's docstring draws it, with the classes from lower layers; nothing else checks that it stays true."""
    drawn: list[tuple[str, str]] = []
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"(?P<indent>[| +-]*)(?P<name>\w+Error)\b {2,}", line)
        if match:
            depth = len(match["indent"]) // 4
            above[depth:] = [match["name"]]
            drawn.append((match["name"], above[depth - 1] if depth else "Exception"))
    assert sorted(name for name, _ in drawn) == sorted(
        name for each in (errors, http_errors) for name in errors_of(each)
    )
    for name, parent in drawn:
        assert getattr(errors, name).__base__.__name__ == parent
    assert issubclass(errors.CredentialsError, errors.ApiError)


def test_a_refusal_is_reported_without_values_and_cut() -> None:
    """D5, U5: an API server copies the value that it refuses into its message, be it a password or 800 KB."""
    said = (
        'Pod "a" is invalid: metadata.labels: Invalid value: "'
        + "x" * 800_000
        + '": must be no more than 63 characters'
    )
    error = errors.error_from_response(422, body("Invalid", said, 422), request="POST /pods")
    assert error.status_message == (
        'Pod "a" is invalid: metadata.labels: Invalid value: must be no more than 63 characters'
    )
    denied = errors.error_from_response(
        400, body("BadRequest", "denied the request: \x1b[1m" + "y" * 800_000, 400), request="r"
    )
    assert denied.status_message.startswith(r"denied the request: \x1b[1myyy")
    assert len(str(denied).encode()) < MAX_BYTES + 20
