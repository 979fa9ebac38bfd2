"""Tables of messages: which trouble a message of a server or of a process stands for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tfjob_operator.api.text import clean
from tfjob_operator.cli.diagnosis.causes import Trouble

_LONGEST: Final = 8192
"""How many characters of a message are searched."""
_LONGEST_VALUE: Final = 300
"""Bytes of a value that a title quotes: the name of an image has 255."""
_MOST_WORDS: Final = 160
"""Characters of a message that a title quotes."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern of messages that stand for a trouble. Its named groups are values of the finding."""

    trouble: Trouble
    pattern: re.Pattern[str]


def rule(trouble: Trouble, pattern: str) -> Rule:
    """Return a rule; letter case does not matter."""
    return Rule(trouble, re.compile(pattern, re.IGNORECASE))


def first_match(rules: Iterable[Rule], text: str) -> tuple[Trouble, dict[str, str]] | None:
    """Return the trouble of the first rule that the text matches, and the values in it; None if none matches."""
    text = text[:_LONGEST]
    for each in rules:
        found = each.pattern.search(text)
        if found is not None:
            return each.trouble, {name: value(text) for name, text in found.groupdict().items() if text}
    return None


def value(text: str) -> str:
    """Return a part of a message as a value, cleaned and on one line."""
    return clean(" ".join(text.split()), _LONGEST_VALUE)


def short(text: str, most: int = _MOST_WORDS) -> str:
    """Return a message for a title: cut before a word, with an ellipsis, if it is longer."""
    if len(text) <= most:
        return text
    kept = text[: most - 3]
    return f"{kept[: kept.rfind(' ') if ' ' in kept[most // 2 :] else None].rstrip(' ,;:')}..."
