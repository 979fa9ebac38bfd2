"""Lines out of a stream of bytes, and which of them were seen before. Pure.

A stream that has ended or broken off is requested again from the second of its last line (the API server passes on whole
seconds). Lines that were read before are known by the time that the kubelet puts before each line, and where several lines
have the same time, by their number.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple

LONGEST: Final = 16 * 1024 * 1024
"""The most bytes of one line. A longer one is split: a process that never ends its line must not take all memory."""
_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |$)")


class Line(NamedTuple):
    """A line without its end: the time that the kubelet gave it, "" where there is none, and what the process wrote."""

    stamp: bytes
    text: bytes


class Splitter:
    """Splits bytes into lines as they arrive."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that have ended with these bytes."""
        first, *more = data.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if not more:
            return [self.rest()] if self._size >= self._longest else []
        *whole, begun = more
        lines = [self.rest(), *whole]
        self._parts, self._size = [begun], len(begun)
        return lines

    def rest(self) -> bytes:
        """Return what is there of a line that has not ended, and forget it."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return rest


class Position:
    """How far the log of one container was read, over all its restarts, whose lines follow each other in time."""

    def __init__(self) -> None:
        self._stamp = b""
        self._count = 0
        """How many lines with this stamp were read."""
        self._left = 0
        """How many of these are still to come again."""
        self._skipping = False

    @property
    def since(self) -> str | None:
        """Return the time of the last line, None before the first."""
        return self._stamp.decode() if self._stamp else None

    def resume(self) -> None:
        """Expect a stream that begins at or before the last line."""
        self._skipping = bool(self._stamp)
        self._left = self._count

    def unseen(self, raw: bytes) -> Line | None:
        """Return a line, and count it as read; None for one that was read before."""
        line = split(raw)
        if self._skipping and self._is_old(line):
            return None
        self._skipping = False
        if line.stamp == self._stamp:
            self._count += 1
        elif line.stamp:
            self._stamp, self._count = line.stamp, 1
        return line

    def peek(self, raw: bytes) -> Line | None:
        """Return a line that has not ended yet, without counting it; None for one that was read before."""
        line, left = split(raw), self._left
        is_old = self._skipping and self._is_old(line)
        self._left = left
        return None if is_old else line

    def _is_old(self, line: Line) -> bool:
        if not line.stamp:
            return True  # the rest of a long line that was read
        here, last = _time(line.stamp), _time(self._stamp)
        if here == last and self._left:
            self._left -= 1
            return True
        return here < last


def split(raw: bytes) -> Line:
    """Split a line of the kubelet into its time and its text; the kubelet must have been asked for times."""
    found = _STAMP.match(raw)
    if found is None:
        return Line(b"", raw)
    return Line(raw[: found.end(3)], raw[found.end() :])


def _time(stamp: bytes) -> tuple[float, int]:
    """Return seconds of the epoch and nanoseconds; a kubelet may leave out zeros at the end."""
    found = _STAMP.match(stamp)
    if found is None:
        return 0.0, 0
    day, fraction, zone = found.groups()
    try:
        seconds = datetime.fromisoformat(f"{day.decode()}{zone.decode()}").timestamp()
    except ValueError:
        return 0.0, 0
    return seconds, int((fraction or b"0").ljust(9, b"0"))
