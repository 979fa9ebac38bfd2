"""Syncs of jobs in the alpha dialect, on real stores and queue, against a client that records."""

import asyncio
import contextlib

import pytest
from structlog.testing import capture_logs

from fakes.alpha import (
    CONFIRM,
    KEY,
    ONE,
    STATUS,
    UID,
    World,
    batch_job,
    child_meta,
    config_map,
    entry,
    job,
    pod_of,
    spec,
)
from fakes.api import status_error
from fakes.jobs import with_condition
from fakes.objects import changed
from simulation.scenarios.memory import remembered
from tfjob_operator.api.client import errors
from tfjob_operator.api.core import ContainerState, ContainerStateWaiting, ContainerStatus
from tfjob_operator.api.meta import OwnerReference
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME
from tfjob_operator.api.v1alpha1.constants import OPERATOR_NAME, TENSORFLOW
from tfjob_operator.controller.alpha.observe import derived_runtime_id, next_runtime_id
from tfjob_operator.controller.jobs.children import LINGER_LIMIT_S, Pod, Service
from tfjob_operator.controller.jobs.writes import TAKEN_DELAY_S, NameTakenError, StaleViewError

THEIRS = {"kind": "TfJob", "name": "theirs", "uid": "other", "controller": True}
MINE = {"uid": UID, "controller": True}
SERVED = spec(entry("MASTER"), entry("PS", 1), RuntimeId="76no")


async def test_a_job_comes_to_life_status_first_then_services_then_jobs() -> None:
    """The status has the RuntimeId before any child is named after it, and says `begun` before any Job is created."""
    world = World(job(SERVED))
    assert await world.sync() == [
        STATUS,
        ("create", "services", "master-76no-0"),
        ("create", "services", "ps-76no-0"),
        ("create", "configmaps", "cm-ps-76no"),
    ]
    assert (world.status["phase"], world.status["runtimeId"]) == ("Creating", "76no")
    world.observe_status()
    assert await world.sync() == []  # what was created is expected
    world.observe("master-76no-0", "ps-76no-0")
    world.config_maps.put(config_map("cm-ps-76no"))
    assert await world.sync() == [STATUS, ("create", "jobs", "master-76no-0"), ("create", "jobs", "ps-76no-0")]
    assert (world.status["phase"], world.status["begun"]["generation"]) == ("Running", 1)
    assert world.recorder.reasons == ["SuccessfulCreate"] * 5
    assert ("Normal", "SuccessfulCreate", "Created job: master-76no-0") in world.recorder.events


async def test_a_child_that_a_list_shows_to_be_gone_is_made_again() -> None:
    """EX-10: somebody deleted a service while the watch was interrupted."""
    world = World()
    world.client.created_version = "20"
    world.put(job(SERVED))
    await world.sync()
    world.observe_status()
    world.observe("master-76no-0")
    world.config_maps.put(config_map("cm-ps-76no"))
    world.services.list_again("19")
    assert await world.sync() == []
    world.services.list_again("20")
    assert ("create", "services", "ps-76no-0") in await world.sync()


async def test_an_operator_that_was_killed_anywhere_goes_on_from_what_is_there() -> None:
    """Names are deterministic: if the cache does not show a child yet, its create fails, and the existing child is found.

    One that lost the label by which it is seen gets it back; a ConfigMap, which the operator may not patch, is made anew.
    """
    world = World(job(SERVED))
    await world.sync()
    found = world.observe_status()
    again = World(found)
    for resource, name in (("services", "master-76no-0"), ("services", "ps-76no-0"), ("configmaps", "cm-ps-76no")):
        again.exists(resource, name, MINE, labels={LABEL_OPERATOR_NAME: OPERATOR_NAME})
    sent = await again.sync()
    assert sent[0] == CONFIRM
    assert [each for each in sent if each[0] == "patch"] == []
    assert again.recorder.events == []
    again.exists("services", "master-76no-0", MINE, uid="s")
    assert ("patch", "services", "master-76no-0") in await again.sync()
    again.exists("configmaps", "cm-ps-76no", MINE, uid="c")
    await again.sync()
    assert again.client.bodies["delete", "configmaps", "cm-ps-76no"]["uid"] == "c"


async def test_nothing_is_created_on_a_view_that_the_server_does_not_confirm() -> None:
    """Another operator may have ended the job since, and its children may be cleaned up."""
    world = World(job(SERVED))
    await world.sync()
    found = world.observe_status()
    again = World(found)
    again.client.objects["tfjobs", "example-job"] = {"metadata": {"resourceVersion": "999"}}
    with pytest.raises(StaleViewError):
        await again.sync()
    assert again.client.actions == [CONFIRM]
    again.client.fail[CONFIRM] = status_error(errors.NotFoundError, 404)
    with pytest.raises(StaleViewError):
        await again.sync()
    late = World(job(ONE))
    late.client.fail[STATUS] = status_error(errors.ConflictError, 409)
    with pytest.raises(errors.ConflictError):
        await late.sync()
    assert late.client.actions == [STATUS]


async def test_its_own_status_stands_in_for_the_cache_until_the_watch_brings_it() -> None:
    """Otherwise each event of a child would bring a conflict."""
    world = World(job(ONE))
    await world.sync()
    world.observe("master-76no-0")
    assert await world.sync() == [STATUS, ("create", "jobs", "master-76no-0")]
    assert world.client.bodies[STATUS][0]["value"] == world.client.given_version


async def test_a_runtime_id_that_another_job_has_is_replaced_before_anything_runs() -> None:
    """It is reported once; what was created under the first RuntimeId is deleted."""
    own = derived_runtime_id(UID)
    world = World(job(spec(entry(), entry("WORKER", 1))))
    world.exists("services", f"worker-{own}-0", THEIRS)
    with pytest.raises(NameTakenError, match="belongs to TfJob theirs"):
        await world.sync()
    world.observe_status()
    world.observe(f"master-{own}-0")
    other = next_runtime_id(UID, own)
    assert await world.sync() == [
        STATUS,
        ("create", "services", f"master-{other}-0"),
        ("create", "services", f"worker-{other}-0"),
        ("delete", "services", f"master-{own}-0"),
    ]
    assert world.status["runtimeId"] == other
    assert [reason for kind, reason, _ in world.recorder.events if kind == "Warning"] == []
    assert "RuntimeIdConflict" in world.recorder.reasons


async def test_a_name_that_is_taken_is_reported_where_no_other_can_be_tried_and_keeps_no_other_replica_waiting() -> (
    None
):
    world = World(job(SERVED))
    world.exists("services", "master-76no-0", THEIRS)
    with capture_logs() as lines:
        await world.sync()
    assert ("create", "services", "ps-76no-0") in world.client.actions
    assert ("create", "configmaps", "cm-ps-76no") in world.client.actions
    levels = {(line["reason"], line["log_level"]) for line in lines if line["event"] == "tfjob_event"}
    assert levels == {("SuccessfulCreate", "info"), ("FailedCreate", "warning")}
    hint = "belongs to TfJob theirs, which needs it; recreate one of the two jobs under another name"
    warned = f"Error creating: Service master-76no-0 already exists and {hint}"
    assert world.recorder.events.count(("Warning", "FailedCreate", warned)) == 1
    while len(world.queue):
        world.queue.done(await world.queue.get())
    assert ("create", "services", "master-76no-0") not in await world.sync()
    await asyncio.sleep(TAKEN_DELAY_S)
    assert len(world.queue) == 1, "nothing shows that the name is free again"


@pytest.mark.parametrize("kind", ["services", "jobs"])
async def test_a_child_of_an_earlier_job_that_persists_is_reported_after_a_while(kind: str) -> None:
    """A finalizer or a late garbage collector keeps it, and somebody has to see what the job waits for."""
    world, name = World(job(ONE)), "master-76no-0"
    world.exists(kind, name, THEIRS)
    world.client.objects[kind, name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if kind == "jobs":
        await world.sync()
        world.observe(name)
        world.observe_status()

    async def warnings() -> list[str]:
        await world.sync()
        return [message for type_, _, message in world.recorder.events if type_ == "Warning"]

    assert await warnings() == []
    await asyncio.sleep(LINGER_LIMIT_S - 1)
    assert await warnings() == []
    await asyncio.sleep(TAKEN_DELAY_S)
    (text,) = await warnings()
    assert f"{name} already exists and is being deleted (UID " in text
    assert await warnings() == [text]


async def test_the_same_failure_is_reported_once_and_another_one_anew() -> None:
    """U2: a create is tried again and again, and each event of it would be a write."""
    world = World(job(ONE))
    for quota in ("no quota", "no quota", "less quota"):
        world.client.fail["create", "services", "master-76no-0"] = status_error(errors.ForbiddenError, 403, quota)
        with pytest.raises(errors.ForbiddenError):
            await world.sync()
    assert [text for _, reason, text in world.recorder.events if reason == "FailedCreate"] == [
        "Error creating: 403 no quota",
        "Error creating: 403 less quota",
    ]


NIGHTLY = "belongs to CronJob example-job; delete it or recreate the job under another name"


@pytest.mark.parametrize(
    ("kind", "warned"),
    [
        ("TFJob", []),
        ("CronJob", [f"Error creating: Service master-76no-0 already exists and {NIGHTLY}"]),
    ],
)
async def test_children_of_an_earlier_job_of_this_name_are_waited_for_in_silence(kind: str, warned: list[str]) -> None:
    """The garbage collector is on its way. A CronJob of this name is no earlier job: its Service never goes."""
    world = World(job(ONE))
    world.exists(
        "services", "master-76no-0", {"kind": kind, "name": "example-job", "uid": "earlier", "controller": True}
    )
    await world.sync()
    assert world.recorder.events == [("Warning", "FailedCreate", text) for text in warned]


async def test_a_job_that_the_server_refuses_fails_with_its_words() -> None:
    world = World(job(ONE))
    await world.sync()
    world.observe_status()
    world.observe("master-76no-0")
    world.client.fail["create", "jobs", "master-76no-0"] = status_error(errors.InvalidError, 422, "spec.template: no")
    await world.sync()
    assert (world.status["phase"], world.status["state"]) == ("Failed", "Failed")
    assert world.status["reason"] == "invalid job spec: job master-76no-0 was rejected: spec.template: no"
    world.observe_status()
    assert await world.sync() == [("delete", "services", "master-76no-0")]


async def test_a_webhook_that_says_no_and_a_missing_right_are_reported_and_tried_again() -> None:
    world = World(job(ONE))
    error = status_error(errors.InvalidError, 422, 'admission webhook "x" denied the request: no')
    for refusal in (error, status_error(errors.ForbiddenError, 403, "no quota")):
        world.client.fail["create", "services", "master-76no-0"] = refusal
        with pytest.raises((errors.InvalidError, errors.ForbiddenError)):
            await world.sync()
        assert world.recorder.reasons[-1] == "FailedCreate"
    del world.client.fail["create", "services", "master-76no-0"]
    assert ("create", "services", "master-76no-0") in await world.sync()


async def test_in_a_namespace_that_is_going_the_first_refusal_is_the_last() -> None:
    world = World(job(ONE))
    refusal = status_error(errors.NamespaceTerminatingError, 403)
    world.client.fail["create", "services", "master-76no-0"] = refusal
    await world.sync()
    world.observe_status()
    assert await world.sync() == []
    assert world.recorder.events == []


async def test_the_end_is_written_and_then_what_runs_is_deleted_with_its_pods() -> None:
    """A delete names the UID, and a Job's pods are deleted with it."""
    world = World()
    await world.begun()
    worker = batch_job("WORKER", 0, runtime_id="76no", uid="w")
    world.edit(spec(entry(), entry("WORKER", 1), RuntimeId="76no"))
    world.batch_jobs.put(worker)
    world.observe("worker-76no-0")
    world.batch_jobs.put(batch_job("MASTER", 0, runtime_id="76no", succeeded=1))
    assert await world.sync() == [STATUS]
    assert (world.status["phase"], world.status["state"]) == ("CleanUp", "Succeeded")
    assert world.recorder.reasons == ["TFJobSucceeded"]
    world.observe_status()
    assert await world.sync() == [("delete", "jobs", "worker-76no-0"), ("delete", "services", "worker-76no-0")]
    options = world.client.bodies["delete", "jobs", "worker-76no-0"]
    assert (options["uid"], options["propagation"]) == ("w", "Background")
    world.batch_jobs.remove(worker)
    world.services.remove(Service(metadata=child_meta("worker-76no-0")))
    assert await world.sync() == [STATUS]
    assert world.status["phase"] == "Done"


async def test_a_delete_that_fails_is_reported_and_one_that_finds_nothing_is_done() -> None:
    world = World(job(ONE))
    await world.sync()
    world.observe_status()
    world.observe("master-76no-0", "old-76no-0", "older-76no-0")
    world.client.fail["delete", "services", "old-76no-0"] = status_error(errors.ForbiddenError, 403)
    world.client.fail["delete", "services", "older-76no-0"] = status_error(errors.NotFoundError, 404)
    with pytest.raises(errors.ForbiddenError):
        await world.sync()
    assert world.recorder.reasons.count("FailedDelete") == 1


async def test_mere_counters_wait_a_second_for_each_other() -> None:
    world = World()
    await world.begun()
    chief = batch_job("MASTER", 0, runtime_id="76no")
    world.pods.put(pod_of(chief, "Pending"))
    assert await world.sync() == []
    await asyncio.sleep(1.0)
    assert await world.sync() == [STATUS]


def not_started(reason: str, *, terminating: bool = False) -> Pod:
    """The master's pod, not started: it is unschedulable, or its training container waits."""
    found = pod_of(batch_job("MASTER", 0, runtime_id="76no"), "Pending", terminating=terminating)
    if reason == "Unschedulable":
        return with_condition(found, "PodScheduled", "False", reason, "no room")
    state = ContainerState(waiting=ContainerStateWaiting(reason, "no such image"))
    return changed(found, status__container_statuses=(ContainerStatus("tensorflow", state=state),))


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Unschedulable", "Error pod master-76no-0-00000 condition message: no room"),
        ("ErrImagePull", "Error pod master-76no-0-00000 container tensorflow waiting message: no such image"),
    ],
)
async def test_why_a_pod_does_not_start_is_told_on_its_job_once(reason: str, message: str) -> None:
    """B34: with v1's messages. People look at their job first, and this pod belongs to the Job controller.

    Also of a held job, whose pods go on; not of a pod that is about to start, or on its way out.
    """
    world = World()
    await world.begun()
    for needs_nobody in (not_started("ContainerCreating"), not_started(reason, terminating=True)):
        world.pods.put(needs_nobody)
        await world.sync()
        assert world.recorder.events == []
    world.pods.put(not_started(reason))
    for _ in range(2):
        await world.sync()
        await asyncio.sleep(1.0)
    assert world.recorder.events == [("Warning", reason, message)]
    held = World()
    await held.begun()
    held.edit(spec(entry(), entry(), RuntimeId="76no"))
    held.pods.put(not_started(reason))
    await held.sync()
    assert held.recorder.reasons == ["InvalidTFJobSpec", reason]


async def test_a_pod_wakes_the_job_whose_job_it_belongs_to() -> None:
    world = World()
    await world.controller.begin()
    chief = batch_job("MASTER", 0, runtime_id="76no")
    world.pods.put(pod_of(chief))
    assert len(world.queue) == 0  # its Job is not known yet, and will wake it
    world.batch_jobs.put(chief)
    assert await world.queue.get() == KEY
    world.queue.done(KEY)
    world.pods.put(pod_of(chief, "Failed", 1))
    assert await world.queue.get() == KEY


async def test_jobs_and_children_of_the_other_dialect_wake_nobody() -> None:
    """Their owners' kinds differ in one letter."""
    world = World(dialect=TENSORFLOW)
    await world.controller.begin()
    world.batch_jobs.put(batch_job("MASTER", 0, runtime_id="76no"))
    world.observe("master-76no-0")
    world.pods.put(pod_of(batch_job("MASTER", 0, runtime_id="76no")))
    assert len(world.queue) == 0
    world = World()
    await world.controller.begin()
    world.put(job({"tfReplicaSpecs": {"Worker": {}}}))
    assert len(world.queue) == 0
    assert await world.sync() == []
    world.put(job(ONE))
    assert await world.queue.get() == KEY


async def test_nothing_is_decided_before_all_caches_are_filled() -> None:
    """A missing right, or CRD, keeps these jobs waiting, and no others."""
    world = World(job(ONE))
    world.pods.has_synced = False
    assert await world.sync() == []
    world.pods.has_synced = True
    assert await world.queue.get() == KEY  # a while later
    assert STATUS in await world.sync()


@pytest.mark.parametrize(
    "error", [errors.NamespaceTerminatingError, errors.ForbiddenError], ids=["expectations", "warnings"]
)
async def test_a_job_that_is_deleted_during_its_own_sync_is_forgotten(error: type[errors.StatusError]) -> None:
    """EX-08: the deletion is handled before the sync writes down what becomes of its last request."""
    world = World(job(ONE))
    action = ("create", "services", "master-76no-0")
    world.client.fail[action] = status_error(error, 403)

    def delete(now: tuple[str, str, str]) -> None:
        if now == action:
            world.jobs.remove(world.jobs.indexer.get(KEY))

    world.client.before = delete
    with contextlib.suppress(errors.ForbiddenError):
        await world.sync()
    assert action in world.client.actions
    world.queue.shut_down()  # the key is taken out of it by a sync that finds no job
    assert not remembered(world.controller, {UID})
    assert await world.sync() == []
    assert (world.controller._memories, world.controller._executor.taken) == ({}, {})


def test_another_jobs_child_of_the_same_name_meets_no_expectation() -> None:
    """Children are found by namespace and UID of their owner."""
    world = World()
    foreign = OwnerReference(kind="TFJob", name="example-job", uid="other", controller=True)
    world.services.put(changed(Service(metadata=child_meta("master-76no-0")), metadata__owner_references=(foreign,)))
    assert world.controller._caches.children_of(job(ONE)).services == []
