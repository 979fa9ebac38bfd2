"""What standard output is: its size, and whether it shows colours and more than ASCII."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 100
"""Columns where there is no terminal, as for `explain`."""
_CODES: Final = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "grey": 90}
"""ECMA-48, 8.3.117; the bright ones are aixterm's, which all terminals took over."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Standard output. Without a terminal there is no height, and no colour."""

    is_terminal: bool
    width: int
    height: int
    colour: bool
    unicode: bool

    def paint(self, text: str, colour: str) -> str:
        """Return a text in a colour, if this shows colours."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour and text else text

    def shown(self, line: str) -> str:
        """Return a line as the terminal can show it: without Unicode, what is not ASCII becomes escapes."""
        return line if self.unicode else line.encode("ascii", "backslashreplace").decode()


def terminal(*, no_color: bool = False) -> Terminal:
    """Return what standard output is now. NO_COLOR and TERM=dumb turn colours off, as elsewhere."""
    is_terminal = sys.stdout.isatty()
    size = shutil.get_terminal_size() if is_terminal else os.terminal_size((WIDTH, 0))
    plain = no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Terminal(is_terminal, size.columns, size.lines, is_terminal and not plain, _takes_unicode())


def _takes_unicode() -> bool:
    """Whether both the encoding and the locale are UTF-8: Python writes it in the C locale as well."""
    named = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    is_utf_8 = "utf8" in named.lower().replace("-", "")
    return is_utf_8 and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
