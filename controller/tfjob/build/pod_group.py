"""The body of a job's PodGroup, and the resources that its pods need at least. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tfjob_operator.api.pod_requests import object_in, pod_requests
from tfjob_operator.api.quantities import format_quantity
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.tfjob.build.labels import labels_of_all
from tfjob_operator.controller.tfjob.build.references import owner_reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfjob_operator.api.meta import JSON, ObjectMeta
    from tfjob_operator.api.v1.types import TFJobSpec
    from tfjob_operator.controller.jobs.children import PodGroup
    from tfjob_operator.controller.tfjob.build.gang_scheduler import GangScheduler


def build_pod_group(
    job: ObjectMeta, spec: TFJobSpec, templates: Mapping[str, JSON], scheduler: GangScheduler, min_member: int
) -> dict[str, Any]:
    """Return the PodGroup of a job, as it is sent to the API server, without fields that the user left out.

    A queue, above all: the scheduler, or its webhook, knows the default (B66).
    """
    asked = spec.scheduling
    resources = min_resources(spec, templates, min_member) if asked.min_resources is None else asked.min_resources
    fields: dict[str, Any] = {"minMember": min_member, "minResources": resources}
    if scheduler.admits:
        fields |= {"queue": asked.queue, "priorityClassName": asked.priority_class or _priority_class(templates)}
    else:
        fields["scheduleTimeoutSeconds"] = asked.schedule_timeout_s
    return {
        "apiVersion": scheduler.pod_groups.api_version,
        "kind": scheduler.pod_groups.kind,
        "metadata": {"name": job.name, "labels": labels_of_all(job), "ownerReferences": [owner_reference(job)]},
        "spec": {name: value for name, value in fields.items() if value not in (None, "", {})},
    }


def resize_patch(
    spec: TFJobSpec, templates: Mapping[str, JSON], group: PodGroup, min_member: int
) -> list[dict[str, Any]]:
    """Return the JSON patch for a group's new size, and the resources computed from it; all else stays.

    Refused by the server when the name belongs to another group by now.
    """
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": group.metadata.uid},
        {"op": "add", "path": "/spec/minMember", "value": min_member},
    ]
    if spec.scheduling.min_resources is None and (resources := min_resources(spec, templates, min_member)):
        patch.append({"op": "add", "path": "/spec/minResources", "value": resources})
    return patch


def min_resources(spec: TFJobSpec, templates: Mapping[str, JSON], min_member: int) -> dict[str, str]:
    """Return what the first `min_member` pods request together, chief first, then in the order of the types."""
    total: dict[str, Decimal] = {}
    left = min_member
    for replica in spec.replicas.values():
        count = min(left, replica.replicas)
        left -= count
        for name, quantity in pod_requests(templates[replica.type]).items():
            total[name] = total.get(name, Decimal(0)) + count * quantity
    return {name: format_quantity(number) for name, number in total.items() if number}


def _priority_class(templates: Mapping[str, JSON]) -> str:
    """Return the priority class of the first template that has one."""
    found = (templates[name] for name in c.REPLICA_TYPES if name in templates)
    names = (object_in(template, "spec").get("priorityClassName") for template in found)
    return next((name for name in names if isinstance(name, str) and name), "")
