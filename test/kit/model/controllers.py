"""The controllers of the model cluster that an operator depends on: garbage collector and namespace controller.

They use the server like any client, so its rules (grace periods, finalizers) apply to them too.
"""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

from kit.model.kinds import Kind
from kit.model.rules import FOREGROUND, ORPHAN
from kit.model.server import ModelServer
from kit.model.storage import Version
from kit.virtual_loop import NETWORK


class GarbageCollector:
    """Deletes objects without remaining owners, and executes foreground and orphaning deletions, each after a delay.

    It also empties and removes namespaces that are being deleted.
    """

    def __init__(self, server: ModelServer, random: Random, *, slowest_s: float = 2.0) -> None:
        self._server = server
        self._random = random
        self._slowest_s = slowest_s
        self._due = False
        server.on_change.append(self._schedule)

    def _schedule(self) -> None:
        if not self._due:
            self._due = True
            loop = asyncio.get_running_loop()
            loop.call_later(self._random.uniform(0.01, self._slowest_s), self._collect, context=NETWORK)

    def _collect(self) -> None:
        self._due = False
        alive = {
            (version.body["metadata"].get("namespace"), version.body["metadata"]["uid"])
            for _, version in self._everything()
        }
        for kind, version in self._everything():
            meta = version.body["metadata"]
            owners = meta.get("ownerReferences") or []
            # An owner is in the namespace of the child, or cluster-scoped.
            places = (meta.get("namespace"), None)
            if owners and not any((place, owner["uid"]) in alive for owner in owners for place in places):
                self._delete(kind, version)
            if "deletionTimestamp" in meta:
                self._finish(kind, version)

    def _finish(self, kind: Kind, version: Version) -> None:
        finalizers = version.body["metadata"].get("finalizers") or []
        if ORPHAN in finalizers:
            for child_kind, child in self._children(version):
                self._disown(child_kind, child, version)
            self._take_finalizer(kind, version, ORPHAN)
        elif FOREGROUND in finalizers:
            waiting = False
            for child_kind, child in self._children(version):
                waiting |= any(owner.get("blockOwnerDeletion") for owner in child.body["metadata"]["ownerReferences"])
                self._delete(child_kind, child)
            if not waiting:
                self._take_finalizer(kind, version, FOREGROUND)
        elif kind.resource.plural == "namespaces":
            content = [(each, found) for each, found in self._everything() if found.key[0] == version.key[1]]
            for each, found in content:
                self._delete(each, found)
            if not content:
                self._server.storage.remove(self._server.storage.collections["namespaces"], version.key)

    def _children(self, owner: Version) -> list[tuple[Kind, Version]]:
        uid, place = owner.body["metadata"]["uid"], owner.body["metadata"].get("namespace")
        return [
            (kind, version)
            for kind, version in self._everything()
            if version.body["metadata"].get("namespace") == place
            and any(each["uid"] == uid for each in version.body["metadata"].get("ownerReferences") or [])
        ]

    def _everything(self) -> Iterator[tuple[Kind, Version]]:
        for collection in self._server.storage.collections.values():
            for version in [*collection.objects.values()]:
                yield collection.kind, version

    def _delete(self, kind: Kind, version: Version) -> None:
        if "deletionTimestamp" not in version.body["metadata"]:
            options = {"preconditions": {"uid": version.body["metadata"]["uid"]}}
            self._send("DELETE", kind, version, options)

    def _disown(self, kind: Kind, child: Version, owner: Version) -> None:
        meta = child.body["metadata"]
        left = [each for each in meta["ownerReferences"] if each["uid"] != owner.body["metadata"]["uid"]]
        self._send("PATCH", kind, child, {"metadata": {"uid": meta["uid"], "ownerReferences": left}})

    def _take_finalizer(self, kind: Kind, version: Version, finalizer: str) -> None:
        left = [each for each in version.body["metadata"]["finalizers"] if each != finalizer]
        self._send("PATCH", kind, version, {"metadata": {"finalizers": left}})

    def _send(self, method: str, kind: Kind, version: Version, body: dict[str, Any]) -> None:
        self._server.ask("garbage-collector", method, kind.resource.path(*version.key), body)
