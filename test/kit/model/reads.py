"""GET of objects and collections: the version of a list (SV-01, SV-02), pages, continue tokens."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from kit.model.refusals import (
    Refusal,
    bad_request,
    expired,
    forbidden,
    future_version,
    invalid_options,
    no_number,
    not_found,
    too_large,
)
from kit.model.selectors import matcher
from kit.model.storage import Collection, Key, Storage, Version
from kit.model.versions import (
    FUTURE_LISTS_TIME_OUT,
    INITIAL_EVENTS_ARE_CHECKED,
    LIST_VERSION_IS_CHECKED,
    LISTS_FROM_SNAPSHOTS,
)

TOKEN_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
COMPACTED = "The resourceVersion for the provided list is too old."

_MATCH = "resourceVersionMatch"
_INCONSISTENT = -1
"""The version in a token that continues with the latest state instead of a snapshot."""


class _Token(msgspec.Struct):
    """A continue token: the version of the list, and the next key relative to the list's."""

    v: str
    rv: int
    start: str


@dataclass(frozen=True, slots=True)
class _View:
    """The objects from which a list is built. `start`: the first key."""

    rv: int
    objects: Mapping[Key, Version]
    limit: int = 0
    start: str = ""


def read_version(text: str) -> int:
    """Return the resourceVersion of a query; "" counts as 0. Raises Refusal."""
    if not text:
        return 0
    if not text.isdecimal():
        raise Refusal(500, "", no_number(text))
    return int(text)


def get(collection: Collection, namespace: str, name: str, query: Mapping[str, str]) -> bytes:
    """Return one object, by a quorum read, or from the watch cache if the query has a version. Raises Refusal."""
    rv = read_version(query.get("resourceVersion", ""))
    if rv > collection.seen:
        raise too_large(rv, collection.seen)
    objects = collection.cached() if "resourceVersion" in query else collection.objects
    version = objects.get((namespace, name))
    if version is None:
        raise not_found(collection.kind, name)
    return version.raw


Lag = Callable[["Collection", int], int]
"""Return the version up to which a watch cache has caught up, for a collection and the oldest acceptable version."""


def no_lag(collection: Collection, _oldest: int) -> int:
    """A cache without lag."""
    return collection.seen


class Lister:
    """Serves lists: chooses their version, and builds pages."""

    def __init__(self, storage: Storage, kubernetes: int) -> None:
        self._storage = storage
        self._has_snapshots = LISTS_FROM_SNAPSHOTS.is_in(kubernetes)
        self._waits_for_future = FUTURE_LISTS_TIME_OUT.is_in(kubernetes)
        self._checks_version = LIST_VERSION_IS_CHECKED.is_in(kubernetes)
        self._knows_initial_events = INITIAL_EVENTS_ARE_CHECKED.is_in(kubernetes)

    def page(self, collection: Collection, namespace: str, query: Mapping[str, str], lag: Lag = no_lag) -> bytes:
        self._check(query)
        view = self._view(collection, query, lag)
        selected = matcher(collection.kind, query)
        root = f"{namespace}/" if namespace or not collection.kind.resource.namespaced else ""
        versions = sorted(
            (
                version
                for version in view.objects.values()
                if (not namespace or version.key[0] == namespace) and (selected is None or selected(version))
            ),
            key=lambda version: version.path,
        )
        if view.start:
            versions = [version for version in versions if version.path.removeprefix(root) >= view.start]
        token, remaining = "", 0
        if view.limit and len(versions) > view.limit:
            remaining = len(versions) - view.limit
            versions = versions[: view.limit]
            token = _write_token(view.rv, f"{versions[-1].path.removeprefix(root)}\0")
        return _list_body(collection, view.rv, versions, token, remaining=remaining if selected is None else 0)

    def _view(self, collection: Collection, query: Mapping[str, str], lag: Lag) -> _View:
        storage = self._storage
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        limit, rv = int(query.get("limit") or 0), self._read_version(version)
        if query.get("continue"):
            if rv:
                raise bad_request("specifying resource version is not allowed when using continue")
            token = _read_token(query["continue"])
            if version and self._has_snapshots:
                limit = 0
            if token.rv == _INCONSISTENT:
                return _View(storage.rv, collection.objects, limit, token.start)
            if self._is_forgotten(collection, token.rv):
                raise expired(TOKEN_EXPIRED, token=_write_token(_INCONSISTENT, token.start))
            return _View(token.rv, collection.at(token.rv), limit, token.start)
        if match == "Exact" or (limit and rv and not match):
            return self._exact(collection, rv, limit)
        if not version or (limit and rv):  # a quorum read
            if rv > storage.rv:
                raise too_large(rv, storage.rv)
            return _View(storage.rv, collection.objects, limit)
        if rv > collection.seen:
            raise too_large(rv, collection.seen)
        seen = lag(collection, max(rv, storage.compacted))
        objects = collection.cached() if seen == collection.seen else collection.at(seen)
        return _View(seen, objects)  # the watch cache ignores the limit (SV-01)

    def _exact(self, collection: Collection, rv: int, limit: int) -> _View:
        if rv > self._storage.rv:
            raise too_large(rv, self._storage.rv) if self._waits_for_future else future_version()
        if self._is_forgotten(collection, rv):
            raise expired(COMPACTED)
        return _View(rv, collection.at(rv), limit)

    def _check(self, query: Mapping[str, str]) -> None:
        version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        mistakes = []
        if match and not version:
            mistakes.append(forbidden(_MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if match and query.get("continue"):
            mistakes.append(forbidden(_MATCH, "resourceVersionMatch is forbidden when continue is provided"))
        if match == "Exact" and version == "0":
            mistakes.append(forbidden(_MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
        if self._knows_initial_events and "sendInitialEvents" in query:
            mistakes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
        if mistakes:
            raise invalid_options(*mistakes)

    def _is_forgotten(self, collection: Collection, rv: int) -> bool:
        """Whether neither etcd nor a snapshot still has the objects of this version."""
        return rv < self._storage.compacted and not (self._has_snapshots and rv >= collection.snapshots_from)

    def _read_version(self, text: str) -> int:
        if text and not text.isdecimal() and self._checks_version:
            raise bad_request(f"invalid resource version: {no_number(text)}")
        return read_version(text)


def _list_body(collection: Collection, rv: int, versions: list[Version], token: str, *, remaining: int) -> bytes:
    kind = collection.kind
    meta: dict[str, object] = {"resourceVersion": str(rv)}
    if token or kind.custom:
        meta["continue"] = token
    if remaining:
        meta["remainingItemCount"] = remaining
    head = {"kind": f"{kind.resource.kind}List", "apiVersion": kind.resource.api_version, "metadata": meta}
    # Items of custom resources have `kind` and `apiVersion`, those of built-in types do not.
    cut = 0 if kind.custom else len(msgspec.json.encode(kind.head))
    items = b",".join(version.raw if not cut else b"{" + version.raw[cut:] for version in versions)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def _write_token(rv: int, start: str) -> str:
    token = _Token("meta.k8s.io/v1", rv, start)
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _read_token(text: str) -> _Token:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    token.start = token.start.removeprefix("/")  # some servers write a leading slash; accept both forms
    return token
