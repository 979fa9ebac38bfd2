"""What all Kubernetes objects share: metadata, owner references, keys, and the paths of resources.

Values only: no I/O, and no imports from this project. The structs are frozen *slices*: they have only the fields that
are read, and are never written back.

A controller reference identifies the owner by UID and has no namespace: as in the garbage collector, the owner is in the
child's own namespace. Anyone who may create an object can write any UID into its owner references, so a UID alone proves
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from sys import intern
from typing import Any, Final, NewType, Protocol
from urllib.parse import quote

import msgspec
from msgspec.structs import force_setattr

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label (RFC 1123), such as the name of a namespace."""
JSON = Mapping[str, object]
"""A decoded JSON object of no particular type."""
MAX_NAME_LENGTH = 63
"""The longest DNS label (RFC 1123), and so the longest Service name and label value."""


_ACRONYMS: Final = {
    **{word: word.upper() for word in ("cidr", "fqdn", "id", "ip", "ipc", "pid", "tls", "uid", "url", "uuid", "wwn")},
    **{f"{word}s": f"{word.upper()}s" for word in ("cidr", "id", "ip", "uid", "url", "uuid", "wwn")},
}
"""The words that the API writes in capital letters, except at the beginning of a name: `podIP`, `clusterIPs`, `imageID`."""


def api_name(field: str) -> str:
    """Return the name in the Kubernetes API of a field in snake_case.

    A name in camelCase alone, such as `podIp`, is never in an object, so the field would always have its default. For the few
    fields that follow another rule, declare the name: `msgspec.field(name="openAPIV3Schema")`.
    """
    first, *words = field.split("_")
    return "".join((first, *(_ACRONYMS.get(word) or word.capitalize() for word in words)))


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename=api_name, omit_defaults=True, gc=False):
    """Base class of all slices: the names of the API in JSON (`api_name`), immutable in memory.

    `gc=False` excludes ten thousand cached objects from garbage collection. This is safe: a frozen tree decoded from
    JSON has no cycles.
    """


class OwnerReference(Struct, frozen=True):
    """A reference from a child to its owner. `controller` is true for at most one owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None

    def __post_init__(self) -> None:
        """Share the texts that are the same for all children of a kind, which saves more memory than `api_version` takes."""
        force_setattr(self, "api_version", intern(self.api_version))
        force_setattr(self, "kind", intern(self.kind))


class DeclaredLabels(Mapping[str, str]):
    """The labels of a slice that declares only some.

    Reading an undeclared label raises TypeError: it is not known whether the object has it, and `a!=b` would match either way.
    """

    __slots__ = ("_found", "_slice", "declared")

    def __init__(self, slice_: type[Meta], found: Mapping[str, str], declared: Collection[str]) -> None:
        """Take the labels found, and the keys of all labels that `slice_` declares."""
        self._slice = slice_
        self._found = found
        self.declared = declared

    def __getitem__(self, key: str) -> str:
        if key not in self.declared:
            raise TypeError(
                f"{self._slice.__name__} does not declare the label {key!r}:"
                " override label_map, or use ObjectMeta, which has all labels"
            )
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class Meta(Struct, frozen=True):
    """The metadata that informers read.

    Subclasses declare a field for each label they need, and override `label_map`; a dict of all labels would take a fifth of a
    cached pod's memory.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: datetime | None = None
    owner_references: tuple[OwnerReference, ...] | None = None

    def label_map(self) -> Mapping[str, str]:
        """Return the labels, for selectors. A slice that does not have all returns `DeclaredLabels`; this one declares none."""
        return DeclaredLabels(type(self), {}, ())


class ObjectMeta(Meta, frozen=True):
    """Metadata with all labels, and the creation time."""

    creation_timestamp: datetime | None = None
    labels: Mapping[str, str] | None = None

    def label_map(self) -> Mapping[str, str]:
        """All labels."""
        return self.labels or {}


class Object(Protocol):
    """What informers require of a cached object."""

    @property
    def metadata(self) -> Meta:
        """The object's metadata."""
        ...


def version_number(version: str) -> int | None:
    """Return a resourceVersion as an increasing number (KEP-5504; before 1.35, the etcd revision), or else None."""
    # As in Kubernetes: ASCII digits without leading zeros. "0" stands for any version.
    if not (version.isascii() and version.isdecimal()) or version[0] == "0":
        return None
    return int(version)


class PartialObjectMetadata(Struct, frozen=True):
    """An object or list whose metadata alone is read."""

    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object and its API path. `group` is "" for the core API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`v1` for the core API, else `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def check_object(self, namespace: str | None, name: str | None) -> None:
        """Raise ValueError unless these identify one object; a cluster-scoped kind ignores the namespace.

        Without a name, a path would be that of the whole collection. As in client-go, no part may be `.` or `..`, or contain
        `/` or `%`, which a proxy could resolve to another path.
        """
        parts = (namespace, name) if self.namespaced else (name,)
        if not all(parts):
            needed = "a namespace and a name" if self.namespaced else "a name"
            raise ValueError(f"an object of {self} needs {needed}, got {namespace!r} and {name!r}: see split_key")
        for part in parts:
            _segment(part or "")

    def check_namespace(self, namespace: str) -> None:
        """Raise ValueError if no namespace can have this name: the server returns an empty list for it.

        "" stands for all namespaces; a cluster-scoped kind ignores the namespace.
        """
        if namespace and self.namespaced and not _LABEL.fullmatch(namespace):
            raise ValueError(
                f'{namespace!r} is not a namespace: for several, use one list or informer for each, or "" for all'
            )

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of a collection (in all namespaces if none is given), of an object, or of a subresource.

        Only None means "not given": raises ValueError like `check_object` for an empty name, and for an empty subresource.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace and self.namespaced:
            root = f"{root}/namespaces/{_segment(namespace)}"
        path = f"{root}/{self.plural}"
        if name is None and subresource is None:
            return path
        self.check_object(namespace, name)
        if subresource == "":
            raise ValueError(f"the subresource of {self} is empty: pass None for the object itself")
        path = f"{path}/{_segment(name or '')}"
        return path if subresource is None else f"{path}/{subresource}"

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _segment(part: str) -> str:
    """Return a namespace or name as a segment of a path."""
    if part in {".", ".."} or "/" in part or "%" in part:
        raise ValueError(f"{part!r} is not a namespace or name: see split_key for a key")
    return quote(part, safe="")


def object_key(namespace: str, name: str) -> str:
    """Return the key of an object: `namespace/name`, or `name` if cluster-scoped. It does not include the UID."""
    return f"{namespace}/{name}" if namespace else name


def split_key(key: str) -> tuple[str, str]:
    """Return the namespace, "" if cluster-scoped, and the name of an `object_key`. Raises ValueError for any other text."""
    namespace, slash, name = key.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise ValueError(f"{key!r} is not the key of an object: namespace/name, or the name of a cluster-scoped object")
    return namespace, name


def meta_key(meta: Meta) -> str:
    """Return the `object_key` for an object's metadata."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def controller_of(meta: Meta) -> OwnerReference | None:
    """Return the controller of this object, or None for an orphan."""
    for reference in meta.owner_references or ():
        if reference.controller:
            return reference
    return None


def is_controlled_by(meta: Meta, owner: Meta) -> bool:
    """Return True if the controller of this object is `owner`, and no other object of its name, as metav1.IsControlledBy.

    Raises ValueError if `owner` has no UID, as a slice without its metadata: an owner that is not known owns nothing.
    """
    if not owner.uid:
        raise ValueError(f"the owner {meta_key(owner)!r} has no UID: read it from the API server")
    controller = controller_of(meta)
    return controller is not None and controller.uid == owner.uid


def owner_key(meta: Meta, kind: Resource) -> str | None:
    """Return the key of the controller of this object if it is of this kind, in any version; else None, as for an orphan.

    An owner is in the namespace of its child or is cluster-scoped. Group and kind are compared, as by controller-runtime's
    EnqueueRequestForOwner: an owner of another kind may have the name of an object of this one.
    """
    owner = controller_of(meta)
    if owner is None or owner.kind != kind.kind or owner.api_version.rpartition("/")[0] != kind.group:
        return None
    return object_key(meta.namespace, owner.name) if kind.namespaced else owner.name


OwnerKey = NewType("OwnerKey", str)
"""`namespace/uid` of an owner. A separate type, so that a bare UID is not used as one."""
OWNER_INDEX: Final = "controller"
"""The name of the index of children by the `OwnerKey` of their controller."""


def owner_uid_key(owner: Meta) -> OwnerKey:
    """Return the index key of the children of this owner.

    Raises ValueError for a cluster-scoped owner: the keys of its children have their namespaces, so the index would find none.
    """
    if not owner.namespace:
        raise ValueError(f"{owner.name} has no namespace: index the children of a cluster-scoped owner by its UID")
    return OwnerKey(f"{owner.namespace}/{owner.uid}")


def key_of_owner(child: Meta, owner: OwnerReference) -> OwnerKey:
    """Return the index key of a child with this owner reference."""
    return OwnerKey(f"{child.namespace}/{owner.uid}")


def index_by_owner(child: Object) -> Sequence[str]:
    """Return the key of a child's controller. This is the index function of `OWNER_INDEX`, called for every watch event."""
    owner = controller_of(child.metadata)
    return () if owner is None else (key_of_owner(child.metadata, owner),)


def check_identity(kind: Resource, meta: Meta) -> None:
    """Raise ValueError if an object of `kind` cannot have this metadata: the name is missing, or the scope differs."""
    if not meta.name or bool(meta.namespace) is not kind.namespaced:
        scope = "a namespace and a name" if kind.namespaced else "a name and no namespace"
        raise ValueError(f"{kind} have {scope}, got {meta.namespace!r} and {meta.name!r}")


def controller_reference(kind: Resource, owner: Meta) -> dict[str, Any]:
    """Return a controller reference to an owner of this kind; the garbage collector then deletes the child with it.

    The child must be in the owner's namespace, unless the owner is cluster-scoped; the garbage collector deletes any other. It
    also deletes the child if `owner` is not of the kind `kind`, since it finds no such owner. Use the reference in a create: a
    merge patch would replace the references of all other owners. Raises ValueError for an owner without a UID, and for one
    whose namespace does not fit to the kind.
    """
    check_identity(kind, owner)
    if not owner.uid:
        raise ValueError(f"the owner {meta_key(owner)!r} has no UID: read it from the API server")
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
