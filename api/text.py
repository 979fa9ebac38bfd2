"""Sanitizes text of users and servers for a status, an event or a log line: truncates, escapes, removes values. Pure.

All such text is sanitized where it enters: in `api.v1.conditions` for conditions, in the recorders for events, in
`controller.observability.log` for log lines, and in `api.client.errors` for messages of API servers. The plugin sanitizes what
it prints (`cli.printing`). So callers cannot forget to sanitize, and sanitizing text again does not change the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

MAX_BYTES: Final = 4096
"""The largest message, in bytes of UTF-8. A status is written with every change of a job, and etcd accepts requests up to
1.5 MB; a long message must not prevent the operator from recording the end of a job."""

EVENT_BYTES: Final = 1024
"""The largest message of an event. events.k8s.io does not accept a longer note; core/v1 does, but up to 10,000 of them are
queued in memory."""

MAX_NAME: Final = 60
"""The most characters of a user-chosen key or name that are shown. DNS labels have 63."""

TAIL_BYTES: Final = 500
"""The most bytes of a process's last output: an error and its location, not a log."""

_CONTROLS: Final = (
    "\x00-\x09\x0b-\x1f\x7f-\x9f"  # C0 except newline, DEL and C1, including the ESC of terminals
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
    "\ud800-\udfff"  # unpaired surrogates, which no encoder accepts
)
"""Unicode categories Cc, Cf, Cs, Zl and Zp except newline: invisible characters, some of which reorder text."""
_UNSAFE: Final = re.compile(f"[{_CONTROLS}]")
_UNSAFE_IN_LINES: Final = re.compile(f"[\n{_CONTROLS}]")
_SHORT: Final = {"\t": r"\t", "\r": r"\r", "\n": r"\n"}


def clean(text: str, limit: int = MAX_BYTES) -> str:
    """Return the text in at most `limit` bytes, control characters escaped; a truncated text ends with how much was cut."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    shown = _escaped(text[:limit])
    if len(text) <= limit and len(shown.encode()) <= limit:
        return shown
    room = limit - len(_more(len(text)))
    kept = bisect_right(range(limit + 1), room, key=lambda count: len(_escaped(text[:count]).encode())) - 1
    return _escaped(text[:kept]) + _more(len(text) - kept)


def clean_end(text: str, limit: int) -> str:
    """Like `clean`, for text whose end matters most, such as a traceback: its beginning is cut off."""
    shown = _escaped(text[-limit:]).encode()
    if len(text) <= limit and len(shown) <= limit:
        return shown.decode()
    mark = "... "
    return mark + shown[len(mark) - limit :].decode(errors="ignore")


def quoted(text: str) -> str:
    """Return a user-chosen key or name in quotes, on one line, with at most `MAX_NAME` characters."""
    return one_line(text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}...")


def one_line(text: str) -> str:
    """Return the text, of any length, with control characters and newlines escaped."""
    return text if text.isprintable() else _UNSAFE_IN_LINES.sub(_escape, text)


_NATIVE_FRAME: Final = re.compile(
    r" +@ +0x[0-9a-f]+ |\*\*\* Check failure stack trace: \*\*\*$|Thread 0x[0-9a-f]+ .*\(most recent call first\):$|"
    r"  <no Python frame>$|  File \"[^\"]*/(?:site|dist)-packages/[^\"]*\", line \d+ in |Extension modules: "
)
"""Lines of the stack traces that absl and faulthandler print below a fatal message, but not the user's code."""


_BETWEEN: Final = " / "


def tail_of(text: str, limit: int = TAIL_BYTES) -> str:
    """Return the last non-empty lines, joined, in at most `limit` bytes; a last line that is longer loses its end.

    Stack frames of native code are left out, and those of libraries below a fatal error of Python.
    """
    words = ""
    for line in reversed(text.splitlines()):
        if _NATIVE_FRAME.match(line):
            continue
        more = clean(" ".join(line.split()), limit)
        joined = f"{more}{_BETWEEN}{words}" if words and more else more or words
        if len(joined.encode()) > limit:
            break
        words = joined
    return words


def in_lines(text: str) -> str:
    """Return a text in lines, also if `tail_of` has joined them."""
    return text if "\n" in text else text.replace(_BETWEEN, "\n")


# Messages of API servers about a rejected field: `spec.x: Invalid value: "hunter2": must be ...`.
_VALUE_FOLLOWS: Final = re.compile(r"\b(Invalid value|Unsupported value|Duplicate value|Not found|Too many): ")
_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|$)'
_PART: Final = re.compile(rf"({_STRING})|([\[({{])|([\])}}])|(?:: |, |$)", re.DOTALL)
# The text around these numbers explains the error.
_NUMBER: Final = re.compile(r"\bcannot unmarshal number \S+ into\b")
_PARSED: Final = re.compile(rf"\b(parsing(?: time)?|cannot parse) {_STRING}(?: as {_STRING})?", re.DOTALL)
_LABEL: Final = re.compile(r"\b(field label not supported): [^,\]]*")
_EXCERPT: Final = re.compile(r"(?:, but found .)?, error found in #\d+ byte of \.\.\..*", re.DOTALL)
"""Servers before 1.22 quote the bytes around a type error, including neighboring values."""


def without_values(text: str) -> str:
    """Return an API server's message about a rejected object without the values in it, which may be secrets.

    Field names, types and supported values are kept. If the end of a value cannot be determined, everything after it is
    removed.
    """
    text = _EXCERPT.sub("", text)
    text = _NUMBER.sub("cannot unmarshal number into", text)
    text = _PARSED.sub(r"\1", text)
    text = _LABEL.sub(r"\1", text)
    kept: list[str] = []
    start = 0
    while match := _VALUE_FOLLOWS.search(text, start):
        kept.append(text[start : match.end(1)])
        start = _end_of_value(text, match.end())
    return "".join(kept) + text[start:]


def _end_of_value(text: str, start: int) -> int:
    """Return where a value printed by Go ends: at the colon before the error, or before the next error."""
    depth = 0
    for part in _PART.finditer(text, start):
        string, opens, closes = part.groups()
        if string is not None:
            continue
        if opens:
            depth += 1
        elif closes and depth > 0:
            depth -= 1
        elif depth == 0:
            return part.start()
    return len(text)


def _escaped(text: str) -> str:
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in _SHORT:
        return _SHORT[match[0]]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _more(characters: int) -> str:
    return f"... ({characters} more characters)"
