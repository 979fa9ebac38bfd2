"""Records the result of every job and its created children, by the test's own informers.

These survive all faults of the API servers. If a watch cannot continue, everything is listed again, and objects that were
created and deleted in between are missed.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from faults.field import READY_S, Thing
from faults.processes import say
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import Resource, controller_of, meta_key
from tfjob_operator.api.v1.constants import LABEL_PREFIX, LABEL_REPLICA_INDEX, LABEL_REPLICA_TYPE, TFJOBS
from tfjob_operator.informers import Codec, EventHandlerFuncs, SharedInformerFactory, object_of

MOST_TOLD: Final = 20


def conclude(found: Sequence[str], planted: str) -> None:
    """Print what was found, and fail if there is anything; with a planted bug, if there is nothing."""
    for line in found[:MOST_TOLD]:
        say(f"  {line}")
    if planted:
        assert found, f"{planted} was not found"
    elif found:
        pytest.fail("\n".join(found[:MOST_TOLD]), pytrace=False)


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
        self._children: defaultdict[str, set[str]] = defaultdict(set)
        self._there: defaultdict[str, set[str]] = defaultdict(set)

    def accept(self, job: str) -> None:
        self.jobs[job].accepted_at = time.monotonic()

    def take(self, resource: Resource, item: Thing, *, deleted: bool = False) -> None:
        """Note an object as an informer shows it."""
        meta = item.metadata
        key = meta_key(meta)
        self._there[resource.plural].add(key)
        if resource is TFJOBS:
            job = self.jobs[key]
            conditions = item.status.get("conditions") or ()
            end = next((each["type"] for each in conditions if each["type"] in ENDS and each["status"] == "True"), "")
            if end and not job.end:
                job.end = end
                job.took_s = time.monotonic() - (job.accepted_at or time.monotonic())
        elif (owner := controller_of(meta)) is not None:
            labels = meta.label_map()
            place = "-".join(labels.get(LABEL_PREFIX + each, "") for each in (LABEL_REPLICA_TYPE, LABEL_REPLICA_INDEX))
            self._children[f"{meta.namespace}/{owner.name} {resource.plural} {place}"].add(meta.uid)
        if deleted:
            self._there[resource.plural].discard(key)
            if resource is TFJOBS:
                self.jobs[key].gone = True

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


def _handler(kept: Ledger, resource: Resource) -> EventHandlerFuncs[Thing]:
    return EventHandlerFuncs(
        on_add=lambda new, _: kept.take(resource, new),
        on_update=lambda _, new: kept.take(resource, new),
        on_delete=lambda gone: kept.take(resource, object_of(gone), deleted=True),
    )


@asynccontextmanager
async def ledger(client: RestClient) -> AsyncIterator[Ledger]:
    kept = Ledger()
    factory = SharedInformerFactory(client)
    for resource in (TFJOBS, PODS, SERVICES):
        factory.informer(Codec(resource, Thing)).add_event_handler(_handler(kept, resource))
    async with asyncio.TaskGroup() as tasks:
        factory.start(tasks)
        await factory.wait_for_cache_sync(READY_S)
        yield kept
        await factory.shut_down()
