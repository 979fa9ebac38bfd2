"""How lines are shown: what a program writes can colour text on the terminal, and nothing else."""

from __future__ import annotations

import pytest

from tfjob_operator.cli.logs.lines import Line, Shower, harmless


def shower(*, terminal: bool = False, colour: bool = False, prefixes: bool = True, stamps: bool = False) -> Shower:
    return Shower(terminal=terminal, colour=colour, prefixes=prefixes, stamps=stamps)


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
    """No title, no cleared screen, no text that runs backwards; of a progress bar its last state."""
    assert harmless(text, colour=True) == shown
    assert "\x1b" not in harmless(text, colour=False)


def test_a_program_gets_the_bytes_as_they_are() -> None:
    """Broken UTF-8, escapes and all: what reads a pipe knows what it wants."""
    line = Line(b"2026-01-01T00:00:00Z", b"\xff\x1b[2J\r")
    assert shower().shown("worker-0", [line]) == b"worker-0 | \xff\x1b[2J\r\n"
    assert shower(prefixes=False, stamps=True).shown("worker-0", [line]) == b"2026-01-01T00:00:00Z \xff\x1b[2J\r\n"
    assert (
        shower(terminal=True, prefixes=False).shown("x", [Line(b"", b"\xff!")])
        == "\N{REPLACEMENT CHARACTER}!\n".encode()
    )


def test_on_a_terminal_prefixes_have_one_width_and_each_its_colour() -> None:
    """As docker compose does."""
    shown = shower(terminal=True, colour=True)
    shown.expect(["ps-0", "worker-10"])
    one, two = (shown.shown(name, [Line(b"", b"x")]) for name in ("ps-0", "worker-10"))
    assert one == b"\x1b[36mps-0      | \x1b[0mx\n"
    assert two == b"\x1b[33mworker-10 | \x1b[0mx\n"
    assert shower(terminal=True).shown("ps-0", [Line(b"", b"x")]) == b"ps-0 | x\n"
