"""Names that users may rely on, and how a text lists many of them. Pure."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BETWEEN: Final = " .. "
_AND: Final = ", "


def child_name(job: str, replica_type: str, index: int) -> str:
    """Return the name of a replica's pod and of its service."""
    return f"{job}-{replica_type.lower()}-{index}"


def ranges_of(names: Iterable[str]) -> str:
    """Return names of replicas, given in the order of their indices, as a text: `j-worker-0 .. j-worker-63, j-worker-70`."""
    runs: list[list[str]] = []
    for name in names:
        if runs and name == _next(runs[-1][-1]):
            runs[-1].append(name)
        else:
            runs.append([name])
    return _AND.join(run[0] if len(run) == 1 else f"{run[0]}{_BETWEEN}{run[-1]}" for run in runs)


def is_named(name: str, ranges: str) -> bool:
    """Return whether `ranges_of` wrote this name into a text, alone or in a range. Any text will do."""
    stem, _, index = name.rpartition("-")
    for run in ranges.split(_AND):
        first, between, last = run.partition(_BETWEEN)
        if name in (first, last):
            return True
        low, high = first.removeprefix(f"{stem}-"), last.removeprefix(f"{stem}-")
        if between and all(map(_is_number, (low, index, high))) and int(low) < int(index) < int(high):
            return True
    return False


def names_in(ranges: str, most: int) -> Iterator[str]:
    """Yield the names that `ranges_of` wrote into a text, `most` of them at most. Any text will do."""
    return islice(chain.from_iterable(map(_run, ranges.split(_AND))), most)


def _run(run: str) -> Iterator[str]:
    first, between, last = run.partition(_BETWEEN)
    stem, _, low = first.rpartition("-")
    high = last.removeprefix(f"{stem}-")
    if between and _is_number(low) and _is_number(high):
        return (f"{stem}-{index}" for index in range(int(low), int(high) + 1))
    return iter([first])


def _is_number(text: str) -> bool:
    """Return whether this is an index, which has few digits: text of unknown origin may have any number."""
    return len(text) < 10 and text.isascii() and text.isdecimal()


def _next(name: str) -> str:
    """Return the name of the replica after this one."""
    stem, _, index = name.rpartition("-")
    return f"{stem}-{int(index) + 1}"
