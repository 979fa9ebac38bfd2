"""Text of users and servers: cut, cleaned, and without values."""

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.recordings import texts
from fakes.refusals import SECRET, refused_pods
from hack.kubernetes_versions import TESTED
from tfjob_operator.api.text import (
    MAX_BYTES,
    MAX_NAME,
    TAIL_BYTES,
    clean,
    clean_end,
    quoted,
    tail_of,
    without_values,
)

any_text = st.text(st.characters(exclude_categories=()), max_size=200)


def test_ordinary_text_stays_as_it_is() -> None:
    """D5: in any script, with newlines."""
    for text in ("", "spec.x: must be a string", "zwei Zeilen\nund Umlaute: äöü", "日本語　と絵文字 🍵", "back\\slash"):
        assert clean(text) == text


def test_a_long_text_is_cut_and_says_how_much_is_missing() -> None:
    """D5: a refusal that quotes a label of 800 KB must not keep the job's end from being written."""
    cut = clean("x" * 800_000)
    assert len(cut) == MAX_BYTES
    kept = cut.count("x")
    assert cut == "x" * kept + f"... ({800_000 - kept} more characters)"


@settings(deadline=None)
@given(any_text.flatmap(lambda part: st.integers(0, 80).map(lambda times: part * times)), st.integers(60, 300))
def test_every_text_is_cut_at_the_limit_and_told_exactly(text: str, limit: int) -> None:
    """D5: the limit is in bytes of UTF-8; a text that was cut once is not changed by a second time."""
    cut = clean(text, limit)
    assert len(cut.encode()) <= limit
    assert clean(cut, limit) == cut
    assert len(clean_end(text, limit).encode()) <= limit
    if "more characters)" not in text and cut.endswith(" more characters)"):
        kept, missing = cut.removesuffix(" more characters)").rsplit("... (", 1)
        assert clean(text[: len(text) - int(missing)]) == kept


def test_what_can_not_be_seen_is_shown_as_an_escape() -> None:
    """D5: terminals obey ESC, bidirectional controls reorder the text around them, a lone surrogate cannot be encoded."""
    assert clean("\x1b[31mred\x1b[0m \u202eevil\u202c \x00\x7f\x85 \ud800 \U000e0041") == (
        r"\x1b[31mred\x1b[0m \u202eevil\u202c \x00\x7f\x85 \ud800 \U000e0041"
    )
    assert clean("a\tb\r\nc") == "a\\tb\\r\nc"


def test_every_control_character_of_unicode_is_escaped_and_nothing_else() -> None:
    """D5: categories Cc, Cf, Cs, Zl and Zp, but the newline."""
    unseen = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    by_category: dict[str, list[str]] = {}
    for each in map(chr, range(sys.maxunicode + 1)):
        by_category.setdefault(unicodedata.category(each), []).append(each)
    escaped = [each for category in unseen for each in by_category.pop(category) if each != "\n"]
    assert [hex(ord(each)) for each in escaped if clean(each) == each] == []
    del by_category["Cn"]  # a newer Unicode than this Python's may have control characters among these
    for letters in by_category.values():  # together, since there are 150,000
        assert clean("".join(letters), 4 * len(letters)) == "".join(letters)
    assert clean("\n") == "\n"


def test_a_traceback_is_cut_at_its_beginning() -> None:
    """D5: the error itself is in its last line."""
    text = "Traceback\n" + "  a line of code\n" * 500 + "ValueError: no\x1bkettle"
    cut = clean_end(text, 1000)
    assert len(cut) <= 1000
    assert cut.startswith("... ")
    assert cut.endswith("ValueError: no\\x1bkettle")


def test_a_name_is_shown_on_one_line_and_cut() -> None:
    """D1: users choose the keys, and one of a megabyte is possible."""
    assert quoted("a\nb\x1b") == r"a\nb\x1b"
    assert quoted("k" * 100_000) == "k" * MAX_NAME + "..."


def test_last_words_are_the_last_lines_that_say_something() -> None:
    """U8: the end of a log, on one line."""
    assert tail_of("Epoch 1\n\nTraceback:\n   File x\nValueError: shapes differ\n\n") == (
        "Epoch 1 / Traceback: / File x / ValueError: shapes differ"
    )
    many = tail_of("\n".join(f"line {number}" for number in range(1000)))
    assert many.endswith("line 998 / line 999")
    assert TAIL_BYTES - 20 < len(many) <= TAIL_BYTES
    assert tail_of(" \n\t\n") == ""
    native = (
        "F1129 3:36 client.h:80] it died\n*** Check failure stack trace: ***\n    @     0x7fd5c4027236  absl::Flush()"
    )
    assert tail_of(native) == "F1129 3:36 client.h:80] it died"


def test_the_errors_above_the_stack_of_a_crash_are_among_the_last_words() -> None:
    """U8: faulthandler prints all threads, and a list of modules that may have thousands of letters."""
    errors = (
        "E cuda_event.cc:29] Error polling for event status: failed to query event: CUDA_ERROR_ECC_UNCORRECTABLE",
        "F gpu_event_mgr.cc:223] Unexpected Event status: 1",
        "Fatal Python error: Aborted",
    )
    thread = "Thread 0x00007f3be7fff640 (most recent call first):"
    current = f"Current {thread.lower()}"
    library, own = (
        '  File "/usr/lib/site-packages/keras/trainer.py", line 371 in fit',
        '  File "/app/train.py", line 9 in main',
    )
    modules = f"Extension modules: {', '.join(['numpy.core._multiarray_umath'] * 40)} (total: 40)"
    words = tail_of("\n".join((*errors, "", *[thread, "  <no Python frame>"] * 9, current, library, own, "", modules)))
    assert words == " / ".join((*errors, current, own.strip()))


def test_a_long_last_line_is_cut_at_its_end() -> None:
    """U8: an error begins with its type."""
    words = tail_of("before\n" + "ResourceExhaustedError: OOM " + "x" * 5000)
    assert len(words) == TAIL_BYTES
    assert words.startswith("ResourceExhaustedError: OOM xxx")


@settings(deadline=None)
@given(any_text, st.integers(60, 600))
def test_last_words_are_clean_and_short(text: str, limit: int) -> None:
    """U8: whatever a process has written."""
    words = tail_of(text * 9, limit)
    assert len(words.encode()) <= limit
    assert "\n" not in words
    assert clean(words, limit) == words


@pytest.mark.parametrize("version", TESTED)
def test_nothing_that_api_servers_quote_of_a_pod_remains(version: str) -> None:
    """U5: in the messages of an old and a new server about forty refused pods, each with a secret in it."""
    said = texts(version, "refusals")
    assert len(said) > 30
    assert said.keys() <= refused_pods().keys()
    assert sum(SECRET.lower() in each.lower() for each in said.values()) > 10, "the recordings prove nothing"
    for what, message in said.items():
        told = without_values(message)
        assert SECRET.lower() not in told.lower(), what
        assert len(told) > 60, f"{what}: nothing is left"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('a: Invalid value: "x": must be y', "a: Invalid value: must be y"),
        ('[a: Invalid value: "x, b: ]\\"": no, b: Required value]', "[a: Invalid value: no, b: Required value]"),
        ("a: Invalid value: -1: must be at least 0", "a: Invalid value: must be at least 0"),
        ('a: Invalid value: {"k":"v: w","l":[1, 2]}: no', "a: Invalid value: no"),
        ('a: Invalid value: core.Env{Name:"x", Value:"y: z", P:(*int)(0xc0)}: no', "a: Invalid value: no"),
        ('a: Invalid value: core.Env{Value:"never closed: x, y', "a: Invalid value"),
        ('a: Unsupported value: "x": supported values: "A", "B"', 'a: Unsupported value: supported values: "A", "B"'),
        ('a: Not found: "x"', "a: Not found"),
        ('[a: Duplicate value: "x", b: Not found: "y"]', "[a: Duplicate value, b: Not found]"),
        ('pods "j-worker-0" is forbidden: exceeded quota', 'pods "j-worker-0" is forbidden: exceeded quota'),
        ("ReadString: expects, but found 3, error found in #10 byte of ...|s3cret|..., bigger context ...|s3cret|...",
         "ReadString: expects")
    ]
)  # fmt: skip
def test_values_go_and_what_is_wrong_with_them_stays(said: str, told: str) -> None:
    """U5: strings, numbers, and objects in both of Go's notations."""
    assert without_values(said) == told


@settings(deadline=None)
@given(any_text)
def test_no_text_makes_the_removal_of_values_fail(text: str) -> None:
    """U5: a webhook may say anything."""
    for message in (text, f"a: Invalid value: {text}", f'a: Invalid value: "{text}'):
        without_values(message)
