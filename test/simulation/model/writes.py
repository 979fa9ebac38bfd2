"""Creates, updates, patches and deletes: what the server does to an object on its way into the storage, and when it refuses.

Every method works on the newest version and stores its result in the same stretch, so conflicts come from versions that
clients know, never from a race inside the server.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from hack.kubernetes_versions import DELETION_TIMESTAMP_MOVES, OLDEST, Kubernetes
from simulation.model import rules
from simulation.model.patches import json_patch, merge_patch, strategic_merge_patch
from simulation.model.refusals import (
    Refusal,
    already_exists,
    bad_request,
    conflict,
    details_of,
    invalid,
    must_say_version,
    not_found,
    other_uid,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from simulation.model.kinds import Kind
    from simulation.model.storage import Body, Collection, Key, Storage, Version

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


class Writer:
    """The writing half of a server of this version. `now` tells the time; `random` makes the ends of generated names."""

    def __init__(
        self, storage: Storage, now: Callable[[], datetime], random: Random, kubernetes: Kubernetes = OLDEST
    ) -> None:
        self._kubernetes = kubernetes
        self._storage = storage
        self._now = now
        self._random = random

    def create(self, collection: Collection, namespace: str, body: Body, *, dry_run: bool) -> bytes:
        """POST. Raises Refusal."""
        kind = collection.kind
        meta = self._checked_metadata(kind, namespace, body)
        if meta.get("resourceVersion"):
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"] + "".join(self._random.choice(_SUFFIX) for _ in range(5))
        name = meta.get("name", "")
        if not name:
            message = "Required value: name or generateName is required"
            raise invalid(kind, name, "metadata.name", "FieldValueRequired", message)
        if kind.resource.namespaced:
            self._check_namespace(kind, namespace, name)
        taken = collection.objects.get((namespace, name))
        if taken is not None:
            raise already_exists(kind, name, going="deletionTimestamp" in taken.body["metadata"])
        for field in rules.SERVER_OWNED:
            if field != "generation":
                meta.pop(field, None)
        meta |= {"uid": self._storage.new_uid(), "creationTimestamp": self._time()}
        if kind.custom:
            meta["generation"] = 1
        complete = rules.pruned(
            kind, kind.head | {"metadata": meta} | rules.without(body, "kind", "apiVersion", "metadata")
        )
        if kind.resource.plural == "pods":
            complete["spec"] = rules.known_to(self._kubernetes, complete.get("spec") or {})
        self._set_first_status(kind, complete)
        if dry_run:
            return msgspec.json.encode(complete)
        return self._storage.put(collection, (namespace, name), complete).raw

    def update(
        self, collection: Collection, key: Key, body: Body, *, subresource: str = "", dry_run: bool = False
    ) -> tuple[int, bytes]:
        """PUT: answers the code and the object. Raises Refusal."""
        kind, (namespace, name) = collection.kind, key
        meta = self._checked_metadata(kind, namespace, body)
        if meta.get("name", name) != name:
            raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
        old = collection.objects.get(key)
        if old is None:
            if meta.get("uid"):
                raise other_uid(kind, namespace, name, meta["uid"], "")
            if not kind.creates_on_update or subresource:
                raise not_found(kind, name)
            return 201, self.create(collection, namespace, body | {"metadata": meta}, dry_run=dry_run)
        version = meta.get("resourceVersion", "")
        if not version and not kind.unconditional:
            raise must_say_version(kind, name)
        if meta.get("uid", old.body["metadata"]["uid"]) != old.body["metadata"]["uid"]:
            raise other_uid(kind, namespace, name, meta["uid"], old.body["metadata"]["uid"])
        return 200, self._replace(collection, old, body | {"metadata": meta}, subresource, dry_run=dry_run)

    def patch(
        self,
        collection: Collection,
        key: Key,
        content_type: str,
        patch: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> bytes:
        """PATCH. Raises Refusal."""
        kind = collection.kind
        old = collection.objects.get(key)
        if old is None:
            raise not_found(kind, key[1])
        match content_type:
            case "application/merge-patch+json":
                body = merge_patch(old.body, patch)
            case "application/json-patch+json":
                body = json_patch(old.body, patch)
            case "application/strategic-merge-patch+json" if not kind.custom:
                body = strategic_merge_patch(old.body, patch)
            case _:
                raise Refusal(
                    415,
                    "UnsupportedMediaType",
                    "the body of the request was in an unknown format - accepted media types include: "
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
                )
        meta = self._checked_metadata(kind, key[0], body)
        if meta.get("name") != key[1]:
            raise bad_request(
                f"the name of the object ({meta.get('name')}) does not match the name on the URL ({key[1]})"
            )
        return self._replace(collection, old, body | {"metadata": meta}, subresource, dry_run=dry_run)

    def delete(self, collection: Collection, key: Key, options: Mapping[str, Any]) -> bytes:
        """DELETE: answers a Status or the object. Raises Refusal."""
        kind = collection.kind
        old = collection.objects.get(key)
        if old is None:
            raise not_found(kind, key[1])
        rules.check_preconditions(kind, old, options.get("preconditions") or {})
        meta = dict(old.body["metadata"])
        finalizers = rules.finalizers_after(meta.get("finalizers") or [], options.get("propagationPolicy", ""))
        if kind.resource.plural == "namespaces":
            return self._end_namespace(collection, old)
        grace = rules.grace(kind, old, options.get("gracePeriodSeconds"))
        if not finalizers and grace == 0:
            if not kind.graceful:
                self._storage.remove(collection, key)
                return rules.success(kind, old)
            # Such a deletion is two changes, and watchers hear of both.
            last = meta | {"deletionTimestamp": self._leaves_at(meta, 0), "deletionGracePeriodSeconds": 0}
            announced = self._storage.put(collection, key, old.body | {"metadata": last})
            self._storage.remove(collection, key)
            return announced.raw
        remaining = meta.get("deletionGracePeriodSeconds")
        if remaining is not None and grace >= remaining and finalizers == meta.get("finalizers", []):
            return old.raw
        if remaining is None and "generation" in meta:
            meta["generation"] += 1
        if remaining is None or grace < remaining:
            meta |= {"deletionTimestamp": self._leaves_at(meta, grace), "deletionGracePeriodSeconds": grace}
        if finalizers:
            meta["finalizers"] = finalizers
        return self._storage.put(collection, key, old.body | {"metadata": meta}).raw

    def _end_namespace(self, collection: Collection, old: Version) -> bytes:
        """Announce the end of a namespace; its controller removes it when it is empty."""
        if "deletionTimestamp" in old.body["metadata"]:
            return old.raw
        meta = old.body["metadata"] | {"deletionTimestamp": self._time()}
        ending = old.body | {"metadata": meta, "status": {"phase": "Terminating"}}
        return self._storage.put(collection, old.key, ending).raw

    def bind(self, collection: Collection, key: Key, body: Body) -> bytes:
        """POST of a pod's binding: the pod has a node from now on. Raises Refusal."""
        old = collection.objects.get(key)
        if old is None:
            raise not_found(collection.kind, key[1])
        node = body["target"]["name"]
        if old.body["spec"].get("nodeName"):
            why = f'pod {key[1]} is already assigned to node "{old.body["spec"]["nodeName"]}"'
            message = f'Operation cannot be fulfilled on pods/binding "{key[1]}": {why}'
            raise Refusal(409, "Conflict", message, {"name": key[1], "kind": "pods/binding"})
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._time()}
        status = strategic_merge_patch(old.body["status"], {"conditions": [scheduled]})
        changed = {"metadata": dict(old.body["metadata"]), "spec": old.body["spec"] | {"nodeName": node}}
        self._storage.put(collection, key, old.body | changed | {"status": status})
        return msgspec.json.encode(
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        )

    def _replace(self, collection: Collection, old: Version, body: Body, subresource: str, *, dry_run: bool) -> bytes:
        """Put `body` in the place of `old`, as far as the client may change it. Raises Refusal."""
        kind, name = collection.kind, old.key[1]
        before, meta = old.body["metadata"], body["metadata"]
        given = meta.get("resourceVersion", "")
        if given and given != before["resourceVersion"]:
            raise conflict(kind, name)
        if meta.get("uid", before["uid"]) != before["uid"]:
            message = f'Invalid value: "{meta["uid"]}": field is immutable'
            raise invalid(kind, name, "metadata.uid", "FieldValueInvalid", message, told=2)
        rules.check_finalizers(kind, name, before, meta)
        new = rules.merged(kind, old.body, body, subresource)
        new_meta = new["metadata"] | {"resourceVersion": before["resourceVersion"]}
        if kind.custom and rules.without(new, "metadata", "status") != rules.without(old.body, "metadata", "status"):
            new_meta["generation"] = before["generation"] + 1
        new = rules.pruned(kind, new | {"metadata": new_meta})
        if dry_run or new == old.body:
            return msgspec.json.encode(new)
        if rules.is_finished(new["metadata"]):
            self._storage.remove(collection, old.key)
            return msgspec.json.encode(new)
        return self._storage.put(collection, old.key, new).raw

    def _checked_metadata(self, kind: Kind, namespace: str, body: Any) -> dict[str, Any]:
        """A copy of the metadata, with the namespace of the request. Raises Refusal."""
        if not isinstance(body, dict):
            raise bad_request("the object provided is unrecognized")
        if body.get("kind", kind.resource.kind) != kind.resource.kind:
            raise bad_request(f"the object provided is unrecognized (must be of type {kind.resource.kind})")
        meta: dict[str, Any] = dict(body.get("metadata") or {})
        if kind.resource.namespaced:
            if meta.get("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            meta["namespace"] = namespace
        return meta

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        found = self._storage.collections["namespaces"]
        home = found.objects.get(("", namespace))
        if home is None:
            raise not_found(found.kind, namespace)
        if "deletionTimestamp" in home.body["metadata"]:
            because = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            message = f'{kind.resource} "{name}" is forbidden: {because}'
            details = details_of(kind, name) | {"causes": [cause | {"field": "metadata.namespace"}]}
            raise Refusal(403, "Forbidden", message, details)

    def _set_first_status(self, kind: Kind, body: Body) -> None:
        if kind.status:
            body.pop("status", None)
        match kind.resource.plural:
            case "pods":
                body["status"] = {"phase": "Pending"}
            case "services":
                body["status"] = {"loadBalancer": {}}
            case "namespaces":
                body["spec"] = {"finalizers": ["kubernetes"]}
                body["status"] = {"phase": "Active"}
            case _:
                pass

    def _leaves_at(self, meta: Body, grace: int) -> str:
        """When an object has to be gone. A second deletion shortens the grace; it still runs from the first one."""
        if "deletionTimestamp" not in meta:
            return self._time(grace)
        before = datetime.fromisoformat(meta["deletionTimestamp"])
        leaves_at = before + timedelta(seconds=grace - int(meta.get("deletionGracePeriodSeconds") or 0))
        if self._kubernetes.has(DELETION_TIMESTAMP_MOVES):
            leaves_at = max(leaves_at, self._now())
        return _text(leaves_at)

    def _time(self, later: float = 0.0) -> str:
        return _text(self._now() + timedelta(seconds=later))


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
