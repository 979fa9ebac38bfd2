"""Views: what may be done on them, and why; what confirms them, and what a leadership term and a pruned status change."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from pytest_mock import MockerFixture
from structlog.testing import capture_logs

from fakes.api import FakeClient, status_error
from fakes.controller import KEY, LOOK, STATUS, ControllerHarness, Parts
from fakes.jobs import OWNER, job, pod, spec
from fakes.metrics import FakeMetrics
from fakes.objects import changed
from fakes.transport import slow_server
from kit.virtual_loop import EPOCH
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ConnectionLostError, ForbiddenError, NotFoundError
from tfjob_operator.api.meta import OWNER_INDEX
from tfjob_operator.api.v1.constants import Network
from tfjob_operator.api.v1.types import (
    AcceleratorPods,
    JobAttempt,
    JobCondition,
    JobStatus,
    ReplicaStatus,
    RunningPods,
    StartRecord,
)
from tfjob_operator.controller.jobs.children import CHILD_INDEXERS, ORPHAN_INDEX, Pod, ReplicaKey
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.job_metrics import ACCELERATORS
from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S
from tfjob_operator.controller.jobs.writes import StaleViewError
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.plan.replicas import is_from_other_operator
from tfjob_operator.controller.tfjob.plan.types import Plan
from tfjob_operator.controller.tfjob.tfjob_controller import TFJobController
from tfjob_operator.controller.tfjob.view import (
    LOGGED_AGAIN_S,
    PROBE_S,
    JobMemory,
    LeadershipTerm,
    Permission,
    View,
)
from tfjob_operator.informers.store import MutableIndexer

CREATED = JobStatus(conditions=(JobCondition(type="Created", status="True"),))
ENDED = JobStatus(conditions=(*CREATED.conditions, JobCondition(type="Succeeded", status="True")))
NEWER, OLDER = "41", "39"
"""Versions on either side of the beginning of our leadership term."""


async def views_of(world: ControllerHarness) -> TFJobController:
    """A controller that is alone, in a leadership term that begins at version 40."""
    assert world.leadership_term is not None
    world.client.list_version = "40"
    await world.leadership_term.begin()
    world.taken()
    return world.controller


def opened(views: TFJobController) -> View:
    found = views.open(KEY)
    assert found is not None
    return found[0]


def keep(views: TFJobController, status: JobStatus, *events: JobEvent) -> None:
    """Compute a status that is not written yet."""
    found = views.open(KEY)
    assert found is not None
    found[1].status.computed(status, events)


async def test_children_of_another_operator_are_looked_for_though_its_status_shows_late() -> None:
    """What was observed on the older view is kept all the same."""
    world = ControllerHarness(job(spec(Worker=1)), alone=True)
    views = await views_of(world)
    keep(views, JobStatus(begun=StartRecord(1), finished_indices={"Worker": "0"}))
    world.jobs.put(job(spec(Worker=1), status=CREATED, resource_version="2"))
    found = opened(views).job.status
    assert is_from_other_operator(found)
    assert found.finished_indices == {"Worker": "0"}


@pytest.mark.parametrize("subdomain", ["mnist", ""])
async def test_the_network_of_a_job_without_a_record_is_that_of_its_cached_pods(subdomain: str) -> None:
    given = spec(Worker=1, runPolicy={"network": "shared"})
    world = ControllerHarness(job(given, status=CREATED), alone=True)
    views = await views_of(world)
    world.pods.put(changed(pod("Worker", 0), spec__subdomain=subdomain))
    found = opened(views).valid_spec
    assert found is not None
    assert found.network is (Network.SHARED if subdomain else Network.PER_REPLICA)


async def test_a_restart_that_is_not_written_yet_is_reported_with_the_write_that_succeeds() -> None:
    """No later plan decides it again: its condition and its event are kept with it. A job that has ended never restarts."""
    restarting = JobStatus(conditions=(JobCondition(type="Restarting", status="True"),), attempt=1)
    event = JobEvent("Warning", "RestartedAllReplicas", "mnist restarts")
    world = ControllerHarness(job(spec(Worker=1), status=CREATED), alone=True)
    views = await views_of(world)
    keep(views, restarting, event)
    found = opened(views)
    assert (found.job.status.conditions, found.job.status.attempt) == (restarting.conditions, 1)
    assert list(found.unreported) == [event]
    for status in (ENDED, msgspec.structs.replace(CREATED, attempt=1)):
        world.jobs.put(job(spec(Worker=1), status=status, resource_version="2"))
        assert (opened(views).job.status.conditions, list(opened(views).unreported)) == (status.conditions, [])


async def test_a_job_whose_end_is_not_written_yet_has_not_ended() -> None:
    """Its pods stay until the end is written, which a later plan decides again, also in an attempt that is not written yet."""
    history = (JobAttempt(number=0), JobAttempt(number=1))
    ended = JobStatus(conditions=ENDED.conditions, attempt=1, attempt_history=history, finished_indices={"Worker": "0"})
    world = ControllerHarness(job(spec(Worker=1), status=CREATED), alone=True)
    views = await views_of(world)
    keep(views, ended, JobEvent("Normal", "TFJobSucceeded", "mnist has succeeded"))
    found = opened(views)
    assert (found.job.status.conditions, found.job.status.attempt, found.unreported) == (CREATED.conditions, 1, ())
    assert (found.job.status.finished_indices, found.job.status.attempt_history) == ({"Worker": "0"}, history[:1])
    assert found.permission is not Permission.FINAL


@pytest.mark.parametrize(
    ("version", "status", "met", "expected"),
    [
        (NEWER, JobStatus(), True, Permission.FIRST),
        (NEWER, CREATED, True, Permission.UNCONFIRMED),
        (OLDER, JobStatus(), True, Permission.UNCONFIRMED),
        (OLDER, ENDED, True, Permission.FINAL),
        (NEWER, JobStatus(), False, Permission.EXPECTING),
        (OLDER, ENDED, False, Permission.EXPECTING),
    ],
)
async def test_a_view_says_whether_children_may_be_made_and_deleted_and_why(
    version: str, status: JobStatus, met: bool, expected: Permission
) -> None:
    """The job is read again only for a view that may be old."""
    world = ControllerHarness(job(status=status, resource_version=version), alone=True)
    if not met:
        world.expectations.expect_creations(OWNER, "pod", ["mnist-worker-0"])
    view = opened(await views_of(world))
    assert (view.permission, view.may_act) == (expected, met)
    world.confirms(version)
    todo = Plan(create_pods=(ReplicaKey.of("mnist", "Worker", 0),))
    await world.controller.execute(view, JobMemory(), todo)
    assert [each for each in world.taken() if each == LOOK] == ([LOOK] if expected is Permission.UNCONFIRMED else [])


async def test_expectations_are_asked_before_the_caches(mocker: MockerFixture) -> None:
    """EX-04: a child that arrives in between delays the job, and is not made twice.

    B68: five thousand pods of other jobs are never iterated over; only the indices by owner and of orphans are read.

    Invariant: "Expectations are checked before the caches are read"
    """
    asked: list[str] = []

    class Listening(MutableIndexer[Any]):
        def by_index(self, index: str, value: str) -> list[Any]:
            asked.append(index)
            return super().by_index(index, value)

        def list(self) -> list[Any]:
            raise AssertionError("the whole store was read")

    world = ControllerHarness(job(), alone=True)
    views = await views_of(world)
    for store in (world.pods, world.services, world.config_maps):
        store.indexer = Listening(CHILD_INDEXERS)
    mocker.patch.object(world.expectations, "satisfied", side_effect=lambda _owner: asked.append("expectations"))
    opened(views)
    assert asked == ["expectations", *[OWNER_INDEX] * 3, *[ORPHAN_INDEX] * 2]


async def test_a_job_of_another_controller_has_no_view(mocker: MockerFixture) -> None:
    """B75: and its deletion is not counted."""
    theirs = job(spec(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    world = ControllerHarness(theirs, alone=True)
    views = await views_of(world)
    assert views.open(KEY) is None
    count = mocker.patch.object(world.metrics, "count")
    views.forget(job().metadata)
    assert not count.called


CONFIRM, WRITE, CREATE = "get tfjobs", "patch status tfjobs", "create pods"
STARTS = changed(CREATED, replica_statuses={"Worker": ReplicaStatus(active=1)})
"""A status in which only the number of active pods differs: it may wait for more of them."""


STATUSES = (None, STARTS, ENDED)


@pytest.mark.parametrize(
    ("permission", "calls"),
    [
        (Permission.EXPECTING, ([], [], [WRITE])),
        (Permission.UNCONFIRMED, ([CONFIRM, CREATE], [WRITE, CREATE], [WRITE, CREATE])),
        (Permission.CONFIRMED, ([CREATE], [WRITE, CREATE], [WRITE, CREATE])),
        (Permission.FIRST, ([CREATE], [CREATE], [WRITE, CREATE])),
        (Permission.FINAL, ([CREATE], [WRITE, CREATE], [WRITE, CREATE])),
    ],
)
async def test_permission_and_status_decide_which_calls_a_plan_makes(
    permission: Permission, calls: tuple[list[str], ...]
) -> None:
    """EX-09: no status, one that may wait (STARTS), one that is due (ENDED). A write comes first, and confirms the view."""
    for status, expected in zip(STATUSES, calls, strict=True):
        world = ControllerHarness(job(status=CREATED), alone=True)
        view = replace(opened(await views_of(world)), permission=permission)
        world.confirms("1")
        todo = Plan(status=status, create_pods=(ReplicaKey.of("mnist", "Worker", 0),))
        assert (await world.controller.execute(view, JobMemory(), todo))[0] is None
        assert [f"{verb} {resource}" for verb, resource, _ in world.taken()] == expected, status


SENT = JobStatus(
    conditions=(JobCondition("Running", "True"),),
    finished_indices={"Worker": "0"},
    worker_selector="a=b",
    start_time=EPOCH,
    observed_generation=3,
)
KEPT = changed(SENT, finished_indices={}, worker_selector="", observed_generation=0)
JOB = job(spec(Worker=1))
UNKNOWN = frozenset({"finishedIndices", "restarts", "workerSelector", "observedGeneration", "begun"})
"""Fields that the CRD of the Go operators lacks."""


async def test_what_was_dropped_stands_in_as_it_was_sent() -> None:
    """D3: otherwise the status would seem incomplete at every sync, and be written again once a second.

    What the server keeps is taken from there, since somebody else may have written since. A CRD that was mended is noticed
    with the next write, and nothing is remembered of a job that is gone.
    """
    pruned = Parts().pruned
    pruned.compare(JOB, SENT, KEPT)
    assert pruned.as_sent(changed(JOB, status=KEPT)).status == SENT
    newer = (JobCondition("Succeeded", "True"),)
    assert pruned.as_sent(changed(JOB, status=changed(KEPT, conditions=newer))).status.conditions == newer
    pruned.compare(JOB, SENT, SENT)
    assert pruned.as_sent(JOB) is JOB
    pruned.compare(JOB, SENT, KEPT)
    pruned.forget(JOB.metadata.uid)
    assert pruned.as_sent(JOB) is JOB


async def test_the_log_and_each_job_say_so_once() -> None:
    """D3: with the names of the fields as they stand in the CRD, and what to do; nothing of a status that is kept whole."""
    world, other = Parts(), changed(JOB, metadata__uid="other")
    with capture_logs() as logs:
        world.pruned.compare(JOB, SENT, SENT)
        assert (logs, world.recorder.events) == ([], [])
        for each in (JOB, other, JOB, other):
            world.pruned.compare(each, SENT, KEPT)
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("status_fields_pruned", "error")
    assert line["fields"] == ["finishedIndices", "workerSelector", "observedGeneration"]
    assert "manifests/base/crd.yaml" in line["remedy"]
    assert world.recorder.reasons == ["StatusFieldsPruned", "StatusFieldsPruned"]


async def test_another_job_tells_of_a_repaired_crd_if_the_first_is_deleted() -> None:
    world, other = Parts(), changed(JOB, metadata__uid="other")
    for each in (JOB, other):
        world.pruned.compare(each, SENT, KEPT)
    world.clock.step(PROBE_S)
    assert not world.pruned.is_due("other")
    world.pruned.forget(JOB.metadata.uid)
    assert not world.pruned.is_due("other")
    world.clock.step(PROBE_S)
    assert world.pruned.is_due("other")


async def test_a_job_under_a_crd_that_lacks_our_fields_comes_to_rest() -> None:
    """D3: it used to be rewritten once a second for ever, after its end too."""
    world = ControllerHarness()
    world.client.drops = UNKNOWN
    await world.sync(JOB)
    world.observe_children()
    for found in (pod("Worker", 0), pod("Worker", 0, "Succeeded", 0)):
        world.pods.put(found)
        written = 0
        for _ in range(10):
            world.observe_status()
            version = world.client.given_version
            world.client.given_version = str(int(version) + 1)
            world.taken()
            await world.sync()
            if not (writes := world.taken().count(STATUS)):
                world.client.given_version = version
            written += writes
            await asyncio.sleep(COUNTER_WINDOW_S)
        assert written == 1, found.status.phase
    assert world.recorder.reasons.count("StatusFieldsPruned") == 1


async def test_a_job_that_was_written_twice_within_a_minute_still_tells_of_a_repaired_crd() -> None:
    """On a real server none did: the queue keeps the earlier of two delays, and at that time the status was not due."""
    world = ControllerHarness(JOB)
    world.client.drops = UNKNOWN
    async with world.running():
        await asyncio.sleep(PROBE_S / 4)
        world.put_children("Worker", 0, "Running")
        await asyncio.sleep(PROBE_S / 4)
        assert world.taken().count(STATUS) == 2
        world.client.drops = frozenset()
        await asyncio.sleep(PROBE_S)
    assert world.taken().count(STATUS) == 1
    assert world.status["observedGeneration"] == JOB.metadata.generation


async def test_a_repaired_crd_is_noticed_within_a_minute_and_gets_the_lost_fields_of_all_jobs() -> None:
    """No event tells of it. Until then, one job is written each minute, with all that the server does not keep."""
    other = job(spec(Worker=1), name="other", uid="other")
    world = ControllerHarness(JOB, other)
    world.client.drops = UNKNOWN

    def written() -> list[str]:
        return [name for verb, resource, name in world.taken() if (verb, resource) == STATUS[:2]]

    with capture_logs() as logs:
        async with world.running():
            await asyncio.sleep(PROBE_S / 2)
            assert set(written()) == {"mnist", "other"}
            await asyncio.sleep(3 * PROBE_S)
            assert len(written()) == 3
            assert world.status["observedGeneration"] == JOB.metadata.generation
            world.client.drops = frozenset()
            await asyncio.sleep(1.5 * PROBE_S)
            assert sorted(written()) == ["mnist", "other"]
            await asyncio.sleep(3 * PROBE_S)
            assert written() == []
    assert [line["event"] for line in logs if "status_fields" in line["event"]] == [
        "status_fields_pruned",
        "status_fields_kept",
    ]


@pytest.mark.parametrize(
    ("begins_at", "version", "status", "expected"),
    [
        (None, "999999999999", None, False),  # workers may begin before the response has come
        ("40", "41", None, True),
        ("40", "100", None, True),  # as numbers: as texts it would come before 40
        ("40", "40", None, False),
        ("40", "9", None, False),
        ("40", "", None, False),
        ("40", "a41", None, False),
        ("40", "41", CREATED, False),
        (
            "v40",
            "41",
            None,
            False,
        ),  # KEP-5504 promises numbers; a server without them is treated like one from before it
        (ConnectionLostError("reset"), "41", None, False),  # the term only saves calls, so its read is worth no retry
        (status_error(ForbiddenError, 403), "41", None, False),
    ],
)
async def test_a_job_is_untouched_when_its_version_is_newer_than_our_time_and_bears_no_status(
    begins_at: Any, version: str, status: JobStatus | None, expected: bool
) -> None:
    """Whoever works on a job writes its status first; an older version may have been worked on by another leader since.

    Invariant: "A resourceVersion from before we acquired the lease is never mistaken for one of our term"
    """
    client = FakeClient()
    client.list_version = str(begins_at)
    client.fail = {("list", "tfjobs", ""): begins_at} if isinstance(begins_at, Exception) else {}
    leadership_term = LeadershipTerm(client, "")
    if begins_at is not None:
        await leadership_term.begin()
    assert leadership_term.is_untouched(job(resource_version=version, status=status)) is expected


async def test_five_hundred_restarts_are_confirmed_in_thirty_round_trips() -> None:
    """D22: the status of a job whose nodes were restarted used to wait for five hundred. Sixteen at a time flood no server."""
    server = slow_server()
    began = asyncio.get_running_loop().time()
    await Confirmer(RestClient(server)).confirm_pods("ns", [(f"p{index}", f"p{index}") for index in range(500)])
    assert (len(server.requests), server.most_at_once) == (500, 16)
    assert asyncio.get_running_loop().time() - began == 32.0


async def test_one_pod_that_is_gone_ends_the_asking() -> None:
    """D22: the view is old, so the others need not be known; the error is that of the pod, not of a group of tasks."""
    server = slow_server("p3")
    with pytest.raises(StaleViewError, match="pod p3 is gone"):
        await Confirmer(RestClient(server)).confirm_pods("ns", [(f"p{index}", f"p{index}") for index in range(100)])
    assert len(server.requests) < 32  # two rounds; there would be seven
    assert server.at_once == 0
    assert {what for _, what in server.seen} == {"begun", "done"}


GPU = "nvidia.com/gpu"
STARTED = msgspec.structs.replace(CREATED, begun=StartRecord(1, {"Worker": 1}), observed_generation=1)
COUNTED = msgspec.structs.replace(STARTED, accelerator_seconds={GPU: {"restarted": 80}})


def gpu_pod(*given: Any, uid: str = "u", **more: Any) -> Pod:
    found = pod("Worker", 0, *given, uid=uid, **more)
    return changed(found, started=EPOCH, accelerators=((GPU, 8),))


def on_server(each: Pod) -> dict[str, Any]:
    """The pod as a list returns it."""
    limits = {"resources": {"limits": {GPU: "8"}}}
    built: dict[str, Any] = msgspec.to_builtins(each, str_keys=True)
    return {
        "metadata": built["metadata"],
        "spec": {"containers": [{"name": "tensorflow"} | limits]},
        "status": {"startTime": "2026-01-01T00:00:00Z"},
    }


async def a_new_process(status: JobStatus, *pods: Pod, on_the_server: Iterable[Pod]) -> ControllerHarness:
    world = ControllerHarness(job(spec("ExitCode", Worker=1), status=status), alone=True)
    await views_of(world)
    for each in pods:
        world.pods.put(each)
    world.client.listed["pods"] = [on_server(each) for each in on_the_server]
    return world


def changes(world: ControllerHarness) -> list[tuple[str, str]]:
    """The lists of pods and writes of the status since the last call."""
    return [(verb, plural) for verb, plural, _ in world.taken() if (verb, plural) in {("list", "pods"), STATUS[:2]}]


async def test_a_process_does_not_count_pods_of_an_old_cache_that_its_predecessor_has_counted() -> None:
    """They are gone, so the status no longer lists them. The API server is asked once; afterwards the cache only gets newer."""
    ended = gpu_pod("Failed", 137)
    world = await a_new_process(COUNTED, ended, on_the_server=())
    world.client.fail["get", "pods", "mnist-worker-0"] = status_error(NotFoundError, 404)
    with pytest.raises(StaleViewError):
        await world.sync()
    assert changes(world) == [("list", "pods")]
    world.pods.remove(ended)
    later = gpu_pod(uid="later")
    world.pods.put(later)
    world.client.listed["pods"] = [on_server(later)]
    del world.client.fail["get", "pods", "mnist-worker-0"]
    world.client.objects["pods", "mnist-worker-0"] = on_server(later)
    await world.sync_and_observe()
    assert changes(world) == [("list", "pods"), STATUS[:2]]
    world.pods.put(gpu_pod("Failed", 137, uid="later", ended_s=10))
    await world.sync_and_observe()
    assert changes(world) == [STATUS[:2]]
    assert world.status["acceleratorSeconds"][GPU] == {"restarted": 80 + 80}


async def test_a_pod_that_the_cache_does_not_show_yet_is_not_counted_as_gone() -> None:
    running = RunningPods(type="Worker", resources={GPU: 8}, since={str(int(EPOCH.timestamp())): "0"})
    status = msgspec.structs.replace(STARTED, accelerator_pods=AcceleratorPods(running=(running,)))
    world = await a_new_process(status, on_the_server=[gpu_pod()])
    with pytest.raises(StaleViewError):
        await world.sync()
    assert changes(world) == [("list", "pods")]
    hidden = changed(gpu_pod(), metadata__labels__operator_name="")
    world.client.listed["pods"] = [on_server(hidden)]
    await world.sync()
    assert world.status["acceleratorSeconds"][GPU].keys() == {"deleted"}, "a user hides it by its labels"


async def test_a_new_job_is_counted_without_any_list() -> None:
    world = await a_new_process(JobStatus(), gpu_pod(), on_the_server=())
    await world.sync_and_observe()
    world.pods.put(gpu_pod("Failed", 137))
    await world.sync_and_observe()
    assert changes(world) == [STATUS[:2], STATUS[:2]]
    assert world.status["acceleratorSeconds"][GPU].keys() == {"restarted"}


async def test_a_status_that_is_written_again_after_it_was_pruned_counts_nothing_twice(mocker: MockerFixture) -> None:
    """Neither in the status nor in the metrics: what the server dropped was counted when it was sent."""
    world = await a_new_process(JobStatus(), gpu_pod(), on_the_server=())
    world.client.drops = UNKNOWN | {"acceleratorSeconds", "acceleratorPods", "attemptHistory", "executionAttempt"}
    metrics = FakeMetrics()
    mocker.patch.object(world.metrics, "_metrics", metrics)
    await world.sync_and_observe()
    world.pods.put(gpu_pod("Succeeded", 0, ended_s=10))
    await world.sync_and_observe()
    sent, counted = world.status, metrics.counted(ACCELERATORS)
    assert counted == {("ns", GPU, "succeeded"): 80}
    changes(world)
    async with world.running():
        await asyncio.sleep(3.5 * PROBE_S)
    assert changes(world) == [STATUS[:2]] * 3
    assert world.status == sent
    assert metrics.counted(ACCELERATORS) == counted


async def test_the_end_of_a_job_is_logged_once_by_each_process_within_an_hour() -> None:
    """At least once: a process may be killed after it wrote the end, and before it logged it."""
    ended = changed(gpu_pod("Succeeded", 0), metadata__creation_timestamp=EPOCH)
    world = await a_new_process(STARTED, ended, on_the_server=())
    with capture_logs() as logs:
        await world.sync_and_observe()
        await world.sync()
    (line,) = (each for each in logs if each["event"] == "job_finished")
    assert (line["uid"], line["resource_version"], line["outcome"], line["attempts"]) == (
        "job-uid",
        "2",
        "Succeeded",
        1,
    )
    assert msgspec.json.decode(line["accelerator_seconds"]).keys() == {GPU}
    end = msgspec.convert(world.status, JobStatus)
    for ago_s, count in ((0.0, 1), (LOGGED_AGAIN_S - 1, 1), (LOGGED_AGAIN_S + 1, 0)):
        times = [
            changed(each, last_transition_time=world.clock.now() - timedelta(seconds=ago_s)) for each in end.conditions
        ]
        other = ControllerHarness(job(spec(Worker=1), status=changed(end, conditions=tuple(times))), alone=True)
        with capture_logs() as logs:
            await other.sync()
            await other.sync()
        assert [each["event"] for each in logs].count("job_finished") == count
