"""Writing the status of a job, now or later, and repairing labels and selectors that users have edited."""

import asyncio
import contextlib
from typing import Any, cast

import msgspec
import pytest
from pytest_mock import MockerFixture

from fakes.api import status_error
from fakes.controller import CREATE_POD, CREATE_SERVICE, KEY, LOOK, STATUS, ControllerHarness, Parts
from fakes.jobs import all_workers, decide, disrupted, good_spec, job, observed, pod, service, spec
from fakes.objects import changed, labelled
from kit.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import ConflictError, ConnectionLostError, ForbiddenError, NotFoundError
from tfjob_operator.api.core import ServiceSpec
from tfjob_operator.api.meta import OwnerReference
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import AcceleratorPods, JobStatus, ReplicaStatus, StartRecord, TFJob
from tfjob_operator.controller.jobs.children import ChildLabels, ReplicaKey, Service
from tfjob_operator.controller.jobs.job_metrics import JobMetrics
from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S, START_WINDOW_S, PendingStatus
from tfjob_operator.controller.jobs.writes import StaleViewError
from tfjob_operator.controller.tfjob.apply.status_writer import only_starts
from tfjob_operator.controller.tfjob.build.builder import build_service, labels_of
from tfjob_operator.controller.tfjob.plan.replicas import Drift, find_label_drift, find_selector_drift, labels_wanted

ONE_WORKER = spec(Worker=1)
JOB = job(ONE_WORKER)
DONE = decide(JOB, pod("Worker", 0, "Succeeded", 0))
FORBIDDEN = status_error(ForbiddenError, 403, "exceeded quota")


class Counts(JobMetrics):
    """Records each count as (what, namespace)."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[tuple[str, str]] = []

    def count(self, transition: str, namespace: str) -> None:
        self.counted.append((transition, namespace))


async def write(world: Parts) -> Any:
    assert DONE.status is not None
    return await world.writer.write(JOB, DONE.status, DONE.events, PendingStatus())


async def test_a_status_replaces_the_old_one_and_carries_the_version_it_was_computed_from() -> None:
    """A merge would keep counters of replica types that are gone; the version lets the server refuse a stale view.

    Each new condition is counted and told once, and not again for a condition that was there before.
    """
    counts = Counts()
    world = Parts(metrics=counts)
    written = await write(world)
    version, status = world.client.bodies[STATUS]
    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}
    assert status == {"op": "add", "path": "/status", "value": msgspec.json.decode(msgspec.json.encode(DONE.status))}
    assert (written.metadata.resource_version, written.status) == ("2", DONE.status)
    assert world.recorder.reasons == ["TFJobSucceeded"]
    await world.writer.write(written, written.status, (), PendingStatus())
    assert counts.counted == [("created", "ns"), ("successful", "ns")]


@pytest.mark.parametrize("error", [status_error(ConflictError, 409), status_error(NotFoundError, 404)])
async def test_a_write_that_lost_a_race_tells_nothing(error: Exception) -> None:
    """The sync is repeated on the newer version and will report what is true then. Nothing is created for a job that is gone.

    Invariant: "Only what is on the API server is counted, logged and recorded"
    """
    counts = Counts()
    world = Parts(metrics=counts)
    world.client.fail[STATUS] = error
    with pytest.raises((ConflictError, StaleViewError)):
        await write(world)
    assert (world.recorder.events, counts.counted) == ([], [])


async def test_in_a_burst_of_jobs_pods_come_before_the_first_status() -> None:
    """A status write costs the server as much as two pods; the pods come first, and the first status already says Running."""
    world = await ControllerHarness.of_untouched(ONE_WORKER, others=1)
    assert await world.sync_and_take() == [CREATE_SERVICE, CREATE_POD]
    world.observe_children()
    assert await world.sync_and_take() == []
    await world.queue.get()
    await world.sync()  # now nobody waits
    assert world.taken() == [STATUS]
    assert world.conditions == ["Created"]


async def test_in_a_burst_a_job_whose_replicas_are_all_active_says_so_at_once() -> None:
    """U12: there is nothing more to wait for, and those who wait for the job to run should not wait for other jobs."""
    world = await ControllerHarness.of_untouched(ONE_WORKER, others=1)
    await world.sync()
    world.put_children("Worker", 0)
    world.taken()
    assert await world.sync_and_take() == [STATUS]
    assert world.conditions == ["Created", "Running"]


async def test_a_first_status_waits_no_longer_than_pods_that_start_one_after_the_other() -> None:
    """However long the burst is, and though nothing else wakes the job."""
    world = await ControllerHarness.of_untouched(ONE_WORKER, others=1)
    await world.sync()
    world.queue.done(KEY)
    world.taken()
    assert await world.queue.get() == "ns/other-0"
    waited = 0.0
    while STATUS not in world.taken():
        world.queue.add("ns/another")
        await asyncio.sleep(COUNTER_WINDOW_S)
        waited += COUNTER_WINDOW_S
        woken = {await world.queue.get() for _ in range(len(world.queue))}
        assert KEY in woken
        for key in woken:
            world.queue.done(key)
        world.queue.add("ns/another")
        await world.sync()
    assert waited == START_WINDOW_S


@pytest.mark.parametrize("refused", [False, True])
async def test_a_start_waits_for_its_write_from_the_sync_that_tried_the_first_pod(refused: bool) -> None:
    """In a burst the write may come seconds later, and the API server may have refused the pod meanwhile."""
    world = await ControllerHarness.of_untouched(ONE_WORKER, others=1)
    world.client.fail = {CREATE_POD: FORBIDDEN} if refused else {}
    with pytest.raises(ForbiddenError) if refused else contextlib.nullcontext():
        await world.sync()
    await asyncio.sleep(3)
    world.observe_children()
    await world.queue.get()
    await world.sync()
    assert world.status["startTime"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("error", [FORBIDDEN, status_error(ConflictError, 409), ConnectionLostError("reset")])
async def test_a_job_does_not_start_while_its_first_status_is_refused(error: Exception) -> None:
    """No pod is tried before that is written. Alone in the queue it is tried at once: users who look see the job's state.

    A restarted operator may list an old version of a job that has ended and was cleaned up since: it must not run again.

    After a write whose response was lost it is no longer untouched, and in no burst its pods come first: it may have a status
    by now, and somebody may have edited the job because of that.
    """
    world = await ControllerHarness.of_untouched(ONE_WORKER, others=0)
    world.client.fail[STATUS] = error
    with pytest.raises(type(error)):
        await world.sync()
    world.client.fail.clear()
    world.queue.add("ns/other")
    assert world.taken() == [STATUS]
    await asyncio.sleep(60)
    assert (await world.sync_and_take())[0] == STATUS
    assert world.status["startTime"] == "2026-01-01T00:01:00Z"


async def test_counters_wait_for_each_other_and_conditions_wait_for_nothing() -> None:
    """A status write costs the server as much as two pods: one write for all counters of a second."""
    world = await ControllerHarness.of_running(all_workers(3))
    for index in range(2):
        await asyncio.sleep(COUNTER_WINDOW_S / 4)
        world.pods.put(pod("Worker", index, "Succeeded", 0))
        await world.sync()
    assert world.taken() == []
    await asyncio.sleep(COUNTER_WINDOW_S)
    assert await world.sync_and_take() == [STATUS]
    assert world.status["replicaStatuses"]["Worker"]["succeeded"] == 2
    world.observe_status()
    world.pods.put(pod("Worker", 2, "Succeeded", 0))
    assert await world.sync_and_take() == [STATUS]


async def started_one_by_one() -> ControllerHarness:
    """A job whose first worker runs, as its status says, and whose second worker has just started."""
    world = ControllerHarness(job(all_workers(4)))
    for index in range(4):
        world.put_children("Worker", index, "Running" if index == 0 else "Pending")
    await world.sync_and_observe()
    world.pods.put(pod("Worker", 1))
    await world.idle()
    world.taken()
    return world


async def test_the_counters_say_within_a_second_that_pods_have_started() -> None:
    """U12: it used to take five, in which `kubectl get` showed one active worker of four."""
    world = await started_one_by_one()
    for index in (2, 3):
        await world.sync()
        await asyncio.sleep(COUNTER_WINDOW_S / 3)
        world.pods.put(pod("Worker", index))
        world.queue.done(await world.queue.get())
    assert world.taken() == []
    assert await world.queue.get() == KEY  # nothing but time wakes it
    assert await world.sync_and_take() == [STATUS]
    assert world.status["replicaStatuses"]["Worker"]["active"] == 4


async def test_the_counters_say_at_once_that_the_last_pod_has_started() -> None:
    """U12: also in a burst."""
    world = await started_one_by_one()
    world.queue.add("ns/other")
    for index in (2, 3):
        assert await world.sync_and_take() == []
        world.pods.put(pod("Worker", index))
    assert await world.sync_and_take() == [STATUS]


async def test_in_a_burst_pods_that_start_one_after_the_other_are_written_once() -> None:
    """U12: while other jobs wait; but the end of a pod is not held back that long."""
    world = await started_one_by_one()
    world.queue.add("ns/other")
    await world.sync()
    await asyncio.sleep(START_WINDOW_S / 3)
    world.pods.put(pod("Worker", 2))
    await world.sync()
    await asyncio.sleep(START_WINDOW_S / 3)
    assert world.taken() == []
    world.pods.put(pod("Worker", 3))
    world.pods.put(pod("Worker", 0, "Succeeded", 0))
    assert await world.sync_and_take() == []
    await asyncio.sleep(COUNTER_WINDOW_S)
    assert await world.sync_and_take() == [STATUS]
    written = world.status["replicaStatuses"]["Worker"]
    assert (written["active"], written["succeeded"]) == (3, 1)


def test_an_active_count_that_falls_is_not_a_start() -> None:
    """U12: it is written with the other counters, within the shorter window."""
    one, two = (JobStatus(replica_statuses={"Worker": ReplicaStatus(active=count)}) for count in (1, 2))
    assert (only_starts(one, two), only_starts(two, one)) == (True, False)


def test_what_is_recorded_of_running_pods_does_not_delay_or_hasten_a_start() -> None:
    """U12: a pod with accelerators becomes active like any other."""
    one, two = (JobStatus(replica_statuses={"Worker": ReplicaStatus(active=count)}) for count in (1, 2))
    assert only_starts(one, changed(two, accelerator_pods=AcceleratorPods(counted=("uid",))))


async def test_a_pod_with_accelerators_is_counted_at_once_unless_it_succeeded() -> None:
    """It may be gone within the time for which counters wait, and would then count as deleted."""
    world = await ControllerHarness.of_running(all_workers(2, "ExitCode"))
    first, second = (changed(pod("Worker", index), started=EPOCH, accelerators=(("a/b", 1),)) for index in (0, 1))
    world.pods.put(first)
    world.pods.put(changed(second, status=pod("Worker", 1, "Succeeded", 0).status))
    assert await world.sync_and_take() == []
    world.pods.put(disrupted(changed(first, metadata__deletion_timestamp=EPOCH), "EvictionByEvictionAPI"))
    assert await world.sync_and_take() == [STATUS]
    assert world.status["acceleratorSeconds"]["a/b"].keys() == {"disrupted", "succeeded"}


async def test_a_first_status_that_waits_is_not_written_to_a_job_that_goes() -> None:
    """Found by the simulation: a status was written with what is remembered and no condition at all."""
    world = await ControllerHarness.of_untouched(ONE_WORKER, others=1)
    await world.sync()
    world.taken()
    await asyncio.sleep(START_WINDOW_S)
    assert await world.sync_and_take(job(ONE_WORKER, resource_version="42", deletion_timestamp=EPOCH)) == []


WORKER_0 = ReplicaKey.of("mnist", "Worker", 0)
POD = pod("Worker", 0)
SERVICE = service("Worker", 0)
RIGHT = {
    "training.kubeflow.org/operator-name": "tfjob-controller",
    "training.kubeflow.org/job-name": "mnist",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}
PATCH_POD = ("patch", "pods", "mnist-worker-0")


def selecting(selector: dict[str, str] | None) -> Service:
    return changed(SERVICE, spec=ServiceSpec(selector=selector))


def test_new_children_need_no_repair() -> None:
    """U9, U17: otherwise each would be patched once. Decoding drops the selector, since it says the same as the labels."""
    assert msgspec.convert(labels_of(JOB.metadata, good_spec(JOB), WORKER_0), ChildLabels) == labels_wanted(
        "mnist", WORKER_0
    )
    made = build_service(JOB.metadata, good_spec(JOB), WORKER_0)
    assert made["spec"]["selector"] == RIGHT
    assert tuple(RIGHT) == c.SELECTING_LABELS
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
    edited, edited_service = labelled(POD, **labels), labelled(SERVICE, **labels)
    assert [*find_label_drift("mnist", observed([edited]), [])] == [Drift(edited, WORKER_0)]
    assert [*find_label_drift("mnist", [], [(WORKER_0, edited_service)])] == [Drift(edited_service, WORKER_0)]


def test_what_is_as_it_should_be_or_about_to_go_is_left_alone() -> None:
    """U9: the label with the restart policy belongs to the pod alone (U15), and the newer family of labels is sufficient."""
    going = labelled(pod("Worker", 0, terminating=True), replica_index="abc")
    newer = labelled(POD, group_name="", job_name="", replica_type="", replica_index="")
    for found in (POD, going, newer, labelled(POD, restart_policy="Always")):
        assert [*find_label_drift("mnist", observed([found]), [])] == []
    assert [
        *find_label_drift("mnist", [], [(WORKER_0, SERVICE), (WORKER_0, service("Worker", 0, terminating=True))])
    ] == []


@pytest.mark.parametrize(
    "selector",
    [
        pytest.param(RIGHT | {"training.kubeflow.org/replica-index": "1"}, id="another replica"),
        pytest.param(RIGHT | {"version": "2"}, id="one more"),
        pytest.param({"app": "mine"}, id="another"),
        pytest.param({}, id="empty"),
        pytest.param(None, id="none"),
    ],
)
def test_a_service_whose_selector_was_edited_is_to_be_mended(selector: dict[str, str] | None) -> None:
    """U17: otherwise its replica is not found by name any more. One whose labels alone were edited still selects its pod."""
    edited, labelled_only = selecting(selector), labelled(selecting(RIGHT), prefixed_replica_index="7")
    services = [(WORKER_0, each) for each in (edited, SERVICE, labelled_only)]
    assert [*find_selector_drift("mnist", services)] == [Drift(edited, WORKER_0)]


@pytest.mark.parametrize("suspend", [True, False])
def test_nothing_is_mended_that_is_about_to_go(suspend: bool) -> None:
    """U9, U17: neither a surplus child, nor any child of a suspended job."""
    surplus, stray = labelled(pod("Worker", 3), job_name="debug"), selecting({})
    found = decide(job(spec(Worker=1, runPolicy={"suspend": suspend})), surplus, POD, services=[stray])
    assert found.label_drift == ()
    assert bool(found.selector_drift) is not suspend


LABELS = {"metadata": {"uid": "uid-mnist-worker-0", "labels": labels_of(JOB.metadata, good_spec(JOB), WORKER_0)}}
SELECTOR = [
    {"op": "replace", "path": "/metadata/uid", "value": "uid-mnist-worker-0"},
    {"op": "add", "path": "/spec/selector", "value": RIGHT},
]


@pytest.mark.parametrize(
    ("edited", "body", "reason"),
    [
        (labelled(POD, replica_index="abc"), LABELS, "RestoredPodLabels"),
        (selecting({"app": "mine"}), SELECTOR, "RestoredServiceSelector"),
    ],
)
async def test_what_was_edited_is_restored_once_and_told(edited: Any, body: object, reason: str) -> None:
    """U9, U17: by one patch with the UID of the child; nothing else is done about it. A selector is replaced as a whole.

    Invariant: "Every patch of a child specifies its UID"
    """
    world, resource = (
        await ControllerHarness.of_running(ONE_WORKER),
        "services" if isinstance(edited, Service) else "pods",
    )
    (world.services if resource == "services" else world.pods).put(edited)
    await world.sync()
    await world.sync()  # the cache does not show it yet
    assert world.taken() == [("patch", resource, "mnist-worker-0")]
    assert world.client.bodies["patch", resource, "mnist-worker-0"] == body
    ((kind, told, message),) = world.recorder.events
    assert (kind, told) == ("Warning", reason)
    assert f"{resource[:-1]} mnist-worker-0" in message


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FORBIDDEN, ["FailedRestorePodLabels"]),
        (status_error(ConflictError, 409), []),
        (status_error(NotFoundError, 404), []),
    ],
)
async def test_what_can_not_be_mended_is_tried_again_and_keeps_nothing_waiting(
    error: Exception, told: list[str]
) -> None:
    """U9, D14: the job goes on; a first conflict is not reported, nor a pod that is gone. The job wakes by itself.

    Invariant: "A rejected repair is reported as an event and not raised"
    """
    world = await ControllerHarness.of_running(ONE_WORKER)
    world.client.fail[PATCH_POD] = error
    world.pods.put(labelled(POD, replica_index="abc"))
    world.services.remove(SERVICE)
    await world.idle()
    assert await world.sync_and_take() == [PATCH_POD, LOOK, CREATE_SERVICE]
    assert world.recorder.reasons == [*told, "SuccessfulCreateService"]
    world.services.put(SERVICE)
    await world.idle()
    assert await world.queue.get() == KEY
    assert await world.sync_and_take() == [PATCH_POD]


async def test_before_the_first_pod_of_an_attempt_the_api_server_is_asked_for_earlier_ones() -> None:
    """A cache may lag. A pod that it does not show, since somebody took its label away, gets the label back (D13)."""
    status = JobStatus(attempt=1, begun=StartRecord(1, {"Worker": 1}))
    world = ControllerHarness(job(spec(Worker=1), status=status))
    hidden = labelled(pod("Worker", 0, "Failed", 1), operator_name="", attempt="0")
    stranger = changed(hidden, metadata__owner_references=(OwnerReference(controller=True, uid="another"),))
    world.client.listed["pods"] = [msgspec.to_builtins(stranger), msgspec.to_builtins(hidden)]
    with pytest.raises(StaleViewError, match="1 pods exist that must be gone first, such as mnist-worker-0"):
        await world.sync_and_observe()
    asked = {"labelSelector": "training.kubeflow.org/job-name=mnist", "namespace": "ns"}
    assert world.client.bodies["list", "pods", ""] == asked
    assert world.client.bodies["patch", "pods", "mnist-worker-0"]["metadata"]["labels"] == {
        c.LABEL_OPERATOR_NAME: c.OPERATOR_NAME
    }
    assert CREATE_POD not in world.taken()
    assert world.recorder.reasons[-1] == "RestoredPodLabels"
    world.client.listed["pods"].pop()
    world.observe_status()
    await world.sync()
    assert CREATE_POD in world.taken()


async def test_the_decision_of_a_rule_is_counted_when_its_pod_is_deleted(mocker: MockerFixture) -> None:
    """Not before: a failed delete is tried again."""
    decided = mocker.spy(JobMetrics, "decided")
    policy = {"failurePolicy": {"rules": [{"name": "any", "action": "RestartReplica"}]}}
    world = await ControllerHarness.of_running(spec(Worker=1, runPolicy=policy))
    world.pods.put(pod("Worker", 0, "Failed", 1))
    world.client.fail["delete", "pods", "mnist-worker-0"] = FORBIDDEN
    with pytest.raises(ForbiddenError):
        await world.sync_and_observe()
    assert decided.call_count == 0
    world.client.fail.clear()
    world.observe_status()
    await world.sync()
    assert decided.call_args.args[1:] == ("ns", "any", "RestartReplica", "Worker")


LIST_PODS = ("list", "pods", "")


async def _decided() -> ControllerHarness:
    """A queued job, one of many in a burst, whose chief has just succeeded while its parameter server runs."""
    world = await ControllerHarness.of_running(spec(Chief=1, PS=1))
    queued = cast("TFJob", world.jobs.indexer.get(KEY))
    world.jobs.put(changed(queued, metadata__labels={c.LABEL_QUEUE: "gpus"}))
    for number in range(50):
        world.queue.add(f"ns/other-{number}")
    world.pods.put(pod("Chief", 0, "Succeeded", 0))
    await world.sync_and_observe()
    assert world.taken() == [STATUS]
    return world


async def test_a_decided_end_is_written_at_once_and_alone_even_in_a_burst() -> None:
    world = await _decided()
    assert world.status["begun"]["ending"]["type"] == "Succeeded"
    assert "Succeeded" not in world.conditions
    assert world.recorder.reasons == []
    assert await world.sync_and_take() == [("delete", "pods", "mnist-ps-0")]


async def test_the_end_of_a_queued_job_is_written_when_the_api_server_has_no_pod_that_holds_quota() -> None:
    """The cache may lag, and it does not show a pod whose label somebody removed (D13)."""
    world = await _decided()
    await world.sync()
    world.pods.remove(pod("PS", 0))
    world.taken()
    hidden = labelled(pod("Worker", 7), operator_name="")
    world.client.listed["pods"] = [msgspec.to_builtins(hidden), msgspec.to_builtins(pod("Chief", 0, "Succeeded", 0))]
    with pytest.raises(StaleViewError, match="such as mnist-worker-7"):
        await world.sync()
    assert world.taken() == [LIST_PODS, ("patch", "pods", "mnist-worker-7")]
    world.client.listed["pods"].pop(0)
    await world.sync_and_observe()
    assert world.taken() == [LIST_PODS, STATUS]
    assert world.conditions[-1] == "Succeeded"


async def test_the_end_of_any_other_job_asks_for_no_pods() -> None:
    world = await ControllerHarness.of_running(spec(Chief=1, PS=1))
    world.pods.put(pod("Chief", 0, "Succeeded", 0))
    assert await world.sync_and_take() == [STATUS]
    assert world.conditions[-1] == "Succeeded"


async def test_a_pod_that_is_not_observed_yet_is_active_in_a_suspended_job() -> None:
    """Kueue reads exactly this to release the quota: for 0.1 s four new pods were not counted."""
    world = ControllerHarness(job(ONE_WORKER))
    await world.sync_and_observe()
    assert CREATE_POD in world.taken()
    created = cast("TFJob", world.jobs.indexer.get(KEY))
    suspended = changed(created, spec=job(spec(Worker=1, runPolicy={"suspend": True})).spec, metadata__generation=2)
    await world.sync(suspended)
    assert world.status["replicaStatuses"]["Worker"]["active"] == 1
