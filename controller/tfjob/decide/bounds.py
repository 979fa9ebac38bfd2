"""What becomes of a job that is too large. Pure.

A specification beyond a bound is invalid, and a job that was created with it fails. A job that has begun keeps its size
instead: only the scale-up is held (D16).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfjob_operator.api.v1.bounds import BOUNDS
from tfjob_operator.api.v1.types import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.v1.bounds import Bound
    from tfjob_operator.api.v1.types import TFJob, TFJobSpec


def bounded(job: TFJob, spec: TFJobSpec, bounds: Sequence[Bound] = BOUNDS) -> TFJobSpec | InvalidSpec:
    """Return the specification as far as it is within bounds.

    A job that has begun and is beyond a bound gets no more replicas of a type than before, and `too_large` says why; scaling
    down still works. For any other job that is a mistake. Only the first bound that is exceeded is reported.
    """
    mistake = next((found for bound in bounds if (found := bound(job.metadata, spec)) is not None), None)
    if mistake is None:
        return spec
    before = job.status.begun.replicas if job.status.begun is not None else {}
    if not before:
        return InvalidSpec.of(spec, mistake)
    kept = {
        name: replace(each, replicas=min(each.replicas, before.get(name, 0))) for name, each in spec.replicas.items()
    }
    held = replace(spec, replicas=kept, too_large=mistake)
    return spec if held.sizes == spec.sizes else held
