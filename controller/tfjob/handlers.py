"""Event handlers: they turn the informers' notifications into keys of jobs, and meet expectations.

Handlers run on the loop between syncs and must not block: they record what was seen and which job it concerns, nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from tfjob_operator.api.meta import controller_of, meta_key, object_key
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.controller.tfjob.children import ConfigMap, Pod, PodGroup, Service, job_of_orphan, key_of_owner
from tfjob_operator.informers import object_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.tfjob.blocked import BlockedChildren
    from tfjob_operator.controller.tfjob.children import ChildMeta
    from tfjob_operator.controller.tfjob.expectations import Expectations
    from tfjob_operator.controller.tfjob.kinds import ChildKind
    from tfjob_operator.informers import Tombstone
    from tfjob_operator.workqueue import RateLimitingQueue

C = TypeVar("C", Pod, Service, ConfigMap, PodGroup)


class Feed:
    """Adds keys to the queue, but none before this process works: nobody would take them out again (D6)."""

    def __init__(self, queue: RateLimitingQueue[str]) -> None:
        self._queue = queue
        self._open = False

    def open(self, jobs: Iterable[TFJob]) -> None:
        """Add keys from now on, and queue the jobs of the cache with low priority, behind those that change now (PQ-04)."""
        if not self._open:
            self._open = True
            for job in jobs:
                self._queue.add(meta_key(job.metadata), low_priority=True)

    def add(self, key: str, *, low_priority: bool = False) -> None:
        """Queue a key, if this process works."""
        if self._open:
            self._queue.add(key, low_priority=low_priority)

    def after(self, key: str, *waits_s: float | None) -> None:
        """Queue a key when the first of these waits is over, each in seconds; None is no wait."""
        for wait_s in waits_s:
            if wait_s is not None:
                self._queue.add_after(key, wait_s)

    @property
    def is_busy(self) -> bool:
        """Whether jobs wait for a worker."""
        return len(self._queue) > 0


class JobHandler:
    """Adds the key of every job that changes; tells `forget` of jobs that are gone."""

    def __init__(self, feed: Feed, forget: Callable[[ObjectMeta], None]) -> None:
        self._feed = feed
        self._forget = forget

    def on_add(self, job: TFJob, is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Queue a new job; those of the initial list have low priority, behind those that change now (PQ-04)."""
        self._feed.add(meta_key(job.metadata), low_priority=is_in_initial_list)

    def on_update(self, old: TFJob, new: TFJob, /) -> None:
        """Queue a job that changed. If the UID is another, it was deleted and created again unseen (EX-08, SI-11)."""
        if old.metadata.uid != new.metadata.uid:
            self._forget(old.metadata)
        self._feed.add(meta_key(new.metadata))

    def on_delete(self, gone: TFJob | Tombstone[TFJob], /) -> None:
        """Forget a job; the garbage collector deletes its children."""
        self._forget(object_of(gone).metadata)


class ChildHandler(Generic[C]):
    """Meets expectations with what is seen of one kind of children, and queues the job that controls them.

    Expectations are found by the owner's UID in the child's namespace, so a child of an earlier job of the same name meets none
    of ours (EX-06), nor does one that names our job from elsewhere (D2). An orphan meets none, but queues the job that its
    labels name, which may adopt it (RM-01).
    """

    def __init__(self, kind: ChildKind, feed: Feed, expectations: Expectations, blocked: BlockedChildren) -> None:
        self._kind = kind.name
        self._feed = feed
        self._expectations = expectations
        self._blocked = blocked

    def on_add(self, child: C, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - as above
        """Meet the expectation of a child's creation, and queue its job."""
        self._seen(child.metadata)

    def on_update(self, old: C, new: C, /) -> None:
        """Queue the job of a child that changed. With another UID it was deleted and created again; its owner may differ."""
        if old.metadata.uid != new.metadata.uid or controller_of(old.metadata) != controller_of(new.metadata):
            self._gone(old.metadata)
        self._seen(new.metadata)

    def on_delete(self, gone: C | Tombstone[C], /) -> None:
        """Meet the expectation of a child's deletion, and queue its job."""
        self._gone(object_of(gone).metadata)

    def _seen(self, meta: ChildMeta) -> None:
        owner = controller_of(meta)
        if owner is None:
            if (key := job_of_orphan(meta)) is not None:
                self._feed.add(key)
            return
        if owner.kind != TFJOBS.kind:
            return
        if meta.deletion_timestamp is not None:  # on its way out is as good as gone (EX-05)
            self._expectations.deletion_observed(key_of_owner(meta, owner), self._kind, meta.uid)
        else:
            self._expectations.creation_observed(key_of_owner(meta, owner), self._kind, meta.name)
        self._feed.add(object_key(meta.namespace, owner.name))

    def _gone(self, meta: ChildMeta) -> None:
        owner = controller_of(meta)
        if owner is None:
            key = job_of_orphan(meta)  # it may have stood in the way (D15)
        elif owner.kind == TFJOBS.kind:
            key = object_key(meta.namespace, owner.name)
            self._expectations.deletion_observed(key_of_owner(meta, owner), self._kind, meta.uid)
        else:
            return
        if key is not None:
            self._blocked.freed(key, meta.name)
            self._feed.add(key)
