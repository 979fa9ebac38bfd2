"""The event handler of an informer of children: it meets expectations and queues the key of the job that controls the child.

Handlers run on the loop and must not block it: they only record what was seen and which job it concerns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tfjob_operator.api.meta import controller_of, object_key
from tfjob_operator.api.owners import key_of_owner
from tfjob_operator.informers import object_of

if TYPE_CHECKING:
    from tfjob_operator.controller.jobs.children import ChildMeta
    from tfjob_operator.controller.jobs.expectations import Expectations
    from tfjob_operator.controller.jobs.feed import Feed
    from tfjob_operator.informers import Tombstone


class Child(Protocol):
    """What is needed of a child of any kind."""

    @property
    def metadata(self) -> ChildMeta:
        """Its metadata."""
        ...


C = TypeVar("C", bound=Child)


class OwnedChildHandler(Generic[C]):
    """Meets expectations by the events of one kind of children, and queues the job that controls them.

    Expectations are found by the owner's UID in the child's namespace. So a child of an earlier job of the same name meets
    none (EX-06), nor does one in another namespace that names our job as its owner (D2).
    """

    def __init__(self, owner_kind: str, kind: str, feed: Feed, expectations: Expectations) -> None:
        """`owner_kind` is the kind of the jobs, `kind` the name under which these children are expected."""
        self._owner_kind = owner_kind
        self._kind = kind
        self._feed = feed
        self._expectations = expectations

    def on_add(self, child: C, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - the informers' signature
        """Meet the expectation of a child's creation, and queue its job."""
        self._seen(child.metadata)

    def on_update(self, old: C, new: C, /) -> None:
        """Queue the job of a child that changed. With another UID the child was deleted and created again."""
        if old.metadata.uid != new.metadata.uid or controller_of(old.metadata) != controller_of(new.metadata):
            self._gone(old.metadata)
        self._seen(new.metadata)

    def on_delete(self, gone: C | Tombstone[C], /) -> None:
        """Meet the expectation of a child's deletion, and queue its job."""
        self._gone(object_of(gone).metadata)

    def on_list(self, resource_version: str, /) -> None:
        """Meet the expectations of children that a list does not show any more, and queue their jobs (EX-10)."""
        for job in self._expectations.listed(self._kind, resource_version):
            self._feed.add(job)

    def _seen(self, meta: ChildMeta) -> None:
        owner = controller_of(meta)
        if owner is None or owner.kind != self._owner_kind:
            return
        if meta.deletion_timestamp is not None:  # being deleted is as good as gone (EX-05)
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
