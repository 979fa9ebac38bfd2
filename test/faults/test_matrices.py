"""A fault is injected at each write of a real operator on a real API server: the result is the same as without."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final

import pytest

from faults.bugs import BUGS
from faults.chosen import chosen, fail_if
from faults.crash import CRASHES, NODE_AHEAD_S
from faults.degraded import DEGRADED
from faults.field import Field, field
from faults.matrix import Matrix, table
from faults.processes import say
from faults.scheme import Scheme
from faults.stale import staleness
from faults.unseen import unseen

SCHEMES: Final[dict[str, Callable[[Field], AbstractAsyncContextManager[Scheme]]]] = {
    "crash matrix": lambda _: nullcontext(CRASHES),
    "degraded server": lambda _: nullcontext(DEGRADED),
    "staleness": staleness,
    "unseen lives": unseen,
}
SAMPLED: Final = frozenset({"degraded server", "staleness"})
"""Matrices of which only a tenth is played even if all cases are selected."""


@asynccontextmanager
async def scheme_of(name: str, folder: Path) -> AsyncIterator[tuple[Field, Scheme]]:
    """Run the cluster of a matrix inside the block."""
    ahead_s = NODE_AHEAD_S if name == "crash matrix" else 0.0
    async with field(folder, node_ahead_s=ahead_s) as it, SCHEMES[name](it) as scheme:
        yield it, scheme


@pytest.mark.parametrize("name", SCHEMES)
def test_it_ends_as_without_a_fault(tmp_path: Path, pytestconfig: pytest.Config, name: str) -> None:
    """Same end, every child made as often, no restart lost or counted twice, events within one.

    EX-10, SI-11: a child that is deleted unseen is made once more, at once. A queued job ends once, and after its pods.
    """

    async def play() -> list[str]:
        async with scheme_of(name, tmp_path) as (it, scheme):
            matrix = await Matrix.of(it, scheme=scheme)
            outcomes = await matrix.play(it, chosen(matrix, name, pytestconfig, sampled=name in SAMPLED))
        say(table(matrix, outcomes))
        return [str(outcome) for outcome in outcomes if outcome.violations]

    fail_if(asyncio.run(play()))


@pytest.mark.parametrize("name", [name for name, bug in BUGS.items() if bug.found_by in SCHEMES])
def test_a_planted_bug_is_found(tmp_path: Path, name: str) -> None:
    """Put into every operator that is started. Of the first tenth, the cases of the workload in which it shows are enough."""
    bug = BUGS[name]

    async def find() -> bool:
        async with scheme_of(bug.found_by, tmp_path) as (it, scheme):
            matrix = await Matrix.of(it, [bug.workload], scheme)
            outcomes = await matrix.play(it, matrix.tenth(0), bug=name, until=bug.words)
        say(f"{name}: played {len(outcomes)} cases")
        return any(bug.words in violation for outcome in outcomes for violation in outcome.violations)

    assert asyncio.run(find())
