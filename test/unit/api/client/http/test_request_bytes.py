"""RequestWriter and Origin: the bytes on the wire, and requests that are refused."""

from __future__ import annotations

import pytest

from tfjob_operator.api.client.errors import CredentialsError
from tfjob_operator.api.client.http import Credentials, Request
from tfjob_operator.api.client.http.messages import Origin, RequestWriter, tunnel_request

SECRET = "s3cret"
SERVER = Origin.of("https://api.example:6443/base/")
ANONYMOUS = Credentials()
FIXED = "Host: api.example:6443\r\nUser-Agent: tests\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n"


def written(request: Request, credentials: Credentials = ANONYMOUS) -> str:
    return RequestWriter(SERVER, user_agent="tests").write(request, credentials).decode()


def test_a_request_is_a_head_and_perhaps_a_body() -> None:
    assert written(Request("GET", "/x", {"a": "b c"})) == f"GET /base/x?a=b+c HTTP/1.1\r\n{FIXED}\r\n"
    assert written(Request("DELETE", "/x")) == f"DELETE /base/x HTTP/1.1\r\n{FIXED}\r\n"
    sent = written(Request("PATCH", "/x", body=b"{}", content_type="application/merge-patch+json"))
    kind = "Content-Type: application/merge-patch+json"
    assert sent == f"PATCH /base/x HTTP/1.1\r\n{FIXED}{kind}\r\nContent-Length: 2\r\n\r\n{{}}"


def test_a_request_says_what_it_accepts_whoever_came_before() -> None:
    """The headers are built once for each accepted media type, and again for new credentials."""
    writer = RequestWriter(SERVER, user_agent="tests")
    plain, text, zipped = (
        Request("GET", "/x"),
        Request("GET", "/x", accept="text/plain"),
        Request("GET", "/x", gzip=True),
    )
    for token in ("one", "two"):
        credentials = Credentials(f"Bearer {token}")
        for _ in range(2):
            sent = [writer.write(request, credentials).decode() for request in (plain, text, zipped)]
            assert [head.count(f"\r\nAuthorization: Bearer {token}\r\n") for head in sent] == [1, 1, 1]
            assert "\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n" in sent[0]
            assert "\r\nAccept: text/plain\r\nAccept-Encoding: identity\r\n" in sent[1]
            assert "\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\n" in sent[2]
    with pytest.raises(ValueError, match="Accept"):
        writer.write(Request("GET", "/x", accept="text/plain\r\nEvil: 1"), ANONYMOUS)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_what_is_expected_to_have_a_body_says_when_it_has_none(method: str) -> None:
    """RFC 9110, 8.6: a server may otherwise wait for a body."""
    assert written(Request(method, "/x")).endswith("\r\nContent-Length: 0\r\n\r\n")


def test_a_token_goes_along_and_a_new_one_replaces_it() -> None:
    writer = RequestWriter(SERVER, user_agent="tests")
    request = Request("GET", "/x")
    for token in ("one", "one", "two"):
        assert (
            f"\r\nAuthorization: Bearer {token}\r\n" in writer.write(request, Credentials(f"Bearer {token}")).decode()
        )
    assert "Authorization" not in writer.write(request, ANONYMOUS).decode()


@pytest.mark.parametrize("bad", ["\r\n", "\n", "\r", "\0", " ", "ü", "\u2028", "\x7f"])
def test_nothing_can_break_out_of_the_line_it_stands_in(bad: str) -> None:
    """A name with a line break must not become a header or a second request; it is escaped or refused."""
    with pytest.raises(ValueError, match="must be quoted"):
        written(Request("GET", f"/x{bad}Evil: 1"))
    with pytest.raises(ValueError, match="must be quoted"):
        written(Request(f"GET{bad}", "/x"))
    if bad != " ":
        with pytest.raises(ValueError, match="content type"):
            written(Request("POST", "/x", {}, b"{}", f"text/plain{bad}Evil: 1"))
        with pytest.raises(CredentialsError) as raised:
            written(Request("GET", "/x"), Credentials(f"Bearer {SECRET}{bad}Evil: 1"))
        assert SECRET not in f"{raised.value!r}"
        with pytest.raises(ValueError, match="User-Agent"):
            RequestWriter(SERVER, user_agent=f"tests{bad}Evil: 1")
    sent = written(Request("GET", "/x", {f"a{bad}": f"b{bad}Evil: 1"}))
    assert sent.count("\r\n") == 6
    assert "Evil:" not in sent


def test_a_refused_request_does_not_spoil_the_next_one() -> None:
    """Invalid credentials are refused again, and valid ones are written afterwards."""
    writer = RequestWriter(SERVER, user_agent="tests")
    bad = Credentials("Bearer a\nb")
    for _ in range(2):
        with pytest.raises(CredentialsError):
            writer.write(Request("GET", "/x"), bad)
    assert b"Bearer c\r\n" in writer.write(Request("GET", "/x"), Credentials("Bearer c"))


def test_a_proxy_is_told_what_it_needs_and_no_more() -> None:
    """Without TLS it gets the whole request; with TLS only the address of the tunnel."""
    proxy = Origin.of(f"http://ada:{SECRET}%21@proxy.example:3128")
    plain = Origin.of("http://api.example:8080")
    sent = RequestWriter(plain, proxy=proxy, user_agent="tests").write(Request("GET", "/x"), ANONYMOUS).decode()
    assert sent.startswith("GET http://api.example:8080/x HTTP/1.1\r\nHost: api.example:8080\r\n")
    assert "\r\nProxy-Authorization: Basic YWRhOnMzY3JldCE=\r\n" in sent
    inside = RequestWriter(SERVER, proxy=proxy, user_agent="tests").write(Request("GET", "/x"), ANONYMOUS).decode()
    assert inside == f"GET /base/x HTTP/1.1\r\n{FIXED}\r\n"
    assert tunnel_request(SERVER, proxy, "tests").decode() == (
        "CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\nUser-Agent: tests\r\n"
        "Proxy-Authorization: Basic YWRhOnMzY3JldCE=\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("url", "header", "authority"),
    [
        ("https://api.example", "api.example", "api.example:443"),
        ("https://api.example:443", "api.example", "api.example:443"),
        ("http://api.example:443", "api.example:443", "api.example:443"),
        ("http://API.example", "api.example", "api.example:80"),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", "[fd00::1]:6443"),
        ("https://bücher.example", "xn--bcher-kva.example", "xn--bcher-kva.example:443"),
    ],
)
def test_a_server_is_named_as_in_its_url(url: str, header: str, authority: str) -> None:
    origin = Origin.of(url)
    assert (origin.host_header, origin.authority) == (header, authority)


@pytest.mark.parametrize(
    "url",
    ["api.example", "ftp://api.example", f"http://ada:{SECRET}@:80", f"http://ada:{SECRET}@h:port", "http://[::1"],
)
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ValueError, match="must have the form") as raised:
        Origin.of(url)
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(Origin.of(f"http://ada:{SECRET}@proxy"))


def test_a_user_in_the_servers_url_is_who_we_are_unless_there_are_credentials() -> None:
    writer = RequestWriter(Origin.of("http://ada:x@h"), user_agent="tests")
    assert b"\r\nAuthorization: Basic YWRhOng=\r\n" in writer.write(Request("GET", "/x"), ANONYMOUS)
    assert b"\r\nAuthorization: Bearer t\r\n" in writer.write(Request("GET", "/x"), Credentials("Bearer t"))


def test_a_program_without_a_name_sends_none() -> None:
    """This layer has no default for the name: the creator of the transport gives it."""
    proxy = Origin.of("http://proxy.example:3128")
    assert b"User-Agent" not in RequestWriter(SERVER, user_agent="").write(Request("GET", "/x"), ANONYMOUS)
    assert b"User-Agent" not in tunnel_request(SERVER, proxy, "")
