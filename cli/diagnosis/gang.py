"""Jobs that wait as a gang: for their PodGroup, its queue, or room for all of them at once. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tfjob_operator.api.core import POD_GROUP_PENDING
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.cli.diagnosis.causes import Finding, Severity, Trouble
from tfjob_operator.cli.diagnosis.facts import latest
from tfjob_operator.cli.diagnosis.rules import first_match, rule, value
from tfjob_operator.cli.diagnosis.words import named, said

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfjob_operator.cli.diagnosis.facts import Facts
    from tfjob_operator.cli.diagnosis.objects import PodGroup

_GROUP: Final = "kubectl -n {namespace} describe podgroup {job}"

UNAVAILABLE: Final = Trouble(
    "pod-groups-unavailable",
    440,
    Severity.ERROR,
    "The operator cannot read PodGroups, and creates no pod before it can",
    (
        "kubectl get crds | grep podgroups   # it comes with the gang scheduler",
        "Apply the addon gang-scheduling of the operator's manifests",
    ),
    "Gang scheduling is on, but the CRD of PodGroups is missing or may not be listed",
)
GROUP_REFUSED: Final = Trouble(
    "pod-group-refused",
    441,
    Severity.ERROR,
    "The API server refuses the job's PodGroup, without which no pod is created: {words}",
    ("Do what the message says; it is tried again by itself",),
    "The PodGroup cannot be created: a queue that does not exist, a webhook, a right",
)
TOO_FEW: Final = Trouble(
    "gang-too-few-pods",
    442,
    Severity.ERROR,
    "The gang waits for more pods than there are: {present} of {wanted}",
    (
        "Why are pods missing? kubectl -n {namespace} describe tfjob {job}",
        "Is runPolicy.schedulingPolicy.minAvailable too large?",
    ),
    "The gang scheduler waits until minMember pods exist",
)
NO_ROOM: Final = Trouble(
    "gang-no-room",
    443,
    Severity.ERROR,
    "There is no room for all {members} pods of the gang at once",
    (
        _GROUP,
        "Wait until others end, use fewer or smaller replicas, or a smaller runPolicy.schedulingPolicy.minAvailable",
    ),
    "The gang scheduler finds no place for minMember pods together",
)
QUEUED: Final = Trouble(
    "gang-queued",
    444,
    Severity.ERROR,
    "The job waits in the gang scheduler's queue {queue}: nothing is created meanwhile",
    (_GROUP, "kubectl describe queue.scheduling.volcano.sh {queue}"),
    "volcano has not let the PodGroup out of its queue yet",
)
NOT_SEEN: Final = Trouble(
    "gang-scheduler-missing",
    445,
    Severity.ERROR,
    "No gang scheduler has looked at the job's PodGroup",
    (
        "kubectl get pods --all-namespaces | grep -e volcano -e scheduler",
        "Is it the scheduler of the operator's flag --gang-scheduler-name?",
    ),
    "The PodGroup has no phase: the gang scheduler does not run",
)
OTHER_SCHEDULER: Final = Trouble(
    "gang-other-scheduler",
    910,
    Severity.WARNING,
    "A template names another scheduler than the gang scheduler: its pods do not wait for the others",
    ("Remove schedulerName from the template: kubectl -n {namespace} edit tfjob {job}",),
    "A template's schedulerName is not the gang scheduler's",
)
TROUBLES: Final = (UNAVAILABLE, GROUP_REFUSED, TOO_FEW, NO_ROOM, QUEUED, NOT_SEEN, OTHER_SCHEDULER)

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


def find(facts: Facts) -> Iterator[Finding]:
    """Yield what the gang waits for."""
    if facts.finished or facts.suspended:
        return
    for event in latest(facts.job_events(EventReason.OTHER_SCHEDULER)):
        yield Finding(OTHER_SCHEDULER, facts.name, (facts.line(event),))
    group = facts.evidence.pod_group
    if facts.missing and group is None:
        for event in latest(facts.job_events(EventReason.POD_GROUPS_UNKNOWN)):
            yield Finding(UNAVAILABLE, facts.name, (facts.line(event),))
        for event in latest(facts.job_events(EventReason.FAILED_CREATE_POD_GROUP)):
            words = value(event.message.removeprefix("Error creating: "))[:160]
            yield Finding(GROUP_REFUSED, facts.name, (facts.line(event),), {"words": words})
    if facts.unscheduled or (group is not None and facts.missing):
        yield from _waiting(facts, group)


def _waiting(facts: Facts, group: PodGroup | None) -> Iterator[Finding]:
    proofs, words = _group_words(facts, group) if group is not None else ([], [])
    for pod in facts.unscheduled:
        for event in latest(
            [each for each in facts.pod_events(pod) if each.reason in {"FailedScheduling", "Unschedulable"}]
        ):
            words.append(event.message)
            if len(proofs) < 3 and first_match(_RULES, event.message):
                proofs.append(facts.line(event))
        words.extend(each.message for each in pod.status.conditions or () if each.type == "PodScheduled")
    found = first_match(_RULES, "\n".join(words))
    members = str(group.spec.min_member) if group is not None else str(len(facts.wanted))
    if found is not None:
        if found[0] is NO_ROOM:
            full = [place for pod in facts.unscheduled[:1] for place in facts.room.places(pod) if place.words]
            proofs += [f"node {named(place.node)} {place.words}" for place in full[:2]]
        yield Finding(found[0], facts.name, tuple(proofs) or (said(words[-1]),), {"members": members} | found[1])
    elif group is not None and facts.missing and group.status.phase in {"", POD_GROUP_PENDING}:
        trouble = NOT_SEEN if not group.status.phase else QUEUED
        yield Finding(trouble, facts.name, tuple(proofs), {"queue": value(group.spec.queue) or "default"})


def _group_words(facts: Facts, group: PodGroup) -> tuple[list[str], list[str]]:
    """Return lines of evidence about the group, and the messages of its conditions and events."""
    name = group.metadata.name
    where = f"podgroup {named(name)}"
    events = latest([each for each in facts.events_of("PodGroup", name, group.metadata.uid) if each.type == "Warning"])
    told = [each for each in group.status.conditions or () if each.status == "True" and each.type == "Unschedulable"]
    lines = [f"{where}: phase {named(group.status.phase) or 'not set'}, minMember {group.spec.min_member}"]
    lines += [f"{where}: {named(each.reason)}: {said(each.message)}" for each in told] or [
        facts.line(event) for event in events
    ]
    return lines, [*(each.message for each in told), *(event.message for event in events)]
