"""The log of a container as lines that a page can show: without escape sequences, and cut to a length. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINE: Final = 4_096
"""How many bytes of a line are shown: nobody reads a longer one, and browsers take seconds to wrap it."""
_CODES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # titles, links: up to their end
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_BACK: Final = re.compile(rb"\x08+")


class LogLines:
    """Cuts a stream of bytes into lines. At most `MAX_LINE` bytes of an unfinished line are kept.

    Of a line that a program overwrites (progress bars end with a carriage return, or with backspaces) the last version counts.
    """

    def __init__(self) -> None:
        self._head = b""
        self._left_out = 0

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the lines that a chunk completes."""
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            self._take(piece)
            yield self._line()
        self._take(rest)

    def end(self) -> Iterator[str]:
        """Yield what was written after the last line, if anything."""
        if self._head:
            yield self._line()

    def _take(self, piece: bytes) -> None:
        begin = piece.rstrip(b"\r").rfind(b"\r") + 1
        if begin:
            self._head, self._left_out, piece = b"", 0, piece[begin:]
        room = MAX_LINE - len(self._head)
        self._head += piece[:room]
        self._left_out += max(0, len(piece) - room)

    def _line(self) -> str:
        text = _BACK.sub(b"\r", self._head).rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
        more = f" ... {self._left_out} more bytes" if self._left_out else ""
        self._head, self._left_out = b"", 0
        return clean(_CODES.sub("", text).expandtabs(), MAX_LINE) + more
