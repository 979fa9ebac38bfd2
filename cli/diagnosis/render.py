"""A diagnosis as plain lines of text, for terminals of any width; the caller adds colour. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from tfjob_operator.cli.diagnosis.causes import Cause, Diagnosis

NARROWEST: Final = 20
"""The least width in columns: on a narrower terminal nothing reads well, and lines are this long."""


def render(diagnosis: Diagnosis, width: int = 80) -> list[str]:
    """Return the lines: how the job stands, then each cause with what was seen and what to do, then what could not be seen.

    Prose is wrapped at `width` columns. A command is never broken, since people copy it: it stands on a line of its own.
    """
    width = max(width, NARROWEST)
    lines = _wrap(diagnosis.standing, width, "", "  ")
    if not diagnosis.causes:
        lines += _wrap("Nothing wrong was found.", width, "", "  ")
    for number, cause in enumerate(diagnosis.causes, 1):
        lines += ["", *_of_cause(cause, number, width)]
    if diagnosis.unseen:
        lines += ["", *_wrap(diagnosis.unseen, width, "", "  ")]
    return lines


def _of_cause(cause: Cause, number: int, width: int) -> Iterator[str]:
    mark = f"{number}. "
    yield from _wrap(f"{cause.title} [{cause.severity}: {cause.id}]", width, mark, " " * len(mark))
    for proof in cause.evidence:
        yield from _wrap(proof, width, "   - ", "     ")
    for line in cause.to_do:
        prose, command, rest = line.partition("kubectl ")
        if prose:
            yield from _wrap(prose, width, "   > ", "     ")
        if command:
            yield f"{'     ' if prose else '   > '}{command}{rest}"


def _wrap(text: str, width: int, first: str, rest: str) -> list[str]:
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    return [line.rstrip() for line in lines] or [first.rstrip()]
