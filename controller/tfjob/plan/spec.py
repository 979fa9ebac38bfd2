"""The effective spec of a job, which depends on its status and its pods. Pure.

A spec is parsed once per generation. Whether it takes effect also depends on the status: whether it was valid before, the job's
size, and whether the API server rejected it. A spec that exceeds a limit is invalid, and a job created with it fails. A job
that has started keeps its size instead; only the scale-up is held. It also keeps its network (one service per replica, or
one for all): pods learn each other's service names at startup, so after a change old and new pods could not find each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason, Network
from tfjob_operator.api.v1.types import InvalidSpec, Mistake, SpecWarning, TFJob, TFJobSpec
from tfjob_operator.api.v1.validation import BOUNDS, Bound, read_spec
from tfjob_operator.controller.jobs.children import Pod, Service


def bounded(job: TFJob, spec: TFJobSpec, bounds: Sequence[Bound] = BOUNDS) -> TFJobSpec | InvalidSpec:
    """Return the spec, limited to what the bounds allow.

    A started job that exceeds a bound keeps its number of replicas of each type, and `too_large` is the reason; scaling down
    still works. For any other job, this makes the spec invalid. Only the first exceeded bound is reported.
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
    limited = replace(spec, replicas=kept, too_large=mistake)
    return spec if limited.sizes == spec.sizes else limited


def with_original_network(job: TFJob, spec: TFJobSpec, pods: Sequence[Pod], services: Iterable[Service]) -> TFJobSpec:
    """Return the spec with the network that the job started with, and a warning if it specifies another.

    Without a record, the existing pods determine the network: it may have been pruned, or is not written yet.
    """
    begun = job.status.begun
    network = spec.network
    if begun is not None:
        network = Network.SHARED if begun.network == Network.SHARED else Network.PER_REPLICA
    elif pods:
        network = _network_of(job.metadata.name, spec, pods, services)
    if spec.network is network:
        return spec
    text = f"spec.runPolicy.network cannot change after the job started; it stays {network}"
    return replace(spec, network=network, warnings=(*spec.warnings, SpecWarning(EventReason.NETWORK_NOT_UPDATED, text)))


def _network_of(job: str, spec: TFJobSpec, pods: Iterable[Pod], services: Iterable[Service]) -> Network:
    """Return the network of these pods. Users' templates may set the subdomain too, for a service of their own."""
    may_be_shared = spec.network is Network.SHARED or any(service.metadata.name == job for service in services)
    is_shared = may_be_shared and any(pod.spec.subdomain == job for pod in pods)
    return Network.SHARED if is_shared else Network.PER_REPLICA


def refused(spec: TFJobSpec | InvalidSpec, words: str) -> InvalidSpec:
    """Return the spec as invalid because the API server rejected a child with this message."""
    return InvalidSpec.of(spec, Mistake("", words), ConditionReason.REFUSED)


def with_rejection(job: TFJob, spec: TFJobSpec | InvalidSpec) -> TFJobSpec | InvalidSpec:
    """Return the spec, marked invalid if the API server rejected it; it is not retried until it is edited."""
    held = conditions.find(job.status.conditions, ConditionType.HELD)
    if isinstance(spec, InvalidSpec) or held is None or held.status != conditions.TRUE:
        return spec
    if held.reason != ConditionReason.REFUSED or job.status.observed_generation != job.metadata.generation:
        return spec
    return refused(spec, held.message)


def read(job: TFJob) -> TFJobSpec | InvalidSpec:
    """Parse the spec. The result depends only on `spec_cache_key`."""
    return read_spec(job.metadata.name, job.spec, was_good=_was_valid(job))


def spec_cache_key(job: TFJob) -> tuple[int, bool]:
    """Return the cache key for the result of `read`."""
    return job.metadata.generation, _was_valid(job)


def effective_spec(
    job: TFJob,
    spec: TFJobSpec | InvalidSpec,
    pods: Sequence[Pod],
    services: Sequence[Service],
    bounds: Sequence[Bound] = BOUNDS,
) -> TFJobSpec | InvalidSpec:
    """Return the effective spec: with the job's network, limited to the bounds, and invalid if it was rejected."""
    if isinstance(spec, TFJobSpec):
        spec = bounded(job, with_original_network(job, spec, pods, services), bounds)
    return with_rejection(job, spec)


def _was_valid(job: TFJob) -> bool:
    """Return True if the job has had a valid spec before: it has a Created condition."""
    return conditions.find(job.status.conditions, ConditionType.CREATED) is not None
