"""An operator is upgraded, rolled back and upgraded again while its jobs run, and the CRD with it.

All cases of a wave share one cluster and its CRD: they wait for each other before each change.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, Self

from faults.crash import CRASHES, AtRest, Outcome
from faults.field import Field
from faults.processes import PATIENT, beside, python, say
from faults.releases import Release
from faults.scheme import Case, writes
from faults.user import LIMIT_S, TICK_S, User, WaitedInVainError
from faults.workloads import WORKLOADS
from hack.fault_proxy.proxy import Proxy
from support.waiting import until
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.core import LEASES
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.controller.options import LEASE_NAME

ROLLED, TERMINATED, KILLED = "rolled", "terminated", "killed"
WAYS: Final = (ROLLED, TERMINATED, KILLED)
"""How a process is replaced: SIGTERM once the next one waits for the lease; SIGTERM before the next one starts; SIGKILL before
the next one starts, which then waits until the lease has expired."""
FIRST, LAST, STAYS, DROPS = "crd-first", "crd-last", "crd-stays", "crd-drops"
ORDERS: Final = (FIRST, LAST, STAYS, DROPS)
"""When the CRD is applied: before the operator, as documented; after it; only once, before the first upgrade; after the
operator, with a previous CRD that prunes unknown fields."""
AFTER: Final = frozenset({LAST, DROPS})
CHANGES: Final = 3
"""Upgrade, rollback, and upgrade again."""
BUGGY_LIMIT_S: Final = 100.0
"""With a planted bug the user may wait in vain."""
OPTIONAL_EVENTS: Final = frozenset({f"Normal {EventReason.POD_TEMPLATE_NOT_APPLIED}"})
"""Events that may be missing, because they depend on what only the newer release records."""
PRUNING_EVENTS: Final = frozenset({f"Warning {EventReason.STATUS_FIELDS_PRUNED}"})
"""Warnings that are correct under a CRD that prunes fields."""
STOPPED_S: Final = 120.0
SETTLE_S: Final = 120.0
BUGGY_SETTLE_S: Final = 10.0


@dataclass(frozen=True)
class Course:
    """A case: the number of writes before each change of version, how processes are replaced, and when the CRD is applied."""

    workload: str
    order: str
    way: str
    terms: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.workload}:{self.order}:{self.way}:{'-'.join(map(str, self.terms))}"

    @classmethod
    def parse(cls, text: str) -> Course:
        workload, order, way, terms = text.split(":")
        return cls(workload, order, way, tuple(map(int, terms.split("-"))))


def courses(writes: Mapping[str, int], order: str, turn: int, dice: Random) -> list[Course]:
    """Return one case per workload. `writes` has their numbers of writes without a fault; `turn` selects the ways."""
    cases = []
    for number, (name, count) in enumerate(writes.items()):
        points = [0, *sorted(dice.sample(range(1, count + 1), CHANGES))]
        terms = tuple(after - point for point, after in pairwise(points))
        cases.append(Course(name, order, WAYS[(turn + number) % len(WAYS)], terms))
    return cases


class Replica:
    def __init__(self, process: asyncio.subprocess.Process, log: Path, release: Release) -> None:
        self.process = process
        self.release = release
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def is_ready(self) -> bool:
        """Whether its caches have synced, so that it waits for the lease or holds it; or whether it has ended."""
        return '"lease_awaited"' in self.log or self.process.returncode is not None

    async def stop(self, way: signal.Signals) -> str:
        """Send a signal and wait for the end. Return the violation, or an empty string."""
        by_itself = self.process.returncode is not None
        if not by_itself:
            self.process.send_signal(way)
        try:
            async with asyncio.timeout(STOPPED_S):
                code = await self.process.wait()
        except TimeoutError:
            self.process.kill()
            return f"{self.release.name} did not end on {way.name}"
        expected = 0 if way is signal.SIGTERM else -way
        if by_itself or code != expected:
            return f"{self.release.name} ended {'by itself' if by_itself else f'on {way.name}'} with {code}"
        return ""


class Deployment:
    """The operator of a namespace, in changing releases. `complaints` lists unexpected ends of processes."""

    def __init__(self, field: Field, namespace: str, proxy: Proxy, flags: Sequence[str]) -> None:
        kubeconfig = proxy.kubeconfig_through(field.folder / f"{namespace}.kubeconfig")
        self._field = field
        self._namespace = namespace
        self._proxy = proxy
        self._flags = (
            f"--kubeconfig={kubeconfig}",
            f"--namespace={namespace}",
            "--monitoring-port=0",
            *PATIENT,
            *flags,
        )
        self._stack = AsyncExitStack()
        self._replicas: list[Replica] = []
        self.complaints: list[str] = []
        self.sent_by_dead = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self, release: Release, *flags: str) -> Replica:
        """Start a process of a release, with flags that other releases may not know."""
        log = self._field.folder / f"{self._namespace}-{len(self._replicas)}.log"
        running = python(*release.program, *self._flags, *flags, log=log, cwd=release.root)
        process = await self._stack.enter_async_context(running)
        self._replicas.append(Replica(process, log, release))
        return self._replicas[-1]

    @property
    def is_ready(self) -> bool:
        return self._replicas[-1].is_ready

    @property
    def leads(self) -> bool:
        """Whether the newest process has the lease."""
        return '"lease_acquired"' in self._replicas[-1].log

    async def leave(self, way: str) -> None:
        """Stop the current process, unless the next one is to start first."""
        if way != ROLLED:
            await self._stop(self._replicas[-1], signal.SIGKILL if way == KILLED else signal.SIGTERM)

    async def come(self, release: Release, way: str, *flags: str) -> None:
        """Start a process of a release; if the previous one still runs, stop that when the new one is ready."""
        new = await self.start(release, *flags)
        if way == ROLLED:
            await until(lambda: new.is_ready, "the new operator is ready", limit_s=LIMIT_S)
            await self._stop(self._replicas[-2], signal.SIGTERM)

    async def _stop(self, replica: Replica, way: signal.Signals) -> None:
        wrong = await replica.stop(way)
        self.complaints += [wrong] if wrong else []
        self.sent_by_dead = len(self._proxy.history)
        if '"lease_released"' not in replica.log:
            # It runs out in a second, and not in the five minutes that keep a busy machine from taking it from anybody.
            soon = {"spec": {"leaseDurationSeconds": 1}}
            with suppress(NotFoundError):
                await self._field.client.patch(LEASES, self._namespace, LEASE_NAME, soon)

    def judge(self) -> list[str]:
        """Return the violations that ends and logs of processes show."""
        ended = [each for each in self._replicas[-1:] if each.process.returncode is not None]
        crashed = [each for each in self._replicas if "Traceback" in each.log]
        return [
            *self.complaints,
            *(f"{each.release.name} has ended by itself" for each in ended),
            *(f"a traceback is in the log of {each.release.name}" for each in crashed),
        ]


class Rollout:
    """The changes of version of one wave. `releases` are the previous and the new one."""

    def __init__(self, field: Field, order: str, releases: tuple[Release, Release], cases: int) -> None:
        self._field = field
        self._order = order
        self._all = asyncio.Barrier(cases)
        self.first, self.second = releases
        self.turns = [(self.second, order not in AFTER), (self.first, order == FIRST), (self.second, order == FIRST)]

    async def begin(self) -> None:
        await asyncio.to_thread(self._apply, self.first)

    async def change(self, number: int, deployment: Deployment, way: str, on_change: Callable[[], object]) -> None:
        """Change the release, and the CRD once all cases have reached this change; then call `on_change`."""
        release, crd_first = self.turns[number]
        await deployment.leave(way)
        if crd_first:
            await self._change_crd(release)
        await deployment.come(release, way)
        on_change()
        if self._order in AFTER:
            await self._change_crd(release)

    async def _change_crd(self, release: Release) -> None:
        if await self._all.wait() == 0:
            await asyncio.to_thread(self._apply, release)
        await self._all.wait()

    def _apply(self, release: Release) -> None:
        drops = self._order == DROPS and release is self.first
        apply_crd(self._field, release.strict_crd(self._field.folder) if drops else release.crd)


def apply_crd(field: Field, crd: Path) -> None:
    field.plane.run_kubectl("apply", "--server-side", "--force-conflicts", "-f", str(crd))
    field.plane.wait_for_crd("tfjobs.kubeflow.org")


async def wave(
    field: Field,
    order: str,
    cases: Sequence[Course],
    releases: tuple[Release, Release],
    references: Mapping[str, Outcome],
) -> list[Outcome]:
    """Run cases concurrently that share one order of CRD and operator; print each violation."""
    rollout = Rollout(field, order, releases, len(cases))
    await rollout.begin()
    async with asyncio.TaskGroup() as tasks:
        playing = [tasks.create_task(_play(field, case, rollout, references[case.workload])) for case in cases]
    return [each.result() for each in playing]


async def _play(field: Field, case: Course, rollout: Rollout, reference: Outcome) -> Outcome:
    workload, outcome, began = WORKLOADS[case.workload], Outcome(Case(case.workload, fault=str(case))), time.monotonic()
    namespace = await field.new_namespace(f"{case.workload}-{case.way}")
    buggy = bool(rollout.second.bug)
    async with (
        Proxy(field.kubeconfig, serving=field.serving) as proxy,
        Deployment(field, namespace, proxy, workload.flags) as deployment,
    ):
        calm = asyncio.Event()
        calm.set()
        user = User(field.sight, namespace, calm=calm, patience_s=BUGGY_LIMIT_S if buggy else LIMIT_S)
        await deployment.start(rollout.first)
        async with beside(_noting(workload.play(user), outcome.violations)) as (playing,):
            for number, term in enumerate(case.terms):
                await _written(proxy, term, playing)
                await until(lambda: deployment.is_ready, "the operator is ready", limit_s=LIMIT_S)
                calm.clear()
                await rollout.change(number, deployment, case.way, calm.set)
            await playing
            if not outcome.violations:
                settle_s = BUGGY_SETTLE_S if buggy else SETTLE_S
                optional = OPTIONAL_EVENTS | (PRUNING_EVENTS if case.order == DROPS else frozenset())
                at_rest = AtRest(field, namespace, proxy, deployment, settle_s, optional, older=True)
                await at_rest.judge(outcome, reference.record, CRASHES)
                outcome.violations += _never_seen(outcome, reference, optional)
        outcome.violations += [*deployment.judge(), *field.census.ends.reverted[namespace]]
        outcome.writes = list(writes(proxy.history))
        outcome.violations += _never_done(outcome, reference)
    outcome.seconds = time.monotonic() - began
    if outcome.violations:
        say(f"  {case}, {outcome.seconds:.1f} s: {'; '.join(outcome.violations)}")
    return outcome


async def _noting(playing: Awaitable[None], violations: list[str]) -> None:
    """Run the user's actions, and record what did not happen in time as a violation."""
    try:
        await playing
    except WaitedInVainError as error:
        violations.append(str(error))


async def _written(proxy: Proxy, count: int, playing: asyncio.Task[None]) -> None:
    """Wait for this number of further writes, or until the user is done."""
    enough = proxy.writes + count
    while proxy.writes < enough and not playing.done():  # noqa: ASYNC110 - the proxy wakes nobody
        await asyncio.sleep(TICK_S)


def _never_seen(outcome: Outcome, reference: Outcome, optional: frozenset[str]) -> Iterator[str]:
    """Yield Warnings whose reasons do not occur without a change of version."""
    assert outcome.record is not None
    assert reference.record is not None
    for reason in sorted(outcome.record.events.keys() - reference.record.events.keys() - optional):
        if reason.startswith("Warning "):
            yield f"a {reason!r} that is true of nothing"
    for reason in OPTIONAL_EVENTS:
        if outcome.record.events[reason] > reference.record.events[reason]:
            yield f"{outcome.record.events[reason]} events {reason!r}, not {reference.record.events[reason]} at most"


def _never_done(outcome: Outcome, reference: Outcome) -> Iterator[str]:
    """Yield writes that occur only with a change of version, such as a patch of a child of the other release."""
    known = {write.what for write in reference.writes}
    known |= {what.replace("patch ", "create ", 1) for what in known}  # the older release creates what this one applies
    for write in sorted({write for write in outcome.writes if write.nth == 1 and write.what not in known}):
        # A delete shows in what is left, and in what is made again. Which of the deletes after an end the garbage collector
        # comes to first is a matter of time.
        if not write.is_of_event and not write.what.startswith("delete "):
            yield f"a write that nobody needs: {write.what}"


def table(cases: Sequence[Course], outcomes: Sequence[Outcome]) -> str:
    lines = ["| CRD | runs | changes of version | violations |", "|---|---|---|---|"]
    for order in ORDERS:
        ours = [outcome for case, outcome in zip(cases, outcomes, strict=True) if case.order == order]
        wrong = sum(bool(outcome.violations) for outcome in ours)
        if ours:
            lines.append(f"| {order} | {len(ours)} | {len(ours) * CHANGES} | {wrong} |")
    return "\n".join(lines)
