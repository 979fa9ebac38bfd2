"""Event handlers of the informers: they queue the keys of jobs and meet expectations.

Handlers run on the loop and must not block it: they only record what was seen and which job it concerns.
"""

from __future__ import annotations

from collections.abc import Callable

from tfjob_operator.api.meta import ObjectMeta, controller_of, meta_key, object_key
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.jobs.children import ChildMeta, job_of_orphan
from tfjob_operator.controller.jobs.expectations import C, Expectations, Feed, OwnedChildHandler
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren
from tfjob_operator.controller.tfjob.apply.events import ChildKind
from tfjob_operator.informers import Tombstone, object_of


class JobHandler:
    """Queues every job that changes; calls `forget` for jobs that are gone."""

    def __init__(self, feed: Feed, forget: Callable[[ObjectMeta], None]) -> None:
        self._feed = feed
        self._forget = forget

    def on_add(self, job: TFJob, is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Queue a new job. Those of the initial list have low priority (PQ-04)."""
        self._feed.add(meta_key(job.metadata), low_priority=is_in_initial_list)

    def on_update(self, old: TFJob, new: TFJob, /) -> None:
        """Queue a job that changed. With another UID it was deleted and created again unobserved (EX-08, SI-11)."""
        if old.metadata.uid != new.metadata.uid:
            self._forget(old.metadata)
        self._feed.add(meta_key(new.metadata))

    def on_delete(self, gone: TFJob | Tombstone[TFJob], /) -> None:
        """Forget a job. The garbage collector deletes its children."""
        self._forget(object_of(gone).metadata)


class ChildHandler(OwnedChildHandler[C]):
    """`OwnedChildHandler` for the children of TFJobs: a name that becomes free is tried again, and orphans may be adopted.

    An orphan meets no expectation, but queues the job that its labels name, which may adopt it (RM-01).
    """

    def __init__(self, kind: ChildKind, feed: Feed, expectations: Expectations, blocked: BlockedChildren) -> None:
        super().__init__(TFJOBS.kind, kind.name, feed, expectations)
        self._blocked = blocked

    def _seen(self, meta: ChildMeta) -> None:
        if controller_of(meta) is not None:
            super()._seen(meta)
        elif (key := job_of_orphan(meta)) is not None:
            self._feed.add(key)

    def _gone(self, meta: ChildMeta) -> None:
        owner = controller_of(meta)
        if owner is None:
            key = job_of_orphan(meta)  # it may have stood in the way (D15)
        else:
            key = object_key(meta.namespace, owner.name) if owner.kind == TFJOBS.kind else None
        if key is None:
            return
        self._blocked.freed(key, meta.name)
        if owner is None:
            self._feed.add(key)
        else:
            super()._gone(meta)
