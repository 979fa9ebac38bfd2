"""The fields of pods, services and nodes that are read, by protobuf field number. Pure.

Source: `generated.proto` of k8s.io/api/core/v1 (July 2026). Field numbers are never reused, so the tables are valid for
all versions. A test compares them with the slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tfjob_operator.api.core import CONFIG_MAPS, NODES, PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.protobuf import (
    METADATA,
    OBJECT_META,
    Message,
    many,
    number,
    numbers,
    one,
    quantities,
    string_map,
    text,
    time,
)

_EXIT_CODES: Final = Message({1: text("operator"), 2: numbers("values")})
_RESTART_RULE: Final = Message({1: text("action"), 2: one("exitCodes", _EXIT_CODES)})
_RESOURCES: Final = Message({1: quantities("limits")}, alike=True)
_CONTAINER: Final = Message(
    {
        1: text("name", always=True),
        8: one("resources", _RESOURCES),
        24: text("restartPolicy"),
        25: many("restartPolicyRules", _RESTART_RULE),
    }
)
_POD_SPEC: Final = Message(
    {
        2: many("containers", _CONTAINER),
        3: text("restartPolicy"),
        4: number("terminationGracePeriodSeconds"),
        10: text("nodeName"),
        17: text("subdomain"),
        20: many("initContainers", _CONTAINER),
        38: many("schedulingGates", Message({1: text("name")})),
    }
)
_WAITING: Final = Message({1: text("reason"), 2: text("message")})
_TERMINATED: Final = Message(
    {1: number("exitCode"), 3: text("reason"), 4: text("message"), 5: time("startedAt"), 6: time("finishedAt")}
)
_STATE: Final = Message({1: one("waiting", _WAITING), 3: one("terminated", _TERMINATED)}, alike=True)
_CONTAINER_STATUS: Final = Message(
    {1: text("name", always=True), 2: one("state", _STATE), 3: one("lastState", _STATE), 5: number("restartCount")}
)
_CONDITION: Final = Message(
    {1: text("type", always=True), 2: text("status"), 5: text("reason"), 6: text("message")}, alike=True
)
_POD_STATUS: Final = Message(
    {
        1: text("phase"),
        2: many("conditions", _CONDITION),
        3: text("message"),
        4: text("reason"),
        7: time("startTime"),
        8: many("containerStatuses", _CONTAINER_STATUS),
        10: many("initContainerStatuses", _CONTAINER_STATUS),
    }
)
POD: Final = Message({1: one("metadata", OBJECT_META), 2: one("spec", _POD_SPEC), 3: one("status", _POD_STATUS)})

_SERVICE_SPEC: Final = Message({2: string_map("selector")})
SERVICE: Final = Message({1: one("metadata", OBJECT_META), 2: one("spec", _SERVICE_SPEC)})

_TAINT: Final = Message({1: text("key", always=True), 2: text("value"), 3: text("effect"), 4: time("timeAdded")})
_NODE_CONDITION: Final = Message({1: text("type", always=True), 2: text("status"), 4: time("lastTransitionTime")})
NODE: Final = Message(
    {
        1: one("metadata", OBJECT_META),
        2: one("spec", Message({5: many("taints", _TAINT)})),
        3: one("status", Message({2: quantities("allocatable"), 4: many("conditions", _NODE_CONDITION)})),
    }
)

BY_RESOURCE: Final[Mapping[Resource, Message]] = {PODS: POD, SERVICES: SERVICE, CONFIG_MAPS: METADATA, NODES: NODE}
