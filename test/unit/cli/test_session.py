"""Requests end with a decoded response or with one line that says what to do."""

import json
import socket
import ssl
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from hack.control_plane.run.pki import Authority
from tfjob_operator.api.access import Access
from tfjob_operator.api.credential_plugin import Plugin
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli import jobs
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.session import NoResponseError, Session, StreamBrokenError
from tfjob_operator.cli.target import Target
from unit.cli.conftest import Server

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OK = b"HTTP/1.1 200 OK\r\n\r\n"
EVENT = b'{"type": "MODIFIED", "object": {"metadata": {"name": "a", "uid": "u"}}, "n": %d}\n'
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def saying(*parts: bytes) -> Callable[[socket.socket], None]:
    """A server of one connection that sends these, each after it has heard something."""

    def serve(taken: socket.socket) -> None:
        for part in parts:
            taken.recv(65_536)
            taken.sendall(part)

    return serve


@contextmanager
def listening(*servers: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a local port on which each of these serves a connection, one after the other."""

    def work() -> None:
        for serve in servers:
            taken, _ = listener.accept()
            with taken:
                serve(taken)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(10)


@pytest.fixture(autouse=True)
def at_once(mocker: MockerFixture) -> None:
    """What is repeated is repeated without a delay."""
    mocker.patch("tfjob_operator.cli.session.LOST_RETRY_S", 0.0)


@contextmanager
def connected(*servers: Callable[[socket.socket], None]) -> Iterator[Session]:
    with listening(*servers) as address, Session(Access(f"http://{address}")) as session:
        yield session


def test_paths_of_jobs_are_those_of_the_operator() -> None:
    """They are written a second time, since the operator's module takes long to import. Names are quoted."""
    for namespace, name in ((None, ""), ("team", ""), ("team", "mnist"), ("a b", "c d")):
        assert jobs.path(namespace, name) == TFJOBS.path(namespace, name or None)


def test_a_time_without_a_zone_is_none() -> None:
    """No operator writes one, and it could not be compared with others."""
    assert jobs.time_of("2026-01-01T00:00:00Z") == datetime(2026, 1, 1, tzinfo=UTC)
    assert [jobs.time_of(each) for each in ("2026-01-01T00:00:00", "today", None)] == [None] * 3


def test_a_connection_is_kept_for_the_next_request(server: Server) -> None:
    server.answers("/a", {"x": 1})
    with Session(Access(server.url, authorization="Bearer t")) as session:
        assert session.get("/a", limit=5, labelSelector="") == {"x": 1}
        assert session.patch("/a", {"y": 2}) == {"x": 1}
    (_, first, headers, _), (method, _, _, body) = server.asked
    assert first == "/a?limit=5"
    assert headers["Authorization"] == "Bearer t"
    assert (method, json.loads(body)) == ("PATCH", {"y": 2})


def test_a_status_becomes_the_line_that_kubectl_prints(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts look for `Error from server (NotFound)`."""
    server.answers("/a", {"kind": "Status", "message": 'tfjobs "x" not found', "reason": "NotFound"}, code=404)
    with Session(Access(server.url)) as session, pytest.raises(ApiServerError) as raised:
        session.get("/a")
    assert (raised.value.code, raised.value.reason) == (404, "NotFound")
    raised.value.show()
    assert capsys.readouterr().err == 'Error from server (NotFound): tfjobs "x" not found\n'


@pytest.mark.parametrize(
    ("code", "body", "says"),
    [
        (502, b"<html>\n<b>Bad Gateway</b>" + b"x" * 10_000, "502 Bad Gateway: <html> <b>Bad Gateway</b>xxx"),
        (200, b"<html>", "is invalid: is it an API server?"),
        (401, b'{"message": "Unauthorized", "reason": "Unauthorized"}', "log in again"),
    ],
)
def test_what_is_no_api_server_is_told_in_one_line(server: Server, code: int, body: bytes, says: str) -> None:
    server.answers("/a", body, code=code)
    with Session(Access(server.url)) as session, pytest.raises(CliError) as raised:
        session.get("/a")
    assert says in raised.value.message
    assert len(raised.value.message) < 500


def test_a_server_that_is_not_there_is_named() -> None:
    """Connection refused. D18: without a password in its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    access = Access(f"http://ada:s3cret@127.0.0.1:{port}")
    with Session(access) as session, pytest.raises(CliError) as raised:
        session.get("/")
    assert raised.value.message == f"cannot connect to http://127.0.0.1:{port}: Connection refused"
    assert "s3cret" not in repr(access)


def test_a_watch_yields_events_until_it_ends_and_the_session_goes_on(server: Server) -> None:
    server.answers("/w", EVENT % 1 + EVENT % 2)
    server.answers("/a", {})
    with Session(Access(server.url)) as session:
        assert [each["n"] for each in session.watch("/w", resourceVersion="7")] == [1, 2]
        assert next(session.watch("/w"))["n"] == 1
        assert session.get("/a") == {}
    assert server.asked[0][1] == "/w?resourceVersion=7&watch=true"


@pytest.mark.parametrize(
    "sent",
    [HEAD + b"%x\r\n%b\r\n20\r\ncut" % (len(EVENT % 1), EVENT % 1), OK + EVENT % 1 + b'{"type"'],
    ids=["in a chunk", "in an event"],
)
def test_a_watch_that_breaks_off_says_so_after_what_came_whole(sent: bytes) -> None:
    with connected(saying(sent)) as session:
        events = session.watch("/w")
        assert next(events)["n"] == 1
        with pytest.raises(StreamBrokenError, match=r"connection to .* lost"):
            next(events)


def test_a_watch_ends_at_its_limit_although_nothing_comes() -> None:
    """Otherwise `wait --timeout` would wait for a server that is gone."""
    done = threading.Event()

    def serve(taken: socket.socket) -> None:
        taken.recv(4096)
        taken.sendall(HEAD)
        done.wait(10)

    with connected(serve) as session:
        with pytest.raises(StreamBrokenError, match="timed out"):
            list(session.watch("/w", limit_s=0.05))
        done.set()


def test_after_a_refusal_the_session_goes_on(server: Server) -> None:
    server.answers("/a", b"<html>" * 100_000, code=403)
    server.answers("/b", {})
    with Session(Access(server.url)) as session:
        with pytest.raises(ApiServerError):
            session.get("/a")
        assert session.get("/b") == {}


def test_a_refusal_that_breaks_off_is_a_refusal() -> None:
    sent = b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n20\r\ncut"
    with connected(saying(sent)) as session, pytest.raises(ApiServerError, match="403 Forbidden") as refused:
        session.get("/a")
    assert refused.value.is_denied


def test_tls_verifies_the_server_by_the_authority_and_the_name(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    made = authority.server("server", ["127.0.0.9"])
    client = authority.client("client", "me")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    subjects: list[Any] = []

    def serve(taken: socket.socket) -> None:
        with context.wrap_socket(taken, server_side=True) as secure:
            subjects.append((secure.getpeercert() or {}).get("subject"))
            secure.recv(4096)
            secure.sendall(EMPTY)

    ca = authority.certificate.read_text()
    own: dict[str, Any] = {"certificate": client.certificate.read_text(), "key": client.key.read_text()}
    for given in ({"authority": ca, "tls_server_name": "kubernetes"}, {"verify": False}):
        with listening(serve) as address, Session(Access(f"https://{address}", **own, **given)) as session:
            assert session.get("/") == {}
    assert "me" in str(subjects)

    def refuse(taken: socket.socket) -> None:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(taken, server_side=True)

    unverified = pytest.raises(CliError, match="cannot verify the certificate")
    with (
        listening(refuse) as address,
        Session(Access(f"https://{address}", authority=ca, **own)) as session,
        unverified,
    ):
        session.get("/")


def test_a_credential_plugin_that_fails_is_named() -> None:
    failing = Access("http://127.0.0.1:1", plugin=Plugin(("false",), "client.authentication.k8s.io/v1"))
    with Session(failing) as session, pytest.raises(CliError, match="credential plugin false failed: exit code 1"):
        session.get("/a")


def test_a_proxy_is_asked_for_a_tunnel() -> None:
    asked: list[bytes] = []

    def serve(taken: socket.socket) -> None:
        asked.append(taken.recv(4096))
        taken.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        asked.append(taken.recv(4096))
        taken.sendall(EMPTY)

    with (
        listening(serve) as address,
        Session(Access("http://api.example:8080", proxy=f"http://{address}")) as session,
    ):
        assert session.get("/a") == {}
    assert asked[0].startswith(b"CONNECT api.example:8080 ")
    assert asked[1].startswith(b"GET /a ")


@pytest.mark.parametrize(
    "server", ["ftp://a", "nonsense", "https://a:99999", "https://[a", "https://", "http://proxied"]
)
def test_an_address_that_can_not_be_used_is_told(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    monkeypatch.setenv("KUBECONFIG", "none")
    monkeypatch.setenv("HTTP_PROXY", "socks5://b")
    with pytest.raises(CliError, match="must have the form"):
        Target(server=server).session()


def test_credentials_that_became_too_old_are_renewed_once_for_all_connections(server: Server, tmp_path: Path) -> None:
    """Tokens of cloud providers expire within minutes, and a watch or a log goes on for hours."""
    plugin, runs = tmp_path / "login", tmp_path / "runs"
    plugin.write_text(
        f"#!{sys.executable}\nimport json, pathlib\n"
        f"runs = pathlib.Path({str(runs)!r})\n"
        "runs.write_text((runs.read_text() if runs.exists() else '') + 'x')\n"
        "about = {'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential'}\n"
        "print(json.dumps(about | {'status': {'token': runs.read_text()}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    access = Access(server.url, plugin=Plugin((str(plugin),), "client.authentication.k8s.io/v1"))
    with Session(access) as one, one.another() as two:
        answers = [(200, b'{"n": %d}' % number) for number in (1, 2, 3)]
        server.responses["/a"] = [answers[0], (401, b"{}"), *answers[1:], (401, b"{}")]
        assert [each.get("/a")["n"] for each in (one, one, two)] == [1, 2, 3]
        with pytest.raises(ApiServerError, match="log in again"):
            two.get("/a")
    assert runs.read_text() == "xxx"
    assert [headers["Authorization"] for _, _, headers, _ in server.asked] == [
        f"Bearer {token}" for token in ("x", "x", "xx", "xx", "xx", "xxx")
    ]


def test_a_connection_that_the_server_closed_meanwhile_is_made_anew() -> None:
    """There may be minutes between two requests of a command. A request that changes something is not sent again."""
    with listening(*[saying(EMPTY)] * 3) as address:
        session = Session(Access(f"http://{address}"))
        assert [session.get("/a"), session.get("/a"), session.get("/a")] == [{}, {}, {}]
    with session, pytest.raises(NoResponseError, match=r"connection to .* lost"):
        session.patch("/a", {})


def test_a_stream_that_breaks_off_is_told_from_one_that_ends(server: Server) -> None:
    server.answers("/log", b"a\nb\n")
    with Session(Access(server.url)) as session:
        assert b"".join(session.stream("/log", follow="true")) == b"a\nb\n"
    found: list[bytes] = []
    with connected(saying(HEAD + b"3\r\none\r\n5\r\ntw")) as session, pytest.raises(StreamBrokenError):
        found.extend(session.stream("/log"))


CALLS: dict[str, Callable[[Session], Any]] = {
    "GET": lambda session: session.get("/a"),
    "POST": lambda session: session.create("/a", {"x": 1}),
    "PATCH": lambda session: session.patch("/a", {"x": 1}),
    "DELETE": lambda session: session.delete("/a", {"x": 1}),
    "watch": lambda session: {"ok": next(session.watch("/a"))["n"]},
    "log": lambda session: json.loads(b"".join(session.stream("/a"))),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_request_of_any_verb_is_repeated_when_the_server_asks_for_it(
    server: Server, mocker: MockerFixture, call: Callable[[Session], Any]
) -> None:
    """As by client-go: after 429 and 5xx with the header Retry-After."""
    event = mocker.patch("tfjob_operator.cli.session.Event")
    event.return_value.wait.return_value = event.return_value.is_set.return_value = False
    server.retry_after = "7"
    server.responses["/a"] = [(429, b"{}"), (503, b"<html>"), (200, b'{"ok": 1}')]
    server.responses["/a?watch"] = [*server.responses["/a"][:2], (200, EVENT % 1)]
    with Session(Access(server.url)) as session:
        assert call(session) == {"ok": 1}
    assert len({(method, path, body) for method, path, _, body in server.asked}) == 1
    assert [waited.args for waited in event.return_value.wait.call_args_list] == [(7.0,), (7.0,)]


@pytest.mark.parametrize(
    ("code", "retry_after"),
    [(429, None), (503, None), (503, "31"), (409, "0"), (503, "Wed, 21 Oct 2026 07:28:00 GMT"), (503, "-1")],
)
def test_no_other_error_response_is_repeated(server: Server, code: int, retry_after: str | None) -> None:
    server.retry_after = retry_after
    server.answers("/a", {}, code=code)
    with Session(Access(server.url)) as session, pytest.raises(ApiServerError):
        session.get("/a")
    assert len(server.asked) == 1


def test_a_request_is_repeated_ten_times_at_most(server: Server) -> None:
    server.retry_after = "0"
    server.answers("/a", {}, code=503)
    with Session(Access(server.url)) as session, pytest.raises(ApiServerError):
        session.get("/a")
    assert len(server.asked) == 11


def test_no_request_is_repeated_after_the_time_limit(server: Server) -> None:
    """That of --request-timeout, as with kubectl, and that of a session."""
    server.retry_after = "20"
    server.answers("/a", {}, code=503)
    with Session(Access(server.url, timeout_s=10)) as session, pytest.raises(ApiServerError):
        session.get("/a")
    with Session(Access(server.url)).another(until=time.monotonic() + 10) as session, pytest.raises(ApiServerError):
        session.get("/a")
    assert len(server.asked) == 2


def test_a_session_that_is_aborted_sends_no_request(server: Server, mocker: MockerFixture) -> None:
    """Whether it waits to repeat one, or begins one."""
    server.retry_after = "0"
    server.answers("/a", {}, code=503)
    event = mocker.patch("tfjob_operator.cli.session.Event")
    event.return_value.is_set.return_value = False
    with Session(Access(server.url)) as session, pytest.raises(ApiServerError):
        session.get("/a")
    event.return_value.is_set.return_value = True
    with Session(Access(server.url)) as session, pytest.raises(CliError, match="lost"):
        session.get("/a")
    assert len(server.asked) == 1


def test_a_server_that_does_not_answer_is_given_up_at_the_end_of_the_session() -> None:
    done = threading.Event()

    def serve(taken: socket.socket) -> None:
        taken.recv(4096)
        done.wait(10)

    with connected(serve) as unlimited:
        session = unlimited.another(until=time.monotonic() + 0.05)
        with pytest.raises(CliError, match="did not answer within"):
            session.get("/a")
        done.set()


def dripping(head: bytes, drip: bytes) -> Callable[[socket.socket], None]:
    """A server of one connection that sends `head` and then `drip` until the client has gone."""

    def serve(taken: socket.socket) -> None:
        taken.recv(65_536)
        with suppress(ConnectionError):
            taken.sendall(head)
            while True:
                taken.sendall(drip)
                time.sleep(0.01)

    return serve


DRIPS = {
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    "chunk": (HEAD, b"1\r\n \r\n"),
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "trailer": (HEAD + b"2\r\n{}\r\n0\r\n", b"X: x\r\n"),
    "refusal": (b"HTTP/1.1 503 No\r\nContent-Length: 100000\r\n\r\n", b" "),
}


@pytest.mark.parametrize(("head", "drip"), DRIPS.values(), ids=DRIPS)
def test_a_response_that_comes_slowly_ends_at_the_limit_of_the_request(head: bytes, drip: bytes) -> None:
    """The limit is one of the whole request, not of each read: none is ever silent."""
    with (
        listening(dripping(head, drip)) as address,
        Session(Access(f"http://{address}", timeout_s=0.2)) as session,
        pytest.raises(CliError, match=r"did not answer within 0.2s|503"),
    ):
        session.get("/a")


def test_a_request_that_is_read_slowly_ends_at_the_limit() -> None:
    done = threading.Event()

    def serve(taken: socket.socket) -> None:
        while not done.wait(0.01):
            taken.recv(1)

    with listening(serve) as address, Session(Access(f"http://{address}", timeout_s=0.3)) as session:
        with pytest.raises(NoResponseError, match=r"did not answer within 0.3s"):
            session.create("/a", {"x": "x" * 20_000_000})
        done.set()


@pytest.mark.parametrize(
    ("head", "drip"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 60_000),
        (HEAD, b"ea60\r\n" + b" " * 60_000 + b"\r\n"),
        (HEAD + b"-1\r\n", b" " * 60_000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        (HEAD + b"2\r\n{}\r\n0\r\n", b"X: x\r\n" * 1000),
    ],
    ids=["body", "chunks", "negative chunk", "interim responses", "trailer"],
)
def test_a_response_has_a_maximum_size(mocker: MockerFixture, head: bytes, drip: bytes) -> None:
    mocker.patch("tfjob_operator.cli.session._MAX_RESPONSE", 1 << 20)
    served = dripping(head, drip)
    mocker.patch("time.sleep")
    with connected(served) as session, pytest.raises(NoResponseError, match=r"larger than 1Mi|is invalid"):
        session.get("/a")


def test_a_watch_is_not_limited_but_its_events_are(mocker: MockerFixture) -> None:
    mocker.patch("tfjob_operator.cli.session._MAX_RESPONSE", 20_000)
    mocker.patch("tfjob_operator.cli.session._MAX_EVENT", 500)
    events = b"".join(EVENT % number for number in range(1000))
    with connected(saying(OK + events + b"{" + b" " * 600)) as session:
        watch = session.watch("/w")
        assert [next(watch)["n"] for _ in range(1000)] == [*range(1000)]
        with pytest.raises(StreamBrokenError):
            next(watch)


def test_a_list_has_a_maximum_number_of_pages(server: Server, mocker: MockerFixture) -> None:
    """A server that gives the same token again and again."""
    mocker.patch("tfjob_operator.cli.session._MAX_PAGES", 3)
    server.answers("/a", {"metadata": {"continue": "more"}, "items": []})
    with Session(Access(server.url)) as session, pytest.raises(CliError, match="more than 3 pages"):
        list(session.pages("/a"))
    assert len(server.asked) == 3


@pytest.mark.parametrize("code", [204, 301, 302, 307])
def test_only_a_success_is_taken_for_the_response(server: Server, code: int) -> None:
    """A proxy redirects to its login page, perhaps with JSON in the body."""
    server.answers("/a", {"x": 1}, code=code)
    with Session(Access(server.url)) as session, pytest.raises(CliError):
        session.get("/a")


ODD_BODIES = {
    "nesting": b"[" * 200_000,
    "nesting of objects": b'{"a":' * 200_000,
    "NUL": b"\x00{}",
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "digits": b'{"a": %s}' % (b"9" * 5000),
    "number": b'{"a": 99999999999999999999}',
    "infinity": b'{"a": 1e999}',
    "NaN": b'{"a": NaN}',
    "half a character": b'{"a": "\\ud800"}',
    "list": b"[]",
    "text": b'"x"',
    "cut": b'{"a": ',
    "nothing": b"",
}


@pytest.mark.parametrize("body", ODD_BODIES.values(), ids=ODD_BODIES)
def test_what_is_no_json_object_is_told_in_one_line(server: Server, body: bytes) -> None:
    server.answers("/a", body)
    server.answers("/a?watch", body + b"\n")
    with Session(Access(server.url)) as session:
        with pytest.raises(NoResponseError, match="is invalid: is it an API server"):
            session.get("/a")
        if body:  # otherwise it has just ended
            with pytest.raises(StreamBrokenError):
                list(session.watch("/a"))


@pytest.mark.parametrize(
    "page",
    [
        {"items": []}, {"metadata": [], "items": []}, {"metadata": {}, "items": {}}, {"metadata": {}, "items": [1]},
        *({"metadata": {}, "items": [{"metadata": each}]} for each in
          (1, {}, {"name": "a"}, {"name": 1, "uid": "u"}, {"name": "a", "uid": "u", "labels": "x"})),
    ],
)  # fmt: skip
def test_a_list_of_other_things_than_objects_is_refused(server: Server, page: Any) -> None:
    server.answers("/a", page)
    with Session(Access(server.url)) as session, pytest.raises(NoResponseError):
        list(session.pages("/a"))


@pytest.mark.parametrize("kind", ["ERROR", "BOOKMARK", "ODD"])
def test_only_changes_are_yielded_and_an_error_event_breaks_a_watch(server: Server, kind: str) -> None:
    server.answers("/w", b'{"type": "%b", "object": {"message": "too old"}}\n' % kind.encode() + EVENT % 1)
    with Session(Access(server.url)) as session:
        if kind == "ERROR":
            with pytest.raises(StreamBrokenError, match="too old"):
                list(session.watch("/w"))
        else:
            assert [each["n"] for each in session.watch("/w")] == [1]


def test_a_read_is_repeated_when_its_connection_is_lost_and_a_write_is_not(server: Server) -> None:
    """As by client-go. Whether the write took effect is unknown."""
    cut = [(0, b"")] * 3
    server.responses["/a"] = [*cut, (200, b'{"x": 1}'), *cut]
    with Session(Access(server.url)) as session:
        assert session.get("/a") == {"x": 1}
        for write in (session.create, session.patch, session.delete):
            with pytest.raises(NoResponseError, match=r"connection to .* lost"):
                write("/a", {})
    assert len(server.asked) == 7


def test_a_body_that_breaks_off_is_read_again() -> None:
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"
    with listening(saying(short), saying(EMPTY)) as address, Session(Access(f"http://{address}")) as session:
        assert session.get("/a") == {}
