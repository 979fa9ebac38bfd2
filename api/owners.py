"""Owners and what they control: references, and the index by which an owner finds its own. Values only.

A controller reference names its owner by UID and has no namespace: it is resolved in the child's own, as the garbage collector
does it. Whoever may create objects somewhere can write any UID into them, so a UID alone proves nothing (D2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NewType

from tfjob_operator.api.meta import Meta, controller_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.meta import Object, OwnerReference, Resource

OwnerKey = NewType("OwnerKey", str)
"""`namespace/uid` of an object that has children. A type of its own, so that a bare UID is not taken for one."""

OWNER_INDEX: Final = "controller"
"""The index of children by the `OwnerKey` of the object that controls them."""


def owner_uid_key(owner: Meta) -> OwnerKey:
    """Return the key under which the children of this object are indexed."""
    return OwnerKey(f"{owner.namespace}/{owner.uid}")


def key_of_owner(child: Meta, owner: OwnerReference) -> OwnerKey:
    """Return the key under which a child with this owner reference is indexed."""
    return OwnerKey(f"{child.namespace}/{owner.uid}")


def index_by_owner(child: Object) -> Sequence[str]:
    """Return the key of a child's controller: the index function of `OWNER_INDEX`, called for every event of a watch."""
    owner = controller_of(child.metadata)
    return () if owner is None else (key_of_owner(child.metadata, owner),)


def controller_reference(kind: Resource, owner: Meta) -> dict[str, Any]:
    """Return the reference to an owner of this kind by which the garbage collector deletes the child with it (RM-04)."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
