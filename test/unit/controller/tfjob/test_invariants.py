"""Each invariant of the reads and writes is stated once, in the docstring of the module that keeps it; tests quote it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[4]
ROOMS: Final = ("jobs", "tfjob")
_QUOTE: Final = re.compile(r'^    Invariant: "([^"]+)"$', re.MULTILINE)


def stated() -> dict[str, str]:
    """Each invariant, up to its first full stop, colon or bracket, with the module that states it."""
    found: dict[str, str] = {}
    for path in sorted(path for room in ROOMS for path in (ROOT / "controller" / room).rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        _, _, bullets = text.partition("Invariants:\n\n- ")
        for bullet in filter(None, bullets.split("\n- ")):
            sentence = re.split(r"[.:] |[.:]$| \(", " ".join(bullet.split()))[0]
            assert sentence not in found, f"{path.name} and {found[sentence]} both state: {sentence}"
            found[sentence] = path.name
    return found


def quoted() -> set[str]:
    """What the tests of these modules quote."""
    texts = (path.read_text() for room in ROOMS for path in (Path(__file__).parents[1] / room).rglob("test_*.py"))
    return {sentence for text in texts for sentence in _QUOTE.findall(text)}


def test_each_invariant_is_stated_once_and_quoted_by_tests() -> None:
    """One that is quoted and not stated was reworded in one place only; one that is stated and not quoted has no test."""
    invariants = stated()
    assert len(invariants) > 10
    assert quoted() == set(invariants)
