"""The users of a soak test: each has one job after the other, acts on it, and expects one result."""

import itertools
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from faults.field import Sight
from faults.processes import say
from faults.user import User, WaitedInVainError
from integration.cluster import replica, specs, with_policy

END_S: Final = 600.0
"""How long a job may take for each step to its end, with all the troubles that meet it, also on a busy machine."""


class Worker:
    """One namespace of one user. `ended` counts the jobs by what was done with them; `wrong` is what came out otherwise."""

    def __init__(self, sight: Sight, namespace: str, random: Random) -> None:
        self._sight = sight
        self._namespace = namespace
        self._random = random
        self.ended: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def work(self, until: Callable[[], bool]) -> None:
        """Have jobs, one after the other, until told to stop; the last one comes to its end."""
        kinds = [self._trains, self._fails, self._restarts, self._pauses]
        kinds += [self._grows, self._errs, self._leaves, self._loses]
        for number in itertools.count(1):
            if until():
                return
            kind, name = self._random.choice(kinds), f"job-{number}"
            what = kind.__name__.strip("_")
            user = User(self._sight, self._namespace, name=name, patience_s=END_S, stubborn=True)
            try:
                await kind(user)
                await user.leave()
            except WaitedInVainError as error:
                self.wrong.append(f"{self._namespace}/{name}, which {what}, has not come to its end: {error}")
                say(self.wrong[-1])
                return
            self.ended[what] += 1

    async def _trains(self, user: User) -> None:
        servers = {"PS": replica(1, run="forever")} if self._random.random() < 0.5 else {}
        await user.create(specs(**servers, Worker=replica(self._random.randint(1, 3), run="1s:0")))
        await user.reaches("Succeeded")

    async def _fails(self, user: User) -> None:
        await user.create(specs(Worker=replica(2, run="0.5s:1")))
        await user.reaches("Failed")

    async def _restarts(self, user: User) -> None:
        await user.create(specs(Worker=replica(2, "ExitCode", run="0.5s:137, 1s:0")))
        await user.reaches("Succeeded")

    async def _pauses(self, user: User) -> None:
        await user.create(specs(Worker=replica(2, run="forever")))
        await user.reaches("Running")
        await user.edit(runPolicy={"suspend": True})
        await user.reaches("Suspended")
        await user.edit(runPolicy={"suspend": False})
        await user.reaches("Running")

    async def _grows(self, user: User) -> None:
        await user.create(specs(Worker=replica(1, run="forever")) | {"enableDynamicWorker": True})
        await user.reaches("Running")
        for workers in (3, 1):
            await user.edit(tfReplicaSpecs={"Worker": {"replicas": workers}})
            await user.has_pods(workers)

    async def _errs(self, user: User) -> None:
        await user.create(with_policy(specs(Worker=replica(1)), cleanPodPolicy="Sometimes"))
        await user.reaches("Failed")

    async def _leaves(self, user: User) -> None:
        policy = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1}
        await user.create(with_policy(specs(Worker=replica(2, run="0.5s:0")), **policy))
        await user.until("the job is gone", user.has_no_job)

    async def _loses(self, user: User) -> None:
        """Its pods are deleted while they run, as when a node is drained."""
        await user.create(specs(Worker=replica(2, "ExitCode", run="forever")))
        await user.has_pods(2)
        await user.drain()
