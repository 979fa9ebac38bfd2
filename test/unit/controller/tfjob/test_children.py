"""Creating and deleting children, against a client that records and fails as told."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.api import status_error
from fakes.controller import Parts
from fakes.jobs import JOB_UID, OWNER, good_spec, job, pod, replica, service
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    ApiError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NamespaceTerminatingError,
    NotFoundError,
    RequestTimeoutError,
    StatusError,
)
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.writes import RefusedError
from tfjob_operator.controller.tfjob.apply.conflicts import LINGERS_S, REPEAT_AFTER_S
from tfjob_operator.controller.tfjob.build.children import labels_of
from tfjob_operator.controller.tfjob.plan.actions import Plan, PodDeletion

JOB = job({"tfReplicaSpecs": {"Worker": replica(8)}})
SPEC = good_spec(JOB)
SLOTS = tuple(ReplicaKey("Worker", index, f"mnist-worker-{index}") for index in range(8))


async def create(world: Parts, slots: tuple[ReplicaKey, ...]) -> None:
    """Create pod and service of these replicas."""
    await world.creator.create(JOB, SPEC, Plan(create_pods=slots, create_services=slots))


async def test_a_replicas_service_is_created_before_its_pod() -> None:
    """B63: a pod must not start to look for names that cannot be resolved yet.

    Invariant: "The PodGroup is created before all pods, and a replica's service before its pod"
    """
    world = Parts()
    await create(world, SLOTS[:1])
    assert world.client.actions == [("create", "services", "mnist-worker-0"), ("create", "pods", "mnist-worker-0")]
    assert world.recorder.events == [
        ("Normal", "SuccessfulCreateService", "Created service: mnist-worker-0"),
        ("Normal", "SuccessfulCreatePod", "Created pod: mnist-worker-0"),
    ]


async def test_creations_are_expected_before_the_first_call_leaves() -> None:
    """EX-04: an event that is faster than its response must find the expectation there.

    Invariant: "An expectation is set before its create is sent"
    """
    world = Parts()
    seen: list[bool] = []
    world.client.before = lambda _action: seen.append(world.expectations.satisfied(OWNER))
    await create(world, SLOTS[:2])
    assert seen == [False] * 4
    for kind in ("pod", "service"):
        for slot in SLOTS[:2]:
            world.expectations.creation_observed(OWNER, kind, slot.name)
    assert world.expectations.satisfied(OWNER)


async def test_after_a_failure_no_further_batch_is_begun_and_nothing_is_expected_of_it() -> None:
    """SB-01, SB-02, replica_set_test.go:TestSyncReplicaSetCreateFailures."""
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-1"] = status_error(ForbiddenError, 403, "exceeded quota")
    with pytest.raises(ForbiddenError):
        await create(world, SLOTS)
    assert {name for verb, resource, name in world.client.actions if resource == "pods"} == {
        f"mnist-worker-{index}" for index in range(3)
    }
    for kind in ("pod", "service"):
        for index in (0, 2):
            world.expectations.creation_observed(OWNER, kind, f"mnist-worker-{index}")
    assert not world.expectations.satisfied(OWNER)  # the service of worker 1 was created and is awaited
    world.expectations.creation_observed(OWNER, "service", "mnist-worker-1")
    assert world.expectations.satisfied(OWNER)
    assert "FailedCreatePod" in world.recorder.reasons
    assert any("exceeded quota" in message for _, _, message in world.recorder.events)


MANY = tuple(ReplicaKey("Worker", index, f"mnist-worker-{index}") for index in range(130))


async def test_the_events_of_many_replicas_are_told_in_batches() -> None:
    """500 workers are eight events about pods, not 500 of which the flood control (EV-03, EV-05) writes 25."""
    world = Parts()
    await create(world, MANY)
    pods = [message for _, reason, message in world.recorder.events if reason == "SuccessfulCreatePod"]
    assert sorted(pods) == [
        "Created 2 pods: mnist-worker-128 .. mnist-worker-129",
        "Created 64 pods: mnist-worker-0 .. mnist-worker-63",
        "Created 64 pods: mnist-worker-64 .. mnist-worker-127",
    ]
    assert world.recorder.reasons.count("SuccessfulCreateService") == 3


async def test_fifteen_replicas_are_told_of_one_by_one() -> None:
    """Small jobs have the events that the documents show; the sixteenth replica makes it a batch."""
    for count, events in ((15, 15), (16, 1)):
        world = Parts()
        await create(world, MANY[:count])
        assert world.recorder.reasons.count("SuccessfulCreatePod") == events


async def test_what_was_created_before_a_failure_is_told_and_no_more() -> None:
    """A batch with a gap: replica 5 is refused, and no replica of a later round is sent (SB-01)."""
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-5"] = status_error(ForbiddenError, 403, "exceeded quota")
    with pytest.raises(ForbiddenError):
        await create(world, MANY)
    created = [message for _, reason, message in world.recorder.events if reason == "SuccessfulCreatePod"]
    assert created == ["Created 6 pods: mnist-worker-0 .. mnist-worker-4, mnist-worker-6"]


async def test_of_a_batch_that_existed_already_nothing_is_told() -> None:
    """B12: the events of an attempt whose response was lost are not repeated for others."""
    world = Parts()
    for key in MANY[:16]:
        world.client.fail["create", "pods", key.name] = status_error(AlreadyExistsError, 409)
        world.client.objects["pods", key.name] = existing(name=key.name, **owned_by(OWNER))
    await create(world, MANY[:16])
    assert "SuccessfulCreatePod" not in world.recorder.reasons


async def test_a_lost_response_leaves_no_expectation() -> None:
    """WR-07: whether the pod exists is unknown; the next attempt finds out."""
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-0"] = RequestTimeoutError("no answer")
    with pytest.raises(RequestTimeoutError):
        await create(world, SLOTS[:1])
    world.expectations.creation_observed(OWNER, "service", "mnist-worker-0")
    assert world.expectations.satisfied(OWNER)


def existing(**metadata: Any) -> dict[str, Any]:
    """An object that has the name already."""
    labels = {c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME}
    return {"metadata": {"name": "mnist-worker-0", "namespace": "ns", "uid": "x", "labels": labels} | metadata}


def owned_by(uid: str) -> dict[str, Any]:
    """Metadata of a child of the job of that UID."""
    return {"ownerReferences": [{"kind": "TFJob", "name": "mnist", "uid": uid, "controller": True}]}


async def test_what_exists_already_and_is_ours_counts_as_created() -> None:
    """B12, B76: from an attempt whose response was lost; no event, and nothing to wait for."""
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-0"] = status_error(AlreadyExistsError, 409)
    world.client.objects["pods", "mnist-worker-0"] = existing(**owned_by(OWNER))
    await create(world, SLOTS[:1])
    world.expectations.creation_observed(OWNER, "service", "mnist-worker-0")
    assert world.expectations.satisfied(OWNER)
    assert world.recorder.reasons == ["SuccessfulCreateService"]


@pytest.mark.parametrize(
    ("metadata", "warned"),
    [
        pytest.param({}, True, id="a stranger"),
        pytest.param(owned_by("old-uid"), False, id="a child of an earlier job of this name"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, False, id="a stranger on its way out"),
    ],
)
async def test_what_exists_already_and_is_not_ours_is_left_alone(metadata: dict[str, Any], warned: bool) -> None:
    """B12, B13: it is neither adopted nor deleted; the replica waits; a person is told if only a person can mend it.

    Invariant: "What another object controls is neither adopted nor deleted"
    """
    world = Parts()
    world.client.fail["create", "services", "mnist-worker-0"] = status_error(AlreadyExistsError, 409)
    world.client.objects["services", "mnist-worker-0"] = existing(**metadata)
    await create(world, SLOTS[:1])
    assert ("create", "pods", "mnist-worker-0") not in world.client.actions
    assert ("FailedCreateService" in world.recorder.reasons) is warned
    assert world.expectations.satisfied(OWNER)
    assert world.blocked.next_due_in_s(JOB.metadata) is not None


@pytest.mark.parametrize("kind", ["services", "pods"])
async def test_a_replica_whose_name_is_taken_stops_no_other(kind: str) -> None:
    """U2: one taken service name stopped all creation of the job. B63: without its service a replica gets no pod either.

    Invariant: "A replica whose name is taken waits alone"
    """
    world = Parts()
    for taken in (0, 3):
        name = f"mnist-worker-{taken}"
        world.client.fail["create", kind, name] = status_error(AlreadyExistsError, 409)
        world.client.objects[kind, name] = existing()
    await create(world, SLOTS)
    asked = {name for verb, resource, name in world.client.actions if (verb, resource) == ("create", "pods")}
    left_out = {"mnist-worker-0", "mnist-worker-3"} if kind == "services" else set()
    assert asked == {slot.name for slot in SLOTS} - left_out
    failed = "FailedCreateService" if kind == "services" else "FailedCreatePod"
    assert world.recorder.reasons.count(failed) == 2


@pytest.mark.parametrize(
    ("owners", "whose"),
    [
        ([], "it has no owner; delete it or recreate the job"),
        (
            [{"kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}],
            "it belongs to ReplicaSet web; delete it or recreate the job",
        ),
        (  # a TensorBoard has the name of a job with a shared network
            [{"kind": "TFJob", "name": "mnist-x", "uid": "w", "controller": True}],
            "it belongs to TFJob mnist-x, which needs it; recreate one of the two jobs",
        ),
    ],
)
async def test_a_taken_name_is_reported_with_its_holder_and_what_to_do(
    owners: list[dict[str, Any]], whose: str
) -> None:
    """U2: and once in ten minutes, however often it is tried."""
    world = Parts()
    world.client.fail["create", "services", "mnist-worker-0"] = status_error(AlreadyExistsError, 409)
    world.client.objects["services", "mnist-worker-0"] = existing(ownerReferences=owners)
    for _ in range(5):
        await create(world, SLOTS[:1])
    told = (
        "Error creating: service mnist-worker-0 already exists and is not controlled by this TFJob: "
        f"{whose} under another name"
    )
    assert world.recorder.events == [("Warning", "FailedCreateService", told)]
    world.clock.step(REPEAT_AFTER_S)
    await create(world, SLOTS[:1])
    assert len(world.recorder.events) == 2


@pytest.mark.parametrize(
    ("going", "why"),
    [
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "is being deleted (UID x)", id="deleted"),
        pytest.param(
            owned_by("uid-of-the-dead"),
            "belongs to an earlier job of this name (UID uid-of-the-dead) and is left to the garbage collector",
            id="left behind",
        ),
    ],
)
async def test_a_child_of_an_earlier_job_that_lingers_is_logged_at_once_and_reported_after_a_while(
    going: dict[str, Any], why: str
) -> None:
    """B12: it mostly goes within seconds; when the garbage collector is late somebody has to see what the job waits for."""
    world = Parts()
    world.client.fail["create", "services", "mnist-worker-0"] = status_error(AlreadyExistsError, 409)
    world.client.objects["services", "mnist-worker-0"] = existing(**going)
    with capture_logs() as lines:
        await create(world, SLOTS[:1])
    assert [line["why"] for line in lines if line["event"] == "name_taken"] == [why]
    world.clock.step(LINGERS_S - 1)
    await create(world, SLOTS[:1])
    assert world.recorder.events == []
    world.clock.step(1)
    await create(world, SLOTS[:1])
    told = f"Error creating: service mnist-worker-0 already exists and is not controlled by this TFJob: it {why}"
    assert world.recorder.events == [("Warning", "FailedCreateService", told)]


@pytest.mark.parametrize(
    ("message", "waits"),
    [
        ('pods "mnist-worker-0" is forbidden: violates PodSecurity "baseline:latest": privileged', True),
        ('admission webhook "names.example.com" denied the request: this one not', True),
        ('pods "mnist-worker-0" is forbidden: exceeded quota: small, requested: pods=1', False),
        ('pods is forbidden: User "system:serviceaccount:x:y" cannot create resource "pods"', False),
    ],
)
async def test_what_a_policy_refuses_waits_by_itself_and_a_quota_holds_all_up(message: str, waits: bool) -> None:
    """U2, SB-01: either ends the batch, so nothing is repeated for 500 pods; what a policy refuses lets others go first."""
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-0"] = status_error(ForbiddenError, 403, message)
    with pytest.raises(ForbiddenError):
        await create(world, SLOTS)
    assert [name for verb, kind, name in world.client.actions if (verb, kind) == ("create", "pods")] == [
        "mnist-worker-0"
    ]
    assert (world.blocked.next_due_in_s(JOB.metadata) is not None) is waits


async def test_a_child_of_ours_that_our_watch_can_not_see_gets_its_label_back() -> None:
    """D13: for pods and services; by its UID, with a Warning. The cache then shows it."""
    for resource, kind in (("pods", "Pod"), ("services", "Service")):
        world = Parts()
        world.client.fail["create", resource, "mnist-worker-0"] = status_error(AlreadyExistsError, 409)
        world.client.objects[resource, "mnist-worker-0"] = existing(labels={"job-name": "mnist"}, **owned_by(JOB_UID))
        await create(world, SLOTS[:1])
        assert world.client.bodies["patch", resource, "mnist-worker-0"] == {
            "metadata": {"uid": "x", "labels": {c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME}}
        }
        ((warning, reason, message),) = [event for event in world.recorder.events if event[0] == "Warning"]
        assert (warning, reason) == ("Warning", f"Restored{kind}Labels")
        assert f"{kind.lower()} mnist-worker-0" in message


async def test_a_label_that_can_not_be_given_back_is_reported() -> None:
    """D13: the replica waits, and an event says why."""
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-0"] = status_error(AlreadyExistsError, 409)
    world.client.fail["patch", "pods", "mnist-worker-0"] = status_error(ForbiddenError, 403, "no patches today")
    world.client.objects["pods", "mnist-worker-0"] = existing(labels={}, **owned_by(JOB_UID))
    await create(world, SLOTS[:1])
    assert world.blocked.next_due_in_s(JOB.metadata) is not None
    assert "FailedRestorePodLabels" in world.recorder.reasons
    assert "no patches today" in world.recorder.events[-1][-1]


async def test_an_ended_orphan_that_stands_in_the_way_is_told_of() -> None:
    """D15: it is not adopted, and only a person can say that it may go."""
    world = Parts()
    labels = labels_of(JOB.metadata, SPEC, SLOTS[0])
    world.client.fail["create", "pods", "mnist-worker-0"] = status_error(AlreadyExistsError, 409)
    world.client.objects["pods", "mnist-worker-0"] = existing(labels=labels) | {"status": {"phase": "Succeeded"}}
    await create(world, SLOTS[:1])
    assert world.blocked.next_due_in_s(JOB.metadata) is not None
    assert world.recorder.events[-1][:2] == ("Warning", "FailedCreatePod")
    assert "pod mnist-worker-0 already exists" in world.recorder.events[-1][-1]
    assert "it has finished and has no owner" in world.recorder.events[-1][-1]


@pytest.mark.parametrize("error", [InvalidError, BadRequestError])
async def test_a_pod_that_the_server_calls_invalid_is_a_mistake_in_the_specification(error: type[StatusError]) -> None:
    """B01: `args` with a number is refused by the API server each time; it is reported as the job's mistake, not retried."""
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-0"] = status_error(error, 422, "args: must be strings")
    with pytest.raises(RefusedError, match="pod mnist-worker-0 was rejected: args: must be strings"):
        await create(world, SLOTS[:1])


@pytest.mark.parametrize("error", [InvalidError, BadRequestError])
@pytest.mark.parametrize(
    "message",
    [
        'admission webhook "validatepod.volcano.sh" denied the request: podgroup phase is Pending',
        "P denied request: no",
    ],
)
async def test_what_an_admission_webhook_denies_is_tried_again(error: type[StatusError], message: str) -> None:
    """The API server responds with 400 for a webhook that gives no code; its verdict may change; the job is not wrong."""
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-0"] = status_error(error, 400, message)
    with pytest.raises(error, match="denied"):
        await create(world, SLOTS[:1])
    assert "FailedCreatePod" in world.recorder.reasons


@pytest.mark.parametrize("kind", ["services", "pods"])
async def test_a_terminating_namespace_is_no_error_and_is_not_asked_again(kind: str) -> None:
    """SB-03, controller_utils_test.go:TestCreatePods: the job is about to go too. D12: it used to be 784 creates in 15 s."""
    world = Parts()
    for slot in SLOTS:
        world.client.fail["create", kind, slot.name] = status_error(NamespaceTerminatingError, 403)
    await create(world, SLOTS)
    refused = [action for action in world.client.actions if action[1] == kind]
    assert len(refused) == 1
    assert "FailedCreatePod" not in world.recorder.reasons
    for slot in SLOTS:  # all that was made is seen, and still no sync may act
        world.expectations.creation_observed(OWNER, "service" if kind == "pods" else "pod", slot.name)
    assert not world.expectations.satisfied(OWNER)


TWO_WORKERS = job()


async def test_deletes_carry_the_uid_and_are_expected() -> None:
    """WR-08: a stale view cannot delete what was made anew under the name, nor a pod that has changed since.

    Invariant: "A delete carries the UID, so another object of the same name is not deleted"
    """
    world = Parts()
    exited = JobEvent("Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 137")
    plan = Plan(delete_pods=(PodDeletion(pod("Worker", 0), exited),), delete_services=(service("Worker", 0),))
    await world.deleter.delete(TWO_WORKERS, plan)
    assert world.client.bodies["delete", "pods", "mnist-worker-0"] == {
        "uid": "uid-mnist-worker-0",
        "resource_version": "5",
        "propagation": None,
    }
    assert world.client.bodies["delete", "services", "mnist-worker-0"] == {
        "uid": "uid-mnist-worker-0",
        "resource_version": None,
        "propagation": None,
    }
    assert world.recorder.reasons == ["ExitedWithCode", "SuccessfulDeletePod", "SuccessfulDeleteService"]
    for kind in ("pod", "service"):
        assert not world.expectations.satisfied(OWNER)
        world.expectations.deletion_observed(OWNER, kind, "uid-mnist-worker-0")
    assert world.expectations.satisfied(OWNER)


@pytest.mark.parametrize("error", [status_error(NotFoundError, 404), status_error(ConflictError, 409)])
async def test_what_is_gone_already_is_deleted(error: ApiError) -> None:
    """B14: 404, or another object under the name, is success without an event."""
    world = Parts()
    world.client.fail["delete", "pods", "mnist-worker-0"] = error
    await world.deleter.delete(TWO_WORKERS, Plan(delete_pods=(PodDeletion(pod("Worker", 0)),)))
    assert world.recorder.events == []
    assert world.expectations.satisfied(OWNER)


async def test_the_service_of_a_pod_that_has_changed_stays_until_that_is_seen() -> None:
    """The pod may have ended by itself: then its service is kept with it. The matrix of staleness found it deleted.

    Invariant: "When a pod has such a version, nothing else is deleted before that sync"
    """
    world = Parts()
    world.client.fail["delete", "pods", "mnist-worker-0"] = status_error(ConflictError, 409)
    plan = Plan(
        delete_pods=(PodDeletion(pod("Worker", 0)), PodDeletion(pod("Worker", 1))),
        delete_services=(service("Worker", 0), service("Worker", 1)),
    )
    await world.deleter.delete(TWO_WORKERS, plan)
    assert ("delete", "pods", "mnist-worker-1") in world.client.actions
    assert not [action for action in world.client.actions if action[:2] == ("delete", "services")]
    world.expectations.deletion_observed(OWNER, "pod", "uid-mnist-worker-1")
    assert world.expectations.satisfied(OWNER)


async def test_the_service_of_a_pod_that_is_gone_is_deleted() -> None:
    world = Parts()
    world.client.fail["delete", "pods", "mnist-worker-0"] = status_error(NotFoundError, 404)
    plan = Plan(delete_pods=(PodDeletion(pod("Worker", 0)),), delete_services=(service("Worker", 0),))
    await world.deleter.delete(TWO_WORKERS, plan)
    assert ("delete", "services", "mnist-worker-0") in world.client.actions


async def test_a_delete_that_fails_stops_no_other_and_is_reported() -> None:
    """Each is tried, the first error is raised, and the failed one is not awaited."""
    world = Parts()
    world.client.fail["delete", "pods", "mnist-worker-0"] = RequestTimeoutError("no answer")
    plan = Plan(delete_pods=(PodDeletion(pod("Worker", 0)), PodDeletion(pod("Worker", 1))))
    with pytest.raises(RequestTimeoutError):
        await world.deleter.delete(TWO_WORKERS, plan)
    assert ("delete", "pods", "mnist-worker-1") in world.client.actions
    assert world.recorder.reasons == ["FailedDeletePod", "SuccessfulDeletePod"]
    world.expectations.deletion_observed(OWNER, "pod", "uid-mnist-worker-1")
    assert world.expectations.satisfied(OWNER)


EXITED = JobEvent("Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 137")


def recorded_before(world: Parts) -> list[list[str]]:
    """Return a list to which each request adds the reasons of the events that were recorded before it."""
    told: list[list[str]] = []
    world.client.before = lambda _action: told.append(list(world.recorder.reasons))
    return told


async def test_what_a_pod_proves_is_reported_before_it_is_deleted() -> None:
    """U13: of 24 restarts six had no ExitedWithCode when the operator was killed between the delete and the event.

    Invariant: "The last event about a pod is on the API server before the pod is deleted"
    """
    world = Parts()
    told = recorded_before(world)
    await world.deleter.delete(TWO_WORKERS, Plan(delete_pods=(PodDeletion(pod("Worker", 0), EXITED),)))
    assert told == [["ExitedWithCode"]]


async def test_a_pod_whose_end_can_not_be_told_now_stays() -> None:
    """U13: the sync is tried again, and no deletion of it is expected; pods without such an event are deleted."""
    world = Parts()
    world.recorder.refuses = RequestTimeoutError("no answer")
    plan = Plan(delete_pods=(PodDeletion(pod("Worker", 0), EXITED), PodDeletion(pod("Worker", 1))))
    with pytest.raises(RequestTimeoutError):
        await world.deleter.delete(TWO_WORKERS, plan)
    assert world.client.actions == [("delete", "pods", "mnist-worker-1")]
    world.expectations.deletion_observed(OWNER, "pod", "uid-mnist-worker-1")
    assert world.expectations.satisfied(OWNER)
