"""What holds for every controller: the checks of `simulate`, on the writes that the server accepts."""

from collections.abc import Callable, Container, Mapping
from typing import Any, Final

import msgspec

from kit.model.server import ModelServer, Write
from kit.model.storage import Body, Change, Collection, Feed

_ENDED: Final = {"Succeeded", "Failed"}


class WriteChecks:
    """Checks each accepted write of the clients in `controllers`.

    - Duplicates: an owner has no more than `identical_children` identical children with generated names. Children that are
      being deleted, or whose phase is Succeeded or Failed, do not count. None: any number.
    - Foreign objects: no write to an object whose controller reference somebody else has set, and no deletion of one.
    """

    def __init__(
        self,
        server: ModelServer,
        controllers: Container[str],
        violated: Callable[[str], None],
        *,
        identical_children: int | None,
    ) -> None:
        """`violated` is called with a description."""
        self._server = server
        self._controllers = controllers
        self._violated = violated
        self._identical_children = identical_children
        self._referrers: dict[tuple[str, str], str] = {}
        """The client that made an owner (its UID) the controller of an object (its UID)."""
        collections = server.storage.collections.values()
        self._feeds = [(each, Feed(server.storage, each.kind.resource)) for each in collections]
        server.on_change.append(self._check)

    def _check(self) -> None:
        write = self._server.writes[-1]
        for collection, feed in self._feeds:
            for change in feed.news():
                self._check_owner(write, change)
                if change.old is None and write.client in self._controllers:
                    self._check_identical(write, change.new.body, collection)

    def _check_owner(self, write: Write, change: Change) -> None:
        new, old = change.new.body, None if change.old is None else change.old.body
        uid, owner = new["metadata"]["uid"], _controller_of(new)
        before = _controller_of(old) if old is not None else None
        if owner is not None and (before is None or before["uid"] != owner["uid"]):
            self._referrers[uid, owner["uid"]] = write.client
        if write.client not in self._controllers or before is None:
            return
        if self._referrers.get((uid, before["uid"])) not in self._controllers:
            name = f"{before['kind']} {before['name']}"
            self._violated(f"{write.client} wrote to {_named(new)}, which {name} controls: {write.method} {write.path}")

    def _check_identical(self, write: Write, created: Body, collection: Collection) -> None:
        identity, owner = _identity(created), _owner_of(created)
        if identity is None or owner is None or self._identical_children is None:
            return
        count = sum(_identity(each.body) == identity for each in collection.objects.values())
        if count > self._identical_children:
            whose = f"{owner['kind']} {owner['name']}"
            self._violated(f"{write.client} created {_named(created)}: {whose} has {count} identical children")


def _controller_of(body: Body) -> Mapping[str, Any] | None:
    owners = body["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def _owner_of(body: Body) -> Mapping[str, Any] | None:
    return _controller_of(body) or next(iter(body["metadata"].get("ownerReferences") or ()), None)


def _identity(body: Body) -> bytes | None:
    """Return what identical children have in common; None for an object without owner or generated name, or at its end."""
    meta, owner = body["metadata"], _owner_of(body)
    ended = "deletionTimestamp" in meta or (body.get("status") or {}).get("phase") in _ENDED
    if owner is None or not meta.get("generateName") or ended:
        return None
    rest = {name: value for name, value in body.items() if name not in {"metadata", "status"}}
    return msgspec.json.encode([owner["uid"], meta["generateName"], meta.get("labels"), rest])


def _named(body: Body) -> str:
    return f"{body['kind']} {body['metadata'].get('namespace', '')}/{body['metadata']['name']}"
