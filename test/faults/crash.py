"""The crash matrix: kills of the operator and lost responses, at each write of a workload, beside clocks that are wrong.

The node's clock is ahead. A killed operator and its successors are on machines whose clocks differ by one or two hours.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from random import Random
from typing import Final, Protocol

from faults.field import Field
from faults.operator_process import OperatorProcess
from faults.processes import beside
from faults.record import Record, differences, forgotten, take
from faults.scheme import Case, Nth, Play, Scheme, Write, nothing, writes
from faults.user import User, WaitedInVainError
from faults.workloads import WORKLOADS
from hack.fault_proxy.proxy import Action, Proxy, kill_after, kill_before, lose_reply

BEFORE, AFTER, LOST = "before", "after", "lost"
FAULTS: Final = (AFTER, BEFORE, LOST)
"""Killed after the server executed the write; killed before the server got it; response lost, without a kill."""
WRONG_S: Final = (-3600.0, 0.0, 3600.0)
NODE_AHEAD_S: Final = 2700.0
"""Less than the grace period of `slow_workers`: kubelets compare its end, a time of the API server, with their own clock."""
LANES: Final = 10
"""The number of concurrent cases. They mostly wait; more of them would overload two cores."""
QUIET_S: Final = 0.5
"""An operator without writes for this time, and without new input, is idle."""
SETTLE_S: Final = 120.0
"""The limit for reaching the final state: an event with a lost response is retried after up to ten seconds, before others."""
BUGGY_SETTLE_S: Final = 10.0
"""The limit with a planted bug, where violations do not disappear."""
BUGGY_PATIENCE_S: Final = 100.0
"""How long a user waits for an operator with a planted bug. No fault lasts a fifth of this."""


@dataclass
class Outcome:
    case: Case
    record: Record | None = None
    writes: list[Write] = attribute(default_factory=list)
    violations: list[str] = attribute(default_factory=list)
    seconds: float = 0.0

    @property
    def injected(self) -> bool:
        return self.case.write in self.writes

    def __str__(self) -> str:
        missing = "" if self.injected else " (there was no such write)"
        return f"{self.case}{missing}: {'; '.join(self.violations) or 'as without a fault'}"


@asynccontextmanager
async def _arrange(play: Play) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    kill = play.operator.kill
    actions: dict[str, Action] = {BEFORE: kill_before(kill), AFTER: kill_after(kill), LOST: lose_reply}
    assert play.case.write is not None
    play.proxy.rule(Nth(play.case.write), actions[play.case.fault])
    yield nothing


def clocks(case: Case) -> Iterable[float]:
    """Return how far ahead the clock of each process is: consecutive ones differ. Without a fault, all are right."""
    return itertools.cycle(Random(str(case)).sample(WRONG_S, len(WRONG_S))) if case.write is not None else ()


CRASHES: Final = Scheme(FAULTS, _arrange, LANES, clocks=clocks)


async def run(
    field: Field, case: Case, scheme: Scheme = CRASHES, right: Record | None = None, *, bug: str = ""
) -> Outcome:
    """Play a case in its own namespace. `right` is the record without a fault; None to record it."""
    workload, outcome, began = WORKLOADS[case.workload], Outcome(case), time.monotonic()
    namespace = await field.new_namespace(case.workload)
    async with Proxy(field.kubeconfig, serving=field.serving) as proxy:
        kubeconfig = proxy.kubeconfig_through(field.folder / f"{namespace}.kubeconfig")
        operator = OperatorProcess(
            field,
            namespace,
            kubeconfig,
            history=proxy.history,
            flags=workload.flags,
            bug=bug,
            clocks=scheme.clocks(case),
        )
        play = Play(case, proxy, operator, namespace)
        async with AsyncExitStack() as stack:
            over: Callable[[], Awaitable[None]] = nothing
            if case.write is not None:
                over = await stack.enter_async_context(scheme.arrange(play))
            await stack.enter_async_context(beside(operator.run()))
            patience_s = min(scheme.patience_s, BUGGY_PATIENCE_S) if bug else scheme.patience_s
            try:
                await workload.play(User(field.sight, namespace, calm=play.calm, patience_s=patience_s))
                await over()
                at_rest = AtRest(field, namespace, proxy, operator, BUGGY_SETTLE_S if bug else SETTLE_S)
                await at_rest.judge(outcome, right, scheme)
            except WaitedInVainError as error:
                outcome.violations.append(str(error))
        census = field.census
        outcome.violations += [*operator.judge(), *census.overlaps[namespace], *census.ends.reverted[namespace]]
        outcome.writes = list(writes(proxy.history))
    outcome.seconds = time.monotonic() - began
    return outcome


class Mortal(Protocol):
    """An operator whose processes are killed. `sent_by_dead`: how many requests had arrived when the last one was gone."""

    sent_by_dead: int


@dataclass(frozen=True)
class AtRest:
    """Waits for the final state, at most `limit_s` seconds."""

    field: Field
    namespace: str
    proxy: Proxy
    operator: Mortal
    limit_s: float
    optional: frozenset[str] = frozenset()
    """Events that may be missing, in addition to the workload's."""
    older: bool = False
    """A release that does not record decisions may have ended the job."""

    async def judge(self, outcome: Outcome, right: Record | None, scheme: Scheme) -> None:
        """Record the final state; note its differences."""
        workload = WORKLOADS[outcome.case.workload]
        workload = replace(workload, optional=workload.optional | self.optional)
        deadline = time.monotonic() + self.limit_s
        while True:
            await self._quiet()
            outcome.record = await take(self.field, self.namespace)
            lost = forgotten(self.proxy.history[: self.operator.sent_by_dead])
            wanted = scheme.right_for(outcome.case, right or outcome.record, outcome.record)
            early = self.field.census.ends.early(self.namespace, older=self.older)
            outcome.violations = [*differences(outcome.record, wanted, workload, lost), *early]
            if not outcome.violations or time.monotonic() > deadline:
                return
            await asyncio.sleep(QUIET_S)

    async def _quiet(self) -> None:
        writes = -1
        while writes != self.proxy.writes:
            writes = self.proxy.writes
            await asyncio.sleep(QUIET_S)
