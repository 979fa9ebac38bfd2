"""Connection: parsing of responses from any chunks, reuse of connections, and every kind of failure."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.virtual_loop import VirtualTimeLoop
from tfjob_operator.api.client.errors import ApiError, ConnectionLostError, RequestTimeoutError, TransportError
from tfjob_operator.api.client.http import Request
from tfjob_operator.api.client.http.connection import BUFFER_BYTES, Connection
from tfjob_operator.api.client.http.responses import HELD_BYTES, MAX_HEAD_BYTES, StreamResponse, WholeResponse

GET = Request("GET", "/x")
WATCH = Request("GET", "/x", total_s=10.0, idle_s=80.0)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OPEN = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class FakeSocket(asyncio.Transport):
    """Drives one buffered protocol. `connection_lost` is called in the next turn of the loop after `abort`, as by asyncio."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.paused = False
        self.aborted = False
        self._protocol = protocol
        protocol.connection_made(self)

    def say(self, data: bytes) -> None:
        """Deliver these bytes to the protocol."""
        while data and not self.aborted:
            room = memoryview(self._protocol.get_buffer(-1))
            part, data = data[: len(room)], data[len(room) :]
            room[: len(part)] = part
            self._protocol.buffer_updated(len(part))

    def hang_up(self, error: Exception | None = None) -> None:
        """Let the other side close the connection, or with an error let it break."""
        if error is None:
            self._protocol.eof_received()
        if not self.aborted:
            self._protocol.connection_lost(error)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def abort(self) -> None:
        if not self.aborted:
            self.aborted = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


@dataclass
class Books:
    told: list[str] = field(default_factory=list)

    def released(self, _connection: Connection) -> None:
        self.told.append("released")

    def lost(self, _connection: Connection) -> None:
        self.told.append("lost")

    def closed(self, _connection: Connection) -> None:
        self.told.append("closed")


class Line:
    def __init__(self) -> None:
        self.books = Books()
        self.connection = Connection(memoryview(bytearray(BUFFER_BYTES)), keep_alive_s=45.0)
        self.connection.owner = self.books
        self.socket = FakeSocket(self.connection)

    def ask(self, request: Request = GET, *, until: float = 40.0) -> asyncio.Task[WholeResponse | StreamResponse]:
        return asyncio.create_task(self.connection.exchange(request, b"bytes", until))

    async def asked(
        self, request: Request = GET, *, until: float = 40.0
    ) -> asyncio.Task[WholeResponse | StreamResponse]:
        task = self.ask(request, until=until)
        await asyncio.sleep(0)
        return task


async def begun(
    request: Request = GET, *, until: float = 40.0
) -> tuple[Line, asyncio.Task[WholeResponse | StreamResponse]]:
    """A connection, and the exchange that has begun on it."""
    line = Line()
    return line, await line.asked(request, until=until)


async def opened() -> tuple[Line, StreamResponse]:
    """A connection, and a stream whose headers have arrived."""
    line, asked = await begun(WATCH)
    line.socket.say(OPEN)
    answer = await asked
    assert isinstance(answer, StreamResponse)
    return line, answer


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


LENGTH = b'HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}'
CHUNKED = OPEN + b'3;note=x\r\n{"a\r\n4\r\n":1}\r\n0\r\nTrailer: x\r\n\r\n'
AFTER_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + LENGTH


@given(answer=st.sampled_from([LENGTH, CHUNKED, AFTER_INTERIM]), cuts=st.sets(st.integers(1, 150)))
def test_a_response_is_the_same_however_it_is_cut(answer: bytes, cuts: set[int]) -> None:
    async def run() -> None:
        line, asked = await begun()
        edges = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
        for start, end in pairwise(edges):
            assert not asked.done()
            line.socket.say(answer[start:end])
        got = await asked
        assert (got.status, await got.body()) == (200 if answer is CHUNKED else 201, b'{"a":1}')
        assert "Link" not in got.headers
        assert "Trailer" not in got.headers
        assert line.books.told == ["released"]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())


async def test_a_request_goes_out_in_one_piece_and_headers_are_found_by_any_spelling() -> None:
    """One write is usually one packet and one TLS record."""
    line, asked = await begun()
    assert line.socket.written == [b"bytes"]
    line.socket.say(b"HTTP/1.1 429 Slow down\r\nretry-after: 1\r\nX-Name: \xfc\r\nContent-Length: 0\r\n\r\n")
    answer = await asked
    assert (answer.status, await answer.body(), [part async for part in answer.chunks()]) == (429, b"", [])
    assert answer.headers["Retry-After"] == answer.headers["retry-after"] == "1"
    assert answer.headers.get("X-NAME") == "ü"
    assert answer.headers.get("Date") is None
    assert [*answer.headers] == ["retry-after", "x-name", "content-length"]
    assert len(answer.headers) == 3


@pytest.mark.parametrize("code", [204, 304])
async def test_a_response_that_has_no_body_by_its_code_ends_with_its_head(code: int) -> None:
    line, asked = await begun()
    line.socket.say(f"HTTP/1.1 {code} Nothing\r\n\r\n".encode())
    assert (await asked).status == code
    assert line.books.told == ["released"]


async def test_a_response_without_a_length_ends_with_its_connection() -> None:
    line, asked = await begun()
    line.socket.say(b"HTTP/1.1 200 OK\r\n\r\n{")
    line.socket.say(b"}")
    line.socket.hang_up()
    assert await (await asked).body() == b"{}"
    assert line.books.told[0] == "lost"


async def test_a_used_connection_that_ends_with_its_response_is_not_given_to_others() -> None:
    line, asked = await begun()
    line.socket.say(OK)
    await asked
    asked = await line.asked()
    line.socket.say(b"HTTP/1.1 200 OK\r\n\r\n{}")
    line.socket.hang_up()
    assert await (await asked).body() == b"{}"
    assert line.books.told[:2] == ["released", "lost"]


async def test_one_connection_carries_one_response_after_the_other() -> None:
    line = Line()
    for number in range(3):
        asked = await line.asked()
        line.socket.say(f"HTTP/1.1 20{number} OK\r\nX-{number}: 1\r\nContent-Length: 1\r\n\r\n{number}".encode())
        answer = await asked
        assert (answer.status, await answer.body()) == (200 + number, str(number).encode())
        assert [*answer.headers] == [f"x-{number}", "content-length"]
        assert [part async for part in answer.chunks()] == [str(number).encode()]
    assert line.books.told == ["released"] * 3


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", id="it says so"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", id="it is old"),
        pytest.param(OK + LENGTH, id="a second answer"),
        pytest.param(OK + b"H", id="the first byte of one"),
        pytest.param(OK + b"\x00nonsense", id="nonsense"),
    ],
)
async def test_a_connection_that_may_be_out_of_step_is_closed_after_its_response(answer: bytes) -> None:
    """What follows a response must never be taken for the response to the next request."""
    line, asked = await begun()
    line.socket.say(answer)
    assert await (await asked).body() == b"{}"
    assert line.socket.aborted
    await asyncio.sleep(0)
    assert line.books.told == ["lost", "closed"]


async def test_bytes_that_nobody_asked_for_close_the_connection_and_one_that_the_server_closes_is_lost_at_once() -> (
    None
):
    """A server may send 408 before it closes an idle connection."""
    line, other = Line(), Line()
    line.socket.say(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    other.socket.hang_up()
    assert line.socket.aborted
    assert (line.books.told[0], other.books.told[0]) == ("lost", "lost")


async def test_an_idle_connection_closes_by_itself() -> None:
    line, asked = await begun()
    line.socket.say(OK)
    await asked
    await asyncio.sleep(44.9)
    assert line.books.told == ["released"]
    await asyncio.sleep(0.2)
    assert line.books.told == ["released", "lost", "closed"]


@pytest.mark.parametrize(
    ("arrives", "text"),
    [
        (b"220 mail.example ESMTP\r\n", "the response is not HTTP: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", "the response is not HTTP: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", "the response is not HTTP: "),
        (OPEN + b"xyz\r\n", "the response is not HTTP: "),
        (b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", "switched protocols"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * MAX_HEAD_BYTES, "header exceeds 65536 bytes"),
        (OPEN + chunk(b"{}") + b"0\r\n" + b"X: y\r\n" * MAX_HEAD_BYTES, "header exceeds 65536 bytes"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * MAX_HEAD_BYTES, "header exceeds 65536 bytes"),
    ],
)
async def test_nonsense_is_one_error_and_costs_the_connection(arrives: bytes, text: str) -> None:
    """Two lengths in one response allow response smuggling; headers without an end would fill the memory."""
    line, asked = await begun()
    for start in range(0, len(arrives), 4096):
        line.socket.say(arrives[start : start + 4096])
    with pytest.raises(TransportError, match=text) as raised:
        await asked
    assert type(raised.value) is TransportError
    assert line.books.told[0] == "lost"


@pytest.mark.parametrize("arrived", [b"", b"HTTP/1.1 200 OK\r\nContent-", OK[:-1], OPEN, OPEN + b"2\r\n{"])
@pytest.mark.parametrize("error", [None, ConnectionResetError(104, "Connection reset by peer")])
async def test_a_response_that_breaks_off_is_a_lost_connection(arrived: bytes, error: Exception | None) -> None:
    line, asked = await begun()
    line.socket.say(arrived)
    line.socket.hang_up(error)
    with pytest.raises(ConnectionLostError, match="Connection reset by peer" if error else "closed the connection"):
        await asked
    assert not line.connection.stale


async def test_only_a_connection_that_was_used_before_and_said_nothing_is_stale() -> None:
    """WR-06: only then may a GET be sent again silently."""
    line, asked = await begun()
    line.socket.say(OK)
    await asked
    asked = await line.asked()
    line.socket.hang_up()
    with pytest.raises(ConnectionLostError):
        await asked
    assert line.connection.stale
    line, asked = await begun()
    line.socket.say(OK)
    await asked
    asked = await line.asked()
    line.socket.say(b"H")
    line.socket.hang_up()
    with pytest.raises(ConnectionLostError):
        await asked
    assert not line.connection.stale


async def test_a_response_that_is_not_whole_in_time_is_given_up() -> None:
    """However much of it comes: a limit on silence alone would let a trickle go on for ever."""
    line = Line()
    asked = line.ask(until=5.0)
    for _ in range(4):
        await asyncio.sleep(1)
        line.socket.say(
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" if asyncio.get_running_loop().time() == 1 else b" "
        )
    with pytest.raises(RequestTimeoutError):
        await asked
    assert asyncio.get_running_loop().time() == 5
    assert line.socket.aborted


async def test_a_short_limit_counts_after_a_long_one() -> None:
    """The timer of the first exchange is still set when the second one begins."""
    line, asked = await begun(until=40.0)
    line.socket.say(OK)
    await asked
    with pytest.raises(RequestTimeoutError):
        await line.ask(until=3.0)
    assert asyncio.get_running_loop().time() == 3
    assert line.socket.aborted


@pytest.mark.parametrize(("request_", "arrived"), [(GET, b""), (WATCH, OPEN)], ids=["no response", "a stream's head"])
async def test_a_cancelled_exchange_closes_its_connection_at_once(request_: Request, arrived: bytes) -> None:
    """Also a stream whose reader has not seen its head."""
    line, asked = await begun(request_)
    line.socket.say(arrived)
    asked.cancel()
    await asyncio.wait([asked])
    assert line.socket.aborted
    assert line.books.told == ["lost", "closed"]


async def test_a_cancellation_that_comes_with_the_response_leaves_the_connection_to_whoever_is_next() -> None:
    """In one turn of the loop: the response is whole, its reader is cancelled, and the connection serves another."""
    line = Line()
    first = await line.asked()
    line.socket.say(OK)
    first.cancel()
    second = line.ask()
    await asyncio.wait([first])
    assert first.cancelled()
    line.socket.say(OK)
    assert (await second).status == 200
    assert not line.socket.aborted


async def test_a_cancellation_that_comes_before_the_response_in_the_same_turn_takes_no_response() -> None:
    line, asked = await begun()
    asked.cancel()
    line.socket.say(OK)
    await asyncio.wait([asked])
    assert asked.cancelled()
    assert line.books.told == ["released"]


async def test_a_connection_that_is_given_up_before_it_is_made_closes_when_it_is() -> None:
    """asyncio does not always notice that the task that waits for a handshake was cancelled."""
    connection = Connection(memoryview(bytearray(16)))
    connection.abort()
    assert FakeSocket(connection).aborted
    await asyncio.sleep(0)


async def test_a_busy_connection_takes_no_second_request() -> None:
    line, asked = await begun()
    with pytest.raises(RuntimeError, match="busy"):
        await line.connection.exchange(GET, b"", 40.0)
    line.socket.say(OK)
    await asked


async def test_what_arrives_together_is_read_together() -> None:
    line, stream = await opened()
    line.socket.say(chunk(b"a\n") + chunk(b"b\n"))
    line.socket.say(chunk(b"c\n"))
    assert await anext(stream) == b"a\nb\nc\n"
    line.socket.say(chunk(b"d\n") + b"0\r\n\r\n")
    assert [part async for part in stream] == [b"d\n"]
    assert line.books.told == ["released"]
    stream.close()
    assert line.books.told == ["released"]


@pytest.mark.parametrize("together", [True, False], ids=["with its head", "later"])
async def test_a_body_with_a_length_can_be_read_while_it_arrives(together: bool) -> None:
    """D9d: API servers send short lists with a length, and some proxies all lists."""
    line, asked = await begun(WATCH)
    line.socket.say(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + (b"{" if together else b""))
    stream = await asked
    if not together:
        line.socket.say(b"{")
    assert await anext(stream.chunks()) == b"{"
    line.socket.say(b"   }")
    assert [part async for part in stream.chunks()] == [b"   }"]
    assert line.books.told == ["released"]


async def test_a_body_that_is_shorter_than_its_length_breaks_off() -> None:
    """D9d: a truncated list is an error."""
    line, asked = await begun(WATCH)
    line.socket.say(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}")
    stream = await asked
    line.socket.hang_up()
    assert await anext(stream.chunks()) == b"{}"
    with pytest.raises(ConnectionLostError):
        await anext(stream.chunks())


async def test_a_stream_that_was_read_to_its_end_can_not_close_the_connection_of_its_successor() -> None:
    line, stream = await opened()
    line.socket.say(b"0\r\n\r\n")
    asked = await line.asked()
    stream.close()
    line.socket.say(OK)
    assert (await asked).status == 200


async def test_each_byte_starts_the_wait_for_the_next_anew() -> None:
    """RF-29: the limit is 80 s of silence since the last byte; that on the headers no longer applies."""
    line, stream = await opened()
    for _ in range(3):
        await asyncio.sleep(79)
        line.socket.say(chunk(b"x"))
        assert await anext(stream) == b"x"
    with pytest.raises(RequestTimeoutError, match=r"^GET /x: "):
        await anext(stream)
    assert asyncio.get_running_loop().time() == 3 * 79 + 80
    assert line.socket.aborted


async def test_a_reader_that_lags_stops_the_reading_and_the_clock() -> None:
    """While we do not read, silence does not count against the server."""
    line, stream = await opened()
    paused = []
    for size in (HELD_BYTES - 1, 1):
        line.socket.say(chunk(b"x" * size))
        paused.append(line.socket.paused)
    await asyncio.sleep(500)
    assert len(await anext(stream)) == HELD_BYTES
    assert [*paused, line.socket.paused] == [False, True, False]
    with pytest.raises(RequestTimeoutError):
        await anext(stream)
    assert asyncio.get_running_loop().time() == 580


async def test_a_stream_that_ends_while_its_reader_lags_leaves_the_connection_to_others() -> None:
    line, stream = await opened()
    line.socket.say(chunk(b"x" * HELD_BYTES) + b"0\r\n\r\n")
    assert line.books.told == ["released"]
    assert not line.socket.paused
    asked = await line.asked()
    line.socket.say(OK)
    assert (await asked).status == 200
    assert [len(part) async for part in stream] == [HELD_BYTES]


async def test_what_came_before_a_stream_broke_can_be_read_and_then_the_error_comes_every_time() -> None:
    line, stream = await opened()
    line.socket.say(chunk(b"x"))
    line.socket.hang_up()
    assert await anext(stream) == b"x"
    for _ in range(2):
        with pytest.raises(ConnectionLostError, match=r"^GET /x: "):
            await anext(stream)


async def test_leaving_a_stream_cuts_its_connection() -> None:
    line, stream = await opened()
    reader = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    stream.close()
    stream.close()
    with pytest.raises(ConnectionLostError, match="was closed"):
        await reader
    assert line.books.told == ["lost", "closed"]


async def test_the_refusal_of_a_stream_must_come_in_time_too() -> None:
    """The stream's limit on silence alone would let a refusal trickle for ever."""
    line, stream = await opened()

    async def trickle() -> None:
        while not line.socket.aborted:
            line.socket.say(chunk(b" "))
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(trickle())
        with pytest.raises(RequestTimeoutError):
            await stream.body()
        stream.close()
    assert asyncio.get_running_loop().time() == pytest.approx(10, abs=1.1)


async def test_opening_a_stream_is_limited_by_the_limit_of_the_exchange() -> None:
    line = Line()
    asked = line.ask(WATCH, until=10.0)
    with pytest.raises(RequestTimeoutError):
        await asked
    assert asyncio.get_running_loop().time() == 10


async def test_the_short_response_to_a_stream_is_read_like_any() -> None:
    """The response to a refused watch is a Status with a length, and its connection is kept."""
    line, asked = await begun(WATCH)
    line.socket.say(b"HTTP/1.1 410 Gone\r\nContent-Length: 2\r\n\r\n{}")
    answer = await asked
    assert (answer.status, await answer.body()) == (410, b"{}")
    answer.close()
    assert line.books.told == ["released"]


def test_an_error_names_the_request_once_it_is_known() -> None:
    """A connection does not know the request; it is added to the error later, without creating a new one."""
    error: ApiError = ConnectionLostError("broke")
    assert str(error) == "broke"
    error.request = str(GET)
    assert (str(error), error.message) == ("GET /x: broke", "broke")
