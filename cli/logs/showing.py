"""How lines of a log are shown: to a program as they are, on a terminal without what could harm it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfjob_operator.cli.logs.lines import Line

COLOURS: Final = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
"""The colours of prefixes: cyan, yellow, green, magenta, blue, then the same bright. Red is left for the errors of programs."""
_SGR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
"""Colours and bold (Select Graphic Rendition): the escape sequences that only change how text looks."""
_RESET: Final = "\x1b[0m"
_NO_LIMIT: Final = 1 << 40


class Shower:
    """Turns lines into output. `terminal` cleans them; `colour` colours prefixes, and keeps the colours of programs."""

    def __init__(self, *, terminal: bool, colour: bool, prefixes: bool, stamps: bool) -> None:
        self._terminal = terminal
        self._colour = colour
        self._prefixes = prefixes
        self._stamps = stamps
        self._width = 0
        self._painted: dict[str, bytes] = {}

    def expect(self, names: Iterable[str]) -> None:
        """Make room for prefixes of these names, on a terminal."""
        if self._terminal:
            self._width = max([self._width, *map(len, names)])

    def shown(self, name: str, lines: Iterable[Line]) -> bytes:
        """Return lines of a replica, each with its end."""
        prefix = self._prefix(name) if self._prefixes else b""
        return b"".join(b"%b%b%b\n" % (prefix, self._stamp(line), self._text(line.text)) for line in lines)

    def _stamp(self, line: Line) -> bytes:
        return line.stamp + b" " if self._stamps and line.stamp else b""

    def _text(self, text: bytes) -> bytes:
        if not self._terminal:
            return text
        return harmless(text.decode(errors="replace"), colour=self._colour).encode()

    def _prefix(self, name: str) -> bytes:
        if name not in self._painted:
            plain = f"{name:{self._width}} | "
            code = COLOURS[len(self._painted) % len(COLOURS)]
            self._painted[name] = (f"\x1b[{code}m{plain}{_RESET}" if self._colour else plain).encode()
        return self._painted[name]


def harmless(text: str, *, colour: bool) -> str:
    """Return a line for a terminal: with its own colours, if they are wanted, and every other control character escaped.

    Of a line that was overwritten, as progress bars are, the last version is shown, as on a terminal.
    """
    if text.isascii() and text.isprintable():
        return text
    text = re.split(r"[\r\b]", text.rstrip("\r\b"))[-1]
    parts = _SGR.split(text)  # what is between the sequences, and the sequences
    shown = [_clean(part) if place % 2 == 0 else part if colour else "" for place, part in enumerate(parts)]
    return "".join(shown) + (_RESET if colour and len(parts) > 1 else "")


def _clean(text: str) -> str:
    return "\t".join(clean(part, _NO_LIMIT) for part in text.split("\t"))
