"""Unhealthy and lost nodes: the affected pods, and the nodes that a job avoids. Pure.

A pod matches a rule with `onNodes` if its node has had one of the rule's conditions or taints for `MIN_DURATION_S`, even if the
pod is still running. The time counts from when this process first saw the condition or taint, or the start of the pod, if that
is later; the clocks of nodes do not count (`clocks`). Rules that depend on pods only are too slow for unhealthy nodes: in
collective training one slow or silent worker blocks all others.

Failures are counted per node in `status.avoidedNodes`. The same status write decides about the pod: it either restarts the
whole job, after which pods of that attempt are ignored, or updates a record of the replica (`IndexRestarts.on_node`). So no pod
is counted twice, no matter where the operator is killed. A node's first program failure does not count, since it is more likely
the program's fault. Preemptions and evictions through the API do not count either: they are unrelated to the node. A user lifts
the avoidance by an edit: without a field that asks for it, no node is avoided. A requested restart forgets all failures.

A node is lost when its Ready condition has not been True for as long as the job allows. Its kubelet reports and deletes
nothing, so its pods would stay running or terminating forever. They are marked as failed; rules and restart policies then apply
as for any failure. A failed pod is deleted without a grace period; one that was terminating is force-deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Final, NamedTuple

from tfjob_operator.api.core import TERMINAL, EventType
from tfjob_operator.api.v1.conditions import TRUE, is_finished, is_over
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.templates import templates_of
from tfjob_operator.api.v1.types import (
    AvoidedNode,
    FailurePolicy,
    NodeAvoidance,
    Rule,
    TaintPattern,
    TFJob,
    TFJobSpec,
)
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.pods import DISRUPTION_TARGET, problem_of_job
from tfjob_operator.controller.tfjob.plan.clocks import Fact
from tfjob_operator.controller.tfjob.plan.placement import Cluster, Nodes, NodeState, suits
from tfjob_operator.controller.tfjob.plan.replicas import Outcome, Replica
from tfjob_operator.controller.tfjob.plan.status import StatusDraft
from tfjob_operator.controller.tfjob.plan.types import Gang, LostPod, Plan, PodDeletion

MIN_DURATION_S: Final = 30
"""How long a condition or taint must last before it counts: agents set and clear conditions within seconds."""
MAX_AVOIDED: Final = 32
"""Maximum number of nodes in the status, and of nodes that pods avoid by name."""
_NOT_ABOUT_NODE: Final = frozenset({"PreemptionByScheduler", "EvictionByEvictionAPI", "Preempting", "Preempted"})
"""Disruption reasons that are unrelated to the node."""


class NodeMatch(NamedTuple):
    """A pod on an unhealthy node, the start time of the match, and the condition or taint."""

    at: datetime
    replica: Replica
    cause: str

    @property
    def event(self) -> JobEvent:
        """The event that reports its deletion."""
        return JobEvent(EventType.WARNING, EventReason.NODE_SICK, f"Pod {self.replica.pod.metadata.name}: {self.cause}")


@dataclass(frozen=True, slots=True)
class NodeMatches:
    """The pods that match rules with `onNodes`, by rule name, earliest first.

    `by_pod` maps a pod UID to the match of the first rule. `next_in_s` is when further matches may become due.
    """

    by_rule: Mapping[str, Sequence[NodeMatch]] = field(default_factory=dict)
    by_pod: Mapping[str, NodeMatch] = field(default_factory=dict)
    next_in_s: float | None = None


NO_NODE_MATCHES: Final = NodeMatches()


def find_node_matches(
    draft: StatusDraft, policy: FailurePolicy, replicas: Iterable[Replica], nodes: Nodes
) -> NodeMatches:
    """Return the pods that run or failed on nodes matched by rules. `replicas` are the unfinished ones."""
    found: dict[str, list[NodeMatch]] = {}
    due: list[float] = []
    present = [each for each in replicas if each.pod.node in nodes.states and not each.terminating]
    for rule in policy.rules:
        node_matches = found.setdefault(rule.name, [])
        for replica in present if rule.is_about_nodes else ():
            pod = replica.pod
            unhealthy = _first_match(rule, nodes.states[pod.node])
            if unhealthy is None or replica.type not in rule.targets:
                continue
            seen_s, what = unhealthy
            at = max(draft.observer.wall(seen_s), draft.observer.first_seen(Fact.STARTED, replica.uid, pod.started))
            left_s = MIN_DURATION_S - (draft.now - at).total_seconds()
            if left_s > 0:
                due.append(left_s)
            else:
                node_matches.append(NodeMatch(at, replica, f"its node {pod.node} has {what}"))
        node_matches.sort(key=lambda match: (match.at, match.replica.type, match.replica.index))
    by_pod = {match.replica.uid: match for node_matches in reversed([*found.values()]) for match in node_matches}
    return NodeMatches(found, by_pod, min(due, default=None)) if by_pod or due else NO_NODE_MATCHES


def _first_match(rule: Rule, node: NodeState) -> tuple[float, str] | None:
    """Return the condition or taint of a node that a rule matches and that was seen first, with that time."""
    found = [
        (node.conditions[condition].seen_s, f"condition {condition.type}={condition.status}")
        for condition in rule.node_conditions
        if condition in node.conditions
    ]
    for taint, since in node.taints.items():
        if any(_matches_taint(pattern, taint) for pattern in rule.node_taints):
            found.append((since.seen_s, f"taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"))
    return min(found, default=None)


def _matches_taint(pattern: TaintPattern, taint: TaintPattern) -> bool:
    return pattern.key == taint.key and pattern.value in {"", taint.value} and pattern.effect in {"", taint.effect}


Stranded = Callable[[str, Collection[str]], Sequence[str]]
"""Returns the replica types whose pods could use no node if this node were avoided too, given those that are."""


def stranded_types(job: TFJob, spec: TFJobSpec, cluster: Cluster | None) -> Stranded:
    """Return a function that finds the replica types whose last node a node is, as far as nodes can be read.

    A node that a rule of the type matches is no alternative: a rule may match all nodes, unhealthy or not.
    """
    if cluster is None:
        return lambda _node, _avoided: ()
    templates = cache(lambda: templates_of(job.spec))  # most plans avoid no further node
    rules = spec.failure_policy.rules if spec.failure_policy is not None else ()
    placed = [
        replica.type for replica in spec.replicas.values() if replica.replicas and not replica.template.has_topology
    ]

    def is_alternative(kind: str, name: str) -> bool:
        state = cluster.states[name]
        unhealthy = any(kind in rule.targets and _first_match(rule, state) is not None for rule in rules)
        return not (unhealthy or state.lost_since()) and suits(
            templates()[kind], name, cluster.shapes[name], state.taints
        )

    def stranded(node: str, avoided: Collection[str]) -> Sequence[str]:
        shape = cluster.shapes.get(node)
        if shape is None:  # it is deleted
            return ()
        others = cluster.states.keys() - {*avoided, node}
        using = [kind for kind in placed if suits(templates()[kind], node, shape)]
        return [kind for kind in using if not any(is_alternative(kind, name) for name in others)]

    return stranded


def count_failures(
    draft: StatusDraft,
    spec: TFJobSpec,
    failures: Iterable[Replica],
    node_matches: NodeMatches,
    replicas: Sequence[Replica],
    *,
    stranded: Stranded,
) -> Collection[str]:
    """Count failures and matches on their nodes, once per pod, and decide which nodes are avoided from now on.

    `replicas` are all replicas of the job; their pods tell which nodes it uses. A node that is no longer avoided stays in the
    list while pods that were created to avoid it are pending, or not in the cache yet. Returns the UIDs of the
    pods counted now.
    """
    avoidance = spec.node_avoidance
    counted = {record.pod for record in draft.job.status.restarts if record.on_node}
    unhealthy = {uid: match.replica.pod.node for uid, match in node_matches.by_pod.items()}
    new = dict.fromkeys((uid, node, True) for uid, node in unhealthy.items() if uid not in counted)
    if avoidance is not None:
        for replica in failures:
            pod, uid = replica.pod, replica.uid
            if pod.node and uid not in counted and uid not in unhealthy and not _is_not_about_node(pod):
                new[uid, pod.node, replica.ended is None or replica.disrupted] = None
    is_pending = draft.expected or pods_avoiding_expired_nodes(draft, spec, replicas)
    found = {each.name: each for each in draft.avoided_nodes if is_pending or not _is_over(each, draft.now)}
    for _, node, counts in new:
        before = found.get(node)
        more = counts or before is not None
        found[node] = AvoidedNode(
            node,
            (before.failures if before is not None else 0) + more,
            before.expiration_time if before is not None else None,
        )
    if new:
        usual = avoidance or NodeAvoidance()
        until = draft.timestamp + timedelta(seconds=usual.expiration_s)
        used = {replica.pod.node for replica in replicas if replica.pod.node} | found.keys()
        most = (len(used) + 1) // 2
        struck, match = {node for _, node, _ in new}, set(unhealthy.values())
        # Nodes with the most failures first, since not all may fit.
        for node in sorted(found, key=lambda name: (name not in match, -found[name].failures)):
            each = found[node]
            avoided = sum(other.expiration_time is not None for other in found.values())
            failed_often = avoidance is not None and each.failures >= avoidance.threshold
            is_avoided = each.expiration_time is not None
            if node in match or (is_avoided and node in struck) or (failed_often and not is_avoided and avoided < most):
                others = {
                    each.name for each in found.values() if each.expiration_time and not _is_over(each, draft.now)
                }
                if not (kinds := stranded(node, others)):
                    found[node] = AvoidedNode(node, each.failures, until)
                elif node in struck:
                    text = f"Node {node} is not avoided: no other healthy node suits the pods of {', '.join(kinds)}"
                    draft.emit(EventType.WARNING, EventReason.NODES_NOT_AVOIDED, text)
    draft.avoided_nodes = _limited(found.values())
    return {uid for uid, _, _ in new}


def _is_over(node: AvoidedNode, now: datetime) -> bool:
    return node.expiration_time is not None and node.expiration_time <= now


def limit_avoidance(draft: StatusDraft, spec: TFJobSpec) -> None:
    """Apply the spec to the nodes that are avoided already: not for longer than it asks for, and not if nothing asks for it."""
    asks = spec.node_avoidance is not None or spec.has_node_rules
    usual = spec.node_avoidance or NodeAvoidance()
    until = draft.timestamp + timedelta(seconds=usual.expiration_s if asks else 0)
    draft.avoided_nodes = tuple(
        node
        if node.expiration_time is None or node.expiration_time <= until
        else AvoidedNode(node.name, node.failures, until)
        for node in draft.avoided_nodes
        if asks or node.expiration_time is not None
    )


def pods_avoiding_expired_nodes(draft: StatusDraft, spec: TFJobSpec, replicas: Iterable[Replica]) -> list[Replica]:
    """Return pods that are unschedulable because they still exclude a node which the job no longer avoids.

    A node leaves the list before a pod is created that does not exclude it. So each pod without a node excludes those in the
    list. Creation times are not compared with the expiration, since they are by the API server's clock: a pod that seems to be
    newer would wait forever.
    """
    nodes = (*draft.job.status.avoided_nodes, *draft.avoided_nodes)
    if not any(_is_over(node, draft.now) for node in nodes):
        return []
    elsewhere = {name for name, replica in spec.replicas.items() if replica.template.has_topology}
    return [
        replica
        for replica in replicas
        if replica.outcome is Outcome.WAITING and not replica.pod.node and replica.type not in elsewhere
    ]


def _is_not_about_node(pod: Pod) -> bool:
    conditions = pod.status.conditions or ()
    reasons = {
        condition.reason for condition in conditions if condition.type == DISRUPTION_TARGET and condition.status == TRUE
    }
    return not _NOT_ABOUT_NODE.isdisjoint(reasons | {pod.status.reason})


def _limited(nodes: Collection[AvoidedNode]) -> tuple[AvoidedNode, ...]:
    """Return at most `MAX_AVOIDED` nodes, preferring the latest expiration time, then the most failures."""
    if len(nodes) <= MAX_AVOIDED:
        return tuple(nodes)

    def rank(node: AvoidedNode) -> tuple[float, int]:
        return (node.expiration_time.timestamp() if node.expiration_time is not None else 0.0, node.failures)

    kept = sorted(nodes, key=rank, reverse=True)[:MAX_AVOIDED]
    return tuple(node for node in nodes if node in kept)


def with_avoidance(
    plan: Plan, draft: StatusDraft, spec: TFJobSpec, gang: Gang | None, replicas: Iterable[Replica]
) -> Plan:
    """Return the plan of a job that avoids nodes, with a Warning if another component chooses its pods' nodes.

    Unschedulable pods that still exclude a node which the job no longer avoids are recreated: first all are deleted, then the
    node is removed from the list, then the pods are created.
    """
    placed_elsewhere = [kind for kind, each in spec.replicas.items() if gang is not None or each.template.has_topology]
    if placed_elsewhere:
        by = "a gang scheduler" if gang is not None else "Kueue's topology-aware scheduling"
        text = f"status.avoidedNodes has no effect on {', '.join(placed_elsewhere)}: {by} decides where their pods run"
        plan = replace(plan, problems=(*plan.problems, problem_of_job(EventReason.NODES_NOT_AVOIDED, text)))
    old = [node for node in pods_avoiding_expired_nodes(draft, spec, replicas) if node.type not in placed_elsewhere]
    if not old or is_over(draft):
        return plan
    gone = {deletion.pod.metadata.uid for deletion in plan.delete_pods}
    leaving = (replica.pod for replica in old if not (replica.terminating or replica.pod.metadata.uid in gone))
    deletions = (*plan.delete_pods, *(PodDeletion(pod, restarts=True) for pod in leaving))
    return replace(plan, create_pods=(), delete_pods=deletions)


def with_nodes(plan: Plan, draft: StatusDraft, pods: Iterable[Pod], nodes: Nodes, timeout_s: int) -> Plan:
    """Return the plan with the pods on lost nodes, or with a Warning if nodes cannot be read.

    With `timeout_s` 0, no node is lost.
    """
    if nodes.failure:
        return replace(plan, problems=(*plan.problems, problem_of_job(EventReason.NODES_UNAVAILABLE, nodes.failure)))
    return with_lost_pods(plan, draft, pods, nodes, timeout_s) if timeout_s else plan


def with_lost_pods(plan: Plan, draft: StatusDraft, pods: Iterable[Pod], nodes: Nodes, timeout_s: int) -> Plan:
    """Return the plan with the pods on lost nodes, to be marked as failed or, if they have ended, force-deleted.

    A failed pod that is not terminating is handled by the rest of the plan. Pods of a finished job stay unless they are being
    deleted.
    """
    lost: list[LostPod] = []
    finished = is_finished(draft.job.status)
    for pod in pods:
        node = nodes.states.get(pod.node)
        since = node.lost_since() if node is not None else None
        if since is None or not _is_stuck(pod, finished=finished):
            continue
        # A pod that tolerates every taint may be bound to the node later: it also gets the whole timeout, or it would fail in a
        # loop.
        at = max(draft.observer.wall(since.seen_s), draft.first_seen(pod))
        left_s = timeout_s - (draft.now - at).total_seconds()
        if left_s > 0:
            plan = plan.requeued_within(left_s)
        else:
            lost.append(LostPod(pod, since.given))
    return replace(plan, lost_pods=tuple(lost)) if lost else plan


def observe_pods(draft: StatusDraft, pods: Iterable[Pod]) -> None:
    """Note when each pod was first seen, also if its node is healthy, and if this plan does not depend on it."""
    for pod in pods:
        draft.first_seen(pod)


def _is_stuck(pod: Pod, *, finished: bool) -> bool:
    if pod.metadata.deletion_timestamp is None:
        return pod.status.phase not in TERMINAL and not finished
    # With a grace period of 0 it was force-deleted already, and a finalizer keeps it.
    return pod.status.phase not in TERMINAL or pod.metadata.deletion_grace_period_seconds != 0
