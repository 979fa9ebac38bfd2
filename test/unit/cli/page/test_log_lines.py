"""Logs as lines that a page can show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.cli.page.views import MAX_LINE, LogLines


def lines_of(*chunks: bytes) -> list[str]:
    """All lines of a log that comes in these pieces."""
    lines = LogLines()
    return [line for chunk in chunks for line in lines.feed(chunk)] + [*lines.end()]


def test_a_log_is_cut_at_its_line_ends_wherever_its_pieces_end() -> None:
    """The last line may have none."""
    assert lines_of(b"one\ntw", b"o\n", b"three") == ["one", "two", "three"]


def test_codes_of_terminals_are_left_out() -> None:
    """Colours, cursor movements, titles of windows, links."""
    said = b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07and \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n"
    assert lines_of(said) == ["red and link"]


def test_a_line_that_is_written_over_is_what_was_written_last() -> None:
    """Progress bars use carriage returns or backspaces."""
    assert lines_of(b"1/3\r2/3\r3/3\n", b"a\r", b"b\r\n", b"10%\x08\x08\x0820%\n") == ["3/3", "b", "20%"]


def test_a_line_of_ten_megabytes_is_cut_and_says_by_how_much() -> None:
    """It is never held whole."""
    lines = LogLines()
    for _ in range(160):
        assert [*lines.feed(b"x" * 65_536)] == []
        assert len(lines._head) <= MAX_LINE
    [line] = lines.feed(b"\n")
    assert line == "x" * MAX_LINE + f" ... {160 * 65_536 - MAX_LINE} more bytes"


@given(st.lists(st.binary(max_size=40)))
def test_no_bytes_whatsoever_raise_or_leave_a_control_character(chunks: list[bytes]) -> None:
    """Whatever a program writes."""
    for line in lines_of(*chunks):
        assert not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in line)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_where_a_log_is_cut_into_pieces_changes_nothing(text: bytes, at: int) -> None:
    """Where it is cut depends on the network."""
    assert lines_of(text[:at], text[at:]) == lines_of(text)
