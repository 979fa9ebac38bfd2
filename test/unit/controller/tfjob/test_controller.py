"""Syncs and workers, on real stores and queue, against a client that records."""

import asyncio
import contextlib
from typing import Any, cast

import msgspec
import pytest
from pytest_mock import MockerFixture
from structlog.testing import capture_logs

from fakes.api import FakeClient, status_error
from fakes.controller import CREATE_POD, CREATE_SERVICE, KEY, LOOK, STATUS, ControllerHarness
from fakes.jobs import JOB_UID, OWNER, all_workers, job, pod, replica, service, spec, template, with_condition
from fakes.objects import changed
from kit.virtual_loop import EPOCH
from tfjob_operator.api.client import errors
from tfjob_operator.api.meta import OwnerKey, OwnerReference
from tfjob_operator.api.v1.types import IndexRestarts, JobCondition, JobStatus, TFJob
from tfjob_operator.controller.jobs.blocked import BlockedChildren
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.handlers import Feed
from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S
from tfjob_operator.controller.jobs.writes import StaleViewError
from tfjob_operator.controller.manager import Controller
from tfjob_operator.informers import Tombstone
from tfjob_operator.workqueue import RateLimitingQueue
from tfjob_operator.workqueue.rate_limiters import ItemExponentialFailureRateLimiter

ONE_WORKER = spec(Worker=1)
FORBIDDEN = status_error(errors.ForbiddenError, 403, "exceeded quota")
LOST = errors.ConnectionLostError("the connection was lost")
SECOND_POD = ("create", "pods", "mnist-worker-1")


async def test_only_the_first_act_on_an_untouched_job_needs_no_confirmation() -> None:
    """Found by the model checker ("in office, made again"): pods of a deleted job were made again as fast as they went.

    Invariant: "No child is created or deleted on an unconfirmed view"
    """
    world = await ControllerHarness.of_untouched(ONE_WORKER, others=1)
    await world.sync()
    world.put_children("Worker", 0)
    world.pods.remove(pod("Worker", 0))
    world.taken()
    world.client.fail = {call: status_error(errors.NotFoundError, 404) for call in (STATUS, LOOK)}
    with pytest.raises(StaleViewError):
        await world.sync()
    assert world.taken() == [STATUS]


async def test_nothing_is_created_for_a_job_that_was_deleted_before_its_first_status() -> None:
    """The cache still has it. Its children would have an owner that is gone."""
    world = await ControllerHarness.of_untouched(ONE_WORKER, others=0)
    world.client.fail[STATUS] = status_error(errors.NotFoundError, 404)
    with pytest.raises(StaleViewError, match="the job is gone"):
        await world.sync()
    assert world.taken() == [STATUS]


@pytest.mark.parametrize("version", ["2", "3", None])
async def test_a_pod_is_made_again_only_on_a_view_that_was_looked_at(version: str | None) -> None:
    """Where the status is up to date there is no write that confirms the view, so the job is read."""
    world = ControllerHarness(job(ONE_WORKER))
    await world.sync()
    world.observe_children()
    world.observe_status()
    world.pods.remove(pod("Worker", 0))
    world.taken()
    if version is None:
        world.client.fail[LOOK] = status_error(errors.NotFoundError, 404)
    world.confirms(version or "")
    with contextlib.nullcontext() if version == "2" else pytest.raises(StaleViewError):
        await world.sync()
    assert world.taken() == ([LOOK, CREATE_POD] if version == "2" else [LOOK])


@pytest.mark.parametrize("elastic", [False, True])
async def test_while_creations_are_unseen_nothing_is_created_but_the_status_is_kept(elastic: bool) -> None:
    """EX-09, replica_set_test.go:TestSyncReplicaSetDormancy; B11, B17: twenty syncs, one create per child."""
    world = ControllerHarness(job(ONE_WORKER | {"enableDynamicWorker": elastic}))
    await world.sync()
    world.taken()
    world.services.put(service("Worker", 0))
    for _ in range(20):
        await world.sync()
    assert world.taken() == []
    world.pods.put(pod("Worker", 0, "Succeeded", 0))
    assert await world.sync_and_take() == [STATUS]


async def test_a_sync_between_a_write_and_its_arrival_in_the_cache_writes_nothing_again() -> None:
    """Our own write stands in for the version it was written over; no conflict is provoked.

    Invariant: "Our own status write replaces the cached version until the watch delivers it"
    """
    world = ControllerHarness(job(ONE_WORKER))
    await world.sync()
    world.observe_children()
    world.taken()
    await world.sync()
    await world.sync_and_observe()
    assert await world.sync_and_take() == []


async def test_the_end_of_a_job_is_cleaned_up_after_it_was_written() -> None:
    """First the status, and only in a later sync the deletes that depend on it.

    Invariant: "Facts that a delete would destroy are in the status before the delete"
    """
    world = ControllerHarness(job(spec(PS=1, Worker=1)))
    for kind in ("PS", "Worker"):
        world.put_children(kind, 0)
    world.pods.put(pod("Worker", 0, "Succeeded", 0))
    assert await world.sync_and_take() == [STATUS]
    assert await world.sync_and_take() == [("delete", "pods", "mnist-ps-0"), ("delete", "services", "mnist-ps-0")]


async def test_a_replica_whose_name_is_taken_waits_without_a_call_whatever_wakes_its_job() -> None:
    """U2: FailedCreateService came 13 times in 30 s; pods that start wake the job, and are no reason to try again.

    The job that runs without the replica says so.
    """
    world = ControllerHarness(job(spec(Worker=2)))
    create = ("create", "services", "mnist-worker-1")
    world.client.has(*create[1:])
    async with world.running():
        await asyncio.sleep(0.5)
        assert CREATE_POD in world.client.actions
        assert world.recorder.reasons.count("FailedCreateService") == 1
        world.observe_status()
        world.observe_children()
        world.taken()
        for _ in range(600):  # ten minutes in which something happens each second
            world.queue.add(KEY)
            await asyncio.sleep(1)
        asked = [action for action in world.taken() if action[2] == "mnist-worker-1" or action[0] == "get"]
        assert asked.count(create) <= 15  # 1, 2, 4, ... 32, 60, 60 seconds apart
        assert len(asked) == 3 * asked.count(create)  # the job's confirmation, the create, and whose the name is
        assert world.recorder.reasons.count("FailedCreateService") <= 2
        world.pods.put(pod("Worker", 0, "Running"))
        await asyncio.sleep(2)
        without = "TFJob mnist is running without mnist-worker-1, which could not be created: see its Warnings."
        assert world.status["conditions"][-1]["message"] == without
        world.observe_status()
        world.client.fail.clear()
        await asyncio.sleep(61)  # and nothing wakes it: what held the name is none of ours
        assert SECOND_POD in world.taken()
        world.pods.put(pod("Worker", 1))
        await asyncio.sleep(2)
        assert world.status["conditions"][-1]["message"] == "TFJob mnist is running."


async def test_what_was_seen_counts_although_it_is_not_written_yet() -> None:
    """B42: a worker succeeds, and its pod is deleted before the counters' window is over: it is not made again.

    Invariant: "Observed facts that are not written yet are part of the view"
    """
    world = await ControllerHarness.of_running(all_workers(2))
    world.pods.put(pod("Worker", 1, "Succeeded", 0))
    await world.sync()
    world.pods.remove(pod("Worker", 1))
    goes_with_its_pod = ("delete", "services", "mnist-worker-1")
    assert await world.sync_and_take() == [STATUS, goes_with_its_pod]
    assert world.status["finishedIndices"] == {"Worker": "1"}
    world.observe_status()
    assert await world.sync_and_take() == []


@pytest.mark.parametrize(
    ("sees", "knows"),
    [
        (pod("Worker", 0, restarts=1), IndexRestarts("Worker", 0, "uid-mnist-worker-0", in_place=2)),
        (pod("Worker", 0, "Pending"), IndexRestarts("Worker", 0, "another", carried=2)),
    ],
)
async def test_what_waits_to_be_written_takes_nothing_back_that_the_server_knows(
    sees: Pod, knows: IndexRestarts
) -> None:
    """B42: another process, or a write whose response was lost, had one success more; its pod is gone by now.

    The simulation found that the older memory won (seed 1008).
    """
    world = await ControllerHarness.of_running(all_workers(3, "OnFailure"))
    world.pods.put(pod("Worker", 1, "Succeeded", 0))
    world.pods.put(sees)
    await world.sync()  # waits for the counters' window
    seen = cast("TFJob", world.jobs.indexer.get(KEY))
    more = changed(seen.status, finished_indices={"Worker": "1-2"}, restarts=(knows,))
    world.jobs.put(changed(seen, metadata__resource_version="3", status=more))
    world.pods.remove(pod("Worker", 2))
    await asyncio.sleep(COUNTER_WINDOW_S)
    await world.sync()
    assert ("create", "pods", "mnist-worker-2") not in world.taken()
    assert world.status["finishedIndices"] == {"Worker": "1-2"}
    assert list(world.status["restarts"]) == [msgspec.to_builtins(knows)]


async def test_a_child_that_is_never_seen_holds_its_job_up_for_five_minutes_and_no_longer() -> None:
    """EX-02: a pod that was deleted again between two watches sends no event, so the job must wake by itself.

    The simulation found a job that stood still for ever (seed 44).
    """
    world = ControllerHarness(job(ONE_WORKER))
    async with world.running():
        await asyncio.sleep(1)
        world.observe_status()
        world.services.put(service("Worker", 0))
        for seconds in (290, 15):
            await asyncio.sleep(seconds)
            assert world.taken().count(CREATE_POD) == 1


@pytest.mark.parametrize("list_first", [False, True])
async def test_a_child_that_a_list_shows_to_be_gone_is_made_again_at_once(list_first: bool) -> None:
    """EX-10: somebody deleted it while the watch was interrupted, before or after the response to its creation has come."""
    world = ControllerHarness(job(ONE_WORKER))
    world.services.put(service("Worker", 0))
    versions = iter(["20", "30"])

    def before(action: tuple[str, str, str]) -> None:
        if action == CREATE_POD:
            world.client.created_version = next(versions)
            if list_first:
                world.pods.list_again("21")

    world.client.before = before
    world.confirms()
    async with world.running():
        await asyncio.sleep(0.5)
        assert world.taken().count(CREATE_POD) == (2 if list_first else 1)
        if not list_first:
            world.pods.list_again("19")  # from a cache that lags
            await asyncio.sleep(60)
            assert CREATE_POD not in world.taken()
            world.pods.list_again("20")
            await asyncio.sleep(0.5)
            assert world.taken().count(CREATE_POD) == 1
        await asyncio.sleep(60)
        assert CREATE_POD not in world.taken()


@pytest.mark.parametrize("uid", ["uid-mnist-worker-0", "the-next"])
async def test_a_restart_is_counted_of_another_pod_only_when_that_is_there(uid: str) -> None:
    """B36: in an old view of the pods it may be one whose restarts are part of the recorded sum already.

    Invariant: "A restart record is not moved to a pod that does not exist on the server"
    """
    known = JobStatus(restarts=(IndexRestarts("Worker", 0, "the-one-before", replaced=True),))
    world = ControllerHarness(job(spec(Worker=1, runPolicy={"backoffLimit": 9}), status=known))
    world.services.put(service("Worker", 0))
    world.pods.put(pod("Worker", 0, restarts=1))
    world.client.objects["pods", "mnist-worker-0"] = {"metadata": {"uid": uid}}
    with pytest.raises(StaleViewError) if uid == "the-next" else contextlib.nullcontext():
        await world.sync()
    assert world.taken() == [("get", "pods", "mnist-worker-0"), *[STATUS] * (uid != "the-next")]


async def test_a_restart_in_place_is_written_though_no_counter_moved() -> None:
    """B36: backoffLimit depends on it."""
    world = await ControllerHarness.of_running(spec("OnFailure", Worker=1))
    world.pods.put(pod("Worker", 0, restarts=1))
    assert await world.sync_and_take() == []
    await asyncio.sleep(COUNTER_WINDOW_S)
    assert await world.sync_and_take() == [STATUS]
    assert world.status["restarts"][0]["inPlace"] == 1


async def test_a_deadline_and_the_ttl_wake_the_job_by_themselves() -> None:
    """B46: without an event of any pod the job fails within two seconds of its deadline.

    B45, B48: it is deleted when its TTL is over, by UID, and its children are deleted with it.
    """
    policy = {"activeDeadlineSeconds": 30, "ttlSecondsAfterFinished": 60, "cleanPodPolicy": "None"}
    world, delete = ControllerHarness(job(spec(Worker=1, runPolicy=policy))), ("delete", "tfjobs", "mnist")
    async with world.running():
        await asyncio.sleep(1)
        world.observe_children()
        world.observe_status()
        world.taken()
        await asyncio.sleep(28)
        assert world.taken() == []
        await asyncio.sleep(2)
        assert STATUS in world.taken()
        assert world.status["conditions"][-1]["reason"] == "JobFailed"
        world.pods.remove(pod("Worker", 0))
        world.services.remove(service("Worker", 0))
        world.observe_status()
        await asyncio.sleep(58)
        assert delete not in world.taken()
        await asyncio.sleep(3)
        assert world.taken() == [delete]
    assert world.client.bodies[delete] == {"uid": JOB_UID, "resource_version": "2", "propagation": "Background"}
    assert world.recorder.reasons[-1] == "SuccessfulDeleteJob"


async def test_a_deadline_does_not_wait_for_the_retry_of_a_sync_that_fails() -> None:
    """B46: the delay of a key that fails grows to a thousand seconds."""
    world = ControllerHarness(job(spec(Worker=1, runPolicy={"activeDeadlineSeconds": 900})))
    world.pods.put(pod("Worker", 0, phase="Running"))
    world.services.put(service("Worker", 0))
    world.client.fail["delete", "services", "mnist-worker-1"] = FORBIDDEN
    world.services.put(service("Worker", 1))
    async with world.running():
        await asyncio.sleep(1)
        world.observe_status()
        await asyncio.sleep(910)
    assert world.status["conditions"][-1]["reason"] == "JobFailed"


async def test_at_the_start_of_a_leader_new_jobs_come_first_and_finished_ones_last() -> None:
    """PQ-04. A new job used to wait for the syncs of thousands of finished ones."""
    statuses = {
        "done": ["Created", "Running", "Succeeded"],
        "runs": ["Created", "Running"],
        "new": [],
        "failed": ["Failed"],
    }
    queue: RateLimitingQueue[str] = RateLimitingQueue(ItemExponentialFailureRateLimiter())
    jobs = [
        job(name=name, status=JobStatus(conditions=tuple(JobCondition(each, status="True") for each in types)))
        for name, types in statuses.items()
    ]
    Feed(queue).open(jobs)
    order = [await queue.get() for _ in jobs]
    assert [key.partition("/")[2] for key in order] == ["new", "runs", "done", "failed"]


async def test_a_success_whose_write_lost_its_response_is_not_forgotten_again() -> None:
    """B42: while counters waited to be written, an end was, but the response was lost. What waited must not undo the end."""
    world = await ControllerHarness.of_running(spec(Chief=1, Worker=1))
    world.pods.put(pod("Worker", 0, "Pending"))
    await world.sync()  # the counter waits
    world.pods.put(pod("Chief", 0, "Succeeded", 0))
    world.client.fail[STATUS] = LOST
    with pytest.raises(errors.ConnectionLostError):
        await world.sync()
    world.client.fail.clear()
    world.observe_status()
    world.taken()
    await world.sync()
    assert STATUS not in world.taken()
    assert world.status["finishedIndices"] == {"Chief": "0"}


async def test_a_success_whose_write_failed_is_remembered_though_its_pod_is_gone() -> None:
    """B42: seen once, it is known, whether or not the server could be reached just then."""
    world = ControllerHarness(job(all_workers(2)))
    for child in (pod("Worker", 0), pod("Worker", 1, "Succeeded", 0)):
        world.pods.put(child)
    world.client.fail[STATUS] = LOST
    with pytest.raises(errors.ConnectionLostError):
        await world.sync()
    world.client.fail.clear()
    world.pods.remove(pod("Worker", 1, "Succeeded", 0))
    await world.sync()
    assert world.status["finishedIndices"] == {"Worker": "1"}
    assert SECOND_POD not in world.taken()


async def test_a_plan_is_carried_out_in_its_documented_order() -> None:
    """The status, creates, deletes, in one sync that has something of each: the status write confirms the view of the job.

    A deadline in centuries is waited for like any other: the queue takes the greatest number of the API as a delay.
    """
    world = ControllerHarness(job(spec(Worker=1, Evaluator=1, runPolicy={"activeDeadlineSeconds": 2**63 - 1})))
    for index in (0, 1):
        world.put_children("Worker", index)
    await world.sync()
    assert [verb for verb, _, _ in world.taken()] == ["patch status", "create", "create", "delete", "delete"]


async def test_what_is_to_go_goes_also_when_nothing_can_be_created() -> None:
    """The surplus replicas may be what uses up the quota that the new one waits for.

    Invariant: "A failed create does not delay deletes"
    """
    world = ControllerHarness(job(spec(Worker=1, Evaluator=1)))
    for index in (0, 1):
        world.pods.put(pod("Worker", index))
    world.client.fail["create", "pods", "mnist-evaluator-0"] = FORBIDDEN
    with pytest.raises(errors.ForbiddenError):
        await world.sync()
    assert ("delete", "pods", "mnist-worker-1") in world.taken()


async def test_a_job_whose_pod_is_refused_as_invalid_fails_and_keeps_no_children() -> None:
    """B01: the server's words stand in the condition, one Warning is recorded, the service is removed again."""
    world = ControllerHarness(job(ONE_WORKER))
    world.client.fail[CREATE_POD] = status_error(errors.InvalidError, 422, "args: must be strings")
    await world.sync()
    condition = world.status["conditions"][-1]
    assert (condition["type"], condition["reason"]) == ("Failed", "InvalidTFJobSpec")
    assert "the spec is invalid: pod mnist-worker-0 was rejected: args: must be strings" in condition["message"]
    warning = ("Warning", "InvalidTFJobSpec", condition["message"])
    assert [event for event in world.recorder.events if event[0] == "Warning"] == [warning]
    world.taken()
    world.services.put(service("Worker", 0))
    assert await world.sync_and_take() == [("delete", "services", "mnist-worker-0")]


async def test_a_first_status_that_waits_is_not_lost_when_a_pod_is_refused() -> None:
    """Found by the model checker ("in office, with much to do"): the job had failed without ever having been created.

    Both conditions are new on the API server, so both are counted and logged; so are the events of the first one.
    """
    warned = spec(Worker=replica(1, "OnFailure", template=template(restartPolicy="Always")))
    world = await ControllerHarness.of_untouched(warned, others=1)
    world.client.fail[CREATE_POD] = status_error(errors.InvalidError, 422, "args: must be strings")
    with capture_logs() as lines:
        await world.sync()
    assert [line["condition"] for line in lines if line["event"] == "tfjob_condition"] == ["Created", "Failed"]
    assert world.conditions == ["Created", "Failed"]
    assert "Worker" in world.status["replicaStatuses"]
    assert world.recorder.reasons[-2:] == ["SettedPodTemplateRestartPolicy", "InvalidTFJobSpec"]


@pytest.mark.parametrize(
    ("given", "text"),
    [pytest.param({"foo": 1}, "", id="invalid"), pytest.param(spec(Worker=9000), "131071", id="too large")],
)
async def test_an_invalid_job_gets_its_condition_and_nothing_else(given: dict[str, Any], text: str) -> None:
    """B02: one status write, one Warning, no children; looked at again it costs nothing.

    U1: with too many workers for TF_CONFIG it would take the cluster down with pods that cannot start.
    """
    world = ControllerHarness(job(given))
    await world.sync()
    assert await world.sync_and_take() == [STATUS]
    assert world.recorder.reasons == ["InvalidTFJobSpec"]
    assert (world.conditions[-1], world.status["conditions"][-1]["reason"]) == ("Failed", "InvalidTFJobSpec")
    assert text in world.status["conditions"][-1]["message"]


async def test_a_job_that_is_gone_is_forgotten() -> None:
    """EX-08, SI-11, k/k#82572: with its expectations; also if it was made again unseen, by an update to another UID."""
    world = ControllerHarness(job(ONE_WORKER))
    await world.sync()
    assert not world.expectations.satisfied(OWNER)
    world.taken()
    await world.sync(job(ONE_WORKER, uid="new-uid"))
    assert CREATE_POD in world.taken()
    assert world.expectations.satisfied(OWNER)
    world.jobs.remove(job(ONE_WORKER, uid="new-uid"))
    assert world.expectations.satisfied(OwnerKey("ns/new-uid"))
    assert await world.sync_and_take() == []


async def test_an_expectation_is_met_though_what_else_a_handler_does_fails(mocker: MockerFixture) -> None:
    """B11: an informer logs what a handler raises; the job must not wait five minutes for a deletion that was seen."""
    world = ControllerHarness()
    world.pods.put(pod("Worker", 0))
    world.expectations.expect_deletions(OWNER, "pod", ["uid-mnist-worker-0"])
    mocker.patch.object(BlockedChildren, "freed", side_effect=RuntimeError("a bug"))
    with pytest.raises(RuntimeError):
        world.pods.remove(pod("Worker", 0))
    assert world.expectations.satisfied(OWNER)
    assert await world.queue.get() == KEY


async def test_a_name_that_a_child_of_another_job_had_is_tried_again_when_that_child_is_gone() -> None:
    """B12: a job `mnist-worker-0` with a shared network had the service of a replica of `mnist`."""
    world = ControllerHarness(job(ONE_WORKER))
    owner = {"kind": "TFJob", "name": "mnist-worker-0", "uid": "other", "controller": True}
    world.client.has("services", "mnist-worker-0", ownerReferences=[owner])
    await world.sync()
    theirs = changed(service("Worker", 0), metadata__owner_references=(msgspec.convert(owner, OwnerReference),))
    world.services.put(theirs)
    world.client.fail.clear()
    world.confirms()
    await world.idle()
    world.taken()
    world.services.remove(theirs)
    assert KEY in [await world.queue.get() for _ in range(len(world.queue))]
    await world.sync()
    assert CREATE_SERVICE in world.taken()


async def test_a_deletion_that_nobody_saw_counts_like_one_that_was_seen() -> None:
    """B15, EX-05, replica_set_test.go:TestDeleteFinalStateUnknown: a tombstone holds the last known child."""
    world = ControllerHarness()
    world.expectations.expect_deletions(OWNER, "pod", ["uid-mnist-worker-0"])
    world.pods.handlers[0].on_delete(Tombstone("ns/mnist-worker-0", pod("Worker", 0)))
    assert world.expectations.satisfied(OWNER)
    world.expectations.expect_creations(OWNER, "pod", ["mnist-worker-0"])
    world.jobs.handlers[0].on_delete(Tombstone(KEY, job(ONE_WORKER)))
    assert world.expectations.satisfied(OWNER)


async def test_a_job_that_keeps_changing_is_synced_by_one_worker_at_a_time(mocker: MockerFixture) -> None:
    """The others are idle meanwhile, and what has changed is seen by the sync that follows.

    Invariant: "The queue gives a key to at most one worker at a time"
    """
    world, patch, at_once = ControllerHarness(job(ONE_WORKER)), FakeClient.patch, [0]

    async def slow(client: FakeClient, *args: Any, **options: Any) -> Any:
        at_once.append(at_once[-1] + 1)
        await asyncio.sleep(1)
        at_once.append(at_once[-1] - 1)
        return await patch(client, *args, **options)

    mocker.patch.object(FakeClient, "patch", slow)
    world.workers = Controller("tfjob", world.controller.sync, queue=world.queue, workers=4)
    async with world.running():
        for version in range(2, 6):
            await asyncio.sleep(0.4)
            world.jobs.put(job(ONE_WORKER, resource_version=str(version), generation=version))
        await asyncio.sleep(20)
    assert len(at_once) > 3
    assert max(at_once) == 1


MANAGED = {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}


@pytest.mark.parametrize("found", [job(deletion_timestamp=EPOCH), job(ONE_WORKER | MANAGED), job(MANAGED)])
async def test_a_job_that_is_deleted_or_managed_by_another_controller_is_not_written_to(found: TFJob) -> None:
    """B14: the garbage collector takes care of it. B75: its mistakes are for its own controller to report."""
    world = ControllerHarness(found)
    assert await world.sync_and_take() == []


async def test_a_pod_that_can_not_start_is_told_of_once() -> None:
    """B34: at the first sync that sees it, and not at the next."""
    world = await ControllerHarness.of_running(ONE_WORKER)
    world.pods.put(with_condition(pod("Worker", 0, "Pending"), "PodScheduled", "False", "Unschedulable", "no room"))
    for _ in range(3):
        await world.sync()
    assert world.recorder.events == [
        ("Warning", "Unschedulable", "Error pod mnist-worker-0 condition message: no room")
    ]
