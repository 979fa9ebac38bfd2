"""What a plan is made of: values that the pure half of the controller answers and the other half carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.conditions import is_finished

if TYPE_CHECKING:
    from tfjob_operator.api.v1.types import JobStatus, TFJob
    from tfjob_operator.controller.tfjob.children import ConfigMap, Pod, PodGroup, ReplicaKey, Service


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event on the job. Events of a plan are recorded once the plan's status is on the server."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A pod to delete, and what must be told before, since it is the pod that knows it."""

    pod: Pod
    event: JobEvent | None = None


@dataclass(frozen=True, slots=True)
class Mending:
    """A child that somebody has edited, and the replica that it belongs to."""

    child: Pod | Service
    key: ReplicaKey


ProblemKey = tuple[str, str, str]
"""UID of a pod, name of its container or "", reason: the same for as long as it is the same problem."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod does not start, and the event that tells it. To be told once, not at every sync."""

    key: ProblemKey
    event: JobEvent


@dataclass(frozen=True, slots=True)
class PodGroupResize:
    """A PodGroup that asks for another number of pods than the job has need of now."""

    group: PodGroup
    min_member: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. `status` is None when the one on the server says all there is to say.

    `requeue_after_s` is in how many seconds time alone will change the answer; None when it will not. `delete_job` is due when
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

    def ends(self, job: TFJob) -> bool:
        """Whether the job ends with this plan, which then holds nothing else."""
        return self.status is not None and is_finished(self.status) and not is_finished(job.status)


NOTHING: Final = Plan()
