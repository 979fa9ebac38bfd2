"""What every Kubernetes object has in common: metadata, owners, keys, and where a resource lives on the server.

Values only: no I/O, and nothing of ours is imported. The structs are frozen *slices*: they hold the fields that we read, and
nothing that is decoded into them is ever written back.

A controller reference names its owner by UID and has no namespace: it is resolved in the child's own, as the garbage collector
does it. Whoever may create objects somewhere can write any UID into them, so a UID alone proves nothing (D2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NewType, Protocol
from urllib.parse import quote

import msgspec

JSON = Mapping[str, object]
"""A decoded JSON object without a type of its own."""
MAX_NAME_LENGTH = 63
"""Longest DNS label (RFC 1123), and so the longest name of a service and the longest value of a label."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all slices: camelCase on the wire, immutable in memory.

    `gc=False` keeps ten thousand cached objects out of the garbage collector's walks; it is safe because a frozen tree that
    came from JSON can hold no cycle.
    """


class OwnerReference(Struct, frozen=True):
    """A link from a child to its owner. `controller` is true for at most one owner of an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Struct, frozen=True):
    """The part of `metadata` that informers read. Slices name labels, since a dict is a fifth of a cached pod's memory."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] | None = None

    def label_map(self) -> Mapping[str, str]:
        """Return the labels that the slice holds, for selectors."""
        return {}


class ObjectMeta(Meta, frozen=True):
    """Metadata with all labels, and the time of the creation."""

    creation_timestamp: datetime | None = None
    labels: dict[str, str] | None = None

    def label_map(self) -> Mapping[str, str]:
        """All labels."""
        return self.labels or {}


class Object(Protocol):
    """What informers need of a cached object: its metadata."""

    @property
    def metadata(self) -> Meta:
        """The object's metadata."""
        ...


def version_number(version: str) -> int | None:
    """Return a resourceVersion as a number that grows (KEP-5504; before 1.35 etcd's revision); None if it is none."""
    # As Kubernetes reads it: ASCII digits without a leading zero. "0" stands for any version.
    if not (version.isascii() and version.isdecimal()) or version[0] == "0":
        return None
    return int(version)


class PartialObjectMetadata(Struct, frozen=True):
    """Any object, or a list, of which only the metadata is read."""

    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object and its place on the server. `group` is "" for the core API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`v1` for the core API, else `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of a collection (without a namespace that of all), of one object, or of a subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace and self.namespaced:
            root = f"{root}/namespaces/{quote(namespace, safe='')}"
        path = f"{root}/{self.plural}"
        if name:
            path = f"{path}/{quote(name, safe='')}"
        return f"{path}/{subresource}" if subresource else path

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def object_key(namespace: str, name: str) -> str:
    """Return the key of an object: `namespace/name`, or `name` without a namespace (ST-01). The UID is no part of it."""
    return f"{namespace}/{name}" if namespace else name


def meta_key(meta: Meta) -> str:
    """`object_key` of an object's metadata."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def controller_of(meta: Meta) -> OwnerReference | None:
    """Return the owner that manages this object, or None for an orphan."""
    for reference in meta.owner_references or ():
        if reference.controller:
            return reference
    return None


def owner_key(meta: Meta) -> str | None:
    """Return the key of the owner that manages this object, which is in the same namespace; None for an orphan."""
    owner = controller_of(meta)
    return None if owner is None else object_key(meta.namespace, owner.name)


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
