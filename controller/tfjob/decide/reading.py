"""The specification that a job follows. Pure.

A `spec` is read once for each generation. Whether it is followed also depends on the status: whether it was valid before, how
large the job was, whether the API server has refused it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.bounds import BOUNDS
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import TFJobSpec
from tfjob_operator.api.v1.validation import read_spec
from tfjob_operator.controller.tfjob.decide.bounds import bounded
from tfjob_operator.controller.tfjob.decide.held import unless_refused
from tfjob_operator.controller.tfjob.decide.network import with_network_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.v1.bounds import Bound
    from tfjob_operator.api.v1.types import InvalidSpec, TFJob


def read(job: TFJob) -> TFJobSpec | InvalidSpec:
    """Read the specification. The result is the same for as long as `reading_of` is."""
    return read_spec(job.metadata.name, job.spec, was_good=_was_good(job))


def reading_of(job: TFJob) -> tuple[int, bool]:
    """Return the key under which the result of `read` may be kept."""
    return job.metadata.generation, _was_good(job)


def in_force(job: TFJob, spec: TFJobSpec | InvalidSpec, bounds: Sequence[Bound] = BOUNDS) -> TFJobSpec | InvalidSpec:
    """Return the specification to follow now: as it was read, in the job's network, cut down to the bounds, or as refused."""
    if isinstance(spec, TFJobSpec):
        spec = bounded(job, with_network_of(job, spec), bounds)
    return unless_refused(job, spec)


def _was_good(job: TFJob) -> bool:
    """Whether the job has had a valid specification before: it has a Created condition."""
    return conditions.find(job.status.conditions, ConditionType.CREATED) is not None
