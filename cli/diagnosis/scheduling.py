"""Pods that find no node. Where nodes can be read the arithmetic says why, else the scheduler's message does. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.facts import latest
from tfjob_operator.cli.diagnosis.pods import condition_of
from tfjob_operator.cli.diagnosis.room import Obstacle
from tfjob_operator.cli.diagnosis.rules import first_match, rule, value
from tfjob_operator.cli.diagnosis.words import named, said
from tfjob_operator.cli.durations import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfjob_operator.cli.diagnosis.facts import Facts
    from tfjob_operator.cli.diagnosis.objects import Pod
    from tfjob_operator.cli.diagnosis.room import Place

_NODES: Final = "kubectl describe nodes   # Allocated resources, Taints"
_SMALLER: Final = "Ask for less in the template, wait until others end, or add nodes"
_TEMPLATE: Final = (
    "kubectl -n {namespace} edit tfjob {job}   # applies to pods created from then on: delete the waiting ones"
)


def _no_node(id_: str, rank: int, title: str, to_do: tuple[str, ...], meaning: str) -> Trouble:
    return Trouble(id_, rank, Severity.ERROR, title, to_do, meaning)


GATED: Final = _no_node(
    "scheduling-gated",
    500,
    "{who} waits for a scheduling gate to be removed: {gate}",
    (
        (
            "kubectl -n {namespace} get pod {pod} -o jsonpath='{{.spec.schedulingGates}}'   # whoever set the gate has "
            "to remove it"
        ),
    ),
    "The pod has spec.schedulingGates",
)
NO_NODES: Final = _no_node(
    "no-nodes",
    501,
    "{who} finds no node: the cluster has none",
    ("kubectl get nodes", "Add nodes, or look at the cluster's autoscaler"),
    "There are no nodes at all",
)
NOT_OFFERED: Final = _no_node(
    "resource-not-offered",
    502,
    "{who} asks for {resource}, which no node offers",
    (_NODES, "Is the device plugin installed, and does it run on the nodes? Is the resource's name right?"),
    "No node has the resource: a device plugin is missing, or the name is wrong",
)
TOO_LARGE: Final = _no_node(
    "pod-too-large",
    503,
    "{who} is larger than any node: {short}",
    ("Ask for less in the template, or add a larger node", _NODES),
    "No node would have room for the pod if it were empty",
)
SELECTOR: Final = _no_node(
    "node-selector",
    504,
    "{who} wants a node that does not exist: {short}",
    ("kubectl get nodes --show-labels", _TEMPLATE),
    "No node has the labels of the pod's nodeSelector or node affinity",
)
TAINT: Final = _no_node(
    "taint-not-tolerated",
    505,
    "{who} is kept from the nodes by a taint: {short}",
    ("Add a toleration to the template, if the job may run there", _TEMPLATE),
    "Nodes have a taint that the pod does not tolerate",
)
PRESSURE: Final = _no_node(
    "node-pressure",
    506,
    "{who} is kept from the nodes since they run short: {short}",
    ("kubectl describe nodes   # Conditions: MemoryPressure, DiskPressure, PIDPressure",),
    "Nodes are under memory, disk or PID pressure",
)
CORDONED: Final = _no_node(
    "nodes-cordoned",
    507,
    "{who} finds no node: those that would do are cordoned",
    ("kubectl get nodes", "kubectl uncordon NODE   # when its maintenance is over"),
    "Nodes are marked unschedulable",
)
NOT_READY: Final = _no_node(
    "nodes-not-ready",
    508,
    "{who} finds no node: those that would do are not ready",
    ("kubectl get nodes", "kubectl describe node NODE"),
    "Nodes are not ready, or cannot be reached",
)
FULL: Final = _no_node(
    "insufficient-resource",
    509,
    "{who} finds no node with enough {resource} free: {short}",
    (_NODES, _SMALLER),
    "All nodes that would do are full: which resource is short, and by how much",
)
TOO_MANY_PODS: Final = _no_node(
    "too-many-pods",
    510,
    "{who} finds no node: all have as many pods as they may have",
    ("kubectl get pods --all-namespaces --output=wide", "Add nodes, or raise the kubelets' maxPods"),
    "Nodes are at their limit of pods",
)
UNBOUND: Final = _no_node(
    "claim-unbound",
    511,
    "{who} waits for a PersistentVolumeClaim to be bound",
    ("kubectl -n {namespace} get pvc", "kubectl -n {namespace} describe pvc"),
    "The pod's claim has no volume yet, and it is not known why",
)
VOLUME_ELSEWHERE: Final = _no_node(
    "volume-elsewhere",
    512,
    "{who} finds no node: its volume lies in another zone or on another node",
    (
        "kubectl get pv -o yaml   # nodeAffinity",
        "Let the pod run where its volume is, or use a volume that is reached from everywhere",
    ),
    "Volume node affinity: the volume can only be used in its zone, or on its node",
)
VOLUME_LIMIT: Final = _no_node(
    "volume-limit",
    513,
    "{who} finds no node: all have as many volumes attached as they may have",
    ("Add nodes, or let replicas share a volume",),
    "Nodes are at their limit of attached volumes",
)
POD_AFFINITY: Final = _no_node(
    "pod-affinity",
    514,
    "{who} finds no node beside, or away from, the pods that its affinity names",
    ("kubectl -n {namespace} get pod {pod} -o jsonpath='{{.spec.affinity}}'", _TEMPLATE),
    "Pod affinity or anti-affinity cannot be met",
)
SPREAD: Final = _no_node(
    "topology-spread",
    515,
    "{who} finds no node by its topology spread constraints",
    ("kubectl -n {namespace} get pod {pod} -o jsonpath='{{.spec.topologySpreadConstraints}}'", _TEMPLATE),
    "Topology spread constraints cannot be met",
)
HOST_PORT: Final = _no_node(
    "host-port-taken",
    516,
    "{who} finds no node where its host port is free",
    ("Remove hostPort and hostNetwork from the template: replicas reach each other by their services", _TEMPLATE),
    "A hostPort is in use on every node",
)
DEVICE_CLAIM: Final = _no_node(
    "resource-claim",
    517,
    "{who} waits for a ResourceClaim: {short}",
    ("kubectl -n {namespace} get resourceclaims", "kubectl get resourceslices"),
    "Dynamic resource allocation: no device is left for the pod's claim",
)
PREEMPTING: Final = Trouble(
    "preempting",
    518,
    Severity.WARNING,
    "{who} waits until pods of lower priority have left {node}",
    ("Wait; kubectl get pods --all-namespaces --field-selector spec.nodeName={node}",),
    "The scheduler preempts others for the pod",
)
NO_SCHEDULER: Final = _no_node(
    "scheduler-missing",
    519,
    "{who} was not looked at by the scheduler {scheduler} in {age}",
    (
        "Does a scheduler of that name run? kubectl get pods --all-namespaces | grep scheduler",
        "Is the template's schedulerName right?",
    ),
    "No scheduler says anything about the pod: it does not run, or the name is wrong",
)
UNSCHEDULABLE: Final = _no_node(
    "unschedulable",
    520,
    "{who} finds no node: {short}",
    ("kubectl -n {namespace} describe pod {pod}", _NODES),
    "Any other reason of the scheduler's",
)
TROUBLES: Final = (
    GATED,
    NO_NODES,
    NOT_OFFERED,
    TOO_LARGE,
    SELECTOR,
    TAINT,
    PRESSURE,
    CORDONED,
    NOT_READY,
    FULL,
    TOO_MANY_PODS,
    UNBOUND,
    VOLUME_ELSEWHERE,
    VOLUME_LIMIT,
    POD_AFFINITY,
    SPREAD,
    HOST_PORT,
    DEVICE_CLAIM,
    PREEMPTING,
    NO_SCHEDULER,
    UNSCHEDULABLE,
)

# kubernetes: pkg/scheduler/framework/plugins/*, pkg/scheduler/scheduler.go (ErrReason...); the older words are those of 1.20.
# What the arithmetic cannot find comes first: of several reasons in a message the first rule that matches is reported.
_OTHER: Final = (
    rule(UNBOUND, r"unbound immediate PersistentVolumeClaims"),
    rule(
        DEVICE_CLAIM,
        (
            r"(?P<short>cannot allocate all claims|resourceclaim \S+ (not found|is being deleted)|waiting for dynamic "
            r"resource controller[^,.]*)"
        ),
    ),
    rule(
        VOLUME_ELSEWHERE,
        (
            r"volume node affinity conflict|no available volume zone|didn't find available persistent volumes to bind|"
            r"bound to non-existent pv"
        ),
    ),
    rule(VOLUME_LIMIT, r"exceed max volume count"),
    rule(HOST_PORT, r"didn't have free ports for the requested pod ports"),
    rule(SPREAD, r"didn't match pod topology spread constraints"),
    rule(POD_AFFINITY, r"didn't (match pod (anti-)?affinity|satisfy existing pods anti-affinity)"),
)
_PLAIN: Final = (
    rule(NO_NODES, r"no nodes available to schedule pods|\b0/0 nodes are available"),
    rule(FULL, r"\bInsufficient (?P<resource>[^\s,]+?)[.,]?(\s|$)"),
    rule(TOO_MANY_PODS, r"Too many pods"),
    rule(NOT_READY, r"taint\(?s?\)? \{node\.kubernetes\.io/(not-ready|unreachable):"),
    rule(PRESSURE, r"taint\(?s?\)? \{(?P<short>node\.kubernetes\.io/\w+-pressure):"),
    rule(CORDONED, r"node\(s\) were unschedulable|taint\(?s?\)? \{node\.kubernetes\.io/unschedulable:"),
    rule(TAINT, r"(untolerated taint\(?s?\)?|had taints?) (?P<short>\{[^}]*\})"),
    rule(TAINT, r"(?P<short>untolerated taint|had taints that the pod didn't tolerate)"),
    rule(
        SELECTOR, r"(?P<short>node\(s\) didn't match (Pod's node affinity|node selector|the requested node name)[^,.]*)"
    ),
)
_BY_OBSTACLE: Final = {
    Obstacle.FULL: FULL,
    Obstacle.CORDONED: CORDONED,
    Obstacle.NOT_READY: NOT_READY,
    Obstacle.PRESSURE: PRESSURE,
    Obstacle.TAINT: TAINT,
    Obstacle.SELECTOR: SELECTOR,
    Obstacle.TOO_SMALL: TOO_LARGE,
    Obstacle.NOT_OFFERED: NOT_OFFERED,
}
_LATE_S: Final = 60.0
"""A scheduler looks at a new pod within seconds."""
_MOST_PLACES: Final = 3
_COUNTED: Final = re.compile(r"\d+(/\d+)? (?=[A-Za-z])")


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why pods have no node."""
    for pod in facts.unscheduled:
        yield from _of_pod(facts, pod)


def _of_pod(facts: Facts, pod: Pod) -> Iterator[Finding]:
    name, scheduled = pod.metadata.name, condition_of(pod.status.conditions, "PodScheduled")
    gates = pod.spec.scheduling_gates
    if gates:
        gate = value(gates[0].name)
        yield Finding(
            GATED,
            name,
            (f"pod {named(name)}: spec.schedulingGates has {named(gate)}",),
            {"gate": gate, "pod": name},
            gate,
        )
        return
    events = latest([event for event in facts.pod_events(pod) if event.reason in {"FailedScheduling", "Unschedulable"}])
    message = scheduled.message if scheduled is not None and scheduled.status == "False" else ""
    message = message or (events[0].message if events else "")
    proofs = tuple(facts.line(event) for event in events) or (
        (f"pod {named(name)}: PodScheduled is False: {said(message)}",) if message else ()
    )
    values = {"pod": name}
    if pod.status.nominated_node_name:
        node = value(pod.status.nominated_node_name)
        yield Finding(
            PREEMPTING, name, (*proofs, f"pod {named(name)}: nominated for node {named(node)}"), values | {"node": node}
        )
    elif message:
        if "pod group" not in message.lower() and "sibling pods" not in message:  # gang.py reports these
            yield _by_message(facts, pod, message, proofs, values)
    else:
        age_s = facts.age_s(pod.metadata.creation_timestamp)
        if age_s is not None and age_s > _LATE_S:
            scheduler = value(pod.spec.scheduler_name) or "default-scheduler"
            seen = f"pod {named(name)}: created {duration(age_s)} ago, without a condition or event of a scheduler"
            yield Finding(
                NO_SCHEDULER, name, (seen,), values | {"scheduler": scheduler, "age": duration(age_s)}, scheduler
            )


def _by_message(facts: Facts, pod: Pod, message: str, proofs: tuple[str, ...], values: dict[str, str]) -> Finding:
    """Return why the pod has no node: what the arithmetic finds, or the scheduler's message where that finds room."""
    text = message.partition(" preemption: ")[0]
    unbound = first_match(_OTHER[:1], text)
    seen = facts.room.places(pod)
    if unbound is None and seen and seen[0].obstacle in _BY_OBSTACLE:
        return _by_arithmetic(pod, seen, proofs, values)
    found = first_match((*_OTHER, *_PLAIN), text) or (
        UNSCHEDULABLE,
        {"short": value(_COUNTED.sub("", text.partition(" nodes are available: ")[2] or text))[:160]},
    )
    trouble, more = found
    if trouble is FULL:
        more["short"] = (
            "the scheduler does not say by how much, and nodes cannot be read" if not seen else "see the nodes"
        )
    return Finding(trouble, pod.metadata.name, proofs, values | more, more.get("resource", ""))


def _by_arithmetic(pod: Pod, seen: Sequence[Place], proofs: tuple[str, ...], values: dict[str, str]) -> Finding:
    nearest = [place for place in seen if place.obstacle is seen[0].obstacle]
    resource = Counter(place.resource for place in nearest).most_common(1)[0][0]
    shown = [place for place in nearest if place.resource == resource] or nearest
    trouble = (
        TOO_MANY_PODS if seen[0].obstacle is Obstacle.FULL and resource == "pods" else _BY_OBSTACLE[seen[0].obstacle]
    )
    lines = tuple(f"node {named(place.node)} {place.words}" for place in shown[:_MOST_PLACES])
    more = (f"and {len(shown) - _MOST_PLACES} more nodes like these",) if len(shown) > _MOST_PLACES else ()
    others = len(seen) - len(shown)
    rest = (f"{others} other nodes are further from having room",) if others else ()
    short = f"{named(shown[0].node)} {shown[0].words}"
    return Finding(
        trouble,
        pod.metadata.name,
        (*lines, *more, *rest, *proofs),
        values | {"resource": value(resource), "short": short},
        resource,
    )
