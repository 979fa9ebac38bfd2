"""Running jobs are edited at random on a real API server: each ends like a new job of its spec, or reports why not."""

import asyncio
from pathlib import Path
from random import Random
from typing import Final

import pytest

from faults.bugs import found_by
from faults.field import field
from faults.processes import say
from faults.walks import Outcome, play, table

ALL: Final = 1000
TENTH: Final = ALL // 10
SEED: Final = 1


def walk(folder: Path, count: int, *, seed: int = SEED, bug: str = "") -> list[Outcome]:
    """Play this many walks; with a bug, until one finds it."""

    async def run() -> list[Outcome]:
        async with field(folder) as it:
            return await play(it, range(count), seed=seed, bug=bug)

    return asyncio.run(run())


def test_a_job_that_was_edited_is_as_a_new_one_or_says_why_not(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """U4, U18, D16: after each of five edits of each job, by its children, its conditions and its counters."""
    seed, count = pytestconfig.getoption("walk_seed"), pytestconfig.getoption("walks")
    seed = Random().randrange(10**6) if seed is None else seed
    say(f"\n{count} walks of seed {seed}, again by: make faults WALKS={count} SEED={seed}")
    outcomes = walk(tmp_path, count, seed=seed)
    say(table(outcomes))
    if wrong := [str(outcome) for outcome in outcomes if outcome.violation]:
        pytest.fail("\n".join(wrong), pytrace=False)


@pytest.mark.parametrize("bug", found_by("walks"))
def test_a_bug_is_found_within_a_tenth_of_the_walks(tmp_path: Path, bug: str) -> None:
    """No more are begun when one has found it."""
    outcomes = walk(tmp_path, TENTH, bug=bug)
    say(f"{bug}: {len(outcomes)} walks, {sum(len(each.edits) for each in outcomes)} edits")
    assert any(each.violation for each in outcomes)
