"""The jobs of one API, and the events about them: read as long as the cluster serves it, and noting what may not be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, NamedTuple

import msgspec

from tfjob_operator.api.client.errors import (
    ApiError,
    DecodeError,
    ExpiredError,
    InvalidError,
    TooLargeResourceVersionError,
)
from tfjob_operator.api.client.options import ListOptions
from tfjob_operator.api.client.rest import RestClient
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli.diagnosis.objects import Event
from tfjob_operator.cli.page.objects import FIRST
from tfjob_operator.informers import Registration, SharedIndexInformer
from tfjob_operator.informers.codec import Page
from tfjob_operator.informers.deltas import T
from tfjob_operator.informers.listwatch import Batch, ListerWatcher

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


APIS: Final = (TFJOBS, FIRST)
"""Those of which the page shows jobs."""


class _Version(msgspec.Struct):
    version: str = ""


class _Group(msgspec.Struct):
    name: str = ""
    versions: list[_Version] | None = None


class _Groups(msgspec.Struct):
    groups: list[_Group] | None = None


async def served(client: RestClient) -> frozenset[Resource]:
    """Return those of `APIS` that are served. Raises ApiError."""
    try:
        found = msgspec.json.decode(await client.get_page("/apis"), type=_Groups)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"not a list of API groups: {error}") from error
    there = {(group.name, each.version) for group in found.groups or () for each in group.versions or ()}
    return frozenset(each for each in APIS if (each.group, each.version) in there)


_IN_ORDER: Final = (ExpiredError, InvalidError, TooLargeResourceVersionError)
"""Errors after which the reflector tries another request at once."""


class NotedSource(Generic[T]):
    """`ListerWatcher` that calls `note` with the error of each failed request, and with None for each that succeeds.

    The end of a stream is not reported: it is opened again at once, and the result of that is reported.
    """

    def __init__(self, source: ListerWatcher[T], note: Callable[[ApiError | None], None]) -> None:
        self._source = source
        self._note = note

    async def list(self, options: ListOptions) -> Page[T]:
        """See `ListerWatcher.list`."""
        try:
            page = await self._source.list(options)
        except ApiError as error:
            self._failed(error)
            raise
        self._note(None)
        return page

    @asynccontextmanager
    async def watch(self, options: ListOptions) -> AsyncIterator[AsyncIterator[Batch[T]]]:
        """See `ListerWatcher.watch`."""
        opened = False
        try:
            async with self._source.watch(options) as batches:
                opened = True
                self._note(None)
                yield batches
        except ApiError as error:
            if not opened:
                self._failed(error)
            raise

    def _failed(self, error: ApiError) -> None:
        if not isinstance(error, _IN_ORDER):
            self._note(error)
