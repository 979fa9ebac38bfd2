"""Jobs of the alpha dialect that an earlier operator began: how they are recognized, and how their pods are found. Pure.

tf-operator 0.3 made pods without Jobs, named by the job, the replica and five random characters. So they cannot be found by
name, but by the labels that it gave them, which the children of this operator have as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.api.v1alpha1.constants import Phase

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus

_ENDED_BEFORE: Final = frozenset({Phase.DONE, Phase.FAILED})


def is_of_predecessor(status: AlphaStatus) -> bool:
    """Return whether only an earlier operator has written this status: this one also writes `observedGeneration`."""
    return bool(status.phase) and not status.observed_generation


def has_ended_before(status: AlphaStatus) -> bool:
    """Return whether another operator has ended the job, and has cleaned up after it."""
    return is_of_predecessor(status) and status.phase in _ENDED_BEFORE


def may_have_hidden_children(job: AlphaJob) -> bool:
    """Return whether there may be pods of this job that our watches do not show, and that matter to what is planned."""
    lives = job.metadata.deletion_timestamp is None and not has_ended_before(job.status)
    return lives and is_of_predecessor(job.status)


def selector_of_hidden(job: ObjectMeta, spec: AlphaSpec) -> str:
    """Return the label selector of all pods of a job, by earlier operators' labels. They wrote the RuntimeId into the spec."""
    return f"{c.LABEL_JOB_NAME}={job.name},{c.LABEL_RUNTIME_ID}={spec.runtime_id}"
