"""How large a job may be on any cluster. Pure. What becomes of a larger one is for the operator's `decide/bounds.py` to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.meta import MAX_NAME_LENGTH
from tfjob_operator.api.v1.names import child_name
from tfjob_operator.api.v1.types import Mistake
from tfjob_operator.api.v1.validation import MAX_REPLICAS

if TYPE_CHECKING:
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import TFJobSpec

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
