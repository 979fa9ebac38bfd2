"""What standard output is taken for, and how rows are laid out on it."""

import os
import re

import pytest
from pytest_mock import MockerFixture

from tfjob_operator.cli.printing import printable
from tfjob_operator.cli.status import tone_of
from tfjob_operator.cli.terminal import WIDTH, TablePrinter, Terminal, terminal


@pytest.fixture
def on_a_terminal(mocker: MockerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal of 70 columns, and the environment says nothing."""
    for name in ("NO_COLOR", "TERM", "LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    stdout = mocker.patch("tfjob_operator.cli.terminal.sys").stdout  # pytest has one of its own in each phase
    stdout.isatty.return_value = True
    stdout.encoding = "utf-8"
    mocker.patch("shutil.get_terminal_size", return_value=os.terminal_size((70, 20)))


@pytest.mark.usefixtures("on_a_terminal")
def test_a_terminal_has_a_size_and_colours_unless_somebody_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal() == Terminal(is_terminal=True, width=70, height=20, colour=True, unicode=False)
    assert not terminal(no_color=True).colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal().colour
    monkeypatch.setenv("NO_COLOR", "")
    assert terminal().colour
    monkeypatch.setenv("TERM", "dumb")
    assert not terminal().colour


@pytest.mark.usefixtures("on_a_terminal")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LANG": "C.utf8"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, False),
    ],
)
def test_box_characters_are_drawn_where_the_locale_is_utf_8(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: bool
) -> None:
    """Python writes UTF-8 in the C locale as well."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert terminal().unicode == expected


def test_a_pipe_has_neither_colours_nor_a_height() -> None:
    assert (terminal().is_terminal, terminal().width, terminal().height, terminal().colour) == (False, WIDTH, 0, False)


def test_colours_surround_a_text_and_change_nothing_of_it() -> None:
    screen = Terminal(is_terminal=True, width=80, height=24, colour=True, unicode=True)
    for state, colour in (("Running", "32"), ("CrashLoopBackOff", "31"), ("ErrImagePull", "31"), ("Pending", "33")):
        painted = printable(screen.paint(state, tone_of(state)))
        assert painted == f"\x1b[{colour}m{state}\x1b[0m"
        assert re.sub(r"\x1b\[\d+m", "", painted) == state
    assert screen.paint("", "red") == ""


def test_a_column_is_three_wider_than_its_longest_cell_and_stays_so_for_the_lines_of_a_watch() -> None:
    """The header is not repeated; of a text with several lines the first is shown."""
    assert [*TablePrinter(("NAME", "STATE")).lines([["mnist", "Running"], ["b", ""]])] == [
        "NAME    STATE", "mnist   Running", "b",
    ]  # fmt: skip
    printer = TablePrinter(("NAME", "STATE"))
    first, _ = printer.lines([["a-long-name", "Created"]])
    assert [*printer.lines([["b", "Running"]])] == ["b             Running"]
    assert first.index("STATE") == len("b             ")
    assert [*TablePrinter(("NAME",), headers=False).lines([["a\nb"]])] == ["a..."]


@pytest.mark.parametrize(("width", "shown"), [(70, 52), (20, 40)])
def test_lines_end_where_the_terminal_ends_unless_that_leaves_nothing_of_a_message(width: int, shown: int) -> None:
    """Then the terminal wraps it, as it does with kubectl's lines."""
    message = "word" * 20
    printer = TablePrinter(("NAME", "STATE", "MESSAGE"), width=width)
    painted = list(
        printer.lines([["mnist", "Running", message]], lambda place, _, cell: f"<{cell}>" if place else cell)
    )
    assert painted == ["NAME    STATE     MESSAGE", f"mnist   <Running   ><{message[:shown]}>"]
