"""The plan for a job, and what it says of pods that cannot start or have failed, by tables. See test_plan_properties.py too."""

from functools import partial
from typing import Any

import msgspec
import pytest

from fakes.jobs import (
    at,
    decide,
    job,
    names,
    observed,
    planned,
    pod,
    replica,
    service,
    spec,
    synced,
    template,
    true_of,
    with_condition,
    with_containers,
    with_sidecar,
)
from fakes.objects import after, changed
from fakes.recorder import FakeRecorder, job_events
from support.cases import for_each
from tfjob_operator.api import core
from tfjob_operator.api.meta import Meta
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import RestartPolicy
from tfjob_operator.api.v1.types import EndRecord, IndexRestarts, InvalidSpec, JobStatus, Mistake, ReplicaStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.writes import MAX_PER_REASON
from tfjob_operator.controller.tfjob.plan.actions import NOTHING
from tfjob_operator.controller.tfjob.plan.replicas import problems_of
from tfjob_operator.controller.tfjob.plan.types import Defaults

LATER = at(60)
DONE = pod("Worker", 0, "Succeeded", 0)
LED = spec(Chief=1, Worker=1)
WITH_PS = spec(PS=1, Worker=1)
ALL_WORKERS = spec(Worker=2, successPolicy="AllWorkers")


def begun(given: dict[str, Any] | None = None, *pods: Pod) -> TFJob:
    """A job that has its Created condition, and whatever these pods add to it."""
    return synced(job(given), *pods)


def ended(given: dict[str, Any], *pods: Pod) -> TFJob:
    finished = begun(given, *pods)
    assert conditions.is_finished(finished.status)
    return finished


def test_a_new_job_gets_a_pod_and_a_service_for_each_replica() -> None:
    """Names are deterministic: job, type, index."""
    expected = ["mnist-ps-0", "mnist-worker-0", "mnist-worker-1"]
    decided = decide(job(spec(PS=1, Worker=2)))
    assert names(decided) == {"create pods": expected, "create services": expected}


def test_a_new_job_is_created_and_has_started_at_its_first_sync() -> None:
    """B30, B34: Created and startTime do not wait for pods."""
    status = begun().status
    assert true_of(begun()) == ["Created"]
    assert status.conditions[0].message == "TFJob mnist is created."
    assert (status.start_time, status.observed_generation) == (LATER, 1)
    assert status.replica_statuses == {"Worker": ReplicaStatus()}


def test_what_exists_is_not_created_again() -> None:
    """Pods and services are looked at separately: one may exist without the other."""
    decided = decide(job(), pod("Worker", 0, "Pending"), services=[service("Worker", 1)])
    assert names(decided) == {"create pods": ["mnist-worker-1"], "create services": ["mnist-worker-0"]}


@pytest.mark.parametrize(
    ("given", "pods", "made"),
    [
        pytest.param(
            spec(Worker=2), [pod("Worker", 0, terminating=True), pod("Worker", 1)], [], id="not before it is gone"
        ),
        pytest.param(spec(Worker=2), [pod("Worker", 1)], ["mnist-worker-0"], id="when it was deleted"),
        pytest.param(spec(PS=0, Worker=1), [], ["mnist-worker-0"], id="not for a type of no replicas"),
    ],
)
def test_an_index_without_a_pod_gets_one(given: dict[str, Any], pods: list[Pod], made: list[str]) -> None:
    """Two pods of one index never exist at once. B51: earlier operators made index 0 of no replicas all the same."""
    assert names(decide(begun(given), *pods))["create pods"] == made


@pytest.mark.parametrize(
    ("given", "pods", "running"),
    [
        pytest.param(LED, [pod("Chief", 0), pod("Worker", 0, "Pending")], True, id="chief runs"),
        pytest.param(LED, [pod("Chief", 0, "Pending"), pod("Worker", 0)], False, id="chief waits"),
        pytest.param(WITH_PS, [pod("PS", 0)], False, id="only the ps runs"),
        pytest.param(WITH_PS, [pod("Worker", 0)], True, id="a worker runs"),
        pytest.param(spec(PS=1), [pod("PS", 0)], True, id="a job of ps alone"),
    ],
)
def test_a_job_runs_when_the_replica_that_decides_runs(given: dict[str, Any], pods: list[Pod], running: bool) -> None:
    """Chief or master when there is one, else the workers, else any replica (B04: no worker entry is no crash)."""
    assert ("Running" in true_of(begun(given, *pods))) is running


@pytest.mark.parametrize(
    ("given", "pods", "succeeded"),
    [
        pytest.param(LED, [pod("Chief", 0, "Succeeded", 0), pod("Worker", 0)], True, id="chief done"),
        pytest.param(LED, [pod("Chief", 0, "Succeeded", 0), pod("Worker", 0, "Failed", 1)], True, id="not both"),
        pytest.param(LED, [pod("Chief", 0), DONE], False, id="chief goes on"),
        pytest.param(spec(Master=None, PS=None), [pod("Master", 0, "Succeeded", 0)], True, id="master"),
        pytest.param(None, [DONE, pod("Worker", 1)], True, id="worker 0 done"),
        pytest.param(None, [pod("Worker", 0), pod("Worker", 1, "Succeeded", 0)], False, id="worker 1 done"),
        pytest.param(ALL_WORKERS, [DONE, pod("Worker", 1)], False, id="AllWorkers, one done"),
        pytest.param(ALL_WORKERS, [DONE, pod("Worker", 1, "Succeeded", 0)], True, id="AllWorkers, all done"),
        pytest.param(spec(PS=2), [pod("PS", n, "Succeeded", 0) for n in (0, 1)], True, id="PS alone, all done"),
        pytest.param(spec(Evaluator=2), [pod("Evaluator", 0, "Succeeded", 0)], False, id="one evaluator"),
    ],
)
def test_the_deciding_replicas_end_ends_the_job(given: dict[str, Any] | None, pods: list[Pod], succeeded: bool) -> None:
    """B29: chief or master, else worker 0 or all workers; a job of PS or evaluators alone when all of them have.

    A job that succeeds while a replica fails has succeeded; an earlier operator set both conditions.
    """
    decided = decide(begun(given), *pods)
    status = after(begun(given), decided).status
    assert any(each.type == "Succeeded" for each in status.conditions) is succeeded
    if succeeded:
        message = "TFJob ns/mnist successfully completed."
        assert (status.completion_time, status.conditions[-1].message) == (LATER, message)
        assert JobEvent("Normal", "TFJobSucceeded", message) in decided.events


def test_a_failed_replica_that_may_not_restart_fails_the_job() -> None:
    """B28, B41: also when it is a PS and the chief goes on; the message says which kind failed. No pod is made for it."""
    tfjob = begun(spec(Chief=1, PS=replica(1, "Never")))
    decided = decide(tfjob, pod("Chief", 0), pod("PS", 0, "Failed", 1))
    failed = after(tfjob, decided)
    assert true_of(failed) == ["Created", "Failed"]
    assert not {key.type for key in decided.create_pods}
    detail = "1 PS replica(s) failed. Pod mnist-ps-0: container tensorflow exited with code 1"
    message = f"TFJob ns/mnist has failed because {detail}"
    assert failed.status.conditions[-1].message == message
    assert JobEvent("Normal", "TFJobFailed", message) in decided.events
    assert decide(failed).status is None  # it stays counted when its pod is gone


def test_the_end_is_written_before_anything_is_cleaned_up() -> None:
    """A pod that proves the end must not go before the end is in the status."""
    before, pods = begun(WITH_PS), (pod("PS", 0), DONE)
    decided = decide(before, *pods)
    assert names(decided)["delete pods"] == []
    assert names(decide(after(before, decided), *pods))["delete pods"] == ["mnist-ps-0"]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [
        ("None", []),
        ("Running", ["mnist-worker-1", "mnist-worker-2"]),
        ("All", ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2", "mnist-ps-0"]),
    ],
)
def test_clean_up_takes_the_pods_of_its_policy_and_their_services(policy: str, gone: list[str]) -> None:
    """B54: Running takes Pending pods too, All takes all; a service goes with its pod."""
    pods = DONE, pod("Worker", 1), pod("Worker", 2, "Pending"), pod("PS", 0, "Failed", 137)
    services = [*(service("Worker", index) for index in range(3)), service("PS", 0)]
    given = spec(PS=replica(1, "ExitCode"), Worker=3, runPolicy={"cleanPodPolicy": policy})
    decided = names(decide(ended(given, *pods), *pods, services=services, at_s=91))
    assert (decided["delete pods"], sorted(decided["delete services"])) == (gone, sorted(gone))
    assert decided["create pods"] == []


def test_workers_that_still_run_when_the_job_has_succeeded_get_half_a_minute() -> None:
    """R3: nothing of what they write at their end is lost. Parameter servers, and what does not run, go at once."""
    pods = DONE, pod("Worker", 1), pod("Worker", 2, "Pending"), pod("PS", 0)
    finished = ended(spec(PS=1, Worker=3), *pods)
    early = decide(finished, *pods)
    assert names(early)["delete pods"] == ["mnist-worker-2", "mnist-ps-0"]
    assert (early.status, early.requeue_after_s) == (None, 31)
    assert names(decide(finished, *pods, at_s=91))["delete pods"] == ["mnist-worker-1", "mnist-worker-2", "mnist-ps-0"]
    at_once = decide(finished, *pods, defaults=Defaults(completion_grace_s=0))
    assert "mnist-worker-1" in names(at_once)["delete pods"]
    failed = ended(spec(Worker=2), pod("Worker", 0, "Failed", 1), pod("Worker", 1))
    assert names(decide(failed, pod("Worker", 1)))["delete pods"] == ["mnist-worker-1"]


def test_a_success_waits_for_workers_as_long_as_the_job_says_and_is_never_taken_back() -> None:
    given = spec(PS=1, Worker=2, runPolicy={"completionGracePeriodSeconds": 100})
    chosen = pod("Worker", 0, "Succeeded", 0, ended_s=60)
    found, waits = job(given), decide(job(given), chosen, pod("Worker", 1), pod("PS", 0), at_s=61)
    assert (names(waits), waits.requeue_after_s) == ({}, 100)
    found = after(found, waits)
    assert true_of(found) == ["Created"]
    for other, at_s in (
        (pod("Worker", 1), 161),
        (pod("Worker", 1, terminating=True), 70),
        (pod("Worker", 1, "Failed", 1), 70),
        (pod("Worker", 1, "Succeeded", 0), 70),
    ):
        assert true_of(synced(found, chosen, other, pod("PS", 0), at_s=at_s))[-1] == "Succeeded"


@pytest.mark.parametrize("policy", ["All", "Running", "None"])
def test_at_a_success_active_replicas_count_as_succeeded_for_good(policy: str) -> None:
    """As in training-operator 1.9 (common/job.go, `CleanupJob`): workflows wait until all workers count as succeeded.

    The counters are final: no later end of a pod costs a write, even if a restarted kubelet fails it (kubernetes#126341).
    """
    pods = DONE, pod("Worker", 1), pod("Worker", 2, "Pending"), pod("PS", 0)
    finished = ended(spec(PS=1, Worker=3, runPolicy={"cleanPodPolicy": policy}), *pods)
    final = {"PS": ReplicaStatus(succeeded=1), "Worker": ReplicaStatus(succeeded=2)}
    assert finished.status.replica_statuses == final
    failed = pod("Worker", 0, "Failed", 0), pod("PS", 0, "Failed", 143)
    assert decide(finished, *pods).status is decide(finished).status is decide(finished, *failed).status is None


def test_at_a_failure_pods_that_clean_up_leaves_running_stay_active_until_they_end() -> None:
    """What clean-up takes is not active; what has ended stays counted when its pod is gone (B22)."""
    failed = pod("Worker", 0, "Failed", 1)
    for policy, active in (("Running", 0), ("All", 0), ("None", 1)):
        finished = ended(spec(Worker=2, runPolicy={"cleanPodPolicy": policy}), failed, pod("Worker", 1))
        assert finished.status.replica_statuses == {"Worker": ReplicaStatus(active=active, failed=1)}, policy
    later = synced(finished, failed, pod("Worker", 1, "Succeeded", 0))
    assert later.status.replica_statuses == {"Worker": ReplicaStatus(failed=1, succeeded=1)}
    assert decide(later).status is None


def test_a_replica_that_succeeded_counts_once_even_if_its_pod_turns_failed() -> None:
    """kubernetes#126341: a restarted kubelet sets Failed on a pod that it had reported as Succeeded."""
    before = begun(spec("ExitCode", Chief=1, Worker=2), pod("Chief", 0), DONE, pod("Worker", 1))
    turned = synced(before, pod("Chief", 0), pod("Worker", 0, "Failed", 0), pod("Worker", 1))
    assert turned.status.replica_statuses["Worker"] == ReplicaStatus(active=1, succeeded=1)


def test_a_finished_job_with_nothing_left_to_do_costs_nothing() -> None:
    """B33, B55, WR-02: no write, no event, no delete, however often it is looked at; no pod for one that vanished."""
    finished = ended(spec(Worker=1), DONE)
    assert decide(finished, DONE, services=[service("Worker", 0)]) == decide(finished) == NOTHING


@for_each("code", range(1, 256))
def test_exit_codes_are_retried_or_final_by_the_table(code: int) -> None:
    """B40: 130, 134, 137, 138 and 143 restart the replica; 128 and 139 and every other code fail the job.

    The administrator may choose another table, such as that of training-operator 1.9.
    """
    tfjob = begun(spec("ExitCode", Worker=2))
    for defaults, table in (
        (Defaults(), {130, 134, 137, 138, 143}),
        (Defaults(retryable=frozenset(range(128, 256))), set(range(128, 256))),
    ):
        decided = decide(tfjob, pod("Worker", 0), pod("Worker", 1, "Failed", code), defaults=defaults)
        gone, state = (["mnist-worker-1"], "Restarting") if code in table else ([], "Failed")
        assert names(decided)["delete pods"] == gone
        assert true_of(after(tfjob, decided)) == ["Created", state]


def test_a_restart_tells_how_the_container_ended_before_its_pod_goes() -> None:
    """B57, B56: the exit code is recorded with the deletion, once; the warning with the condition."""
    decided = decide(begun(spec("ExitCode", Worker=1)), pod("Worker", 0, "Failed", 137))
    exited = JobEvent("Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 137")
    assert decided.delete_pods[0].event == exited
    evicted = changed(pod("Worker", 0, "Failed", 143), status__reason="Evicted", status__message="low on memory. ")
    (deletion,) = decide(begun(spec("ExitCode", Worker=1)), evicted).delete_pods
    assert deletion.event is not None
    assert deletion.event.message == "Pod: ns.mnist-worker-0 exited with code 143: Evicted: low on memory."
    message = "TFJob mnist is restarting because Worker replica(s) failed."
    assert decided.events == (JobEvent("Warning", "TFJobRestarting", message),)


def test_a_restarting_job_runs_again_when_every_replica_has_its_pod_back() -> None:
    """B23: no flipping between Running and Restarting while others run on."""
    restarting = begun(spec("ExitCode", Worker=2), pod("Worker", 0), pod("Worker", 1, "Failed", 137))
    going = pod("Worker", 1, "Failed", 137, terminating=True)
    for pods, state in (([going], "Restarting"), ([], "Restarting"), ([pod("Worker", 1)], "Running")):
        assert true_of(synced(restarting, pod("Worker", 0), *pods)) == ["Created", state]
    assert names(decide(restarting, pod("Worker", 0)))["create pods"] == ["mnist-worker-1"]


@pytest.mark.parametrize("code", [1, 137])
def test_a_replica_that_is_done_stays_so_whatever_becomes_of_its_pod(code: int) -> None:
    """Its sidecar may have kept it until the node was drained; nor does a job that restarts wait for such a pod."""
    given, other = spec("ExitCode", Worker=3, successPolicy="AllWorkers"), pod("Worker", 2)
    tfjob = begun(given, pod("Worker", 0), pod("Worker", 1, "Succeeded", 0), other)
    drained = pod("Worker", 1, "Failed", code)
    decided = decide(tfjob, pod("Worker", 0), drained, other)
    assert (decided.delete_pods, decided.create_pods) == ((), ())
    assert true_of(after(tfjob, decided)) == ["Created", "Running"]
    restarting = synced(tfjob, pod("Worker", 0), drained, pod("Worker", 2, "Failed", 137))
    leaving = pod("Worker", 1, "Failed", code, terminating=True)
    assert true_of(restarting) == ["Created", "Restarting"]
    assert true_of(synced(restarting, pod("Worker", 0), leaving, other)) == ["Created", "Running"]


@pytest.mark.parametrize(
    ("policy", "found", "states"),
    [
        pytest.param("Never", pod("Worker", 0, "Failed", reason="Evicted"), ["Failed"], id="Never means never"),
        pytest.param(
            "ExitCode", pod("Worker", 0, "Failed", 137, reason="DeadlineExceeded"), ["Failed"], id="its own deadline"
        ),
        pytest.param(None, pod("Worker", 0, "Failed", 143, terminating=True), [], id="a drain is not a failure (B43)"),
        pytest.param("ExitCode", pod("Worker", 0, "Failed", 143, terminating=True), [], id="nor a retryable one"),
        pytest.param(
            "OnFailure", pod("Worker", 0, "Running", 1, policy="OnFailure"), ["Running"], id="a restart in place"
        ),
    ],
)
def test_a_job_fails_only_when_its_pod_is_at_its_end(policy: str | None, found: Pod, states: list[str]) -> None:
    """B43: a pod that is drained is made again when it is gone; a container that its kubelet will restart has not ended."""
    assert true_of(begun(spec(policy, Worker=1), found)) == ["Created", *states]


def test_a_sidecar_that_goes_on_does_not_keep_a_finished_replica_alive() -> None:
    """B73: the container tensorflow decides; the pod itself is still cleaned up as running, after a grace period."""
    found = with_sidecar(pod("Worker", 0, "Running", 0, policy="OnFailure"))
    finished = ended(spec("OnFailure", Worker=1), found)
    assert true_of(finished) == ["Created", "Succeeded"]
    assert decide(finished, found).requeue_after_s == 31
    assert names(decide(finished, found, at_s=91))["delete pods"] == ["mnist-worker-0"]


def test_a_replica_that_is_done_is_active_in_a_suspended_job_while_its_sidecar_runs() -> None:
    """Kueue gives its quota away when no pod is active, and this one still takes place on its node."""
    found = with_sidecar(pod("Worker", 1, "Running", 0, policy="OnFailure"))
    tfjob = begun(spec("OnFailure", Worker=2, runPolicy={"suspend": True}), found)
    assert tfjob.status.replica_statuses == {"Worker": ReplicaStatus(active=1, succeeded=1)}


def test_scaling_down_takes_the_highest_indices_with_their_services() -> None:
    """B53: what is out of range is neither counted nor left behind."""
    pods, services = [pod("Worker", index) for index in range(4)], [service("Worker", index) for index in range(4)]
    decided = decide(begun(), *pods, services=services)
    beyond = ["mnist-worker-2", "mnist-worker-3"]
    assert names(decided) == {"delete pods": beyond, "delete services": beyond}
    assert after(begun(), decided).status.replica_statuses == {"Worker": ReplicaStatus(active=2)}


def test_an_invalid_job_is_removed_by_its_ttl_as_far_as_that_can_be_read() -> None:
    """B44: a job that fails as invalid has ended like any other."""
    failed = begun(spec(runPolicy={"ttlSecondsAfterFinished": 60}))
    assert decide(failed).requeue_after_s == 61
    assert decide(failed, at_s=121).delete_job


@pytest.mark.parametrize("given", [spec(Worker=1), spec()], ids=["valid", "invalid"])
def test_a_job_that_is_deleted_or_managed_by_another_controller_is_left_alone(given: dict[str, Any]) -> None:
    """B14: the garbage collector has it. B75: not a single write. The simulation found one of an invalid job (seed 82)."""
    managed = job(given | {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})
    for tfjob in (managed, job(given, deletion_timestamp=at(0))):
        assert decide(tfjob, pod("Worker", 0)) == NOTHING


def test_an_invalid_job_fails_with_one_warning_and_no_children() -> None:
    """B02, B03: the condition and the event say the same; the second plan finds nothing to do."""
    wrong = InvalidSpec((Mistake("spec.x", "is wrong"),))
    decided = planned(job({"foo": 1}), wrong, [], [], LATER)
    failed = after(job({"foo": 1}), decided)
    text = "TFJob has failed because the spec is invalid: spec.x: is wrong"
    assert true_of(failed) == ["Failed"]
    assert decided.events == (JobEvent("Warning", "InvalidTFJobSpec", text),)
    assert (failed.status.conditions[-1].reason, failed.status.conditions[-1].message) == ("InvalidTFJobSpec", text)
    assert failed.status.completion_time == LATER
    assert planned(failed, wrong, [], [], LATER) == NOTHING


def test_a_lost_restart_policy_is_warned_of_once() -> None:
    """B56: with the Created condition, which is set once."""
    given = spec(Worker=replica(1, "OnFailure", template=template(restartPolicy="Always")))
    text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
    assert decide(job(given)).events == (JobEvent("Warning", "SettedPodTemplateRestartPolicy", text),)
    assert decide(begun(given)).events == ()


def test_a_finished_job_of_an_older_operator_is_cleaned_up_by_the_default_policy() -> None:
    """B20: nothing is remembered of it and its specification names no policy; Running pods go, the others stay."""
    finished = ended(spec(Worker=None, PS=None), DONE, pod("PS", 0))
    bare = changed(finished, status__finished_indices={}, status__worker_selector="", status__observed_generation=0)
    assert names(decide(bare, DONE, pod("PS", 0)))["delete pods"] == ["mnist-ps-0"]


OF_JOB = Meta(name="mnist", namespace="ns", uid="uid")
NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."


def unschedulable(index: int = 0, **fields: Any) -> Pod:
    return with_condition(pod("Worker", index, "Pending", **fields), "PodScheduled", "False", "Unschedulable", NO_ROOM)


def waiting(reason: str, *, init: bool = False, kind: str = "Worker") -> Pod:
    statuses = (
        core.ContainerStatus(
            "tensorflow", state=core.ContainerState(waiting=core.ContainerStateWaiting(reason, "why"))
        ),
    )
    field = "status__init_container_statuses" if init else "status__container_statuses"
    return changed(pod(kind, 0, "Pending"), **{field: statuses})


def events(*pods: Pod) -> list[tuple[str, str, str]]:
    """The events about these pods, if nothing was reported before."""
    recorder = FakeRecorder()
    job_events(recorder).report(OF_JOB, problems_of(observed(pods)))
    return recorder.events


WHY = "Error pod mnist-worker-0 container tensorflow waiting message: why"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (unschedulable(), [("Unschedulable", f"Error pod mnist-worker-0 condition message: {NO_ROOM}")]),
        (waiting("ImagePullBackOff"), [("ImagePullBackOff", WHY)]),
        (waiting("ImagePullBackOff", init=True), [("ImagePullBackOff", WHY)]),
        (waiting("SignatureValidationFailed"), [("SignatureValidationFailed", WHY)]),  # kubelets since 1.28
        (waiting("ImageVolumeMountFailed"), [("ImageVolumeMountFailed", WHY)]),  # and since 1.33
        *((waiting(reason), []) for reason in ("ContainerCreating", "PodInitializing", "CrashLoopBackOff", "")),
        (unschedulable(terminating=True), []),
        (pod("Worker", 1), []),
    ],
)
def test_a_pod_that_can_not_start_is_told_of(found: Pod, told: list[tuple[str, str]]) -> None:
    """B34, M4: the reason is the scheduler's or the kubelet's, the text that of the Go operators.

    What passes by itself is not told of: every pod waits for its container to be created. A pod on its way out has no troubles.
    """
    assert events(found) == [("Warning", *each) for each in told]


def test_a_running_job_says_that_a_replica_cannot_start() -> None:
    """Its condition is Running all the same, as one worker decides; with all replicas back its message is the usual one."""
    tfjob, usual = job(spec(PS=1, Worker=1)), "TFJob mnist is running."
    stuck = "TFJob mnist is running, but not all of its replicas can start."
    steps = (pod("PS", 0, "Pending"), usual), (waiting("ImagePullBackOff", kind="PS"), stuck), (pod("PS", 0), usual)
    for parameter_server, message in steps:
        tfjob = synced(tfjob, pod("Worker", 0), parameter_server)
        assert (tfjob.status.conditions[-1].type, tfjob.status.conditions[-1].message) == ("Running", message)


def test_a_trouble_is_reported_once() -> None:
    """The same pod for the same reason; another reason is another problem. D17: it is forgotten with its job or its end."""
    recorder = FakeRecorder()
    reported = job_events(recorder)

    def report(reason: str, *, finished: bool = False) -> list[str]:
        recorder.events.clear()
        reported.report(OF_JOB, problems_of(observed([waiting(reason)])), finished=finished)
        return recorder.reasons

    assert report("ErrImagePull") == ["ErrImagePull"]
    assert report("ErrImagePull") == report("ErrImagePull", finished=True) == []
    assert report("ErrImagePull") == ["ErrImagePull"]
    assert report("ImagePullBackOff") == ["ImagePullBackOff"]
    reported.forget("uid")
    assert report("ImagePullBackOff") == ["ImagePullBackOff"]


def test_five_hundred_pods_without_a_place_are_one_story() -> None:
    """They do not cause five hundred events, neither at once nor one after the other."""
    problems = problems_of(observed([unschedulable(index) for index in range(500)]))
    recorder = FakeRecorder()
    reported = job_events(recorder)
    for job_meta, times in ((OF_JOB, 1), (OF_JOB, 1), (Meta(name="another", namespace="ns", uid="another"), 2)):
        reported.report(job_meta, problems)
        assert len(recorder.events) == times * MAX_PER_REASON


def exited(
    container: str, code: int, at_s: float = 0.0, reason: str = "Error", message: str = ""
) -> core.ContainerStatus:
    how = core.ContainerStateTerminated(exit_code=code, reason=reason, message=message, finished_at=at(at_s))
    return core.ContainerStatus(name=container, state=core.ContainerState(terminated=how))


failed = partial(with_containers, pod("Worker", 0, "Failed"))
"""A failed worker with these containers."""


def never_created(reason: str, message: str = "") -> core.ContainerStatus:
    """As kubelets up to 1.20 report a container that the runtime did not create: with exit code 0 of an earlier run."""
    waiting, before = core.ContainerStateWaiting(reason, message), core.ContainerStateTerminated(exit_code=0)
    state, last = core.ContainerState(waiting=waiting), core.LastState(terminated=before)
    return core.ContainerStatus(name="tensorflow", state=state, last_state=last)


def end_of(*pods: Pod, policy: str = "Never", restarts: tuple[IndexRestarts, ...] = (), **run_policy: Any) -> EndRecord:
    """The end of a job of three workers with these pods."""
    tfjob = job(spec(policy, Worker=3, runPolicy=run_policy), status=JobStatus(restarts=restarts))
    status = synced(tfjob, *pods).status
    record = conditions.end_record(status)
    assert record is not None
    assert (record.type, record.message) == ("Failed", status.conditions[-1].message)
    return record


def message_of(*pods: Pod, **given: Any) -> str:
    """The last condition's message of a job of three workers with these pods."""
    return end_of(*pods, **given).message


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (failed(exited("tensorflow", 1)), "container tensorflow exited with code 1"),
        (
            failed(exited("tensorflow", 137, reason="OOMKilled")),
            "container tensorflow exited with code 137 (OOMKilled)",
        ),
        (
            failed(exited("tensorflow", 1, message="Traceback:\n  File x\nValueError: no \x1b[1mdata\n\n")),
            r"container tensorflow exited with code 1: Traceback: / File x / ValueError: no \x1b[1mdata",
        ),
        (failed(reason="Evicted", message="Node low on memory."), "Evicted (Node low on memory.)"),
        (
            failed(exited("tensorflow", 143), reason="DeadlineExceeded", message="Pod was active too long"),
            "DeadlineExceeded (Pod was active too long); container tensorflow exited with code 143",
        ),
        (failed(reason="NodeLost"), "NodeLost"),
        (
            failed(conditions=(core.Condition("DisruptionTarget", "True", "DeletionByTaintManager"),)),
            "DeletionByTaintManager",
        ),
        (
            failed(init_container_statuses=(exited("fetch", 2, reason="StartError", message="no such file"),)),
            "container fetch exited with code 2 (StartError): no such file",
        ),
        (failed(exited("sidecar", 3, 1.0), exited("tensorflow", 143, 2.0)), "container sidecar exited with code 3"),
        (
            failed(exited("tensorflow", 0), reason="DeadlineExceeded"),
            "DeadlineExceeded; its training container exited with code 0",
        ),
        (failed(), "the kubelet reported no container status"),
        (
            failed(never_created("CreateContainerError", "name is reserved")),
            "container tensorflow did not start: CreateContainerError: name is reserved",
        ),
        (failed(never_created("ContainerCreating")), "the kubelet reported no container status"),
        (
            failed(never_created("ErrImagePull"), reason="DeadlineExceeded", message="too long"),
            "DeadlineExceeded (too long)",
        ),
    ],
)
def test_a_failed_job_says_which_pod_which_container_and_why(found: Pod, told: str) -> None:
    """U8: after the words that clients match."""
    clients_match = "TFJob ns/mnist has failed because 1 Worker replica(s) failed. "
    assert message_of(found) == f"{clients_match}Pod mnist-worker-0: {told}"


@pytest.mark.parametrize("policy", ["Never", "ExitCode"])
def test_the_record_of_a_container_that_was_not_created_has_no_exit_code(policy: str) -> None:
    """Without an exit code, ExitCode does not retry it."""
    failure = end_of(failed(never_created("CreateContainerError", "name is reserved")), policy=policy).failure
    assert failure is not None
    assert (failure.exit_code, failure.reason, failure.message) == (None, "CreateContainerError", "name is reserved")
    assert (failure.pod_name, failure.container_name) == ("mnist-worker-0", "tensorflow")


def test_the_first_of_several_failed_pods_is_named() -> None:
    """U8: the others may have failed because of it. Without times the lowest index is named."""
    message = message_of(
        *(
            with_containers(pod("Worker", index, "Failed"), exited("tensorflow", 1, at_s))
            for index, at_s in enumerate((9.0, 2.0, 5.0))
        )
    )
    several, first = "TFJob ns/mnist has failed because 3 Worker replica(s) failed", "The first was pod mnist-worker-1"
    assert message == f"{several}. {first}: container tensorflow exited with code 1"
    assert f"{first}: NodeLost" in message_of(
        pod("Worker", 2, "Failed", reason="NodeLost"), pod("Worker", 1, "Failed", reason="NodeLost")
    )


@pytest.mark.parametrize(
    ("chief_s", "ps_s", "first"),
    [
        (9.0, 2.0, "ps"),
        (2.0, 9.0, "chief"),
        (2.0, 2.0, "ps"),  # the chief depends on it
    ],
)
def test_the_first_of_failed_pods_is_named_whatever_its_type(chief_s: float, ps_s: float, first: str) -> None:
    """Without a parameter server the chief soon fails too, often before the operator sees either. A sidecar may end later."""
    ended = exited("tensorflow", 1, ps_s), exited("sidecar", 0, 30.0)
    chief, server = pod("Chief", 0), pod("PS", 0)
    pods = (
        changed(chief, status=core.PodStatus(phase="Failed", container_statuses=(exited("tensorflow", 1, chief_s),))),
        changed(server, status=core.PodStatus(phase="Failed", container_statuses=ended)),
    )
    status = synced(job(spec("Never", Chief=1, PS=1)), *pods).status
    kind = {"ps": "PS", "chief": "Chief"}[first]
    assert status.conditions[-1].message == (
        f"TFJob ns/mnist has failed because 1 {kind} replica(s) failed. The first was pod mnist-{first}-0: "
        "container tensorflow exited with code 1"
    )
    record = conditions.end_record(status)
    assert record is not None
    assert record.failure is not None
    assert record.failure.pod_name == f"mnist-{first}-0"


def restarted(index: int, times: int, last: core.ContainerStateTerminated | None = None) -> Pod:
    found = pod("Worker", index, policy="OnFailure", restarts=times)
    (status,) = found.status.container_statuses or ()
    return changed(found, status__container_statuses=(changed(status, last_state=core.LastState(terminated=last)),))


def test_at_the_backoff_limit_the_replica_is_named_that_was_restarted_most() -> None:
    """U8: with its last exit, which the pod reports also for a container that runs again; of two, that of the lowest index."""
    last = core.ContainerStateTerminated(exit_code=137, reason="OOMKilled", message="allocating")
    assert message_of(restarted(0, 1), restarted(1, 4, last), pod("Worker", 2), policy="OnFailure", backoffLimit=3) == (
        "Job mnist has failed because it has reached the specified backoff limit. Pod mnist-worker-1 was restarted most often "
        "(4 times); its last failure: container tensorflow exited with code 137 (OOMKilled): allocating"
    )
    message = message_of(restarted(1, 2), restarted(0, 2), policy="OnFailure", backoffLimit=3)
    assert message.endswith("Pod mnist-worker-0 was restarted most often (2 times)")  # and no last state is guessed


def test_of_replicas_that_reach_the_backoff_limit_together_the_one_that_failed_first_is_named() -> None:
    """All of them count, and none was restarted."""
    ends = (
        with_containers(pod("Worker", index, "Failed"), exited("tensorflow", 137, at_s))
        for index, at_s in enumerate((9.0, 9.0, 2.0))
    )
    message = message_of(*ends, policy="ExitCode", backoffLimit=0)
    assert message.endswith(". Pod mnist-worker-2: container tensorflow exited with code 137")


def test_the_failure_that_reaches_the_backoff_limit_is_no_restart() -> None:
    """Its pod is not replaced any more; with a limit of 0 nothing was restarted."""
    last = failed(exited("tensorflow", 137))
    earlier = IndexRestarts(type="Worker", index=0, pod="the pod before", replaced=True)
    first = "Job mnist has failed because it has reached the specified backoff limit. Pod mnist-worker-0"
    exit_ = "container tensorflow exited with code 137"
    assert message_of(last, policy="ExitCode", backoffLimit=0) == f"{first}: {exit_}"
    assert message_of(last, policy="ExitCode", restarts=(earlier,), backoffLimit=1) == (
        f"{first} was restarted most often (once); its last failure: {exit_}"
    )


@pytest.mark.parametrize(
    ("found", "facts"),
    [
        (failed(exited("tensorflow", 1, message="no data")), ("Error", "tensorflow", 1, "no data")),
        (failed(exited("tensorflow", 137, reason="OOMKilled")), ("OOMKilled", "tensorflow", 137, "")),
        (
            failed(exited("tensorflow", 137), reason="Evicted", message="low on memory"),
            ("Evicted", "tensorflow", 137, "low on memory"),
        ),
        (failed(reason="NodeLost", message="Node n is lost"), ("NodeLost", "", None, "Node n is lost")),
        (
            failed(init_container_statuses=(exited("fetch", 2, reason="StartError", message="no such file"),)),
            ("StartError", "fetch", 2, "no such file"),
        ),
        (failed(exited("sidecar", 3, 1.0), exited("tensorflow", 143, 2.0)), ("Error", "sidecar", 3, "")),
        (failed(), ("Error", "", None, "")),
    ],
)
def test_the_record_of_an_end_has_the_facts_of_its_message(found: Pod, facts: tuple[str, str, int | None, str]) -> None:
    """Under each restart policy: of a pod that is not restarted, or whose restart exceeds the backoffLimit."""
    for policy in RestartPolicy:
        if policy is RestartPolicy.EXIT_CODE and found.status.reason:
            continue  # a disruption, which does not count
        failure = end_of(found, policy=policy, backoffLimit=0).failure
        assert failure is not None
        assert (failure.reason, failure.container_name, failure.exit_code, failure.message) == facts
        assert (failure.replica_type, failure.replica_index, failure.pod_name) == ("Worker", 0, "mnist-worker-0")


def test_at_the_backoff_limit_the_record_has_the_last_exit_of_a_container_that_runs_again() -> None:
    last = core.ContainerStateTerminated(exit_code=137, reason="OOMKilled", message="allocating")
    failure = end_of(restarted(0, 1), restarted(1, 4, last), policy="OnFailure", backoffLimit=3).failure
    assert failure is not None
    assert (failure.pod_name, failure.container_name) == ("mnist-worker-1", "tensorflow")
    assert (failure.reason, failure.exit_code, failure.message) == ("OOMKilled", 137, "allocating")
    assert end_of(restarted(1, 2), restarted(0, 2), policy="OnFailure", backoffLimit=3).failure is None


def beside(
    name: str, times: int, last: core.ContainerStateTerminated, *, is_down: bool = False
) -> core.ContainerStatus:
    """A container that was restarted in place, and perhaps waits for the next restart."""
    state = core.ContainerState(terminated=last if is_down else None)
    return core.ContainerStatus(name, times, state, None if is_down else core.LastState(terminated=last))


def test_at_the_backoff_limit_the_container_is_blamed_that_was_restarted_most() -> None:
    """A sidecar, even while the training is down between two runs; the other restarts are mentioned."""
    lost = core.ContainerStateTerminated(exit_code=7, reason="Error", message="no broker")
    crashed = core.ContainerStateTerminated(exit_code=1, reason="Error", message="no data")
    training, sidecar = beside("tensorflow", 1, crashed, is_down=True), beside("metrics", 3, lost)
    found = changed(restarted(1, 4), status__container_statuses=(training, sidecar))
    record = end_of(found, policy="OnFailure", backoffLimit=3)
    assert record.message.endswith(
        "Pod mnist-worker-1 was restarted most often (4 times; containers restarted in place: metrics 3, tensorflow 1); "
        "its last failure: container metrics exited with code 7: no broker"
    )
    failure = record.failure
    assert failure is not None
    assert (failure.container_name, failure.exit_code, failure.message) == ("metrics", 7, "no broker")


def test_a_container_that_is_not_restarted_decides_whatever_the_restarts_of_others() -> None:
    """KEP-5307: it has a restart policy of its own."""
    training = exited("tensorflow", 1, message="no data")
    last = core.ContainerStateTerminated(exit_code=7)
    found = changed(restarted(0, 4), status__container_statuses=(training, beside("metrics", 3, last)))
    own = core.Container(name="tensorflow", restart_policy="Never")
    found = changed(found, spec=msgspec.structs.replace(found.spec, containers=(own,)))
    failure = end_of(found, policy="OnFailure").failure
    assert failure is not None
    assert (failure.container_name, failure.exit_code) == ("tensorflow", 1)


def test_a_message_stays_short_whatever_processes_and_nodes_say() -> None:
    """U8, D5: termination messages have up to 4 KB each, and nothing bounds what a node says."""
    long = exited("tensorflow", 1, reason="R" * 5000, message="m" * 90_000)
    assert len(message_of(failed(long, reason="r" * 5000, message="e" * 90_000)).encode()) < 1024


@pytest.mark.parametrize("grace_s", [10**11, 10**15, 2**63 - 1])
def test_an_absurd_grace_crashes_nothing(grace_s: int) -> None:
    """D20: the API server accepts a termination grace of thousands of years."""
    going = changed(
        pod("Worker", 0, "Running", 0, terminating=True, ended_s=-5),
        metadata__deletion_grace_period_seconds=grace_s,
        spec=core.PodSpec(
            "Never", termination_grace_period_seconds=grace_s, containers=(core.Container(name="tensorflow"),)
        ),
    )
    assert decide(job(spec("Never", Worker=1)), going).status is not None


@pytest.mark.parametrize("seconds", [10**11, 2**63 - 1, 10**400])
@pytest.mark.parametrize("field", ["activeDeadlineSeconds", "ttlSecondsAfterFinished"])
def test_absurd_limits_crash_nothing(field: str, seconds: int) -> None:
    """D20: such times just never come."""
    tfjob = job(spec(Worker=replica(1, "Never"), runPolicy={field: seconds}))
    for found in (pod("Worker", 0), pod("Worker", 0, "Succeeded", 0)):
        due_s = decide(synced(tfjob, found), found).requeue_after_s
        assert due_s is None or due_s > 0
