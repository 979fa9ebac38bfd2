"""Each invariant of the reads and writes is stated once, in the docstring of the module that keeps it; tests quote it."""

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[4]
ROOMS: Final = ("jobs", "tfjob")
_QUOTE: Final = re.compile(r'^    Invariant: "([^"]+)"$', re.MULTILINE)


def stated() -> list[str]:
    """Each invariant, up to its first full stop, colon or bracket."""
    paths = (path for room in ROOMS for path in (ROOT / "controller" / room).rglob("*.py"))
    texts = (ast.get_docstring(ast.parse(path.read_text())) or "" for path in paths)
    bullets = (bullet for text in texts for bullet in text.partition("Invariants:\n\n- ")[2].split("\n- ") if bullet)
    return [re.split(r"[.:] |[.:]$| \(", " ".join(bullet.split()))[0] for bullet in bullets]


def test_each_invariant_is_stated_once_and_quoted_by_tests() -> None:
    """One that is quoted and not stated was reworded in one place only; one that is stated and not quoted has no test."""
    tests = (path for room in ROOMS for path in (Path(__file__).parents[1] / room).rglob("test_*.py"))
    assert len(stated()) > 10
    assert sorted(stated()) == sorted({sentence for path in tests for sentence in _QUOTE.findall(path.read_text())})
