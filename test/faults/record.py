"""The result of a workload without the parts that vary between runs, and its differences from another result."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from faults.census import CHILDREN
from faults.field import Field
from faults.user import NAME, replica_of
from faults.workloads import Workload
from hack.fault_proxy.proxy import Seen
from tfjob_operator.api.client import ListOptions
from tfjob_operator.api.core import EVENTS, PODS
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS

OF_EVERY_NAMESPACE: Final = frozenset({"configmaps/kube-root-ca.crt"})
EVENTS_WITHIN: Final = 1
"""How many events of a reason may be missing or additional, besides those in the memory of a killed process."""


@dataclass(frozen=True)
class Record:
    """The result of a workload: the job's status, existing children, how often each child was created, and events."""

    job: Mapping[str, Any] | None
    children: Mapping[str, str]
    created: Counter[str]
    events: Counter[str]


async def take(field: Field, namespace: str) -> Record:
    jobs = await _items(field, TFJOBS, namespace)
    children = {}
    for resource in CHILDREN:
        for item in await _items(field, resource, namespace):
            field.census.take(resource, item)  # the watch may lag
            meta = item["metadata"]
            key = f"{resource.plural}/{replica_of(meta['name'], meta.get('labels'))}"
            if key not in OF_EVERY_NAMESPACE:
                state = (item.get("status") or {}).get("phase", "") if resource is PODS else ""
                children[key] = "Terminating" if "deletionTimestamp" in meta else state
    events: Counter[str] = Counter()
    for item in await _items(field, EVENTS, namespace):
        about = item["involvedObject"]
        if (about["kind"], about["name"]) == (TFJOBS.kind, NAME):
            events[f"{item['type']} {item['reason']}"] += item.get("count", 1)
    job = _status(jobs[0], namespace) if jobs else None
    return Record(job, children, field.census.made(namespace), events)


def restarts(record: Record) -> dict[str, int]:
    return dict(record.job["restarts"]) if record.job is not None else {}


def differences(record: Record, right: Record, workload: Workload, forgotten: Mapping[str, int]) -> Iterator[str]:
    """Yield differences between a record and one without a fault, and from the restarts scripted on the node.

    `forgotten` are the events lost with a process, by reason.
    """
    yield from _unequal("the status", record.job, right.job)
    yield from _unequal("the children", record.children, right.children)
    for child in sorted(record.created.keys() | right.created.keys()):
        if record.created[child] != right.created[child]:
            yield f"{child} was created {record.created[child]} times, not {right.created[child]}"
    if record.job is not None and restarts(record) != dict(workload.restarts):
        yield f"restarts are {restarts(record)}, and there were {dict(workload.restarts)}"
    for reason in sorted(record.events.keys() | right.events.keys()):
        if reason in workload.optional:
            continue
        more = record.events[reason] - right.events[reason]
        if more > EVENTS_WITHIN or -more > EVENTS_WITHIN + forgotten.get(reason, 0):
            yield f"{record.events[reason]} events {reason!r}, not {right.events[reason]}"


def _unequal(what: str, found: Mapping[str, Any] | None, right: Mapping[str, Any] | None) -> Iterator[str]:
    if found is None or right is None:
        if found != right:
            yield f"{what} is {'gone' if found is None else 'there'}"
        return
    for key in sorted(found.keys() | right.keys()):
        if found.get(key) != right.get(key):
            yield f"{what}: {key} is {found.get(key)!r}, not {right.get(key)!r}"


async def _items(field: Field, resource: Resource, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(await field.client.list_page(resource, ListOptions(namespace=namespace)))[
        "items"
    ]
    return found


def _status(job: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    status = job.get("status") or {}
    conditions = {
        each["type"]: (each["status"], each.get("reason", ""), each.get("message", "").replace(namespace, "NAMESPACE"))
        for each in status.get("conditions") or ()
    }
    counted = {
        f"{each['type']}-{each['index']}": each.get("carried", 0) + each.get("inPlace", 0) + each.get("replaced", False)
        for each in status.get("restarts") or ()
    }
    told = ("number", "reason", "rule", "action", "podName", "exitCode")
    same = ("replicaStatuses", "finishedIndices", "observedGeneration", "phase", "state", "alphaReplicaStatuses")
    return {
        "conditions": conditions,
        "restarts": {place: total for place, total in counted.items() if total},
        "is completed": "completionTime" in status,
        "attempts": [[each.get(name) for name in told] for each in status.get("attemptHistory") or ()],
    } | {name: status.get(name) for name in (*same, "attempt", "countedRestarts")}


# Each create and delete emits one event; an event that must precede the deletion of a pod is not delayed.
_ALPHA_CREATED, _ALPHA_DELETED, _BOARD = "SuccessfulCreate", "SuccessfulDelete", "SuccessfulCreateTensorBoard"
_TOLD_BY: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("create", "pods"): ("SuccessfulCreatePod",),
    ("delete", "pods"): ("SuccessfulDeletePod",),
    ("create", "services"): ("SuccessfulCreateService", _ALPHA_CREATED, _BOARD),
    ("delete", "services"): ("SuccessfulDeleteService", _ALPHA_DELETED),
    ("create", "podgroups"): ("SuccessfulCreatePodGroup",),
    ("delete", "podgroups"): ("SuccessfulDeletePodGroup",),
    ("create", "jobs"): (_ALPHA_CREATED,),
    ("delete", "jobs"): (_ALPHA_DELETED,),
    ("create", "deployments"): (_BOARD,),
    ("delete", "tfjobs"): ("SuccessfulDeleteJob",),
}


def forgotten(seen: Iterable[Seen]) -> dict[str, int]:
    """Count the events that had not reached the server, by type and reason; `seen` are all requests before the kill."""
    waiting: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for each in seen:
        verb = "create" if each.status == HTTPStatus.CREATED else each.verb  # an apply may create
        waiting.update(_TOLD_BY.get((verb, each.place.resource), ()))
        if each.place.resource == "events" and each.status in {200, 201}:
            name = each.place.name  # empty for a create; a patch increments the count of an event
            if each.verb == "create":
                event = json.loads(each.body)
                name = event["metadata"]["name"]
                reasons[name] = event["reason"]
            waiting[reasons[name]] -= 1
    return {f"Normal {reason}": count for reason, count in waiting.items() if count > 0}
