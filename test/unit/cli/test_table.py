"""Columns are laid out as kubectl lays them out."""

from __future__ import annotations

from typing import Any

from tfjob_operator.cli.table import TablePrinter

COLUMNS = [{"name": "Name"}, {"name": "State"}, {"name": "Hidden", "priority": 1}]


def table(*rows: list[Any], columns: Any = COLUMNS) -> dict[str, Any]:
    made = [{"cells": cells, "object": {"metadata": {"namespace": "team"}}} for cells in rows]
    return {"columnDefinitions": columns, "rows": made}


def test_a_column_is_three_wider_than_its_longest_cell() -> None:
    """At least six; the last one has no padding."""
    lines = list(TablePrinter().lines(table(["mnist", "Running", "x"], ["b", None, "y"])))
    assert lines == ["NAME    STATE", "mnist   Running", "b       "]


def test_wide_shows_columns_of_lower_priority() -> None:
    """-o wide."""
    assert list(TablePrinter(wide=True).lines(table(["a", "b", "c"]))) == ["NAME   STATE   HIDDEN", "a      b       c"]


def test_all_namespaces_have_a_column_of_their_own() -> None:
    """-A."""
    lines = list(TablePrinter(namespaces=True).lines(table(["a", "b", "c"])))
    assert lines == ["NAMESPACE   NAME   STATE", "team        a      b"]


def test_the_lines_of_a_watch_stand_below_those_of_the_list() -> None:
    """Widths are remembered and the header is not repeated; an event may have no columns of its own."""
    printer = TablePrinter()
    first = list(printer.lines(table(["a-long-name", "Created", ""])))
    assert list(printer.lines(table(["b", "Running", ""], columns=None))) == ["b             Running"]
    assert first[0].index("STATE") == len("b             ")


def test_of_a_text_with_several_lines_the_first_is_shown() -> None:
    """With dots. Numbers and booleans are as in JSON."""
    lines = list(TablePrinter().lines(table(["a\nb", True, ""], ["c", 3, ""])))
    assert lines[1:] == ["a...   true", "c      3"]


def test_no_rows_print_nothing() -> None:
    """Not even a header: `list` says that there is nothing."""
    assert list(TablePrinter().lines(table())) == []
