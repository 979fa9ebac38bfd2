"""Which gang schedulers there are, and what they read of pods. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.scheduling import COSCHEDULING_POD_GROUPS, VOLCANO_POD_GROUPS

if TYPE_CHECKING:
    from tfjob_operator.api.meta import Resource

VOLCANO: Final = "volcano"


@dataclass(frozen=True, slots=True)
class GangScheduler:
    """A scheduler that knows PodGroups.

    name: the `schedulerName` of pods.
    pod_groups: the kind of PodGroups that it reads.
    admits: whether the phase of a group says when its pods may be created; pods that are created before that are scheduled
        one by one, as if there were no group (B65).
    """

    name: str
    pod_groups: Resource
    admits: bool

    def pod_labels(self, job: str) -> dict[str, str]:
        """Return the labels by which a pod belongs to the job's group."""
        return {} if self.admits else {"scheduling.x-k8s.io/pod-group": job}

    def pod_annotations(self, job: str, replica_type: str) -> dict[str, str]:
        """Return the annotations by which a pod belongs to the job's group; volcano also reads its role."""
        if not self.admits:
            return {}
        return {"scheduling.k8s.io/group-name": job, "volcano.sh/task-spec": replica_type.lower()}


def gang_scheduler(name: str) -> GangScheduler:
    """Return the scheduler of this name: volcano, else one with the coscheduling plugin."""
    if name == VOLCANO:
        return GangScheduler(name, VOLCANO_POD_GROUPS, admits=True)
    return GangScheduler(name, COSCHEDULING_POD_GROUPS, admits=False)
