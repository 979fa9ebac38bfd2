"""What a plan is made of: values that `plan` returns and `apply` executes; and what gang scheduling adds to a plan. Pure.

With gang scheduling the pods of a job are scheduled together or not at all. A job has one PodGroup of its own name. It is
created before any pod, names the least number of pods that are of use, and is deleted when the job ends or is suspended. Only
`minMember`, and the resources computed from it, are ever written to a group that exists: its queue belongs to whoever moves the
group (B66).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from tfjob_operator.api.core import POD_GROUP_PENDING, EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.conditions import is_finished
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.types import InvalidSpec, JobStatus, TFJob, TFJobSpec
from tfjob_operator.controller.jobs.children import ConfigMap, Pod, PodGroup, ReplicaKey, Service
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.pods import Problem, problem_of_job
from tfjob_operator.controller.tfjob.build.children import GangScheduler
from tfjob_operator.controller.tfjob.plan.replicas import Mending, Replica


class Defaults(NamedTuple):
    """What the operator does where a job does not say it.

    `delays`: restarts of failed programs are delayed. `completion_grace_s` is how long workers may go on after the job has
    succeeded. A node that is not ready for `node_lost_timeout_s` is lost; 0 for never. `last_words`: a container that fails
    without a termination message leaves the end of its log.
    """

    delays: bool = True
    completion_grace_s: int = 30
    node_lost_timeout_s: int = 0
    last_words: bool = True


DEFAULTS: Final = Defaults()


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A pod to delete, and the event to write before, since only the pod proves it. `restarts` if another takes its place.

    `decision` is what a rule has decided about this replica: the names of the rule, its action and the replica type.
    """

    pod: Pod
    event: JobEvent | None = None
    restarts: bool = False
    decision: tuple[str, str, str] | None = None


class LostPod(NamedTuple):
    """A pod whose node is lost, and since when that is not ready."""

    pod: Pod
    since: datetime


@dataclass(frozen=True, slots=True)
class PodGroupResize:
    """A PodGroup whose `minMember` must change."""

    group: PodGroup
    min_member: int


@dataclass(frozen=True, slots=True)
class Blocked:
    """The children of a job that could not be created, by name (U2).

    `refused` are all of them, `waiting` those that must not be tried yet; `rejected` are replicas whose pods, which kubelets
    rejected, must not be replaced yet. `next_due_in_s` is when the first of these may be.
    """

    refused: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    rejected: frozenset[str] = frozenset()
    next_due_in_s: float | None = None


NONE_BLOCKED: Final = Blocked()


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. `status` is None when the one on the server says all there is to say.

    `requeue_after_s` is in how many seconds another plan may be due by time alone; None for never. `delete_job` is due when
    the job has outlived its TTL. `relabel` are children whose labels say something else than their names, `reselect` services
    that select something else than their pods. `create_pod_group` is the least number of pods of the group to create, which
    comes before every pod. So do the ConfigMaps of `create_config_maps`, which are hashes. `begins_attempt`: the pods are the
    first of an attempt, so none of an earlier one may be left on the API server. `create_later` is how many pods are missing
    that a later plan creates. `lost_pods` are on nodes that are lost: those
    that have not ended are marked as failed, the others, which are being deleted, are force-deleted.
    """

    create_services: tuple[ReplicaKey, ...] = ()
    create_pods: tuple[ReplicaKey, ...] = ()
    status: JobStatus | None = None
    events: tuple[JobEvent, ...] = ()
    delete_pods: tuple[PodDeletion, ...] = ()
    delete_services: tuple[Service, ...] = ()
    delete_job: bool = False
    relabel: tuple[Mending, ...] = ()
    reselect: tuple[Mending, ...] = ()
    problems: tuple[Problem, ...] = ()
    create_pod_group: int | None = None
    resize_pod_group: PodGroupResize | None = None
    delete_pod_group: PodGroup | None = None
    create_config_maps: tuple[str, ...] = ()
    delete_config_maps: tuple[ConfigMap, ...] = ()
    requeue_after_s: float | None = None
    begins_attempt: bool = False
    create_later: int = 0
    lost_pods: tuple[LostPod, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether anything is to be made or deleted."""
        return bool(
            self.create_services
            or self.create_pods
            or self.delete_pods
            or self.delete_services
            or self.delete_job
            or self.create_pod_group
            or self.resize_pod_group
            or self.delete_pod_group
            or self.create_config_maps
            or self.delete_config_maps
            or self.lost_pods
        )

    def requeued_within(self, seconds: float | None) -> Plan:
        """Return the plan with another one due after so many seconds, if none is due before; None for never."""
        if seconds is None or (self.requeue_after_s is not None and self.requeue_after_s <= seconds):
            return self
        return replace(self, requeue_after_s=seconds)

    def ends(self, job: TFJob) -> bool:
        """Whether the job ends with this plan, which then holds nothing else."""
        return self.status is not None and is_finished(self.status) and not is_finished(job.status)


NOTHING: Final = Plan()


FIRST_LOOK_S: Final = 0.5
"""After how many seconds a job asks again whether PodGroups are listed, if that did not fail: the operator has just started."""
LOOK_AGAIN_S: Final = 5.0
"""After how many seconds it asks again when listing has failed. That reads our cache, which lists again every half minute
or so."""


@dataclass(frozen=True, slots=True)
class Gang:
    """What is known of a job's PodGroup.

    `known` is False until PodGroups have been listed once; `failure` says why that failed, if it did: perhaps the CRD is
    not installed.
    """

    scheduler: GangScheduler
    group: PodGroup | None = None
    known: bool = True
    failure: str = ""


def with_gang(
    plan: Plan, job: TFJob, spec: TFJobSpec | InvalidSpec, replicas: Iterable[Replica], gang: Gang | None
) -> Plan:
    """Return the plan with what its PodGroup needs; `gang` is None where no gang scheduler is in use.

    `replicas` are those that have a pod and are asked for. The group of a held job stays as it is.
    """
    if gang is None or plan.ends(job):
        return plan
    if spec.suspend or conditions.is_finished(job.status):
        return without_pod_group(plan, gang)
    return plan if isinstance(spec, InvalidSpec) else with_pod_group(plan, job, spec, replicas, gang)


def without_pod_group(plan: Plan, gang: Gang) -> Plan:
    """Return the plan for a job that needs no PodGroup (any more): it is deleted, once (B55)."""
    if gang.group is None or plan.delete_job or _is_going(gang.group):
        return plan
    return replace(plan, delete_pod_group=gang.group)


def with_pod_group(plan: Plan, job: TFJob, spec: TFJobSpec, replicas: Iterable[Replica], gang: Gang) -> Plan:
    """Return the plan for a job that is to run; `replicas` are those of its specification that have a pod."""
    group = gang.group
    plan = replace(plan, events=plan.events + _first_events(job, spec, gang.scheduler) + _told_to_stay(job, spec, gang))
    if not gang.known:
        return _in_ignorance(plan, gang) if plan.create_pods else plan
    if group is not None and _is_going(group):
        return _held_back(plan)  # a new group can be made when this one is gone
    # A replica that has succeeded and whose pod is gone never comes back: a group that counts on it would wait for ever.
    able = len({replica.key for replica in replicas}) + len(plan.create_pods) + plan.create_later
    min_member = _min_member(spec, able)
    if min_member == 0:
        return plan
    if group is None:
        plan = replace(plan, create_pod_group=min_member)
    elif group.spec.min_member != min_member:
        plan = replace(plan, resize_pod_group=PodGroupResize(group, min_member))
    return plan if _admitted(gang) else _held_back(plan)


def _min_member(spec: TFJobSpec, able: int) -> int:
    """As many as the job can have, or as it says is enough. A group of none is no group."""
    asked = spec.scheduling.min_available
    return able if asked is None else min(max(asked, 1), able)


def holds_pods(gang: Gang) -> bool:
    """Return True if no pod may be created yet because of the job's PodGroup."""
    return not gang.known or not _admitted(gang) or (gang.group is not None and _is_going(gang.group))


def _admitted(gang: Gang) -> bool:
    if not gang.scheduler.admits:
        return True
    return gang.group is not None and gang.group.status.phase not in {"", POD_GROUP_PENDING}


def _held_back(plan: Plan) -> Plan:
    """Create no pod, and no service: a job that waits in a queue uses no resources of the cluster."""
    waiting = {key.name for key in plan.create_pods}
    services = tuple(key for key in plan.create_services if key.name not in waiting)
    return replace(plan, create_pods=(), create_services=services)


def _in_ignorance(plan: Plan, gang: Gang) -> Plan:
    """Create nothing. Nothing will wake the job, so it is queued again after some time."""
    plan = _held_back(plan.requeued_within(LOOK_AGAIN_S if gang.failure else FIRST_LOOK_S))
    if not gang.failure:
        return plan
    text = f"Waiting for PodGroups of {gang.scheduler.name} before creating pods: {gang.failure}"
    return replace(plan, problems=(*plan.problems, problem_of_job(EventReason.POD_GROUPS_UNKNOWN, text)))


def _first_events(job: TFJob, spec: TFJobSpec, scheduler: GangScheduler) -> tuple[JobEvent, ...]:
    """Return the events that are recorded once, with the job's first status."""
    if job.status.conditions:
        return ()
    if not {replica.template.scheduler_name for replica in spec.replicas.values()} - {"", scheduler.name}:
        return ()
    text = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
    return (JobEvent(EventType.WARNING, EventReason.OTHER_SCHEDULER, text),)


def _told_to_stay(job: TFJob, spec: TFJobSpec, gang: Gang) -> tuple[JobEvent, ...]:
    """Return what is said once for each edit of a job whose group is otherwise than the job asks for."""
    if gang.group is None or job.status.observed_generation in {None, job.metadata.generation}:
        return ()
    asked, made = spec.scheduling, gang.group.spec
    wishes: dict[str, tuple[object, object]] = {"minResources": (asked.min_resources, made.min_resources)}
    if gang.scheduler.admits:
        wishes["queue"] = (asked.queue, made.queue)
        wishes["priorityClass"] = (asked.priority_class, made.priority_class_name)
    else:
        wishes["scheduleTimeoutSeconds"] = (asked.schedule_timeout_s, made.schedule_timeout_seconds)
    others = [name for name, (wish, is_there) in wishes.items() if wish not in (None, "") and wish != is_there]
    if not others:
        return ()
    fields = ", ".join(f"spec.runPolicy.schedulingPolicy.{name}" for name in others)
    text = (
        f"{fields} cannot change after the PodGroup was created. Suspend and resume the job to recreate the PodGroup."
    )
    return (JobEvent(EventType.WARNING, EventReason.POD_GROUP_NOT_UPDATED, text),)


def _is_going(group: PodGroup) -> bool:
    return group.metadata.deletion_timestamp is not None
