"""What has become of every job, and which children were made for it, by watches of the test's own.

They go on through whatever happens to the API servers. Where a watch cannot go on, everything is listed anew; what was made
and deleted again in between, nobody sees.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from faults.processes import say
from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.errors import ApiError, ExpiredError
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import LABEL_PREFIX, LABEL_REPLICA_INDEX, LABEL_REPLICA_TYPE, TFJOBS

MOST_TOLD: Final = 20


def conclude(found: Sequence[str], planted: str) -> None:
    """Print what was found, and fail if there is anything; with a planted bug, if there is nothing."""
    for line in found[:MOST_TOLD]:
        say(f"  {line}")
    if planted:
        assert found, f"{planted} was not found"
    elif found:
        pytest.fail("\n".join(found[:MOST_TOLD]), pytrace=False)


AGAIN_S: Final = 0.5
ENDS: Final = ("Succeeded", "Failed")


@dataclass
class Job:
    """A job as it was seen last. `took_s` is from its acceptance to when its end was seen."""

    end: str = ""
    gone: bool = False
    accepted_at: float | None = None
    took_s: float = 0.0


class Ledger:
    """Jobs by namespace and name, which no two jobs share; and the UIDs of their children."""

    def __init__(self) -> None:
        self.jobs: defaultdict[str, Job] = defaultdict(Job)
        self.listed: Counter[str] = Counter()
        """How often everything was listed, by resource."""
        self._children: defaultdict[str, set[str]] = defaultdict(set)
        self._there: defaultdict[str, set[str]] = defaultdict(set)

    def accept(self, job: str) -> None:
        self.jobs[job].accepted_at = time.monotonic()

    def relist(self, resource: Resource, items: list[dict[str, Any]]) -> None:
        """Note what is there, and that nothing else is."""
        self.listed[resource.plural] += 1
        missing = self._there[resource.plural] - {_key(item) for item in items}
        for item in items:
            self.take(resource, item)
        for key in missing:
            self._lose(resource, key)

    def take(self, resource: Resource, item: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Note an object as a watch or a list shows it."""
        key = _key(item)
        self._there[resource.plural].add(key)
        if resource is TFJOBS:
            job = self.jobs[key]
            conditions = (item.get("status") or {}).get("conditions") or ()
            end = next((each["type"] for each in conditions if each["type"] in ENDS and each["status"] == "True"), "")
            if end and not job.end:
                job.end = end
                job.took_s = time.monotonic() - (job.accepted_at or time.monotonic())
        else:
            meta = item["metadata"]
            labels = meta.get("labels") or {}
            owners = [owner["name"] for owner in meta.get("ownerReferences") or () if owner.get("controller")]
            if owners:
                place = "-".join(
                    labels.get(LABEL_PREFIX + each, "") for each in (LABEL_REPLICA_TYPE, LABEL_REPLICA_INDEX)
                )
                self._children[f"{meta['namespace']}/{owners[0]} {resource.plural} {place}"].add(meta["uid"])
        if deleted:
            self._lose(resource, key)

    def left(self, resource: Resource) -> int:
        return len(self._there[resource.plural])

    @property
    def unfinished(self) -> list[str]:
        return [name for name, job in self.jobs.items() if job.accepted_at is not None and not job.end and not job.gone]

    @property
    def accepted(self) -> int:
        return sum(job.accepted_at is not None for job in self.jobs.values())

    def violations(self) -> list[str]:
        """Return what must not be: jobs that are lost, stuck or failed, and children that were made twice."""
        wrong = []
        for name, job in sorted(self.jobs.items()):
            if job.accepted_at is None:
                wrong.append(f"{name} is there, and nobody created it")
            elif job.end != "Succeeded":
                wrong.append(f"{name} {'is lost' if job.gone else job.end or 'is stuck'}")
        twice = {child: len(uids) for child, uids in self._children.items() if len(uids) > 1}
        return wrong + [f"{child} was made {times} times" for child, times in sorted(twice.items())]

    @property
    def children(self) -> int:
        return sum(len(uids) for uids in self._children.values())

    def _lose(self, resource: Resource, key: str) -> None:
        self._there[resource.plural].discard(key)
        if resource is TFJOBS:
            self.jobs[key].gone = True

    async def follow(self, client: RestClient, resource: Resource) -> None:
        """Note all objects of a resource until cancelled, whatever happens to the server."""
        options = None
        while True:
            try:
                if options is None:
                    listed = json.loads(await client.list_page(resource, ListOptions()))
                    self.relist(resource, listed["items"])
                    version = listed["metadata"]["resourceVersion"]
                    options = ListOptions(resource_version=version, allow_bookmarks=True)
                options = await self._watch(client, resource, options)
            except ExpiredError:
                options = None
            except ApiError:
                await asyncio.sleep(AGAIN_S)

    async def _watch(self, client: RestClient, resource: Resource, options: ListOptions) -> ListOptions | None:
        """Watch until the stream ends; return from where to go on, None for from a list."""
        try:
            async with client.watch(resource, options) as lines:
                async for batch in lines:
                    for line in batch:
                        event = json.loads(line)
                        item = event["object"]
                        if item["kind"] == "Status":
                            return None
                        if event["type"] != "BOOKMARK":
                            self.take(resource, item, deleted=event["type"] == "DELETED")
                        options = replace(options, resource_version=item["metadata"]["resourceVersion"])
        except ExpiredError:
            raise
        except ApiError:
            await asyncio.sleep(AGAIN_S)
        return options


@asynccontextmanager
async def ledger(client: RestClient) -> AsyncIterator[Ledger]:
    kept = Ledger()
    async with asyncio.TaskGroup() as tasks:
        resources = (TFJOBS, PODS, SERVICES)
        running = [tasks.create_task(kept.follow(client, each), name=f"ledger {each.plural}") for each in resources]
        yield kept
        for task in running:
            task.cancel()


def _key(item: Mapping[str, Any]) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"
