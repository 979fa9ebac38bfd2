"""Requests and responses as bytes: what is written and shown of an address, and what is unzipped."""

import gzip

import pytest

from fakes.transport import FakeResponse, FakeTransport
from tfjob_operator.api.client import Settings
from tfjob_operator.api.client.errors import ConnectionLostError, CredentialsError, TransportError
from tfjob_operator.api.client.http import Credentials, Request
from tfjob_operator.api.client.http.messages import Origin, RequestWriter, tunnel_request
from tfjob_operator.api.client.http.responses import PIECE_BYTES, UnzippedResponse


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ada:s3cret@api.example:6443/k8s/?token=s3cret#s3cret", "https://api.example:6443/k8s"),
        ("https://s3cret@api.example", "https://api.example"),
        ("http://ada:s3c@ret@[fd00::1]:8080", "http://[fd00::1]:8080"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    """D18: neither user nor password, nor query nor fragment; host and port are what people need."""
    assert str(Origin.of(url)) == shown
    for text in (repr(Origin.of(url)), repr(Settings(url)), repr(Settings("https://api.example", proxy=url))):
        assert "s3c" not in text


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


NO_ADDRESS = [
    "api.example", "ftp://api.example", "ada:s3cret@api.example", "https://ada:s3cret@", "https://ada:s3cret@api.example:port",
    "http://ada:s3cret@:80", "http://[::1",
]  # fmt: skip


@pytest.mark.parametrize("url", NO_ADDRESS)
def test_what_is_no_address_is_refused_without_its_password(url: str) -> None:
    """D18: it may be an address with a typing error, and a password in it."""
    with pytest.raises(ValueError, match="must have the form https://host:port") as raised:
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


BODY = b'{"items":[' + b'{"kind":"Pod"},' * 1000 + b"{}]}"
ZIPPED = gzip.compress(BODY, mtime=0)


async def unzipped(*pieces: bytes | Exception) -> UnzippedResponse:
    return UnzippedResponse(await FakeTransport(FakeResponse(201, pieces)).send(Request("GET", "/x")))


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
async def test_a_compressed_body_is_what_it_was_however_it_is_cut(size: int) -> None:
    response = await unzipped(*(ZIPPED[start : start + size] for start in range(0, len(ZIPPED), size)))
    assert (response.status, response.headers["Content-Type"]) == (201, "application/json")
    assert await response.body() == BODY


async def test_what_is_tiny_and_becomes_huge_is_handed_on_in_pieces() -> None:
    """A hundred megabytes of zeros are a hundred kilobytes on the wire."""
    response = await unzipped(gzip.compress(bytes(10 * PIECE_BYTES)))
    sizes = [len(chunk) async for chunk in response.chunks()]
    assert (sum(sizes), max(sizes)) == (10 * PIECE_BYTES, PIECE_BYTES)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((ZIPPED[:-9],), "is truncated"),
        ((), "is truncated"),
        ((b"{}",), "is not gzip"),
        ((ZIPPED[:-8], b"\0" * 8), "is not gzip"),
    ],
)
async def test_a_body_that_is_cut_or_is_no_gzip_is_an_error(pieces: tuple[bytes, ...], message: str) -> None:
    """A truncated list must not be taken for a complete one."""
    with pytest.raises(TransportError, match=message):
        await (await unzipped(*pieces)).body()


async def test_a_stream_that_breaks_gives_first_what_it_had_and_then_its_error() -> None:
    response = await unzipped(ZIPPED[:200], ConnectionLostError("reset"))
    assert BODY.startswith(await anext(response.chunks()))
    with pytest.raises(ConnectionLostError):
        await response.body()


async def test_closing_it_closes_what_it_reads() -> None:
    transport = FakeTransport(FakeResponse(200, ZIPPED))
    UnzippedResponse(await transport.send(Request("GET", "/x"))).close()
    assert transport.unclosed == 0
