"""How the programs around TFJobs read a job, over every status that its life has (`fakes.lives`).

Each reader is a transcription of the expression that the program evaluates; its docstring names file, line and tag.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from fakes.jobs import decide, good_spec, job, pod, spec
from fakes.lives import LIVES, Life, Moment
from support.cases import for_each
from tfjob_operator.api.core import TERMINAL
from tfjob_operator.api.v1.constants import LABEL_QUEUE, TFJOBS
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.builder import labels_of, owner_reference

RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
BOTH_QUEUED_AND_NOT = [(life, queued) for life in LIVES.values() for queued in (False, True)]
SUCCESSES = [each for name, each in LIVES.items() if name.startswith("success")]
ENDS_OF_TWO_WORKERS = [
    each for each in SUCCESSES if each.given != spec(Worker=1) and each is not LIVES["success beside pending"]
]


def conditions_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body.get("status", {}).get("conditions", [])
    return found


def has_condition(body: dict[str, Any], kind: str) -> bool:
    return any(each["type"] == kind and each["status"] == "True" for each in conditions_of(body))


def katib(body: dict[str, Any]) -> str:
    """Katib's trial controller: the failure condition first, then the success condition, both with their defaults.

    kubeflow/katib v0.19.0, pkg/controller.v1beta1/trial/util/job_util.go:68 and 91; defaults of Kubeflow's jobs in
    pkg/apis/controller/experiments/v1beta1/constants.go:33 and 36.
    """
    if has_condition(body, FAILED):
        return FAILED
    return SUCCEEDED if has_condition(body, SUCCEEDED) else RUNNING


def pipelines_launcher(body: dict[str, Any]) -> str:
    """The TFJob launcher of Kubeflow Pipelines: only the last condition counts.

    kubeflow/pipelines 2.5.0, components/contrib/kubeflow/launcher/src/launch_tfjob.py:43 and 128. Later tags lack it.
    """
    last = conditions_of(body)[-1:]
    return next(
        (each["type"] for each in last if each["type"] in {SUCCEEDED, FAILED} and each["status"] == "True"), RUNNING
    )


def argo(body: dict[str, Any], success: str, failure: str = "") -> str:
    """Argo's resource template: one failure requirement that matches fails the step, and all success requirements end it.

    argoproj/argo-workflows v4.1.2, workflow/executor/resource.go:279-304. A requirement is that of a label selector, and its
    key a path in the JSON (:188-197).
    """
    if any(_matches(body, each) for each in failure.split(",") if each):
        return FAILED
    return SUCCEEDED if all(_matches(body, each) for each in success.split(",")) else RUNNING


def _matches(body: dict[str, Any], requirement: str) -> bool:
    key, *condition = requirement.split()
    value: Any = body
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or not condition:
        return value is not None
    operator, operand = condition
    return int(value) > int(operand) if operator == ">" else str(value) == operand


ARGO_EXAMPLE = "status.replicaStatuses.Worker.succeeded = 2", "status.replicaStatuses.Worker.failed > 0"
"""argoproj/argo-workflows v4.1.2, examples/k8s-resource-log-selector.yaml:20-21, a TFJob of two workers."""
ARGO_TIME = "status.completionTime"
"""As workflows of kubebench wait for any job of Kubeflow."""


def kueue_finished(body: dict[str, Any]) -> str:
    """Kueue's `Finished`: the first True condition of the two.

    kubernetes-sigs/kueue v0.19.2, pkg/controller/jobs/kubeflow/kubeflowjob/kubeflowjob_controller.go:98-110.
    """
    ends = [
        each["type"] for each in conditions_of(body) if each["type"] in {SUCCEEDED, FAILED} and each["status"] == "True"
    ]
    return ends[0] if ends else RUNNING


def kueue_is_active(body: dict[str, Any]) -> bool:
    """Kueue's `IsActive` (same file, :134-141): the counters alone."""
    return any(each.get("active", 0) for each in body.get("status", {}).get("replicaStatuses", {}).values())


def kueue_is_suspended(body: dict[str, Any]) -> bool:
    """Kueue's `IsSuspended` (same file, :50-52)."""
    return body["spec"].get("runPolicy", {}).get("suspend") is True


def kueue_pods_ready(body: dict[str, Any]) -> bool:
    """Kueue's `PodsReady` (same file, :143-150)."""
    return has_condition(body, RUNNING)


def kueue_frees_quota(body: dict[str, Any]) -> bool:
    """Kueue's reconciler: it finishes the Workload of a finished job, before it looks at an eviction.

    It clears the admission of an evicted job, or makes a new Workload, once the job is suspended and not active.
    kubernetes-sigs/kueue v0.19.2, pkg/controller/jobframework/reconciler.go:484-505, 581-615 and 1809-1819.
    """
    return kueue_finished(body) != RUNNING or (kueue_is_suspended(body) and not kueue_is_active(body))


def multikueue_copy(body: dict[str, Any]) -> dict[str, Any]:
    """The job on the manager cluster: its own metadata and spec, managed by MultiKueue, with the status of the remote job.

    The status passes through the Go type, which has five fields. kubernetes-sigs/kueue v0.19.2,
    pkg/controller/jobs/kubeflow/jobs/tfjob/tfjob_multikueue_adapter.go:30-32 and kubeflowjob_multikueue_adapter.go:109-114.
    """
    known = {"conditions", "replicaStatuses", "startTime", "completionTime", "lastReconcileTime"}
    policy = body["spec"].get("runPolicy", {}) | {"managedBy": "kueue.x-k8s.io/multikueue"}
    status = {name: value for name, value in body.get("status", {}).items() if name in known}
    return body | {"spec": body["spec"] | {"runPolicy": policy}, "status": status}


ARGO_CD_CHECKS = {
    "",
    "apiregistration.k8s.io",
    "apps",
    "argoproj.io",
    "autoscaling",
    "batch",
    "extensions",
    "networking.k8s.io",
}
"""The API groups for which Argo CD has a health check. `resource_customizations` of the same tag has none for kubeflow.org."""


def argo_cd_health(body: dict[str, Any]) -> str:
    """Argo CD's health of an object; "" if it does not count for its application, which controller/health.go:64 skips.

    argoproj/argo-cd v3.5.1, gitops-engine/pkg/health/health.go:70-152.
    """
    if "deletionTimestamp" in body["metadata"]:
        return "Progressing"
    assert TFJOBS.group not in ARGO_CD_CHECKS
    return ""


def is_ending(body: dict[str, Any]) -> bool:
    """Return True if the end is decided but not written."""
    decided = (body.get("status", {}).get("begun") or {}).get("ending") is not None
    return decided and kueue_finished(body) == RUNNING


def readings(moments: Iterable[Moment], *how: Any) -> list[str]:
    """Return what Argo reads, without repetitions."""
    found = [argo(each.body, *how) for each in moments]
    return [each for each, before in zip(found, ["", *found], strict=False) if each != before]


@for_each("case", BOTH_QUEUED_AND_NOT)
def test_all_readers_see_the_same_end_in_the_same_version_and_it_stays(case: Any) -> None:
    """Katib, the launcher of Kubeflow Pipelines, Kueue, and workflows that wait for the completion time."""
    live, queued = case
    moments = live(queued).moments
    seen = []
    for each in moments:
        end = katib(each.body)
        assert pipelines_launcher(each.body) == kueue_finished(each.body) == end
        assert (argo(each.body, ARGO_TIME) == SUCCEEDED) == (end != RUNNING)
        seen.append(end)
    expected = SUCCEEDED if live in SUCCESSES else FAILED
    assert seen == [RUNNING] * seen.count(RUNNING) + [expected] * seen.count(expected)
    assert {RUNNING, expected} == {*seen}


@for_each("live", LIVES.values())
def test_katib_and_argo_see_the_end_of_a_job_without_a_queue_when_it_is_decided(live: Any) -> None:
    """Katib waits for the metrics of a trial after the end, and a proxy never ends: the end must not wait for either."""
    assert not any(is_ending(each.body) for each in live(False).moments)


@for_each("live", ENDS_OF_TWO_WORKERS)
@pytest.mark.parametrize("queued", [False, True])
def test_a_workflow_that_waits_for_two_workers_ends_when_the_job_has_succeeded(live: Any, queued: bool) -> None:
    """Argo's own example waited forever if worker 1 was still active when worker 0 ended the job.

    After the end, pods that clean-up or a node takes, or that fail, do not fail the workflow.
    """
    finished = [each for each in live(queued).moments if kueue_finished(each.body) != RUNNING]
    assert readings(finished, *ARGO_EXAMPLE) == [SUCCEEDED]


def test_a_worker_that_never_started_keeps_such_a_workflow_waiting() -> None:
    """As with training-operator 1.9.4, which counts no Pending pod either."""
    assert readings(LIVES["success beside pending"](False).moments, *ARGO_EXAMPLE) == [RUNNING]


@pytest.mark.parametrize("queued", [False, True])
def test_a_workflow_that_waits_for_two_workers_fails_when_a_worker_has_failed(queued: bool) -> None:
    """Also if a failure of the whole job is final by a rule; a deadline fails no replica, as with training-operator 1.9.4."""
    for live in (
        LIVES["failure beside active"],
        LIVES["failure with a collector"],
        LIVES["failure beyond max restarts"],
    ):
        assert readings(live(queued).moments, *ARGO_EXAMPLE) == [RUNNING, FAILED], live.steps
    assert readings(LIVES["failure by a deadline"](queued).moments, *ARGO_EXAMPLE) == [RUNNING]


@for_each("live", [each for each in LIVES.values() if each is not LIVES["success that leaves pods running"]])
def test_kueue_gives_no_quota_away_while_a_pod_of_the_job_holds_it(live: Any) -> None:
    """It admitted the next job beside pods that clean-up deleted: the condition was written while they ran."""
    for each in live(True).moments:
        if kueue_frees_quota(each.body):
            assert [found.metadata.name for found in each.pods if found.status.phase not in TERMINAL] == []


@for_each("live", LIVES.values())
def test_a_job_that_is_ending_stays_active_and_as_ready_as_it_was_for_kueue(live: Any) -> None:
    """A job that is not ready is evicted after a time-out, and one that is not active loses its admission."""
    before, ends_at_once = None, {LIVES["success that leaves pods running"], LIVES["failure of an invalid job"]}
    moments = live(True).moments
    assert any(is_ending(each.body) for each in moments) != (live in ends_at_once)
    for each in moments:
        if is_ending(each.body):
            assert before is not None
            assert kueue_is_active(each.body)
            assert kueue_pods_ready(each.body) == kueue_pods_ready(before)
        before = each.body


def test_katib_finds_the_pod_with_its_metrics_and_kueue_the_pods_of_a_job() -> None:
    """By labels and owner.

    kubeflow/katib v0.19.0: pkg/apis/controller/experiments/v1beta1/constants.go:47, and getKatibJob in
    pkg/webhook/v1beta1/pod/inject_webhook.go:255-307. kubernetes-sigs/kueue v0.19.2:
    pkg/controller/jobs/kubeflow/jobs/tfjob/tfjob_controller.go:100-102.
    """
    given = job(spec("Never", PS=1, Worker=2))
    keys = [ReplicaKey.of("mnist", *key) for key in (("PS", 0), ("Worker", 0), ("Worker", 1))]
    found = [labels_of(given.metadata, good_spec(given), key) for key in keys]
    primary = [each.get("training.kubeflow.org/job-role") == "master" for each in found]
    assert primary == [False, True, False]
    selector = {"training.kubeflow.org/job-name": "mnist", "training.kubeflow.org/operator-name": "tfjob-controller"}
    assert all(selector.items() <= each.items() for each in found)
    owner = owner_reference(given.metadata)
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("kubeflow.org/v1", "TFJob", "mnist")


@for_each("case", BOTH_QUEUED_AND_NOT)
def test_the_copy_of_multikueue_reads_the_same_and_our_operator_leaves_it_alone(case: Any) -> None:
    """On the manager cluster; the copy lacks our own fields, so nothing there may depend on them."""
    live, queued = case
    for each in live(queued).moments:
        copy = multikueue_copy(each.body)
        assert kueue_finished(copy) == kueue_finished(each.body) == katib(copy)
        assert (kueue_is_active(copy), kueue_pods_ready(copy)) == (
            kueue_is_active(each.body),
            kueue_pods_ready(each.body),
        )
        planned = decide(msgspec.json.decode(msgspec.json.encode(copy), type=TFJob), pod("Worker", 0))
        assert planned == type(planned)()


def test_the_remote_job_of_multikueue_is_queued_like_the_local_one() -> None:
    """So its end waits for its pods: MultiKueue deletes it with its pods as soon as the Workload is finished.

    kubernetes-sigs/kueue v0.19.2: labels are copied (pkg/util/api, `CloneObjectMetaForCreation`), `managedBy` is not.
    """
    moments = LIVES["success with a collector"](True).moments
    assert {each.body["metadata"]["labels"][LABEL_QUEUE] for each in moments} == {"team"}
    finished = next(each for each in moments if kueue_finished(each.body) != RUNNING)
    assert finished.at_s >= 5, "the collector had 5 s"


@for_each("case", BOTH_QUEUED_AND_NOT)
def test_a_job_never_changes_the_health_of_its_argo_cd_application_unless_it_is_being_deleted(case: Any) -> None:
    """So no sync wave waits for a job, also not for one that is Ending or on hold."""
    live, queued = case
    for each in live(queued).moments:
        assert argo_cd_health(each.body) == ""
        assert argo_cd_health(each.body | {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}) == "Progressing"


def trial(collector_s: int, *, queued: bool = False, fails: bool = False, **policy: Any) -> str:
    """Katib's trial of one worker and its pull collector, a container that Katib's webhook adds to the worker's pod.

    It waits for the main process of the training, then reports, which takes `collector_s` here (kubeflow/katib v0.19.0,
    cmd/metricscollector/v1beta1/file-metricscollector/main.go:424-431), or `fails`. With an early-stopping rule it ends the
    training itself (:293), whose wrapped command then exits with 0 (pkg/webhook/v1beta1/pod/utils.go:213). The end of the pod
    kills it. If the job has succeeded and nothing was reported, the trial looks again each second, forever
    (pkg/controller.v1beta1/trial/trial_controller.go:261-265).
    """
    life = Life(spec(Worker=1, runPolicy=policy), queued=queued)
    life.run()
    life.turn("Worker", 0, "Running", 0, beside="ordinary")
    for _ in range(collector_s):
        life.pass_s(1)
    reported = not fails and life.pods["mnist-worker-0"].metadata.deletion_timestamp is None
    life.turn("Worker", 0, "Succeeded" if reported else "Failed", 0)
    life.pass_s(150)
    life.stop()
    end = katib(life.moments[-1].body)
    return "waits" if end == SUCCEEDED and not reported else end


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize(
    ("collector_s", "policy", "expected"),
    [
        (0, {}, SUCCEEDED),
        (5, {}, SUCCEEDED),
        (29, {}, SUCCEEDED),
        (31, {}, "waits"),
        (31, {"completionGracePeriodSeconds": 120}, SUCCEEDED),
        (121, {"completionGracePeriodSeconds": 120}, "waits"),
        (5, {"completionGracePeriodSeconds": 0}, "waits"),
        (5, {"cleanPodPolicy": "All"}, SUCCEEDED),
        (31, {"cleanPodPolicy": "None"}, SUCCEEDED),
        (5, {"ttlSecondsAfterFinished": 0}, SUCCEEDED),
    ],
)
def test_a_trial_of_katib_ends_if_its_collector_needs_no_longer_than_the_grace_period(
    collector_s: int, policy: dict[str, Any], expected: str, queued: bool
) -> None:
    """Its pod was deleted 0.5 s after the training, so trials lost their metrics (katib#1655, #2616)."""
    assert trial(collector_s, queued=queued, **policy) == expected


def test_a_trial_whose_collector_fails_waits() -> None:
    """training-operator fails such a job, and Katib then the trial: there, any failed container fails the replica."""
    assert trial(5, fails=True) == "waits"
