"""A stream of short jobs with a TTL."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from integration.cluster import replica, specs, tfjob, with_policy
from soak.ledger import Ledger
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import AlreadyExistsError, ApiError, InvalidError
from tfjob_operator.api.v1.constants import TFJOBS

PER_S: Final = 5.0
AT_ONCE: Final = 50
"""Users that wait for a server that does not respond. With that many, no more come until one is served."""
TTL_S: Final = 30
"""Longer than any watch of the test is without a server while the operator has one."""
TICK_S: Final = 0.5


class Stream:
    """Creates jobs at a steady rate. `refused` counts what users were told, by kind of error."""

    def __init__(self, client: RestClient, ledger: Ledger, namespaces: Sequence[str], random: Random) -> None:
        self._client = client
        self._ledger = ledger
        self._namespaces = namespaces
        self._random = random
        self._numbers = itertools.count(1)
        self.refused: Counter[str] = Counter()

    async def run(self, until: Callable[[], bool]) -> None:
        """Create jobs until told to stop, and return when the API server has taken all of them.

        Jobs that could not be created in time are not made up for.
        """
        clock = asyncio.get_running_loop().time
        places = asyncio.Semaphore(AT_ONCE)
        due = clock()
        async with asyncio.TaskGroup() as users:
            while not until():
                await places.acquire()
                user = users.create_task(self._create(), name="user")
                user.add_done_callback(lambda _: places.release())
                due = max(due + 1 / PER_S, clock())
                await asyncio.sleep(due - clock())

    async def _create(self) -> None:
        namespace, name = self._random.choice(self._namespaces), f"job-{next(self._numbers)}"
        body = tfjob(name, self._spec())
        while True:
            try:
                with suppress(AlreadyExistsError):  # by an attempt whose response was lost
                    await self._client.create(TFJOBS, namespace, body)
                break
            except InvalidError:
                raise
            except ApiError as error:
                self.refused[type(error).__name__] += 1
                await asyncio.sleep(TICK_S)
        self._ledger.accept(f"{namespace}/{name}")

    def _spec(self) -> dict[str, Any]:
        shapes: list[dict[str, dict[str, Any]]] = [
            {"Worker": replica(1, run="1s:0")},
            {"Worker": replica(2, "OnFailure", run="1s:0")},
            {"PS": replica(1, run="forever"), "Worker": replica(1, run="1s:0")},
        ]
        policy = {"ttlSecondsAfterFinished": TTL_S, "cleanPodPolicy": self._random.choice(["All", "Running", "None"])}
        return with_policy(specs(**self._random.choice(shapes)), **policy)
