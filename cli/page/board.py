"""The data for the browsers of one page: rows of jobs in a feed, and views of single jobs, created on demand.

A feed has the newest state of each key, with the number of its last change. A browser that has seen all changes up to a number
gets each key with a higher number, once. Nothing is queued per browser: a slow one costs no memory, and skips outdated states.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import takewhile
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from tfjob_operator.api.client.errors import ForbiddenError, StatusError
from tfjob_operator.cli.page.cluster import Cluster
from tfjob_operator.cli.page.objects import PageJob
from tfjob_operator.cli.page.views import SpecSummary, job_view, row_of, spec_summary_of

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

    def __init__(self, about: dict[str, Any], *, bare: bool = False) -> None:
        """`about` is sent to browsers unchanged, and identifies the server; `bare`: viewers have different permissions."""
        self.feed = ChangeFeed[Row]()
        self.places: frozenset[str] = frozenset()
        """The places that have jobs, see `JobKey`."""
        self._about = about
        self._bare = bare
        self._cluster: Cluster | None = None
        self._dirty: dict[str, None] = {"": None}
        self._woken = asyncio.Event()
        self._shown_synced = False
        self._spec_summaries: dict[str, tuple[PageJob, SpecSummary]] = {}
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
                async with asyncio.timeout(None if self._shown_synced else POLL_S):
                    await self._woken.wait()
            if not self._woken.is_set() and not cluster.has_synced:
                continue
            self._woken.clear()
            await asyncio.sleep(BATCH_S)
            await self._publish(cluster)

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
            kept = version, msgspec.json.encode(job_view(job, self._spec_summary(key, job), shown, about))
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
            self._spec_summaries.pop(key, None)
            self._versions.pop(key, None)
            self._views = {view: kept for view, kept in self._views.items() if view[0] != key}
            return None
        summary = self._spec_summary(key, job)
        pods = cluster.pods_of(key)
        events = cluster.events_of(key) if not (pods or self._bare) else ()  # some viewers may not see events
        whole = msgspec.json.encode(row_of(job, summary, pods, events))
        return Row(whole, msgspec.json.encode(row_of(job, summary, [])) if self._bare else whole)

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
