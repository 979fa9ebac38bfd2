"""The jobs of one API, and the events about them: read as long as the cluster serves it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tfjob_operator.api.meta import Resource
    from tfjob_operator.cli.diagnosis.objects import Event
    from tfjob_operator.informers import Registration, SharedIndexInformer

LOOK_S: Final = 120.0
"""How often it is looked whether an API that is not served has come: somebody installs its CRD."""
LOOK_AGAIN_S: Final = 5.0
"""When it is looked whether jobs that were not found are served: an API server that starts serves CRDs a moment later."""


class Caches(NamedTuple):
    """Two informers; `told` says whether all jobs that were read have been told of."""

    jobs: SharedIndexInformer[Any]
    events: SharedIndexInformer[Event]
    told: Registration


class JobCaches:
    """What is known of the jobs of one API. `caches` is None while it is not served. Belongs to one loop."""

    def __init__(
        self,
        resource: Resource,
        make: Callable[[], Caches],
        *,
        is_served: Callable[[bool], Awaitable[bool]],
        gone: Callable[[Caches], None],
    ) -> None:
        """`is_served` gets what was true last, for the case that it cannot be told; `gone` what is no longer cached."""
        self.resource = resource
        self.caches: Caches | None = None
        self.cannot_be_read = False
        """Whether listing the jobs has failed."""
        self._make = make
        self._is_served = is_served
        self._gone = gone
        self._is_absent = False
        self._not_found = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        """Whether all jobs are in the cache and were told of, cannot be read, or cannot be there."""
        if self.caches is None:
            return self._is_absent
        return self.caches.told.has_synced or self.cannot_be_read

    def not_found(self) -> None:
        """Note that the API server does not know the resource: perhaps its CRD was deleted."""
        self._not_found.set()

    async def run(self) -> None:
        """Read until it is cancelled. Nothing is asked of an API that is not there, but now and then if it has come."""
        while True:
            if not await self._is_served(False):
                self._is_absent = True
                await asyncio.sleep(LOOK_S)
                continue
            caches = self.caches = self._make()
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(each.run(), name=f"informer {each.name}") for each in caches[:2]]
                await self._until_absent()
                for task in running:
                    task.cancel()
            self._is_absent, self.caches, self.cannot_be_read = True, None, False
            self._gone(caches)

    async def _until_absent(self) -> None:
        while True:
            await self._not_found.wait()
            await asyncio.sleep(LOOK_AGAIN_S)
            if not await self._is_served(True):
                self._not_found.clear()
                return
            self._not_found.clear()
