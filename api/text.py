"""Text of users and servers on its way into a status, an event or a log line: truncated, escaped, without values. Pure.

All such text passes here where it enters: `api.v1.conditions` for conditions, the recorders for events,
`controller.observability.log` for log lines, `api.client.errors` for what API servers say. So no caller can forget it, and text
that passes two of these places is the same after both.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

MAX_BYTES: Final = 4096
"""Of one message, in UTF-8. A status is written with every change of a job, and etcd takes 1.5 MB in a request: what a
person does not read to its end must not keep a job's end from being written."""

EVENT_BYTES: Final = 1024
"""Of an event's message. events.k8s.io takes no longer note; core/v1 does, but up to 10,000 of them wait in memory."""

MAX_NAME: Final = 60
"""Characters of a key or name of the user's choice that are shown. DNS labels have 63."""

LAST_WORDS_BYTES: Final = 500
"""Of what a process left behind when it ended: an error and where it happened, not a log."""

_CONTROLS: Final = (
    "\x00-\x09\x0b-\x1f\x7f-\x9f"  # C0 but newline, DEL, C1: among them the ESC of terminals
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
    "\ud800-\udfff"  # halves of a pair, which no encoder takes
)
"""Unicode's categories Cc, Cf, Cs, Zl and Zp without the newline: nothing of it is seen, some of it reorders what is."""
_UNSAFE: Final = re.compile(f"[{_CONTROLS}]")
_UNSAFE_IN_NAMES: Final = re.compile(f"[\n{_CONTROLS}]")
_SHORT: Final = {"\t": r"\t", "\r": r"\r", "\n": r"\n"}


def clean(text: str, limit: int = MAX_BYTES) -> str:
    """Return the text in `limit` bytes of UTF-8, control characters but newlines escaped; a cut ends with what is missing."""
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text
    shown = _escaped(text[:limit])
    if len(text) <= limit and len(shown.encode()) <= limit:
        return shown
    room = limit - len(_more(len(text)))
    kept = bisect_right(range(limit + 1), room, key=lambda count: len(_escaped(text[:count]).encode())) - 1
    return _escaped(text[:kept]) + _more(len(text) - kept)


def clean_end(text: str, limit: int) -> str:
    """As `clean`, for text whose end says most, such as a traceback: its beginning is cut off."""
    shown = _escaped(text[-limit:]).encode()
    if len(text) <= limit and len(shown) <= limit:
        return shown.decode()
    mark = "... "
    return mark + shown[len(mark) - limit :].decode(errors="ignore")


def quoted(text: str) -> str:
    """Return a key or name that a user chose in quotes, on one line, with at most `MAX_NAME` of its characters."""
    cut = text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}..."
    return _UNSAFE_IN_NAMES.sub(_escape, cut)


def last_words(text: str, limit: int = LAST_WORDS_BYTES) -> str:
    """Return the last lines that are not empty, joined, in at most `limit` bytes; of a longer last line its beginning."""
    words = ""
    for line in reversed(text.splitlines()):
        more = clean(" ".join(line.split()), limit)
        joined = f"{more} / {words}" if words and more else more or words
        if len(joined.encode()) > limit:
            break
        words = joined
    return words


# What API servers say of a field that they refuse: `spec.x: Invalid value: "hunter2": must be ...`.
_VALUE_FOLLOWS: Final = re.compile(r"\b(Invalid value|Unsupported value|Duplicate value|Not found|Too many): ")
_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|$)'
_PART: Final = re.compile(rf"({_STRING})|([\[({{])|([\])}}])|(?:: |, |$)", re.DOTALL)
# What is wrong is told by what stands around these.
_NUMBER: Final = re.compile(r"\bcannot unmarshal number \S+ into\b")
_PARSED: Final = re.compile(rf"\b(parsing(?: time)?|cannot parse) {_STRING}(?: as {_STRING})?", re.DOTALL)
_LABEL: Final = re.compile(r"\b(field label not supported): [^,\]]*")
_EXCERPT: Final = re.compile(r"(?:, but found .)?, error found in #\d+ byte of \.\.\..*", re.DOTALL)
"""Servers before 1.22 quote the bytes around a mistake of type, and with them what stands beside it."""


def without_values(text: str) -> str:
    """Return an API server's message about an object that it refuses, without the values in it: they may be secrets.

    Names of fields, types, and what is allowed stay. Where the end of a value cannot be told, all that follows goes.
    """
    text = _EXCERPT.sub("", text)
    text = _NUMBER.sub("cannot unmarshal number into", text)
    text = _PARSED.sub(r"\1", text)
    text = _LABEL.sub(r"\1", text)
    kept: list[str] = []
    start = 0
    while found := _VALUE_FOLLOWS.search(text, start):
        kept.append(text[start : found.end(1)])
        start = _end_of_value(text, found.end())
    return "".join(kept) + text[start:]


def _end_of_value(text: str, start: int) -> int:
    """Return where a value ends that Go printed: at the colon before what is wrong with it, or before the next mistake."""
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


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if found[0] in _SHORT:
        return _SHORT[found[0]]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _more(characters: int) -> str:
    return f"... ({characters} more characters)"
