"""Parses responses from the bytes that arrive. llhttp parses, through `httptools`; where a response ends is decided here."""

from __future__ import annotations

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from tfjob_operator.api.client.http.errors import TransportError

MAX_HEAD_BYTES: Final = 64 * 1024
"""Longest head, or trailer. Servers send half a kilobyte; without a limit a head that never ends would fill the memory.
Bytes that arrived in the same read as the end of the head are not counted."""


class ResponseParser:
    """Parses the responses of one connection, one after the other.

    `status` is 0 until the head is complete; `ended` says that the response is complete. Then `reusable` says whether the
    connection may carry another exchange: only if no byte came after this response, so that requests and responses cannot
    get out of step.
    """

    __slots__ = (
        "_bodyless",
        "_headers",
        "_parser",
        "_pieces",
        "_whole",
        "ended",
        "head",
        "on_body",
        "on_header",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self.status = 0
        self.head: dict[bytes, bytes] = {}
        self.ended = False
        self.reusable = False
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._whole = 0
        self._bodyless = 0
        # For each header and each chunk the parser calls a dict or a list, without a detour through Python.
        self.on_header = self._headers.__setitem__
        self.on_body = self._pieces.append
        self._parser = HttpResponseParser(self)

    def feed(self, data: memoryview) -> None:
        """Take what has arrived. Raises TransportError if it is not HTTP."""
        before = len(self._pieces)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as error:
            if not self.ended:
                raise TransportError("the response is not HTTP: the server goes over to another protocol") from error
            self.reusable = False
        except HttpParserError as error:
            if not self.ended:
                raise TransportError(f"the response is not HTTP: {error}") from error  # its words quote nothing
            self.reusable = False
        if len(self._pieces) != before:
            self._bodyless = 0
        elif not self.ended:
            self._bodyless += len(data)
            if self._bodyless > MAX_HEAD_BYTES:
                raise TransportError(f"the response is not HTTP: its head is longer than {MAX_HEAD_BYTES} bytes")

    def feed_eof(self) -> bool:
        """Note that nothing more comes; return whether that is how this response ends."""
        if not self.status or self.ended:
            return False
        lower = {name.lower(): value for name, value in self.head.items()}
        if b"content-length" in lower or lower.get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
            return False
        self.ended = True
        self.reusable = False
        self._whole = len(self._pieces)
        return True

    def take_body(self) -> bytes:
        """Return the part of the body that arrived since the last call."""
        if self.ended:
            del self._pieces[self._whole :]  # the body of a second response
        body = b"".join(self._pieces)
        self._pieces.clear()
        return body

    def next(self) -> None:
        """Prepare for the next response."""
        self.ended = False
        self.status = self._bodyless = 0
        self._pieces.clear()
        self._headers.clear()  # trailers

    # What the parser calls

    def on_message_begin(self) -> None:
        """Note that a response begins."""
        if self.ended:
            self.reusable = False

    def on_headers_complete(self) -> None:
        """Take the head; what precedes the real one (100 Continue, 103 Early Hints) is dropped."""
        status = self._parser.get_status_code()
        if status >= 200 and not self.ended:
            self.status = status
            self.head = self._headers.copy()
        self._headers.clear()

    def on_message_complete(self) -> None:
        """Note that the response is whole."""
        if self.status and not self.ended:
            self.ended = True
            self._whole = len(self._pieces)
            self.reusable = self._parser.should_keep_alive()
