"""The kinds of children that a job has, and the reasons of the events about each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tfjob_operator.api.client.errors import BadRequestError, InvalidError, StatusError
from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import EventReason

if TYPE_CHECKING:
    from tfjob_operator.controller.tfjob.build.gang_scheduler import GangScheduler


@dataclass(frozen=True, slots=True)
class ChildKind:
    """A kind of child, and the reasons of the events about it.

    `refusals` are the errors of a create that mean: the API server will never accept this body.
    """

    name: str
    resource: Resource
    created: str
    failed_create: str
    deleted: str
    failed_delete: str
    relabelled: str = ""
    failed_relabel: str = ""
    refusals: tuple[type[StatusError], ...] = (InvalidError, BadRequestError)


POD: Final = ChildKind(
    "pod",
    PODS,
    EventReason.CREATED_POD,
    EventReason.FAILED_CREATE_POD,
    EventReason.DELETED_POD,
    EventReason.FAILED_DELETE_POD,
    EventReason.RELABELLED_POD,
    EventReason.FAILED_RELABEL_POD,
)
SERVICE: Final = ChildKind(
    "service",
    SERVICES,
    EventReason.CREATED_SERVICE,
    EventReason.FAILED_CREATE_SERVICE,
    EventReason.DELETED_SERVICE,
    EventReason.FAILED_DELETE_SERVICE,
    EventReason.RELABELLED_SERVICE,
    EventReason.FAILED_RELABEL_SERVICE,
)
CONFIG_MAP: Final = ChildKind(
    "ConfigMap",
    CONFIG_MAPS,
    EventReason.CREATED_CONFIG_MAP,
    EventReason.FAILED_CREATE_CONFIG_MAP,
    EventReason.DELETED_CONFIG_MAP,
    EventReason.FAILED_DELETE_CONFIG_MAP,
    # It contains nothing that the user could correct, so it is tried again whatever the error.
    refusals=(),
)


def pod_group_kind(scheduler: GangScheduler) -> ChildKind:
    """Return the kind of child that the PodGroups of this scheduler are."""
    return ChildKind(
        "PodGroup",
        scheduler.pod_groups,
        EventReason.CREATED_POD_GROUP,
        EventReason.FAILED_CREATE_POD_GROUP,
        EventReason.DELETED_POD_GROUP,
        EventReason.FAILED_DELETE_POD_GROUP,
        # Not BadRequestError: webhooks use that code while a queue is closed, and it may open.
        refusals=(InvalidError,),
    )
