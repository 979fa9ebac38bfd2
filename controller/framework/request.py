"""A sync of one object: what it reads, and its writes, each with a precondition and none without a difference.

Reads come from the caches. A cache shows a write only when its event arrives, so the response of a write is read instead until
then, for at most TRUST_S seconds: the object may have been deleted while the watch was interrupted.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.client.options import JSON_PATCH
from tfjob_operator.api.core import EventType, object_reference
from tfjob_operator.api.kinds import Kind, Metadata
from tfjob_operator.api.meta import (
    Meta,
    Resource,
    Struct,
    controller_of,
    controller_reference,
    is_controlled_by,
    meta_key,
    object_key,
    version_number,
)
from tfjob_operator.controller.events import EventRecorder
from tfjob_operator.controller.manager import RequeueError, TerminalError
from tfjob_operator.informers import SharedIndexInformer
from tfjob_operator.workqueue import Clock

K = TypeVar("K", bound=Kind)
C = TypeVar("C", bound=Kind)

TRUST_S: Final = 30.0
"""How long the response of a write is preferred to a cache that does not show it. A watch that lags longer is reopened, and its
cache listed again, so by then the cache is right."""
OWNER: Final = "owner"
"""The index of children by the UID of their controller."""


_HEAD: Final = frozenset({"apiVersion", "kind", "metadata"})
_EMPTY: Final[tuple[object, ...]] = (None, [], {})


class NotOwnedError(TerminalError):
    """An object that a sync would write exists and has another controller, or none. Nothing was written."""


def index_by_owner_uid(child: Kind) -> tuple[str, ...]:
    """Return the UID of the controller. This is the index function of OWNER."""
    owner = controller_of(child.metadata)
    return () if owner is None else (owner.uid,)


def complete(value: object) -> Any:
    """Return a value as JSON with all fields of its structs, also those with their defaults."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {encoded: complete(getattr(value, name)) for encoded, name in names}
    if isinstance(value, Mapping):
        return {key: complete(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [complete(each) for each in value]
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    return msgspec.to_builtins(value)


def difference(current: Any, desired: Any) -> Any:
    """Return the merge patch that turns `current` into `desired`, or None if they are equal.

    A field that is null, absent or an empty list or map is the same. A list is replaced as a whole.
    """
    patch = {}
    for key in current.keys() | desired.keys():
        old, new = current.get(key), desired.get(key)
        if old == new or (old in _EMPTY and new in _EMPTY):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            new = difference(old, new)
            if new is None:
                continue
        patch[key] = new
    return patch or None


def differs(value: object, desired: object) -> bool:
    """Return True if a merge patch `desired` would change `value`, or if a field is not declared, so that it may."""
    if not isinstance(desired, Mapping):
        return bool(complete(value) != complete(desired))
    if isinstance(value, msgspec.Struct):
        names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        return any(key not in names or differs(getattr(value, names[key]), each) for key, each in desired.items())
    if isinstance(value, msgspec.Raw):
        value = complete(value)
    found = value if isinstance(value, Mapping) else {}
    return any(differs(found.get(key), each) for key, each in desired.items())


def _type_of(*, warning: bool) -> str:
    return EventType.WARNING if warning else EventType.NORMAL


def with_transition_times(current: Any, desired: Any, now: datetime) -> None:
    """Set `lastTransitionTime` of each condition of the status `desired` that has none.

    It is that of the condition in `current`, if its status is the same, else `now`.
    """
    before = {each.get("type"): each for each in current.get("conditions") or ()}
    for condition in desired.get("conditions") or ():
        if condition.get("lastTransitionTime") is None:
            old = before.get(condition.get("type"), {})
            is_same = old.get("status") == condition.get("status") and old.get("lastTransitionTime") is not None
            condition["lastTransitionTime"] = old["lastTransitionTime"] if is_same else f"{now:%Y-%m-%dT%H:%M:%SZ}"


class LiveMetadata(Metadata, frozen=True):
    """The metadata of an object that was read from the API server."""

    managed_fields: tuple[Mapping[str, Any], ...] | None = None


class _Live(Struct, frozen=True):
    metadata: LiveMetadata


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _union(one.get(key, {}), other.get(key, {})) for key in one.keys() | other.keys()}


def as_applied(entries: Sequence[Mapping[str, Any]], manager: str) -> list[Mapping[str, Any]] | None:
    """Return `managedFields` in which `manager` has applied what it wrote by create, update and patch; None if it only applied.

    Like client-go's csaupgrade. The status and other subresources stay as they are.
    """
    ours = [each for each in entries if each.get("manager") == manager and not each.get("subresource")]
    if all(each["operation"] == "Apply" for each in ours):
        return None
    fields: Mapping[str, Any] = {}
    for each in ours:
        fields = _union(fields, each.get("fieldsV1", {}))
    applied = {**ours[0], "operation": "Apply", "fieldsV1": fields}
    return [applied, *(each for each in entries if each not in ours)]


@dataclass(slots=True)
class Written:
    """The response of the last write of an object.

    based_on: the resourceVersion that the cache had then, "" if it had none.
    applied: the digest of the body that was applied, "" if the write was no apply.
    """

    item: Kind
    based_on: str
    at: float
    applied: str = ""


@dataclass(slots=True)
class Memory:
    """What one controller has written, by resource and key. It is bounded by the number of objects in the caches.

    created: by the UID of the owner, what was created for it.
    confirmed: the UIDs of objects with a finalizer that this process has read from the server, or written.
    refused: the objects of others in the way of an apply, and the key whose sync waits until they are gone.
    """

    written: dict[tuple[Resource, str], Written] = field(default_factory=dict)
    created: dict[str, set[tuple[Resource, str]]] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    refused: dict[tuple[Resource, str], str] = field(default_factory=dict)

    def forget(self, item: Kind) -> str | None:
        """Forget a deleted object, unless it was created again meanwhile. Return the key whose sync waited for this, if any."""
        self.forget_owner(item.metadata.uid)
        place = item.resource, meta_key(item.metadata)
        if (found := self.written.get(place)) is not None and found.item.metadata.uid == item.metadata.uid:
            del self.written[place]
        return self.refused.pop(place, None)

    def forget_owner(self, uid: str) -> None:
        """Forget what was created for a deleted object. If no cache ever shows it, no event about its deletion arrives."""
        for place in self.created.pop(uid, ()):
            self.written.pop(place, None)
        self.confirmed.discard(uid)


@dataclass(frozen=True, slots=True)
class Shared(Generic[K]):
    """What all requests of one controller share. `resource` is that of the objects of `kind`."""

    kind: type[K]
    resource: Resource
    caches: Mapping[type[Kind], SharedIndexInformer[Any]]
    client: RestClient
    recorder: EventRecorder
    clock: Clock
    memory: Memory
    sync_after: Callable[[str, float], None]


class Request(Generic[K]):
    """One sync of one object.

    object: the object as it is in the cache, or as this controller's last write returned it. It may be outdated.
    key, name, namespace: of the object; a cluster-scoped one has the namespace "".
    client: for everything else. It writes only while this process is the leader.
    """

    def __init__(self, shared: Shared[K], key: str, item: K) -> None:
        self._shared = shared
        self.key = key
        self.object = item
        self.name = item.metadata.name
        self.namespace = item.metadata.namespace
        self.client = shared.client

    @classmethod
    def of(cls, shared: Shared[K], key: str) -> Request[K] | None:
        """Return the request for the object with this key, or None if it does not exist."""
        item = _read(shared, shared.kind, key, key)
        return None if item is None else cls(shared, key, item)

    @property
    def is_deleted(self) -> bool:
        """True if the object is being deleted: its finalizers are waited for."""
        return self.object.metadata.deletion_timestamp is not None

    def now(self) -> datetime:
        """Return the API server's time in UTC, to compare with its timestamps; in a test, the time of the simulated cluster.

        It is known from the server's responses: the clock of this machine may be wrong by any time. It is never later than the
        server's, and earlier by about two seconds at most.
        """
        return self._shared.clock.now()

    def get(self, kind: type[C], name: str, namespace: str | None = None) -> C | None:
        """Return an object from the caches, None if there is none; by default from the namespace of the request's object.

        Raises ValueError for a kind that this controller neither owns nor watches, whose cache would be empty.
        """
        namespace = self.namespace if namespace is None else namespace
        key = object_key(namespace if kind.resource.namespaced else "", name)
        return _read(self._shared, kind, key, self.key)

    def list(self, kind: type[C], namespace: str | None = None) -> list[C]:
        """Return the cached objects of a kind; by default those in the namespace of the request's object, "" for all.

        Objects that were written and are not in the cache yet are not included. Raises ValueError as `get`.
        """
        cache = _cache(self._shared, kind)
        namespace = self.namespace if namespace is None else namespace
        items: builtins.list[C] = cache.lister().namespaced(namespace).list() if namespace else cache.indexer.list()
        return items

    def owned(self, kind: type[C]) -> builtins.list[C]:
        """Return the cached objects of a kind whose controller is the request's object. Raises ValueError as `get`.

        Objects in another namespace are not included: anybody can write a UID into their owner references.
        """
        items: builtins.list[C] = _cache(self._shared, kind).indexer.by_index(OWNER, self.object.metadata.uid)
        return [each for each in items if not self.namespace or each.metadata.namespace == self.namespace]

    async def apply(self, kind: type[C], body: Mapping[str, Any]) -> C:
        """Create an object, or change the fields of `body` in it, by server-side apply; return the result.

        `body` has `metadata.name`, and the fields that this controller manages: a field that was applied before and is now
        missing is removed, and other fields are left alone. The request's object becomes its controller, so that the garbage
        collector deletes it with it; to change the request's object itself, apply its own name. Nothing is sent if this process
        has applied the same body and the object has not changed since. The first time, the object is read from the server, and
        what this field manager wrote to it by create, update or patch counts as applied before.

        Raises NotOwnedError, after the event ErrResourceExists, for an object with another controller or none; the next sync is
        when that object is deleted. Raises RequeueError if the object is being deleted, or would be created a second time for
        an object that is gone, and ValueError if the body names no object, or one that the request's object cannot own.
        """
        meta = self._metadata_of(kind, body)
        place = kind.resource, object_key(meta.get("namespace", ""), meta["name"])
        is_self = place == (self._shared.resource, self.key)
        if not is_self:
            meta["ownerReferences"] = [controller_reference(self._shared.resource, self.object.metadata)]
        content = {**body, "metadata": meta}
        digest = hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()
        current = self.object if is_self else _read(self._shared, kind, place[1], self.key)
        written = self._shared.memory.written.get(place)
        applied = written if written is not None and written.applied else None
        before: Meta | None = None if current is None else current.metadata
        if not is_self:
            before = await self._owned_before(kind, place[1], None if applied is None else current)
        if (
            applied is not None
            and current is not None
            and applied.applied == digest
            and is_unchanged(applied.item.metadata, current.metadata, by_version=not body.keys() <= _HEAD)
        ):
            return cast("C", current)
        content["metadata"] = meta | ({"uid": before.uid} if before is not None else {})
        # A new object is not forced: one that was created meanwhile may have other managers, and is not ours.
        item = await self.client.apply(
            kind.resource, meta.get("namespace", ""), meta["name"], content, kind, force=before is not None
        )
        self._remember(place, item, digest)
        if before is None:
            self._created(item)
        return item

    async def _owned_before(self, kind: type[Kind], key: str, known: Kind | None) -> Meta | None:
        """Return the metadata of an object that an apply will change, None if it will create it.

        `known` is the object if this process has applied it before; else it is read from the server. So is one that no cache
        shows and that has another owner: this process may have created it for an earlier object of the request's name. Raises
        the errors of `apply`.
        """
        if known is not None:
            is_cached = known is _cache(self._shared, kind).indexer.get(key)
            if is_cached or is_controlled_by(known.metadata, self.object.metadata):
                self._check_owned(kind, known.metadata)
                return known.metadata
        live = await self._live(kind.resource, key)
        if live is None:
            await self._check_creation((kind.resource, key))
        else:
            self._check_owned(kind, live)
            await self._upgrade(kind, live)
        return live

    def _created(self, item: Kind) -> None:
        """Note that an apply has created this object; for subclasses."""

    async def _check_creation(self, place: tuple[Resource, str]) -> None:
        """Raise RequeueError if this object was created before, and its owner is gone; DecodeError as `_confirmed`.

        Otherwise, a stale cache of owners would create objects as fast as the garbage collector deletes them.
        """
        owner = self.object.metadata
        created = self._shared.memory.created.setdefault(owner.uid, set())
        if place in created:
            live = await self._confirmed()
            if live.metadata.deletion_timestamp is not None:
                raise RequeueError(
                    f"{self._shared.resource.kind} {self.key} is being deleted: no child is created again"
                )
        created.add(place)

    async def _upgrade(self, kind: type[Kind], live: LiveMetadata) -> None:
        """Make what we wrote to an object without apply count as applied."""
        entries = as_applied(live.managed_fields or (), self.client.field_manager)
        if entries is not None:
            patch = [
                {"op": "replace", "path": "/metadata/managedFields", "value": entries},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": live.resource_version},
            ]
            await self.client.patch(kind.resource, live.namespace, live.name, patch, content_type=JSON_PATCH)

    def _metadata_of(self, kind: type[Kind], body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of the metadata of a body with its namespace. Raises ValueError."""
        meta = dict(body.get("metadata") or {})
        if kind.resource.namespaced:
            meta.setdefault("namespace", self.namespace)
        owner = self._shared.resource
        if not meta.get("name") or (kind.resource.namespaced and not meta["namespace"]):
            raise ValueError(
                f"a body to apply needs metadata.name, and for a cluster-scoped owner metadata.namespace: {meta}"
            )
        is_self = kind.resource == owner and meta["name"] == self.name
        if owner.namespaced and not is_self and meta.get("namespace") != self.namespace:
            raise ValueError(
                f"{owner.kind} {self.key} cannot own {kind.resource.kind} {meta.get('namespace', '')}/{meta['name']}: the"
                " garbage collector deletes objects whose owner is not in their namespace"
            )
        if "ownerReferences" in meta or "uid" in meta:
            raise ValueError("apply sets the owner and the UID: leave ownerReferences and uid out of the body")
        return meta

    async def _live(self, resource: Resource, key: str) -> LiveMetadata | None:
        namespace, _, name = key.rpartition("/")
        try:
            return (await self.client.get(resource, namespace, name, _Live)).metadata
        except NotFoundError:
            return None

    def _check_owned(self, kind: type[Kind], meta: Meta) -> None:
        if not is_controlled_by(meta, self.object.metadata):
            what = f'{kind.resource.kind} "{meta.name}" already exists and is not managed by'
            problem = f'{what} {self._shared.resource.kind} "{self.name}"'
            self.event("ErrResourceExists", problem, warning=True)
            key = meta_key(meta)
            self._shared.memory.refused[kind.resource, key] = self.key
            cached = _cache(self._shared, kind).indexer.get(key)
            if cached is None or cached.metadata.uid != meta.uid:
                self._shared.sync_after(self.key, TRUST_S + 1.0)  # its deletion may cause no event, as in `_read`
            raise NotOwnedError(problem)
        if meta.deletion_timestamp is not None:
            raise RequeueError(f"{kind.resource.kind} {meta_key(meta)} is being deleted")

    async def delete(self, item: Kind) -> bool:
        """Delete an object in the state that this sync has seen, and with it what it owns; return False if it is gone.

        Raises ConflictError if it has changed since; the key is then retried.
        """
        meta = item.metadata
        try:
            await self.client.delete(
                item.resource,
                meta.namespace,
                meta.name,
                uid=meta.uid,
                resource_version=meta.resource_version,
                propagation="Background",
            )
        except NotFoundError:
            return False
        return True

    async def status(self, status: object) -> None:
        """Write the status of the request's object, unless it is the same.

        `status` is a struct or a mapping of the whole status. Fields with their defaults are written, None removes a field; a
        condition without a transition time keeps that of its type while its status is the same. Raises ConflictError if the
        object has changed since it was read; the key is then retried. Raises TypeError if the kind declares no field `status`.
        """
        if "status" not in self.object.__struct_fields__:
            raise TypeError(f"{type(self.object).__name__} declares no field status, so the current one is not known")
        current, desired = complete(getattr(self.object, "status", None)) or {}, complete(status)
        # `now` may lag by a second or two, and no condition is older than its object.
        now, created = self.now(), self.object.metadata.creation_timestamp
        with_transition_times(current, desired, now if created is None else max(now, created))
        if (patch := difference(current, desired)) is not None:
            await self._patch({"status": patch}, subresource="status")

    def event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event about the request's object; it is written later. Equal events are counted.

        It may be lost: if the process ends, or the server or a proxy rejects it. For one that must not be, use `write_event`.
        """
        about = object_reference(self._shared.resource, self.object.metadata)
        self._shared.recorder.event(about, _type_of(warning=warning), reason, message)

    async def write_event(self, reason: str, message: str, *, fact: str, warning: bool = False) -> None:
        """Write an event about the request's object, and return when the server has it or has rejected it for good.

        All writes of the same `fact` about an object are one event, whichever process sends them. So write the event first, and
        then what it tells about: if the process is killed in between, the next one writes the same event. A fact names what has
        happened, such as the generation or another object's UID; the resourceVersion of an object that changes by itself would
        make several events of one. Caches may be old, most of all those of a new process: if the event would be wrong then,
        read with `client` what it depends on. Raises ApiError if the server may accept it later.
        """
        about = object_reference(self._shared.resource, self.object.metadata)
        await self._shared.recorder.write(about, _type_of(warning=warning), reason, message, fact=fact)

    async def patch(self, body: Mapping[str, Any]) -> None:
        """Change the request's object by a merge patch in the state that this sync has seen, unless it has these values.

        null removes a field, whoever has set it; a list replaces the whole list. Fields that the class does not declare are
        always sent. Raises ConflictError if the object has changed since it was read; the key is then retried.
        """
        if differs(self.object, body):
            await self._patch(dict(body))

    async def finalizer(self, name: str, clean_up: Callable[[], Awaitable[object]]) -> bool:
        """Call `clean_up` before the object disappears: return True if it is being deleted, and the sync is done.

        Adds the finalizer `name` (such as `example.com/kettle`) to an object that is not being deleted, and returns False. In
        an object that is being deleted, calls `clean_up`, which must be idempotent, and then removes the finalizer. What
        `clean_up` raises keeps the object, and the key is retried.

        The first time in a process, an object that has the finalizer is read from the server: the cache of a new process may
        show it although it is gone, and nobody would clean up what the sync then makes for it. Raises RequeueError if so.
        """
        uid, confirmed = self.object.metadata.uid, self._shared.memory.confirmed
        if name in (self.object.metadata.finalizers or ()) and uid not in confirmed:
            self._remember((self._shared.resource, self.key), await self._confirmed())
        finalizers = self.object.metadata.finalizers or ()
        if not self.is_deleted:
            if name not in finalizers:
                await self._patch({"metadata": {"finalizers": [*finalizers, name]}})
            confirmed.add(uid)
        elif name in finalizers:
            await clean_up()
            with suppress(NotFoundError):  # an earlier sync has removed it, and the cache does not show that yet
                await self._patch({"metadata": {"finalizers": [each for each in finalizers if each != name]}})
        return self.is_deleted

    async def _confirmed(self) -> K:
        """Return the object as the server has it.

        Raises RequeueError if it is gone, or another object has its name, and DecodeError if the class no longer fits it: the
        cache then has its last state that could be decoded.
        """
        shared = self._shared
        try:
            live = await self.client.get(shared.resource, self.namespace, self.name, shared.kind)
        except NotFoundError:
            live = None
        if live is None or live.metadata.uid != self.object.metadata.uid:
            raise RequeueError(f"{shared.resource.kind} {self.key} is gone, though its cache still has it")
        return live

    async def _patch(self, body: dict[str, Any], subresource: str | None = None) -> None:
        """Send a merge patch of the object in the state that this sync has seen."""
        meta = self.object.metadata
        given: dict[str, Any] = body.get("metadata", {})
        body = body | {"metadata": given | {"uid": meta.uid, "resourceVersion": meta.resource_version}}
        kind, resource = self._shared.kind, self._shared.resource
        if subresource is None:
            item = await self.client.patch(resource, self.namespace, self.name, body, kind)
        else:
            item = await self.client.patch(resource, self.namespace, self.name, body, kind, subresource=subresource)
        self._remember((resource, self.key), item)

    def _remember(self, place: tuple[Resource, str], item: Kind, applied: str = "") -> None:
        """Remember a response until the cache shows it, and the digest of an applied body for as long as the object exists."""
        shared, before = self._shared, self._shared.memory.written.get(place)
        cached = _cache(shared, type(item)).indexer.get(place[1])
        based_on = "" if cached is None else cached.metadata.resource_version
        kept = applied or (before.applied if before is not None else "")
        shared.memory.written[place] = Written(item, based_on, shared.clock.monotonic(), kept)
        if cached is None:
            shared.sync_after(self.key, TRUST_S + 1.0)  # as in `_read`
        if place == (shared.resource, self.key):
            self.object = cast("K", item)


def _cache(shared: Shared[Any], kind: type[Kind]) -> SharedIndexInformer[Any]:
    cache = shared.caches.get(kind)
    if cache is None:
        raise ValueError(
            f"the controller of {shared.kind.__name__} neither owns nor watches {kind.__name__}: name it in owns= or watches="
        )
    return cache


def _read(shared: Shared[Any], kind: type[C], key: str, sync: str) -> C | None:
    """Return an object: the newer one of the cache and of the last response.

    If it is the response, the key `sync` is synced again after TRUST_S: if the object was deleted before the cache showed it,
    no event arrives.
    """
    now = shared.clock.monotonic()
    cached: C | None = _cache(shared, kind).indexer.get(key)
    written = shared.memory.written.get((kind.resource, key))
    if written is None or not isinstance(written.item, kind) or _is_shown(written, cached, now):
        return cached
    # Each time, because an earlier retry of the key replaces this timer. A timer may be early.
    shared.sync_after(sync, written.at + TRUST_S + 1.0 - now)
    return written.item


def _is_shown(written: Written, cached: Kind | None, now: float) -> bool:
    """Return True if the cache is as new as the response, or should be."""
    if now - written.at >= TRUST_S:
        return True
    if cached is None:
        return bool(written.based_on)  # it was deleted
    shown, number = (
        version_number(cached.metadata.resource_version),
        version_number(written.item.metadata.resource_version),
    )
    if shown is None or number is None:
        return cached.metadata.resource_version != written.based_on
    return shown >= number


def is_unchanged(applied: Metadata, current: Metadata, *, by_version: bool = True) -> bool:
    """Return True if nothing that an apply could restore has changed since.

    The generation of a kind that has one rises with each change of its spec. Other kinds are compared by resourceVersion; with
    `by_version=False`, if only metadata was applied, by metadata: nodes, for example, change their status all the time.
    """
    if not applied.generation and by_version:
        return bool(applied.uid == current.uid and applied.resource_version == current.resource_version)
    names = ("uid", "generation", "labels", "annotations", "finalizers", "owner_references")
    return all(getattr(applied, name) == getattr(current, name) for name in names)
