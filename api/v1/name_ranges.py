"""Names of replicas as ranges, which are short enough for a message: `mnist-worker-0 .. mnist-worker-9`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

_BETWEEN: Final = " .. "
_AND: Final = ", "


def ranges_of(names: Iterable[str]) -> str:
    """Format replica names, sorted by index, as ranges: `j-worker-0 .. j-worker-63, j-worker-70`."""
    runs: list[list[str]] = []
    for name in names:
        if runs and name == _next(runs[-1][-1]):
            runs[-1].append(name)
        else:
            runs.append([name])
    return _AND.join(run[0] if len(run) == 1 else f"{run[0]}{_BETWEEN}{run[-1]}" for run in runs)


def is_named(name: str, ranges: str) -> bool:
    """Return True if the text that `ranges_of` wrote contains this name, alone or in a range. Accepts any text."""
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
    """Yield up to `most` names from a text that `ranges_of` wrote. Accepts any text."""
    return islice(chain.from_iterable(map(_run, ranges.split(_AND))), most)


def _run(run: str) -> Iterator[str]:
    first, between, last = run.partition(_BETWEEN)
    stem, _, low = first.rpartition("-")
    high = last.removeprefix(f"{stem}-")
    if between and _is_number(low) and _is_number(high):
        return (f"{stem}-{index}" for index in range(int(low), int(high) + 1))
    return iter([first])


def _is_number(text: str) -> bool:
    """Return True if this is an index. The length is limited, since text of unknown origin may have any number of digits."""
    return len(text) < 10 and text.isascii() and text.isdecimal()


def _next(name: str) -> str:
    """Return the name of the next replica."""
    stem, _, index = name.rpartition("-")
    return f"{stem}-{int(index) + 1}"
