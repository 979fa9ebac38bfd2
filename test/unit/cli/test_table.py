"""Rows are laid out as kubectl lays them out."""

from __future__ import annotations

from tfjob_operator.cli.terminal import TablePrinter


def test_a_column_is_three_wider_than_its_longest_cell() -> None:
    """At least six; there are no blanks at the end of a line."""
    lines = list(TablePrinter(("NAME", "STATE")).lines([["mnist", "Running"], ["b", ""]]))
    assert lines == ["NAME    STATE", "mnist   Running", "b"]


def test_the_lines_of_a_watch_stand_below_those_of_the_list() -> None:
    """Widths are remembered and the header is not repeated."""
    printer = TablePrinter(("NAME", "STATE"))
    first = list(printer.lines([["a-long-name", "Created"]]))
    assert list(printer.lines([["b", "Running"]])) == ["b             Running"]
    assert first[0].index("STATE") == len("b             ")


def test_of_a_text_with_several_lines_the_first_is_shown() -> None:
    """With dots."""
    assert list(TablePrinter(("NAME",), headers=False).lines([["a\nb"]])) == ["a..."]


def test_no_rows_print_nothing() -> None:
    """Not even a header: `list` reports on standard error that there are none."""
    assert list(TablePrinter(("NAME",)).lines([])) == []


def test_lines_end_where_the_terminal_ends() -> None:
    """And colors do not count: a cell is cut before it is painted."""
    rows = [["mnist", "Running", "a long message"]]
    printer = TablePrinter(("NAME", "STATE", "MESSAGE"), width=20)
    painted = list(printer.lines(rows, lambda place, _, cell: f"<{cell}>" if place else cell))
    assert painted == ["NAME    STATE     ME", "mnist   <Running   ><a>"]
