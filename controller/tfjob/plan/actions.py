"""What a plan is made of: values that `plan` returns and `apply` executes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tfjob_operator.api.v1.conditions import is_finished
from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.controller.jobs.children import ConfigMap, Pod, PodGroup, ReplicaKey, Service
from tfjob_operator.controller.jobs.problems import JobEvent, Problem
from tfjob_operator.controller.tfjob.plan.replicas import Mending


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A pod to delete, and the event to write before, since only the pod proves it. `restarts` if another takes its place."""

    pod: Pod
    event: JobEvent | None = None
    restarts: bool = False


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
    comes before every pod. So do the ConfigMaps of `create_config_maps`, which are hashes.
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
