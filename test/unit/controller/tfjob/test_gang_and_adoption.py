"""Syncs of jobs that are gangs, and of jobs that find orphans: the controller on real stores, against a client that records."""

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from fakes.api import status_error
from fakes.controller import CREATE_POD, CREATE_SERVICE, KEY, LOOK, STATUS, ControllerHarness
from fakes.jobs import CONTROLLER, JOB_UID, OWNER, job, owned_by, pod, pod_group, spec
from fakes.objects import changed
from kit.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import BadRequestError, ForbiddenError, InvalidError, NotFoundError
from tfjob_operator.api.v1.types import EndRecord, JobCondition, JobStatus, StartRecord
from tfjob_operator.controller.jobs.children import LINGER_LIMIT_S
from tfjob_operator.controller.jobs.writes import NameTakenError, StaleViewError
from tfjob_operator.controller.tfjob.build.builder import gang_scheduler

ONE_WORKER = spec(Worker=1)
CREATE_GROUP, GET_GROUP, DELETE_GROUP = ((verb, "podgroups", "mnist") for verb in ("create", "get", "delete"))
CHILDREN = [CREATE_SERVICE, CREATE_POD]
VOLCANO, PLUGINS = map(gang_scheduler, ("volcano", "coscheduler"))


async def test_a_job_waits_for_volcano_and_then_gets_its_pods() -> None:
    """B65: one write of each thing, however often the job is looked at in between."""
    world = ControllerHarness(job(ONE_WORKER), gang=VOLCANO)
    assert await world.sync_and_take() == [STATUS, CREATE_GROUP]
    world.observe_status()
    for seen in (None, pod_group(), pod_group("Pending")):
        if seen is not None:
            world.pod_groups.put(seen)
        for _ in range(10):
            await world.sync()
    assert world.taken() == []
    assert world.status.get("startTime") is None
    world.pod_groups.put(pod_group("Inqueue"))
    assert await world.sync_and_take() == [STATUS, *CHILDREN]
    assert world.status["startTime"] == "2026-01-01T00:00:00Z"


async def test_a_change_of_a_group_wakes_its_job() -> None:
    """As with any child; a group of another owner wakes no job."""
    world = ControllerHarness(gang=VOLCANO)
    world.pod_groups.put(changed(pod_group(), metadata__name="other", metadata__owner_references=None))
    assert len(world.queue) == 0
    world.pod_groups.put(pod_group())
    assert await world.queue.get() == KEY


async def test_the_group_is_created_before_the_pods_also_where_both_come_at_once() -> None:
    """The coscheduling plugin rejects a pod whose group it does not know.

    Invariant: "The PodGroup is created first, then ConfigMaps, then each replica's service before its pod"
    """
    world = ControllerHarness(job(ONE_WORKER), gang=PLUGINS)
    assert await world.sync_and_take() == [STATUS, CREATE_GROUP, *CHILDREN]


async def test_the_group_of_another_owner_keeps_its_name_and_the_job_its_pods_back() -> None:
    """B13: a Warning, no pod, and no harm to the group, whatever state it is in."""
    world = ControllerHarness(job(ONE_WORKER), gang=PLUGINS)
    world.pod_groups.put(changed(pod_group("Running"), metadata__owner_references=None))
    world.client.has("podgroups", "mnist")
    with pytest.raises(NameTakenError):
        await world.sync()
    assert world.taken() == [STATUS, CREATE_GROUP, GET_GROUP]
    ((kind, reason, text),) = world.recorder.events
    assert (kind, reason) == ("Warning", "FailedCreatePodGroup")
    assert text.startswith("Error creating: PodGroup mnist already exists and is not controlled by this TFJob")
    assert world.expectations.satisfied(OWNER)


async def test_a_terminating_group_of_an_earlier_job_is_reported_once_it_persists() -> None:
    """B12: the API server names it; no pod is created before it is gone."""
    world = ControllerHarness(job(ONE_WORKER), gang=PLUGINS)
    world.client.has("podgroups", "mnist", deletionTimestamp="2026-01-01T00:00:00Z", **owned_by("old-uid"))
    for expected in ([], ["FailedCreatePodGroup"], ["FailedCreatePodGroup"]):
        with pytest.raises(NameTakenError):
            await world.sync()
        assert world.recorder.reasons == expected
        world.observe_status()
        await asyncio.sleep(LINGER_LIMIT_S)
    assert "PodGroup mnist" in world.recorder.events[0][-1]


@pytest.mark.parametrize("skew_s", [0, 3600, -3600])
async def test_a_group_of_the_job_that_a_finalizer_keeps_is_reported_after_a_while(skew_s: int) -> None:
    """A job that is resumed waits for it. No event of it comes meanwhile, so the job is queued for that time.

    The time of the deletion is by the API server's clock.
    """
    world = ControllerHarness(job(ONE_WORKER), gang=PLUGINS)
    deleted = world.clock.now() + timedelta(seconds=skew_s)
    left = changed(pod_group("Running"), metadata__deletion_timestamp=deleted)
    world.pod_groups.put(left)
    await world.idle()
    async with world.running():
        await world.sync_and_observe()
        await asyncio.sleep(LINGER_LIMIT_S - 1)
        assert world.recorder.events == []
        await asyncio.sleep(2)
        await world.sync()
        ((kind, reason, text),) = world.recorder.events
        assert (kind, reason) == ("Warning", "FailedCreatePodGroup")
        assert text == "Error creating: PodGroup mnist already exists: it is being deleted (UID group-uid)"
        assert not {CREATE_GROUP, *CHILDREN} & set(world.taken())
        world.pod_groups.remove(left)
        await asyncio.sleep(1)
        assert CREATE_GROUP in world.taken()


async def test_a_group_whose_creation_was_not_answered_counts_as_created() -> None:
    """WR-07: the second attempt finds it, controlled by the job."""
    world = ControllerHarness(gang=PLUGINS)
    world.client.has("podgroups", "mnist", **owned_by(JOB_UID))
    assert await world.sync_and_take(job(ONE_WORKER)) == [STATUS, CREATE_GROUP, GET_GROUP, *CHILDREN]


@pytest.mark.parametrize("error", [(ForbiddenError, 403), (BadRequestError, 400)])
async def test_a_group_that_can_not_be_created_now_is_tried_again(error: Any) -> None:
    """A missing right, or a webhook that finds the queue closed: neither is the fault of the specification."""
    world = ControllerHarness(job(ONE_WORKER), gang=VOLCANO)
    world.client.fail[CREATE_GROUP] = status_error(*error)
    with pytest.raises(error[0]):
        await world.sync()
    assert world.recorder.reasons == ["FailedCreatePodGroup"]
    assert world.expectations.satisfied(OWNER)


async def test_a_group_that_is_invalid_makes_the_job_so() -> None:
    """It would be refused again: what the job asks for has to change."""
    world = ControllerHarness(gang=VOLCANO)
    world.client.fail[CREATE_GROUP] = status_error(InvalidError, 422, "spec.minResources.cpu: no quantity")
    assert await world.sync_and_take(job(ONE_WORKER)) == [STATUS, CREATE_GROUP, STATUS]
    last = world.status["conditions"][-1]
    assert last["type"] == "Failed"
    assert "PodGroup mnist was rejected: spec.minResources.cpu: no quantity" in last["message"]


async def test_a_group_is_deleted_once_and_only_once() -> None:
    """B55: also while the cache still shows it, and fifty syncs after it is gone."""
    world = ControllerHarness(job(ONE_WORKER), gang=VOLCANO)
    world.pod_groups.put(pod_group("Running"))
    world.put_children("Worker", 0, "Succeeded", 0)
    await world.sync_and_observe()
    assert world.taken() == [STATUS]
    await world.sync()
    assert DELETE_GROUP in world.taken()
    assert world.client.bodies[DELETE_GROUP]["uid"] == "group-uid"
    told = list(world.recorder.events)
    assert ("Normal", "SuccessfulDeletePodGroup", "Deleted PodGroup: mnist") in told
    for number in range(50):
        if number == 10:
            world.pod_groups.remove(pod_group("Running"))
        await world.sync()
    assert world.taken() == []
    assert world.recorder.events == told


async def test_a_queue_that_was_changed_from_outside_survives_twenty_syncs() -> None:
    """B66: nothing is written at all, and a resize does not name the queue."""
    world = ControllerHarness(job(ONE_WORKER), gang=VOLCANO)
    world.pod_groups.put(pod_group("Running"))
    world.observe_children()
    await world.sync_and_observe()
    assert world.taken() == [STATUS]
    for _ in range(20):
        await world.sync()
    assert world.taken() == []
    world.pod_groups.put(pod_group("Running", 3))
    await world.sync()
    resize = ("patch", "podgroups", "mnist")
    assert world.taken() == [LOOK, resize]
    assert "queue" not in str(world.client.bodies[resize])


async def test_a_job_that_waits_for_groups_to_become_readable_is_told_of_once_and_looked_at_again() -> None:
    """No CRD: the status is written, nothing is created, nothing fails; and it goes on when the CRD is there."""
    world = ControllerHarness(job(ONE_WORKER), gang=VOLCANO)
    world.pod_groups.has_synced = False
    await world.sync_and_observe()
    assert (world.taken(), world.recorder.events) == ([STATUS], [])
    world.pod_groups.on_error(status_error(NotFoundError, 404, "the server could not find the requested resource"))
    for _ in range(5):
        await world.sync()
    assert world.taken() == []
    ((_, reason, message),) = world.recorder.events
    assert reason == "PodGroupsUnavailable"
    assert message.endswith("the CRD podgroups.scheduling.volcano.sh (v1beta1) is not installed")
    world.pod_groups.has_synced = True
    assert await world.sync_and_take() == [LOOK, CREATE_GROUP]


ORPHAN = changed(pod("Worker", 0), metadata__owner_references=None)
"""The worker's pod as an earlier job of this name has left it."""
ADOPT = ("patch", "pods", "mnist-worker-0")


def with_orphan(given: dict[str, Any] = ONE_WORKER, version: str = "1") -> ControllerHarness:
    """A job that finds an orphan, and is in this version on the API server."""
    world = ControllerHarness(job(given))
    world.confirms(version)
    world.pods.put(ORPHAN)
    return world


async def test_an_orphan_is_adopted_and_runs_as_the_jobs_own() -> None:
    """RM-01, RM-02, B13: one read of the job, one patch; once the cache shows it, its service is created, and no pod.

    EX-09: until then it is not adopted again; the status is kept up to date, nothing else is done.
    """
    world = with_orphan()
    assert await world.sync_and_take() == [LOOK, ADOPT]
    assert await world.sync_and_take() == [STATUS]
    world.pods.put(pod("Worker", 0))
    await world.sync()
    assert CREATE_SERVICE in world.taken()
    assert CREATE_POD not in world.client.bodies


async def test_an_orphan_is_not_adopted_on_a_view_that_is_out_of_date() -> None:
    """RM-02, TestDoNotAdoptOrCreateIfBeingDeletedRace: the job was replaced, or is being deleted.

    Invariant: "Nothing is adopted before the job was read from the API server"
    """
    world = with_orphan(version="7")
    with pytest.raises(StaleViewError):
        await world.sync()
    assert world.taken() == [LOOK]
    assert world.expectations.satisfied(OWNER)


async def test_the_pod_of_another_owner_is_neither_adopted_nor_counted() -> None:
    """RM-01, B13, B19, TestDoNotPatchPodWithOtherControlRef: nor that of an earlier job, whatever names and labels say."""
    world = ControllerHarness(job(ONE_WORKER))
    world.pods.put(changed(ORPHAN, metadata__owner_references=(changed(CONTROLLER, uid="old"),)))
    assert await world.sync_and_take() == [STATUS, *CHILDREN]
    assert world.status["replicaStatuses"]["Worker"]["active"] == 0


@pytest.mark.parametrize(
    "tfjob",
    [
        job(ONE_WORKER, deletion_timestamp=EPOCH),
        job(ONE_WORKER | {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}),
        job(ONE_WORKER, status=JobStatus(conditions=(JobCondition("Failed", "True"),))),
        job(ONE_WORKER, status=JobStatus(begun=StartRecord(ending=EndRecord(type="Failed")))),
    ],
    ids=["deleted", "managed", "failed", "ending"],
)
async def test_a_job_that_has_ended_adopts_nothing(tfjob: Any) -> None:
    """Nor does one that is being deleted, or that another controller manages (TestGetPodsForJobNoAdoptIfBeingDeleted)."""
    world = ControllerHarness(tfjob)
    world.pods.put(ORPHAN)
    await world.sync()
    assert not {LOOK, ADOPT} & set(world.taken())


async def test_an_orphan_wakes_the_job_that_its_labels_name() -> None:
    """RM-01, TestAddPodOrphan; EX-05: it meets no expectation."""
    world = ControllerHarness()
    world.expectations.expect_creations(OWNER, "pod", ["mnist-worker-0"])
    world.pods.put(ORPHAN)
    assert await world.queue.get() == KEY
    assert not world.expectations.satisfied(OWNER)


async def test_an_orphan_that_can_not_be_adopted_keeps_nothing_waiting() -> None:
    """D14: the status is written and all children are created; the failed adoption costs an event."""
    world = with_orphan(spec(Worker=1, PS=1))
    world.client.fail[ADOPT] = status_error(ForbiddenError, 403, "no patches today")
    world.pods.put(pod("PS", 0))
    assert await world.sync_and_take() == [LOOK, ADOPT, STATUS, ("create", "services", "mnist-ps-0"), *CHILDREN]
    assert ("Warning", "FailedAdoptPod") in [event[:2] for event in world.recorder.events]


async def test_an_orphan_that_has_ended_is_not_the_outcome_of_a_new_job() -> None:
    """D15: after `kubectl delete --cascade=orphan`; a Warning says that it is in the way, and its deletion wakes the job."""
    world = ControllerHarness(job(ONE_WORKER))
    ended = changed(pod("Worker", 0, "Succeeded", 0), metadata__owner_references=None)
    world.pods.put(ended)
    await world.idle()
    left: Any = msgspec.to_builtins(ended)
    world.client.has("pods", "mnist-worker-0")
    world.client.objects["pods", "mnist-worker-0"] = left
    await world.sync()
    assert ADOPT not in world.taken()
    assert world.recorder.events[-1][:2] == ("Warning", "FailedCreatePod")
    world.pods.remove(ended)
    assert await world.queue.get() == KEY


async def test_a_child_that_changes_its_owner_wakes_the_old_one() -> None:
    """TestUpdatePodChangeControllerRef: and counts as deleted for it. B12: by name, also when it is an earlier job's."""
    world = ControllerHarness()
    world.pods.put(pod("Worker", 0))
    assert await world.queue.get() == KEY
    world.queue.done(KEY)
    world.expectations.expect_deletions(OWNER, "pod", ["uid-mnist-worker-0"])
    world.pods.put(ORPHAN)
    assert await world.queue.get() == KEY
    assert world.expectations.satisfied(OWNER)


async def test_an_orphan_that_the_cache_has_not_shown_yet_is_no_cause_for_a_warning() -> None:
    """B12: an earlier job of this name has left it a moment ago; the next sync adopts it."""
    world = ControllerHarness()
    left: Any = msgspec.to_builtins(ORPHAN.metadata)
    world.client.has("services", "mnist-worker-0", **left)
    await world.sync(job(ONE_WORKER))
    assert ("get", "services", "mnist-worker-0") in world.taken()
    assert world.recorder.events == []
