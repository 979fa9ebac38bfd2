"""Selects the part of a matrix to run, by options of pytest."""

import subprocess

import pytest

from faults.matrix import Matrix
from faults.processes import ROOT, say
from faults.scheme import Case


def chosen(matrix: Matrix, name: str, config: pytest.Config, *, sampled: bool) -> list[Case]:
    """Return the cases selected by the options: by name, all, or a tenth (default: the commit's tenth).

    Of a `sampled` matrix, only a tenth is played even if all cases are selected.
    """
    # pytest does not know these options if it is given the parent folder.
    if named := config.getoption("case", []):
        return [Case.parse(text) for text in named]
    if config.getoption("whole", False) and not sampled:
        return matrix.cases
    number = tenth_of(config)
    number = tenth_of_the_commit() if number is None else number
    say(f"\n{name}: tenth {number} of 0 to 9, again by: make faults TENTH={number}")
    return matrix.tenth(number)


def tenth_of(config: pytest.Config) -> int | None:
    """Return the number of the tenth selected by the options, or None."""
    asked = config.getoption("tenth", None)
    return tenth_of_the_commit() if asked == "commit" else None if asked is None else int(asked)


def tenth_of_the_commit() -> int:
    """Return a number from 0 to 9 that depends on the commit; 0 without git."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return int(head.strip() or "0", 16) % 10


def fail_if(wrong: list[str]) -> None:
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
