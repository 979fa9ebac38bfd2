"""The effective specification of a job: as it was written, in the network of the job, within bounds, or as refused. Pure.

A `spec` is read once for each generation. Whether it takes effect also depends on the status: whether it was valid before, how
large the job was, whether the API server has refused it.

A specification beyond a bound is invalid, and a job that was created with it fails. A job that has begun keeps its size
instead: only the scale-up is held (D16). It also keeps its network, a service for each replica or one for all: pods learn each
other's names when they start, and a name is that of a service, so with another network old and new pods could not find each
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason, Network
from tfjob_operator.api.v1.types import InvalidSpec, Mistake, SpecWarning, TFJob, TFJobSpec
from tfjob_operator.api.v1.validation import BOUNDS, Bound, read_spec
from tfjob_operator.controller.tfjob.plan.status import has_begun


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


def with_network_of(job: TFJob, spec: TFJobSpec) -> TFJobSpec:
    """Return the specification with the network with which the job began, and a warning if it asks for another.

    Operators that did not record it knew only one.
    """
    if not has_begun(job.status, has_pods=False):
        return spec
    begun = job.status.begun
    is_shared = begun is not None and begun.network == Network.SHARED
    network = Network.SHARED if is_shared else Network.PER_REPLICA
    if spec.network is network:
        return spec
    text = f"spec.runPolicy.network cannot change after the job started; it stays {network}"
    return replace(spec, network=network, warnings=(*spec.warnings, SpecWarning(EventReason.NETWORK_NOT_UPDATED, text)))


def refused(spec: TFJobSpec | InvalidSpec, words: str) -> InvalidSpec:
    """Return the specification as invalid, because the API server has refused a child of it, in these words."""
    return InvalidSpec.of(spec, Mistake("", words), ConditionReason.REFUSED)


def unless_refused(job: TFJob, spec: TFJobSpec | InvalidSpec) -> TFJobSpec | InvalidSpec:
    """Return the specification, as invalid if the API server has refused it: it is not tried again before it is edited."""
    held = conditions.find(job.status.conditions, ConditionType.HELD)
    if isinstance(spec, InvalidSpec) or held is None or held.status != conditions.TRUE:
        return spec
    if held.reason != ConditionReason.REFUSED or job.status.observed_generation != job.metadata.generation:
        return spec
    return refused(spec, held.message)


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
