"""A TensorBoard that does not run beside its job. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.facts import latest
from tfjob_operator.cli.diagnosis.rules import value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts

INVALID: Final = Trouble(
    "tensorboard-invalid",
    920,
    Severity.WARNING,
    "spec.tensorBoard is invalid; the training goes on without it: {words}",
    ("kubectl -n {namespace} edit tfjob {job}",),
    "spec.tensorBoard has a mistake",
)
FAILED: Final = Trouble(
    "tensorboard-failed",
    921,
    Severity.WARNING,
    "The job's TensorBoard does not run: {words}",
    (
        "kubectl -n {namespace} describe deployment {job}-tensorboard",
        "kubectl -n {namespace} get events --field-selector involvedObject.kind=Pod",
    ),
    "The Deployment or the Service cannot be made, or its pod does not start",
)
UNAVAILABLE: Final = Trouble(
    "tensorboard-unavailable",
    922,
    Severity.WARNING,
    "The operator may not look after TensorBoards: its role is that of an older version",
    ("Apply the operator's manifests again, of the version that runs",),
    "The operator may not list Deployments",
)
TROUBLES: Final = (INVALID, FAILED, UNAVAILABLE)
_REASONS: Final = {
    EventReason.INVALID_TENSOR_BOARD: INVALID,
    EventReason.FAILED_TENSOR_BOARD: FAILED,
    EventReason.TENSOR_BOARD_UNAVAILABLE: UNAVAILABLE,
}
_GOOD: Final = (EventReason.CREATED_TENSOR_BOARD, EventReason.UPDATED_TENSOR_BOARD, EventReason.DELETED_TENSOR_BOARD)


def find(facts: Facts) -> Iterator[Finding]:
    """Yield the newest complaint about the TensorBoard, unless it is older than its last success."""
    for event in latest(facts.job_events(*_REASONS, *_GOOD)):
        trouble = next((each for reason, each in _REASONS.items() if reason == event.reason), None)
        if trouble is not None:
            yield Finding(trouble, facts.name, (facts.line(event),), {"words": value(event.message)[:160]})
