"""The page of all verbs and options, which is made from the code."""

from __future__ import annotations

from hack.plugin import reference


def test_the_reference_says_what_the_program_has() -> None:
    """Every verb and every option. After a change the page is written anew, by the command that it names."""
    assert reference.PAGE.read_text() == reference.page(), f"write it anew: {reference.COMMAND}"
