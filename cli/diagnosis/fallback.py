"""Messages of the API server about pods that are not ready, quoted if no other finder knows the reason. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from tfjob_operator.api.core import IMAGE_REASONS
from tfjob_operator.api.v1.constants import CONTAINER_NAME, EventReason, exit_of
from tfjob_operator.api.v1.types import TFJobSpec
from tfjob_operator.cli.diagnosis import reading
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_JOB, DESCRIBE_NODES, DESCRIBE_POD, LOGS, RESTART
from tfjob_operator.cli.diagnosis.causes import (
    KNOWN,
    Finding,
    ManifestChange,
    Problem,
    Severity,
    WhileRunning,
    error,
    info,
    warning,
)
from tfjob_operator.cli.diagnosis.facts import Facts
from tfjob_operator.cli.diagnosis.rows import of_event, of_pod
from tfjob_operator.cli.diagnosis.rules import shorten, value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import EventDetails, PodDetails
from tfjob_operator.cli.model.pods import condition_of, exits_of, is_up, running_since, statuses
from tfjob_operator.cli.model.words import quote, safe_name

_CORRECT: Final = ManifestChange("correct in the template what the message names")
TERMINATING: Final = warning(
    "waits-for-terminating-pod",
    "Waiting for {who}, Terminating for {age} ({why})",
    "A pod with the name of a replica is being deleted: of this job, or of a former one of its name",
    DESCRIBE_POD,
    "The pod is created anew when the old one is gone",
    unless=(KNOWN, "attempt-waits-for-pods"),
)
STATUS: Final = error(
    "pod-status",
    "{reason} ({who}): {words}",
    "The pod's status, or that of a container, has a reason that is none of the others",
    DESCRIBE_POD,
    _CORRECT,
    unless=(KNOWN,),
)
START: Final = error(
    "startup-failed",
    "{reason} ({who}): {words}",
    "The kubelet restarts a container because its startup probe or its postStart hook fails",
    DESCRIBE_POD,
    ManifestChange("correct the startupProbe or the postStart hook in the template"),
    rank=719,
    unless=(KNOWN,),
)
_HARMLESS: Final = "A failed sidecar does not end the training: a replica ends as its container tensorflow does"
_COUNTS: Final = (
    "Its restarts count toward backoffLimit {limit}: the job fails when there are more, even while it trains"
)
SIDECAR: Final = error(
    "sidecar-failed",
    "Container {container} exited with code {code} ({who}){words}",
    "A container beside `tensorflow` failed while the pod runs",
    _HARMLESS,
    LOGS,
    ManifestChange("correct container {container} in the template according to the log"),
    unless=(KNOWN,),
)
_OF_MEMORY: Final = (ManifestChange("raise resources.limits.memory of container {container} in the template"),)
WARNED: Final = warning(
    "pod-warning",
    "{reason} ({who}): {words}",
    "A pod is not ready, and its newest Warning event is none of the others",
    DESCRIBE_POD,
    _CORRECT,
    unless=(KNOWN,),
)
NOT_READY: Final = warning(
    "replica-not-ready",
    "{who} is not ready: {words}",
    "The pod runs, its condition Ready is False, and no event tells why: a readiness probe, a readiness gate, or its node",
    DESCRIBE_POD,
    "kubectl describe node {node}",
    unless=(KNOWN, "pod-warning"),
)
HELPER_ENDED: Final = info(
    "helper-finished",
    "{who} is not ready because container {container} has finished: the training runs",
    "A container beside `tensorflow` exited with 0; Kubernetes counts a pod as ready only if all of its containers run",
    "Nothing waits for readiness, and the names of replicas that are not ready resolve. A container that prepares something "
    "can be an init container instead",
    unless=(KNOWN, "pod-warning"),
)
_OF_READINESS: Final = (
    DESCRIBE_POD,
    (
        "The training runs: neither the operator nor the other replicas wait for readiness, and the names of replicas that are "
        "not ready resolve. It affects only the column READY"
    ),
    ManifestChange(
        "correct or remove readinessProbe in the template; pods that run keep theirs, and need not be deleted",
        recreate=False,
    ),
)
"""The advice if the training runs, and a readiness probe fails."""
_NOT_YET: Final = "Not ready yet ({who}): its {kind} probe fails, {age} after its container started"
_OF_START: Final = (
    "A program that loads data or compiles is not ready for a while; no readiness probe restarts a container",
    LOGS,
)
"""The title and the advice while a replica may still be starting."""
NO_NODE: Final = error(
    "node-missing",
    "Node {node} does not exist ({who})",
    "A pod is bound to a node that does not exist",
    "kubectl get nodes",
    ManifestChange("remove nodeName from the template, or correct it"),
    unless=(KNOWN,),
)
_WHO_DELETES: Final = (
    "Events do not tell who deletes a pod: ask your cluster administrator to look for {who} in the audit log of the API "
    "server"
)
RECREATED: Final = warning(
    "pods-recreated",
    "Recreated {times} times within {window} ({who}){words}",
    "A replica's pod disappears and is created again and again, which RESTARTS does not count",
    DESCRIBE_JOB,
    _WHO_DELETES,
    "Evictions by a drain, an autoscaler or a descheduler leave no event; see which nodes are cordoned: kubectl get nodes",
    unless=(KNOWN, "attempt-waits-for-pods", "restart-delayed"),
    rank=809,
)
_OF_DISRUPTION: Final = (
    DESCRIBE_JOB,
    "A pod that is evicted, preempted or lost with its node is replaced without counting toward backoffLimit",
    DESCRIBE_NODES,
)
_OF_NODE_NAME: Final = (
    DESCRIBE_JOB,
    _WHO_DELETES,
    ManifestChange("correct the template, such as nodeName", recreate=False),
    WhileRunning(f"Then recreate the pods: {RESTART}"),
)

_RECENT_S: Final = 600.0
"""Older events about a pod are outdated: the kubelet repeats them at least every five minutes while the problem lasts."""
_STARTS_S: Final = 600.0
"""How long after its start a replica that is not ready counts as starting."""
_LONG: Final = 160
"""A longer message of a hook is quoted from its exit code on, which follows the command."""
TAKEN: Final = frozenset({"Preempted", "TaintManagerEviction"})
"""Normal events about a pod that is taken away (kubernetes: pkg/scheduler, pkg/controller/tainteviction)."""
_KILLED: Final = frozenset({137, 143})
_PLAIN: Final = frozenset({"", "Error"})
_MAX_NODES: Final = 20
"""Only this many nodes are read; whether others exist is unknown."""
_NODE_NAME: Final = re.compile(rb'"nodeName"\s*:\s*"([^"]{1,253})"')
_USUAL: Final = IMAGE_REASONS | {"", "ContainerCreating", "PodInitializing", "CrashLoopBackOff", "Completed"}


def find(facts: Facts) -> Iterator[Finding]:
    """For each replica that is not ready, yield the message that explains it, if there is one."""
    if not facts.wanted:
        return
    names = {replica.pod.name for replica in facts.snapshot.replicas if replica.pod is not None and replica.ready}
    for pod in (*facts.pods, *facts.evidence.former):
        if facts.shape.replica_of(pod) in facts.wanted and pod.metadata.deletion_timestamp is not None:
            names.add(pod.metadata.name)
            yield _terminating(facts, pod)
    for pod in facts.live_pods:
        if pod.metadata.name not in names:
            finding = (
                _sidecar(facts, pod)
                or _start(facts, pod)
                or _status(pod)
                or _node(facts, pod)
                or _warned(facts, pod)
                or _unready(facts, pod)
            )
            if finding is not None:
                yield finding
    yield from _recreated(facts)


def _terminating(facts: Facts, pod: PodDetails) -> Finding:
    age, why = terminating(facts, pod)
    return of_pod(TERMINATING, pod, f"Terminating for {age}, {why}", age=age, why=why)


def terminating(facts: Facts, pod: PodDetails) -> tuple[str, str]:
    """Return how long a pod has been terminating, and what it may wait for: its grace period, hooks and finalizers."""
    meta = pod.metadata
    grace_s = meta.deletion_grace_period_seconds or 0
    age = duration(max((facts.age_s(meta.deletion_timestamp) or 0.0) + grace_s, 0.0))
    hooks = [
        container.name
        for container in pod.spec.containers or ()
        if container.lifecycle is not None and container.lifecycle.pre_stop
    ]
    why = f"grace period {duration(grace_s)}"
    why += f", preStop of container {', '.join(map(safe_name, hooks[:3]))}" if hooks else ""
    why += f", finalizers {', '.join(map(safe_name, meta.finalizers[:3]))}" if meta.finalizers else ""
    return age, why


def _sidecar(facts: Facts, pod: PodDetails) -> Finding | None:
    inits = {status.name for status in pod.status.init_container_statuses or ()}
    for end in exits_of(pod):
        beside = end.container != CONTAINER_NAME and end.container not in inits
        if beside and pod.status.phase == "Running":
            log, code = facts.log(pod.metadata.name, end.container), str(end.ended.exit_code)
            code += f" ({safe_name(end.ended.reason)})" * (end.ended.reason not in _PLAIN)
            last = quote(reading.last_error(log or end.ended.message))
            seen = f"container {safe_name(end.container)} exited with code {code}{last and ': '}{last}"
            values = {"container": end.container, "code": code, "previous": str(not end.now).lower()}
            problem = replace(SIDECAR, to_do=_OF_MEMORY) if end.ended.reason == "OOMKilled" else SIDECAR
            if isinstance(facts.spec, TFJobSpec) and facts.spec.backoff_limit is not None and end.restarts:
                values["limit"] = str(facts.spec.backoff_limit)
                problem = replace(problem, to_do=(_COUNTS, *(step for step in problem.to_do if step != _HARMLESS)))
            return of_pod(problem, pod, seen, key=end.container, words=last and f": {shorten(last)}", **values)
    return None


def _start(facts: Facts, pod: PodDetails) -> Finding | None:
    is_killed = any(end.ended.exit_code in _KILLED for end in exits_of(pod))
    for event in reversed(facts.pod_events(pod, "FailedPostStartHook")):
        # The kubelet stops repeating the event, but the containers that it killed for that reason are still down.
        if is_killed or event in _recent(facts, pod):
            return _quoted(facts, pod, event, START, "Hook postStart failed")
    for event in reversed(facts.pod_events(pod, "Killing")):
        if "failed startup probe" in event.message and (is_killed or event in _recent(facts, pod)):
            probes = [each for each in facts.pod_events(pod) if each.message.startswith("Startup probe failed")]
            return _quoted(facts, pod, (probes or [event])[-1], START, "Startup probe failed")
    probed = {container.name for container in pod.spec.containers or () if container.startup_probe is not None}
    for end in exits_of(pod):  # events are kept for an hour
        if end.container in probed and end.ended.exit_code in _KILLED and end.restarts and end.ended.reason in _PLAIN:
            words = f"exit code {end.ended.exit_code}, and the container has a startupProbe"
            return of_pod(START, pod, words, reason="Startup probe may have failed", words=words)
    return None


def _status(pod: PodDetails) -> Finding | None:
    status, waits = pod.status, [container.state.waiting for container in statuses(pod) if container.state is not None]
    reasons = [(status.reason or status.phase, status.message)] if status.message or status.reason else []
    reasons += [(wait.reason, wait.message) for wait in waits if wait is not None and wait.reason not in _USUAL]
    for reason, message in reasons[:1]:
        seen = f"{safe_name(reason)}: {quote(message)}"
        return of_pod(STATUS, pod, seen, key=reason, reason=reason, words=shorten(message) or "no message")
    return None


def _node(facts: Facts, pod: PodDetails) -> Finding | None:
    nodes, node = facts.evidence.nodes, pod.spec.node_name
    bound = {each.spec.node_name for each in facts.pods}
    if nodes is None or not node or len(bound) > _MAX_NODES or node in {each.metadata.name for each in nodes}:
        return None
    return of_pod(NO_NODE, pod, f"nodeName {safe_name(node)}: not found", key=node)


def _warned(facts: Facts, pod: PodDetails) -> Finding | None:
    warnings = [
        each
        for each in _recent(facts, pod)
        if each.type == "Warning" and not (each.reason == "FailedScheduling" and pod.spec.node_name)
    ]
    for event in sorted(warnings, key=lambda each: each.reason != "BackOff")[-1:]:
        head = event.message.partition(": ")[0].rstrip(": ")  # a probe may print nothing
        is_probe = head.endswith((" probe failed", " probe errored"))
        is_readiness = is_probe and head.startswith("Readiness") and is_up(pod)
        kind = head.partition(" ")[0].lower()
        if is_probe and kind in {"readiness", "startup"} and (values := _starting(facts, pod, kind)):
            return of_event(facts, _not_yet(WARNED), event, pod, key=kind, **values)
        problem = replace(WARNED, to_do=_OF_READINESS) if is_readiness else WARNED
        return _quoted(facts, pod, event, problem, head if is_probe else event.reason)
    return None


def _starting(facts: Facts, pod: PodDetails, kind: str) -> dict[str, str]:
    """Return the values about a replica that may still be starting; empty if it has run for long, or does not run."""
    age_s = facts.age_s(running_since(pod)) if is_up(pod) else None
    if age_s is None or age_s >= _STARTS_S:
        return {}
    return {"kind": kind, "age": duration(age_s), "container": CONTAINER_NAME, "previous": "false"}


def _not_yet(problem: Problem) -> Problem:
    """Return the problem of a replica that is not ready as information about its start."""
    return replace(problem, severity=Severity.INFO, title=_NOT_YET, to_do=_OF_START)


def _unready(facts: Facts, pod: PodDetails) -> Finding | None:
    known = next(
        (replica.pod for replica in facts.snapshot.replicas if replica.pod and replica.pod.name == pod.metadata.name),
        None,
    )
    ready = condition_of(pod.status.conditions, "Ready")
    if known is None or not known.is_up or known.has_succeeded or ready is None or ready.status == "True":
        return None
    if known.restarts:
        return None  # it may just have been restarted: another cause says so
    ended = [
        container.name
        for container in statuses(pod)
        if container.state is not None and container.state.terminated is not None
    ]
    if known.waits_for_none and ended:
        return of_pod(HELPER_ENDED, pod, f"condition Ready is False: {quote(ready.message)}", container=ended[0])
    node = safe_name(pod.spec.node_name)
    words = f"its containers are ready, and its node {node} is not" if known.is_on_lost_node else quote(ready.message)
    seen = f"condition Ready is {safe_name(ready.status)} {safe_name(ready.reason)}: {quote(ready.message)}"
    by_probe = not known.is_on_lost_node and any(container.readiness_probe for container in pod.spec.containers or ())
    if by_probe and (values := _starting(facts, pod, "readiness")):
        return of_pod(_not_yet(NOT_READY), pod, seen, **values)
    problem = replace(NOT_READY, to_do=_OF_READINESS) if by_probe and is_up(pod) else NOT_READY
    return of_pod(problem, pod, seen, words=words or "its condition Ready is False", node=node or "NODE")


def _recreated(facts: Facts) -> Iterator[Finding]:
    """Yield the replicas whose pods others deleted or disrupted again and again, even if the newest pod is ready."""
    made = {event.message.rpartition(" ")[2]: event for event in facts.job_events(EventReason.CREATED_POD)}
    ended = defaultdict[str, list[EventDetails]](list)
    for event in facts.job_events(EventReason.EXITED_WITH_CODE):
        if (end := exit_of(event.message)) is not None:
            ended[end.pod].append(event)
    for name in facts.wanted.keys() & facts.snapshot.recreated:
        seen = facts.snapshot.recreated[name]
        since_s = facts.now.timestamp() - seen.since
        window = duration(since_s) if since_s > _RECENT_S else "ten minutes"
        problem, words, proofs = _why_recreated(facts, name, ended[name])
        lines = [*map(facts.line, [made[name]] if name in made else []), *map(facts.line, proofs)]
        yield Finding(problem, name, tuple(lines), {"times": str(seen.times), "window": window, "words": words or " "})


def _why_recreated(
    facts: Facts, name: str, ended: Sequence[EventDetails]
) -> tuple[Problem, str, Sequence[EventDetails]]:
    """Return the problem with its advice, the words for its title, and the event that has them, if one does."""
    node = _node_name(facts)
    problem = replace(RECREATED, to_do=_OF_NODE_NAME) if node else RECREATED
    # Events about deleted pods, from their kubelets, the scheduler and the node life cycle controller.
    events = [*reversed(facts.events_of("Pod", name))]
    for event in sorted(events, key=lambda event: event.reason not in {*TAKEN, "Evicted"}):
        if event.type == "Warning" or event.reason in TAKEN:
            problem = replace(RECREATED, to_do=_OF_DISRUPTION) if event.reason == "Evicted" else problem
            return problem, f": {value(event.reason)}: {shorten(value(event.message))}", [event]
    # The operator itself replaces pods that failed because of a disruption.
    if ended:
        words = value(ended[-1].message.partition(f"{name} ")[2])
        return replace(RECREATED, to_do=_OF_DISRUPTION), f": {shorten(words)}", ended[-1:]
    return problem, f": nodeName {node} is set in the template" if node else "", ()


def _node_name(facts: Facts) -> str:
    """Return the nodeName in a template, "" if none is set."""
    match = _NODE_NAME.search(bytes(facts.job.spec))
    return value(match[1].decode(errors="replace")) if match else ""


def _recent(facts: Facts, pod: PodDetails) -> list[EventDetails]:
    """Return the recent events about the current pod, newest last."""
    age_s = facts.age_s(pod.metadata.creation_timestamp)
    most_s = _RECENT_S if age_s is None else min(_RECENT_S, age_s + 1)
    return [event for event in facts.pod_events(pod) if (facts.age_s(event.at) or 0.0) <= most_s]


def _quoted(facts: Facts, pod: PodDetails, event: EventDetails, problem: Problem, reason: str) -> Finding:
    words = value(event.message.removeprefix(f"{reason}:"))
    how = words.find("exited with ")
    words = shorten(words[how if len(words) > _LONG and how >= 0 else 0 :]) or "no message"
    return of_event(facts, problem, event, pod, key=reason, reason=reason, words=words)
