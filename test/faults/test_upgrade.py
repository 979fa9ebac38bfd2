"""A real operator is upgraded from the previous release, rolled back and upgraded again: jobs end the same as without."""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Final

import pytest

from faults.bugs import BUGS, found_by
from faults.chosen import fail_if, tenth_of
from faults.crash import Outcome
from faults.field import Field, field
from faults.matrix import Matrix
from faults.processes import say
from faults.releases import RETRYABLE, Release, present
from faults.upgrade import KILLED, ORDERS, TERMINATED, WAYS, Course, Deployment, apply_crd, courses, table, wave
from faults.user import LIMIT_S, NAME, User
from faults.workloads import QUEUE, WORKLOADS, forever, slow_workers, with_sidecars
from hack.fault_proxy.proxy import Proxy
from integration.cluster import specs, with_policy
from support.waiting import until

KNOWN_BEFORE: Final = [name for name in WORKLOADS if name != "stalled"]
"""The workloads that use no field that the older release lacks."""
WAVES: Final = [(order, turn) for order in ORDERS for turn in range(len(WAYS))]
SYNCED_S: Final = 2.0
"""An operator that has the lease and did not write for this time has synced the job."""
HUNTS: Final = 4
"""In how many waves of one workload a planted bug must be found."""


def test_a_job_whose_operator_is_upgraded_and_rolled_back_ends_as_without_a_fault(
    tmp_path: Path, older: Release, pytestconfig: pytest.Config
) -> None:
    """Each child is created as often, no pod is restarted, and there is no further Warning and no further write."""
    named = [Course.parse(text) for text in pytestconfig.getoption("case", [])]
    seed = pytestconfig.getoption("walk_seed", None)
    seed = Random().randrange(1000) if seed is None else seed
    tenth = tenth_of(pytestconfig)

    async def play() -> list[str]:
        cases: list[Course] = []
        outcomes: list[Outcome] = []
        async with field(tmp_path) as it:
            matrix = await Matrix.of(it, sorted({case.workload for case in named}) or KNOWN_BEFORE)
            for wanted in _waves(matrix, named, seed, tenth):
                cases += wanted
                outcomes += await wave(it, wanted[0].order, wanted, (older, present()), matrix.references)
        say(table(cases, outcomes))
        return [
            f"{case}: {'; '.join(found.violations)}"
            for case, found in zip(cases, outcomes, strict=True)
            if found.violations
        ]

    say(f"\nupgrade from {older.name}, again by: make faults SEED={seed}{'' if tenth is None else f' TENTH={tenth}'}")
    fail_if(asyncio.run(play()))


def _waves(matrix: Matrix, named: Sequence[Course], seed: int, tenth: int | None) -> list[list[Course]]:
    if named:
        by_order = sorted(named, key=lambda case: case.order)
        return [list(cases) for _, cases in groupby(by_order, key=lambda case: case.order)]
    writes = {name: len(outcome.writes) for name, outcome in matrix.references.items()}
    chosen = WAVES if tenth is None else [WAVES[tenth % len(WAVES)]]
    return [courses(writes, order, turn, Random(f"{seed} {order} {turn}")) for order, turn in chosen]


def test_a_restarted_job_goes_on_after_a_roll_back_and_the_next_upgrade(tmp_path: Path, first: Release) -> None:
    """The first release drops attempt and count. That restarts no pod, and the next attempt has a higher number."""

    async def play(it: Field, namespace: str, deployment: Deployment) -> None:
        user = User(it.sight, namespace)

        async def change(release: Release, generation: int) -> None:
            """Let another release write the status of the job after an edit."""
            pods = {name: pod.metadata.uid for name, pod in user.pods.items()}
            await deployment.leave(TERMINATED)
            await deployment.come(release, TERMINATED)
            await user.edit(runPolicy={"backoffLimit": generation})
            await user.until("it is observed", lambda: user.status.get("observedGeneration") == generation)
            assert pods == {name: pod.metadata.uid for name, pod in user.pods.items()}

        await deployment.start(present())
        await until(lambda: deployment.is_ready, "the operator is ready", limit_s=LIMIT_S)
        policy = {"maxRestarts": 1, "rules": [{"action": "RestartAll"}]}
        await user.create(with_policy(specs(Worker=forever(2)), failurePolicy=policy))
        await user.running(2)
        for attempt, replica in ((1, f"{NAME}-worker-1"), (2, f"{NAME}-worker-0")):
            await user.fail(replica, 42)
            await user.running(2)
            assert (user.status["attempt"], user.status["countedRestarts"]) == (attempt, 1)
            if attempt == 1:
                await change(first, 2)
                assert "attempt" not in user.status
                await change(present(), 3)
        await user.finish(2)
        await user.until("it has succeeded", lambda: user.is_true("Succeeded"))
        assert (deployment.judge(), it.census.overlaps[namespace]) == ([], [])

    async def run() -> None:
        async with field(tmp_path) as it, Proxy(it.kubeconfig, serving=it.serving) as proxy:
            namespace = await it.new_namespace("rolled-back")
            async with Deployment(it, namespace, proxy, ()) as deployment:
                await play(it, namespace, deployment)

    asyncio.run(run())


CODES: Final = f"{RETRYABLE}=128-255"
UNKNOWN_FLAG: Final = 2
"""The exit code of an operator that does not know a flag."""


class Retries:
    """A job under ExitCode whose workers exit with codes that only the new release retries."""

    def __init__(self, field: Field, namespace: str, deployment: Deployment) -> None:
        self._namespace = namespace
        self._census = field.census
        self._deployment = deployment
        self._user = User(field.sight, namespace)

    async def play(self, older: Release, *, fails: bool) -> None:
        """Restart workers before a rollback and after the next upgrade; if it `fails`, one exits with 134 in between."""
        user, deployment = self._user, self._deployment
        await deployment.start(present(), CODES)
        await until(lambda: deployment.is_ready, "the operator is ready", limit_s=LIMIT_S)
        await user.create(specs(Worker=forever(2, "ExitCode")))
        await user.running(2)
        await user.fail(f"{NAME}-worker-1", 200)
        await user.running(2)
        assert self._restarts() == {1: 1}
        await deployment.leave(TERMINATED)
        refused = await deployment.start(older, CODES)
        assert await refused.process.wait() == UNKNOWN_FLAG, "the flag has to be removed first"
        await self._change(older)
        assert self._restarts() == {1: 1}
        if fails:
            await user.end(f"{NAME}-worker-0", "0s:134")
            await user.until("it has failed", lambda: user.is_true("Failed"))
            await user.until("the other worker is deleted", lambda: f"{NAME}-worker-1" not in user.pods)
        await deployment.leave(TERMINATED)
        await self._change(present(), CODES)
        if not fails:
            await user.fail(f"{NAME}-worker-0", 134)
            await user.running(2)
            assert self._restarts() == {0: 1, 1: 1}
            await user.finish(2)
        await user.until("it has ended", lambda: user.is_true("Failed" if fails else "Succeeded"))
        made = {f"pods/{NAME}-worker-0": 2 - fails, f"pods/{NAME}-worker-1": 2}
        counted = {name: count for name, count in self._census.made(self._namespace).items() if name in made}
        assert counted == made
        assert deployment.judge() == []

    async def _change(self, release: Release, *flags: str) -> None:
        """Start a release, which restarts no pod."""
        before = {name: pod.metadata.uid for name, pod in self._user.pods.items()}
        await self._deployment.come(release, TERMINATED, *flags)
        await until(lambda: self._deployment.leads, "the operator leads", limit_s=LIMIT_S)
        await asyncio.sleep(SYNCED_S)
        assert before == {name: pod.metadata.uid for name, pod in self._user.pods.items()}

    def _restarts(self) -> dict[int, int]:
        """The restarts of each worker by its index."""
        counted = self._user.status.get("restarts") or ()
        return {
            each.get("index", 0): each.get("carried", 0) + each.get("inPlace", 0) + each.get("replaced", False)
            for each in counted
        }


def test_exit_codes_of_the_new_release_are_retried_before_a_roll_back_and_after_the_next_upgrade(
    tmp_path: Path, older: Release
) -> None:
    """The older release knows neither 134 nor the flag. What it has ended stays ended, and restarts stay counted."""
    if older.knows(RETRYABLE):
        pytest.skip(f"{older.name} retries the same exit codes")

    async def play(it: Field, *, fails: bool) -> None:
        namespace = await it.new_namespace("retries")
        async with (
            Proxy(it.kubeconfig, serving=it.serving) as proxy,
            Deployment(it, namespace, proxy, ()) as deployment,
        ):
            await Retries(it, namespace, deployment).play(older, fails=fails)

    async def run() -> None:
        async with field(tmp_path) as it:
            await asyncio.gather(play(it, fails=True), play(it, fails=False))

    asyncio.run(run())


class Takeover:
    """A queued job whose operator is killed, rolled back and upgraded between the decision about its end and the condition."""

    def __init__(self, field: Field, namespace: str, proxy: Proxy, deployment: Deployment) -> None:
        self._census = field.census
        self._namespace = namespace
        self._proxy = proxy
        self._deployment = deployment
        self._user = User(field.sight, namespace)

    async def play(self, older: Release, *, succeeds: bool) -> None:
        user, deployment = self._user, self._deployment
        await deployment.start(present())
        await until(lambda: deployment.is_ready, "the operator is ready", limit_s=LIMIT_S)
        await user.create(with_sidecars(slow_workers(2)) if succeeds else slow_workers(2), labels=QUEUE)
        await user.running(2)
        if succeeds:
            await user.finish(2)
        else:
            await user.end(f"{NAME}-worker-1", "0s:1")
        await user.until("its end is decided", self._decision)
        decided = self._decision()
        await self._change(present(), KILLED)
        await user.until("pods are being deleted", lambda: len(self._deleted()) == 1 + succeeds)
        assert (self._decision(), self._end()) == (decided, None)
        await self._change(older, TERMINATED)
        await user.until("it has ended", self._end)
        assert self._end() == (decided["type"], decided["reason"])
        await self._quiet()
        version = self._version()
        await self._change(present(), TERMINATED)
        await user.let_end(1 + succeeds)
        await user.until("no pod is being deleted", lambda: not self._deleted())
        await self._quiet()
        assert self._version() == version, user.status
        assert set(self._census.made(self._namespace).values()) == {1}
        assert (deployment.judge(), self._census.ends.reverted[self._namespace]) == ([], [])

    async def _change(self, release: Release, way: str) -> None:
        await self._deployment.leave(way)
        await self._deployment.come(release, way)
        await until(lambda: self._deployment.leads, "the operator leads", limit_s=LIMIT_S)
        await self._quiet()

    async def _quiet(self) -> None:
        """Wait until the operator has not written for a while."""
        writes = -1
        while writes != self._proxy.writes:
            writes = self._proxy.writes
            await asyncio.sleep(SYNCED_S)

    def _decision(self) -> dict[str, str]:
        return (self._user.status.get("begun") or {}).get("ending") or {}

    def _end(self) -> tuple[str, str] | None:
        ends = {each["type"]: each["reason"] for each in self._user.status["conditions"] if each["status"] == "True"}
        return next(((name, ends[name]) for name in ("Succeeded", "Failed") if name in ends), None)

    def _deleted(self) -> list[str]:
        return [name for name, pod in self._user.pods.items() if pod.metadata.deletion_timestamp is not None]

    def _version(self) -> str:
        assert self._user.job is not None
        return self._user.job.metadata.resource_version


@pytest.mark.parametrize("crd", ["first", "undecided"])
def test_an_older_release_that_takes_over_an_ending_job_decides_the_same_end(
    tmp_path: Path, first: Release, undecided: Release, crd: str
) -> None:
    """The CRDs of all releases keep the decision when the operator is killed. The next upgrade writes nothing."""

    async def play(it: Field, *, succeeds: bool) -> None:
        namespace = await it.new_namespace("ending")
        async with (
            Proxy(it.kubeconfig, serving=it.serving) as proxy,
            Deployment(it, namespace, proxy, ()) as deployment,
        ):
            await Takeover(it, namespace, proxy, deployment).play(undecided, succeeds=succeeds)

    async def run() -> None:
        async with field(tmp_path) as it:
            await asyncio.to_thread(apply_crd, it, {"first": first, "undecided": undecided}[crd].crd)
            await asyncio.gather(play(it, succeeds=True), play(it, succeeds=False))

    asyncio.run(run())


@pytest.mark.parametrize("name", found_by("upgrades"))
def test_a_bug_of_the_new_release_is_found(tmp_path: Path, older: Release, name: str) -> None:
    """It is in the new release only. If it needs the features of the new release, that is also the older one."""
    bug = BUGS[name]
    releases = (present() if bug.knows else older, present(name))

    async def hunt(it: Field) -> bool:
        matrix = await Matrix.of(it, [bug.workload])
        writes = {bug.workload: len(matrix.references[bug.workload].writes)}
        for turn in range(HUNTS):
            cases = courses(writes, ORDERS[0], turn, Random(turn))
            found = await wave(it, ORDERS[0], cases, releases, matrix.references)
            if any(bug.words in violation for outcome in found for violation in outcome.violations):
                say(f"{name}: played {turn + 1} cases")
                return True
        return False

    async def play() -> bool:
        async with field(tmp_path) as it:
            return await hunt(it)

    assert asyncio.run(play())
