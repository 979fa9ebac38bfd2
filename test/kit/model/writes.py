"""Creates, updates, patches and deletes: how the server changes an object before it is stored, and when it rejects it.

Every method reads the newest version and stores its result without an await in between, so conflicts come from outdated
versions of clients, never from races inside the server.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec

from kit.model import rules
from kit.model.apply import Managers, Merger
from kit.model.kinds import Kind
from kit.model.metadata import GENERATED_BASE, mistakes_in
from kit.model.patches import json_patch, merge_patch, strategic_merge_patch
from kit.model.refusals import (
    Refusal,
    already_exists,
    bad_request,
    conflict,
    details_of,
    invalid,
    must_say_version,
    not_found,
    other_uid,
    wrong,
)
from kit.model.storage import Body, Collection, Key, Storage, Version
from kit.model.versions import (
    DELETE_ANSWERS_LAST_VERSION,
    DELETION_TIMESTAMP_MOVES,
    NAMESPACE_NAME_LABEL,
    POD_GENERATION,
    PUT_OF_GONE_IS_NOT_FOUND,
    SERVICE_DELETE_ANSWERS_OBJECT,
    SERVICES_ARE_GENERIC,
    VALUES_ARE_PRINTED_AS_JSON,
)

_WITH_GENERATION = frozenset({"deployments", "jobs", "statefulsets"})
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_NOT_FOR_CUSTOM = (
    "the body of the request was in an unknown format - accepted media types include: "
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
)


class Writer:
    """The write path of the server. `now` returns the time; `random` generates name suffixes."""

    def __init__(self, storage: Storage, now: Callable[[], datetime], random: Random, kubernetes: int) -> None:
        self._storage = storage
        self._now = now
        self._random = random
        self._kubernetes = kubernetes

    def create(self, collection: Collection, namespace: str, body: Body, *, dry_run: bool) -> bytes:
        kind = collection.kind
        meta = self._checked_metadata(kind, namespace, body)
        if meta.get("resourceVersion"):
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generated(meta["generateName"])
        name = meta.get("name", "")
        if kind.resource.namespaced:
            self._check_namespace(kind, namespace, name)
        mistakes = mistakes_in(kind, meta, self._kubernetes)
        if mistakes:
            raise invalid(kind, name, *mistakes)
        taken = collection.objects.get((namespace, name))
        if taken is not None:
            raise already_exists(kind, name, going="deletionTimestamp" in taken.body["metadata"])
        for field in rules.SERVER_OWNED:
            if field != "generation":
                meta.pop(field, None)
        meta |= {"uid": self._storage.new_uid(), "creationTimestamp": self._time()}
        if kind.resource.plural == "namespaces" and NAMESPACE_NAME_LABEL.is_in(self._kubernetes):
            meta["labels"] = (meta.get("labels") or {}) | {"kubernetes.io/metadata.name": name}
        if self._counts_generations(kind):
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
        self,
        collection: Collection,
        key: Key,
        body: Body,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> tuple[int, bytes]:
        """PUT: return the code and the object. Raises Refusal."""
        kind, (namespace, name) = collection.kind, key
        meta = self._checked_metadata(kind, namespace, body)
        if meta.get("name", name) != name:
            raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
        old = collection.objects.get(key)
        is_old_service = kind.resource.plural == "services" and not SERVICES_ARE_GENERIC.is_in(self._kubernetes)
        if old is None:
            creates = kind.creates_on_update and not subresource and not is_old_service
            can_tell = PUT_OF_GONE_IS_NOT_FOUND.is_in(self._kubernetes) or is_old_service
            if meta.get("uid") and (creates or not can_tell):
                raise other_uid(kind, namespace, name, meta["uid"], "")
            if not creates:
                raise not_found(kind, name)
            created = rules.without(meta, "resourceVersion")
            return 201, self.create(collection, namespace, body | {"metadata": created}, dry_run=dry_run)
        if is_old_service and not subresource:
            self._check_old_service(kind, old, meta)
        if meta.get("uid", old.body["metadata"]["uid"]) != old.body["metadata"]["uid"]:
            raise other_uid(kind, namespace, name, meta["uid"], old.body["metadata"]["uid"])
        if not meta.get("resourceVersion") and not kind.unconditional:
            raise must_say_version(kind, name, "0" if VALUES_ARE_PRINTED_AS_JSON.is_in(self._kubernetes) else "0x0")
        new = body | {"metadata": meta}
        return 200, self._replace(collection, old, new, subresource, manager=manager, dry_run=dry_run)

    def patch(
        self,
        collection: Collection,
        key: Key,
        content_type: str,
        patch: Any,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> bytes:
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
            case "application/strategic-merge-patch+json":
                raise Refusal(415, "UnsupportedMediaType", _NOT_FOR_CUSTOM)
            case _:
                raise Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        meta = self._checked_metadata(kind, key[0], body)
        if meta.get("name") != key[1]:
            raise bad_request(
                f"the name of the object ({meta.get('name')}) does not match the name on the URL ({key[1]})"
            )
        new = body | {"metadata": meta}
        return self._replace(collection, old, new, subresource, manager=manager, dry_run=dry_run)

    def apply(
        self,
        collection: Collection,
        key: Key,
        body: Any,
        *,
        manager: str,
        force: bool,
        subresource: str = "",
        dry_run: bool = False,
    ) -> tuple[int, bytes]:
        """Server-side apply: return the code and the object. Raises Refusal."""
        kind, (namespace, name), old = collection.kind, key, collection.objects.get(key)
        meta = self._checked_metadata(kind, namespace, body)
        if meta.setdefault("name", name) != name:
            raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
        if "managedFields" in meta:
            raise bad_request("metadata.managedFields must be nil")
        body = body | {"metadata": meta}
        managers = Managers(Merger(kind), None if old is None else old.body)
        if old is None:
            if subresource:
                raise not_found(kind, name)
            if meta.get("uid"):
                why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
                raise conflict(kind, name, why)
            new = managers.apply({}, body, manager, subresource, force=force)
            new["metadata"] |= {"managedFields": managers.written(kind.resource.api_version, self._time())}
            return 201, self.create(collection, namespace, new, dry_run=dry_run)
        new = managers.apply(old.body, body, manager, subresource, force=force)
        return 200, self._replace(collection, old, new, subresource, managers=managers, dry_run=dry_run)

    def delete(self, collection: Collection, key: Key, options: Mapping[str, Any]) -> bytes:
        """DELETE: return a Status or the object. Raises Refusal."""
        kind = collection.kind
        old = collection.objects.get(key)
        if old is None:
            raise not_found(kind, key[1])
        rules.check_preconditions(kind, old, options.get("preconditions") or {})
        if kind.resource.plural == "namespaces":
            return self._end_namespace(collection, old)
        asked = options.get("gracePeriodSeconds")
        before: Body = old.body["metadata"]
        remaining = before.get("deletionGracePeriodSeconds")
        grace: int | None
        if remaining:  # bound to a node; further requests can only shorten the grace period
            if asked is None or asked >= remaining:
                return old.raw
            never_past = DELETION_TIMESTAMP_MOVES.is_in(self._kubernetes)
            meta = before | rules.shortened(before, asked, self._now(), never_past=never_past)
            grace = int(meta["deletionGracePeriodSeconds"])
        else:
            grace = None if remaining == 0 else rules.first_grace(kind, old, asked)
            meta = before | self._deletion(before, grace)
        finalizers = rules.finalizers_after(before.get("finalizers") or [], options.get("propagationPolicy", ""))
        if finalizers:
            meta["finalizers"] = finalizers
        if not finalizers and not grace:
            return self._remove(collection, old, None if grace is None else meta)
        if meta == before:
            return old.raw
        return self._storage.put(collection, key, old.body | {"metadata": meta}).raw

    def _deletion(self, before: Body, grace: int | None) -> Body:
        """Return the metadata fields set by the first deletion of an object."""
        if "deletionTimestamp" in before:
            return {}
        next_generation = {"generation": before["generation"] + 1} if "generation" in before else {}
        return next_generation | {
            "deletionTimestamp": self._time(grace or 0),
            "deletionGracePeriodSeconds": grace or 0,
        }

    def _remove(self, collection: Collection, old: Version, announced: Body | None) -> bytes:
        """Remove an object. With `announced` metadata, written first, watches get two changes."""
        last = old
        if announced is not None:
            last = self._storage.put(collection, old.key, old.body | {"metadata": announced})
        gone = self._storage.remove(collection, old.key)
        kind = collection.kind
        is_service = kind.resource.plural == "services" and SERVICE_DELETE_ANSWERS_OBJECT.is_in(self._kubernetes)
        if not kind.graceful and not is_service:
            return rules.success(kind, old)
        return gone.raw if DELETE_ANSWERS_LAST_VERSION.is_in(self._kubernetes) else last.raw

    def _end_namespace(self, collection: Collection, old: Version) -> bytes:
        """Mark a namespace as terminating; its controller removes it when it is empty."""
        if "deletionTimestamp" in old.body["metadata"]:
            return old.raw
        meta = old.body["metadata"] | {"deletionTimestamp": self._time()}
        ending = old.body | {"metadata": meta, "status": {"phase": "Terminating"}}
        return self._storage.put(collection, old.key, ending).raw

    def bind(self, collection: Collection, key: Key, body: Body) -> bytes:
        """POST of a pod's binding: assign the pod to a node. Raises Refusal."""
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

    def _replace(
        self,
        collection: Collection,
        old: Version,
        body: Body,
        subresource: str,
        *,
        manager: str = "",
        managers: Managers | None = None,
        dry_run: bool,
    ) -> bytes:
        """Replace `old` by `body`, as far as the client may change it. Raises Refusal.

        `managers`: the owners of the fields, if the request is an apply; otherwise `manager` owns what it changes.
        """
        kind, name = collection.kind, old.key[1]
        before, meta = old.body["metadata"], body["metadata"]
        given = meta.get("resourceVersion", "")
        if given and given != before["resourceVersion"]:
            raise conflict(kind, name)
        ignored = kind.custom and subresource == "status"
        if meta.get("uid", before["uid"]) != before["uid"] and not ignored:
            raise invalid(kind, name, wrong("metadata.uid", meta["uid"], "field is immutable"), told=2)
        rules.check_finalizers(kind, name, before, meta)
        new = rules.merged(kind, old.body, body, subresource)
        new_meta = new["metadata"] | {"resourceVersion": before["resourceVersion"]}
        if self._counts_generations(kind) and rules.without(new, "metadata", "status") != rules.without(
            old.body, "metadata", "status"
        ):
            new_meta["generation"] = before["generation"] + 1
        if managers is None and "managedFields" in before:
            managers = Managers(Merger(kind), body if meta.get("managedFields") else old.body)
            managers.update(old.body, new, manager, subresource)
        if managers is not None:
            new_meta["managedFields"] = managers.written(kind.resource.api_version, self._time())
        new = rules.pruned(kind, new | {"metadata": new_meta})
        if dry_run or new == old.body:
            return msgspec.json.encode(new)
        if rules.is_finished(new["metadata"]):
            self._storage.remove(collection, old.key)
            return msgspec.json.encode(new)
        return self._storage.put(collection, old.key, new).raw

    def _checked_metadata(self, kind: Kind, namespace: str, body: Any) -> dict[str, Any]:
        """Return a copy of the metadata with the namespace of the request. Raises Refusal."""
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

    def _generated(self, base: str) -> str:
        return base[:GENERATED_BASE] + "".join(self._random.choice(_SUFFIX) for _ in range(5))

    def _counts_generations(self, kind: Kind) -> bool:
        plural = kind.resource.plural
        return (
            kind.custom or plural in _WITH_GENERATION or (plural == "pods" and POD_GENERATION.is_in(self._kubernetes))
        )

    def _check_old_service(self, kind: Kind, old: Version, meta: Mapping[str, Any]) -> None:
        """Check what old servers check first, because their services had a separate storage implementation. Raises Refusal."""
        mistakes = []
        if not meta.get("resourceVersion"):
            mistakes.append(wrong("metadata.resourceVersion", "", "must be specified for an update"))
        uid = meta.get("uid", old.body["metadata"]["uid"])
        if uid != old.body["metadata"]["uid"]:
            mistakes.append(wrong("metadata.uid", uid, "field is immutable"))
        if mistakes:
            raise invalid(kind, old.key[1], *mistakes, told=2)

    def _time(self, later: float = 0.0) -> str:
        return rules.timestamp(self._now() + timedelta(seconds=later))
