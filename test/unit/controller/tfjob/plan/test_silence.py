"""How long the last line of a log has been the last one, as reads show it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfjob_operator.api.text import one_line
from tfjob_operator.controller.tfjob.plan.silence import MAX_LINE, LastLine, quoted_line

STAMP = b"2026-11-29T19:32:13.123456789Z "
ONE, TWO = STAMP + b"step 1\n", STAMP.replace(b"13.", b"14.") + b"step 1\n"


def lasted(*reads: tuple[bytes | None, float]) -> float | None:
    """The silence after these answers, each with the time of its read; None is a failed read."""
    line = LastLine()
    for answer, at_s in reads:
        if answer is None:
            line.stop()
        else:
            line.read(answer, at_s, at_s)
    return None if line.silence is None else line.silence.lasted_s


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        pytest.param([], None, id="nothing is known before the first read"),
        pytest.param([(None, 0)], None, id="nor after a failed one"),
        pytest.param([(ONE, 5)], 0, id="a silence begins with the first read, whatever the stamp says"),
        pytest.param([(ONE, 5), (ONE, 20), (ONE, 65)], 60, id="and lasts while the line is the same"),
        pytest.param([(ONE, 5), (ONE, 20), (TWO, 65)], 0, id="a line with the same text and another stamp is new"),
        pytest.param([(b"", 5), (b"", 65)], 60, id="an empty log counts from our first sight"),
        pytest.param([(b"", 5), (ONE, 65)], 0, id="a first line is new"),
        pytest.param([(ONE, 5), (b"", 35), (b"", 65)], 30, id="a rotated log counts once as a new line"),
        pytest.param([(ONE, 5), (b"", 35), (ONE, 65)], 0, id="and so does what follows"),
        pytest.param([(ONE, 5), (None, 20), (ONE, 65)], 0, id="the time around a failed read does not count"),
        pytest.param([(ONE, 0), (ONE, 10), (None, 20), (None, 30), (ONE, 50), (ONE, 70)], 30, id="the rest does"),
        pytest.param([(ONE, 0), (ONE, 10), (None, 900)], 10, id="a failed read changes nothing that was known"),
        pytest.param([(ONE, 0), (None, 10), (TWO, 20), (TWO, 30)], 10, id="a new line ends a pause"),
    ],
)
def test_a_silence_lasts_between_reads_that_returned_the_same_line(
    reads: list[tuple[bytes | None, float]], expected: float | None
) -> None:
    assert lasted(*reads) == expected


def test_a_slow_read_shows_the_log_at_any_time_between_its_start_and_its_end() -> None:
    """So a silence lasts from the end of the first read to the start of the last one."""
    line = LastLine()
    line.read(ONE, 0, 8)
    line.read(ONE, 20, 29)
    assert line.silence is not None
    assert line.silence.lasted_s == 12
    line.stop()
    line.read(ONE, 40, 45)
    line.read(ONE, 60, 61)
    assert line.silence.lasted_s == 12 + 15


def test_a_line_is_known_to_be_new_once_another_was_seen() -> None:
    """The first line that a new leader reads may be the one that its predecessor has read for hours."""
    line = LastLine()
    seen = []
    for answer in (ONE, ONE, TWO, TWO):
        line.read(answer, 0, 0)
        assert line.silence is not None
        seen.append(line.silence.changed)
    assert seen == [False, False, True, True]


@dataclass
class Program:
    """A program and its log. `wrote_s` is when it wrote its last line, or started."""

    wrote_s: float = 0.0
    lines: int = 0
    log: bytes = b""
    was_read: bool = False
    line: LastLine = field(default_factory=LastLine)

    def do(self, act: str, now: float, duration_s: float) -> None:
        if act == "write":
            self.wrote_s, self.lines = now, self.lines + 1
            self.log, self.was_read = b"2026-11-29T19:32:13.%09dZ the same\n" % self.lines, False
        elif act == "rotate":
            self.log = b"" if self.was_read else self.log
        elif act in {"read early", "read late"}:
            started = now if act == "read early" else now - duration_s
            self.line.read(self.log, started, started + duration_s)
            self.was_read = True
        else:
            self.line.stop()


ACTS = st.sampled_from(["write", "rotate", "read early", "read early", "read late", "read late", "fail"])


@given(st.lists(st.tuples(ACTS, st.integers(7, 30), st.integers(0, 3)), max_size=40))
def test_no_sequence_of_writes_rotations_and_failures_shows_a_silence_that_was_not(
    acts: list[tuple[str, int, int]],
) -> None:
    """The log is read at an unknown time of each read. No read overlaps another one.

    A log is rotated after 10 MiB. That an empty log is filled and rotated between two reads is left out.
    """
    program, now, counts = Program(), 0.0, 0.0
    for act, wait_s, duration_s in acts:
        now += wait_s
        program.do(act, now, duration_s)
        silence = program.line.silence
        if act.startswith("read"):
            assert silence is not None
            assert 0 <= silence.lasted_s <= now - program.wrote_s
        if silence is not None and act == "fail":
            assert silence.lasted_s <= counts
        counts = silence.lasted_s if silence is not None else 0.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ONE, "step 1"),
        (b"", ""),
        (STAMP + b"\n", ""),
        (b"no stamp at all\n", "no stamp at all"),
        (STAMP + b"10%\r20%\x1b[31m\xff\x00\n", r"10%\r20%\x1b[31m" + "\ufffd" + r"\x00"),
        (STAMP + "\u202eevil\u2028line".encode(), r"\u202eevil\u2028line"),
        (b"one\ntwo\n", r"one\ntwo"),
    ],
)
def test_a_line_is_quoted_without_its_stamp_and_with_control_characters_escaped(answer: bytes, expected: str) -> None:
    assert quoted_line(answer) == expected


@given(st.binary(max_size=5000))
def test_a_quoted_line_is_short_and_has_no_control_characters(answer: bytes) -> None:
    found = quoted_line(answer)
    assert len(found.encode()) <= MAX_LINE
    assert found == one_line(found)


def test_a_line_that_must_not_be_quoted_is_not_kept() -> None:
    line = LastLine()
    line.read(ONE, 0, 0, quotes=False)
    assert line.silence is not None
    assert line.silence.line == ""
    assert "step" not in repr(line)
