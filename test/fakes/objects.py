"""Slices of a pod and a service with all labels, such as a controller of any kind declares."""

from __future__ import annotations

from tfjob_operator.api.core import PODS, SERVICES, PodStatus
from tfjob_operator.api.meta import ObjectMeta, Struct


class Pod(Struct, frozen=True, tag_field="kind", tag=PODS.kind):
    """A pod."""

    metadata: ObjectMeta
    status: PodStatus = PodStatus()


class Service(Struct, frozen=True, tag_field="kind", tag=SERVICES.kind):
    """A service: only its identity is read."""

    metadata: ObjectMeta
