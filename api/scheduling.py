"""PodGroups, by which gang schedulers are told which pods belong together: what a controller reads of them.

Both kinds that are in use have these fields. What else is in a PodGroup (its queue, say) is nobody's business but its owner's
and the scheduler's, so it is not here, and is never written back.
"""

from __future__ import annotations

from tfjob_operator.api.meta import Resource, Struct
from tfjob_operator.api.v1.children import ChildMeta

VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
COSCHEDULING_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
"""Those of the coscheduling plugin (sig-scheduling's scheduler-plugins), which runs in a scheduler of any name."""

POD_GROUP_PENDING = "Pending"


class PodGroupSpec(Struct, frozen=True):
    """How many pods must find a place before any of them gets one."""

    min_member: int = 0


class PodGroupStatus(Struct, frozen=True):
    """What the scheduler says; the phase is empty until it has seen the group."""

    phase: str = ""


class PodGroup(Struct, frozen=True):
    """A PodGroup."""

    metadata: ChildMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
