"""Tables that map messages of servers and processes to problems. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tfjob_operator.api.text import clean
from tfjob_operator.cli.diagnosis.causes import Problem

_LONGEST: Final = 8192
"""The most characters of a message that are searched."""
_LONGEST_VALUE: Final = 1000
"""The most bytes of a value, before it is shortened for a title: an image name has up to 255."""
MAX_QUOTED: Final = 500
"""The most characters of a message quoted in a title: almost all are shorter, and the deciding words may be the last ones."""
CUT: Final = re.compile(r"\.\.\. \((\d+) more characters\)")
"""What `shorten` and `clean` put in place of the rest of a message."""


@dataclass(frozen=True, slots=True)
class MessageRule:
    """A message pattern for a problem. Its named groups become values of the finding."""

    problem: Problem
    pattern: re.Pattern[str]


def rule(problem: Problem, pattern: str) -> MessageRule:
    """Return a rule; patterns are case-insensitive."""
    return MessageRule(problem, re.compile(pattern, re.IGNORECASE))


def first_match(rules: Iterable[MessageRule], text: str) -> tuple[Problem, dict[str, str]] | None:
    """Return the problem of the first rule that matches, and the values in the text; None if none matches."""
    text = text[:_LONGEST]
    for each in rules:
        match = each.pattern.search(text)
        if match is not None:
            return each.problem, {name: value(text) for name, text in match.groupdict().items() if text}
    return None


def value(text: str) -> str:
    """Return a part of a message as a value, sanitized and on one line."""
    return clean(" ".join(text.split()), _LONGEST_VALUE)


def shorten(text: str, most: int = MAX_QUOTED) -> str:
    """Shorten a message for a title: cut before a word, with the number of characters that are left out."""
    cut = next((match for match in CUT.finditer(text) if match.end() == len(text)), None)
    whole, left_out = (text, 0) if cut is None else (text[: cut.start()], int(cut[1]))
    if len(whole) <= most:
        return text
    kept = whole[: most - 3]
    kept = kept[: kept.rfind(" ") if " " in kept[most // 2 :] else None].rstrip(" ,;:")
    return f"{kept}... ({len(whole) - len(kept) + left_out} more characters)"
