"""Creating and deleting children, against a client that records and fails as told."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from fakes.api import status_error
from fakes.controller import CREATE_POD, CREATE_SERVICE, Parts
from fakes.jobs import JOB_UID, OWNER, good_spec, job, owned_by, pod, service, spec
from fakes.source import running
from fakes.transport import slow_server
from kit.virtual_loop import VirtualClock
from tfjob_operator.api.client import RestClient, errors
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.jobs.blocked import REPEAT_AFTER_S
from tfjob_operator.controller.jobs.children import LINGER_LIMIT_S, ReplicaKey
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.pending import PendingStatus
from tfjob_operator.controller.jobs.writes import RefusedError
from tfjob_operator.controller.leaderelection import Fence, FencedTransport
from tfjob_operator.controller.tfjob.build.builder import labels_of
from tfjob_operator.controller.tfjob.plan.types import Plan, PodDeletion
from unit.controller.leaderelection.model import renew

JOB = job(spec(Worker=130))
SPEC = good_spec(JOB)
MIN_BATCHED = tuple(ReplicaKey.of("mnist", "Worker", index) for index in range(130))
FIRST, SLOTS = MIN_BATCHED[:1], MIN_BATCHED[:8]
QUOTA = status_error(errors.ForbiddenError, 403, "exceeded quota")
LABELLED = {"labels": {c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME}}
NO_ANSWER = errors.RequestTimeoutError("no answer")


async def create(world: Parts, slots: tuple[ReplicaKey, ...] = FIRST) -> None:
    await world.creator.create(JOB, SPEC, Plan(create_pods=slots, create_services=slots))


def created(world: Parts) -> list[str]:
    """The messages about pods that were created."""
    return [message for _, reason, message in world.recorder.events if reason == "SuccessfulCreatePod"]


def asked_for(world: Parts, verb: str, resource: str) -> list[str]:
    """The names of the objects with which this was tried."""
    return [name for *action, name in world.client.actions if action == [verb, resource]]


async def test_a_replicas_service_is_created_before_its_pod() -> None:
    """B63: a pod must not start to look for names that cannot be resolved yet.

    Invariant: "The PodGroup is created first, then ConfigMaps, then each replica's service before its pod"
    """
    world = Parts()
    await create(world)
    assert world.client.actions == [CREATE_SERVICE, CREATE_POD]
    assert world.recorder.events == [
        ("Normal", "SuccessfulCreateService", "Created service: mnist-worker-0"),
        ("Normal", "SuccessfulCreatePod", "Created pod: mnist-worker-0"),
    ]


async def test_creations_are_expected_before_the_first_call_leaves() -> None:
    """EX-04: an event that is faster than its response must find the expectation there.

    Invariant: "An expectation is set before the create is sent"
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
    world.client.fail["create", "pods", "mnist-worker-1"] = QUOTA
    with pytest.raises(errors.ForbiddenError):
        await create(world, SLOTS)
    assert set(asked_for(world, "create", "pods")) == {f"mnist-worker-{index}" for index in range(3)}
    for kind in ("pod", "service"):
        for index in (0, 2):
            world.expectations.creation_observed(OWNER, kind, f"mnist-worker-{index}")
    assert not world.expectations.satisfied(OWNER)  # the service of worker 1 was created and is awaited
    world.expectations.creation_observed(OWNER, "service", "mnist-worker-1")
    assert world.expectations.satisfied(OWNER)
    assert any(
        "exceeded quota" in message for _, reason, message in world.recorder.events if reason == "FailedCreatePod"
    )


async def test_the_events_of_many_replicas_are_told_in_batches() -> None:
    """500 workers are eight events about pods, not 500 of which the flood control (EV-03, EV-05) writes 25.

    Small jobs have the events that the documents show; the sixteenth replica makes it a batch.
    """
    world = Parts()
    await create(world, MIN_BATCHED)
    assert sorted(created(world)) == [
        "Created 2 pods: mnist-worker-128 .. mnist-worker-129",
        "Created 64 pods: mnist-worker-0 .. mnist-worker-63",
        "Created 64 pods: mnist-worker-64 .. mnist-worker-127",
    ]
    assert world.recorder.reasons.count("SuccessfulCreateService") == 3
    for count, events in ((15, 15), (16, 1)):
        world = Parts()
        await create(world, MIN_BATCHED[:count])
        assert len(created(world)) == events


async def test_what_was_created_before_a_failure_is_told_and_no_more() -> None:
    """A batch with a gap: replica 5 is refused, and no replica of a later round is sent (SB-01)."""
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-5"] = QUOTA
    with pytest.raises(errors.ForbiddenError):
        await create(world, MIN_BATCHED)
    assert created(world) == ["Created 6 pods: mnist-worker-0 .. mnist-worker-4, mnist-worker-6"]


@pytest.mark.parametrize("why", ["exceeded quota", 'services is forbidden: User "o" cannot create'])
async def test_a_service_that_is_refused_keeps_no_pod_back_whose_service_exists(why: str) -> None:
    """A quota may count services, and the pods of a restarted job are created anew; the other services come first (SB-01)."""
    world = Parts()
    world.client.fail["create", "services", "mnist-worker-5"] = status_error(errors.ForbiddenError, 403, why)
    with pytest.raises(errors.ForbiddenError):
        await world.creator.create(JOB, SPEC, Plan(create_pods=SLOTS[:7], create_services=SLOTS[5:7]))
    assert asked_for(world, "create", "services") == ["mnist-worker-5"]
    assert asked_for(world, "create", "pods") == [f"mnist-worker-{index}" for index in range(5)]


async def test_a_pod_that_is_refused_is_tried_once_and_keeps_no_service_back() -> None:
    world = Parts()
    world.client.fail["create", "pods", "mnist-worker-0"] = QUOTA
    with pytest.raises(errors.ForbiddenError):
        await world.creator.create(JOB, SPEC, Plan(create_pods=SLOTS[:3], create_services=SLOTS[1:2]))
    assert asked_for(world, "create", "services") == ["mnist-worker-1"]
    assert asked_for(world, "create", "pods") == ["mnist-worker-1", "mnist-worker-0", "mnist-worker-2"]


async def test_a_shared_service_that_is_refused_keeps_all_pods_back() -> None:
    world = Parts()
    world.client.fail["create", "services", "mnist"] = QUOTA
    with pytest.raises(errors.ForbiddenError):
        await world.creator.create(JOB, SPEC, Plan(create_pods=SLOTS, create_services=(ReplicaKey.of_all("mnist"),)))
    assert asked_for(world, "create", "pods") == []


async def test_a_lost_response_leaves_no_expectation() -> None:
    """WR-07: whether the pod exists is unknown; the next attempt finds out."""
    world = Parts()
    world.client.fail[CREATE_POD] = NO_ANSWER
    with pytest.raises(errors.RequestTimeoutError):
        await create(world)
    world.expectations.creation_observed(OWNER, "service", "mnist-worker-0")
    assert world.expectations.satisfied(OWNER)


@pytest.mark.parametrize("count", [1, 16])
async def test_what_exists_already_and_is_ours_counts_as_created(count: int) -> None:
    """B12, B76: from an attempt whose response was lost; no event, alone or in a batch, and nothing to wait for."""
    world = Parts()
    for slot in MIN_BATCHED[:count]:
        world.client.has("pods", slot.name, **LABELLED, **owned_by(OWNER))
    await create(world, MIN_BATCHED[:count])
    for slot in MIN_BATCHED[:count]:
        world.expectations.creation_observed(OWNER, "service", slot.name)
    assert world.expectations.satisfied(OWNER)
    assert world.recorder.reasons == ["SuccessfulCreateService"]


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("metadata", "warned"),
    [
        pytest.param({}, True, id="a stranger"),
        pytest.param(owned_by("old-uid"), False, id="a child of an earlier job of this name"),
        pytest.param(DELETED, False, id="a stranger on its way out"),
    ],
)
async def test_what_exists_already_and_is_not_ours_is_left_alone(metadata: dict[str, Any], warned: bool) -> None:
    """B12, B13: it is neither adopted nor deleted; the replica waits; a person is told if only a person can mend it.

    Invariant: "Objects controlled by another object are neither adopted nor deleted"
    """
    world = Parts()
    world.client.has("services", "mnist-worker-0", **metadata)
    await create(world)
    assert world.client.actions == [CREATE_SERVICE, ("get", "services", "mnist-worker-0")]
    assert ("FailedCreateService" in world.recorder.reasons) is warned
    assert world.expectations.satisfied(OWNER)
    assert world.blocked.next_due_in_s(JOB.metadata) is not None


@pytest.mark.parametrize(("kind", "left_out"), [("services", {0, 3}), ("pods", set())])
async def test_a_replica_whose_name_is_taken_stops_no_other(kind: str, left_out: set[int]) -> None:
    """U2: one taken service name stopped all creation of the job. B63: without its service a replica gets no pod either.

    Invariant: "A replica whose name is taken does not delay other replicas"
    """
    world = Parts()
    for index in (0, 3):
        world.client.has(kind, f"mnist-worker-{index}")
    await create(world, SLOTS)
    assert set(asked_for(world, "create", "pods")) == {slot.name for slot in SLOTS if slot.index not in left_out}
    assert world.recorder.reasons.count(f"FailedCreate{kind[:-1].title()}") == 2


@pytest.mark.parametrize(
    ("owner", "whose"),
    [
        ("", "it has no owner; delete it or recreate the job"),
        ("ReplicaSet web", "it belongs to ReplicaSet web; delete it or recreate the job"),
        # a TensorBoard has the name of a job with a shared network
        ("TFJob mnist-x", "it belongs to TFJob mnist-x, which needs it; recreate one of the two jobs"),
    ],
)
async def test_a_taken_name_is_reported_with_its_holder_and_what_to_do(owner: str, whose: str) -> None:
    """U2: and once in ten minutes, however often it is tried."""
    world = Parts()
    kind, _, name = owner.partition(" ")
    owners = [{"kind": kind, "name": name, "uid": "w", "controller": True}] if owner else []
    world.client.has("services", "mnist-worker-0", ownerReferences=owners)
    for _ in range(5):
        await create(world)
    taken = "Error creating: service mnist-worker-0 already exists and is not controlled by this TFJob"
    assert world.recorder.events == [("Warning", "FailedCreateService", f"{taken}: {whose} under another name")]
    world.clock.step(REPEAT_AFTER_S)
    await create(world)
    assert len(world.recorder.events) == 2


EARLIER = "belongs to an earlier job of this name (UID uid-of-the-dead) and is left to the garbage collector"


@pytest.mark.parametrize(
    ("going", "why"),
    [
        pytest.param(DELETED, "is being deleted (UID x)", id="deleted"),
        pytest.param(owned_by("uid-of-the-dead"), EARLIER, id="left behind"),
    ],
)
async def test_a_child_of_an_earlier_job_that_lingers_is_logged_at_once_and_reported_after_a_while(
    going: dict[str, Any], why: str
) -> None:
    """B12: it mostly goes within seconds; when the garbage collector is late somebody has to see what the job waits for."""
    world = Parts()
    world.client.has("services", "mnist-worker-0", **going)
    with capture_logs() as lines:
        await create(world)
    assert [line["why"] for line in lines if line["event"] == "name_taken"] == [why]
    world.clock.step(LINGER_LIMIT_S - 1)
    await create(world)
    assert world.recorder.events == []
    world.clock.step(1)
    await create(world)
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
    world.client.fail[CREATE_POD] = status_error(errors.ForbiddenError, 403, message)
    with pytest.raises(errors.ForbiddenError):
        await create(world, SLOTS)
    assert asked_for(world, "create", "pods") == ["mnist-worker-0"]
    assert (world.blocked.next_due_in_s(JOB.metadata) is not None) is waits


@pytest.mark.parametrize(("resource", "kind"), [("pods", "Pod"), ("services", "Service")])
async def test_a_child_of_ours_that_our_watch_can_not_see_gets_its_label_back(resource: str, kind: str) -> None:
    """D13: by its UID, with a Warning. The cache then shows it."""
    world = Parts()
    world.client.has(resource, "mnist-worker-0", labels={"job-name": "mnist"}, **owned_by(JOB_UID))
    await create(world)
    assert world.client.bodies["patch", resource, "mnist-worker-0"] == {"metadata": {"uid": "x", **LABELLED}}
    ((_, reason, message),) = [event for event in world.recorder.events if event[0] == "Warning"]
    assert reason == f"Restored{kind}Labels"
    assert f"{kind.lower()} mnist-worker-0" in message


async def test_a_label_that_can_not_be_given_back_is_reported() -> None:
    """D13: the replica waits, and an event says why."""
    world = Parts()
    world.client.has("pods", "mnist-worker-0", labels={}, **owned_by(JOB_UID))
    world.client.fail["patch", "pods", "mnist-worker-0"] = status_error(errors.ForbiddenError, 403, "no patches today")
    await create(world)
    assert world.blocked.next_due_in_s(JOB.metadata) is not None
    assert "FailedRestorePodLabels" in world.recorder.reasons
    assert "no patches today" in world.recorder.events[-1][-1]


@pytest.mark.parametrize(
    ("labels", "phase", "why"),
    [
        (labels_of(JOB.metadata, SPEC, SLOTS[0]), "Succeeded", "has finished and has no owner; delete it to continue"),
        ({}, "Running", "has no owner; delete it or recreate the job under another name"),
    ],
)
async def test_an_orphan_that_is_not_adopted_is_reported(labels: dict[str, str], phase: str, why: str) -> None:
    """D15: only a person can decide that it may be deleted."""
    world = Parts()
    world.client.has("pods", "mnist-worker-0", labels=labels)
    world.client.objects["pods", "mnist-worker-0"]["status"] = {"phase": phase}
    await create(world)
    assert world.blocked.next_due_in_s(JOB.metadata) is not None
    assert world.recorder.events[-1][:2] == ("Warning", "FailedCreatePod")
    taken = "Error creating: pod mnist-worker-0 already exists and is not controlled by this TFJob: it"
    assert world.recorder.events[-1][-1] == f"{taken} {why}"


@pytest.mark.parametrize("error", [errors.InvalidError, errors.BadRequestError])
async def test_a_pod_that_the_server_calls_invalid_is_a_mistake_in_the_specification(
    error: type[errors.StatusError],
) -> None:
    """B01: `args` with a number is refused by the API server each time; it is reported as the job's mistake, not retried."""
    world = Parts()
    world.client.fail[CREATE_POD] = status_error(error, 422, "args: must be strings")
    with pytest.raises(RefusedError, match="pod mnist-worker-0 was rejected: args: must be strings"):
        await create(world)


@pytest.mark.parametrize("error", [errors.InvalidError, errors.BadRequestError])
@pytest.mark.parametrize("webhook", ['admission webhook "validatepod.volcano.sh"', "P"])
async def test_what_an_admission_webhook_denies_is_tried_again(error: type[errors.StatusError], webhook: str) -> None:
    """The API server responds with 400 for a webhook that gives no code; its verdict may change; the job is not wrong."""
    world = Parts()
    denied = f"{webhook} denied {'the ' if webhook != 'P' else ''}request: podgroup phase is Pending"
    world.client.fail[CREATE_POD] = status_error(error, 400, denied)
    with pytest.raises(error, match="denied"):
        await create(world)
    assert "FailedCreatePod" in world.recorder.reasons


@pytest.mark.parametrize(("kind", "other"), [("services", "pod"), ("pods", "service")])
async def test_a_terminating_namespace_is_no_error_and_is_not_asked_again(kind: str, other: str) -> None:
    """SB-03, controller_utils_test.go:TestCreatePods: the job is about to go too. D12: it used to be 784 creates in 15 s."""
    world = Parts()
    for slot in SLOTS:
        world.client.fail["create", kind, slot.name] = status_error(errors.NamespaceTerminatingError, 403)
    await create(world, SLOTS)
    assert len(asked_for(world, "create", kind)) == 1
    assert "FailedCreatePod" not in world.recorder.reasons
    for slot in SLOTS:  # all that was made is seen, and still no sync may act
        world.expectations.creation_observed(OWNER, other, slot.name)
    assert not world.expectations.satisfied(OWNER)


EXITED = JobEvent("Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 137")
DELETE_POD, DELETE_SERVICE = (("delete", resource, "mnist-worker-0") for resource in ("pods", "services"))


def deletion(*workers: int, event: JobEvent | None = None) -> Plan:
    """A plan that deletes pods and services of these workers, after an event about worker 0."""
    pods = tuple(PodDeletion(pod("Worker", index), event if index == 0 else None) for index in workers)
    return Plan(delete_pods=pods, delete_services=tuple(service("Worker", index) for index in workers))


def seen_to_go(world: Parts, *deleted: tuple[str, int]) -> bool:
    """Return whether all that is expected to go has gone with these children."""
    for kind, index in deleted:
        assert not world.expectations.satisfied(OWNER)
        world.expectations.deletion_observed(OWNER, kind, f"uid-mnist-worker-{index}")
    return world.expectations.satisfied(OWNER)


async def test_deletes_carry_the_uid_and_are_expected() -> None:
    """WR-08: a stale view cannot delete what was made anew under the name, nor a pod that has changed since.

    U13: of 24 restarts six had no ExitedWithCode when the operator was killed between the delete and the event.

    Invariant: "A delete specifies the UID, so it never affects another object of the same name"
    Invariant: "The last event about a pod is on the API server before the pod is deleted"
    """
    world, told = Parts(), list[list[str]]()
    world.client.before = lambda _action: told.append(list(world.recorder.reasons))
    await world.deleter.delete(JOB, deletion(0, event=EXITED))
    assert told[0] == ["ExitedWithCode"]
    preconditions = {"uid": "uid-mnist-worker-0", "propagation": None}
    assert world.client.bodies[DELETE_POD] == preconditions | {"resource_version": "5"}
    assert world.client.bodies[DELETE_SERVICE] == preconditions | {"resource_version": None}
    assert world.recorder.reasons == ["ExitedWithCode", "SuccessfulDeletePod", "SuccessfulDeleteService"]
    assert seen_to_go(world, ("pod", 0), ("service", 0))


async def test_what_is_gone_already_is_deleted() -> None:
    """B14: 404 is success without an event; the service of a pod that is gone is deleted."""
    world = Parts()
    world.client.fail[DELETE_POD] = status_error(errors.NotFoundError, 404)
    await world.deleter.delete(JOB, deletion(0))
    assert world.recorder.reasons == ["SuccessfulDeleteService"]
    assert DELETE_SERVICE in world.client.actions
    assert seen_to_go(world, ("service", 0))


async def test_the_service_of_a_pod_that_has_changed_stays_until_that_is_seen() -> None:
    """The pod may have ended by itself: then its service is kept with it. The matrix of staleness found it deleted.

    B14: another object under the name is no error, and no event.

    Invariant: "If a pod has a newer version, only pods are deleted before the next sync"
    """
    world = Parts()
    world.client.fail[DELETE_POD] = status_error(errors.ConflictError, 409)
    await world.deleter.delete(JOB, deletion(0, 1))
    assert world.client.actions == [DELETE_POD, ("delete", "pods", "mnist-worker-1")]
    assert world.recorder.reasons == ["SuccessfulDeletePod"]
    assert seen_to_go(world, ("pod", 1))


async def test_a_delete_that_fails_stops_no_other_and_is_reported() -> None:
    """Each is tried, the first error is raised, and the failed one is not awaited."""
    world = Parts()
    world.client.fail[DELETE_POD] = NO_ANSWER
    with pytest.raises(errors.RequestTimeoutError):
        await world.deleter.delete(JOB, Plan(delete_pods=deletion(0, 1).delete_pods))
    assert ("delete", "pods", "mnist-worker-1") in world.client.actions
    assert world.recorder.reasons == ["FailedDeletePod", "SuccessfulDeletePod"]
    assert seen_to_go(world, ("pod", 1))


async def test_a_pod_whose_end_can_not_be_told_now_stays() -> None:
    """U13: the sync is tried again, and no deletion of it is expected; pods without such an event are deleted."""
    world = Parts()
    world.recorder.refuses = NO_ANSWER
    with pytest.raises(errors.RequestTimeoutError):
        await world.deleter.delete(JOB, Plan(delete_pods=deletion(0, 1, event=EXITED).delete_pods))
    assert world.client.actions == [("delete", "pods", "mnist-worker-1")]
    assert seen_to_go(world, ("pod", 1))


async def test_a_job_that_has_changed_is_not_deleted_and_nothing_is_told() -> None:
    """Its TTL may have been edited: the next sync decides anew."""
    world = Parts()
    world.client.fail["delete", "tfjobs", "mnist"] = status_error(errors.ConflictError, 409)
    with pytest.raises(errors.ConflictError):
        await world.deleter.delete_job(JOB)
    assert world.recorder.events == []


async def test_a_job_of_a_thousand_leaves_room_for_the_writes_of_others() -> None:
    """D8: with a lease renewed all the time nothing fails, and another job's status waits for no connection."""
    loop, fence, server = asyncio.get_running_loop(), Fence(VirtualClock()), slow_server()
    world = Parts(RestClient(FencedTransport(server, fence)))
    large, small = job(spec(Worker=1000)), job(spec(Worker=1))
    slots = tuple(ReplicaKey.of("mnist", "Worker", index) for index in range(1000))

    async with running(renew(fence)):
        await asyncio.sleep(0)
        creating = asyncio.create_task(world.creator.create(large, good_spec(large), Plan(create_pods=slots)))
        while not creating.done():
            await asyncio.sleep(3.5)
            began = loop.time()
            assert await world.writer.write(small, small.status, (), PendingStatus()) is not None
            assert loop.time() - began == 1.0
        await creating
    assert set(server.waited_s) == {0.0}
    assert server.most_at_once == 16 + 1
