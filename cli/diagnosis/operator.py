"""Problems of the operator itself, and jobs that it ignores. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from tfjob_operator.api.core import Lease
from tfjob_operator.api.v1.constants import MANAGED_BY_US, EventReason
from tfjob_operator.api.v1alpha1.constants import TENSORFLOW
from tfjob_operator.cli.diagnosis.advice import OPERATOR_LOGS, REPLACE, SAVE
from tfjob_operator.cli.diagnosis.causes import Finding, Group, ManifestChange, error, info, warning
from tfjob_operator.cli.diagnosis.facts import Facts, latest
from tfjob_operator.cli.diagnosis.rows import of_event, of_job, of_pod
from tfjob_operator.cli.diagnosis.rules import first_match, rule, shorten
from tfjob_operator.cli.durations import duration
from tfjob_operator.cli.model.objects import CrdValidation, OperatorDeployment
from tfjob_operator.cli.model.pods import statuses
from tfjob_operator.cli.model.words import ago, quote, safe_name, seconds_between
from tfjob_operator.cli.operators import TrainingOperator

_PODS: Final = "kubectl -n {operators} get pods --selector=name=tf-job-operator"
_LOGS: Final = "kubectl -n {operators} logs --selector=name=tf-job-operator --ignore-errors --prefix --tail=50"
_INSTALL: Final = "Install the operator, or ask your cluster administrator to do so"
_SERVE: Final = "Install an operator that serves namespace {namespace}, or ask your cluster administrator to do so"

NAMESPACE_TERMINATING: Final = error(
    "namespace-terminating",
    'Namespace "{namespace}" is being deleted: nothing can be created in it',
    "The job's namespace is being deleted",
    "Create the job in another namespace",
    "The conditions of the namespace list what is left in it: kubectl get namespace {namespace} -o yaml",
)
JOB_DELETING: Final = error(
    "job-being-deleted",
    "The job is being deleted {waits}",
    "The job has a deletionTimestamp; finalizers may delay its deletion",
    "Ask the owners of metadata.finalizers to remove them: "
    "kubectl -n {namespace} get tfjob {job} -o jsonpath='{{.metadata.finalizers}}'",
)
_MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
_THERE: Final = "The status is that of the job in that cluster, which has its pods and logs"
MULTIKUEUE: Final = info(
    "managed-by-multikueue",
    "MultiKueue runs the job in another cluster: {cluster}",
    "spec.runPolicy.managedBy is kueue.x-k8s.io/multikueue; the Workload's status.clusterName has the cluster",
    _THERE,
    "kubectl -n {namespace} describe workloads.kueue.x-k8s.io {workload}",
)
_NO_WORKLOAD: Final = (
    _THERE,
    "Without its Workload the job runs nowhere: ask your cluster administrator whether Kueue is installed and manages TFJobs",
)
_UNREADABLE_WORKLOAD: Final = (
    _THERE,
    "Ask your cluster administrator to run: kubectl -n {namespace} get workloads.kueue.x-k8s.io",
)
MANAGED_ELSEWHERE: Final = info(
    "managed-elsewhere",
    "Managed by {manager}; this operator ignores the job",
    "spec.runPolicy.managedBy names another controller",
    "The status is written by {manager}: ask its owner about the job",
)
MANAGER_SILENT: Final = error(
    "manager-silent",
    "Managed by {manager}, which has not written a status; this operator ignores the job",
    "spec.runPolicy.managedBy names another controller, and the job has no conditions",
    "Ask the owner of {manager} about the job",
    f"To have this operator run it, save the manifest, then in the file remove spec.runPolicy.managedBy: {SAVE}",
    REPLACE,
)
NOT_RUNNING: Final = error(
    "operator-not-running",
    "The operator is not running: its Lease {lease} was last renewed {since}",
    "The operator's Lease has no holder, or was not renewed in time",
    _PODS,
    _LOGS,
    "Ask your cluster administrator to start the operator",
)
NOT_READY: Final = error(
    "operator-not-ready",
    "The operator is installed, but {ready} of {wanted} pods are ready",
    "The operator's Lease is not renewed or does not exist, and its Deployment has no ready pod",
    "See why, and fix what the pods report: kubectl -n {operators} describe pods --selector=name=tf-job-operator",
    "Ask your cluster administrator to fix its Deployment",
)
_SCALE_UP: Final = "kubectl -n {operators} scale deployment {deployment} --replicas=2"
_START: Final = f"Start it: {_SCALE_UP}"
_OTHERWISE_START: Final = f"Otherwise start it: {_SCALE_UP}"
SCALED_TO_ZERO: Final = error(
    "operator-scaled-to-zero",
    "The operator is stopped: its Deployment {operators}/{deployment} is scaled to 0",
    "The operator's Lease is not renewed or does not exist, and its Deployment has `replicas: 0`",
    _START,
    "Or ask your cluster administrator to start it",
)
ELSEWHERE: Final = error(
    "operator-serves-elsewhere",
    "No operator serves namespace {namespace}: those installed serve {served} only",
    "Every Deployment of an operator has the flag `--namespace` of another namespace, and the job has no status, or no "
    "operator without a Deployment renews a Lease",
    _SERVE,
)
MISSING: Final = error(
    "operator-missing",
    "No operator is {state} the Lease {lease}",
    "No operator has a Deployment, and none renews a Lease; or the job has no status, and none has either",
    "kubectl get deployments --all-namespaces --selector=app.kubernetes.io/name=tfjob-operator",
    _INSTALL,
)
NOT_ACTING: Final = error(
    "operator-not-acting",
    "The operator has not reconciled the job for {age}",
    "The job has no status a minute after its creation: the operator is down, serves other namespaces, or has no "
    "permission for TFJobs",
    "kubectl get pods --all-namespaces --selector=name=tf-job-operator",
    f"{_INSTALL}; check its flag --namespace, which may exclude namespace {{namespace}}",
)
NOT_SERVED: Final = error(
    "alpha-not-served",
    "The operator is running and has not reconciled the job for {age}: tensorflow.org/v1alpha1 is probably not enabled",
    "A TfJob of tensorflow.org has no status a minute after its creation, and the operator's Lease is renewed",
    "Ask your cluster administrator to run the operator with --apis=kubeflow.org/v1,tensorflow.org/v1alpha1 and the "
    "rights of manifests/addons/alpha",
    "Or convert the job to v1: kubectl -n {namespace} get {resource} {job} -o yaml | kubectl tfjob convert -",
)
UNSERVED: Final = error(
    "namespace-not-served",
    "Probably no operator serves namespace {namespace}: {who} not created, Lease {lease}",
    "Replicas have had no pod for a minute without a reason; a Lease is stale or missing, or belongs to other namespaces",
    "kubectl get deployments --all-namespaces --selector=app.kubernetes.io/name=tfjob-operator",
    _SERVE,
    unless=(Group.OPERATOR,),
)
_MOVING: Final = (
    "If the namespace is being moved from training-operator {peer}, continue or undo that: kubectl tfjob migrate --plan "
    "--namespace={namespace}"
)
_MIGRATION: Final = "See how to continue a migration or to go back: kubectl tfjob migrate --plan"
PEER_LOGS: Final = "Look for the job in its log: kubectl -n {operators} logs deployment/{deployment} --tail=500"
_STOP_PEER: Final = (
    "Stop training-operator, or limit it to other namespaces, with the steps of: kubectl tfjob migrate --plan"
)
TWO_OPERATORS: Final = error(
    "two-operators",
    "Two operators serve the job: tfjob-operator {own} and training-operator {peer}",
    "A Deployment of each has replicas, serves the namespace and may write there",
    "Stop one of them, since both may restart the same pod and overwrite the status of the other, "
    "or ask your cluster administrator to do so",
    _STOP_PEER,
    "Or stop tfjob-operator: kubectl -n {operators} scale deployment {deployment} --replicas=0",
)
PEER_STOPPED: Final = error(
    "training-operator-not-running",
    "No operator runs the job: training-operator {peer} {state}, and tfjob-operator does not run",
    "A Deployment of training-operator exists, has no ready pod or does not serve TFJobs, and no Deployment of "
    "tfjob-operator serves the namespace",
    "Ask your cluster administrator to finish a migration, or to start training-operator",
    _MIGRATION,
)
PEER_NOT_ACTING: Final = error(
    "training-operator-not-acting",
    "training-operator {peer} has not reconciled the job for {age}",
    "The job has no status a minute after its creation, training-operator runs, and tfjob-operator does not",
    PEER_LOGS,
    "While namespaces are moved one by one, it may write only where it has a RoleBinding: kubectl -n {namespace} get "
    "rolebindings",
    "To create the RoleBinding, repeat the loop of step 2 of the plan; or move this namespace too, with the plan: "
    "kubectl tfjob migrate --plan --namespace={namespace}",
)
NOT_YET: Final = warning(
    "not-reconciled-yet",
    "No operator has reconciled the job yet ({age} after its creation)",
    "The job has no status ten seconds after its creation; after a minute it is `operator-not-acting`",
    "kubectl get pods --all-namespaces --selector=name=tf-job-operator",
)
EDIT_UNSEEN: Final = warning(
    "edit-not-seen",
    "The last edit has not been reconciled yet (generation {generation}, observed {seen})",
    "status.observedGeneration is less than metadata.generation",
    OPERATOR_LOGS,
)
END_UNSEEN: Final = error(
    "end-not-seen",
    "{who} succeeded {age} ago, but no operator has recorded it",
    "A replica's pod has succeeded, and status.finishedIndices lacks it half a minute later",
    "kubectl get pods --all-namespaces --selector=name=tf-job-operator",
    "Ask your cluster administrator whether the operator runs; the job continues when it does",
)
_APPLY_CRD: Final = (
    (
        "Ask your cluster administrator to apply the CRD of the operator's version, without the mark of a client-side apply: "
        "kubectl annotate crd tfjobs.kubeflow.org kubectl.kubernetes.io/last-applied-configuration-"
    ),
    "Then: kubectl apply --server-side --force-conflicts -f manifests/base/crd.yaml",
)
CRD_OLD: Final = warning(
    "crd-old",
    "Status fields are pruned: the installed CRD is outdated or belongs to another operator",
    "The CRD lacks fields that the operator writes; successes and restarts may be lost",
    *_APPLY_CRD,
)
_LOOKS_AGAIN: Final = (
    "When a CRD is replaced, training-operator looks at all its jobs, and fails those beyond their deadline: extend these "
    "first, as shown by kubectl tfjob migrate --check --all-namespaces"
)
_RETRIED: Final = (
    "The operator retries every 15 seconds. Until then running pods continue, and no pod is created or deleted"
)
STATUS_TOO_LARGE: Final = error(
    "status-too-large",
    "The API server refuses to store the status of the job, which is too large: {words}",
    "The event StatusRefused, with an error about the size: etcd or a proxy limits the size of the job",
    "Remove the copy of the spec in the annotations, and apply the job with --server-side from then on: "
    "kubectl -n {namespace} annotate tfjob {job} kubectl.kubernetes.io/last-applied-configuration-",
    ManifestChange("shorten the spec and its annotations: put data in a ConfigMap", recreate=False),
    "If the job has less than 1 MiB, ask your cluster administrator about the limit of etcd (--max-request-bytes) or a proxy",
    _RETRIED,
)
STATUS_DENIED: Final = error(
    "status-denied",
    "An admission webhook or policy denies the status of the job: {words}",
    "The event StatusRefused, with the error of an admission webhook or policy",
    "Ask the owner of the webhook or policy to allow the operator updates of tfjobs/status",
    _RETRIED,
)
STATUS_FORBIDDEN: Final = error(
    "status-forbidden",
    "The operator has no permission to write the status of the job: {words}",
    "The event StatusRefused, with the error Forbidden: the operator may not patch tfjobs/status",
    "Ask your cluster administrator to apply the RBAC manifests of the operator's version",
    _RETRIED,
)
STATUS_INVALID: Final = error(
    "status-invalid",
    "The installed CRD rejects the status of the job: {words}",
    "The event StatusRefused, with error 422: the CRD belongs to another operator, or was edited",
    *_APPLY_CRD,
    _RETRIED,
)
STATUS_REFUSED: Final = error(
    "status-refused",
    "The API server refuses to store the status of the job: {words}",
    "The event StatusRefused, with any other error, such as that of a webhook that cannot be called",
    "Ask your cluster administrator to fix what the message names",
    _RETRIED,
)
STOPPED: Final = frozenset(
    problem.id
    for problem in (
        *(NOT_RUNNING, NOT_READY, SCALED_TO_ZERO, ELSEWHERE, MISSING, NOT_ACTING, NOT_SERVED, UNSERVED),
        *(PEER_STOPPED, PEER_NOT_ACTING),
    )
)
"""While one of these lasts, deleted pods are not recreated."""
SURELY_STOPPED: Final = frozenset(
    problem.id for problem in (NOT_READY, SCALED_TO_ZERO, ELSEWHERE, MISSING, PEER_STOPPED)
)
"""The problems that Deployments prove; the others also depend on the local clock."""

SOON_S: Final = 10.0
LATE_S: Final = 60.0
"""A new job has a status within a second; after a minute the work queue is too long, or no operator is running."""
_NO_DEPLOYMENT: Final = "installed: none has a Deployment, and"
_GRACE_S: Final = 30.0
"""Added to the duration of a lease, since the clocks of nodes and of this machine differ."""
_REPEATED_S: Final = 4500.0
"""The operator repeats the event StatusRefused each hour."""
# controller/jobs/refusals.py; etcd, kube-apiserver: pkg/endpoints/handlers, pkg/admission
_REFUSALS: Final = (
    rule(STATUS_TOO_LARGE, r"meanwhile: (?P<words>.*(too large|larger than max).*)"),
    rule(STATUS_TOO_LARGE, r"meanwhile: (?P<words>413 .*)"),
    rule(STATUS_DENIED, r"meanwhile: (?P<words>.*denied (the )?request.*)"),
    rule(STATUS_FORBIDDEN, r"meanwhile: (?P<words>403 .*cannot (patch|update) resource.*)"),
    rule(STATUS_DENIED, r"meanwhile: (?P<words>403 .*)"),
    rule(STATUS_INVALID, r"meanwhile: (?P<words>422 .*)"),
    rule(STATUS_REFUSED, r"(meanwhile: )?(?P<words>.+)"),
)
_WRITTEN: Final = ("finishedIndices", "restarts", "begun")
"""Status fields that only this operator's CRD has (controller/tfjob/crd_check.py checks all of them)."""


def find(facts: Facts) -> Iterator[Finding]:
    """Yield why the operator does not reconcile the job."""
    meta, evidence = facts.job.metadata, facts.evidence
    if evidence.namespace is not None and (
        evidence.namespace.status.phase == "Terminating" or evidence.namespace.metadata.deletion_timestamp is not None
    ):
        seen = f"namespace {safe_name(facts.namespace)}: phase Terminating"
        yield of_job(facts, NAMESPACE_TERMINATING).seen_in(seen)
    if meta.deletion_timestamp is not None:
        names = ", ".join(map(safe_name, evidence.finalizers[:3]))
        seen = f"deletionTimestamp is set, {ago(facts.now, meta.deletion_timestamp)}"
        yield of_job(facts, JOB_DELETING, seen, waits=names and f"and waits for finalizers: {names}")
    if facts.spec.managed_by not in MANAGED_BY_US:
        yield _elsewhere_managed(facts)
    elif not facts.finished or facts.ending is not None:
        for found in _beside(facts) if evidence.peers else _asleep(facts):
            peer = evidence.elsewhere if found.problem.id in STOPPED else None
            yield found if peer is None else _with_move(found, peer, _MOVING if peer.replicas else _MIGRATION)
    yield from _crd(facts)
    if not facts.finished or facts.ending is not None:
        yield from _refused(facts)


def _refused(facts: Facts) -> Iterator[Finding]:
    """Yield why the status is refused, unless one was written since."""
    status = facts.job.status
    for event in latest(facts.job_events(EventReason.STATUS_REFUSED)):
        writes = [status.last_reconcile_time, *(condition.last_transition_time for condition in status.conditions)]
        is_over = any(at is not None and event.at is not None and seconds_between(event.at, at) > 0 for at in writes)
        found = first_match(_REFUSALS, event.message)
        if found is not None and not is_over and (facts.age_s(event.at) or 0.0) < _REPEATED_S:
            problem, values = found
            yield of_event(facts, problem, event, words=shorten(values["words"]))


def _elsewhere_managed(facts: Facts) -> Finding:
    manager, workload, status = safe_name(facts.spec.managed_by), facts.evidence.workload, facts.job.status
    seen, values = [f"job: spec.runPolicy.managedBy is {manager}"], {"manager": manager}
    if facts.spec.managed_by != _MULTIKUEUE:
        problem = MANAGED_ELSEWHERE if status.conditions or status.phase else MANAGER_SILENT
        return Finding(problem, facts.name, tuple(seen), values)
    problem = MULTIKUEUE
    if workload is None and "workloads" in facts.evidence.forbidden:
        problem = replace(MULTIKUEUE, to_do=_UNREADABLE_WORKLOAD)
        values["cluster"] = "unknown, because you have no permission to read its Workload"
    elif workload is None:
        problem = replace(MULTIKUEUE, to_do=_NO_WORKLOAD)
        values["cluster"] = "unknown, because its Workload was not found"
    else:
        name, cluster = safe_name(workload.metadata.name), safe_name(workload.status.cluster_name)
        seen.append(f"workload {name}: status.clusterName is {cluster or 'not set'}")
        values |= {"workload": workload.metadata.name, "cluster": cluster or "none is chosen yet"}
    return Finding(problem, facts.name, tuple(seen), values)


def is_renewed(lease: Lease, now: datetime) -> bool:
    """Return True if a holder renews this lease in time."""
    spec = lease.spec
    if spec is None or not spec.holder_identity or spec.renew_time is None:
        return False
    return seconds_between(spec.renew_time, now) - (spec.lease_duration_seconds or 0) <= _GRACE_S


def renewal(facts: Facts, lease: Lease) -> tuple[str, str]:
    """Return a lease as a line of evidence, and how long ago it was renewed."""
    spec = lease.spec
    holder = (
        f"held by {safe_name(spec.holder_identity)}" if spec is not None and spec.holder_identity else "held by nobody"
    )
    since = (ago(facts.now, spec.renew_time) if spec is not None else "") or "never"
    return f"lease {lease.metadata.namespace}/{lease.metadata.name}: {holder}, renewed {since}", since


def _beside(facts: Facts) -> Iterator[Finding]:
    """Yield problems of the two operators in a cluster with a training-operator."""
    running, age_s = facts.peers, facts.age_s(facts.evidence.created_at)
    serving = facts.serving
    own = [each for each in serving if each.spec.replicas]
    seen = [_shown(peer) for peer in facts.evidence.peers]
    if running and own:
        meta = own[0].metadata
        others = [f"{_named(each)}: {each.status.ready_replicas} of {each.spec.replicas} pods ready" for each in own]
        values = {"own": f"{meta.namespace}/{meta.name}", "peer": str(running[0])}
        values |= {"operators": meta.namespace, "deployment": meta.name}
        steps, of_namespace = TWO_OPERATORS.to_do, f"{_STOP_PEER} --namespace={{namespace}}"
        if own[0].served:
            steps = tuple(of_namespace if step is _STOP_PEER else step for step in steps)
        yield of_job(facts, replace(TWO_OPERATORS, to_do=steps), **values).seen_in(*others, *seen)
    if own:
        yield from _asleep(facts)
    elif any(peer.ready for peer in running):
        if _is_new(facts) and age_s is not None and age_s > LATE_S:
            values = {"peer": str(running[0]), "age": duration(age_s)}
            values |= {"operators": running[0].namespace, "deployment": running[0].name}
            yield of_job(facts, PEER_NOT_ACTING, **values).seen_in(
                f"job: created {values['age']} ago, no status", *seen
            )
    elif running or not serving:
        peer = [*running, *facts.evidence.peers][0]
        state = "does not serve TFJobs" if peer.replicas else "has 0 replicas"
        state = f"has 0 of {peer.replicas} pods ready" if peer.serves_tfjobs else state
        yield of_job(facts, PEER_STOPPED, peer=str(peer), state=state).seen_in(*seen)
    else:  # both are stopped, as between two steps of a migration
        for found in _asleep(facts):
            yield _with_move(found, facts.evidence.peers[0], _MIGRATION)


def _with_move(found: Finding, peer: TrainingOperator, advice: str) -> Finding:
    """Return the finding with advice to continue a move, of the namespace or of the whole cluster, that was interrupted."""
    steps = tuple(_OTHERWISE_START if step is _START else step for step in found.problem.to_do if step != _INSTALL)
    problem = replace(found.problem, to_do=(advice, *steps))
    return replace(found, problem=problem, values={**found.values, "peer": str(peer)})


def _shown(peer: TrainingOperator) -> str:
    kinds = "" if peer.may_serve_tfjobs else f", --enable-scheme is {safe_name(', '.join(peer.schemes))}"
    return f"deployment {peer.namespace}/{safe_name(peer.name)}: {peer.ready} of {peer.replicas} pods ready{kinds}"


def _is_new(facts: Facts) -> bool:
    """Return True if no operator has written a status."""
    return not facts.job.status.conditions and not facts.job.status.phase


def _asleep(facts: Facts) -> Iterator[Finding]:
    evidence, status, age_s = facts.evidence, facts.job.status, facts.age_s(facts.evidence.created_at)
    lease, is_new = evidence.lease, _is_new(facts)
    # Without a status, or where training-operator may not write, a running operator would have a Lease.
    is_absent = facts.is_absent("Lease", "tf-operator") and (is_new or evidence.elsewhere is not None)
    is_down, has_all = lease is None or not is_renewed(lease, facts.now), "deployments" not in evidence.forbidden
    serving = facts.serving
    if (is_new or is_down) and has_all and evidence.deployments and not serving:
        yield _elsewhere(facts)
    elif is_down and serving and not any(operator.status.ready_replicas for operator in serving):
        yield _not_ready(facts, serving)
    elif lease is not None and is_down:
        line, since = renewal(facts, lease)
        where = f"{lease.metadata.namespace}/{lease.metadata.name}"
        if serving or not has_all:
            values = {"lease": where, "since": since, "operators": lease.metadata.namespace}
            yield of_job(facts, NOT_RUNNING, **values).seen_in(line)
        else:
            values = {"state": _NO_DEPLOYMENT, "lease": f"{where} was last renewed {since}"}
            yield of_job(facts, MISSING, **values).seen_in(line)
    elif is_absent and not serving:
        values = {"state": _NO_DEPLOYMENT if has_all else "running:", "lease": "tf-operator does not exist"}
        seen = ("job: no status",) if is_new else ()
        yield of_job(facts, MISSING, **values).seen_in(*seen, "lease tf-operator: not found")
    elif is_new and age_s is not None and age_s > SOON_S:
        late = NOT_SERVED if facts.shape.resource == str(TENSORFLOW.resource) and lease else NOT_ACTING
        stale = evidence.stale_lease
        seen = (
            f"job: created {duration(age_s)} ago, no status",
            *([renewal(facts, stale)[0]] if stale is not None else ()),
        )
        yield of_job(facts, late if age_s > LATE_S else NOT_YET, age=duration(age_s)).seen_in(*seen)
    elif not is_new and facts.is_edited:
        values = {"generation": str(facts.job.metadata.generation), "seen": str(status.observed_generation)}
        yield of_job(facts, EDIT_UNSEEN, "status.observedGeneration is less than metadata.generation", **values)
    elif status.begun is not None:
        yield from _unseen(facts)


def _unseen(facts: Facts) -> Iterator[Finding]:
    """Yield succeeded replicas that are missing from the job's status; this needs only permission to read pods."""
    for pod in facts.pods:
        if pod.status.phase != "Succeeded" or facts.shape.replica_of(pod) not in facts.wanted:
            continue
        states = [
            status.state.terminated for status in statuses(pod) if status.state is not None and status.state.terminated
        ]
        ages = [age for terminated in states if (age := facts.age_s(terminated.finished_at)) is not None]
        if ages and min(ages) > _GRACE_S and pod.metadata.deletion_timestamp is None:
            yield of_pod(END_UNSEEN, pod, "phase Succeeded, not in status.finishedIndices", age=duration(min(ages)))


def _named(deployment: OperatorDeployment) -> str:
    return f"deployment {deployment.metadata.namespace}/{safe_name(deployment.metadata.name)}"


def _elsewhere(facts: Facts) -> Finding:
    seen = [
        f"{_named(deployment)}: serves namespace {safe_name(deployment.served)}"
        for deployment in facts.evidence.deployments
    ]
    served = sorted({safe_name(deployment.served) for deployment in facts.evidence.deployments})
    return of_job(facts, ELSEWHERE, served=", ".join(served[:5])).seen_in(*seen)


def _not_ready(facts: Facts, deployments: Sequence[OperatorDeployment]) -> Finding:
    seen = [f"{_named(deployment)}: 0 of {deployment.spec.replicas} pods ready" for deployment in deployments]
    meta, wanted = deployments[0].metadata, sum(deployment.spec.replicas for deployment in deployments)
    if wanted == 0:
        return of_job(facts, SCALED_TO_ZERO, operators=meta.namespace, deployment=meta.name).seen_in(*seen)
    for pod in facts.evidence.operator_pods:
        name = safe_name(pod.metadata.name)
        for status in (pod.status.container_statuses or ()) if pod.metadata.deletion_timestamp is None else ():
            waiting = status.state.waiting if status.state is not None else None
            ended = status.last_state.terminated if status.last_state is not None else None
            if waiting is not None:
                seen.append(f"pod {name} waiting: {safe_name(waiting.reason)}: {quote(waiting.message)}")
            if ended is not None:
                seen.append(f"pod {name} exited with code {ended.exit_code}: {quote(ended.message)}")
    return of_job(facts, NOT_READY, ready="0", wanted=str(wanted), operators=meta.namespace).seen_in(*seen)


def _crd(facts: Facts) -> Iterator[Finding]:
    """Yield that status fields are lost: the CRD decides, or without permission to read it, an event."""
    evidence = facts.evidence
    if facts.is_left_to_peer:
        return  # its own CRD suffices, and replacing that makes it look at all jobs
    # Beside training-operator, its CRD has all the fields that are written: `observedGeneration` is not among them.
    is_ours = facts.job.status.observed_generation or evidence.lease is not None or evidence.deployments
    versions = (evidence.crd.spec.versions or ()) if evidence.crd is not None else ()
    schemas = [version.schema for version in versions if version.name == "v1"]
    lost = [name for schema in schemas for name in _lost(schema)]
    proofs = [facts.line(event) for event in latest(facts.job_events(EventReason.STATUS_FIELDS_PRUNED))]
    if schemas and not lost:
        return
    if lost and is_ours:
        proofs.append(f"CRD tfjobs.kubeflow.org: the schema of v1 lacks status.{', status.'.join(lost)}")
    if proofs:
        other = evidence.elsewhere
        runs = bool(facts.peers) or (other is not None and other.serves_tfjobs)
        problem = replace(CRD_OLD, to_do=(_LOOKS_AGAIN, *CRD_OLD.to_do)) if runs else CRD_OLD
        yield of_job(facts, problem).seen_in(*proofs)


def _lost(validation: CrdValidation | None) -> list[str]:
    """Return the status fields that a schema lacks."""
    schema = validation.open_api_v3_schema if validation is not None else None
    status = (schema.properties or {}).get("status") if schema is not None else None
    if not isinstance(status, dict):
        return [*_WRITTEN]
    fields = status.get("properties")
    is_open = status.get("x-kubernetes-preserve-unknown-fields")
    return [] if is_open else [name for name in _WRITTEN if not (isinstance(fields, dict) and name in fields)]
