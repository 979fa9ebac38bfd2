"""The actions of a plan on PodGroups and ConfigMaps. Pure.

With gang scheduling, the pods of a job are scheduled all together or not at all. A job has one PodGroup, with the job's name.
It is created before any pod, specifies the minimum useful number of pods, and is deleted when the job ends or is suspended. In
an existing group, the operator updates only `minMember` and the resources computed from it. Another component may have changed
the group's queue.

The ConfigMap of a large cluster spec is immutable and named by a hash of its content and the job's UID. So a scaled job gets a
new one, and a new job of the same name cannot conflict with the old one. Pods carry the hash in a label. A kubelet reads the
ConfigMap whenever it starts a container, including in-place restarts; so it is kept, or recreated, until no pod needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tfjob_operator.api.core import POD_GROUP_PENDING, EventType
from tfjob_operator.api.meta import Meta
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.tf_config import ClusterSpec, needs_no_config_map
from tfjob_operator.api.v1.types import InvalidSpec, TFJob, TFJobSpec
from tfjob_operator.controller.jobs.children import (
    LINGER_LIMIT_S,
    NO_LABELS,
    ConfigMap,
    Pod,
    PodGroup,
)
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.pods import StartProblem, has_ended, problem_of_job
from tfjob_operator.controller.tfjob.build.builder import GangScheduler, config_map_name
from tfjob_operator.controller.tfjob.plan.clocks import Fact, Observer
from tfjob_operator.controller.tfjob.plan.replicas import Replica
from tfjob_operator.controller.tfjob.plan.types import Gang, Plan, PodGroupResize

NOTHING: Final = Plan()
POD_GROUPS_FIRST_RETRY_S: Final = 0.5
"""How long a job waits if PodGroups have not been listed yet and listing has not failed: the operator has just started."""
POD_GROUPS_RETRY_S: Final = 5.0
"""How long it waits after listing has failed. The retry only reads the cache, which lists again about every 30 s."""


def with_gang(
    plan: Plan,
    job: TFJob,
    spec: TFJobSpec | InvalidSpec,
    replicas: Iterable[Replica],
    gang: Gang | None,
    *,
    observer: Observer,
) -> Plan:
    """Return the plan with the actions for the PodGroup; `gang` is None if gang scheduling is disabled.

    `replicas` are the replicas in the spec that have a pod. The group of a job on hold is not changed, nor that of a job whose
    end is decided but not written.
    """
    if gang is None or conditions.is_ending(job.status):
        return plan
    if spec.suspend or conditions.is_finished(job.status):
        return without_pod_group(plan, gang)
    return plan if isinstance(spec, InvalidSpec) else with_pod_group(plan, job, spec, replicas, gang, observer=observer)


def without_pod_group(plan: Plan, gang: Gang) -> Plan:
    """Return the plan for a job that needs no PodGroup: it deletes an existing one that is not yet terminating."""
    if gang.group is None or plan.delete_job or _is_terminating(gang.group):
        return plan
    return replace(plan, delete_pod_group=gang.group)


def with_pod_group(
    plan: Plan, job: TFJob, spec: TFJobSpec, replicas: Iterable[Replica], gang: Gang, *, observer: Observer
) -> Plan:
    """Return the plan of a job that should run; `replicas` are those in its spec that have a pod."""
    group = gang.group
    plan = replace(
        plan, events=plan.events + _first_events(job, spec, gang.scheduler) + _ignored_edit_events(job, spec, gang)
    )
    if not gang.known:
        return _wait_for_pod_groups(plan, gang) if plan.create_pods else plan
    if group is not None and group.metadata.deletion_timestamp is not None:
        return _wait_for_deletion(plan, group.metadata, observer)
    # A succeeded replica whose pod is gone is not recreated: a group that counted it would wait forever.
    able = len({replica.key for replica in replicas}) + len(plan.create_pods) + plan.create_later
    min_member = _min_member(spec, able)
    if min_member == 0:
        return plan
    if group is None:
        plan = replace(plan, create_pod_group=min_member)
    elif group.spec.min_member != min_member:
        plan = replace(plan, resize_pod_group=PodGroupResize(group, min_member))
    return plan if _admitted(gang) else _without_pods(plan)


def _min_member(spec: TFJobSpec, able: int) -> int:
    """Return the number of pods that the job can have, or its `minAvailable` if less.

    At least 1, unless the job can have no pods.
    """
    asked = spec.scheduling.min_available
    return able if asked is None else min(max(asked, 1), able)


def blocks_pods(gang: Gang) -> bool:
    """Return True if the job's PodGroup does not permit creating pods yet."""
    return not gang.known or not _admitted(gang) or (gang.group is not None and _is_terminating(gang.group))


def _admitted(gang: Gang) -> bool:
    if not gang.scheduler.admits:
        return True
    return gang.group is not None and gang.group.status.phase not in {"", POD_GROUP_PENDING}


def _without_pods(plan: Plan) -> Plan:
    """Return the plan without new pods and their services: a queued job uses no cluster resources."""
    waiting = {key.name for key in plan.create_pods}
    services = tuple(key for key in plan.create_services if key.name not in waiting)
    return replace(plan, create_pods=(), create_services=services)


def _wait_for_deletion(plan: Plan, group: Meta, observer: Observer) -> Plan:
    """Create no pods: a new group can be created once this one is gone. If it persists, a user must act."""
    if not plan.create_pods:
        return plan
    deleted = observer.first_seen(Fact.DELETED, group.uid, group.deletion_timestamp)
    left_s = LINGER_LIMIT_S - (observer.now - deleted).total_seconds()
    if left_s > 0:
        return _without_pods(plan.requeued_within(left_s))
    text = f"Error creating: PodGroup {group.name} already exists: it is being deleted (UID {group.uid})"
    reason = EventReason.FAILED_CREATE_POD_GROUP
    problem = StartProblem((group.uid, "", reason), JobEvent(EventType.WARNING, reason, text))
    return _without_pods(replace(plan, problems=(*plan.problems, problem)))


def _wait_for_pod_groups(plan: Plan, gang: Gang) -> Plan:
    """Create nothing, and requeue the job, since no event will queue it."""
    plan = _without_pods(plan.requeued_within(POD_GROUPS_RETRY_S if gang.failure else POD_GROUPS_FIRST_RETRY_S))
    if not gang.failure:
        return plan
    text = f"Waiting for PodGroups of {gang.scheduler.name} before creating pods: {gang.failure}"
    return replace(plan, problems=(*plan.problems, problem_of_job(EventReason.POD_GROUPS_UNKNOWN, text)))


def _first_events(job: TFJob, spec: TFJobSpec, scheduler: GangScheduler) -> tuple[JobEvent, ...]:
    """Return the events recorded once, with the first status."""
    if job.status.conditions:
        return ()
    if not {replica.template.scheduler_name for replica in spec.replicas.values()} - {"", scheduler.name}:
        return ()
    text = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
    return (JobEvent(EventType.WARNING, EventReason.OTHER_SCHEDULER, text),)


def _ignored_edit_events(job: TFJob, spec: TFJobSpec, gang: Gang) -> tuple[JobEvent, ...]:
    """Return an event, once per edit, if scheduling fields differ from the existing group: the difference is ignored."""
    if gang.group is None or job.status.observed_generation in {None, job.metadata.generation}:
        return ()
    asked, made = spec.scheduling, gang.group.spec
    fields: dict[str, tuple[object, object]] = {"minResources": (asked.min_resources, made.min_resources)}
    if gang.scheduler.admits:
        fields["queue"] = (asked.queue, made.queue)
        fields["priorityClass"] = (asked.priority_class, made.priority_class_name)
    else:
        fields["scheduleTimeoutSeconds"] = (asked.schedule_timeout_s, made.schedule_timeout_seconds)
    ignored = [name for name, (wanted, current) in fields.items() if wanted not in (None, "") and wanted != current]
    if not ignored:
        return ()
    paths = ", ".join(f"spec.runPolicy.schedulingPolicy.{name}" for name in ignored)
    text = f"{paths} cannot change after the PodGroup was created. Suspend and resume the job to recreate the PodGroup."
    return (JobEvent(EventType.WARNING, EventReason.POD_GROUP_NOT_UPDATED, text),)


def _is_terminating(group: PodGroup) -> bool:
    return group.metadata.deletion_timestamp is not None


_DIGEST: Final = re.compile("[0-9a-f]{16}")


def with_config_maps(
    plan: Plan,
    job: TFJob,
    spec: TFJobSpec | InvalidSpec,
    pods: Sequence[Pod],
    owned: Sequence[ConfigMap],
    *,
    domain: str,
) -> Plan:
    """Return the plan with its ConfigMaps; `owned` are those that the job controls, `domain` the cluster's DNS domain.

    A ConfigMap is kept while a pod that uses it may still restart containers. The ConfigMap of the current spec is also kept
    while the job is active. All others are deleted, once the job has finished.
    """
    if isinstance(spec, InvalidSpec) or plan.delete_job or conditions.is_ending(job.status):
        return plan
    readers = [pod for pod in pods if _digest_of(pod) and not has_ended(pod)]
    if not (readers or owned) and (not plan.create_pods or needs_no_config_map(job.metadata, spec, domain)):
        return plan
    deleted_pods = {deletion.pod.metadata.uid for deletion in plan.delete_pods}
    needed = {
        _digest_of(pod)
        for pod in readers
        if pod.metadata.deletion_timestamp is None and pod.metadata.uid not in deleted_pods
    }
    kept = {_digest_of(pod) for pod in readers}
    if not (spec.suspend or conditions.is_finished(job.status)):
        cluster = ClusterSpec(job.metadata, spec, domain)
        kept.add(cluster.digest)
        if any(cluster.is_shared_with(key.type) for key in plan.create_pods):
            needed.add(cluster.digest)
    present = {config_map.metadata.name for config_map in owned}
    names = {config_map_name(job.metadata.name, digest) for digest in kept}
    create = tuple(digest for digest in sorted(needed) if config_map_name(job.metadata.name, digest) not in present)
    delete = tuple(
        config_map
        for config_map in owned
        if config_map.metadata.name not in names and config_map.metadata.deletion_timestamp is None
    )
    return replace(plan, create_config_maps=create, delete_config_maps=delete) if create or delete else plan


def _digest_of(pod: Pod) -> str:
    """Return the hash of the ConfigMap that a pod reads, or "". Users can write any value to a label."""
    digest = (pod.metadata.labels or NO_LABELS).cluster_spec
    return digest if digest and _DIGEST.fullmatch(digest) else ""
