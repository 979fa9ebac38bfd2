"""The ConfigMaps of a job whose cluster specification is long: which must be created, and which may be deleted. Pure.

A ConfigMap is immutable, and named by a hash of its content and of the job's UID. So a job that is scaled gets another one,
and that of an earlier job is in nobody's way. Pods say by a label which one they read. A kubelet reads it whenever it
starts a container, also again in place; so a ConfigMap that a pod may still need stays, or is created again, and is deleted
when there is no such pod.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.controller.jobs.children import NO_LABELS
from tfjob_operator.controller.jobs.pod_end import has_ended
from tfjob_operator.controller.tfjob.build.config_map import config_map_name
from tfjob_operator.controller.tfjob.build.tf_config import ClusterSpec, is_surely_short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.v1.types import TFJob, TFJobSpec
    from tfjob_operator.controller.jobs.children import ConfigMap, Pod
    from tfjob_operator.controller.tfjob.decide.actions import Plan

_DIGEST: Final = re.compile("[0-9a-f]{16}")


def with_config_maps(
    plan: Plan,
    job: TFJob,
    spec: TFJobSpec | InvalidSpec,
    pods: Sequence[Pod],
    held: Sequence[ConfigMap],
    *,
    domain: str,
) -> Plan:
    """Return the plan with its ConfigMaps; `held` are those that the job controls, `domain` the cluster's DNS domain.

    What pods read that may start again is there; what is made for pods of now stays while the job lives; nothing else does.
    """
    if isinstance(spec, InvalidSpec) or plan.delete_job or plan.ends(job):
        return plan
    readers = [pod for pod in pods if _digest_of(pod) and not has_ended(pod)]
    if not (readers or held) and (not plan.create_pods or is_surely_short(job.metadata, spec, domain)):
        return plan
    going = {deletion.pod.metadata.uid for deletion in plan.delete_pods}
    needed = {
        _digest_of(pod) for pod in readers if pod.metadata.deletion_timestamp is None and pod.metadata.uid not in going
    }
    kept = {_digest_of(pod) for pod in readers}
    if not (spec.suspend or conditions.is_finished(job.status)):
        cluster = ClusterSpec(job.metadata, spec, domain)
        kept.add(cluster.digest)
        if any(cluster.is_shared_with(key.type) for key in plan.create_pods):
            needed.add(cluster.digest)
    present = {each.metadata.name for each in held}
    names = {config_map_name(job.metadata.name, digest) for digest in kept}
    create = tuple(digest for digest in sorted(needed) if config_map_name(job.metadata.name, digest) not in present)
    delete = tuple(
        each for each in held if each.metadata.name not in names and each.metadata.deletion_timestamp is None
    )
    return replace(plan, create_config_maps=create, delete_config_maps=delete) if create or delete else plan


def _digest_of(pod: Pod) -> str:
    """Return the hash of the ConfigMap that a pod reads, or "": users can write anything into a label."""
    digest = (pod.metadata.labels or NO_LABELS).cluster_spec
    return digest if digest and _DIGEST.fullmatch(digest) else ""
