"""Structs of a pod and a service with all labels, as in any controller; and how tests change any object."""

from typing import Any, TypeVar

import msgspec

from tfjob_operator.api.core import PODS, SERVICES, PodStatus
from tfjob_operator.api.meta import ObjectMeta, Struct
from tfjob_operator.controller.jobs.children import NO_LABELS


class Pod(Struct, frozen=True, tag_field="kind", tag=PODS.kind):
    """A pod."""

    metadata: ObjectMeta
    status: PodStatus = PodStatus()


class Service(Struct, frozen=True, tag_field="kind", tag=SERVICES.kind):
    """A service: only its identity is read."""

    metadata: ObjectMeta


T = TypeVar("T", bound=msgspec.Struct)


def changed(found: T, /, **fields: Any) -> T:
    """Return the struct with these fields; `status__phase="Failed"` sets a field of a nested struct."""
    for path, value in fields.items():
        name, _, rest = path.partition("__")
        found = msgspec.structs.replace(
            found, **{name: changed(getattr(found, name), **{rest: value}) if rest else value}
        )
    return found


def edited(job: T, spec: Any = None, /, **fields: Any) -> T:
    """Return the job in its next generation, with another spec and these other fields."""
    given: Any = job
    if spec is not None:
        fields["spec"] = msgspec.Raw(msgspec.json.encode(spec))
    return changed(job, metadata__generation=given.metadata.generation + 1, **fields)


def after(job: T, plan: Any) -> T:
    """Return the job after the status of a plan, if any, was written."""
    return job if plan.status is None else changed(job, status=plan.status)


def labelled(child: T, **labels: str) -> T:
    """Return the child of a job with these labels; "" removes one."""
    given: Any = child
    return changed(child, metadata__labels=changed(given.metadata.labels or NO_LABELS, **labels))
