"""A transport for measuring without a network: it plays the bytes of a watch that was recorded before."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from hack.bench.child import Arguments, Numbers
from tfjob_operator.api.client import Request, Response
from tfjob_operator.api.client.http import OnLeave, unchanged
from tfjob_operator.informers.codec import INITIAL_EVENTS_END

EMPTY_LIST: Final = b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}'


class Player:
    """A transport whose server has an empty collection at first; a watch of it waits for `play`, then sends the chunks."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks
        self._playing = asyncio.Event()
        self._ended = asyncio.Event()

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        """See `Transport.send`."""
        return _Played(self._watch() if "watch" in request.query else None)

    async def play(self, *, until: Callable[[], bool]) -> float:
        """Send the chunks, one per turn of the loop, as sockets do; return the CPU seconds until `until` returns true."""
        began = time.thread_time()
        self._playing.set()
        await self._ended.wait()
        while not until():  # noqa: ASYNC110 - a store wakes nobody who waits for its version
            await asyncio.sleep(0)
        return time.thread_time() - began

    async def _watch(self) -> AsyncIterator[bytes]:
        await self._playing.wait()
        for chunk in self._chunks:
            yield chunk
            await asyncio.sleep(0)
        self._ended.set()
        await asyncio.Event().wait()  # a watch stays open until its reader leaves


class _Played:
    def __init__(self, watch: AsyncIterator[bytes] | None) -> None:
        self.status = 200
        self.headers: Mapping[str, str] = {"Content-Type": "application/json"}
        self._watch = watch

    async def body(self) -> bytes:
        return EMPTY_LIST

    def chunks(self) -> AsyncIterator[bytes]:
        return self._watch or self._list()

    async def _list(self) -> AsyncIterator[bytes]:
        yield EMPTY_LIST

    def close(self) -> None:
        """Nothing is open."""


# A server that stands in for an API server with streaming lists: it sends recorded bytes, in either of the two ways.
#
# The bytes are a real server's: its list and the events of its watch. What is made up is the bookmark at the end of the events,
# and everything about time: it sends as fast as the reader takes it, in plain HTTP. So it shows how much memory and time the
# reader needs, and says nothing about servers.


PIECE: Final = 65_536


@contextmanager
def stand_in(arguments: Arguments) -> Iterator[Callable[[Arguments], Numbers]]:
    """Serve the files `list` and `watch` on a free port of loopback; the side returns that port."""
    events = Path(arguments["watch"]).read_bytes()
    listed = Path(arguments["list"]).read_bytes()
    handler = type("Handler", (_Handler,), {"listed": listed, "events": events + _end_of(listed)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield lambda _: {"port": server.server_address[1]}
        server.shutdown()
        thread.join()


def _end_of(listed: bytes) -> bytes:
    """Return the bookmark that ends the initial events."""
    metadata = {
        "resourceVersion": json.loads(listed)["metadata"]["resourceVersion"],
        "annotations": {INITIAL_EVENTS_END: "true"},
    }
    head = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}
    return json.dumps({"type": "BOOKMARK", "object": head}, separators=(",", ":")).encode() + b"\n"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    listed = events = b""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if "watch" in query:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if "sendInitialEvents" in query:
                self._send_events()
            self.rfile.read(1)  # a watch stays open until its reader leaves
            self.close_connection = True
            return
        # Like an API server's watch cache: for version 0, send everything, whatever the limit.
        body = self.listed if query.get("resourceVersion") == ["0"] else EMPTY_LIST
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_events(self) -> None:
        for start in range(0, len(self.events), PIECE):
            piece = self.events[start : start + PIECE]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the method it overrides
        """Say nothing."""
