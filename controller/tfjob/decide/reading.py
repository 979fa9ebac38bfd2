"""What is in force of a job's specification. Pure.

What the user wrote is read once; what follows from it may depend on what the job has been through: whether it was good before,
how large it was, whether the API server has refused it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import TFJobSpec
from tfjob_operator.api.v1.validation import read_spec
from tfjob_operator.controller.tfjob.decide.bounds import BOUNDS, bounded
from tfjob_operator.controller.tfjob.decide.held import unless_refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.v1.types import InvalidSpec, TFJob
    from tfjob_operator.controller.tfjob.decide.bounds import Bound


def read(job: TFJob) -> TFJobSpec | InvalidSpec:
    """Read the specification. The answer is the same for as long as `reading_of` is."""
    return read_spec(job.metadata.name, job.spec, was_good=_was_good(job))


def reading_of(job: TFJob) -> tuple[int, bool]:
    """What the reading of a specification depends on, for whoever keeps it."""
    return job.metadata.generation, _was_good(job)


def in_force(job: TFJob, spec: TFJobSpec | InvalidSpec, bounds: Sequence[Bound] = BOUNDS) -> TFJobSpec | InvalidSpec:
    """What of a specification that was read is to be followed now."""
    if isinstance(spec, TFJobSpec):
        spec = bounded(job, spec, bounds)
    return unless_refused(job, spec)


def _was_good(job: TFJob) -> bool:
    """Whether the job has had a good specification: it was created by us."""
    return conditions.find(job.status.conditions, ConditionType.CREATED) is not None
