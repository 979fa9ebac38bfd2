"""Chooses the node of a pod, and returns kube-scheduler's message for a pod that fits nowhere. Pure.

It has the filters of kube-scheduler that depend only on one pod and one node: cordoned nodes, taints, nodeSelector and required
node affinity, requests. The matching node with the fewest pods is chosen. Pods are never preempted.
`test/unit/hack/test_hollow_node_scheduling.py` compares the messages with those of real schedulers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from hack.hollow_node.objects import (
    TERMINAL,
    HollowNodeObject,
    HollowPod,
    HollowSpec,
    HollowStatus,
    NodeTerm,
    Requirement,
    Taint,
    Toleration,
)
from hack.hollow_node.script import RUN, Script
from hack.kubernetes_versions import (
    CLAIMS_ARE_DEALLOCATED,
    OVERSIZED_REQUESTS_ARE_HOPELESS,
    PREEMPTION_ENDS_WITH_TWO_STOPS,
    PREEMPTION_IS_EXPLAINED,
    SELECTORS_ARE_NAMED,
    TAINTS_ARE_CALLED_UNTOLERATED,
    TAINTS_ARE_NOT_NAMED,
    Kubernetes,
)
from tfjob_operator.api.meta import controller_of, meta_key
from tfjob_operator.api.resources import parse_quantity, pod_requests

# How many runs of its script a pod's predecessors have used.
#
# A controller that replaces a failed pod gives the new one the same annotations. The successor continues the list of runs. So
# the node counts the runs of every pod with a controller. When it binds the successor, it writes the counts into an annotation
# of that pod.


class History:
    """The runs that pods used, by namespace, name and controller UID. For one task at a time.

    Invariants: the counts of a pod never decrease; a pod uses at least one entry of each list, even if it never started;
    nothing is stored for pods without a controller or without a list of runs.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str], tuple[str, Mapping[str, int]]] = {}
        """The UID of the last pod and its runs, by namespace, name and controller."""

    def runs_before(self, pod: HollowPod) -> Mapping[str, int]:
        """Return the runs that the predecessors of a pod have used, by container; empty for the first pod."""
        key = _succession(pod)
        return self._entries[key][1] if key is not None and key in self._entries else {}

    def observe(self, pod: HollowPod, script: Script, status: HollowStatus) -> None:
        """Count the runs that a pod of this node has used."""
        key = _succession(pod)
        if key is None:
            return
        begun = {
            container.name: container.restart_count + 1
            for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
        }
        uid, before = self._entries.get(key, ("", {}))
        counted = before if uid == pod.metadata.uid else {}
        runs = {
            name: max(counted.get(name, 0), script.runs_before.get(name, 0) + begun.get(name, 1))
            for name in script.runs
        }
        self._entries[key] = pod.metadata.uid, runs


def _succession(pod: HollowPod) -> tuple[str, str, str] | None:
    """Return the common key of a pod and its successors, or None if nothing is stored."""
    owner = controller_of(pod.metadata)
    if owner is None or not any(
        "," in text for key, text in (pod.metadata.annotations or {}).items() if key.startswith(RUN)
    ):
        return None
    return pod.metadata.namespace, pod.metadata.name, owner.uid


_CORDONED: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_REPELS: Final = frozenset({"NoSchedule", "NoExecute"})
_NO_HELP: Final = "Preemption is not helpful for scheduling"
_NO_VICTIMS: Final = "No preemption victims found for incoming pod"


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The pod fits on no node; the message is kube-scheduler's."""

    message: str


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a pod does not fit on a node: it `lacks_room`, and if it `is_oversized`, also on the empty node."""

    reasons: Sequence[str]
    lacks_room: bool = False
    is_oversized: bool = False


@dataclass(frozen=True, slots=True)
class _Node:
    """A node, its resources, and the requests of its pods."""

    seen: HollowNodeObject
    room: Mapping[str, Decimal]
    used: Counter[str]


class Scheduler:
    """The nodes of this process and the pods on them. Used by one task at a time.

    Invariant: a pod counts on at most one node. It counts from its binding, or from when it is first seen on the node, until it
    has ended or is gone.
    """

    def __init__(self, names: Iterable[str], kubernetes: Kubernetes, *, roomy: bool = False) -> None:
        """Start with the names of the nodes; `observe_node` adds their properties.

        If `roomy`, every node has room for all requests.
        """
        self.names = frozenset(names)
        self._roomy = roomy
        self._kubernetes = kubernetes
        self._nodes: dict[str, _Node] = {}
        self._places: dict[str, tuple[str, Mapping[str, Decimal]]] = {}
        """The node on which a pod counts, and its requests."""
        self._used: dict[str, Counter[str]] = {name: Counter() for name in self.names}

    def observe_node(self, node: HollowNodeObject) -> bool:
        """Store the current state of a node; return False, and ignore it, if it belongs to another process."""
        name = node.metadata.name
        if name in self.names:
            found = ((key, parse_quantity(value)) for key, value in (node.status.allocatable or {}).items())
            room = {key: number for key, number in found if number is not None}
            self._nodes[name] = _Node(node, room, self._used[name])
        return name in self.names

    def forget_node(self, name: str) -> None:
        """Bind no more pods to a node."""
        self._nodes.pop(name, None)

    def observe(self, pod: HollowPod) -> bool:
        """Count a pod on its node; return True if it has just freed room."""
        key, name = meta_key(pod.metadata), pod.spec.node_name
        if name not in self.names:
            return False
        if pod.status.phase in TERMINAL:
            return self.forget(key)
        if key not in self._places:
            self._count(key, name, requests_of(pod.spec))
        return False

    def forget(self, key: str) -> bool:
        """Stop counting a pod; return True if it was counted."""
        place = self._places.pop(key, None)
        if place is not None:
            self._used[place[0]].subtract(place[1])
        return place is not None

    def place(self, pod: HollowPod) -> str | Unschedulable:
        """Choose a node for a pod and count the pod there."""
        requests = requests_of(pod.spec)
        refusals: list[_Refusal] = []
        best: _Node | None = None
        for node in self._nodes.values():
            refusal = self._refusal(pod.spec, requests, node)
            if refusal is not None:
                refusals.append(refusal)
            elif best is None or node.used["pods"] < best.used["pods"]:
                best = node
        if best is None:
            return Unschedulable(self._message(refusals))
        name = best.seen.metadata.name
        self._count(meta_key(pod.metadata), name, requests)
        return name

    def _count(self, key: str, name: str, requests: Mapping[str, Decimal]) -> None:
        self.forget(key)
        self._places[key] = name, requests
        self._used[name].update(requests)

    def _refusal(self, spec: HollowSpec, requests: Mapping[str, Decimal], node: _Node) -> _Refusal | None:
        """Return the result of the first filter that rejects the pod."""
        reason = self._unsuitable(spec, node.seen)
        if reason:
            return _Refusal([f"node(s) {reason}"])
        return None if self._roomy else _overfull(requests, node)

    def _unsuitable(self, spec: HollowSpec, node: HollowNodeObject) -> str:
        """Return the property of the node that excludes the pod, "" if there is none."""
        if node.spec.unschedulable and not _tolerated(_CORDONED, spec.tolerations):
            return "were unschedulable"
        for taint in node.spec.taints:
            if taint.effect in _REPELS and not _tolerated(taint, spec.tolerations):
                if self._kubernetes.has(TAINTS_ARE_NOT_NAMED):
                    return "had untolerated taint(s)"
                named = f"taint {{{taint.key}: {taint.value}}}"
                if self._kubernetes.has(TAINTS_ARE_CALLED_UNTOLERATED):
                    return f"had untolerated {named}"
                return f"had {named}, that the pod didn't tolerate"
        labels = node.metadata.label_map()
        selected = all(labels.get(key) == value for key, value in (spec.node_selector or {}).items())
        required = spec.affinity.node_affinity.required
        if selected and (required is None or any(_meets(node, term) for term in required.node_selector_terms)):
            return ""
        return f"didn't match Pod's node affinity{'/selector' if self._kubernetes.has(SELECTORS_ARE_NAMED) else ''}"

    def _message(self, refusals: Sequence[_Refusal]) -> str:
        if not refusals:
            return "no nodes available to schedule pods"
        number = len(refusals)
        message = f"0/{number} nodes are available: {_counted(r for refusal in refusals for r in refusal.reasons)}."
        if not self._kubernetes.has(PREEMPTION_IS_EXPLAINED):
            return message
        hopeless = self._kubernetes.has(OVERSIZED_REQUESTS_ARE_HOPELESS)
        help_ = _counted(
            _NO_VICTIMS if refusal.lacks_room and not (hopeless and refusal.is_oversized) else _NO_HELP
            for refusal in refusals
        )
        claims = "no new claims to deallocate, " if self._kubernetes.has(CLAIMS_ARE_DEALLOCATED) else ""
        end = ".." if self._kubernetes.has(PREEMPTION_ENDS_WITH_TWO_STOPS) else "."
        return f"{message} {claims}preemption: 0/{number} nodes are available: {help_}{end}"


def requests_of(spec: HollowSpec) -> Mapping[str, Decimal]:
    """Return the requests of a pod, including one of a node's pods."""
    containers = (*spec.containers, *(spec.init_containers or ()))
    if spec.overhead is None and all(container.resources is None for container in containers):
        return {"pods": Decimal(1)}
    return {"pods": Decimal(1), **pod_requests({"spec": msgspec.to_builtins(spec)})}


def _counted(reasons: Iterable[str]) -> str:
    return ", ".join(sorted(f"{number} {reason}" for reason, number in Counter(reasons).items()))


def _overfull(requests: Mapping[str, Decimal], node: _Node) -> _Refusal | None:
    """Return the insufficient resources."""
    reasons, oversized = [], False
    for resource, asked in requests.items():
        room = node.room.get(resource, Decimal(0))
        if asked and asked > room - node.used[resource]:
            reasons.append("Too many pods" if resource == "pods" else f"Insufficient {resource}")
            oversized = oversized or asked > room
    return _Refusal(reasons, lacks_room=True, is_oversized=oversized) if reasons else None


def _tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (toleration.operator == "Exists" or (bool(toleration.key) and toleration.value == taint.value))
        for toleration in tolerations
    )


def _meets(node: HollowNodeObject, term: NodeTerm) -> bool:
    """Whether a node meets a term; no node meets an empty term."""
    fields, labels = {"metadata.name": node.metadata.name}, node.metadata.label_map()
    return bool(term.match_expressions or term.match_fields) and (
        all(_holds(labels, each) for each in term.match_expressions)
        and all(_holds(fields, each) for each in term.match_fields)
    )


def _holds(labels: Mapping[str, str], requirement: Requirement) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    try:
        number, bound = int(value or ""), int(requirement.values[0])
    except ValueError:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound
