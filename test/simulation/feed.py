"""The changes of one collection since the reader last looked, from storage itself, which no watch cache delays."""

from __future__ import annotations

from simulation.model.storage import Change, Storage
from tfjob_operator.api.meta import Resource


class Feed:
    """Reads the log of a collection. Invariant: every change is returned once, in order; the reader looks after every request
    that changed something (`ModelServer.on_change`), so no compaction comes between."""

    def __init__(self, storage: Storage, resource: Resource) -> None:
        self._collection = storage.collections[resource.plural]
        self._seen = storage.rv

    def news(self) -> list[Change]:
        log = self._collection.log
        if not log or log[-1].rv <= self._seen:
            return []
        changes = self._collection.since(self._seen)
        self._seen = log[-1].rv
        return changes
