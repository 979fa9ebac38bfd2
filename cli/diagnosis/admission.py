"""Pods that the API server rejects: quotas, limits, policies, missing service accounts, conflicting names. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

from tfjob_operator.api.meta import controller_of
from tfjob_operator.api.resources import parse_quantity
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.name_ranges import is_named
from tfjob_operator.api.v1alpha1.constants import AlphaEventReason as AlphaReason
from tfjob_operator.cli.diagnosis import operator
from tfjob_operator.cli.diagnosis.advice import (
    CREATE_RENAMED,
    DELETE_RENAMED,
    DESCRIBE_JOB,
    OPERATOR_LOGS,
    RESTART,
    RETRIED,
    SAVE,
)
from tfjob_operator.cli.diagnosis.causes import QUOTED, Finding, Group, ManifestChange, Problem, WhileRunning, error
from tfjob_operator.cli.diagnosis.facts import Facts, latest, natural_sort_key
from tfjob_operator.cli.diagnosis.rules import first_match, rule, shorten, value
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import EventDetails, PodGroupDetails
from tfjob_operator.cli.model.words import format_amount, join_some, safe_name

_RESOURCES: Final = ManifestChange("correct resources in the template")
_RANGES: Final = "kubectl -n {namespace} describe limitranges"
_MESSAGE: Final = ManifestChange("change the template as the message asks")
_NOT_OF_TEMPLATE: Final = (
    "No field of the job changes its {kind}s: ask your cluster administrator to exempt those of TFJobs"
)
_OLD_REQUESTS: Final = WhileRunning(
    "Only if you lowered the requests: recreate the running pods, which hold their old ones; work since their last checkpoint "
    f"is lost: {RESTART}"
)
"""For a quota of amounts. It would not free a count: each pod is created again."""
QUOTA: Final = error(
    "quota-exceeded",
    'ResourceQuota "{quota}" exceeded ({who} not created): {short}',
    "A ResourceQuota of the namespace is used up",
    "kubectl -n {namespace} describe quota {quota}",
    ManifestChange("use fewer replicas, or request less of what is used up"),
    "Or delete pods that are no longer needed, or ask your cluster administrator for a larger quota",
)
_OF_SERVICES: Final = (
    "kubectl -n {namespace} describe quota {quota}",
    "Delete Services that are no longer needed, or ask your cluster administrator for a larger quota",
    ManifestChange(
        "use fewer replicas: each has a Service, unless a new job sets runPolicy.network to shared", recreate=False
    ),
)
QUOTA_WANTS: Final = error(
    "quota-wants-requests",
    'ResourceQuota "{quota}" requires {wanted} on every container ({who} not created)',
    "A ResourceQuota counts a resource for which a container has no request or limit",
    ManifestChange("set what the quota requires in resources of every container"),
)
QUOTA_UNKNOWN: Final = error(
    "quota-status-unknown",
    'ResourceQuota "{quota}" has no status yet ({who} not created)',
    "A ResourceQuota has no status yet",
    "kubectl -n {namespace} describe quota {quota}",
    "If it lasts, ask your cluster administrator whether kube-controller-manager is running",
)
RANGE_MAX: Final = error(
    "limit-range-maximum",
    "LimitRange exceeded ({who} not created): at most {limit} {resource} per {kind}",
    "A request or limit is above the maximum of a LimitRange",
    _RANGES,
    _RESOURCES,
)
RANGE_MIN: Final = error(
    "limit-range-minimum",
    "LimitRange not met ({who} not created): at least {limit} {resource} per {kind}",
    "A request or limit is below the minimum of a LimitRange",
    _RANGES,
    _RESOURCES,
)
RANGE_RATIO: Final = error(
    "limit-range-ratio",
    "LimitRange exceeded ({who} not created): the {resource} limit may be at most {limit} times the request",
    "The ratio of limit to request is above that of a LimitRange",
    _RANGES,
    _RESOURCES,
)
POD_SECURITY: Final = error(
    "pod-security",
    'Pod Security "{level}" of the namespace is violated ({who} not created): {words}',
    "The pod violates the Pod Security Standard of the namespace",
    "kubectl get namespace {namespace} --show-labels",
    ManifestChange("set what the message names in securityContext of the template and its containers"),
)
POD_POLICY: Final = error(
    "pod-security-policy",
    "No PodSecurityPolicy or SecurityContextConstraints allow the pod ({who} not created)",
    "PodSecurityPolicy (before Kubernetes 1.25) or SecurityContextConstraints of OpenShift",
    ManifestChange("set what the message names in securityContext of the template and its containers"),
    "Or ask your cluster administrator to allow the ServiceAccount of the pod the use of a policy",
)
WEBHOOK_DENIED: Final = error(
    "webhook-denied",
    'Admission webhook "{webhook}" denied the request ({who} not created): {words}',
    "An admission webhook (Gatekeeper, Kyverno, ...) denies the pod",
    _MESSAGE,
)
WEBHOOK_DOWN: Final = error(
    "webhook-unreachable",
    'Admission webhook "{webhook}" cannot be called ({who} not created)',
    "An admission webhook cannot be called, and its failurePolicy is Fail",
    "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations",
    "Fix the Service of the webhook, or ask your cluster administrator",
    RETRIED,
)
KUEUE_DOWN: Final = error(
    "kueue-unreachable",
    "Kueue's admission webhook cannot be called ({who} not created)",
    "Kueue is down, and its webhooks reject the creation of pods until it is back",
    "kubectl -n {place} get pods",
    "Ask your cluster administrator whether Kueue is running; running pods of the job continue",
    RETRIED,
)
POLICY_DENIED: Final = error(
    "admission-policy-denied",
    'ValidatingAdmissionPolicy "{policy}" denied the request ({who} not created): {words}',
    "A ValidatingAdmissionPolicy denies the pod",
    "kubectl describe validatingadmissionpolicy {policy}",
    _MESSAGE,
)
NO_ACCOUNT: Final = error(
    "service-account-missing",
    'ServiceAccount "{account}" not found ({who} not created)',
    "The template names a ServiceAccount that does not exist",
    f"Create it. {RETRIED}: kubectl -n {{namespace}} create serviceaccount {{account}}",
    "Or name another one in serviceAccountName of the template: kubectl -n {namespace} edit tfjob {job}",
)
NO_PRIORITY: Final = error(
    "priority-class-missing",
    'PriorityClass "{name}" not found ({who} not created)',
    "The template names a PriorityClass that does not exist",
    "kubectl get priorityclasses",
    ManifestChange("set priorityClassName of the template to an existing class, or remove it"),
)
NO_RUNTIME: Final = error(
    "runtime-class-missing",
    'RuntimeClass "{name}" not found ({who} not created)',
    "The template names a RuntimeClass that does not exist",
    "kubectl get runtimeclasses",
    ManifestChange("set runtimeClassName of the template to an existing class, or remove it"),
)
_WORK_LOST: Final = "Delete the job of the old name with its pods; work since their last checkpoint is lost"
NAME_TAKEN: Final = error(
    "name-taken",
    "The name of {who} is in use: a {kind} with that name {holder}",
    "Another object has the name of a replica's pod or Service",
    "kubectl -n {namespace} get {kind} {object} -o yaml",
    f"To give the job another name, save the manifest, then in the file change metadata.name: {SAVE}",
    CREATE_RENAMED,
    f"{_WORK_LOST}: {DELETE_RENAMED.partition(': ')[2]}",
)
_UNOWNED: Final = (
    "kubectl -n {namespace} get {kind} {object} -o yaml",
    (
        "If nothing needs it, delete it. The operator then creates that of the job, within five minutes: "
        "kubectl -n {namespace} delete {kind} {object}"
    ),
    "Or, if it is needed, create the job under another name. The work of its running pods since their last checkpoint is lost",
)
"""The advice if the other object has no owner."""
LEFT_BEHIND: Final = error(
    "former-child-in-the-way",
    "Waiting for {kind} {object} {whose} to be deleted ({who} not created)",
    "A child of an earlier job of the name, with another UID in its ownerReferences, or the job's own PodGroup, is not "
    "deleted yet",
    "kubectl -n {namespace} get {kind} {object} -o yaml",
    "If it has metadata.finalizers, whoever set them removes them. {who} is created when it is gone",
    "If it stays without them, ask your cluster administrator whether kube-controller-manager is running",
)
ENDED_IN_THE_WAY: Final = error(
    "ended-pod-in-the-way",
    "The name of {who} is in use by a finished pod without an owner",
    "A finished pod without an owner has the replica's name; it is not adopted",
    "Delete it with its logs: kubectl -n {namespace} delete pod {object}",
    RETRIED,
)
NO_RIGHTS: Final = error(
    "operator-no-rights",
    "The operator has no permission to {verb} {resource}",
    "The operator's ServiceAccount lacks a permission, for example after an upgrade",
    "Ask your cluster administrator to apply the RBAC manifests of the operator's version",
    "To check: kubectl auth can-i {verb} {resource} -n {namespace} --as={user}",
)
OVERLOADED: Final = error(
    "api-server-errors",
    "API server errors ({who} not created): {words}",
    "Timeouts, 429 and 5xx of the API server while pods and Services are created",
    RETRIED,
    "Ask your cluster administrator if it lasts",
)
REFUSED: Final = error(
    "create-refused",
    "Rejected by the API server ({who} not created): {words}",
    "Any other rejection of a pod, a Service or a ConfigMap",
    _MESSAGE,
    RETRIED,
)
NO_PODS: Final = error(
    "pods-missing",
    "{who} not created, for an unknown reason",
    "Replicas have had no pod for a minute, and no event gives a reason",
    DESCRIBE_JOB,
    OPERATOR_LOGS,
    unless=(
        Group.OPERATOR,
        "not-reconciled-yet",
        "edit-not-seen",
        Group.SPEC,
        Group.BATCH_JOBS,
        Group.GANG,
        "stuck-terminating",
        "replicas-restarting",
        Group.ATTEMPTS,
        "attempt-waits-for-pods",
        "restart-delayed",
        "escalation-near",
        *QUOTED,
    ),
    vague=True,
)

_RULES: Final = (
    # kubernetes: staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go,
    # pkg/quota/v1/evaluator/core/pods.go
    rule(
        QUOTA,
        r"exceeded quota: (?P<quota>[^,\s]+), requested: (?P<asked>\S+), used: (?P<used>\S+), limited: (?P<hard>[^;\s]+)",
    ),
    rule(QUOTA_WANTS, r"failed quota: (?P<quota>[^:\s]+): must specify (?P<wanted>[^;:\s]+)"),
    rule(QUOTA_UNKNOWN, r"status unknown for quota: (?P<quota>[^,\s]+)"),
    # kubernetes: plugin/pkg/admission/limitranger/admission.go
    rule(RANGE_MAX, r"maximum (?P<resource>\S+) usage per (?P<kind>\S+) is (?P<limit>[^\s,]+?)[.,]"),
    rule(RANGE_MIN, r"minimum (?P<resource>\S+) usage per (?P<kind>\S+) is (?P<limit>[^\s,]+?)[.,]"),
    rule(RANGE_RATIO, r"(?P<resource>\S{1,80}) max limit to request ratio per \S+ is (?P<limit>[^\s,]+)"),
    # kubernetes: staging/src/k8s.io/pod-security-admission/admission/admission.go; PodSecurityPolicy until 1.24; OpenShift
    rule(POD_SECURITY, r'violates PodSecurity "(?P<level>[^":]+)[^"]*": (?P<words>.+)'),
    rule(POD_POLICY, r"unable to validate against any (pod security policy|security context constraint)"),
    # kubernetes: staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go, pkg/util/webhook/error.go
    rule(KUEUE_DOWN, r"failed calling webhook.{0,300}https://[\w-]*kueue[\w-]*\.(?P<place>[\w-]+)\.svc\b"),
    rule(WEBHOOK_DOWN, r'failed calling webhook "(?P<webhook>[^"]+)"'),
    rule(WEBHOOK_DENIED, r'admission webhook "(?P<webhook>[^"]+)" denied the request(: |\s)(?P<words>.+)'),
    rule(WEBHOOK_DENIED, r'admission webhook "(?P<webhook>[^"]+)" denied the request'),
    # kubernetes: staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go
    rule(
        POLICY_DENIED,
        r"ValidatingAdmissionPolicy '(?P<policy>[^']+)'( with binding '[^']+')? denied request: (?P<words>.+)",
    ),
    # kubernetes: plugin/pkg/admission/{serviceaccount,priority,runtimeclass}/admission.go
    rule(NO_ACCOUNT, r'error looking up service account [^:]*: serviceaccount "(?P<account>[^"]+)" not found'),
    rule(NO_ACCOUNT, r"service account \S+?/(?P<account>[^\s/]+) was not found, retry after"),
    rule(NO_PRIORITY, r"no PriorityClass with name (?P<name>\S+) was found"),
    rule(NO_RUNTIME, r'RuntimeClass(\.node\.k8s\.io)? "(?P<name>[^"]+)" not found'),
    # this operator: controller/tfjob/apply/creator.py
    rule(
        ENDED_IN_THE_WAY,
        r"(?P<kind>pod|service) (?P<object>\S+) already exists and is not controlled .{0,300}it has finished"
        r" and has no owner",
    ),
    rule(
        LEFT_BEHIND,
        r"(?P<kind>pod|service|ConfigMap|PodGroup) (?P<object>\S+) already exists and is not controlled .{0,300}it "
        r"(belongs to an earlier job of this name|is being deleted) \(UID",
    ),
    rule(
        NAME_TAKEN,
        r"(?P<kind>pod|service|ConfigMap|PodGroup) (?P<object>\S+) already exists and is not controlled .{0,300}it "
        r"(?P<holder>belongs to [^;]+|has no owner)",
    ),
    # controller/alpha/alpha_executor.py, controller/tfjob/plan/actions.py
    rule(
        LEFT_BEHIND,
        r"(?P<kind>Job|Service|ConfigMap|PodGroup) (?P<object>\S+) already exists(:| and) (it )?"
        r"(belongs to an earlier job of this name|is being deleted) \(UID",
    ),
    rule(
        NAME_TAKEN,
        r"(?P<kind>Job|Service|ConfigMap) (?P<object>\S+) already exists and (?P<holder>belongs to [^;]+|has no owner)",
    ),
    # kubernetes: staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go
    rule(NO_RIGHTS, r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"'),
    rule(REFUSED, r"(?P<words>unable to create new content in namespace \S+ because it is being terminated)"),
    rule(
        OVERLOADED,
        r"(?P<words>(timed? ?out|deadline exceeded|too many requests|(?<!\S)(429|50[0-4]) |connection refused|etcdserver: )"
        r"[^;]*)",
    ),
    rule(REFUSED, r"Error creating: (?P<words>.+)"),
)
OF_EARLIER_JOB: Final = "of an earlier job of this name"
_KINDS: Final[Mapping[str, str]] = {
    EventReason.FAILED_CREATE_SERVICE: "Service",
    EventReason.FAILED_CREATE_CONFIG_MAP: "ConfigMap",
}
"""Children that no field of the job describes."""
_MISSING_FIELD: Final = re.compile(r"[^,()]+ \((?:pod or )?containers? [^()]+? must (set [^()]+)\)")
"""A violation such as `seccompProfile (pod or container "main" must set securityContext.seccompProfile.type to "...")`."""
_LATE_S: Final = 60.0
"""Pods are created within seconds; a replica without one after a minute has a problem."""
_CHILD: Final = re.compile(
    r"\b(?:pods|services|configmaps|jobs\.batch|pod|service|ConfigMap|Service|Job) \"?([a-z0-9][-a-z0-9.]*)\"?"
)


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why replicas have no pod, ignoring events about replicas that have one by now."""
    missing = set(facts.missing)
    if not missing or facts.evidence.job.metadata.deletion_timestamp is not None:
        return
    newest: dict[str, EventDetails] = {}
    refusing = (AlphaReason.FAILED_CREATE,) if facts.shape.is_alpha else (EventReason.FAILED_CREATE_POD, *_KINDS)
    for event in facts.job_events(*refusing, EventReason.CREATED_POD):
        if event.reason == EventReason.CREATED_POD:
            created = event.message.partition(": ")[2]
            newest = {child: refusal for child, refusal in newest.items() if not is_named(child, created)}
        elif child := _child_of(event, missing, facts.wanted):
            newest[child] = event
    for job in (facts.evidence.alpha.batch_jobs or ()) if facts.evidence.alpha is not None else ():
        newest.pop(job.metadata.name, None)  # it was created in the meantime
        job_events = facts.events_of("Job", job.metadata.name, job.metadata.uid)
        last = latest([each for each in job_events if each.reason in {AlphaReason.FAILED_CREATE, AlphaReason.CREATED}])
        if job.metadata.name in missing and last and last[0].reason == AlphaReason.FAILED_CREATE:
            newest[job.metadata.name] = last[0]
    conflict = pod_group_conflict(facts)
    if conflict is not None and not blocks_pod_group(facts, facts.evidence.pod_group):  # else gang.py has it
        newest.setdefault(min(missing, key=natural_sort_key), conflict)
    for child, event in sorted(newest.items()):
        yield _finding(facts, child, event)
    if not newest:
        yield from _by_quota(facts)


def blocks_pod_group(facts: Facts, group: PodGroupDetails | None) -> bool:
    """Return True if this PodGroup is being deleted, or belongs to an earlier job of this name."""
    if group is None:
        return False
    owner, job = controller_of(group.metadata), facts.evidence.job.metadata
    is_former = owner is not None and owner.name == job.name and owner.uid != job.uid
    return is_former or group.metadata.deletion_timestamp is not None


def pod_group_conflict(facts: Facts) -> EventDetails | None:
    """Return the newest event about the PodGroup if it could not be created because another object has its name."""
    events = latest(facts.job_events(EventReason.FAILED_CREATE_POD_GROUP, EventReason.CREATED_POD_GROUP))
    return next((event for event in events if " already exists" in event.message), None)


def _child_of(event: EventDetails, missing: set[str], wanted: Collection[str]) -> str:
    """Return the missing replica that an event names; if it names none, the first one; "" if the named one has a pod."""
    names = [name for name in _CHILD.findall(event.message) if name in wanted]
    if names:
        return next((str(name) for name in names if name in missing), "")
    return min(missing, key=natural_sort_key)


def why_not_created(facts: Facts, pod: str) -> Iterator[Finding]:
    """Yield why the pod of a replica that a finished job lacked could not be created, if its last event tells."""
    events = facts.job_events(EventReason.FAILED_CREATE_POD, EventReason.CREATED_POD)
    about = [
        each for each in events if pod in _CHILD.findall(each.message) or is_named(pod, each.message.partition(": ")[2])
    ]
    for event in latest(about):
        if event.reason == EventReason.FAILED_CREATE_POD:
            yield _finding(facts, pod, event)


def _finding(facts: Facts, child: str, event: EventDetails) -> Finding:
    problem, values = first_match(_RULES, event.message) or (REFUSED, {"words": value(event.message)})
    values = {name: text.rstrip(",]") for name, text in values.items()}
    if problem is NAME_TAKEN and values.get("holder") == "has no owner":
        problem = replace(NAME_TAKEN, to_do=_UNOWNED)
    if problem is LEFT_BEHIND:
        values["whose"] = OF_EARLIER_JOB if "earlier job" in event.message else " "
    if problem is POD_SECURITY:
        values["words"] = _MISSING_FIELD.sub(r" \1", values["words"]).strip()
    if problem is QUOTA:
        values["short"] = _shortage(values)
        asked = [part.partition("=")[0] for part in values["asked"].split(",")]
        if not all(name in {"pods", "services"} or name.startswith("count/") for name in asked):
            problem = replace(problem, to_do=(*problem.to_do, _OLD_REQUESTS))
        elif any(name in {"services", "count/services"} for name in asked):
            problem = replace(problem, to_do=_OF_SERVICES)
    if event.reason in _KINDS and _MESSAGE in problem.to_do:
        values["kind"] = _KINDS[event.reason]
        problem = replace(
            problem, to_do=tuple(_NOT_OF_TEMPLATE if each is _MESSAGE else each for each in problem.to_do)
        )
    key = "/".join(
        values.get(name, "") for name in ("quota", "webhook", "policy", "account", "name", "resource", "object")
    )
    proofs = (facts.line(event), *_ranges(facts, problem))
    return Finding(problem, child, proofs, {name: shorten(value(text)) for name, text in values.items()}, key)


def _ranges(facts: Facts, problem: Problem) -> Iterator[str]:
    if problem in {RANGE_MAX, RANGE_MIN, RANGE_RATIO} and facts.evidence.limit_ranges:
        names = sorted(each.metadata.name for each in facts.evidence.limit_ranges)
        yield f"LimitRanges of the namespace: {join_some(names)}"


def _shortage(values: dict[str, str]) -> str:
    """Return requested, used and allowed amounts of each resource: `requests.cpu: requested 5, used 3 of 4`."""
    asked, used, hard = (
        dict(part.partition("=")[::2] for part in values.get(name, "").split(",")) for name in ("asked", "used", "hard")
    )
    return "; ".join(
        f"{name}: requested {number}, used {used.get(name, '?')} of {hard.get(name, '?')}"
        for name, number in asked.items()
    )


def _by_quota(facts: Facts) -> Iterator[Finding]:
    """Yield a quota without room for another pod, else a finding of unknown reason, as events expire after an hour."""
    age_s = facts.age_s(facts.job.status.start_time)
    waits_s = -(facts.age_s(facts.job.status.next_restart_time) or 0.0)
    if facts.evidence.pod_group is not None or age_s is None or age_s < _LATE_S or waits_s > 0:
        return
    missing = facts.missing[0]
    for quota in sorted(facts.evidence.quotas, key=lambda each: each.metadata.name):
        for resource in ("pods", "count/pods", "services"):
            hard, used = (parse_quantity((part or {}).get(resource)) for part in (quota.status.hard, quota.status.used))
            if hard is not None and used is not None and used + Decimal(1) > hard:
                short = f"{resource}: used {format_amount(resource, used)} of {format_amount(resource, hard)}"
                proof = f"quota {safe_name(quota.metadata.name)}: {short}"
                yield Finding(
                    QUOTA, missing, (proof,), {"quota": value(quota.metadata.name), "short": short}, quota.metadata.name
                )
                return
    proof = f"job: {len(facts.missing)} of {len(facts.wanted)} replicas have no pod, {duration(age_s)} after its start"
    stale = facts.evidence.stale_lease
    if facts.peers:
        peer = facts.peers[0]
        named = {"operators": peer.namespace, "deployment": peer.name}
        logs = operator.PEER_LOGS.replace("its log", "the log of training-operator")
        yield Finding(replace(NO_PODS, to_do=(DESCRIBE_JOB, logs)), missing, (proof,), named)
    elif stale is not None and not any(each.status.ready_replicas for each in facts.serving):
        line, since = operator.renewal(facts, stale)
        where = f"{stale.metadata.namespace}/{stale.metadata.name} was last renewed {since}"
        yield Finding(operator.UNSERVED, missing, (line, proof), {"lease": where})
    elif facts.is_absent("Lease", "tf-operator"):
        yield Finding(
            operator.UNSERVED, missing, ("lease tf-operator: not found", proof), {"lease": "tf-operator does not exist"}
        )
    else:
        yield Finding(NO_PODS, missing, (proof,))
