"""How large a job may be. Pure.

A specification beyond a bound is wrong, and a job that asks for so much from the start fails. One that has begun only keeps the
size that it has: a scale-up too far is held, and nothing else (D16).
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
    """A job has at most `MAX_REPLICAS` replicas."""
    if spec.total_replicas <= MAX_REPLICAS:
        return None
    text = f"asks for {spec.total_replicas} replicas; a job may have {MAX_REPLICAS}"
    return Mistake("spec.tfReplicaSpecs", text)


def child_names(job: ObjectMeta, spec: TFJobSpec) -> Mistake | None:
    """Names of services and values of labels end at 63 characters (B05)."""
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
    """The specification as far as it is within bounds.

    Beyond one of them a job that has begun asks for no more replicas of a type than before, which `too_large` says; what
    shrinks shrinks. For any other job that is a mistake. The first bound that is passed is told.
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
