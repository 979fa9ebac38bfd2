"""A matrix: every fault of a scheme at every write of every workload."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Final

from faults.crash import CRASHES, Outcome, run
from faults.field import Field
from faults.processes import say
from faults.scheme import Case, Scheme, Write
from faults.workloads import WORKLOADS

TENTHS: Final = 10


class NoReferenceError(Exception):
    """A workload fails even without a fault."""


@dataclass
class Matrix:
    """The workloads' results without a fault, and the cases that follow from the writes of these runs."""

    references: dict[str, Outcome]
    scheme: Scheme = CRASHES
    cases: list[Case] = attribute(init=False)

    def __post_init__(self) -> None:
        self.cases = [case for number in range(TENTHS) for case in self.tenth(number)]

    @classmethod
    async def of(cls, field: Field, workloads: Iterable[str] = WORKLOADS, scheme: Scheme = CRASHES) -> Matrix:
        """Play every workload without a fault. Raises NoReferenceError."""
        outcomes = await cls({}).play(field, [Case(name) for name in workloads])
        if wrong := [str(outcome) for outcome in outcomes if outcome.violations]:
            raise NoReferenceError("\n".join(wrong))
        return cls({outcome.case.workload: outcome for outcome in outcomes}, scheme)

    def tenth(self, number: int) -> list[Case]:
        """Return a tenth of the cases, every tenth one of each workload; `number` is from 0 to 9.

        They are dealt in order of severity, so that each tenth has every kind of write, and the first one starts with a kill
        after a delete.
        """
        return [
            case
            for name, outcome in self.references.items()
            for case in list(filter(self.scheme.applies, in_order(name, outcome.writes, self.scheme.faults)))[
                number::TENTHS
            ]
        ]

    async def play(self, field: Field, cases: Sequence[Case], *, bug: str = "", until: str = "") -> list[Outcome]:
        """Play cases, some of them concurrently, and print each violation; start no more after one with these words."""
        left = iter(cases)
        outcomes: list[Outcome] = []

        async def lane() -> None:
            for case in left:
                if until and any(until in violation for outcome in outcomes for violation in outcome.violations):
                    return
                reference = self.references.get(case.workload)
                right = reference.record if reference is not None else None
                outcome = await run(field, case, self.scheme, right, bug=bug)
                outcomes.append(outcome)
                if outcome.violations:
                    say(f"  {outcome}, {outcome.seconds:.1f} s")
                elif len(outcomes) % 50 == 0:
                    say(f"  {len(outcomes)} of {len(cases)} cases")

        async with asyncio.TaskGroup() as lanes:
            for _ in range(self.scheme.lanes):
                lanes.create_task(lane())
        return outcomes


def in_order(workload: str, written: Sequence[Write], faults: Iterable[str]) -> list[Case]:
    """Return all cases of a workload, most severe first."""
    cases = [(write, Case(workload, write, fault)) for fault in faults for write in written]
    # The sort is stable: writes of one kind and fault keep their order.
    return [case for _, case in sorted(cases, key=lambda each: (each[0].rank, each[0].kind))]


def table(matrix: Matrix, outcomes: Sequence[Outcome]) -> str:
    lines = ["| workload | writes | cases | faults injected | violations |", "|---|---|---|---|---|"]
    for name, reference in matrix.references.items():
        ours = [outcome for outcome in outcomes if outcome.case.workload == name]
        wrong = sum(bool(outcome.violations) for outcome in ours)
        injected = sum(outcome.injected for outcome in ours)
        lines.append(f"| {name} | {len(reference.writes)} | {len(ours)} | {injected} | {wrong} |")
    faults = Counter(outcome.case.fault for outcome in outcomes if outcome.injected)
    told = ", ".join(f"{count} {fault}" for fault, count in sorted(faults.items()))
    wrong = sum(bool(outcome.violations) for outcome in outcomes)
    return "\n".join([*lines, f"{len(outcomes)} runs; faults injected: {told or 'none'}; violations: {wrong}"])
