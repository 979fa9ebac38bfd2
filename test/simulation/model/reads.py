"""GET of one object and of collections: which versions a list is answered from (SV-01, SV-02), pages, continue tokens."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from simulation.model.refusals import bad_request, expired, invalid_options, not_found, too_large
from simulation.model.selectors import matcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulation.model.storage import Collection, Key, Storage, Version

TOKEN_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
COMPACTED = "The resourceVersion for the provided list is too old."

_INCONSISTENT = -1
"""The version in a token that goes on with whatever there is."""


class _Token(msgspec.Struct):
    """What a continue token says: the version that the list shows, and the last object that was sent."""

    rv: int
    start: str


@dataclass(frozen=True, slots=True)
class _View:
    """What a list is answered from. `start`: only what sorts after it."""

    rv: int
    objects: Mapping[Key, Version]
    limit: int = 0
    start: str = ""


def read_version(text: str) -> int:
    """A resourceVersion of a query; "" counts as 0. Raises Refusal."""
    if not text:
        return 0
    if not text.isdecimal():
        raise bad_request(f"invalid resource version {text!r}")
    return int(text)


def get(collection: Collection, namespace: str, name: str) -> bytes:
    """One object, by a quorum read. Raises Refusal."""
    version = collection.objects.get((namespace, name))
    if version is None:
        raise not_found(collection.kind, name)
    return version.raw


Lag = Callable[["Collection", int], int]
"""Answers, for a collection and the oldest version that will do, the version up to which a watch cache has seen it."""


def no_lag(collection: Collection, _oldest: int) -> int:
    """The cache has seen all that it can see."""
    return collection.seen


def list_objects(
    storage: Storage, collection: Collection, namespace: str, query: Mapping[str, str], lag: Lag = no_lag
) -> bytes:
    """A page of a collection. Raises Refusal."""
    view = _view(storage, collection, query, lag)
    selected = matcher(collection.kind, query)
    versions = sorted(
        (
            version
            for version in view.objects.values()
            if (not namespace or version.key[0] == namespace) and (selected is None or selected(version))
        ),
        key=lambda version: version.path,
    )
    if view.start:
        versions = [version for version in versions if version.path > view.start]
    token, remaining = "", 0
    if view.limit and len(versions) > view.limit:
        remaining = len(versions) - view.limit
        versions = versions[: view.limit]
        token = _write_token(_Token(view.rv, versions[-1].path))
    return _list_body(collection, view.rv, versions, token, remaining=remaining if selected is None else 0)


def _view(storage: Storage, collection: Collection, query: Mapping[str, str], lag: Lag) -> _View:
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    limit, rv = int(query.get("limit") or 0), read_version(version)
    if match and not version:
        raise invalid_options("Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")
    if query.get("continue"):
        if rv:
            raise bad_request("specifying resource version is not allowed when using continue")
        token = _read_token(query["continue"])
        if token.rv == _INCONSISTENT:
            return _View(storage.rv, collection.objects, limit, token.start)
        if token.rv < storage.compacted:
            raise expired(TOKEN_EXPIRED, token=_write_token(_Token(_INCONSISTENT, token.start)))
        return _View(token.rv, collection.at(token.rv), limit, token.start)
    if match == "Exact" or (limit and rv and not match):
        return _exact(storage, collection, rv, limit)
    if not version or (limit and rv):  # a quorum read
        if rv > storage.rv:
            raise too_large(rv, storage.rv)
        return _View(storage.rv, collection.objects, limit)
    if rv > collection.seen:
        raise too_large(rv, collection.seen)
    seen = lag(collection, max(rv, storage.compacted))
    objects = collection.cached() if seen == collection.seen else collection.at(seen)
    return _View(seen, objects)  # the watch cache ignores the limit (SV-01)


def _exact(storage: Storage, collection: Collection, rv: int, limit: int) -> _View:
    if rv < storage.compacted:
        raise expired(COMPACTED)
    if rv > storage.rv:
        raise too_large(rv, storage.rv)
    return _View(rv, collection.at(rv), limit)


def _list_body(collection: Collection, rv: int, versions: list[Version], token: str, *, remaining: int) -> bytes:
    kind = collection.kind
    meta: dict[str, object] = {"resourceVersion": str(rv)}
    if token or kind.custom:
        meta["continue"] = token
    if remaining:
        meta["remainingItemCount"] = remaining
    head = {"kind": f"{kind.resource.kind}List", "apiVersion": kind.resource.api_version, "metadata": meta}
    # Items of the built-in types come without their kind; those of custom resources with it.
    cut = 0 if kind.custom else len(msgspec.json.encode(kind.head))
    items = b",".join(version.raw if not cut else b"{" + version.raw[cut:] for version in versions)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def _write_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _read_token(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Token)
    except (ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
