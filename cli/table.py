"""The columns that the server sends, laid out as kubectl lays them out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PADDING: Final = 3
"""Spaces between columns, and the least width of one: kubectl's `printers.GetNewTabWriter`."""
MIN_WIDTH: Final = 6
_LINE_END: Final = re.compile(r"[\f\n\r]")


class TablePrinter:
    """Turns Tables into lines. Widths are remembered, so that the lines of a watch stand below those of the list."""

    def __init__(self, *, wide: bool = False, namespaces: bool = False, prefix: str = "") -> None:
        """`wide` shows all columns, `namespaces` a first one with the namespace of each object; `prefix` is before names."""
        self._prefix = prefix
        self._wide = wide
        self._namespaces = namespaces
        self._shown: list[int] = []
        self._names: list[str] = []
        self._widths: list[int] = []
        self._has_header = False

    def lines(self, table: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines of one Table; the header comes once. Events of a watch have no columns of their own."""
        columns = table.get("columnDefinitions") or []
        if columns:
            self._shown = [place for place, each in enumerate(columns) if self._wide or not each.get("priority")]
            self._names = [str(columns[place]["name"]).upper() for place in self._shown]
        rows = [self._cells(row) for row in table.get("rows") or []]
        if not rows:
            return
        if not self._has_header:
            self._has_header = True
            rows.insert(0, (["NAMESPACE"] if self._namespaces else []) + self._names)
        self._widen(rows)
        yield from map(self._line, rows)

    def _cells(self, row: Mapping[str, Any]) -> list[str]:
        cells = row.get("cells") or []
        texts = [_text(cells[place]) if place < len(cells) else "" for place in self._shown]
        texts[:1] = [self._prefix + each for each in texts[:1]]
        if not self._namespaces:
            return texts
        meta = (row.get("object") or {}).get("metadata") or {}
        return [str(meta.get("namespace", "")), *texts]

    def _widen(self, rows: Sequence[Sequence[str]]) -> None:
        for row in rows:
            self._widths += [MIN_WIDTH] * (len(row) - len(self._widths))
            for place, cell in enumerate(row):
                self._widths[place] = max(self._widths[place], len(cell) + PADDING)

    def _line(self, row: Sequence[str]) -> str:
        *first, last = row
        return "".join(cell.ljust(self._widths[place]) for place, cell in enumerate(first)) + last


def _text(cell: Any) -> str:
    """Return a cell as kubectl shows it: the first line of a text, with dots where more follows."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).lower()
    first, *rest = _LINE_END.split(str(cell), maxsplit=1)
    return f"{first}..." if rest else first
