"""Informer events become keys in the queue of a dialect.

Handlers run on the loop and must not block it: they satisfy expectations and queue the key of the job that a change concerns.
The caches of nodes and the reader of logs queue jobs through `Feed`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

from tfjob_operator.api.meta import (
    ObjectMeta,
    controller_of,
    key_of_owner,
    meta_key,
    object_key,
)
from tfjob_operator.api.v1.conditions import TRUE
from tfjob_operator.api.v1.constants import TFJOBS, ConditionType
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.api.v1alpha1.types import AlphaJob
from tfjob_operator.controller.jobs.blocked import BlockedChildren
from tfjob_operator.controller.jobs.children import ChildMeta, job_of_orphan
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.pending import J
from tfjob_operator.informers import SharedIndexInformer, Tombstone, object_of
from tfjob_operator.workqueue import RateLimitingQueue

_ENDS: Final = frozenset({ConditionType.SUCCEEDED, ConditionType.FAILED})


def earliest(*waits_s: float | None) -> float | None:
    """Return the shortest of these waits, None if all are None."""
    return min((wait_s for wait_s in waits_s if wait_s is not None), default=None)


class Feed:
    """Queues keys of changed jobs, but only while the workers of this process run: until then nobody would sync them."""

    def __init__(self, queue: RateLimitingQueue[str]) -> None:
        self._queue = queue
        self._open = False

    def open(self, jobs: Iterable[J]) -> None:
        """Queue keys from now on, and the cached jobs now, with low priority.

        Those without a status come first, since nothing of them exists yet, and finished ones last.
        """
        if not self._open:
            self._open = True
            for job in sorted(jobs, key=_turn):
                self._queue.add(meta_key(job.metadata), low_priority=True)

    def add(self, key: str, *, low_priority: bool = False) -> None:
        """Queue a key, if `open` was called."""
        if self._open:
            self._queue.add(key, low_priority=low_priority)

    def after(self, key: str, *waits_s: float | None) -> None:
        """Queue a key that was synced again, after the shortest of these delays in seconds; None is ignored."""
        if (wait_s := earliest(*waits_s)) is not None:
            self._queue.add_after(key, wait_s)

    @property
    def is_busy(self) -> bool:
        """True if jobs are queued."""
        return len(self._queue) > 0


def _turn(job: TFJob | AlphaJob) -> int:
    types = {condition.type for condition in job.status.conditions or () if condition.status == TRUE}
    return 2 if types & _ENDS else 1 if types else 0


class Child(Protocol):
    """A child of any kind."""

    @property
    def metadata(self) -> ChildMeta:
        """Its metadata."""
        ...


C = TypeVar("C", bound=Child)


class JobHandler(Generic[J]):
    """Queues every job that changes and is accepted by `takes`; calls `forget` for deleted jobs."""

    def __init__(
        self, feed: Feed, forget: Callable[[ObjectMeta], None], takes: Callable[[J], bool] = lambda _job: True
    ) -> None:
        self._feed = feed
        self._forget = forget
        self._takes: Callable[[J], bool] = takes

    def on_add(self, job: J, is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Queue a new job. Those of the initial list have low priority."""
        if self._takes(job):
            self._feed.add(meta_key(job.metadata), low_priority=is_in_initial_list)

    def on_update(self, old: J, new: J, /) -> None:
        """Queue a changed job. If the UID differs, the job was deleted and recreated unobserved."""
        if old.metadata.uid != new.metadata.uid:
            self._forget(old.metadata)
        if self._takes(new):
            self._feed.add(meta_key(new.metadata))

    def on_delete(self, gone: J | Tombstone[J], /) -> None:
        """Forget a job. The garbage collector deletes its children."""
        self._forget(object_of(gone).metadata)


class OwnedChildHandler(Generic[C]):
    """Satisfies expectations from the events of one kind of children, and queues the job that controls them.

    Expectations are found by the owner's UID in the child's namespace. So an expectation is not satisfied by a child of an
    earlier job of the same name, or by a child in another namespace that names our job as owner.
    """

    def __init__(self, owner_kind: str, kind: str, feed: Feed, expectations: Expectations) -> None:
        """`owner_kind` is the kind of the jobs, `kind` the name under which these children are expected."""
        self._owner_kind = owner_kind
        self._kind = kind
        self._feed = feed
        self._expectations = expectations

    def on_add(self, child: C, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Satisfy the expectation of a creation, and queue the job."""
        self._seen(child.metadata)

    def on_update(self, old: C, new: C, /) -> None:
        """Queue the job of a changed child. If the UID or the controller differs, the former child is gone."""
        if old.metadata.uid != new.metadata.uid or controller_of(old.metadata) != controller_of(new.metadata):
            self._gone(old.metadata)
        self._seen(new.metadata)

    def on_delete(self, gone: C | Tombstone[C], /) -> None:
        """Satisfy the expectation of a deletion, and queue the job."""
        self._gone(object_of(gone).metadata)

    def on_list(self, resource_version: str, /) -> None:
        """Satisfy the expectations of children missing from a list, and queue their jobs."""
        for job in self._expectations.listed(self._kind, resource_version):
            self._feed.add(job)

    def _seen(self, meta: ChildMeta) -> None:
        owner = controller_of(meta)
        if owner is None or owner.kind != self._owner_kind:
            return
        if meta.deletion_timestamp is not None:  # terminating counts as deleted
            self._expectations.deletion_observed(key_of_owner(meta, owner), self._kind, meta.uid)
        else:
            self._expectations.creation_observed(key_of_owner(meta, owner), self._kind, meta.name)
        self._feed.add(object_key(meta.namespace, owner.name))

    def _gone(self, meta: ChildMeta) -> None:
        owner = controller_of(meta)
        if owner is None or owner.kind != self._owner_kind:
            return
        self._expectations.deletion_observed(key_of_owner(meta, owner), self._kind, meta.uid)
        self._feed.add(object_key(meta.namespace, owner.name))


class ChildHandler(OwnedChildHandler[C]):
    """`OwnedChildHandler` for children of TFJobs: retries names that become free, and queues jobs that may adopt an orphan.

    An orphan satisfies no expectation, but queues the job named by its labels.
    """

    def __init__(self, kind: str, feed: Feed, expectations: Expectations, blocked: BlockedChildren) -> None:
        super().__init__(TFJOBS.kind, kind, feed, expectations)
        self._blocked = blocked

    def _seen(self, meta: ChildMeta) -> None:
        if controller_of(meta) is not None:
            super()._seen(meta)
        elif (key := job_of_orphan(meta)) is not None:
            self._feed.add(key)

    def _gone(self, meta: ChildMeta) -> None:
        super()._gone(meta)  # first, since an unsatisfied expectation delays its job for minutes
        # Whoever owns the object, a child of another job may need its name.
        for key in (*self._blocked.freed(meta.namespace, meta.name), job_of_orphan(meta)):
            if key is not None:
                self._feed.add(key)


class GrandchildHandler:
    """Queues the job that controls the owner of an object, as of the pods of batch Jobs.

    If the owner is not cached yet, its own event queues the job.
    """

    def __init__(self, owner_kind: str, feed: Feed, owners: SharedIndexInformer[C]) -> None:
        """`owner_kind` is the kind of the jobs, `owners` the cache of their children."""
        self._owner_kind = owner_kind
        self._feed = feed
        self._owners: SharedIndexInformer[C] = owners

    def on_add(self, grandchild: Child, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Queue the job of a new object."""
        self._wake(grandchild.metadata)

    def on_update(self, _old: Child, new: Child, /) -> None:
        """Queue the job of a changed object."""
        self._wake(new.metadata)

    def on_delete(self, gone: Child | Tombstone[Child], /) -> None:
        """Queue the job of a deleted object."""
        self._wake(object_of(gone).metadata)

    def _wake(self, meta: ChildMeta) -> None:
        by = controller_of(meta)
        owner = self._owners.indexer.get(object_key(meta.namespace, by.name)) if by is not None else None
        job = controller_of(owner.metadata) if owner is not None else None
        if job is not None and job.kind == self._owner_kind:
            self._feed.add(object_key(meta.namespace, job.name))
