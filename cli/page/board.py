"""The data for the browsers of one page: rows of jobs in a feed, and views of single jobs, created on demand.

A feed has the newest state of each key, with the number of its last change. A browser that has seen all changes up to a number
gets each key with a higher number, once. Nothing is queued per browser: a slow one costs no memory, and skips outdated states.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from tfjob_operator.api.client.errors import ForbiddenError, StatusError
from tfjob_operator.cli.model.facts import PodFacts
from tfjob_operator.cli.model.objects import PodDetails
from tfjob_operator.cli.model.queues import waits_for
from tfjob_operator.cli.page.cluster import Cluster
from tfjob_operator.cli.page.objects import PageJob
from tfjob_operator.cli.page.views import SpecSummary, job_view, pod_facts_of, row_of, snapshot_of, spec_summary_of

B = TypeVar("B")

MAX_DELETIONS: Final = 1_000
"""The number of deletions that are kept. A browser that has missed older ones gets everything again."""


class Update(NamedTuple, Generic[B]):
    """All changes up to `number`: bodies by key, None for deleted ones. `full`: these are all keys."""

    number: int
    full: bool
    changed: list[tuple[str, B | None]]


class ChangeFeed(Generic[B]):
    """Bodies by key, ordered by their last change. Belongs to one event loop.

    Invariants: numbers only increase; the state of a reader at `n`, updated by `since(n)`, is the current state.
    """

    def __init__(self) -> None:
        self.number = 0
        self._entries: dict[str, tuple[int, B | None]] = {}
        self._gone: dict[str, None] = {}
        self._forgotten = 0
        self.rounds = 0
        self._news = asyncio.Event()

    def put(self, key: str, body: B | None) -> bool:
        """Set the state of a key, None if deleted. Return True if it has changed."""
        if self._entries.get(key, (0, None))[1] == body:
            return False
        self.number += 1
        self._entries.pop(key, None)
        self._gone.pop(key, None)
        self._entries[key] = self.number, body
        if body is None:
            self._gone[key] = None
        while len(self._gone) > MAX_DELETIONS:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            self._forgotten = self._entries.pop(oldest)[0]
        return True

    def since(self, number: int) -> Update[B]:
        """Return the changes since `number`, 0 for all."""
        if not self._forgotten <= number <= self.number or number == 0:
            return Update(
                self.number, True, [(key, body) for key, (_, body) in self._entries.items() if body is not None]
            )
        newer = takewhile(lambda entry: entry[1][0] > number, reversed(self._entries.items()))
        return Update(self.number, False, [(key, body) for key, (_, body) in newer][::-1])

    def announce(self) -> None:
        """Wake all waiting readers: the changes so far form one update."""
        self.rounds += 1
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, rounds: int) -> None:
        """Wait until `announce` was called more than `rounds` times."""
        while self.rounds <= rounds:
            await self._news.wait()


STATE: Final = "#state"
"""The key of the state of the page itself; no job has such a name."""
BATCH_S: Final = 0.1
"""Changes within this time are sent together: while a job of a hundred pods starts, it changes hundreds of times."""
POLL_S: Final = 0.2
"""The interval at which the caches are checked until they have synced: an empty list causes no change."""
MAX_VIEWS: Final = 64
"""The most views of jobs that are cached between two changes, for several browsers that show the same jobs."""


class Row(NamedTuple):
    """The row of a job as JSON: the whole row, and a row for viewers who may list jobs but not their pods."""

    whole: bytes
    bare: bytes


class Board:
    """Converts changes of the caches to updates for browsers. Belongs to one event loop."""

    def __init__(self, about: dict[str, Any], *, bare: bool = False, clock: Callable[[], float] = time.time) -> None:
        """`about` is sent to browsers unchanged, and identifies the server; `bare`: viewers have different permissions.

        `clock` returns seconds since 1970.
        """
        self.feed = ChangeFeed[Row]()
        self.places: frozenset[str] = frozenset()
        """The places that have jobs, see `JobKey`."""
        self._about = about
        self._bare = bare
        self._clock = clock
        self._cluster: Cluster | None = None
        self._dirty: dict[str, None] = {"": None}
        self._woken = asyncio.Event()
        self._shown_synced = False
        self._spec_summaries: dict[str, tuple[PageJob, SpecSummary]] = {}
        self._pod_facts: dict[str, dict[str, tuple[PodDetails, PodFacts]]] = {}
        self._due: dict[str, float] = {}
        """When the reason of a job changes by time alone."""
        self._changes = 0
        self._versions: dict[str, int] = {}
        self._views: dict[tuple[str, bool, bool], tuple[int, bytes]] = {}

    def changed(self, key: str) -> None:
        """Note that a job has changed; "" stands for the cluster's `read_errors`."""
        self._dirty[key] = None
        self._woken.set()

    async def run(self, cluster: Cluster) -> None:
        """Update the feed until cancelled."""
        self._cluster = cluster
        self._woken.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._woken.wait()
            now = self._clock()
            for key in [key for key, at in self._due.items() if at <= now]:
                del self._due[key]
                self.changed(key)
            if not self._woken.is_set() and not cluster.has_synced:
                continue
            self._woken.clear()
            await asyncio.sleep(BATCH_S)
            await self._publish(cluster)

    def _pause_s(self) -> float | None:
        """Return when to look again if nothing changes."""
        first = min(self._due.values(), default=None)
        waits = [max(first - self._clock(), 0.0)] if first is not None else []
        return min([*waits, *([] if self._shown_synced else [POLL_S])], default=None)

    def version(self, key: str) -> int:
        """Return a number that increases with each change of a job, even if it is deleted and recreated."""
        return self._versions.get(key, 0)

    def view(self, key: str, *, pods: bool = True, events: bool = True) -> bytes | None:
        """Return everything shown of a job as JSON, optionally without pods or events; None if it does not exist."""
        job = self._cluster.job(key) if self._cluster is not None else None
        if self._cluster is None or job is None:
            return None
        version = self.version(key)
        kept = self._views.pop((key, pods, events), None)
        if kept is None or kept[0] != version:
            shown = self._cluster.pods_of(key) if pods else []
            about = self._cluster.events_of(key) if events else []
            summary = self._spec_summary(key, job)
            facts, waits = self._facts_of(key, summary, self._cluster) if pods else None, _waits_of(self._cluster, key)
            seen = snapshot_of(summary, facts, about, self._clock(), waits)
            kept = version, msgspec.json.encode(job_view(job, summary, shown, about, seen))
        self._views[key, pods, events] = kept
        while len(self._views) > MAX_VIEWS:
            del self._views[next(iter(self._views))]
        return kept[1]

    async def _publish(self, cluster: Cluster) -> None:
        synced = cluster.has_synced  # read before the changes, so that all changes until then are included
        dirty, self._dirty = [*self._dirty], {}
        for number, key in enumerate(dirty, 1):
            if key:
                self._changes += 1
                self._versions[key] = self._changes
                self.feed.put(key, self._row(cluster, key))
            if number % 200 == 0:
                await asyncio.sleep(0)
        self._shown_synced = synced
        state = msgspec.json.encode(self._state(cluster))
        self.feed.put(STATE, Row(state, state))
        self.places = cluster.places
        self.feed.announce()

    def _row(self, cluster: Cluster, key: str) -> Row | None:
        job = cluster.job(key)
        if job is None:
            for known in (self._spec_summaries, self._versions, self._pod_facts, self._due):
                known.pop(key, None)
            self._views = {view: kept for view, kept in self._views.items() if view[0] != key}
            return None
        summary = self._spec_summary(key, job)
        pods, now, waits = self._facts_of(key, summary, cluster), self._clock(), _waits_of(cluster, key)
        seen = snapshot_of(summary, pods, (), now, waits)
        if seen.needs_events() and not self._bare:  # some viewers may not see events
            seen = snapshot_of(summary, pods, cluster.events_of(key), now, waits)
        self._due.pop(key, None)
        if seen.changes_at is not None:
            self._due[key] = seen.changes_at
        whole = msgspec.json.encode(row_of(job, summary, seen))
        bare = row_of(job, summary, snapshot_of(summary, None, (), now)) if self._bare else None
        return Row(whole, msgspec.json.encode(bare) if bare is not None else whole)

    def _facts_of(self, key: str, summary: SpecSummary, cluster: Cluster) -> list[PodFacts] | None:
        """Return the facts of the pods of a job, cached by version of the pod; None without permission to list pods."""
        if isinstance(cluster.read_errors.get("pods"), ForbiddenError):
            return None
        known = self._pod_facts.get(key, {})
        kept = ((pod, known.get(pod.metadata.uid)) for pod in cluster.pods_of(key))
        found = {
            pod.metadata.uid: (pod, one[1] if one is not None and one[0] is pod else pod_facts_of(summary, pod))
            for pod, one in kept
        }
        self._pod_facts[key] = found
        return [facts for _, facts in found.values()]

    def _spec_summary(self, key: str, job: PageJob) -> SpecSummary:
        """Return the parsed spec of a job, cached by version."""
        kept = self._spec_summaries.get(key)
        if kept is None or kept[0] is not job:
            kept = job, spec_summary_of(job)
            self._spec_summaries[key] = kept
        return kept[1]

    def _state(self, cluster: Cluster) -> dict[str, Any]:
        return {
            **self._about,
            "namespace": cluster.scope,
            "synced": self._shown_synced,
            "troubles": [
                {
                    "what": what,
                    "forbidden": isinstance(error, ForbiddenError),
                    "lost": not isinstance(error, StatusError),
                    "message": error.status_message if isinstance(error, StatusError) else str(error),
                }
                for what, error in cluster.read_errors.items()
            ],
        }


def _waits_of(cluster: Cluster, key: str) -> tuple[str, str] | None:
    """Return what a queued job waits for, None if its Workload is not known."""
    workload = cluster.workload_of(key)
    return waits_for(msgspec.to_builtins(workload)) if workload is not None else None
