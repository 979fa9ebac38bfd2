"""Tests that this machine cannot run, and what would bring what it lacks. The summary of a run lists them at its end."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

LACKS: Final = "this machine lacks "


def lacks(what: str, remedy: str) -> str:
    """Return the reason to skip a test because of a missing program or permission; `remedy` is what would bring it."""
    return f"{LACKS}{what}: {remedy}"


def summary(reasons: Iterable[str]) -> list[str]:
    """Return one line for each thing that this machine lacks, with the number of tests that were skipped for it."""
    counts = Counter(reason.partition(LACKS)[2] for reason in reasons if LACKS in reason)
    return [f"{count:4}  {lacking}" for lacking, count in counts.most_common()]
