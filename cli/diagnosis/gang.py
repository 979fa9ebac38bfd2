"""Gang-scheduled jobs that wait for their PodGroup, its queue, or room for all pods at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tfjob_operator.api.core import POD_GROUP_PENDING
from tfjob_operator.api.meta import controller_of
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.types import SchedulingPolicy, TFJobSpec
from tfjob_operator.cli.diagnosis import admission
from tfjob_operator.cli.diagnosis.advice import DESCRIBE_JOB, RETRIED
from tfjob_operator.cli.diagnosis.causes import Finding, ManifestChange, error, warning
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rows import OnJob, on_job
from tfjob_operator.cli.diagnosis.rules import first_match, rule, value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import PodGroupDetails
from tfjob_operator.cli.model.words import join_some, quote, safe_name

_UNSEEN_S: Final = 10.0
"""A scheduler looks at a pod within this time, unless its PodGroup does not exist."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
_GROUP: Final = "kubectl -n {namespace} describe podgroup {job}"

NO_SCHEDULING_GROUP: Final = error(
    "scheduling-group-missing",
    'Waiting for the PodGroup "{group}", which the template names in schedulingGroup ({who})',
    "The pod has spec.schedulingGroup, and the scheduler has not looked at it: the PodGroup does not exist",
    "kubectl -n {namespace} get podgroups.scheduling.k8s.io {group}",
    "Create it if it does not exist; the operator creates no PodGroup of scheduling.k8s.io",
    ManifestChange("or remove schedulingGroup from the template"),
)
UNAVAILABLE: Final = error(
    "pod-groups-unavailable",
    "Waiting for PodGroups: the operator cannot read them, and creates no pod before",
    "Gang scheduling is enabled, but the CRD of PodGroups is missing or may not be listed",
    "Check for the CRD of the gang scheduler: kubectl get crds",
    "Ask your cluster administrator to install the gang scheduler and the addon gang-scheduling of the manifests",
)
GROUP_REFUSED: Final = error(
    "pod-group-refused",
    "PodGroup rejected by the API server, and no pod is created before it: {words}",
    "The PodGroup cannot be created: its queue does not exist, a webhook denies it, a permission is missing",
    ManifestChange("correct spec.runPolicy.schedulingPolicy as the message asks", recreate=False),
    RETRIED,
)
TOO_FEW: Final = error(
    "gang-too-few-pods",
    "Gang waits for more pods: {present} of {wanted} exist",
    "The gang scheduler waits until minMember pods exist",
    DESCRIBE_JOB,
    ManifestChange("lower spec.runPolicy.schedulingPolicy.minAvailable", recreate=False),
)
NO_ROOM: Final = error(
    "gang-no-room",
    "Insufficient resources for all {members} pods of the gang at once",
    "The gang scheduler finds no place for minMember pods together",
    _GROUP,
    ManifestChange(
        "request less, use fewer replicas, or lower spec.runPolicy.schedulingPolicy.minAvailable", recreate=False
    ),
    "Or wait until other jobs have finished",
)
QUEUED: Final = error(
    "gang-queued",
    'Waiting in queue "{queue}" of the gang scheduler; no pod is created before',
    "Volcano has not admitted the PodGroup from its queue yet",
    _GROUP,
    "kubectl describe queue.scheduling.volcano.sh {queue}",
)
NOT_SEEN: Final = error(
    "gang-scheduler-missing",
    "PodGroup not reconciled: the gang scheduler is not running",
    "The PodGroup has no phase: the gang scheduler is not running",
    "kubectl get pods --all-namespaces",
    "Ask your cluster administrator whether the scheduler of the operator's flag --gang-scheduler-name is running",
)
NO_SCHEDULER: Final = warning(
    "gang-scheduling-off",
    "spec.runPolicy.schedulingPolicy has no effect: the operator runs without a gang scheduler",
    "The job has gang settings, and its pods were created without a PodGroup",
    "Ask your cluster administrator to set --gang-scheduler-name of the operator, and to install that scheduler",
    ManifestChange("or remove spec.runPolicy.schedulingPolicy", recreate=False),
    rank=911,
)
OTHER_SCHEDULER: Final = warning(
    "gang-other-scheduler",
    "schedulerName of a template is not the gang scheduler; its pods are not scheduled as a gang",
    "A template's schedulerName is not the gang scheduler",
    ManifestChange("remove schedulerName from the template", recreate=False),
    rank=910,
)

_RULES: Final = (
    # scheduler-plugins: pkg/coscheduling/core/core.go, coscheduling.go
    rule(
        TOO_FEW,
        r"cannot find enough sibling pods, current pods number: (?P<present>\d+), minMember of group: (?P<wanted>\d+)",
    ),
    rule(NO_ROOM, r"PodGroup \S+ gets rejected due to|optimistic rejection in PostFilter"),
    # volcano: pkg/scheduler/cache/cache.go, plugins/gang/gang.go
    rule(NO_ROOM, r"tasks in gang unschedulable: .{0,300}\b(?P<members>\d+) minAvailable"),
    rule(NO_ROOM, r"(tasks in gang unschedulable|pod group is not ready)"),
)
_UNREADABLE: Final = OnJob(UNAVAILABLE, (EventReason.POD_GROUPS_UNKNOWN,))
_REFUSED: Final = OnJob(GROUP_REFUSED, (EventReason.FAILED_CREATE_POD_GROUP,))


def find(facts: Facts) -> Iterator[Finding]:
    """Yield what the gang waits for."""
    if facts.finished or facts.suspended:
        return
    for pod in facts.unscheduled:
        named, age_s = pod.spec.scheduling_group, facts.age_s(pod.metadata.creation_timestamp) or 0.0
        if named is not None and not pod.status.conditions and age_s > _UNSEEN_S:
            seen = f"pod {safe_name(pod.metadata.name)}: spec.schedulingGroup is set, and it has no conditions"
            name = value(named.pod_group_name)
            yield Finding(NO_SCHEDULING_GROUP, pod.metadata.name, (seen,), {"group": name}, key=name)
    yield from on_job(facts, [OnJob(OTHER_SCHEDULER, (EventReason.OTHER_SCHEDULER,))])
    group, spec, conflict = facts.evidence.pod_group, facts.spec, admission.pod_group_conflict(facts)
    if isinstance(spec, TFJobSpec) and spec.scheduling != SchedulingPolicy() and group is None:
        alone = [pod.metadata.name for pod in facts.live_pods if pod.spec.scheduler_name in {"", DEFAULT_SCHEDULER}]
        if alone and "pod groups" not in facts.evidence.forbidden:
            seen = f"podgroup {safe_name(facts.name)}: not found; {join_some(alone)}: schedulerName {DEFAULT_SCHEDULER}"
            yield Finding(NO_SCHEDULER, facts.name, (seen,))
    if facts.missing and group is None:
        yield from on_job(facts, [_UNREADABLE])
        if conflict is None:
            yield from on_job(facts, [_REFUSED])
    if facts.missing and group is not None and admission.blocks_pod_group(facts, group):
        yield _blocked(facts, group)
    elif conflict is None and (facts.unscheduled or (group is not None and facts.missing)):
        yield from _waiting(facts, group)


def _blocked(facts: Facts, group: PodGroupDetails) -> Finding:
    """Return a finding about the PodGroup that keeps the job from creating its own; an event about it may have expired."""
    meta, owner = group.metadata, controller_of(group.metadata)
    age_s = facts.age_s(meta.deletion_timestamp)
    seen = f"podgroup {safe_name(meta.name)}: "
    seen += f"owner {safe_name(owner.name)} with UID {safe_name(owner.uid)}" if owner is not None else "no owner"
    seen += f", Terminating for {duration(age_s)}" if age_s is not None else ""
    seen += f", finalizers {', '.join(map(safe_name, meta.finalizers[:3]))}" if meta.finalizers else ""
    is_own = owner is None or owner.uid == facts.evidence.job.metadata.uid
    values = {"kind": "PodGroup", "object": meta.name, "whose": " " if is_own else admission.OF_EARLIER_JOB}
    return Finding(admission.LEFT_BEHIND, facts.missing[0], (seen,), values)


def _waiting(facts: Facts, group: PodGroupDetails | None) -> Iterator[Finding]:
    proofs, words = _group_words(facts, group) if group is not None else ([], [])
    for pod in facts.unscheduled:
        for event in latest(facts.pod_events(pod, "FailedScheduling", "Unschedulable")):
            words.append(event.message)
            if len(proofs) < 3 and first_match(_RULES, event.message):
                proofs.append(facts.line(event))
        words.extend(condition.message for condition in pod.status.conditions or () if condition.type == "PodScheduled")
    found = first_match(_RULES, "\n".join(words))
    members = str(group.spec.min_member) if group is not None else str(len(facts.wanted))
    if found is not None:
        yield Finding(found[0], facts.name, tuple(proofs) or (quote(words[-1]),), {"members": members} | found[1])
    elif group is not None and facts.missing and group.status.phase in {"", POD_GROUP_PENDING}:
        problem = NOT_SEEN if not group.status.phase else QUEUED
        yield Finding(problem, facts.name, tuple(proofs), {"queue": value(group.spec.queue) or "default"})


def _group_words(facts: Facts, group: PodGroupDetails) -> tuple[list[str], list[str]]:
    """Return lines of evidence about the group, and the messages of its conditions and events."""
    name = group.metadata.name
    where = f"podgroup {safe_name(name)}"
    events = latest(
        [event for event in facts.events_of("PodGroup", name, group.metadata.uid) if event.type == "Warning"]
    )
    unschedulable = [
        condition
        for condition in group.status.conditions or ()
        if condition.status == "True" and condition.type == "Unschedulable"
    ]
    lines = [f"{where}: phase {safe_name(group.status.phase) or 'not set'}, minMember {group.spec.min_member}"]
    lines += [f"{where}: {safe_name(condition.reason)}: {quote(condition.message)}" for condition in unschedulable] or [
        facts.line(event) for event in events
    ]
    return lines, [*(condition.message for condition in unschedulable), *(event.message for event in events)]
