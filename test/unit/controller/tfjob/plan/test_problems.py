"""What keeps pods from starting, and why a job has failed: each is reported once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fakes.jobs import good_spec, job, observed, pod, replica
from fakes.recorder import FakeRecorder, job_events
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.core import (
    Condition,
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    LastState,
    PodSpec,
    PodStatus,
)
from tfjob_operator.api.meta import Meta
from tfjob_operator.api.v1.types import IndexRestarts, JobStatus
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.writes import MOST_PER_REASON
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.replicas import problems_of

OF_JOB = Meta(name="mnist", namespace="ns", uid="uid")


def unschedulable(index: int = 0) -> Pod:
    """A worker for which no node has room."""
    found = pod("Worker", index, "Pending")
    condition = Condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=(condition,)))


def waiting(reason: str, *, init: bool = False) -> Pod:
    """A worker whose container waits."""
    found = pod("Worker", 0, "Pending")
    state = ContainerState(waiting=ContainerStateWaiting(reason, "why"))
    statuses = (ContainerStatus("tensorflow", state=state),)
    changed = {"init_container_statuses" if init else "container_statuses": statuses}
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, **changed))


def events(*pods: Pod) -> list[JobEvent]:
    """The events about these pods, if nothing was reported before."""
    recorder = FakeRecorder()
    job_events(recorder).report(OF_JOB, problems_of(observed(pods)))
    return [JobEvent(*event) for event in recorder.events]


def test_a_pod_that_no_node_can_take_is_told_of() -> None:
    """B34: the reason is the scheduler's, the text that of the Go operators."""
    message = "Error pod mnist-worker-0 condition message: 0/1 nodes are available: 1 Insufficient cpu."
    assert events(unschedulable()) == [JobEvent("Warning", "Unschedulable", message)]


@pytest.mark.parametrize("reason", ["SignatureValidationFailed", "ImageVolumeMountFailed"])
def test_what_later_kubelets_have_to_say_of_images_is_reported(reason: str) -> None:
    """M4: reasons of kubelets since Kubernetes 1.28 and 1.33."""
    assert [event.reason for event in events(waiting(reason))] == [reason]


@pytest.mark.parametrize("init", [False, True])
def test_an_image_that_can_not_be_pulled_is_told_of(init: bool) -> None:
    """B34: of init containers too."""
    message = "Error pod mnist-worker-0 container tensorflow waiting message: why"
    assert events(waiting("ImagePullBackOff", init=init)) == [JobEvent("Warning", "ImagePullBackOff", message)]


def test_a_running_job_says_that_a_replica_cannot_start() -> None:
    """Its condition is Running all the same, as one worker decides; with all replicas back its message is the usual one."""
    tfjob = job({"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(1)}})
    parameter_server = pod("PS", 0, "Pending")
    stuck = msgspec.structs.replace(parameter_server, status=waiting("ImagePullBackOff").status)
    told = []
    for pods in ([pod("Worker", 0), parameter_server], [pod("Worker", 0), stuck], [pod("Worker", 0), pod("PS", 0)]):
        status = plan(tfjob, good_spec(tfjob), pods, (), EPOCH).status
        assert status is not None
        tfjob = msgspec.structs.replace(tfjob, status=status)
        told.append((status.conditions[-1].type, status.conditions[-1].message))
    usual = ("Running", "TFJob mnist is running.")
    assert told == [usual, ("Running", "TFJob mnist is running, but not all of its replicas can start."), usual]


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing", "CrashLoopBackOff", ""])
def test_what_passes_by_itself_is_not_told_of(reason: str) -> None:
    """Every pod waits for its container to be created."""
    assert events(waiting(reason)) == []


def test_a_trouble_is_reported_once() -> None:
    """The same pod for the same reason; another reason is another problem."""
    recorder = FakeRecorder()
    reported = job_events(recorder)
    for reason in ("ErrImagePull", "ErrImagePull", "ImagePullBackOff"):
        reported.report(OF_JOB, problems_of(observed([waiting(reason)])))
    assert recorder.reasons == ["ErrImagePull", "ImagePullBackOff"]
    reported.forget("uid")
    reported.report(OF_JOB, problems_of(observed([waiting("ErrImagePull")])))
    assert recorder.reasons == ["ErrImagePull", "ImagePullBackOff", "ErrImagePull"]


def test_a_trouble_is_not_reported_again_when_its_job_ends() -> None:
    """D17: then it is forgotten."""
    recorder = FakeRecorder()
    reported = job_events(recorder)
    for finished in (False, True):
        reported.report(OF_JOB, problems_of(observed([waiting("ErrImagePull")])), finished=finished)
    assert recorder.reasons == ["ErrImagePull"]
    reported.report(OF_JOB, problems_of(observed([waiting("ErrImagePull")])))
    assert recorder.reasons == ["ErrImagePull"] * 2


def test_five_hundred_pods_without_a_place_are_one_story() -> None:
    """They do not cause five hundred events, neither at once nor one after the other."""
    problems = problems_of(observed([unschedulable(index) for index in range(500)]))
    recorder = FakeRecorder()
    reported = job_events(recorder)
    for job_meta, times in ((OF_JOB, 1), (OF_JOB, 1), (Meta(uid="another"), 2)):
        reported.report(job_meta, problems)
        assert len(recorder.events) == times * MOST_PER_REASON


def test_a_pod_on_its_way_out_has_no_troubles() -> None:
    """Nor has one that runs."""
    leaving = unschedulable()
    gone = msgspec.structs.replace(pod("Worker", 0, "Pending", terminating=True), status=leaving.status)
    assert events(gone, pod("Worker", 1)) == []


def ended(container: str, code: int, at_s: float = 0.0, reason: str = "Error", message: str = "") -> ContainerStatus:
    """A container that has terminated."""
    how = ContainerStateTerminated(
        exit_code=code, reason=reason, message=message, finished_at=EPOCH + timedelta(seconds=at_s)
    )
    return ContainerStatus(name=container, state=ContainerState(terminated=how))


def failed(*statuses: ContainerStatus, index: int = 0, kind: str = "Worker", **status: Any) -> Pod:
    """A failed pod with these containers."""
    found = pod(kind, index, "Failed")
    return msgspec.structs.replace(found, status=PodStatus(phase="Failed", container_statuses=statuses, **status))


def message_of(
    pods: list[Pod], policy: str = "Never", restarts: tuple[IndexRestarts, ...] = (), **run_policy: Any
) -> str:
    """The last condition's message of a job of three workers with these pods."""
    spec = {"tfReplicaSpecs": {"Worker": replica(3, policy)}, "runPolicy": run_policy}
    tfjob = job(spec, status=JobStatus(restarts=restarts))
    status = plan(tfjob, good_spec(tfjob), pods, [], EPOCH).status
    assert status is not None
    assert status.conditions[-1].type == "Failed"
    return status.conditions[-1].message


ONE = "TFJob ns/mnist has failed because 1 Worker replica(s) failed. "


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (failed(ended("tensorflow", 1)), "Pod mnist-worker-0: container tensorflow exited with code 1"),
        (
            failed(ended("tensorflow", 137, reason="OOMKilled")),
            "Pod mnist-worker-0: container tensorflow exited with code 137 (OOMKilled)",
        ),
        (
            failed(ended("tensorflow", 1, message="Traceback:\n  File x\nValueError: no \x1b[1mdata\n\n")),
            r"Pod mnist-worker-0: container tensorflow exited with code 1: Traceback: / File x / ValueError: no \x1b[1mdata",
        ),
        (
            failed(reason="Evicted", message="The node was low on resource: memory."),
            "Pod mnist-worker-0: Evicted (The node was low on resource: memory.)",
        ),
        (
            failed(ended("tensorflow", 143), reason="DeadlineExceeded", message="Pod was active too long"),
            "Pod mnist-worker-0: DeadlineExceeded (Pod was active too long); container tensorflow exited with code 143",
        ),
        (failed(reason="NodeLost"), "Pod mnist-worker-0: NodeLost"),
        (
            failed(
                conditions=(Condition(type="DisruptionTarget", status="True", reason="DeletionByTaintManager"),),
            ),
            "Pod mnist-worker-0: DeletionByTaintManager",
        ),
        (
            failed(init_container_statuses=(ended("fetch", 2, reason="StartError", message="no such file"),)),
            "Pod mnist-worker-0: container fetch exited with code 2 (StartError): no such file",
        ),
        (
            failed(ended("sidecar", 3, 1.0), ended("tensorflow", 143, 2.0)),
            "Pod mnist-worker-0: container sidecar exited with code 3",
        ),
        (
            failed(ended("tensorflow", 0), reason="DeadlineExceeded"),
            "Pod mnist-worker-0: DeadlineExceeded; its training container exited with code 0",
        ),
        (failed(), "Pod mnist-worker-0: the kubelet reported no container status"),
    ],
)
def test_a_failed_job_says_which_pod_which_container_and_why(found: Pod, told: str) -> None:
    """U8: after the words that clients match."""
    assert message_of([found]) == ONE + told


def test_the_first_of_several_failed_pods_is_named() -> None:
    """U8: the others may have failed because of it."""
    pods = [failed(ended("tensorflow", 1, at_s), index=index) for index, at_s in enumerate((9.0, 2.0, 5.0))]
    assert message_of(pods) == (
        "TFJob ns/mnist has failed because 3 Worker replica(s) failed. "
        "The first was pod mnist-worker-1: container tensorflow exited with code 1"
    )


def test_without_times_the_lowest_index_is_named() -> None:
    """U8: what a kubelet does not report decides nothing."""
    pods = [failed(reason="NodeLost", index=2), failed(reason="NodeLost", index=1)]
    assert "The first was pod mnist-worker-1: NodeLost" in message_of(pods)


def restarted(index: int, times: int, last: ContainerStateTerminated | None = None) -> Pod:
    """A pod whose container its kubelet has restarted."""
    found = pod("Worker", index, "Running", policy="OnFailure", restarts=times)
    (status,) = found.status.container_statuses or ()
    status = msgspec.structs.replace(status, last_state=LastState(terminated=last))
    return msgspec.structs.replace(
        found, status=msgspec.structs.replace(found.status, container_statuses=(status,), phase="Running")
    )


def test_at_the_backoff_limit_the_replica_is_named_that_was_restarted_most() -> None:
    """U8: with its last exit, which the pod reports also for a container that runs again."""
    last = ContainerStateTerminated(exit_code=137, reason="OOMKilled", message="allocating")
    pods = [restarted(0, 1), restarted(1, 4, last), pod("Worker", 2)]
    assert message_of(pods, "OnFailure", backoffLimit=3) == (
        "Job mnist has failed because it has reached the specified backoff limit. Pod mnist-worker-1 was restarted most often "
        "(4 times); its last failure: container tensorflow exited with code 137 (OOMKilled): allocating"
    )


def test_of_two_replicas_that_were_restarted_as_often_the_lowest_index_is_named() -> None:
    """U8: the same one in every process."""
    message = message_of([restarted(1, 2), restarted(0, 2)], "OnFailure", backoffLimit=3)
    assert message.endswith("Pod mnist-worker-0 was restarted most often (2 times)")


def test_the_failure_that_reaches_the_backoff_limit_is_no_restart() -> None:
    """Its pod is not replaced any more; with a limit of 0 nothing was restarted."""
    last = failed(ended("tensorflow", 137))
    earlier = IndexRestarts(type="Worker", index=0, pod="the pod before", replaced=True)
    first = "Job mnist has failed because it has reached the specified backoff limit. Pod mnist-worker-0"
    exit_ = "container tensorflow exited with code 137"
    assert message_of([last], "ExitCode", backoffLimit=0) == f"{first}: {exit_}"
    assert message_of([last], "ExitCode", restarts=(earlier,), backoffLimit=1) == (
        f"{first} was restarted most often (once); its last failure: {exit_}"
    )


def test_a_last_exit_that_nobody_knows_is_not_told() -> None:
    """U8: without a last state the message says nothing about it."""
    message = message_of([restarted(0, 2)], "OnFailure", backoffLimit=1)
    assert message.endswith("Pod mnist-worker-0 was restarted most often (2 times)")


def test_a_message_stays_short_whatever_processes_and_nodes_say() -> None:
    """U8, D5: termination messages have up to 4 KB each, and nothing bounds what a node says."""
    found = failed(
        ended("tensorflow", 1, reason="R" * 5000, message="m" * 90_000), reason="r" * 5000, message="e" * 90_000
    )
    assert len(message_of([found]).encode()) < 1024


@pytest.mark.parametrize("grace_s", [10**11, 10**15, 2**63 - 1])
def test_an_absurd_grace_crashes_nothing(grace_s: int) -> None:
    """D20: the API server accepts a termination grace of thousands of years."""
    going = pod("Worker", 0, "Running", 0, terminating=True, grace_s=30, ended_s=-5)
    going = msgspec.structs.replace(
        going,
        metadata=msgspec.structs.replace(going.metadata, deletion_grace_period_seconds=grace_s),
        spec=PodSpec(
            restart_policy="Never", termination_grace_period_seconds=grace_s, containers=(Container(name="tensorflow"),)
        ),
    )
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(1, "Never")}})
    assert plan(tfjob, good_spec(tfjob), [going], [], EPOCH).status is not None


@pytest.mark.parametrize("seconds", [10**11, 2**63 - 1, 10**400])
@pytest.mark.parametrize("field", ["activeDeadlineSeconds", "ttlSecondsAfterFinished"])
def test_absurd_limits_crash_nothing(field: str, seconds: int) -> None:
    """D20: such times just never come."""
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(1, "Never")}, "runPolicy": {field: seconds}})
    for pods in ([pod("Worker", 0)], [pod("Worker", 0, "Succeeded", 0)]):
        status = plan(tfjob, good_spec(tfjob), pods, [], EPOCH).status
        assert status is not None
        again = msgspec.structs.replace(tfjob, status=status)
        decided = plan(again, good_spec(again), pods, [], EPOCH)
        assert decided.requeue_after_s is None or decided.requeue_after_s > 0
