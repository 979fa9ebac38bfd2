"""What keeps pods from starting is reported, once."""

from __future__ import annotations

import msgspec
import pytest

from fakes.jobs import good_spec, job, observed, pod, replica
from fakes.recorder import FakeRecorder, job_events
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.core import Condition, ContainerState, ContainerStateWaiting, ContainerStatus
from tfjob_operator.api.meta import Meta
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.events import MOST_PER_REASON
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
