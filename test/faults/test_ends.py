"""Jobs in every state of an end: their operator is upgraded from 0.2.0, rolled back and upgraded again."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from faults.field import Field, field
from faults.releases import Release, present
from faults.upgrade import FIRST, LAST, TERMINATED, Deployment, Rollout
from faults.user import LIMIT_S, NAME, User
from faults.workloads import FOREVER, QUEUE, forever, slow_workers, with_sidecars
from hack.fault_proxy.proxy import Proxy
from integration.cluster import replica, specs, with_policy
from support.waiting import until

SYNCED_S: Final = 2.0
"""An operator that has the lease and did not write for this time has synced the job."""
ZERO, ONE = f"{NAME}-worker-0", f"{NAME}-worker-1"
RULE: Final = {"failurePolicy": {"maxRestarts": 1, "rules": [{"action": "RestartAll"}]}}


class State(NamedTuple):
    """A state of an end under this release: how a running job enters it, and what holds after the roll-back.

    `made`: how often the pods of the workers 0 and 1 are created in all. `resume` brings the job to its end afterwards.
    `decided_again`: the older release drops the decision, and does not write the end.
    """

    spec: dict[str, Any]
    enter: Callable[[User], Awaitable[None]]
    holds: Callable[[User], object]
    made: tuple[int, ...]
    labels: Mapping[str, str] = {}
    resume: Callable[[User], Awaitable[None]] | None = None
    decided_again: bool = False


def kept(spec: dict[str, Any], **policy: Any) -> dict[str, Any]:
    """Return the spec with sidecars that never end, and a grace period that lasts longer than the test."""
    return with_policy(with_sidecars(spec), completionGracePeriodSeconds=3600, **policy)


def decision(user: User) -> object:
    return (user.status.get("begun") or {}).get("ending")


def deleted(user: User) -> list[str]:
    return sorted(name for name, pod in user.pods.items() if pod.metadata.deletion_timestamp is not None)


def restarted(user: User) -> bool:
    return sum(bool(each.get("replaced")) for each in user.status.get("restarts") or ()) == 1


def suspended(user: User) -> bool:
    return user.is_true("Suspended")


def run_again(user: User) -> bool:
    """Whether two pods run that are not being deleted."""
    return [pod.status.get("phase") for pod in user.pods.values() if pod.metadata.deletion_timestamp is None] == 2 * [
        "Running"
    ]


async def fail_queued(user: User) -> None:
    await user.end(ONE, "0s:1")
    await user.until("the other worker is being deleted", lambda: decision(user) and deleted(user) == [ZERO])


async def succeed_queued(user: User) -> None:
    await user.end(ZERO)
    await user.until("its end is decided", lambda: decision(user))


async def preempt(user: User) -> None:
    await succeed_queued(user)
    await user.edit(runPolicy={"suspend": True})
    await user.until("the grace period is over", lambda: deleted(user) == [ONE])


async def preempt_failed(user: User) -> None:
    await fail_queued(user)
    await user.edit(runPolicy={"suspend": True})


async def succeed(user: User) -> None:
    await user.end(ZERO)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


async def restart_one(user: User) -> None:
    await user.end(ONE, "0s:137")
    await user.until("a restart is counted", lambda: restarted(user))


async def restart_all(user: User) -> None:
    await user.end(ONE, "0s:1")
    await user.until("the other worker is gone", lambda: user.status.get("attempt") == 1 and ZERO not in user.pods)


async def end_slowly(user: User) -> None:
    await user.let_end(1, heed=True)
    await user.until("no pod is being deleted", lambda: not deleted(user))


async def resume(user: User) -> None:
    await end_slowly(user)
    await user.edit(runPolicy={"suspend": False})
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


async def run_once_more(user: User) -> None:
    await end_slowly(user)
    await user.edit(runPolicy={"suspend": False})
    await user.running(2)
    await finish(user)


async def finish(user: User) -> None:
    await user.finish(2)
    await user.until("it has succeeded", lambda: user.is_true("Succeeded"))


STATES: Final = {
    "ending": State(slow_workers(2), fail_queued, lambda user: user.is_true("Failed"), (1, 1), QUEUE, end_slowly),
    "ending in a grace period": State(
        kept(specs(Worker=forever(1))),
        succeed_queued,
        lambda user: user.is_true("Succeeded") and not user.pods,
        (1,),
        QUEUE,
    ),
    "ending and suspended": State(slow_workers(2), preempt, suspended, (1, 1), QUEUE, resume, decided_again=True),
    "failing and suspended": State(
        slow_workers(2), preempt_failed, suspended, (2, 2), QUEUE, run_once_more, decided_again=True
    ),
    "succeeded": State(
        kept(specs(Worker=forever(1))), succeed, lambda user: user.is_true("Succeeded") and not user.pods, (1,)
    ),
    "restarting one": State(
        kept(specs(Worker=replica(2, "ExitCode", FOREVER))), restart_one, run_again, (1, 2), resume=finish
    ),
    "restarting all": State(kept(specs(Worker=forever(2)), **RULE), restart_all, run_again, (2, 2), resume=finish),
}


class Play:
    """One job, whose operator changes its release together with those of the others."""

    def __init__(self, it: Field, namespace: str, proxy: Proxy, deployment: Deployment, rollout: Rollout) -> None:
        self._census = it.census
        self._namespace = namespace
        self._proxy = proxy
        self._deployment = deployment
        self._rollout = rollout
        self._user = User(it.sight, namespace)

    async def play(self, state: State) -> None:
        user, size = self._user, len(state.made)
        await self._deployment.start(self._rollout.first)
        await until(lambda: self._deployment.is_ready, "the operator is ready", limit_s=LIMIT_S)
        await user.create(state.spec, labels=state.labels)
        await user.running(size)
        await self._change(0)
        assert {*user.pods} == {ZERO, ONE} if size == 2 else {ZERO}
        await state.enter(user)
        await self._change(1)
        await user.until("the roll-back is as documented", lambda: state.holds(user))
        await self._quiet()
        ended = user.is_true("Succeeded") or user.is_true("Failed")
        version = self._version()
        await self._change(2)
        assert state.holds(user), user.status
        assert not ended or self._version() == version, user.status
        if state.resume is not None:
            await state.resume(user)
        await self._quiet()
        made = self._census.made(self._namespace)
        assert tuple(made[f"pods/{name}"] for name in (ZERO, ONE)[:size]) == state.made
        assert self._deployment.judge() == []
        assert bool(self._census.ends.reverted[self._namespace]) == state.decided_again

    async def _change(self, number: int) -> None:
        await self._rollout.change(number, self._deployment, TERMINATED, lambda: None)
        await until(lambda: self._deployment.leads, "the operator leads", limit_s=LIMIT_S)
        await self._quiet()

    async def _quiet(self) -> None:
        """Wait until the operator has not written for a while."""
        writes = -1
        while writes != self._proxy.writes:
            writes = self._proxy.writes
            await asyncio.sleep(SYNCED_S)

    def _version(self) -> str:
        assert self._user.job is not None
        return self._user.job.metadata.resource_version


@pytest.mark.parametrize("order", [FIRST, LAST])
def test_jobs_in_every_state_of_an_end_survive_a_roll_back_and_the_next_upgrade(
    tmp_path: Path, undecided: Release, order: str
) -> None:
    """As operations.md says: Ending jobs finish unless they are suspended, and pods whose sidecars work go at once.

    No replica runs again but those of a job that had failed and was suspended.
    """

    async def play(it: Field, rollout: Rollout, state: State) -> None:
        namespace = await it.new_namespace("ends")
        async with (
            Proxy(it.kubeconfig, serving=it.serving) as proxy,
            Deployment(it, namespace, proxy, ()) as deployment,
        ):
            await Play(it, namespace, proxy, deployment, rollout).play(state)

    async def run() -> None:
        async with field(tmp_path) as it:
            rollout = Rollout(it, order, (undecided, present()), len(STATES))
            await rollout.begin()
            async with asyncio.TaskGroup() as tasks:
                for state in STATES.values():
                    tasks.create_task(play(it, rollout, state))

    asyncio.run(run())
