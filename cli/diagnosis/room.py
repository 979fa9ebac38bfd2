"""Why a pod fits on no node, by arithmetic: compares what the pod requests with what the pods of each node leave. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from tfjob_operator.api.resources import parse_quantity, pod_requests
from tfjob_operator.cli.diagnosis.pods import condition_of
from tfjob_operator.cli.diagnosis.words import amount, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfjob_operator.cli.diagnosis.evidence import Evidence
    from tfjob_operator.cli.diagnosis.objects import Node, Pod, Taint, Toleration

Numbers = dict[str, Decimal]
_ONE_POD: Final = "pods"
_PRESSURE: Final = "node.kubernetes.io/"


class Obstacle(IntEnum):
    """What keeps a pod from a node, the easiest to remove first."""

    NONE = 0
    FULL = 1
    CORDONED = 2
    NOT_READY = 3
    PRESSURE = 4
    TAINT = 5
    SELECTOR = 6
    TOO_SMALL = 7
    NOT_OFFERED = 8


@dataclass(frozen=True, slots=True)
class Place:
    """A node for one pod: the worst obstacle, and in words what is short or in the way."""

    node: str
    obstacle: Obstacle
    words: str = ""
    resource: str = ""


def requests_of(pod: Pod) -> Numbers:
    """Return what a pod requests, and one of the resource `pods` for itself."""
    # `pod_requests` reads objects as they are in JSON.
    spec = msgspec.json.decode(msgspec.json.encode(pod.spec))
    return pod_requests({"spec": spec}) | {_ONE_POD: Decimal(1)}


class Room:
    """All nodes, and what their pods request: added up once for all pods that wait."""

    def __init__(self, evidence: Evidence) -> None:
        self._nodes = sorted(evidence.nodes or (), key=lambda node: node.metadata.name)
        self._knows_pods = evidence.node_pods is not None
        self._pods = evidence.node_pods or ()
        self._found: dict[bytes, tuple[Place, ...]] = {}

    @cached_property
    def _taken(self) -> Mapping[str, Numbers]:
        taken: dict[str, Numbers] = defaultdict(dict)
        for pod in self._pods:
            if pod.spec.node_name and pod.status.phase not in {"Succeeded", "Failed"}:
                on_node = taken[pod.spec.node_name]
                for resource, number in requests_of(pod).items():
                    on_node[resource] = on_node.get(resource, Decimal(0)) + number
        return taken

    def places(self, pod: Pod) -> tuple[Place, ...]:
        """Return a place for each node, the one with the least obstacle first; none if nodes may not be read."""
        spec = pod.spec
        # The replicas of one type ask for the same; volumes are left out, since each pod's token has a name of its own.
        same = msgspec.json.encode(
            (
                (spec.containers, spec.init_containers, spec.resources, spec.overhead),
                (spec.node_selector, spec.affinity, spec.tolerations),
            )
        )
        if same not in self._found:
            asked = requests_of(pod)
            found = [
                _place(node, pod, asked, self._taken.get(node.metadata.name, {}), knows_pods=self._knows_pods)
                for node in self._nodes
            ]
            self._found[same] = tuple(sorted(found, key=lambda place: (place.obstacle, place.node)))
        return self._found[same]


def _place(node: Node, pod: Pod, asked: Numbers, taken: Numbers, *, knows_pods: bool) -> Place:
    """Return the node with its worst obstacle: what would be left if all easier ones were removed."""
    name = node.metadata.name
    has = {resource: parse_quantity(number) for resource, number in (node.status.allocatable or {}).items()}
    for resource, number in sorted(asked.items()):
        offered = has.get(resource)
        if number > 0 and not offered:
            if resource == _ONE_POD:
                continue
            return Place(name, Obstacle.NOT_OFFERED, f"offers no {named(resource)}", resource)
        if offered is not None and number > offered:
            words = f"has {amount(resource, offered)} {named(resource)} in all, {amount(resource, number)} asked for"
            return Place(name, Obstacle.TOO_SMALL, words, resource)
    if wrong := _selector(node, pod):
        return Place(name, Obstacle.SELECTOR, wrong)
    if (place := _kept_away(node, pod)) is not None:
        return place
    for resource, number in sorted(asked.items()) if knows_pods else ():
        offered = has.get(resource)
        free = (offered or Decimal(0)) - taken.get(resource, Decimal(0))
        if offered is not None and number > free:
            words = (
                f"has {amount(resource, max(free, Decimal(0)))} of {amount(resource, offered)} {named(resource)} free, "
                f"{amount(resource, number)} asked for: {amount(resource, number - max(free, Decimal(0)))} short"
            )
            return Place(name, Obstacle.FULL, words, resource)
    return Place(name, Obstacle.NONE)


def _selector(node: Node, pod: Pod) -> str:
    labels = node.metadata.labels or {}
    wrong = [
        f"{key}={wanted}" for key, wanted in sorted((pod.spec.node_selector or {}).items()) if labels.get(key) != wanted
    ]
    if wrong:
        return f"has not the label {named(wrong[0])}"
    if pod.spec.affinity is None or pod.spec.affinity.admits(node.metadata.name, labels):
        return ""
    return "does not meet the node affinity"


def _kept_away(node: Node, pod: Pod) -> Place | None:
    """Return the taint that keeps the pod away, if one does. A cordoned and a lost node have one too."""
    name, tolerations = node.metadata.name, pod.spec.tolerations or ()
    keys = [
        taint
        for taint in node.spec.taints or ()
        if taint.effect != "PreferNoSchedule" and not tolerated(taint, tolerations)
    ]
    ready = condition_of(node.status.conditions, "Ready")
    if any(taint.key in {f"{_PRESSURE}not-ready", f"{_PRESSURE}unreachable"} for taint in keys) or (
        ready is not None and ready.status != "True"
    ):
        return Place(name, Obstacle.NOT_READY, "is not ready")
    if node.spec.unschedulable or any(taint.key == f"{_PRESSURE}unschedulable" for taint in keys):
        return Place(name, Obstacle.CORDONED, "is cordoned")
    for taint in sorted(keys, key=lambda each: (not each.key.startswith(_PRESSURE), each.key, each.value)):
        words = (
            f"has the taint {named(taint.key)}{'=' if taint.value else ''}{named(taint.value)}:{named(taint.effect)}"
        )
        pressure = taint.key.startswith(_PRESSURE) and taint.key.endswith("-pressure")
        return Place(name, Obstacle.PRESSURE if pressure else Obstacle.TAINT, words, taint.key)
    return None


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Return whether one of the tolerations tolerates the taint (kubernetes: staging/src/k8s.io/api/core/v1/toleration.go)."""
    return any(
        (not each.effect or each.effect == taint.effect)
        and (not each.key or each.key == taint.key)
        and (
            each.operator == "Exists"
            or (each.operator in {"", "Equal"} and each.key != "" and each.value == taint.value)
        )
        for each in tolerations
    )
