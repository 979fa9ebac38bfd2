"""What keeps pods from starting, and why a job has failed: each is reported once."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.jobs import at, decide, job, observed, pod, replica, spec, synced
from fakes.objects import changed
from fakes.recorder import FakeRecorder, job_events
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
from tfjob_operator.controller.jobs.writes import MOST_PER_REASON
from tfjob_operator.controller.tfjob.plan.replicas import problems_of

OF_JOB = Meta(name="mnist", namespace="ns", uid="uid")
NO_ROOM = Condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")


def unschedulable(index: int = 0, **fields: Any) -> Pod:
    """A worker for which no node has room."""
    return changed(pod("Worker", index, "Pending", **fields), status__conditions=(NO_ROOM,))


def waiting(reason: str, *, init: bool = False, kind: str = "Worker") -> Pod:
    """A replica whose container waits."""
    statuses = (ContainerStatus("tensorflow", state=ContainerState(waiting=ContainerStateWaiting(reason, "why"))),)
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
        (unschedulable(), [("Unschedulable", f"Error pod mnist-worker-0 condition message: {NO_ROOM.message}")]),
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
    for job_meta, times in ((OF_JOB, 1), (OF_JOB, 1), (Meta(uid="another"), 2)):
        reported.report(job_meta, problems)
        assert len(recorder.events) == times * MOST_PER_REASON


def ended(container: str, code: int, at_s: float = 0.0, reason: str = "Error", message: str = "") -> ContainerStatus:
    """A container that has terminated."""
    how = ContainerStateTerminated(exit_code=code, reason=reason, message=message, finished_at=at(at_s))
    return ContainerStatus(name=container, state=ContainerState(terminated=how))


def failed(*statuses: ContainerStatus, index: int = 0, **status: Any) -> Pod:
    """A failed worker with these containers."""
    return changed(pod("Worker", index), status=PodStatus(phase="Failed", container_statuses=statuses, **status))


def message_of(*pods: Pod, policy: str = "Never", restarts: tuple[IndexRestarts, ...] = (), **run_policy: Any) -> str:
    """The last condition's message of a job of three workers with these pods."""
    tfjob = job(spec(policy, Worker=3, runPolicy=run_policy), status=JobStatus(restarts=restarts))
    last = synced(tfjob, *pods).status.conditions[-1]
    assert last.type == "Failed"
    return last.message


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (failed(ended("tensorflow", 1)), "container tensorflow exited with code 1"),
        (failed(ended("tensorflow", 137, reason="OOMKilled")), "container tensorflow exited with code 137 (OOMKilled)"),
        (
            failed(ended("tensorflow", 1, message="Traceback:\n  File x\nValueError: no \x1b[1mdata\n\n")),
            r"container tensorflow exited with code 1: Traceback: / File x / ValueError: no \x1b[1mdata",
        ),
        (failed(reason="Evicted", message="Node low on memory."), "Evicted (Node low on memory.)"),
        (
            failed(ended("tensorflow", 143), reason="DeadlineExceeded", message="Pod was active too long"),
            "DeadlineExceeded (Pod was active too long); container tensorflow exited with code 143",
        ),
        (failed(reason="NodeLost"), "NodeLost"),
        (
            failed(conditions=(Condition("DisruptionTarget", "True", "DeletionByTaintManager"),)),
            "DeletionByTaintManager",
        ),
        (
            failed(init_container_statuses=(ended("fetch", 2, reason="StartError", message="no such file"),)),
            "container fetch exited with code 2 (StartError): no such file",
        ),
        (failed(ended("sidecar", 3, 1.0), ended("tensorflow", 143, 2.0)), "container sidecar exited with code 3"),
        (
            failed(ended("tensorflow", 0), reason="DeadlineExceeded"),
            "DeadlineExceeded; its training container exited with code 0",
        ),
        (failed(), "the kubelet reported no container status"),
    ],
)
def test_a_failed_job_says_which_pod_which_container_and_why(found: Pod, told: str) -> None:
    """U8: after the words that clients match."""
    clients_match = "TFJob ns/mnist has failed because 1 Worker replica(s) failed. "
    assert message_of(found) == f"{clients_match}Pod mnist-worker-0: {told}"


def test_the_first_of_several_failed_pods_is_named() -> None:
    """U8: the others may have failed because of it. Without times the lowest index is named."""
    message = message_of(
        *(failed(ended("tensorflow", 1, at_s), index=index) for index, at_s in enumerate((9.0, 2.0, 5.0)))
    )
    several, first = "TFJob ns/mnist has failed because 3 Worker replica(s) failed", "The first was pod mnist-worker-1"
    assert message == f"{several}. {first}: container tensorflow exited with code 1"
    assert f"{first}: NodeLost" in message_of(failed(reason="NodeLost", index=2), failed(reason="NodeLost", index=1))


def restarted(index: int, times: int, last: ContainerStateTerminated | None = None) -> Pod:
    """A pod whose container its kubelet has restarted."""
    found = pod("Worker", index, policy="OnFailure", restarts=times)
    (status,) = found.status.container_statuses or ()
    return changed(found, status__container_statuses=(changed(status, last_state=LastState(terminated=last)),))


def test_at_the_backoff_limit_the_replica_is_named_that_was_restarted_most() -> None:
    """U8: with its last exit, which the pod reports also for a container that runs again; of two, that of the lowest index."""
    last = ContainerStateTerminated(exit_code=137, reason="OOMKilled", message="allocating")
    assert message_of(restarted(0, 1), restarted(1, 4, last), pod("Worker", 2), policy="OnFailure", backoffLimit=3) == (
        "Job mnist has failed because it has reached the specified backoff limit. Pod mnist-worker-1 was restarted most often "
        "(4 times); its last failure: container tensorflow exited with code 137 (OOMKilled): allocating"
    )
    message = message_of(restarted(1, 2), restarted(0, 2), policy="OnFailure", backoffLimit=3)
    assert message.endswith("Pod mnist-worker-0 was restarted most often (2 times)")  # and no last state is guessed


def test_the_failure_that_reaches_the_backoff_limit_is_no_restart() -> None:
    """Its pod is not replaced any more; with a limit of 0 nothing was restarted."""
    last = failed(ended("tensorflow", 137))
    earlier = IndexRestarts(type="Worker", index=0, pod="the pod before", replaced=True)
    first = "Job mnist has failed because it has reached the specified backoff limit. Pod mnist-worker-0"
    exit_ = "container tensorflow exited with code 137"
    assert message_of(last, policy="ExitCode", backoffLimit=0) == f"{first}: {exit_}"
    assert message_of(last, policy="ExitCode", restarts=(earlier,), backoffLimit=1) == (
        f"{first} was restarted most often (once); its last failure: {exit_}"
    )


def test_a_message_stays_short_whatever_processes_and_nodes_say() -> None:
    """U8, D5: termination messages have up to 4 KB each, and nothing bounds what a node says."""
    long = ended("tensorflow", 1, reason="R" * 5000, message="m" * 90_000)
    assert len(message_of(failed(long, reason="r" * 5000, message="e" * 90_000)).encode()) < 1024


@pytest.mark.parametrize("grace_s", [10**11, 10**15, 2**63 - 1])
def test_an_absurd_grace_crashes_nothing(grace_s: int) -> None:
    """D20: the API server accepts a termination grace of thousands of years."""
    going = changed(
        pod("Worker", 0, "Running", 0, terminating=True, ended_s=-5),
        metadata__deletion_grace_period_seconds=grace_s,
        spec=PodSpec("Never", termination_grace_period_seconds=grace_s, containers=(Container(name="tensorflow"),)),
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
