"""TensorBoards that do not run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_JOB
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, warning
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rules import shorten, value
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
_REASONS: Final = {
    EventReason.INVALID_TENSOR_BOARD: INVALID,
    EventReason.FAILED_TENSOR_BOARD: FAILED,
    EventReason.TENSOR_BOARD_UNAVAILABLE: UNAVAILABLE,
}
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
        yield Finding(problem, facts.name, (facts.line(complaint),), {"words": shorten(value(complaint.message))})


def _takes_back(success: EventDetails, complaint: EventDetails) -> bool:
    """Return True if a success supersedes a Warning.

    Creating one of a TensorBoard's two children says nothing about the other.
    """
    if complaint.reason != EventReason.FAILED_TENSOR_BOARD:
        return True
    return _child(complaint) in {"", _child(success)}


def _child(event: EventDetails) -> str:
    found = _CHILD.search(event.message)
    return found[0] if found is not None else ""
