"""Lines of a stream: which were read before, and how they are shown."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.cli.logs.lines import LineFormatter, LogLine, Position, Splitter, for_terminal, split
from tfjob_operator.cli.printing import printable

SECOND = b"2026-01-01T00:00:00."


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_however_a_stream_is_cut_its_lines_are_the_same(data: bytes, cuts: list[int]) -> None:
    splitter = Splitter()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    lines = [line for start, end in pairwise(places) for line in splitter.feed(data[start:end])]
    assert [*lines, splitter.rest()] == data.split(b"\n")


def test_a_line_of_ten_megabytes_is_one_line_and_one_that_never_ends_does_not_take_all_memory() -> None:
    splitter = Splitter()
    found = [line for _ in range(160) for line in splitter.feed(b"x" * 65_536)] + splitter.feed(b"\n")
    assert [len(line) for line in found] == [160 * 65_536]
    splitter = Splitter(longest=4)
    assert [splitter.feed(part) for part in (b"abc", b"de", b"f\n")] == [[], [b"abcde"], [b"f"]]


@given(st.lists(st.integers(0, 3), max_size=12).map(sorted), st.data())
def test_a_stream_that_is_read_again_gives_what_was_not_read(times: list[int], data: st.DataObject) -> None:
    lines = [SECOND + b"%d00000000Z line %d" % (time, place) for place, time in enumerate(times)]
    read = data.draw(st.integers(0, len(lines)))
    position = Position()
    seen = [position.unseen(line) for line in lines[:read]]
    position.resume()
    seen += [found for line in lines if (found := position.unseen(line)) is not None]
    assert [line.text for line in seen if line] == [b"line %d" % place for place in range(len(lines))]


def test_zones_and_zeros_that_are_left_out_change_nothing() -> None:
    """Kubelets write the time of their node, and some without the zeros at its end."""
    position = Position()
    position.unseen(b"2026-01-01T01:00:00.5+01:00 one")
    position.resume()
    assert position.unseen(b"2026-01-01T01:00:00.5+01:00 one") is None
    position.resume()
    assert position.unseen(b"2026-01-01T00:00:00.500000000Z one") is None
    assert position.unseen(b"2026-01-01T00:00:00.500000001Z two") == LogLine(b"2026-01-01T00:00:00.500000001Z", b"two")


def test_a_clock_that_is_set_back_loses_no_lines_of_a_stream_that_goes_on() -> None:
    """Only after a break does the time decide."""
    position = Position()
    assert position.unseen(b"2026-01-01T00:00:09Z late") is not None
    assert position.unseen(b"2026-01-01T00:00:01Z early") is not None


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"2026-01-01T00:00:00Z ", LogLine(b"2026-01-01T00:00:00Z", b"")),
        (b"2026-01-01T00:00:00Z  two spaces", LogLine(b"2026-01-01T00:00:00Z", b" two spaces")),
        (b"unable to retrieve container logs", LogLine(b"", b"unable to retrieve container logs")),
        (b"2026-99-99T00:00:00Z x", LogLine(b"2026-99-99T00:00:00Z", b"x")),
    ],
)
def test_the_time_before_a_line_is_taken_off(raw: bytes, line: LogLine) -> None:
    """Messages of the kubelet itself have none."""
    assert split(raw) == line
    position = Position()
    position.unseen(raw)
    position.resume()
    position.unseen(raw)


def formatter(
    *, terminal: bool = False, colour: bool = False, prefixes: bool = True, stamps: bool = False
) -> LineFormatter:
    return LineFormatter(terminal=terminal, colour=colour, prefixes=prefixes, stamps=stamps)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\tb", "a\tb"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m"),
        ("\x1b]0;title\x07x", "\\x1b]0;title\\x07x"),
        ("\x1b[2Jcleared", "\\x1b[2Jcleared"),
        (" 10% \r 50% \r100%\r", "100%"),
        ("1/2\b\b\b2/2", "2/2"),
        ("right\u202eleft", "right\\u202eleft"),
        ("gr\u00fcn \u6f22", "gr\u00fcn \u6f22"),
    ],
)
def test_on_a_terminal_colours_stay_and_nothing_else_does_anything(text: str, shown: str) -> None:
    assert printable(for_terminal(text, colour=True)) == shown
    assert "\x1b" not in printable(for_terminal(text, colour=False))


def test_a_program_gets_the_bytes_as_they_are() -> None:
    """Broken UTF-8, escapes and all: what reads a pipe knows what it wants."""
    line = LogLine(b"2026-01-01T00:00:00Z", b"\xff\x1b[2J\r")
    assert formatter().shown("worker-0", [line]) == b"worker-0 | \xff\x1b[2J\r\n"
    assert formatter(prefixes=False, stamps=True).shown("worker-0", [line]) == b"2026-01-01T00:00:00Z \xff\x1b[2J\r\n"
    assert (
        formatter(terminal=True, prefixes=False).shown("x", [LogLine(b"", b"\xff!")])
        == "\N{REPLACEMENT CHARACTER}!\n".encode()
    )


def test_on_a_terminal_prefixes_have_one_width_and_each_its_colour() -> None:
    """As docker compose does."""
    shown = formatter(terminal=True, colour=True)
    shown.expect(["ps-0", "worker-10"])
    one, two = (printable(shown.shown(name, [LogLine(b"", b"x")]).decode()[:-1]) for name in ("ps-0", "worker-10"))
    assert one == "\x1b[36mps-0      | \x1b[0mx"
    assert two == "\x1b[33mworker-10 | \x1b[0mx"
    assert formatter(terminal=True).shown("ps-0", [LogLine(b"", b"x")]) == b"ps-0 | x\n"
