"""Lines of a log from bytes as they come, in bounded memory. Pure.

A progress bar overwrites itself, with carriage returns or backspaces, so that one visible line is many in the log: each is
returned as soon as it ends.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES: Final = 4096
"""How many bytes of a line are read; a Keras bar with a dozen metrics has 500. The rest is skipped."""
_OVERWRITES: Final = re.compile(rb"[\r\x08]+")
_ESCAPES: Final = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -Z\\\\^-~])")
"""Sequences of ECMA-48: CSI, such as colours; OSC, such as titles; and those of one letter."""
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[-+]\d\d:\d\d))(?: |$)")
"""What a kubelet puts before each line with `timestamps=true` (RFC 3339)."""


class Line(NamedTuple):
    """A line without escape sequences, and when it was written, if the kubelet says so."""

    text: str
    time: datetime | None = None


class LineReader:
    """Makes lines of bytes, which may be cut anywhere. It raises for no input, and keeps at most one line."""

    def __init__(self) -> None:
        """Begin at the start of a line."""
        self._part = bytearray()
        self._time: datetime | None = None
        self._at_start = True

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that end in `data`. What follows the last end is kept for the next time."""
        first, *others = data.split(b"\n")
        yield from self._overwritten(first)
        for each in others:
            yield from self._ended()
            self._time, self._at_start = None, True
            yield from self._overwritten(each)

    def close(self) -> Iterator[Line]:
        """Yield what is left: a last line without an end."""
        yield from self._ended()

    def _overwritten(self, data: bytes) -> Iterator[Line]:
        first, *others = _OVERWRITES.split(data)
        self._keep(first)
        for each in others:
            yield from self._ended()
            self._keep(each)

    def _keep(self, data: bytes) -> None:
        self._part += data[: MOST_BYTES - len(self._part)]

    def _ended(self) -> Iterator[Line]:
        """Yield the line that has ended, unless it is empty."""
        text = _ESCAPES.sub("", self._part.decode(errors="replace"))
        self._part.clear()
        if self._at_start and text:
            self._at_start = False
            found = _TIMESTAMP.match(text)
            if found is not None:
                self._time = _time(found[1])
                text = text[found.end() :]
        if text and not text.isspace():
            yield Line(text, self._time)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None  # the 30th of February
