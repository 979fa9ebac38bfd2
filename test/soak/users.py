"""The users of a soak test: each has one job after the other, acts on it, and expects one result."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from faults.field import Thing
from faults.processes import say
from integration.cluster import replica, specs, tfjob, with_policy
from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.errors import AlreadyExistsError, ApiError, NotFoundError
from tfjob_operator.api.core import PODS
from tfjob_operator.api.v1.constants import TFJOBS

TICK_S: Final = 0.5
END_S: Final = 600.0
"""How long a job may take to its end, with all the troubles that meet it, also on a busy machine."""


class User:
    """One namespace of one user. `ended` counts the jobs by what was done with them; `wrong` is what came out otherwise."""

    def __init__(self, client: RestClient, namespace: str, random: Random) -> None:
        self._client = client
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
            try:
                async with asyncio.timeout(END_S):
                    await kind(name)
                    await self._gone(name)
            except TimeoutError:
                self.wrong.append(f"{self._namespace}/{name}, which {what}, has not come to its end")
                say(f"{datetime.now(UTC):%H:%M:%S} {self.wrong[-1]}: {await self._state(name)}")
                return
            self.ended[what] += 1

    async def _trains(self, name: str) -> None:
        servers = {"PS": replica(1, run="forever")} if self._random.random() < 0.5 else {}
        await self._create(name, specs(**servers, Worker=replica(self._random.randint(1, 3), run="1s:0")))
        await self._until(name, "Succeeded")

    async def _fails(self, name: str) -> None:
        await self._create(name, specs(Worker=replica(2, run="0.5s:1")))
        await self._until(name, "Failed")

    async def _restarts(self, name: str) -> None:
        await self._create(name, specs(Worker=replica(2, "ExitCode", run="0.5s:137, 1s:0")))
        await self._until(name, "Succeeded")

    async def _pauses(self, name: str) -> None:
        await self._create(name, specs(Worker=replica(2, run="forever")))
        await self._until(name, "Running")
        await self._edit(name, {"runPolicy": {"suspend": True}})
        await self._until(name, "Suspended")
        await self._edit(name, {"runPolicy": {"suspend": False}})
        await self._until(name, "Running")

    async def _grows(self, name: str) -> None:
        spec = specs(Worker=replica(1, run="forever"))
        await self._create(name, spec | {"enableDynamicWorker": True})
        await self._until(name, "Running")
        await self._edit(name, {"tfReplicaSpecs": {"Worker": {"replicas": 3}}})
        await self._pods(name, 3)
        await self._edit(name, {"tfReplicaSpecs": {"Worker": {"replicas": 1}}})
        await self._pods(name, 1)

    async def _errs(self, name: str) -> None:
        await self._create(name, with_policy(specs(Worker=replica(1)), cleanPodPolicy="Sometimes"))
        await self._until(name, "Failed")

    async def _leaves(self, name: str) -> None:
        policy = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1}
        await self._create(name, with_policy(specs(Worker=replica(2, run="0.5s:0")), **policy))
        await _when(lambda: self._has_gone(name))

    async def _loses(self, name: str) -> None:
        """Its pods are deleted while they run, as when a node is drained."""
        await self._create(name, specs(Worker=replica(2, "ExitCode", run="forever")))
        await self._pods(name, 2)
        for pod in await self._children(name):
            await self._patiently(lambda pod=pod: self._client.delete(PODS, self._namespace, pod))  # type: ignore[misc]
        await self._pods(name, 2)

    async def _create(self, name: str, spec: dict[str, Any]) -> None:
        await self._patiently(lambda: self._client.create(TFJOBS, self._namespace, tfjob(name, spec)))

    async def _edit(self, name: str, spec: dict[str, Any]) -> None:
        await self._patiently(lambda: self._client.patch(TFJOBS, self._namespace, name, {"spec": spec}))

    async def _get(self, name: str) -> Thing | None:
        found: Thing | None = await self._patiently(lambda: self._client.get(TFJOBS, self._namespace, name, Thing))
        return found

    async def _until(self, name: str, condition: str) -> None:
        async def holds() -> bool:
            job = await self._get(name)
            conditions = job.status.get("conditions") or () if job is not None else ()
            return any((each["type"], each["status"]) == (condition, "True") for each in conditions)

        await _when(holds)

    async def _children(self, name: str) -> list[str]:
        options = ListOptions(self._namespace, label_selector=f"job-name={name}")
        listed = await self._patiently(lambda: self._client.list_page(PODS, options))
        return [item["metadata"]["name"] for item in json.loads(listed)["items"]]

    async def _state(self, name: str) -> str:
        """What there is of a job now: whoever reads that it did not end has to know whom it waited for."""
        options = ListOptions(self._namespace, label_selector=f"job-name={name}")
        pods = await self._patiently(lambda: self._client.list_page(PODS, options))
        return f"{await self._get(name)}\n    pods: {pods.decode()}"

    async def _pods(self, name: str, number: int) -> None:
        async def holds() -> bool:
            return len(await self._children(name)) == number

        await _when(holds)

    async def _has_gone(self, name: str) -> bool:
        return await self._get(name) is None

    async def _gone(self, name: str) -> None:
        """Delete the job, and wait until the garbage collector has deleted its pods."""
        await self._patiently(lambda: self._client.delete(TFJOBS, self._namespace, name))
        await self._pods(name, 0)

    async def _patiently(self, request: Callable[[], Awaitable[Any]]) -> Any:
        """Send a request until it succeeds, or has succeeded before. Return its result, None for what is not there."""
        while True:
            try:
                return await request()
            except (AlreadyExistsError, NotFoundError):
                return None
            except ApiError:  # the API server is being restarted
                await asyncio.sleep(TICK_S)


async def _when(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds; whoever asks has a time limit."""
    while True:
        if await holds():
            return
        await asyncio.sleep(TICK_S)
