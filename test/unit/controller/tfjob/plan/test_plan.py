"""The plan for a job, by tables. What holds for any job and any pods is tested in test_plan_properties.py."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.jobs import at, decide, job, names, pod, replica, service, spec, synced, template, true_of
from fakes.objects import after, changed
from support.cases import for_each
from tfjob_operator.api.core import ContainerStatus
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.types import InvalidSpec, Mistake, ReplicaStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.tfjob.plan.actions import NOTHING
from tfjob_operator.controller.tfjob.plan.plan import plan

LATER = at(60)
DONE = pod("Worker", 0, "Succeeded", 0)
LED = spec(Chief=1, Worker=1)
WITH_PS = spec(PS=1, Worker=1)
ALL_WORKERS = spec(Worker=2, successPolicy="AllWorkers")


def begun(given: dict[str, Any] | None = None, *pods: Pod) -> TFJob:
    """A job that has its Created condition, and whatever these pods add to it."""
    return synced(job(given), *pods)


def ended(given: dict[str, Any], *pods: Pod) -> TFJob:
    """A job that these pods have brought to its end."""
    finished = begun(given, *pods)
    assert conditions.is_finished(finished.status)
    return finished


def with_sidecar(found: Pod) -> Pod:
    """The pod with a second container, which runs."""
    return changed(
        found, status__container_statuses=(*(found.status.container_statuses or ()), ContainerStatus("sidecar"))
    )


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
    decided = names(decide(ended(given, *pods), *pods, services=services))
    assert (decided["delete pods"], sorted(decided["delete services"])) == (gone, sorted(gone))
    assert decided["create pods"] == []


@pytest.mark.parametrize("policy", ["All", "Running"])
def test_counters_keep_what_has_ended_and_lose_what_clean_up_takes(policy: str) -> None:
    """B22: also when the pods are gone; what clean-up takes is not active."""
    pods = DONE, pod("Worker", 1)
    finished = ended(spec(Worker=2, runPolicy={"cleanPodPolicy": policy}), *pods)
    assert finished.status.replica_statuses == {"Worker": ReplicaStatus(active=0, succeeded=1)}
    assert decide(finished, *pods).status is decide(finished).status is None


def test_pods_that_clean_up_leaves_running_stay_counted_until_they_end() -> None:
    """Policy None: the counters follow the pods."""
    finished = ended(spec(Worker=2, runPolicy={"cleanPodPolicy": "None"}), DONE, pod("Worker", 1))
    assert finished.status.replica_statuses == {"Worker": ReplicaStatus(active=1, succeeded=1)}
    later = synced(finished, DONE, pod("Worker", 1, "Succeeded", 0))
    assert later.status.replica_statuses == {"Worker": ReplicaStatus(active=0, succeeded=2)}


def test_a_finished_job_with_nothing_left_to_do_costs_nothing() -> None:
    """B33, B55, WR-02: no write, no event, no delete, however often it is looked at; no pod for one that vanished."""
    finished = ended(spec(Worker=1), DONE)
    assert decide(finished, DONE, services=[service("Worker", 0)]) == decide(finished) == NOTHING


@for_each("code", range(1, 256))
def test_exit_codes_are_retried_or_final_by_the_table(code: int) -> None:
    """B40: 130, 137, 138 and 143 restart the replica; 128 and 139 and every other code fail the job."""
    tfjob = begun(spec("ExitCode", Worker=2))
    decided = decide(tfjob, pod("Worker", 0), pod("Worker", 1, "Failed", code))
    gone, state = (["mnist-worker-1"], "Restarting") if code in {130, 137, 138, 143} else ([], "Failed")
    assert names(decided)["delete pods"] == gone
    assert true_of(after(tfjob, decided)) == ["Created", state]


def test_a_restart_tells_how_the_container_ended_before_its_pod_goes() -> None:
    """B57, B56: the exit code is recorded with the deletion, once; the warning with the condition."""
    decided = decide(begun(spec("ExitCode", Worker=1)), pod("Worker", 0, "Failed", 137))
    exited = JobEvent("Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 137")
    assert decided.delete_pods[0].event == exited
    message = "TFJob mnist is restarting because Worker replica(s) failed."
    assert decided.events == (JobEvent("Warning", "TFJobRestarting", message),)


def test_a_restarting_job_runs_again_when_every_replica_has_its_pod_back() -> None:
    """B23: no flipping between Running and Restarting while others run on."""
    restarting = begun(spec("ExitCode", Worker=2), pod("Worker", 0), pod("Worker", 1, "Failed", 137))
    going = pod("Worker", 1, "Failed", 137, terminating=True)
    for pods, state in (([going], "Restarting"), ([], "Restarting"), ([pod("Worker", 1)], "Running")):
        assert true_of(synced(restarting, pod("Worker", 0), *pods)) == ["Created", state]
    assert names(decide(restarting, pod("Worker", 0)))["create pods"] == ["mnist-worker-1"]


@pytest.mark.parametrize(
    ("policy", "found", "states"),
    [
        pytest.param("Never", pod("Worker", 0, "Failed", reason="Evicted"), ["Failed"], id="Never means never"),
        pytest.param(None, pod("Worker", 0, "Failed", 143, terminating=True), [], id="a drain is not a failure (B43)"),
        pytest.param(
            "OnFailure", pod("Worker", 0, "Running", 1, policy="OnFailure"), ["Running"], id="a restart in place"
        ),
    ],
)
def test_a_job_fails_only_when_its_pod_is_at_its_end(policy: str | None, found: Pod, states: list[str]) -> None:
    """B43: a pod that is drained is made again when it is gone; a container that its kubelet will restart has not ended."""
    assert true_of(begun(spec(policy, Worker=1), found)) == ["Created", *states]


def test_a_sidecar_that_goes_on_does_not_keep_a_finished_replica_alive() -> None:
    """B73: the container tensorflow decides; the pod itself is still cleaned up as running."""
    found = with_sidecar(pod("Worker", 0, "Running", 0, policy="OnFailure"))
    finished = ended(spec("OnFailure", Worker=1), found)
    assert true_of(finished) == ["Created", "Succeeded"]
    assert names(decide(finished, found))["delete pods"] == ["mnist-worker-0"]


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
    decided = plan(job({"foo": 1}), wrong, [], [], LATER)
    failed = after(job({"foo": 1}), decided)
    text = "TFJob has failed because the spec is invalid: spec.x: is wrong"
    assert true_of(failed) == ["Failed"]
    assert decided.events == (JobEvent("Warning", "InvalidTFJobSpec", text),)
    assert (failed.status.conditions[-1].reason, failed.status.conditions[-1].message) == ("InvalidTFJobSpec", text)
    assert failed.status.completion_time == LATER
    assert plan(failed, wrong, [], [], LATER) == NOTHING


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
