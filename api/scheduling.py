"""PodGroups, which tell a gang scheduler which pods belong together: the two kinds that are in use."""

from __future__ import annotations

from tfjob_operator.api.meta import Resource

VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
COSCHEDULING_POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
"""Those of the coscheduling plugin (sig-scheduling's scheduler-plugins), which runs in a scheduler of any name."""

POD_GROUP_PENDING = "Pending"
