"""The page of all verbs and options, which is made from the code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hack.plugin import reference


def test_the_reference_says_what_the_program_has(check_generated: Callable[[Path, str], None]) -> None:
    """Every verb and every option."""
    check_generated(reference.PAGE, reference.page())
