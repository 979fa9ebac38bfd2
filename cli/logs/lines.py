"""Splits log streams into lines, recognizes lines that were read before, and formats them. Pure.

A stream that has ended or broken off is requested again from the time of its last line, truncated to seconds (the API server
only accepts whole seconds). Lines that were read before are recognized by the kubelet's timestamps and, if several lines have
the same timestamp, by their number. Lines for programs are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from tfjob_operator.cli.printing import control

LOG_GONE: Final = b"unable to retrieve container logs for "
"""The body that a kubelet sends, with status 200 and no newline, if the runtime has removed the container."""

LONGEST: Final = 16 * 1024 * 1024
"""The most bytes of a line. A longer one is split: a process that never ends its line must not use up all memory."""
_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |$)")


class LogLine(NamedTuple):
    """A line without newline: the kubelet's timestamp, "" if there is none, and the text."""

    stamp: bytes
    text: bytes


class Splitter:
    """Splits bytes into lines as they arrive."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines completed by these bytes."""
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
        """Return and discard the incomplete last line."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return rest


class Position:
    """The position up to which a container's log was read, over all restarts; lines of all runs are in order of time."""

    def __init__(self) -> None:
        self._stamp = b""
        self._count = 0
        """The number of lines with this timestamp that were read."""
        self._left = 0
        """The number of these that are still to be repeated."""
        self._skipping = False

    @property
    def since(self) -> str | None:
        """The time of the last line, None before the first."""
        return self._stamp.decode() if self._stamp else None

    def resume(self) -> None:
        """Expect a stream that begins at or before the last line."""
        self._skipping = bool(self._stamp)
        self._left = self._count

    def unseen(self, raw: bytes) -> LogLine | None:
        """Return a line and count it as read; None if it was read before."""
        line = split(raw)
        if self._skipping and self._is_old(line):
            return None
        self._skipping = False
        if line.stamp == self._stamp:
            self._count += 1
        elif line.stamp:
            self._stamp, self._count = line.stamp, 1
        return line

    def peek(self, raw: bytes) -> LogLine | None:
        """Return an incomplete line without counting it; None if it was read before."""
        line, left = split(raw), self._left
        is_old = self._skipping and self._is_old(line)
        self._left = left
        return None if is_old else line

    def _is_old(self, line: LogLine) -> bool:
        if not line.stamp:
            return True  # the rest of a long line that was read
        at, last = _time(line.stamp), _time(self._stamp)
        if at == last and self._left:
            self._left -= 1
            return True
        return at < last


def split(raw: bytes) -> LogLine:
    """Split a raw line with timestamp into its time and its text."""
    match = _STAMP.match(raw)
    if match is None:
        return LogLine(b"", raw)
    return LogLine(raw[: match.end(3)], raw[match.end() :])


def _time(stamp: bytes) -> tuple[float, int]:
    """Return seconds since the epoch and nanoseconds; a kubelet may omit trailing zeros."""
    match = _STAMP.match(stamp)
    if match is None:
        return 0.0, 0
    day, fraction, zone = match.groups()
    try:
        seconds = datetime.fromisoformat(f"{day.decode()}{zone.decode()}").timestamp()
    except ValueError:
        return 0.0, 0
    return seconds, int((fraction or b"0").ljust(9, b"0"))


COLOURS: Final = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""The colors of prefixes: cyan, yellow, green, magenta, blue, then the same in bright. Red is reserved for errors of
programs."""
_SGR: Final = re.compile(r"\x1b\[([0-9;:]*m)")
"""Colors and bold (Select Graphic Rendition): escape sequences that only change the appearance of text."""
_RESET: Final = control("0m")


class LineFormatter:
    """Formats lines for `cli.terminal.write`. `colour` colors prefixes on a `terminal`, and keeps the colors of programs."""

    def __init__(self, *, terminal: bool, colour: bool, prefixes: bool, stamps: bool) -> None:
        self._terminal = terminal
        self._colour = colour
        self._prefixes = prefixes
        self._stamps = stamps
        self._width = 0
        self._painted: dict[str, bytes] = {}

    def expect(self, names: Iterable[str]) -> None:
        """Align prefixes of these names on a terminal."""
        if self._terminal:
            self._width = max([self._width, *map(len, names)])

    def shown(self, name: str, lines: Iterable[LogLine]) -> bytes:
        """Return log lines of a replica, each with a newline."""
        prefix = self._prefix(name) if self._prefixes else b""
        return b"".join(b"%b%b%b\n" % (prefix, self._stamp(line), self._text(line.text)) for line in lines)

    def _stamp(self, line: LogLine) -> bytes:
        return line.stamp + b" " if self._stamps and line.stamp else b""

    def _text(self, text: bytes) -> bytes:
        if not self._terminal:
            return text
        return for_terminal(text.decode(errors="replace"), colour=self._colour).encode()

    def _prefix(self, name: str) -> bytes:
        if name not in self._painted:
            plain = f"{name:{self._width}} | "
            code = COLOURS[len(self._painted) % len(COLOURS)]
            self._painted[name] = (f"{control(f'{code}m')}{plain}{_RESET}" if self._colour else plain).encode()
        return self._painted[name]


def for_terminal(text: str, *, colour: bool) -> str:
    """Return a line without overwritten text; colors of the program are kept for the terminal if enabled, else dropped."""
    if text.isprintable():
        return text
    text = re.split(r"[\r\b]", text.rstrip("\r\b"))[-1]
    shown, count = _SGR.subn((lambda code: control(code[1])) if colour else "", text)
    return shown + _RESET if colour and count else shown
