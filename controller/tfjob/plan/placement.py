"""The state of nodes, and which of them suit a pod template. Pure.

`suits` is not the scheduler: it ignores room that other pods take, volumes, and rules about other pods. No pod runs on a node
that does not suit, but a node that suits may have no room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from tfjob_operator.api.meta import JSON
from tfjob_operator.api.resources import object_in, parse_quantity, pod_requests
from tfjob_operator.api.v1.types import ConditionPattern, TaintPattern

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""A taint for nodes that are shut down: kube-controller-manager fails and force-deletes their terminating pods."""
_READY: Final = "Ready"
_NOT_READY: Final = ("False", "Unknown")
_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class NodeShape(NamedTuple):
    """What pods require of a node: its labels, and its resources for pods (none if unknown)."""

    labels: Mapping[str, str]
    allocatable: Mapping[str, str]


class Since(NamedTuple):
    """When this process first saw a condition or taint, in monotonic time, and the time that the node gives for it, if any.

    The given time only distinguishes a condition from a later one with the same status.
    """

    seen_s: float
    given: datetime | None = None


class NodeState(NamedTuple):
    """The conditions and taints of a node, each with the time when it began."""

    conditions: Mapping[ConditionPattern, Since]
    taints: Mapping[TaintPattern, Since]

    def lost_since(self) -> Since | None:
        """Return when the node became not ready; None if it is ready, or if kube-controller-manager handles its pods."""
        if any(taint.key == OUT_OF_SERVICE for taint in self.taints):
            return None
        found = (self.conditions.get(ConditionPattern(_READY, status)) for status in _NOT_READY)
        return next((since for since in found if since is not None), None)


class Cluster(NamedTuple):
    """All nodes, by name."""

    states: Mapping[str, NodeState]
    shapes: Mapping[str, NodeShape]


class Nodes(NamedTuple):
    """The state of the nodes of a job's pods, by name; `failure` is the reason if nodes cannot be read.

    `cluster` is None if it is not known which other nodes there are.
    """

    states: Mapping[str, NodeState]
    failure: str = ""
    cluster: Cluster | None = None


def suits(template: JSON, name: str, shape: NodeShape, taints: Iterable[TaintPattern] = ()) -> bool:
    """Return True if the pods of a template may run on the node with this name."""
    spec = object_in(template, "spec")
    selector = object_in(spec, "nodeSelector")
    return (
        spec.get("nodeName") in {None, "", name}
        and all(shape.labels.get(key) == value for key, value in selector.items())
        and _matches_affinity(spec, name, shape.labels)
        and all(tolerates(spec, taint) for taint in taints if taint.effect in _KEEPS_OFF)
        and _has_resources(template, shape.allocatable)
    )


def tolerates(spec: JSON, taint: TaintPattern) -> bool:
    """Return True if a toleration of this pod spec matches the taint."""
    return any(
        each.get("effect") in {None, "", taint.effect}
        and (each.get("key") or taint.key) == taint.key
        and (each.get("operator") == "Exists" or (each.get("value") or "") == taint.value)
        for each in _objects(spec, "tolerations")
    )


def _matches_affinity(spec: JSON, name: str, labels: Mapping[str, str]) -> bool:
    required = object_in(object_in(object_in(spec, "affinity"), "nodeAffinity"), _REQUIRED)
    terms = _objects(required, "nodeSelectorTerms")
    return not terms or any(_matches_term(term, name, labels) for term in terms)


def _matches_term(term: JSON, name: str, labels: Mapping[str, str]) -> bool:
    """Return True if all requirements of a term match; one without requirements matches no node."""
    expressions, fields = _objects(term, "matchExpressions"), _objects(term, "matchFields")
    return (
        bool(expressions or fields)
        and all(_matches(expression, labels) for expression in expressions)
        and all(_matches(field, {"metadata.name": name}) for field in fields)
    )


def _matches(requirement: JSON, labels: Mapping[str, str]) -> bool:
    given, values = labels.get(str(requirement.get("key"))), _list_in(requirement, "values")
    match requirement.get("operator"):
        case "In":
            return given in values
        case "NotIn":
            return given not in values
        case "Exists":
            return given is not None
        case "DoesNotExist":
            return given is None
        case "Gt":
            return _difference(given, values) > 0
        case "Lt":
            return _difference(given, values) < 0
    return False


def _list_in(value: JSON, name: str) -> list[Any]:
    """Return the list under a key, or an empty one: users' templates are not validated this deep."""
    found = value.get(name)
    return found if isinstance(found, list) else []


def _difference(given: str | None, values: list[Any]) -> int:
    try:
        return int(given or "") - int(values[0])
    except (ValueError, IndexError, TypeError):
        return 0


def _has_resources(template: JSON, allocatable: Mapping[str, str]) -> bool:
    if not allocatable:
        return True
    requests = pod_requests(template)
    return all((parse_quantity(allocatable.get(name)) or Decimal(0)) >= number for name, number in requests.items())


def _objects(value: JSON, name: str) -> list[dict[str, Any]]:
    return [each for each in _list_in(value, name) if isinstance(each, dict)]
