"""Deadlines and backoff limits, lost nodes, disrupted and restarted replicas, pods that cannot be deleted, services. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.v1.constants import SELECTING_LABELS, ConditionType, EventReason, Network, limit_of
from tfjob_operator.api.v1.types import TFJobSpec
from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.facts import latest
from tfjob_operator.cli.diagnosis.pods import condition_of
from tfjob_operator.cli.diagnosis.rules import value
from tfjob_operator.cli.diagnosis.words import ago, named, said
from tfjob_operator.cli.durations import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts

DEADLINE: Final = Trouble(
    "deadline-exceeded",
    220,
    Severity.ERROR,
    "The job failed: it ran longer than its activeDeadlineSeconds of {limit}",
    ("Create it again with a larger runPolicy.activeDeadlineSeconds; waiting for a place counts too",),
    "The job was active longer than runPolicy.activeDeadlineSeconds",
)
NODE_AWAY: Final = Trouble(
    "node-not-ready",
    560,
    Severity.ERROR,
    "The node {node} of {who} is not ready",
    (
        "kubectl describe node {node}",
        (
            "After five minutes its pods are deleted and created elsewhere; sooner: kubectl -n {namespace} delete pod "
            "{pod} --force"
        ),
    ),
    "A pod's node is not ready, or cannot be reached",
)
STUCK: Final = Trouble(
    "stuck-terminating",
    561,
    Severity.ERROR,
    "{who} is being deleted, and does not go: {age} beyond its grace period",
    (
        "Does its node live? kubectl get node {node}",
        "Has it finalizers? kubectl -n {namespace} get pod {pod} -o jsonpath='{{.metadata.finalizers}}'",
        "kubectl -n {namespace} delete pod {pod} --force --grace-period=0   # only if its process cannot run any more",
    ),
    "A pod is not gone long after its grace period, and its replica waits",
)
NO_SERVICE: Final = Trouble(
    "service-missing",
    562,
    Severity.ERROR,
    "{who} has no service: the other replicas cannot find it",
    ("The operator creates it again within seconds; if not: kubectl -n {namespace} describe tfjob {job}",),
    "The service of a replica does not exist, so its name does not resolve",
)
WRONG_SELECTOR: Final = Trouble(
    "service-selector-edited",
    563,
    Severity.ERROR,
    "The service of {who} selects other pods",
    ("kubectl -n {namespace} get service {service} -o yaml   # the operator restores the selector; who edits it?",),
    "A service's selector was edited",
)
DISRUPTED: Final = Trouble(
    "disrupted",
    820,
    Severity.WARNING,
    "{who} was taken away by the cluster: {reason}",
    ("It is created again under every restart policy but Never, and does not count against backoffLimit",),
    "Eviction API, preemption, taint, shutdown: the condition DisruptionTarget",
)
RESTARTING: Final = Trouble(
    "replicas-restarting",
    821,
    Severity.WARNING,
    "Failed replicas are being created again",
    ("kubectl -n {namespace} describe tfjob {job}   # events ExitedWithCode say how they ended",),
    "The job's condition Restarting",
)
DEADLINE_NEAR: Final = Trouble(
    "deadline-near",
    830,
    Severity.WARNING,
    "The job's deadline is near: {left} are left of {limit}",
    (
        (
            "kubectl -n {namespace} patch tfjob {job} --type=merge "
            '--patch=\'{{"spec":{{"runPolicy":{{"activeDeadlineSeconds":SECONDS}}}}}}\''
        ),
    ),
    "Less than a tenth of activeDeadlineSeconds is left, or less than ten minutes",
)
BACKOFF_NEAR: Final = Trouble(
    "backoff-limit-near",
    831,
    Severity.WARNING,
    "One more restart of a replica fails the job: {times} of {limit} are used",
    ("Look why replicas restart: kubectl -n {namespace} describe tfjob {job}",),
    "The restarts have reached backoffLimit",
)
NOT_ADOPTED: Final = Trouble(
    "not-adopted",
    840,
    Severity.WARNING,
    "A pod or service of the job's labels cannot be adopted",
    (
        (
            "Delete it, if it is of no use: kubectl -n {namespace} get pods,services "
            "--selector=training.kubeflow.org/job-name={job}"
        ),
    ),
    "FailedAdoptPod, FailedAdoptService",
)
NOT_DELETED: Final = Trouble(
    "delete-failed",
    841,
    Severity.WARNING,
    "The operator cannot delete something of the job's",
    ("Do what the message says; it is tried again by itself",),
    "FailedDeletePod and the like: a webhook, or a right that is missing",
)
RELABELLED: Final = Trouble(
    "children-edited",
    842,
    Severity.WARNING,
    "Somebody edits the labels of the job's pods or services",
    (
        (
            "Who does? kubectl -n {namespace} get pods --selector=training.kubeflow.org/job-name={job} -o yaml "
            "--show-managed-fields"
        ),
    ),
    "Labels or selectors were restored, or cannot be",
)
JOB_FAILED: Final = Trouble(
    "job-failed",
    229,
    Severity.ERROR,
    "The job failed: {words}",
    (
        "kubectl -n {namespace} describe tfjob {job}   # its events show what came before",
        "When the cause is fixed: kubectl -n {namespace} replace --force -f FILE",
    ),
    "The job has failed, for a reason that is none of the others",
)
KEPT: Final = Trouble(
    "finished-and-kept",
    970,
    Severity.NOTE,
    "The job has ended, and is kept with {pods}",
    ("kubectl -n {namespace} delete tfjob {job}   # or set runPolicy.ttlSecondsAfterFinished",),
    "A job that ended over a day ago has no TTL, and still has pods",
)
TROUBLES: Final = (
    DEADLINE,
    NODE_AWAY,
    STUCK,
    NO_SERVICE,
    WRONG_SELECTOR,
    DISRUPTED,
    RESTARTING,
    DEADLINE_NEAR,
    BACKOFF_NEAR,
    NOT_ADOPTED,
    NOT_DELETED,
    RELABELLED,
    JOB_FAILED,
    KEPT,
)

_NEAR_S: Final = 600.0
_LATE_S: Final = 60.0
"""How long after its grace period a pod that is being deleted is stuck, and at which age a pod must have its service."""
_DAY_S: Final = 86_400.0
"""How long the pods of a job that has ended are left without a word: their logs are read meanwhile."""
_LONG_S: Final = 600.0
"""An event about a repair that is older than this says nothing about the present."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong, or soon will be, with a job that has started."""
    failed = facts.condition(ConditionType.FAILED)
    if failed is not None and limit_of(failed.reason, failed.message) is EventReason.DEADLINE_EXCEEDED:
        limit = duration(facts.spec.active_deadline_s) if facts.spec.active_deadline_s is not None else "its spec"
        yield Finding(
            DEADLINE,
            facts.name,
            (f"job: condition Failed, {named(failed.reason)}: {said(failed.message)}",),
            {"limit": limit},
        )
    if failed is not None:
        seen = f"job: condition Failed, {named(failed.reason)}: {said(failed.message)}"
        words = value(failed.message)[:160] or value(failed.reason) or "its condition says no more"
        yield Finding(JOB_FAILED, facts.name, (seen,), {"words": words})
    if facts.finished:
        yield from _kept(facts)
    else:
        yield from _pods(facts)
        yield from _services(facts)
        yield from _limits(facts)
        yield from _events(facts)
    yield from _stuck(facts)


def _kept(facts: Facts) -> Iterator[Finding]:
    over_s = facts.age_s(facts.job.status.completion_time)
    if over_s is not None and over_s < _DAY_S:
        return
    if facts.spec.ttl_s is None and facts.pods and not facts.shape.is_alpha:
        count = f"{len(facts.pods)} pod{'s' if len(facts.pods) > 1 else ''}"
        ended = ago(facts.now, facts.job.status.completion_time)
        yield Finding(
            KEPT, facts.name, (f"job: ended {ended or 'some time ago'}, without a TTL; {count}",), {"pods": count}
        )


def _pods(facts: Facts) -> Iterator[Finding]:
    away = {
        node.metadata.name: condition
        for node in facts.evidence.nodes or ()
        if (condition := condition_of(node.status.conditions, "Ready")) is not None and condition.status != "True"
    }
    for pod in facts.pods:
        name = pod.metadata.name
        condition = away.get(pod.spec.node_name)
        events = latest([each for each in facts.pod_events(pod) if each.reason == "NodeNotReady"])
        ready = condition_of(pod.status.conditions, "Ready")
        unready = not (facts.evidence.nodes or ()) and events and ready is not None and ready.status != "True"
        if pod.status.phase not in {"Succeeded", "Failed"} and (condition is not None or unready):
            proofs = (
                [f"node {named(pod.spec.node_name)}: Ready is {named(condition.status)}: {said(condition.message)}"]
                if condition is not None
                else []
            )
            yield Finding(
                NODE_AWAY,
                name,
                (*proofs, *(facts.line(each) for each in events)),
                {"node": value(pod.spec.node_name), "pod": name},
                pod.spec.node_name,
            )
        target = condition_of(pod.status.conditions, "DisruptionTarget")
        if target is not None and target.status == "True" and pod.status.phase != "Succeeded":
            seen = f"pod {named(name)}: DisruptionTarget: {named(target.reason)}: {said(target.message)}"
            yield Finding(DISRUPTED, name, (seen,), {"reason": value(target.reason)}, target.reason)


def _stuck(facts: Facts) -> Iterator[Finding]:
    for pod in facts.pods:
        # deletionTimestamp is when the grace period ends.
        over_s = facts.age_s(pod.metadata.deletion_timestamp)
        if over_s is not None and over_s > _LATE_S:
            name = pod.metadata.name
            held = (
                f", finalizers {', '.join(map(named, pod.metadata.finalizers[:3]))}" if pod.metadata.finalizers else ""
            )
            seen = f"pod {named(name)}: to be gone {duration(over_s)} ago{held}"
            yield Finding(
                STUCK, name, (seen,), {"age": duration(over_s), "node": value(pod.spec.node_name), "pod": name}
            )


def _services(facts: Facts) -> Iterator[Finding]:
    """Yield replicas that others cannot reach by name. In a job of one replica nobody needs its service."""
    if facts.evidence.services is None or len(facts.wanted) < 2:
        return
    services = {service.metadata.name: service for service in facts.evidence.services}
    begun = facts.job.status.begun
    is_shared = begun is not None and begun.network == Network.SHARED
    for pod in facts.live_pods:
        name = facts.shape.replica_of(pod)
        of = facts.name if is_shared else name
        service = services.get(of)
        age_s = facts.age_s(pod.metadata.creation_timestamp)
        if name not in facts.wanted or age_s is None or age_s < _LATE_S:
            continue
        if service is None:
            yield Finding(NO_SERVICE, name, (f"service {named(of)}: it does not exist",))
        elif not _selects(service.spec.selector or {}, pod.metadata.labels or {}):
            yield Finding(
                WRONG_SELECTOR,
                name,
                (f"service {named(of)}: its selector does not fit the pod's labels",),
                {"service": of},
            )


def _selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return bool(selector) and all(
        labels.get(name) == wanted for name, wanted in selector.items() if name in SELECTING_LABELS or name in labels
    )


def _limits(facts: Facts) -> Iterator[Finding]:
    spec, status = facts.spec, facts.job.status
    limit_s, age_s = spec.active_deadline_s, facts.age_s(status.start_time)
    if limit_s is not None and age_s is not None and not facts.suspended:
        left_s = limit_s - age_s
        if left_s < max(min(_NEAR_S, limit_s / 2), limit_s / 10):
            seen = f"job: started {duration(age_s)} ago, activeDeadlineSeconds is {limit_s}"
            yield Finding(DEADLINE_NEAR, facts.name, (seen,), {"left": duration(left_s), "limit": duration(limit_s)})
    if isinstance(spec, TFJobSpec) and spec.backoff_limit:
        times = sum(record.total for record in status.restarts)
        if times >= spec.backoff_limit:
            seen = f"job: status.restarts counts {times}, backoffLimit is {spec.backoff_limit}"
            yield Finding(BACKOFF_NEAR, facts.name, (seen,), {"times": str(times), "limit": str(spec.backoff_limit)})


def _events(facts: Facts) -> Iterator[Finding]:
    restarting = facts.condition(ConditionType.RESTARTING)
    if restarting is not None and facts.missing:
        exits = tuple(facts.line(each) for each in facts.job_events(EventReason.EXITED_WITH_CODE)[-2:])
        yield Finding(RESTARTING, facts.name, (*exits, f"job: condition Restarting: {said(restarting.message)}"))
    about = (
        (NOT_ADOPTED, (EventReason.FAILED_ADOPT_POD, EventReason.FAILED_ADOPT_SERVICE)),
        (
            NOT_DELETED,
            (EventReason.FAILED_DELETE_POD, EventReason.FAILED_DELETE_SERVICE, EventReason.FAILED_DELETE_POD_GROUP),
        ),
        (
            RELABELLED,
            (
                EventReason.RESTORED_POD_LABELS,
                EventReason.RESTORED_SERVICE_LABELS,
                EventReason.RESTORED_SERVICE_SELECTOR,
                EventReason.FAILED_RESTORE_POD_LABELS,
                EventReason.FAILED_RESTORE_SERVICE_LABELS,
                EventReason.FAILED_RESTORE_SERVICE_SELECTOR,
            ),
        ),
    )
    for trouble, reasons in about:
        for event in latest(facts.job_events(*reasons)):
            age_s = facts.age_s(event.at)
            if age_s is not None and age_s < _LONG_S:
                yield Finding(trouble, facts.name, (facts.line(event),))
