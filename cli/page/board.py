"""What the browsers of one page see: rows of jobs in a feed, and views of single jobs, made when somebody looks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tfjob_operator.api.client.errors import ForbiddenError, StatusError
from tfjob_operator.cli.page.feed import Feed
from tfjob_operator.cli.page.views import job_view, row_of, wish_of

if TYPE_CHECKING:
    from tfjob_operator.cli.page.cluster import Cluster
    from tfjob_operator.cli.page.objects import Job
    from tfjob_operator.cli.page.views import Wish

STATE: Final = "#state"
"""The key of the state of the page itself; no job has such a name."""
TOGETHER_S: Final = 0.1
"""Changes within this time are sent together: a job of a hundred pods changes hundreds of times as it starts."""
LOOK_S: Final = 0.2
"""How often it is looked whether the caches are complete, until they are: a list without objects tells of no change."""
MOST_VIEWS: Final = 64
"""Views of jobs that are kept between two changes, for several browsers that show the same ones."""


class Row(NamedTuple):
    """What the list shows of a job, as JSON: to everybody, and to viewers who may list jobs but not their pods."""

    whole: bytes
    bare: bytes


class Board:
    """Turns changes of the caches into updates for browsers. Belongs to one loop."""

    def __init__(self, about: dict[str, Any], *, bare: bool = False) -> None:
        """`about` is sent to browsers as it is, and says which server the page shows; `bare`: not all may see all."""
        self.feed = Feed[Row]()
        self.places: frozenset[str] = frozenset()
        """Those that have jobs, see `keys`."""
        self._about = about
        self._bare = bare
        self._cluster: Cluster | None = None
        self._dirty: dict[str, None] = {"": None}
        self._woken = asyncio.Event()
        self._told_synced = False
        self._wishes: dict[str, tuple[Job, Wish]] = {}
        self._versions: dict[str, int] = {}
        self._views: dict[tuple[str, bool, bool], tuple[int, bytes]] = {}

    def changed(self, key: str) -> None:
        """Note that something about a job has changed; "" stands for the cluster's `troubles`."""
        self._dirty[key] = None
        self._woken.set()

    async def run(self, cluster: Cluster) -> None:
        """Put what changes into the feed, until it is cancelled."""
        self._cluster = cluster
        self._woken.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._told_synced else LOOK_S):
                    await self._woken.wait()
            if not self._woken.is_set() and not cluster.has_synced:
                continue
            self._woken.clear()
            await asyncio.sleep(TOGETHER_S)
            await self._tell(cluster)

    def version(self, key: str) -> int:
        """Return a number that grows with each change of a job."""
        return self._versions.get(key, 0)

    def view(self, key: str, *, pods: bool = True, events: bool = True) -> bytes | None:
        """Return all that is shown of a job as JSON, without its pods or events if asked; None for a job that is not there."""
        job = self._cluster.job(key) if self._cluster is not None else None
        if self._cluster is None or job is None:
            return None
        version = self.version(key)
        kept = self._views.pop((key, pods, events), None)
        if kept is None or kept[0] != version:
            shown = self._cluster.pods_of(key) if pods else []
            told = self._cluster.events_of(key) if events else []
            kept = version, msgspec.json.encode(job_view(job, self._wish(key, job), shown, told))
        self._views[key, pods, events] = kept
        while len(self._views) > MOST_VIEWS:
            del self._views[next(iter(self._views))]
        return kept[1]

    async def _tell(self, cluster: Cluster) -> None:
        synced = cluster.has_synced  # before its changes are taken: what came before that is among them
        dirty, self._dirty = [*self._dirty], {}
        for number, key in enumerate(dirty, 1):
            if key:
                self._versions[key] = self._versions.get(key, 0) + 1
                self.feed.put(key, self._row(cluster, key))
            if number % 200 == 0:
                await asyncio.sleep(0)
        self._told_synced = synced
        state = msgspec.json.encode(self._state(cluster))
        self.feed.put(STATE, Row(state, state))
        self.places = cluster.places
        self.feed.announce()

    def _row(self, cluster: Cluster, key: str) -> Row | None:
        job = cluster.job(key)
        if job is None:
            self._wishes.pop(key, None)
            self._versions.pop(key, None)
            self._views = {view: kept for view, kept in self._views.items() if view[0] != key}
            return None
        wish = self._wish(key, job)
        whole = msgspec.json.encode(row_of(job, wish, cluster.pods_of(key)))
        return Row(whole, msgspec.json.encode(row_of(job, wish, [])) if self._bare else whole)

    def _wish(self, key: str, job: Job) -> Wish:
        """Return what a job asks for, which is read once for each version of it."""
        kept = self._wishes.get(key)
        if kept is None or kept[0] is not job:
            kept = job, wish_of(job)
            self._wishes[key] = kept
        return kept[1]

    def _state(self, cluster: Cluster) -> dict[str, Any]:
        return {
            **self._about,
            "namespace": cluster.scope,
            "synced": self._told_synced,
            "troubles": [
                {
                    "what": what,
                    "forbidden": isinstance(error, ForbiddenError),
                    "lost": not isinstance(error, StatusError),
                    "message": error.status_message if isinstance(error, StatusError) else str(error),
                }
                for what, error in cluster.troubles.items()
            ],
        }
