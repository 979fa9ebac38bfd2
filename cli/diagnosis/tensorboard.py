"""TensorBoards that do not run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.tensorboard import tensor_board_name
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_JOB
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, warning
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rows import of_event
from tfjob_operator.cli.model.objects import EventDetails

INVALID: Final = warning(
    "tensorboard-invalid",
    "spec.tensorBoard is invalid; the training continues without it: {words}",
    "spec.tensorBoard is invalid",
    ManifestChange("correct spec.tensorBoard", recreate=False),
)
FAILED: Final = warning(
    "tensorboard-failed",
    "TensorBoard is not running: {words}",
    "The Deployment or the Service cannot be created, or its pod does not start",
    "kubectl -n {namespace} describe deployments",
    DESCRIBE_JOB,
)
UNAVAILABLE: Final = warning(
    "tensorboard-unavailable",
    "TensorBoard is unavailable: the operator has no permission for Deployments",
    "The operator may not list Deployments",
    "Ask your cluster administrator to apply the RBAC manifests of the operator's version",
)
NOT_STARTING: Final = warning(
    "tensorboard-not-starting",
    "TensorBoard does not start: {reason}: {words}",
    "The newest event of its pod or its ReplicaSet is a failure, such as an image that cannot be pulled",
    "kubectl -n {namespace} describe {kind} {object}",
    ManifestChange("correct spec.tensorBoard as the message asks", recreate=False),
)
_REASONS: Final = {
    EventReason.INVALID_TENSOR_BOARD: INVALID,
    EventReason.FAILED_TENSOR_BOARD: FAILED,
    EventReason.TENSOR_BOARD_UNAVAILABLE: UNAVAILABLE,
}
_KINDS: Final = frozenset({"Pod", "ReplicaSet"})
_FAILURES: Final = frozenset(
    {
        "Failed",
        "BackOff",
        "FailedScheduling",
        "FailedMount",
        "FailedAttachVolume",
        "FailedCreate",
        "FailedCreatePodSandBox",
    }
)
_RECENT_S: Final = 600.0
"""Kubelets and schedulers repeat such events at least every five minutes."""
_CHILD: Final = re.compile(r"\b(?:deployment|service) ")
_GOOD: Final = (EventReason.CREATED_TENSOR_BOARD, EventReason.UPDATED_TENSOR_BOARD, EventReason.DELETED_TENSOR_BOARD)


def find(facts: Facts) -> Iterator[Finding]:
    """Yield the newest Warning about the TensorBoard that no later success supersedes."""
    complaint: EventDetails | None = None
    for event in facts.job_events(*_REASONS, *_GOOD):
        if event.reason in _REASONS:
            complaint = event
        elif complaint is not None and _takes_back(event, complaint):
            complaint = None
    if complaint is not None:
        problem = _REASONS[EventReason(complaint.reason)]
        yield of_event(facts, problem, complaint)
    else:
        yield from _not_starting(facts)


def _not_starting(facts: Facts) -> Iterator[Finding]:
    """Yield the failure of the TensorBoard's pods, which are not read: the newest event is repeated while the failure lasts."""
    prefix, events = f"{tensor_board_name(facts.name)}-", list[EventDetails]()
    for event in facts.evidence.events:
        about, age_s = event.involved_object, facts.age_s(event.at)
        if about.kind in _KINDS and about.name.startswith(prefix) and age_s is not None and age_s < _RECENT_S:
            events.append(event)
    events.sort(key=lambda event: -(facts.age_s(event.at) or 0.0))
    if facts.finished or not events or events[-1].reason not in _FAILURES:
        return
    # A back-off only names the image; the failure before it has the reason.
    event = next((each for each in reversed(events) if each.reason in _FAILURES - {"BackOff"}), events[-1])
    about = event.involved_object
    yield of_event(facts, NOT_STARTING, event, reason=event.reason, kind=about.kind.lower(), object=about.name)


def _takes_back(success: EventDetails, complaint: EventDetails) -> bool:
    """Return True if a success supersedes a Warning.

    Creating one of a TensorBoard's two children says nothing about the other.
    """
    if complaint.reason != EventReason.FAILED_TENSOR_BOARD:
        return True
    return _child(complaint) in {"", _child(success)}


def _child(event: EventDetails) -> str:
    match = _CHILD.search(event.message)
    return match[0] if match is not None else ""
