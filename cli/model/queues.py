"""What a queued job waits for, from its Workload of Kueue. Pure.

Workloads are raw JSON, of kueue.x-k8s.io/v1beta1 or v1beta2: `list` uses this module, and importing msgspec for typed decoding
would take a fifth of its time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final


class Wait(StrEnum):
    """Why a queue suspends a job: the reason in `list`."""

    QUEUED = "Queued"
    NEVER_FITS = "NeverFits"
    QUEUE_MISSING = "QueueMissing"
    QUEUE_STOPPED = "QueueStopped"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    CHECK_PENDING = "CheckPending"
    CHECK_REJECTED = "CheckRejected"
    PREEMPTED = "Preempted"
    PODS_READY_TIMEOUT = "PodsReadyTimeout"
    DEACTIVATED = "Deactivated"


# kueue: pkg/controller/core/workload_controller.go, pkg/workload/resources.go, pkg/scheduler/flavorassigner/flavorassigner.go;
# before 0.10 "insufficient quota for X in flavor Y, request > maximum capacity".
UNRESERVED: Final[Mapping[Wait, re.Pattern[str]]] = {
    Wait.QUEUE_MISSING: re.compile(r"\b(?P<kind>LocalQueue|ClusterQueue) (?P<queue>\S+) doesn't exist", re.IGNORECASE),
    Wait.QUEUE_STOPPED: re.compile(
        r"\b(?P<kind>LocalQueue|ClusterQueue) (?P<queue>\S+ )?is (inactive|stopped)", re.IGNORECASE
    ),
    Wait.NAMESPACE_MISMATCH: re.compile(r"namespace doesn't match ClusterQueue selector", re.IGNORECASE),
    # a flavor without capacity does not matter if another one only lacks quota that is in use
    Wait.NEVER_FITS: re.compile(
        r"^(?!.*insufficient unused quota).*?(?P<shortage>insufficient quota for \S+ in flavor \S+?, .{0,300}> maximum capacity"
        r"[^;]*|resource \S+ unavailable in ClusterQueue|requests must not exceed its limits"
        r"|\S{1,300} \S{1,300} does(n't match node affinity| not contain the requested level| not support [^;]*))",
        re.IGNORECASE,
    ),
    Wait.QUEUED: re.compile(
        r"(?P<shortage>(insufficient (unused )?quota|topology \S+ (allows|doesn't allow)) [^;]*)", re.IGNORECASE
    ),
}
"""The messages of the condition QuotaReserved, in the order in which they are tried."""
# kueue: apis/kueue/v1beta2/workload_types.go, the reasons of Evicted
_EVICTED: Final = {
    "Preempted": Wait.PREEMPTED,
    "PodsReadyTimeout": Wait.PODS_READY_TIMEOUT,
    "ClusterQueueStopped": Wait.QUEUE_STOPPED,
    "LocalQueueStopped": Wait.QUEUE_STOPPED,
    "AdmissionCheck": Wait.CHECK_PENDING,
}
_LASTING: Final = frozenset({Wait.PREEMPTED, Wait.PODS_READY_TIMEOUT})
"""Evictions that remain the reason while the job waits for quota again."""
_BY_KUEUE: Final = "DeactivatedDueTo"
LONGEST: Final = 8192
"""The most characters of a message that are searched."""


def waits_for(workload: Mapping[str, Any]) -> tuple[Wait, str]:
    """Return what the suspended job of a Workload waits for, and Kueue's message, "" if Kueue has written none.

    Admission checks and evictions come before `spec.active`: Kueue also deactivates a Workload whose check is rejected. A job
    that was preempted, or whose pods were not ready in time, keeps this reason while it waits for quota.
    """
    conditions = _conditions(workload)
    evicted = conditions.get("Evicted", {}) if is_true(workload, "Evicted") else {}
    reason, told = str(evicted.get("reason")), str(evicted.get("message", ""))
    checks: Sequence[Mapping[str, Any]] = (workload.get("status") or {}).get("admissionChecks") or ()
    states = {check.get("state") for check in checks}
    if "Rejected" in states:
        return Wait.CHECK_REJECTED, _told_by(checks, "Rejected")
    if deactivated_by_kueue(workload):
        return Wait.CHECK_REJECTED if reason == f"{_BY_KUEUE}AdmissionCheck" else Wait.DEACTIVATED, told
    if (workload.get("spec") or {}).get("active") is False:
        return Wait.DEACTIVATED, "spec.active of the Workload is false"
    unreserved = (
        "" if is_true(workload, "QuotaReserved") else str(conditions.get("QuotaReserved", {}).get("message", ""))
    )
    found = next((wait for wait, known in UNRESERVED.items() if known.search(unreserved[:LONGEST])), None)
    evicted_by = _EVICTED.get(reason)
    if evicted_by is not None and (found is None or (found is Wait.QUEUED and evicted_by in _LASTING)):
        return evicted_by, told
    if found is not None:
        return found, unreserved
    unready = next((state for state in ("Retry", "Pending") if state in states), "")
    if unready and is_true(workload, "QuotaReserved"):
        return Wait.CHECK_PENDING, _told_by(checks, unready)
    newest = "Admitted" if is_true(workload, "Admitted") else "QuotaReserved"
    return Wait.QUEUED, told or str(conditions.get(newest, {}).get("message", ""))


def deactivated_by_kueue(workload: Mapping[str, Any]) -> bool:
    """Return True if Kueue deactivated the Workload. Setting `spec.active` then has no effect: Kueue does not requeue it."""
    is_requeued = (workload.get("spec") or {}).get("active") is not False and is_true(workload, "Requeued")
    reason = str(_conditions(workload).get("Evicted", {}).get("reason"))
    return is_true(workload, "Evicted") and reason.startswith(_BY_KUEUE) and not is_requeued


def is_true(workload: Mapping[str, Any], kind: str) -> bool:
    """Return True if this condition of the Workload is True."""
    return _conditions(workload).get(kind, {}).get("status") == "True"


def _conditions(workload: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {
        str(condition.get("type")): condition for condition in (workload.get("status") or {}).get("conditions") or ()
    }


def _told_by(checks: Sequence[Mapping[str, Any]], state: str) -> str:
    """Return the names and messages of the checks in this state, in the form of Kueue's own messages."""
    found = [(str(each.get("name")), each.get("message")) for each in checks if each.get("state") == state]
    found.sort(key=lambda check: check[0])
    shown = "; ".join(f'"{name}"{told and f" ({told})"}' for name, told in found)
    return f"AdmissionCheck{'s' * (len(found) > 1)} in {state} state: {shown}"
