"""Dozens of problems on a real API server, one namespace for each kind: line one of `explain` has the right cause.

Problems of existing pods are in test_pod_troubles.py.
"""

import contextlib
import itertools
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from hack.matrix.cluster import open_crd
from integration.cluster import replica, specs, with_policy
from integration.operator_process import ROOT
from integration.stage import MERGE, POD, TRAINING, Problem, Stage, Then, judge, one
from integration.test_alpha import NOT_SERVED
from integration.test_alpha import PROBLEMS as OF_ALPHA_JOBS
from integration.test_denied_troubles import DENIED_BY_WEBHOOK, NO_GROUP
from integration.test_gang_scheduling import VOLCANO, install
from integration.test_life_troubles import LIVES, NODE_LOST
from integration.test_pod_troubles import NO_NODES, NOT_STARTED, UNSCHEDULED
from support.waiting import eventually
from tfjob_operator.cli.diagnosis.table import PROBLEMS

# What the operator says of a specification


def scaled(stage: Stage, job: str) -> None:
    """Scale the job once it has begun, as kubectl and autoscalers do."""
    path = stage.path("tfjobs", job)
    eventually(lambda: stage.api("GET", path).get("status", {}).get("begun"), f"{job} has begun")
    stage.cluster.kubectl("scale", "tfjob", job, "--replicas=5")


def moved_to_one_service(stage: Stage, job: str) -> None:
    """Edit the network once the job has begun."""
    path = stage.path("tfjobs", job)
    eventually(lambda: stage.api("GET", path).get("status", {}).get("begun"), f"{job} has begun")
    stage.api("PATCH", path, {"spec": {"runPolicy": {"network": "shared"}}}, MERGE)


def with_one_config() -> dict[str, Any]:
    """The specification of a job of two workers with the same TF_CONFIG."""
    found = one(containers=[TRAINING | {"env": [{"name": "TF_CONFIG", "value": "{}"}]}])
    found["tfReplicaSpecs"]["Worker"]["replicas"] = 2
    return found


SPECIFICATIONS = [
    Problem("service-account-missing", one(serviceAccountName="nobody")),
    Problem("priority-class-missing", one(priorityClassName="urgent")),
    Problem("runtime-class-missing", one(runtimeClassName="gvisor")),
    Problem("template-refused", one(containers=[TRAINING | {"volumeMounts": [{"name": "none", "mountPath": "/x"}]}])),
    Problem("spec-invalid", with_policy(one(), cleanPodPolicy="Sometimes")),
    Problem("container-name", one(containers=[TRAINING | {"name": "main"}])),
    Problem("managed-by-multikueue", with_policy(one(), managedBy="kueue.x-k8s.io/multikueue")),
    Problem("manager-silent", with_policy(one(), managedBy="example.com/trainer")),
    Problem("no-replicas", specs(Worker=replica(0))),
    Problem("too-many-replicas", specs(Worker=replica(20_000))),
    Problem("tf-config-too-long", specs(Worker=replica(9000))),
    Problem("name-too-long", one(), name="n" * 60),
    Problem("name-invalid", one(), name="9mnist"),
    Problem("replica-specs-missing", {}),
    Problem("replica-type-unknown", specs(Helper=replica())),
    Problem("run-policy-conflict", with_policy(one(), backoffLimit=3) | {"backoffLimit": 4}),
    Problem("no-workers-to-scale", specs(Chief=replica()), scaled),
    Problem(
        "kueue-replicas-not-counted",
        {"tfReplicaSpecs": {"worker": replica()}},
        meta={"labels": {"kueue.x-k8s.io/queue-name": "q"}},
    ),
    Problem("tf-config-equal", with_one_config()),
    Problem("only-parameter-servers", specs(PS=replica())),
    Problem("nothing-trains", specs(Worker=replica(0), Evaluator=replica())),
    Problem("network-not-updated", one(), moved_to_one_service),
    Problem("gang-scheduling-off", with_policy(one(), schedulingPolicy={"minAvailable": 1})),
    Problem("restart-policy-overridden", one(policy="OnFailure", restartPolicy="Always")),
    Problem("tensorboard-invalid", one() | {"tensorBoard": {"image": "board:1"}}),
    Problem("kueue-absent", with_policy(one(), suspend=True), meta={"labels": {"kueue.x-k8s.io/queue-name": "q"}}),
    Problem(
        "job-being-deleted",
        one(),
        lambda stage, job: stage.api("DELETE", stage.path("tfjobs", job)),
        meta={"finalizers": ["example.com/backup"]},
    ),
]


def test_what_the_operator_finds_in_a_specification_is_on_line_one(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator's messages are read from the job's conditions, and found by validating the specification again."""
    with stage.cluster.operator():
        judge(capsys, stage, SPECIFICATIONS)
        stage.api("PATCH", stage.path("tfjobs", "job-being-deleted"), {"metadata": {"finalizers": None}}, MERGE)


def test_a_job_that_no_operator_looks_at_says_so(stage: Stage) -> None:
    """One that is frozen leaves it without a status for over a minute; one that is gone leaves a lease that is not renewed."""
    with stage.cluster.operator() as operator:
        operator.wait_for("workers_started")  # its lease is written then
        operator.process.send_signal(signal.SIGSTOP)
        stage.jobs([Problem("why", one())])
        assert [each.id for each in stage.explain("why", 90.0).causes] == ["operator-not-acting"]
        operator.process.send_signal(signal.SIGCONT)
        stage.pod(POD.format("why"))
    eventually(lambda: stage.explain("why").causes[0].id == "operator-missing", "the operator is missed")


ALPHA = {"replicaSpecs": [{"tfReplicaType": "MASTER", "template": {"spec": {"containers": [TRAINING]}}}]}


def suspended(stage: Stage, job: str) -> None:
    """Suspend the Job of the job's one replica, as a person would."""
    status = eventually(lambda: stage.api("GET", stage.path("tfjobs", job)).get("status", {}), f"{job} has a status")
    path = f"/apis/batch/v1/namespaces/{stage.cluster.namespace}/jobs/master-{status['runtimeId']}-0"
    eventually(lambda: stage.answer("GET", path)[0] == 200, "its Job is there")
    stage.api("PATCH", path, {"spec": {"suspend": True}}, MERGE)


WITHOUT_PODS = [Problem("batch-job-suspended", ALPHA, suspended, since=22)]


@contextlib.contextmanager
def without_controllers(plane: ControlPlane) -> Iterator[None]:
    """Let no controller run but the operator: nobody looks at Jobs, and nobody counts what quotas limit."""
    plane.kill("kube-controller-manager")
    try:
        yield
    finally:
        plane.start_again("kube-controller-manager")


def test_jobs_of_replicas_that_make_no_pod_are_on_line_one(
    control_plane: ControlPlane, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the alpha dialect. Jobs can be suspended since Kubernetes 1.22."""
    with without_controllers(control_plane), stage.cluster.operator("--apis=kubeflow.org/v1,kubeflow.org/v1alpha1"):
        judge(capsys, stage, WITHOUT_PODS)


# What gangs wait for


def group(stage: Stage, job: str) -> str:
    """The path of the job's PodGroup, once that is there."""
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{stage.cluster.namespace}/podgroups/{job}"
    eventually(lambda: stage.answer("GET", path)[0] == 200, f"the PodGroup of {job} is there")
    return path


def enters(phase: str, message: str = "") -> Then:
    """Write the phase of the PodGroup, and what the scheduler says of the job's pod, as a gang scheduler would."""

    def then(stage: Stage, job: str) -> None:
        stage.api("PATCH", f"{group(stage, job)}/status", {"status": {"phase": phase}}, MERGE)
        if message:
            stage.tell(stage.pod(POD.format(job)), "Pod", "FailedScheduling", message)

    return then


GANGS = [
    Problem("gang-scheduler-missing", one(), group),
    Problem("gang-queued", one(), enters("Pending")),
    Problem(
        "gang-no-room",
        one(),
        enters("Inqueue", "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable"),
    ),
    Problem(
        "gang-too-few-pods",
        one(),
        enters("Inqueue", "cannot find enough sibling pods, current pods number: 1, minMember of group: 3"),
    ),
    Problem("gang-other-scheduler", one(schedulerName="mine"), enters("Running")),
]
NO_GROUPS = Problem("pod-groups-unavailable", one())


def test_what_a_gang_waits_for_is_on_line_one(
    stage: Stage, control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its PodGroup is a real object; the test is in the place of the gang scheduler. First nobody knows PodGroups."""
    control_plane.run_kubectl("delete", "crd", VOLCANO, "--ignore-not-found")
    with stage.cluster.operator("--enable-gang-scheduling"):
        judge(capsys, stage, [NO_GROUPS])
        install(control_plane, "volcano-podgroups.yaml", VOLCANO)
        try:
            judge(capsys, stage, GANGS)
        finally:
            control_plane.run_kubectl("delete", "crd", VOLCANO, "--ignore-not-found")


def test_a_namespace_that_is_being_deleted_is_on_line_one(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """A finalizer of the job keeps it."""
    problem = Problem(
        "namespace-terminating",
        one(),
        lambda stage, _: stage.api("DELETE", f"/api/v1/namespaces/{stage.cluster.namespace}"),
        meta={"finalizers": ["example.com/backup"]},
    )
    judge(capsys, stage, [problem])
    stage.api("PATCH", stage.path("tfjobs", problem.job), {"metadata": {"finalizers": None}}, MERGE)


# What Kueue says


WORKLOADS = "workloads.kueue.x-k8s.io"


def waits_in_kueue(*conditions: dict[str, str], active: bool = True, check: str = "") -> Then:
    """Write what Kueue would for the job: a Workload in this state."""

    def then(stage: Stage, job: str) -> None:
        uid = stage.api("GET", stage.path("tfjobs", job))["metadata"]["uid"]
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": job, "uid": uid, "controller": True}
        checks = [{"name": "provisioning", "state": check, "message": "no capacity in zone a"}] if check else []
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "Workload",
            "metadata": {"name": f"tfjob-{job}", "ownerReferences": [owner]},
            "spec": {"queueName": "research", "active": active},
            "status": {"conditions": list(conditions), "admissionChecks": checks},
        }
        stage.api("POST", f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{stage.cluster.namespace}/workloads", body)

    return then


def unadmitted(message: str, reason: str = "Pending", status: str = "False") -> dict[str, str]:
    """The condition that says whether a Workload has quota."""
    return {"type": "QuotaReserved", "status": status, "reason": reason, "message": message}


def evicted(reason: str, message: str) -> dict[str, str]:
    return {"type": "Evicted", "status": "True", "reason": reason, "message": message}


RESERVED = unadmitted("Quota reserved in ClusterQueue shared", "QuotaReserved", "True")
FLAVORS = "couldn't assign flavors to pod set worker: "
QUEUED = {
    "kueue-deactivated": waits_in_kueue(active=False),
    "kueue-gave-up": waits_in_kueue(
        evicted("DeactivatedDueToRequeuingLimitExceeded", "The workload is deactivated due to exceeding the limit"),
        active=False,
    ),
    "kueue-check-rejected": waits_in_kueue(RESERVED, active=False, check="Rejected"),
    "kueue-check": waits_in_kueue(RESERVED, check="Pending"),
    "kueue-queue-missing": waits_in_kueue(unadmitted("LocalQueue research doesn't exist", "Inadmissible")),
    "kueue-queue-stopped": waits_in_kueue(unadmitted("ClusterQueue shared is inactive", "Inadmissible")),
    "kueue-namespace": waits_in_kueue(unadmitted("Workload namespace doesn't match ClusterQueue selector")),
    "kueue-too-large": waits_in_kueue(
        unadmitted(f"{FLAVORS}insufficient quota for cpu in flavor a, request > maximum capacity (24 > 16)")
    ),
    "kueue-quota": waits_in_kueue(unadmitted(f"{FLAVORS}insufficient unused quota for cpu in flavor a, 3 more needed")),
    "kueue-preempted": waits_in_kueue(
        unadmitted("Preempted to accommodate a workload (UID: 1) due to prioritization in the ClusterQueue"),
        evicted("Preempted", "Preempted to accommodate a workload (UID: 1) due to prioritization in the ClusterQueue"),
    ),
    "kueue-pods-ready-timeout": waits_in_kueue(
        unadmitted("Exceeded the PodsReady timeout"), evicted("PodsReadyTimeout", "Exceeded the PodsReady timeout")
    ),
    "kueue-waits": waits_in_kueue(unadmitted("The workload is backing off")),
}


def test_what_a_job_waits_for_in_kueue_is_on_line_one(
    stage: Stage, control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its Workload is a real object that belongs to the job; the test writes what Kueue would."""
    crd = open_crd("kueue.x-k8s.io", "Workload", "workloads", "v1beta1")
    stage.api("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    try:
        control_plane.wait_for_crd(WORKLOADS)
        label = {"labels": {"kueue.x-k8s.io/queue-name": "research"}}
        with stage.cluster.operator():
            spec = with_policy(one(), suspend=True)
            judge(capsys, stage, [Problem(id_, spec, then, meta=label) for id_, then in QUEUED.items()])
    finally:
        stage.api("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{WORKLOADS}")


# What keeps pods from being created


ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CREATION_OF_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}


def webhook(name: str) -> list[tuple[str, dict[str, Any]]]:
    """A webhook about pods with a label of its name, at an address where nobody listens."""
    hook: dict[str, Any] = {
        "name": "nowhere.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "failurePolicy": "Fail",
    }
    hook |= {"failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 2}
    hook |= {"objectSelector": {"matchLabels": {"webhook": "nowhere"}}, "rules": [CREATION_OF_PODS]}
    return [(f"{ADMISSION}/validatingwebhookconfigurations", {"metadata": {"name": name}, "webhooks": [hook]})]


def policy(name: str) -> list[tuple[str, dict[str, Any]]]:
    """A ValidatingAdmissionPolicy about pods with a label of its name, and its binding."""
    about = {"objectSelector": {"matchLabels": {"webhook": name}}, "resourceRules": [CREATION_OF_PODS]}
    meta = {"name": name}
    rules = [{"expression": "false", "message": "images must have a digest"}]
    spec = {"failurePolicy": "Fail", "matchConstraints": about, "validations": rules}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    return [
        (f"{ADMISSION}/validatingadmissionpolicies", {"metadata": meta, "spec": spec}),
        (f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": meta, "spec": binding}),
    ]


def labelled(label: str) -> dict[str, Any]:
    """A job whose pod the webhook or policy of this name applies to."""
    spec = one()
    spec["tfReplicaSpecs"]["Worker"]["template"]["metadata"]["labels"] = {"webhook": label}
    return spec


def limits(**limit: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "here"}, "spec": {"limits": [{"type": "Container", **limit}]}}


def asking(**resources: dict[str, str]) -> dict[str, Any]:
    return one(containers=[TRAINING | {"resources": resources}])


ENFORCE = "pod-security.kubernetes.io/enforce"
DENIED = [
    Problem("webhook-unreachable", labelled("nowhere")),
    Problem("admission-policy-denied", labelled("digests"), since=30),
    Problem("ended-pod-in-the-way", one()),
    Problem("name-taken", one()),
]
RANGE = limits(max={"memory": "1Gi"}, min={"memory": "64Mi"})
RATIO = limits(maxLimitRequestRatio={"cpu": "2"})
LIMITED = [
    (RANGE, Problem("limit-range-maximum", asking(limits={"memory": "2Gi"}))),
    (RANGE, Problem("limit-range-minimum", asking(requests={"memory": "1Mi"}, limits={"memory": "512Mi"}))),
    (RATIO, Problem("limit-range-ratio", asking(requests={"cpu": "1"}, limits={"cpu": "4"}))),
]
RESTRICTED_PODS = Problem("pod-security", one(), since=25)
UNREQUESTED = Problem("quota-wants-requests", one())
UNCOUNTED = Problem("quota-status-unknown", one())
ONE_BY_ONE = [*(problem for _, problem in LIMITED), RESTRICTED_PODS, UNREQUESTED, UNCOUNTED]
"""Troubles that concern the whole namespace, so they come one by one, after the others."""


def test_what_the_api_server_denies_is_on_line_one(
    control_plane: ControlPlane, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unreachable webhook, a policy, pods that have the name, limits, Pod Security, quotas."""
    made = webhook(f"nowhere-{stage.cluster.namespace}") + (policy("digests") if stage.minor >= 30 else [])
    for job in ("ended-pod-in-the-way", "name-taken"):
        stage.api("POST", "pods", {"metadata": {"name": POD.format(job)}, "spec": {"containers": [TRAINING]}})
    stage.api("PATCH", f"pods/{POD.format('ended-pod-in-the-way')}/status", {"status": {"phase": "Failed"}}, MERGE)
    for path, body in made:
        stage.api("POST", path, body)

    def enforce(level: str | None) -> None:
        body = {"metadata": {"labels": {ENFORCE: level}}}
        stage.api("PATCH", f"/api/v1/namespaces/{stage.cluster.namespace}", body, MERGE)

    def limit(**hard: str) -> None:
        stage.api("POST", "resourcequotas", {"metadata": {"name": "here"}, "spec": {"hard": hard}})

    try:
        with stage.cluster.operator():
            judge(capsys, stage, DENIED)
            for body, problem in LIMITED:
                stage.api("POST", "limitranges", body)
                judge(capsys, stage, [problem])
                stage.api("DELETE", "limitranges/here")
            enforce("restricted")
            judge(capsys, stage, [RESTRICTED_PODS])
            enforce(None)
            limit(**{"requests.cpu": "1"})
            eventually(lambda: stage.api("GET", "resourcequotas/here")["status"].get("used"), "the quota is counted")
            judge(capsys, stage, [UNREQUESTED])
            stage.api("DELETE", "resourcequotas/here")
            eventually(lambda: not stage.refuses_pods(), "the quota is gone")
            with without_controllers(control_plane):
                limit(pods="9")
                stage.api(
                    "PATCH", "resourcequotas/here/status", {"status": {"hard": {"pods": "9"}}}, MERGE
                )  # no `used`
                eventually(stage.refuses_pods, "the quota is in force")
                judge(capsys, stage, [UNCOUNTED])
    finally:
        for path, body in made:
            stage.api("DELETE", f"{path}/{body['metadata']['name']}")


# The list


PAGE = ROOT / "docs" / "design" / "plugin.md"
BY_THEMSELVES = {"operator-missing", "operator-not-acting", "namespace-terminating", "quota-exceeded", "suspended"}
"""Troubles with tests of their own in test_advice.py, or here."""


def test_the_page_lists_the_causes_that_are_not_reproduced() -> None:
    """Each that is in no table of these tests, and no other."""
    text = PAGE.read_text().partition("## Test coverage of the diagnosis")[2].partition("\n## ")[0]
    tables = SPECIFICATIONS, WITHOUT_PODS, GANGS, DENIED, DENIED_BY_WEBHOOK, ONE_BY_ONE, LIVES, UNSCHEDULED, NOT_STARTED
    alone = [NO_GROUPS, NO_GROUP, NODE_LOST, NO_NODES]
    made = {each.id for each in itertools.chain(alone, *tables)} | QUEUED.keys() | BY_THEMSELVES
    made |= OF_ALPHA_JOBS.keys() | set(NOT_SERVED)
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)+|[a-z]+)`", text)) == PROBLEMS.keys() - made
    assert made <= PROBLEMS.keys()
