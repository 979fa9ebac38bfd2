"""How large a job may be. Pure.

A specification beyond a bound is invalid, and a job that was created with it fails. A job that has begun keeps its size
instead: only the scale-up is held (D16).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.meta import MAX_NAME_LENGTH
from tfjob_operator.api.v1.types import InvalidSpec, Mistake
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.tfjob.children import child_name

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import TFJob, TFJobSpec

Bound = Callable[["ObjectMeta", "TFJobSpec"], Mistake | None]
"""What is too large about a job, or None: a pure function, and quick, since every sync asks it."""


def total(_job: ObjectMeta, spec: TFJobSpec) -> Mistake | None:
    """Return a mistake if the job has more than `MAX_REPLICAS` replicas, else None."""
    if spec.total_replicas <= MAX_REPLICAS:
        return None
    text = f"asks for {spec.total_replicas} replicas; a job may have {MAX_REPLICAS}"
    return Mistake("spec.tfReplicaSpecs", text)


def child_names(job: ObjectMeta, spec: TFJobSpec) -> Mistake | None:
    """Return a mistake if a name of a service or a label would be longer than 63 characters (B05), else None."""
    names = (child_name(job.name, each.type, max(each.replicas - 1, 0)) for each in spec.replicas.values())
    longest = max(names, key=len)
    excess = len(longest) - MAX_NAME_LENGTH
    if excess <= 0:
        return None
    text = (
        f"is too long by {excess}: the replica {longest} would have {len(longest)} characters, "
        f"and a service's name may have {MAX_NAME_LENGTH}; shorten the job's name to {len(job.name) - excess}"
    )
    return Mistake("metadata.name", text)


BOUNDS: Final[tuple[Bound, ...]] = (total, child_names)
"""Those of every cluster, the one that keeps all others quick first."""


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
