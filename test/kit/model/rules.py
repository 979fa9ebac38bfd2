"""The rules that convert a written object to a stored one. Pure functions of the old and the new object."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from kit.model.kinds import Kind
from kit.model.refusals import details_of, failed_precondition, forbidden, invalid
from kit.model.storage import Body, Version
from kit.model.versions import CONTAINER_RESTART_RULES, NATIVE_SIDECARS

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
SERVER_OWNED: Final = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)
"""Fields of the metadata that clients cannot change."""


def merged(kind: Kind, old: Body, new: Body, subresource: str) -> Body:
    """Return `new` with the parts that this request cannot change taken from `old` (SV-12)."""
    meta = {name: value for name, value in new["metadata"].items() if name not in SERVER_OWNED}
    meta |= {name: old["metadata"][name] for name in SERVER_OWNED if name in old["metadata"]}
    if subresource == "status":
        metadata = old["metadata"] if kind.custom else meta
        result = old | {"metadata": dict(metadata)}
        result.pop("status", None)
        return result | ({"status": new["status"]} if "status" in new else {})
    result = kind.head | {"metadata": meta} | without(new, "kind", "apiVersion", "metadata")
    if kind.status:
        result.pop("status", None)
        if "status" in old:
            result["status"] = old["status"]
    return result


def pruned(kind: Kind, body: Body) -> Body:
    """Drop fields that Go's types do not keep: for metadata and built-in types, empty fields are like missing ones."""
    meta = {name: value for name, value in body["metadata"].items() if value not in (None, {}, [], "")}
    result = body if kind.custom else {name: value for name, value in body.items() if value not in (None, {}, [], "")}
    return result | {"metadata": meta}


def is_finished(meta: Mapping[str, Any]) -> bool:
    """Whether an object that is being deleted can be removed: no finalizer or grace period is left."""
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    return int(meta.get("deletionGracePeriodSeconds") or 0) == 0


def check_preconditions(kind: Kind, old: Version, preconditions: Mapping[str, Any]) -> None:
    """Check the UID and version in the preconditions of a deletion. Raises Refusal."""
    meta = old.body["metadata"]
    for name, field, consequence in (
        ("uid", "UID", "The object might have been deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "The object might have been modified"),
    ):
        wanted = preconditions.get(name)
        if wanted is not None and wanted != meta[name]:
            raise failed_precondition(kind, old.key[1], field, wanted, meta[name], consequence=consequence)


def check_finalizers(kind: Kind, name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Reject new finalizers on an object that is being deleted. Raises Refusal."""
    added = sorted(set(after.get("finalizers") or []) - set(before.get("finalizers") or []))
    if added and "deletionTimestamp" in before:
        found = ", ".join(f'"{each}"' for each in added)
        why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{found}}}"
        raise invalid(kind, name, forbidden("metadata.finalizers", why), told=2)


def finalizers_after(finalizers: list[str], propagation: str) -> list[str]:
    """Return the finalizers after a deletion: the propagation policy adds its own and removes the other's."""
    own = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(propagation)
    if not propagation:
        return finalizers
    kept = [each for each in finalizers if each not in {FOREGROUND, ORPHAN}]
    return [*kept, own] if own else kept


def first_grace(kind: Kind, old: Version, asked: int | None) -> int | None:
    """Return the grace period of a first deletion: 0 for pods without a kubelet, None for kinds without grace periods."""
    if not kind.graceful:
        return None
    spec, status = old.body.get("spec") or {}, old.body.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in {"Succeeded", "Failed"}:
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30)) if asked is None else asked


def shortened(meta: Body, grace: int, now: datetime, *, never_past: bool) -> Body:
    """Return the deletion fields of an object whose grace period is shortened by another deletion.

    The deletionTimestamp is the time of the first deletion plus the new grace. With `never_past`, a time in the past becomes
    now, and the grace at most a second (BeforeDelete).
    """
    first = datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(seconds=meta["deletionGracePeriodSeconds"])
    gone_at = first + timedelta(seconds=grace)
    if never_past and gone_at < now:
        gone_at, grace = now, min(grace, 1)
    return {"deletionTimestamp": timestamp(gone_at), "deletionGracePeriodSeconds": grace}


def timestamp(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def known_to(kubernetes: int, spec: Body) -> Body:
    """Return a pod's spec without container fields that a server of this version drops."""
    for change, name in ((CONTAINER_RESTART_RULES, "containers"), (NATIVE_SIDECARS, "initContainers")):
        if not change.is_in(kubernetes) and spec.get(name):
            containers = [without(each, "restartPolicy", "restartPolicyRules") for each in spec[name]]
            spec = spec | {name: containers}
    return spec


def success(kind: Kind, old: Version) -> bytes:
    details = details_of(kind, old.key[1]) | {"uid": old.body["metadata"]["uid"]}
    return msgspec.json.encode(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    )


def without(body: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}
