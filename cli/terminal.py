"""The capabilities of standard output: its size, colors and Unicode."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tfjob_operator.cli.printing import control

_COLOURS: Final = {"red": 31, "green": 32, "yellow": 33, "bright_black": 90}
WIDTH: Final = 100
"""The width without a terminal, the same as for `explain`."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Standard output. Without a terminal it has no height and no colors."""

    is_terminal: bool
    width: int
    height: int
    colour: bool
    unicode: bool

    def paint(self, text: str, colour: str) -> str:
        """Color a text if colors are enabled."""
        return f"{control(f'{_COLOURS[colour]}m')}{text}{control('0m')}" if self.colour and text else text

    def shown(self, line: str) -> str:
        """Return a line that the terminal can display: without Unicode, other characters than ASCII are escaped."""
        return line if self.unicode else line.encode("ascii", "backslashreplace").decode()


def terminal(*, no_color: bool = False) -> Terminal:
    """Return the current standard output. NO_COLOR and TERM=dumb disable colors, as usual."""
    import shutil

    is_terminal = sys.stdout.isatty()
    size = shutil.get_terminal_size() if is_terminal else os.terminal_size((WIDTH, 0))
    plain = no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Terminal(is_terminal, size.columns, size.lines, is_terminal and not plain, _takes_unicode())


def _takes_unicode() -> bool:
    """Return True if both the encoding and the locale are UTF-8; Python's encoding is UTF-8 even in the C locale."""
    named = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    is_utf_8 = "utf8" in named.lower().replace("-", "")
    return is_utf_8 and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


PADDING: Final = 3
"""Spaces between columns, and the minimum column width: kubectl's `printers.GetNewTabWriter`."""
MIN_WIDTH: Final = 6
_MIN_LAST: Final = 40
"""The fewest characters of a last column that are shown: a message of less says nothing, and a terminal wraps lines."""
_LINE_END: Final = re.compile(r"[\f\n\r]")


class TablePrinter:
    """Formats rows as lines. Widths are kept, so that the lines of a watch are aligned with those of the list."""

    def __init__(self, header: Sequence[str], *, headers: bool = True, width: int = 0) -> None:
        """`headers` False omits the header; lines are cut at `width`, unless it is 0 or too small."""
        self._header = header if headers else None
        self._widths = [MIN_WIDTH] * len(header)
        self._width = width

    def lines(
        self, rows: Iterable[Sequence[str]], paint: Callable[[int, Sequence[str], str], str] | None = None
    ) -> Iterator[str]:
        """Yield the lines, with the header before the first row. `paint` colors a padded cell by column and row."""
        found = [[_first_line(cell) for cell in row] for row in rows]
        if not found:
            return
        shown = [*([self._header] if self._header is not None else []), *found]
        for row in shown:
            self._widths = [max(width, len(cell) + PADDING) for width, cell in zip(self._widths, row, strict=True)]
        if self._header is not None:
            yield "".join(self._cells(self._header))
            self._header = None
        for row in found:
            cells = self._cells(row)
            yield "".join(paint(place, row, cell) for place, cell in enumerate(cells)) if paint else "".join(cells)

    def _cells(self, row: Sequence[str]) -> list[str]:
        """Return the padded cells of a row, cut at the terminal's width, without trailing blanks."""
        cells = [cell.ljust(self._widths[column]) for column, cell in enumerate(row)]
        if self._width:
            starts = [*accumulate(self._widths, initial=0)]
            width = max(self._width, starts[len(cells) - 1] + _MIN_LAST)
            cells = [cell[: max(width - start, 0)] for cell, start in zip(cells, starts, strict=False)]
        while cells and not cells[-1].strip():
            cells.pop()
        return [*cells[:-1], cells[-1].rstrip()] if cells else []


def _first_line(text: str) -> str:
    """Return the first line of a cell, with an ellipsis if there are more, like kubectl."""
    first, *rest = _LINE_END.split(text, maxsplit=1)
    return f"{first}..." if rest else first
