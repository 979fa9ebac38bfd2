"""Event handlers of the alpha dialect: jobs, and the pods of their batch Jobs, become keys of jobs.

Other children have the handler of the first controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.meta import controller_of, meta_key, object_key
from tfjob_operator.informers import object_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1alpha1.constants import Dialect
    from tfjob_operator.api.v1alpha1.types import AlphaJob
    from tfjob_operator.controller.alpha.children import BatchJob
    from tfjob_operator.controller.jobs.children import ChildMeta, Pod
    from tfjob_operator.controller.jobs.feed import Feed
    from tfjob_operator.informers import SharedIndexInformer, Tombstone


class JobHandler:
    """Adds the key of every job of the dialect that changes; tells `forget` of jobs that are gone."""

    def __init__(self, dialect: Dialect, feed: Feed, forget: Callable[[ObjectMeta], None]) -> None:
        self._dialect = dialect
        self._feed = feed
        self._forget = forget

    def on_add(self, job: AlphaJob, is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Queue a new job; those of the initial list have low priority."""
        if job.is_of(self._dialect):
            self._feed.add(meta_key(job.metadata), low_priority=is_in_initial_list)

    def on_update(self, old: AlphaJob, new: AlphaJob, /) -> None:
        """Queue a job that changed. If the UID is another, it was deleted and created again unseen."""
        if old.metadata.uid != new.metadata.uid:
            self._forget(old.metadata)
        if new.is_of(self._dialect):
            self._feed.add(meta_key(new.metadata))

    def on_delete(self, gone: AlphaJob | Tombstone[AlphaJob], /) -> None:
        """Forget a job; the garbage collector deletes its children."""
        self._forget(object_of(gone).metadata)


class PodHandler:
    """Queues the TFJob whose Job a pod belongs to. If that Job is not in the cache yet, its own event queues the TFJob."""

    def __init__(self, dialect: Dialect, feed: Feed, batch_jobs: SharedIndexInformer[BatchJob]) -> None:
        self._owner_kind = dialect.resource.kind
        self._feed = feed
        self._batch_jobs = batch_jobs

    def on_add(self, pod: Pod, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - as above
        """Queue the job of a new pod."""
        self._wake(pod.metadata)

    def on_update(self, _old: Pod, new: Pod, /) -> None:
        """Queue the job of a pod that changed."""
        self._wake(new.metadata)

    def on_delete(self, gone: Pod | Tombstone[Pod], /) -> None:
        """Queue the job of a pod that is gone."""
        self._wake(object_of(gone).metadata)

    def _wake(self, meta: ChildMeta) -> None:
        by = controller_of(meta)
        batch_job = self._batch_jobs.indexer.get(object_key(meta.namespace, by.name)) if by is not None else None
        owner = controller_of(batch_job.metadata) if batch_job is not None else None
        if owner is not None and owner.kind == self._owner_kind:
            self._feed.add(object_key(meta.namespace, owner.name))
