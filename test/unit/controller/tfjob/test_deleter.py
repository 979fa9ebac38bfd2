"""Deleting children, against a client that records and fails as told."""

from __future__ import annotations

import pytest

from fakes.api import FakeClient, status_error
from fakes.clock import FakeClock
from fakes.jobs import OWNER, job, pod, service
from fakes.recorder import FakeRecorder, job_events
from tfjob_operator.api.client.errors import ApiError, ConflictError, NotFoundError, RequestTimeoutError
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.tfjob.apply.children import Deleter
from tfjob_operator.controller.tfjob.plan.actions import Plan, PodDeletion

JOB = job()


class DeleterHarness:
    """A deleter and what surrounds it."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.recorder = FakeRecorder()
        self.expectations = Expectations(FakeClock())
        self.deleter = Deleter(self.client, job_events(self.recorder), self.expectations)


async def test_deletes_carry_the_uid_and_are_expected() -> None:
    """WR-08: a stale view cannot delete what was made anew under the name, nor a pod that has changed since.

    Invariant: "A delete carries the UID, so another object of the same name is not deleted"
    """
    world = DeleterHarness()
    exited = JobEvent("Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 137")
    plan = Plan(delete_pods=(PodDeletion(pod("Worker", 0), exited),), delete_services=(service("Worker", 0),))
    await world.deleter.delete(JOB, plan)
    assert world.client.bodies["delete", "pods", "mnist-worker-0"] == {
        "uid": "uid-mnist-worker-0",
        "resource_version": "5",
    }
    assert world.client.bodies["delete", "services", "mnist-worker-0"] == {
        "uid": "uid-mnist-worker-0",
        "resource_version": None,
    }
    assert world.recorder.reasons == ["ExitedWithCode", "SuccessfulDeletePod", "SuccessfulDeleteService"]
    for kind in ("pod", "service"):
        assert not world.expectations.satisfied(OWNER)
        world.expectations.deletion_observed(OWNER, kind, "uid-mnist-worker-0")
    assert world.expectations.satisfied(OWNER)


@pytest.mark.parametrize("error", [status_error(NotFoundError, 404), status_error(ConflictError, 409)])
async def test_what_is_gone_already_is_deleted(error: ApiError) -> None:
    """B14: 404, or another object under the name, is success without an event."""
    world = DeleterHarness()
    world.client.fail["delete", "pods", "mnist-worker-0"] = error
    await world.deleter.delete(JOB, Plan(delete_pods=(PodDeletion(pod("Worker", 0)),)))
    assert world.recorder.events == []
    assert world.expectations.satisfied(OWNER)


async def test_the_service_of_a_pod_that_has_changed_stays_until_that_is_seen() -> None:
    """The pod may have ended by itself: then its service is kept with it. The matrix of staleness found it deleted.

    Invariant: "When a pod has such a version, nothing else is deleted before that sync"
    """
    world = DeleterHarness()
    world.client.fail["delete", "pods", "mnist-worker-0"] = status_error(ConflictError, 409)
    plan = Plan(
        delete_pods=(PodDeletion(pod("Worker", 0)), PodDeletion(pod("Worker", 1))),
        delete_services=(service("Worker", 0), service("Worker", 1)),
    )
    await world.deleter.delete(JOB, plan)
    assert ("delete", "pods", "mnist-worker-1") in world.client.actions
    assert not [action for action in world.client.actions if action[:2] == ("delete", "services")]
    world.expectations.deletion_observed(OWNER, "pod", "uid-mnist-worker-1")
    assert world.expectations.satisfied(OWNER)


async def test_the_service_of_a_pod_that_is_gone_is_deleted() -> None:
    world = DeleterHarness()
    world.client.fail["delete", "pods", "mnist-worker-0"] = status_error(NotFoundError, 404)
    plan = Plan(delete_pods=(PodDeletion(pod("Worker", 0)),), delete_services=(service("Worker", 0),))
    await world.deleter.delete(JOB, plan)
    assert ("delete", "services", "mnist-worker-0") in world.client.actions


async def test_a_delete_that_fails_stops_no_other_and_is_reported() -> None:
    """Each is tried, the first error is raised, and the failed one is not awaited."""
    world = DeleterHarness()
    world.client.fail["delete", "pods", "mnist-worker-0"] = RequestTimeoutError("no answer")
    plan = Plan(delete_pods=(PodDeletion(pod("Worker", 0)), PodDeletion(pod("Worker", 1))))
    with pytest.raises(RequestTimeoutError):
        await world.deleter.delete(JOB, plan)
    assert ("delete", "pods", "mnist-worker-1") in world.client.actions
    assert world.recorder.reasons == ["FailedDeletePod", "SuccessfulDeletePod"]
    world.expectations.deletion_observed(OWNER, "pod", "uid-mnist-worker-1")
    assert world.expectations.satisfied(OWNER)


EXITED = JobEvent("Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 137")


def recorded_before(world: DeleterHarness) -> list[list[str]]:
    """Return a list to which each request adds the reasons of the events that were recorded before it."""
    told: list[list[str]] = []
    world.client.before = lambda _action: told.append(list(world.recorder.reasons))
    return told


async def test_what_a_pod_proves_is_reported_before_it_is_deleted() -> None:
    """U13: of 24 restarts six had no ExitedWithCode when the operator was killed between the delete and the event.

    Invariant: "The last event about a pod is on the API server before the pod is deleted"
    """
    world = DeleterHarness()
    told = recorded_before(world)
    await world.deleter.delete(JOB, Plan(delete_pods=(PodDeletion(pod("Worker", 0), EXITED),)))
    assert told == [["ExitedWithCode"]]


async def test_a_pod_whose_end_can_not_be_told_now_stays() -> None:
    """U13: the sync is tried again, and no deletion of it is expected; pods without such an event are deleted."""
    world = DeleterHarness()
    world.recorder.refuses = RequestTimeoutError("no answer")
    plan = Plan(delete_pods=(PodDeletion(pod("Worker", 0), EXITED), PodDeletion(pod("Worker", 1))))
    with pytest.raises(RequestTimeoutError):
        await world.deleter.delete(JOB, plan)
    assert world.client.actions == [("delete", "pods", "mnist-worker-1")]
    world.expectations.deletion_observed(OWNER, "pod", "uid-mnist-worker-1")
    assert world.expectations.satisfied(OWNER)
