"""Syncs of jobs that are gangs, and of jobs that find orphans: the controller on real stores, against a client that records."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.api import status_error
from fakes.controller import KEY, STATUS, ControllerHarness
from fakes.jobs import JOB_UID, OWNER, good_spec, job, pod, replica, service
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import (
    AlreadyExistsError,
    BadRequestError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from tfjob_operator.api.meta import OwnerReference
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobCondition, JobStatus
from tfjob_operator.controller.jobs.children import (
    ChildLabels,
    ChildMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    ReplicaKey,
)
from tfjob_operator.controller.jobs.writes import NameTakenError, StaleViewError
from tfjob_operator.controller.tfjob.build.children import gang_scheduler, labels_of

ONE_WORKER = {"tfReplicaSpecs": {"Worker": replica(1)}}
CREATE_GROUP = ("create", "podgroups", "mnist")
DELETE_GROUP = ("delete", "podgroups", "mnist")
LOOK = ("get", "tfjobs", "mnist")
CHILDREN = [("create", "services", "mnist-worker-0"), ("create", "pods", "mnist-worker-0")]
VOLCANO = gang_scheduler("volcano")


def group(phase: str = "", *, owner: str = JOB_UID, min_member: int = 1) -> PodGroup:
    """The PodGroup of the job's name, controlled by `owner`."""
    reference = OwnerReference(kind="TFJob", name="mnist", uid=owner, controller=True)
    meta = ChildMeta(name="mnist", namespace="ns", uid="group-uid", owner_references=(reference,))
    return PodGroup(metadata=meta, spec=PodGroupSpec(min_member=min_member), status=PodGroupStatus(phase=phase))


async def test_a_job_waits_for_volcano_and_then_gets_its_pods() -> None:
    """B65: one write of each thing, however often the job is looked at in between."""
    world = ControllerHarness(job(ONE_WORKER), gang=VOLCANO)
    await world.sync()
    assert world.taken() == [STATUS, CREATE_GROUP]
    world.observe_status()
    for seen in (None, group(), group("Pending")):
        if seen is not None:
            world.pod_groups.put(seen)
        for _ in range(10):
            await world.sync()
    assert world.taken() == []
    assert world.client.bodies[STATUS][1]["value"].get("startTime") is None
    world.pod_groups.put(group("Inqueue"))
    await world.sync()
    assert world.taken() == [STATUS, *CHILDREN]
    assert world.client.bodies[STATUS][1]["value"]["startTime"] == "2026-01-01T00:00:00Z"


async def test_a_change_of_a_group_wakes_its_job() -> None:
    """As with any child; a group of another owner wakes no job."""
    world = ControllerHarness(gang=VOLCANO)
    world.pod_groups.put(msgspec.structs.replace(group(), metadata=ChildMeta(name="other", namespace="ns")))
    assert len(world.queue) == 0
    world.pod_groups.put(group())
    assert await world.queue.get() == KEY


async def test_the_group_is_created_before_the_pods_also_where_both_come_at_once() -> None:
    """The coscheduling plugin rejects a pod whose group it does not know.

    Invariant: "The PodGroup is created before all pods, and a replica's service before its pod"
    """
    world = ControllerHarness(job(ONE_WORKER), gang=gang_scheduler("coscheduler"))
    await world.sync()
    assert world.taken() == [STATUS, CREATE_GROUP, *CHILDREN]


async def test_the_group_of_another_owner_keeps_its_name_and_the_job_its_pods_back() -> None:
    """B13: a Warning, no pod, and no harm to the group, whatever state it is in."""
    world = ControllerHarness(gang=gang_scheduler("coscheduler"))
    theirs = group("Running", owner="")
    world.pod_groups.put(msgspec.structs.replace(theirs, metadata=ChildMeta(name="mnist", namespace="ns")))
    world.client.fail[CREATE_GROUP] = status_error(AlreadyExistsError, 409)
    world.client.objects["podgroups", "mnist"] = {"metadata": {"name": "mnist", "uid": "theirs"}}
    world.jobs.put(job(ONE_WORKER))
    with pytest.raises(NameTakenError):
        await world.sync()
    assert world.taken() == [STATUS, CREATE_GROUP, ("get", "podgroups", "mnist")]
    ((kind, reason, text),) = world.recorder.events
    assert (kind, reason) == ("Warning", "FailedCreatePodGroup")
    assert text.startswith("Error creating: PodGroup mnist already exists and is not controlled by this TFJob")
    assert world.expectations.satisfied(OWNER)


async def test_a_group_whose_creation_was_not_answered_counts_as_created() -> None:
    """WR-07: the second attempt finds it, controlled by the job."""
    world = ControllerHarness(gang=gang_scheduler("coscheduler"))
    world.client.fail[CREATE_GROUP] = status_error(AlreadyExistsError, 409)
    reference = {"kind": "TFJob", "name": "mnist", "uid": JOB_UID, "controller": True}
    world.client.objects["podgroups", "mnist"] = {"metadata": {"name": "mnist", "ownerReferences": [reference]}}
    await world.sync(job(ONE_WORKER))
    assert world.taken() == [STATUS, CREATE_GROUP, ("get", "podgroups", "mnist"), *CHILDREN]


@pytest.mark.parametrize("error", [(ForbiddenError, 403), (BadRequestError, 400)])
async def test_a_group_that_can_not_be_created_now_is_tried_again(error: Any) -> None:
    """A missing right, or a webhook that finds the queue closed: neither is the fault of the specification."""
    world = ControllerHarness(gang=VOLCANO)
    world.client.fail[CREATE_GROUP] = status_error(*error)
    world.jobs.put(job(ONE_WORKER))
    with pytest.raises(error[0]):
        await world.sync()
    assert world.recorder.reasons == ["FailedCreatePodGroup"]
    assert world.expectations.satisfied(OWNER)


async def test_a_group_that_is_invalid_makes_the_job_so() -> None:
    """It would be refused again: what the job asks for has to change."""
    world = ControllerHarness(gang=VOLCANO)
    world.client.fail[CREATE_GROUP] = status_error(InvalidError, 422, "spec.minResources.cpu: no quantity")
    await world.sync(job(ONE_WORKER))
    assert world.taken() == [STATUS, CREATE_GROUP, STATUS]
    (*_, last) = world.client.bodies[STATUS][1]["value"]["conditions"]
    assert last["type"] == ConditionType.FAILED
    assert "PodGroup mnist was rejected: spec.minResources.cpu: no quantity" in last["message"]


async def test_a_group_is_deleted_once_and_only_once() -> None:
    """B55: also while the cache still shows it, and fifty syncs after it is gone."""
    world = ControllerHarness(job(ONE_WORKER), gang=VOLCANO)
    world.pod_groups.put(group("Running"))
    world.pods.put(pod("Worker", 0, "Succeeded", 0))
    world.services.put(service("Worker", 0))
    await world.sync()
    assert world.taken() == [STATUS]
    world.observe_status()
    await world.sync()
    assert DELETE_GROUP in world.taken()
    assert world.client.bodies[DELETE_GROUP]["uid"] == "group-uid"
    told = list(world.recorder.events)
    assert ("Normal", "SuccessfulDeletePodGroup", "Deleted PodGroup: mnist") in told
    for number in range(50):
        if number == 10:
            world.pod_groups.remove(group("Running"))
        await world.sync()
    assert world.taken() == []
    assert world.recorder.events == told


async def test_a_queue_that_was_changed_from_outside_survives_twenty_syncs() -> None:
    """B66: nothing is written at all, and a resize does not name the queue."""
    world = ControllerHarness(job(ONE_WORKER), gang=VOLCANO)
    world.pod_groups.put(group("Running"))
    world.observe_children()
    await world.sync()
    assert world.taken() == [STATUS]
    world.observe_status()
    for _ in range(20):
        await world.sync()
    assert world.taken() == []
    world.pod_groups.put(group("Running", min_member=3))
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "2"}}
    await world.sync()
    resize = ("patch", "podgroups", "mnist")
    assert world.taken() == [LOOK, resize]
    assert "queue" not in str(world.client.bodies[resize])


async def test_a_job_that_waits_for_groups_to_become_readable_is_told_of_once_and_looked_at_again() -> None:
    """No CRD: the status is written, nothing is created, nothing fails; and it goes on when the CRD is there."""
    world = ControllerHarness(gang=VOLCANO)
    world.pod_groups.has_synced = False
    await world.sync(job(ONE_WORKER))
    assert world.taken() == [STATUS]
    assert world.recorder.events == []
    world.observe_status()
    world.pod_groups.on_error(status_error(NotFoundError, 404, "the server could not find the requested resource"))
    for _ in range(5):
        await world.sync()
    assert world.taken() == []
    ((_, reason, message),) = world.recorder.events
    assert reason == "PodGroupsUnavailable"
    assert message.endswith("the CRD podgroups.scheduling.volcano.sh (v1beta1) is not installed")
    world.pod_groups.has_synced = True
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "2"}}
    await world.sync()
    assert world.taken() == [LOOK, CREATE_GROUP]


def orphan() -> Pod:
    """The worker's pod as an earlier job of this name has left it."""
    found = pod("Worker", 0)
    tfjob = job(ONE_WORKER)
    made = labels_of(tfjob.metadata, good_spec(tfjob), ReplicaKey("Worker", 0, "mnist-worker-0"))
    labels = msgspec.convert(made, ChildLabels)
    meta = msgspec.structs.replace(found.metadata, labels=labels, owner_references=None)
    return msgspec.structs.replace(found, metadata=meta)


ADOPT = ("patch", "pods", "mnist-worker-0")
SERVICE_OF_PS = [("create", "services", "mnist-ps-0")]


async def test_an_orphan_is_adopted_and_runs_as_the_jobs_own() -> None:
    """RM-01, RM-02, B13: one read of the job, one patch; once the cache shows it, its service is created, and no pod."""
    world = ControllerHarness()
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "1"}}
    world.jobs.put(job(ONE_WORKER))
    world.pods.put(orphan())
    await world.sync()
    assert world.taken() == [LOOK, ADOPT]
    world.pods.put(pod("Worker", 0))
    await world.sync()
    assert world.taken() == [STATUS, ("create", "services", "mnist-worker-0")]


async def test_until_the_cache_shows_an_adoption_it_is_not_made_again() -> None:
    """EX-09: the status is kept up to date, nothing else is done."""
    world = ControllerHarness()
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "1"}}
    world.jobs.put(job(ONE_WORKER))
    world.pods.put(orphan())
    await world.sync()
    world.taken()
    await world.sync()
    assert world.taken() == [STATUS]


async def test_an_orphan_is_not_adopted_on_a_view_that_is_out_of_date() -> None:
    """RM-02, TestDoNotAdoptOrCreateIfBeingDeletedRace: the job was replaced, or is being deleted."""
    world = ControllerHarness()
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"uid": "new", "resourceVersion": "7"}}
    world.jobs.put(job(ONE_WORKER))
    world.pods.put(orphan())
    with pytest.raises(StaleViewError):
        await world.sync()
    assert world.taken() == [LOOK]


async def test_the_pod_of_another_owner_is_neither_adopted_nor_counted() -> None:
    """RM-01, B13, TestDoNotPatchPodWithOtherControlRef: whatever its labels say."""
    world = ControllerHarness()
    theirs = OwnerReference(kind="TFJob", name="mnist", uid="old", controller=True)
    meta = msgspec.structs.replace(orphan().metadata, owner_references=(theirs,))
    world.jobs.put(job(ONE_WORKER))
    world.pods.put(msgspec.structs.replace(orphan(), metadata=meta))
    await world.sync()
    assert world.taken() == [STATUS, *CHILDREN]
    assert world.client.bodies[STATUS][1]["value"]["replicaStatuses"]["Worker"]["active"] == 0


async def test_a_job_that_has_ended_adopts_nothing() -> None:
    """Nor does one that is being deleted, or that another controller manages (TestGetPodsForJobNoAdoptIfBeingDeleted)."""
    managed: dict[str, Any] = ONE_WORKER | {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}
    failed = JobStatus(conditions=(JobCondition(type=ConditionType.FAILED, status="True"),))
    for tfjob in (job(ONE_WORKER, deletion_timestamp=EPOCH), job(managed), job(ONE_WORKER, status=failed)):
        world = ControllerHarness(tfjob)
        world.pods.put(orphan())
        await world.sync()
        assert not {LOOK, ADOPT} & set(world.taken())


async def test_an_orphan_wakes_the_job_that_its_labels_name() -> None:
    """RM-01, TestAddPodOrphan; EX-05: it meets no expectation."""
    world = ControllerHarness()
    world.expectations.expect_creations(OWNER, "pod", ["mnist-worker-0"])
    world.pods.put(orphan())
    assert await world.queue.get() == KEY
    assert not world.expectations.satisfied(OWNER)


async def test_an_orphan_that_can_not_be_adopted_keeps_nothing_waiting() -> None:
    """D14: the status is written and all children are created; the failed adoption costs an event."""
    world = ControllerHarness()
    world.client.fail[ADOPT] = status_error(ForbiddenError, 403, "no patches today")
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "1"}}
    world.jobs.put(job({"tfReplicaSpecs": {"Worker": replica(1), "PS": replica(1)}}))
    world.pods.put(orphan())
    world.pods.put(pod("PS", 0))
    await world.sync()
    assert world.taken() == [LOOK, ADOPT, STATUS, *SERVICE_OF_PS, *CHILDREN]
    assert ("Warning", "FailedAdoptPod") in [event[:2] for event in world.recorder.events]


async def test_an_orphan_that_has_ended_is_not_the_outcome_of_a_new_job() -> None:
    """D15: after `kubectl delete --cascade=orphan`; a Warning says that it is in the way, and its deletion wakes the job."""
    world = ControllerHarness()
    ended = msgspec.structs.replace(pod("Worker", 0, "Succeeded", 0), metadata=orphan().metadata)
    world.jobs.put(job(ONE_WORKER))
    world.pods.put(ended)
    world.queue.done(await world.queue.get())
    create = ("create", "pods", "mnist-worker-0")
    world.client.fail[create] = status_error(AlreadyExistsError, 409)
    left: Any = msgspec.to_builtins(ended)
    world.client.objects["pods", "mnist-worker-0"] = left
    await world.sync()
    assert ADOPT not in world.taken()
    assert world.recorder.events[-1][:2] == ("Warning", "FailedCreatePod")
    world.pods.remove(ended)
    assert await world.queue.get() == KEY


async def test_a_child_that_changes_its_owner_wakes_the_old_one() -> None:
    """TestUpdatePodChangeControllerRef: and counts as deleted for it."""
    world = ControllerHarness()
    world.pods.put(pod("Worker", 0))
    world.queue.done(await world.queue.get())
    world.expectations.expect_deletions(OWNER, "pod", ["uid-mnist-worker-0"])
    meta = msgspec.structs.replace(pod("Worker", 0).metadata, owner_references=None)
    world.pods.put(msgspec.structs.replace(pod("Worker", 0), metadata=meta))
    assert await world.queue.get() == KEY
    assert world.expectations.satisfied(OWNER)


async def test_an_orphan_that_the_cache_has_not_shown_yet_is_no_cause_for_a_warning() -> None:
    """B12: an earlier job of this name has left it a moment ago; the next sync adopts it."""
    world = ControllerHarness()
    create = ("create", "services", "mnist-worker-0")
    world.client.fail[create] = status_error(AlreadyExistsError, 409)
    left: Any = msgspec.to_builtins(orphan().metadata)
    world.client.objects["services", "mnist-worker-0"] = {"metadata": left}
    await world.sync(job(ONE_WORKER))
    assert ("get", "services", "mnist-worker-0") in world.taken()
    assert world.recorder.events == []
