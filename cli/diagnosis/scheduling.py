"""Pods without a node: the scheduler's message, with advice for each reason in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from tfjob_operator.api.v1.constants import QUEUE_GATE
from tfjob_operator.cli.diagnosis import suspension
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_NODES, RESTART
from tfjob_operator.cli.diagnosis.causes import (
    Finding,
    Group,
    ManifestChange,
    Problem,
    Step,
    WhileRunning,
    error,
    warning,
)
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rows import of_pod
from tfjob_operator.cli.diagnosis.rules import rule, shorten, value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import PodDetails
from tfjob_operator.cli.model.pods import condition_of
from tfjob_operator.cli.model.words import avoided_now, quote, safe_name

_TAINTS: Final = (
    "List the taints of the nodes: "
    "kubectl get nodes -o custom-columns=NAME:.metadata.name,UNSCHEDULABLE:.spec.unschedulable,TAINTS:.spec.taints"
)
_MORE_NODES: Final = "Or ask your cluster administrator for more or larger nodes"
_SMALLER: Final = ManifestChange("request less in resources of the template, or use fewer replicas")


def _unscheduled(id_: str, meaning: str, *to_do: Step, unless: tuple[str, ...] = ()) -> Problem:
    return error(id_, "Not scheduled ({who}): {short}", meaning, *to_do, unless=unless)


GATED: Final = error(
    "scheduling-gated",
    'Not scheduled ({who}): waiting for removal of scheduling gate "{gate}"',
    "The pod has spec.schedulingGates",
    "Ask the owner of the gate to remove it: kubectl -n {namespace} get pod {pod} -o jsonpath='{{.spec.schedulingGates}}'",
)
NO_NODES: Final = _unscheduled(
    "no-nodes",
    "The cluster has no nodes",
    "kubectl get nodes",
    "Ask your cluster administrator to add nodes, or to check the cluster autoscaler",
)
AVOIDED: Final = error(
    "nodes-avoided",
    "Not scheduled ({who}): the job avoids {nodes}: {short}",
    "The job avoids nodes on which it failed, and no other node has room",
    "Wait until then, when the operator recreates the pods that still wait for a node, or ask your cluster administrator for "
    "more or larger nodes",
    ManifestChange(
        "if the node is healthy again, set spec.runPolicy.nodeAvoidance.expirationSeconds to 1, which recreates them at once",
        recreate=False,
    ),
)
SELECTOR: Final = _unscheduled(
    "node-selector",
    "No node matches the pod's nodeSelector or node affinity",
    "kubectl get nodes --show-labels",
    ManifestChange("correct nodeSelector or node affinity in the template"),
)
TAINT: Final = _unscheduled(
    "taint-not-tolerated",
    "Nodes have a taint that the pod does not tolerate",
    _TAINTS,
    ManifestChange("add a toleration for the taint to the template, if the job may run on those nodes"),
)
PRESSURE: Final = _unscheduled(
    "node-pressure",
    "Nodes are under memory, disk or PID pressure",
    DESCRIBE_NODES,
    "Pods are scheduled when the pressure is over; ask your cluster administrator if it lasts",
)
CORDONED: Final = _unscheduled(
    "nodes-cordoned",
    "Nodes are cordoned (marked unschedulable)",
    _TAINTS,
    "When the maintenance of NODE is over, your cluster administrator makes it schedulable: kubectl uncordon NODE",
)
NOT_READY: Final = _unscheduled(
    "nodes-not-ready",
    "Nodes are not ready or unreachable",
    DESCRIBE_NODES,
    "Ask your cluster administrator why the nodes are not ready",
)
FULL: Final = _unscheduled(
    "insufficient-resource",
    "No node has enough of a resource left, or none offers it (device plugin missing, name misspelled)",
    "Compare the requests with Allocatable and Allocated resources: kubectl describe nodes",
    _SMALLER,
    _MORE_NODES,
)
TOO_MANY_PODS: Final = _unscheduled(
    "too-many-pods", "Nodes are at their limit of pods", "kubectl get pods --all-namespaces --output=wide", _MORE_NODES
)
UNBOUND: Final = _unscheduled(
    "claim-unbound",
    "The pod's PersistentVolumeClaim is not bound to a volume",
    "kubectl -n {namespace} describe pvc",
    unless=(Group.STORAGE,),
)
VOLUME_ELSEWHERE: Final = _unscheduled(
    "volume-elsewhere",
    "Volume node affinity conflict: the volume can only be used in its zone, or on its node",
    "Compare the nodeAffinity of the volume with the nodes: kubectl get pv -o yaml",
    ManifestChange("let the pod run in the zone or on the node of its volume, or mount another claim"),
)
VOLUME_LIMIT: Final = _unscheduled(
    "volume-limit",
    "Nodes are at their limit of attached volumes",
    ManifestChange("mount fewer volumes, or let replicas share one"),
    _MORE_NODES,
)
POD_AFFINITY: Final = _unscheduled(
    "pod-affinity",
    "Pod affinity or anti-affinity rules cannot be satisfied",
    ManifestChange("relax podAffinity or podAntiAffinity in the template", recreate=False),
    WhileRunning(
        "Then recreate all pods, since anti-affinity of a running one keeps others away too; work since their last checkpoint "
        f"is lost: {RESTART}"
    ),
    _MORE_NODES,
)
SPREAD: Final = _unscheduled(
    "topology-spread",
    "Topology spread constraints cannot be satisfied",
    ManifestChange("relax topologySpreadConstraints in the template (whenUnsatisfiable: ScheduleAnyway)"),
    _MORE_NODES,
)
HOST_PORT: Final = _unscheduled(
    "host-port-taken",
    "A hostPort is in use on every node",
    ManifestChange(
        "remove hostPort and hostNetwork from the template; replicas reach each other through their Services"
    ),
)
DEVICE_CLAIM: Final = _unscheduled(
    "resource-claim",
    "Dynamic resource allocation: no device is available for the pod's ResourceClaim",
    "kubectl -n {namespace} get resourceclaims -o yaml",
    "Ask your cluster administrator whether a device is available for the claim",
)
PREEMPTING: Final = warning(
    "preempting",
    "Not scheduled yet ({who}): lower-priority pods are being preempted on node {node}",
    "The scheduler preempts other pods for the pod",
    "The pod starts when they have terminated: kubectl get pods --all-namespaces --field-selector=spec.nodeName={node}",
)
NO_SCHEDULER: Final = error(
    "scheduler-missing",
    "Not scheduled ({who}): no word from scheduler {scheduler} for {age}",
    "Neither a condition nor an event of a scheduler: it is not running, or schedulerName is wrong",
    ManifestChange("correct schedulerName in the template, or remove it to use the default scheduler"),
    "Or ask your cluster administrator whether scheduler {scheduler} is running",
)
UNSCHEDULABLE: Final = _unscheduled(
    "unschedulable",
    "Any other reason given by the scheduler",
    "kubectl -n {namespace} describe pod {pod}",
    DESCRIBE_NODES,
    unless=(Group.STORAGE,),
)

# kubernetes: pkg/scheduler/framework/plugins/*, pkg/scheduler/scheduler.go (ErrReason...), in the words of 1.20 to
# 1.36. A node is counted under the first filter that it fails (taints, affinity, resources, volumes, other pods), so
# the reason of the last filter is reported as the cause: its nodes are closest to fitting.
_RULES: Final = (
    rule(NO_NODES, r"no nodes available to schedule pods|\b0/0 nodes are available"),
    rule(UNBOUND, r"unbound immediate PersistentVolumeClaims"),
    rule(
        DEVICE_CLAIM,
        r"cannot allocate all claims|resourceclaim \S+ (not found|is being deleted)|waiting for dynamic resource controller",
    ),
    rule(POD_AFFINITY, r"didn't (match pod (anti-)?affinity|satisfy existing pods anti-affinity)"),
    rule(SPREAD, r"didn't match pod topology spread constraints"),
    rule(
        VOLUME_ELSEWHERE,
        r"volume node affinity conflict|no available volume zone|didn't find available persistent volumes to bind|"
        r"bound to non-existent pv",
    ),
    rule(VOLUME_LIMIT, r"exceed max volume count"),
    rule(HOST_PORT, r"didn't have free ports for the requested pod ports"),
    rule(FULL, r"\bInsufficient (?![^\s,]*/)"),
    rule(
        TAINT,
        r"^(?=.*Insufficient [^\s,]*/)(?=.*(untolerated taint(?!\(?s?\)? \{node(-role)?\.kubernetes\.io/)|had taint))",
    ),
    rule(FULL, r"\bInsufficient "),
    rule(TOO_MANY_PODS, r"Too many pods"),
    rule(NOT_READY, r"taint\(?s?\)? \{node\.kubernetes\.io/(not-ready|unreachable):"),
    rule(PRESSURE, r"taint\(?s?\)? \{node\.kubernetes\.io/\w+-pressure:"),
    rule(CORDONED, r"node\(s\) were unschedulable|taint\(?s?\)? \{node\.kubernetes\.io/unschedulable:"),
    rule(TAINT, r"(untolerated|had) taints?(?! \{node-role\.kubernetes\.io/)(\(s\))?"),
    rule(SELECTOR, r"node\(s\) didn't match (Pod's node affinity|node selector|the requested node name)"),
    rule(TAINT, r"untolerated taint|had taint"),
)
_BEFORE_SELECTOR: Final = frozenset({SELECTOR, TAINT, NOT_READY, PRESSURE, CORDONED})
"""The reasons of filters up to the one of nodeSelector: kube-scheduler does not try others on a node that fails one."""
_AFFINITY: Final = "didn't match Pod's node affinity"
_LATE_S: Final = 60.0
"""Schedulers process a new pod within seconds."""
_MAX_REASONS: Final = 3
"""The most reasons of a message for which advice is given."""
_DAY_S: Final = 86_400.0
_TIME_OF_DAY: Final = "%H:%M:%S"
_DATE_AND_TIME: Final = "%Y-%m-%d %H:%M:%S"
_MAX_NODES: Final = 3
"""The most avoided nodes named in a title."""
_LONGEST: Final = 2000
_MAX_TEXT: Final = 240
"""The most characters of a message quoted in a title."""
_EXTENDED: Final = re.compile(r"\bInsufficient (?P<name>[a-z0-9.-]{1,253}/[A-Za-z0-9._-]{1,63})(?=[,;.]?(?:\s|$))")
"""An extended resource, which nodes offer only with a device plugin."""
_CUT: Final = re.compile(r"\.? (preemption: |no new claims to deallocate)")


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why pods have no node."""
    for pod in facts.unscheduled:
        yield from _of_pod(facts, pod)


def _of_pod(facts: Facts, pod: PodDetails) -> Iterator[Finding]:
    scheduled, node = condition_of(pod.status.conditions, "PodScheduled"), pod.status.nominated_node_name
    if pod.spec.scheduling_gates:
        gate = pod.spec.scheduling_gates[0].name
        problem = suspension.ONE_BY_ONE if gate == QUEUE_GATE else GATED
        key = "" if gate == QUEUE_GATE else value(gate)
        yield of_pod(problem, pod, f"spec.schedulingGates: {safe_name(gate)}", key=key, gate=gate)
        return
    events = latest(facts.pod_events(pod, "FailedScheduling", "Unschedulable"))
    message = events[0].message if events else ""
    if not message and scheduled is not None and scheduled.status == "False":
        message = scheduled.message
    proofs = tuple(map(facts.line, events))
    if message and not events:
        proofs = (f"pod {safe_name(pod.metadata.name)}: PodScheduled is False: {quote(message)}",)
    if node:
        yield of_pod(PREEMPTING, pod, f"nominated for node {safe_name(node)}", node=node).seen_in(*proofs)
    elif message:
        if "pod group" not in message.lower() and "sibling pods" not in message:  # gang.py reports these
            yield _by_message(facts, pod, message, proofs)
    else:
        age_s = facts.age_s(pod.metadata.creation_timestamp)
        if age_s is not None and age_s > _LATE_S:
            scheduler = value(pod.spec.scheduler_name) or "default-scheduler"
            seen = f"created {duration(age_s)} ago, no condition or event of a scheduler"
            yield of_pod(NO_SCHEDULER, pod, seen, key=scheduler, scheduler=scheduler, age=duration(age_s))


def _by_message(facts: Facts, pod: PodDetails, message: str, proofs: tuple[str, ...]) -> Finding:
    """Return a finding with the scheduler's message, and advice for the reasons in it.

    The message does not tell whether the nodes with a taint are those that the pod selects. Other reasons are those of nodes
    that it selects.
    """
    text, name = _CUT.split(message[:_LONGEST], 1)[0].rstrip("."), pod.metadata.name
    problems = list(dict.fromkeys(each.problem for each in _RULES if each.pattern.search(text)))
    values, selector = {"pod": name}, pod.spec.label_selector
    if selector in facts.evidence.unmatched and _BEFORE_SELECTOR.issuperset(problems):
        problems = [SELECTOR, *(each for each in problems if each is not SELECTOR)]
        proofs += (f"no node has the labels of nodeSelector: {quote(selector)}",)
    problems = problems[:_MAX_REASONS]
    nodes = avoided_now(facts.job.status.avoided_nodes, facts.now)
    if nodes and _AFFINITY in text:
        problems.insert(0, AVOIDED)
        proofs += (f"job: avoids {', '.join(nodes.values())}",)
        values = values | {"nodes": _avoided_until(facts, nodes)}
    problem, *also = problems or [UNSCHEDULABLE]
    if problem is FULL and (extended := _EXTENDED.search(text)) is not None:
        problem = replace(FULL, to_do=(_offers(extended["name"]), *FULL.to_do[1:]))
    return Finding(problem, name, proofs, values | {"short": shorten(value(text), _MAX_TEXT)}, text, tuple(also))


def _offers(resource: str) -> str:
    """Return the step that shows whether any node offers an extended resource: the scheduler does not tell."""
    field = resource.replace(".", "\\.")
    return (
        f"If every node shows <none>, no node offers {resource}: ask your cluster administrator for its device plugin: "
        f"kubectl get nodes '--output=custom-columns=NAME:.metadata.name,OFFERED:.status.allocatable.{field}'"
    )


def _avoided_until(facts: Facts, names: Collection[str]) -> str:
    """Return these avoided nodes with their expiration times: `node-1 until 12:55:00 UTC`."""
    avoided = []
    for node in facts.job.status.avoided_nodes:
        if node.name in names:
            shown = _TIME_OF_DAY if -(facts.age_s(node.expiration_time) or 0.0) < _DAY_S else _DATE_AND_TIME
            avoided.append(f"{safe_name(node.name)} until {node.expiration_time:{shown}} UTC")
    more = f" and {len(avoided) - _MAX_NODES} more" if len(avoided) > _MAX_NODES else ""
    return f"{', '.join(avoided[:_MAX_NODES])}{more}"
