"""Writing the status of a job, and repairing labels and selectors that users have edited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from fakes.api import FakeClient, status_error
from fakes.controller import KEY, ControllerHarness, status_writer
from fakes.jobs import good_spec, job, observed, pod, replica, service
from fakes.jobs import pod as a_pod
from fakes.recorder import FakeRecorder
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import ConflictError, ForbiddenError, NotFoundError
from tfjob_operator.api.core import ServiceSpec
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.jobs.children import ChildLabels, Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.controller.tfjob.build.children import build_service, labels_of
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.replicas import Mending, labels_wanted, relabellings, reselections

PATCH = ("patch status", "tfjobs", "mnist")


class CountingMetrics(JobMetrics):
    """Records each count as (what, namespace)."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[tuple[str, str]] = []

    def count(self, transition: str, namespace: str) -> None:
        self.counted.append((transition, namespace))


class StatusWriterHarness:
    """A status writer and what surrounds it, with a job that has just succeeded."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.recorder = FakeRecorder()
        self.metrics = CountingMetrics()
        self.writer = status_writer(self.client, self.recorder, self.metrics)
        self.job = job({"tfReplicaSpecs": {"Worker": replica(1)}})
        pods = [a_pod("Worker", 0, "Succeeded", 0)]
        decided = plan(self.job, good_spec(self.job), pods, [], EPOCH)
        assert decided.status is not None
        self.status, self.events = decided.status, decided.events


async def test_a_status_replaces_the_old_one_and_carries_the_version_it_was_computed_from() -> None:
    """A merge would keep counters of replica types that are gone; the version lets the server refuse a stale view."""
    world = StatusWriterHarness()
    written = await world.writer.write(world.job, world.status, world.events)
    version, status = world.client.bodies[PATCH]
    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}
    assert (status["op"], status["path"]) == ("add", "/status")
    assert status["value"] == msgspec.to_builtins(world.status)
    assert written is not None
    assert (written.metadata.resource_version, written.status) == ("2", world.status)


async def test_each_new_condition_is_counted_and_told_once() -> None:
    """Counted once per transition, and not again for a condition that was there before."""
    world = StatusWriterHarness()
    written = await world.writer.write(world.job, world.status, world.events)
    assert world.metrics.counted == [("created", "ns"), ("successful", "ns")]
    assert world.recorder.reasons == ["TFJobSucceeded"]
    assert written is not None
    await world.writer.write(written, world.status, ())
    assert len(world.metrics.counted) == 2


async def test_a_write_that_lost_a_race_tells_nothing() -> None:
    """The sync is repeated on the newer version and will report what is true then.

    Invariant: "Only what is on the API server is counted, logged and recorded"
    """
    world = StatusWriterHarness()
    world.client.fail[PATCH] = status_error(ConflictError, 409)
    with pytest.raises(ConflictError):
        await world.writer.write(world.job, world.status, world.events)
    assert (world.recorder.events, world.metrics.counted) == ([], [])


async def test_a_job_that_is_gone_needs_no_status() -> None:
    """404 is no error."""
    world = StatusWriterHarness()
    world.client.fail[PATCH] = status_error(NotFoundError, 404)
    assert await world.writer.write(world.job, world.status, world.events) is None
    assert world.recorder.events == []


ONE_WORKER = {"tfReplicaSpecs": {"Worker": replica(1)}}
JOB = job(ONE_WORKER)
WORKER_0 = ReplicaKey("Worker", 0, "mnist-worker-0")
POD = pod("Worker", 0)
SERVICE = service("Worker", 0)
RIGHT = {
    "training.kubeflow.org/operator-name": "tfjob-controller",
    "training.kubeflow.org/job-name": "mnist",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}
PATCH_POD = ("patch", "pods", "mnist-worker-0")
PATCH_SERVICE = ("patch", "services", "mnist-worker-0")


def labelled(child: Any, **labels: str) -> Any:
    """The child with these labels changed; "" takes one away."""
    changed = msgspec.structs.replace(child.metadata.labels or ChildLabels(), **labels)
    return msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, labels=changed))


def selecting(selector: Mapping[str, str] | None) -> Service:
    """The service as it is decoded with this selector."""
    return msgspec.structs.replace(SERVICE, spec=ServiceSpec(selector=None if selector is None else dict(selector)))


def test_the_labels_of_a_new_child_are_those_that_it_should_have() -> None:
    """U9: those by which it is found and told apart; otherwise each child would be patched once."""
    made = labels_of(JOB.metadata, good_spec(JOB), WORKER_0)
    assert msgspec.convert(made, ChildLabels) == labels_wanted("mnist", WORKER_0)


def test_the_selector_of_a_new_service_is_one_that_need_not_be_kept() -> None:
    """U17: decoding drops it, since it says the same as the labels."""
    made = build_service(JOB.metadata, good_spec(JOB), WORKER_0)
    assert made["spec"]["selector"] == RIGHT
    assert msgspec.json.decode(msgspec.json.encode(made), type=Service).spec is None


@pytest.mark.parametrize(
    "labels",
    [
        {"replica_index": "abc"},
        {"replica_index": "1", "prefixed_replica_index": "1"},
        {"replica_type": "", "prefixed_replica_type": ""},
        {"prefixed_replica_index": ""},
        {"job_name": "debug"},
        {"group_name": "mine"},
    ],
)
def test_a_child_whose_labels_were_edited_is_to_be_relabelled(labels: dict[str, str]) -> None:
    """U9: its name and its owner say what it is."""
    edited = labelled(POD, **labels)
    assert [*relabellings("mnist", observed([edited]), [])] == [Mending(edited, WORKER_0)]
    assert [*relabellings("mnist", [], [(WORKER_0, labelled(SERVICE, **labels))])] == [
        Mending(labelled(SERVICE, **labels), WORKER_0)
    ]


def test_what_is_as_it_should_be_or_about_to_go_is_left_alone() -> None:
    """U9: the label with the restart policy belongs to the pod alone (U15)."""
    going = labelled(pod("Worker", 0, terminating=True), replica_index="abc")
    for found in (POD, going, labelled(POD, restart_policy="Always")):
        assert [*relabellings("mnist", observed([found]), [])] == []
    assert [*relabellings("mnist", [], [(WORKER_0, SERVICE), (WORKER_0, service("Worker", 0, terminating=True))])] == []


@pytest.mark.parametrize(
    "selector",
    [
        RIGHT | {"training.kubeflow.org/replica-index": "1"},
        RIGHT | {"version": "2"},
        {"app": "mine"},
        {},
        None,
    ],
    ids=["another replica", "one more", "another", "empty", "none"],
)
def test_a_service_whose_selector_was_edited_is_to_be_mended(selector: dict[str, str] | None) -> None:
    """U17: otherwise the replica is not found by its name any more."""
    edited = selecting(selector)
    assert [*reselections("mnist", [(WORKER_0, edited), (WORKER_0, SERVICE)])] == [Mending(edited, WORKER_0)]


def test_a_service_whose_labels_alone_were_edited_still_selects_its_pod() -> None:
    """U17, U9: the labels are mended, and not the selector."""
    edited = msgspec.structs.replace(labelled(SERVICE, prefixed_replica_index="7"), spec=ServiceSpec(selector=RIGHT))
    assert edited.spec is not None
    assert [*reselections("mnist", [(WORKER_0, edited)])] == []


def test_nothing_is_mended_that_is_about_to_go() -> None:
    """U9, U17: neither a surplus child, nor any child of a suspended job."""
    surplus, stray = labelled(pod("Worker", 3), job_name="debug"), selecting({})
    for suspend in (True, False):
        tfjob = job(ONE_WORKER | {"runPolicy": {"suspend": suspend}})
        found = plan(tfjob, good_spec(tfjob), [surplus, POD], [stray], EPOCH)
        assert found.relabel == ()
        assert bool(found.reselect) is not suspend


async def settled() -> ControllerHarness:
    """A job whose children are there, and whose status says so."""
    world = ControllerHarness(job(ONE_WORKER))
    world.pods.put(POD)
    world.services.put(SERVICE)
    await world.sync_and_observe()
    world.taken()
    world.recorder.events.clear()
    return world


async def test_an_edited_label_is_restored_once_and_told() -> None:
    """U9: by one patch with the UID of the pod; nothing else is done about it.

    Invariant: "A repair carries the UID of its child"
    """
    world = await settled()
    world.pods.put(labelled(POD, replica_index="abc"))
    await world.sync()
    await world.sync()  # the cache does not show it yet
    assert world.taken() == [PATCH_POD]
    assert world.client.bodies[PATCH_POD] == {
        "metadata": {"uid": "uid-mnist-worker-0", "labels": labels_of(JOB.metadata, good_spec(JOB), WORKER_0)}
    }
    ((kind, reason, message),) = world.recorder.events
    assert (kind, reason) == ("Warning", "RestoredPodLabels")
    assert "pod mnist-worker-0" in message


async def test_an_edited_selector_is_restored_once_and_told() -> None:
    """U17: replaced as a whole, and in that service alone."""
    world = await settled()
    world.services.put(selecting({"app": "mine"}))
    await world.sync()
    assert world.taken() == [PATCH_SERVICE]
    assert world.client.bodies[PATCH_SERVICE] == [
        {"op": "replace", "path": "/metadata/uid", "value": "uid-mnist-worker-0"},
        {"op": "add", "path": "/spec/selector", "value": RIGHT},
    ]
    ((kind, reason, message),) = world.recorder.events
    assert (kind, reason) == ("Warning", "RestoredServiceSelector")
    assert "service mnist-worker-0" in message


@pytest.mark.parametrize(
    ("error", "told"), [((ForbiddenError, 403), ["FailedRestorePodLabels"]), ((ConflictError, 409), [])]
)
async def test_what_can_not_be_mended_is_tried_again_and_keeps_nothing_waiting(error: Any, told: list[str]) -> None:
    """U9, D14: the job goes on; a first conflict is not reported.

    Invariant: "A refused repair becomes an event and is not raised"
    """
    world = await settled()
    world.client.fail[PATCH_POD] = status_error(*error)
    world.pods.put(labelled(POD, replica_index="abc"))
    world.services.remove(SERVICE)
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "2"}}
    await world.sync()
    assert world.taken() == [PATCH_POD, ("get", "tfjobs", "mnist"), ("create", "services", "mnist-worker-0")]
    assert world.recorder.reasons == [*told, "SuccessfulCreateService"]


async def test_a_job_wakes_by_itself_to_try_again() -> None:
    """U9: a refused patch brings no watch event."""
    world = await settled()
    world.client.fail[PATCH_POD] = status_error(ForbiddenError, 403)
    world.pods.put(labelled(POD, replica_index="abc"))
    world.queue.done(await world.queue.get())
    await world.sync()
    del world.client.fail[PATCH_POD]
    assert await world.queue.get() == KEY
    await world.sync()
    assert world.taken() == [PATCH_POD] * 2


async def test_a_child_that_is_gone_needs_no_mending() -> None:
    """U9: and it is not reported."""
    world = await settled()
    world.client.fail[PATCH_POD] = status_error(NotFoundError, 404)
    world.pods.put(labelled(POD, replica_index="abc"))
    await world.sync()
    assert world.recorder.events == []


def test_a_plan_that_only_mends_makes_and_deletes_nothing() -> None:
    """U9: so it needs no confirmation of the view that it was made on."""
    assert not Plan(relabel=(Mending(POD, WORKER_0),), reselect=(Mending(SERVICE, WORKER_0),)).acts
    assert isinstance(POD, Pod)
    assert tuple(RIGHT) == c.SELECTING_LABELS
