"""Whose a child is, and the indices by which a job finds its own. Pure.

A controller reference names its owner by UID and has no namespace: it is resolved in the child's own, as the garbage collector
does it. Whoever may create pods somewhere can write any UID into them, so a UID alone proves nothing (D2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NewType

from tfjob_operator.api.meta import controller_of, object_key
from tfjob_operator.api.v1.children import NO_LABELS, Pod, Service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfjob_operator.api.meta import Meta, Object, OwnerReference
    from tfjob_operator.api.v1.children import ChildMeta

OwnerKey = NewType("OwnerKey", str)
"""`namespace/uid` of an object that has children. A type of its own, so that a bare UID is not taken for one."""

OWNER_INDEX: Final = "controller"
"""The index of children by the `OwnerKey` of the object that controls them."""

ORPHAN_INDEX: Final = "orphans-by-job"
"""The index of pods and services that nobody controls, by the key of the job that their labels name."""


def owner_key(owner: Meta) -> OwnerKey:
    """The key under which the children of this object are found."""
    return OwnerKey(f"{owner.namespace}/{owner.uid}")


def key_of_owner(child: Meta, owner: OwnerReference) -> OwnerKey:
    """The key of the object that this reference of a child is about."""
    return OwnerKey(f"{child.namespace}/{owner.uid}")


def index_by_owner(child: Object) -> Sequence[str]:
    """The index function of `OWNER_INDEX`. Runs for every event of a watch."""
    owner = controller_of(child.metadata)
    return () if owner is None else (key_of_owner(child.metadata, owner),)


def index_orphans(child: Pod | Service) -> Sequence[str]:
    """The index function of `ORPHAN_INDEX`. Runs for every event of a watch, and finds next to nothing."""
    key = job_of_orphan(child.metadata)
    return () if key is None else (key,)


def job_of_orphan(child: ChildMeta) -> str | None:
    """The key of the job that an orphan's labels name, or None for a child that is controlled or names none."""
    if controller_of(child) is not None:
        return None
    name = (child.labels or NO_LABELS).job_name
    return object_key(child.namespace, name) if name else None


CHILD_INDEXERS: Final[Mapping[str, Callable[[Any], Sequence[str]]]] = {
    OWNER_INDEX: index_by_owner,
    ORPHAN_INDEX: index_orphans,
}
"""What the informers of pods, services and ConfigMaps must have."""
