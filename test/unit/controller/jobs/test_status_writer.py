"""A status that the API server refuses for good: who is told, what stops, and how the job goes on."""

import asyncio

import pytest

from fakes import alpha
from fakes.api import status_error
from fakes.controller import STATUS, ControllerHarness
from fakes.jobs import job, pod, service, spec
from fakes.metrics import FakeMetrics
from fakes.objects import changed
from simulation.scenarios.memory import remembered
from tfjob_operator.api.client import errors
from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1.constants import EventReason
from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.controller.jobs.job_metrics import REFUSED_STATUSES, JobMetrics
from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S, PendingStatus
from tfjob_operator.controller.jobs.status_writer import RETRY_S, WARN_AFTER_S

MINUTE_S = 60
REFUSALS = {
    "etcd": status_error(errors.ServerError, 500, "etcdserver: request is too large"),
    "a proxy": status_error(errors.StatusError, 413, "Request entity too large: limit is 3145728"),
    "a CRD": status_error(errors.InvalidError, 422, "status.restarts: Too many: 10: must have at most 5 items"),
    "a policy": status_error(errors.ForbiddenError, 403, 'admission webhook "deny.example.com" denied the request'),
}
BOTH = spec("ExitCode", Worker=3, successPolicy="AllWorkers")


async def with_a_failed_and_a_missing_pod() -> ControllerHarness:
    """A job of which one pod is to be replaced, one to be created, and one runs."""
    world = await ControllerHarness.of_running(BOTH)
    world.pods.put(pod("Worker", 0, "Failed", 137))
    world.pods.remove(pod("Worker", 1))
    world.services.put(service("Worker", 1))
    return world


@pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS)
async def test_a_status_that_is_refused_for_good_is_reported_and_the_job_goes_on_when_it_is_accepted(
    error: errors.StatusError,
) -> None:
    """Each within a minute. Before, nothing said so, and a refused job was soon tried every 1000 s only.

    No pod is deleted meanwhile, whose failure would be forgotten, and none is created.
    """
    world = await with_a_failed_and_a_missing_pod()
    world.client.fail[STATUS] = error
    async with world.running():
        world.queue.add("ns/mnist")
        await asyncio.sleep(MINUTE_S)
        assert set(world.taken()) == {STATUS}
        assert len(world.metrics.refused_statuses) == 1
        ((kind, reason, text),) = world.recorder.events
        assert (kind, reason) == (EventType.WARNING, EventReason.STATUS_REFUSED)
        assert f"{error.code} {error.status_message}" in text
        await asyncio.sleep(1800)
        tries = len(world.taken())
        assert tries <= 1800 / RETRY_S + 10
        world.client.fail.clear()
        await asyncio.sleep(MINUTE_S)
        assert {("delete", "pods", "mnist-worker-0"), ("create", "pods", "mnist-worker-1")} <= set(world.taken())
        assert world.status["restarts"][0]["replaced"]
        assert not world.metrics.refused_statuses


async def test_events_of_pods_do_not_send_a_refused_status_again_and_an_edit_of_the_job_does() -> None:
    """It may be larger than a megabyte, and be the status of ten thousand pods. An edit may be what makes it acceptable."""
    world = await with_a_failed_and_a_missing_pod()
    world.client.fail[STATUS] = REFUSALS["etcd"]
    async with world.running():
        world.queue.add("ns/mnist")
        await asyncio.sleep(MINUTE_S)
        world.taken()
        for number in range(MINUTE_S):
            world.pods.put(changed(pod("Worker", 2), metadata__resource_version=f"2{number}"))
            await asyncio.sleep(1)
        assert 3 <= len(world.taken()) <= MINUTE_S / RETRY_S + 1
        world.client.fail.clear()
        (stored,) = world.jobs.indexer.list()
        world.jobs.put(changed(stored, metadata__resource_version="99"))
        await asyncio.sleep(1)
        assert ("create", "pods", "mnist-worker-1") in set(world.taken())


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (status_error(errors.ConflictError, 409), 300),
        (status_error(errors.TooManyRequestsError, 429), 300),
        (status_error(errors.UnauthorizedError, 401), 300),
        (errors.ConnectionLostError("reset"), 300),
        (REFUSALS["a policy"], WARN_AFTER_S - 2),
    ],
    ids=["conflict", "load", "credentials", "no response", "a policy that is gone soon"],
)
async def test_a_refusal_that_passes_and_one_about_something_else_are_not_reported(
    error: Exception, seconds: float
) -> None:
    """API servers and webhooks that restart refuse for seconds; a conflict or a lost connection says nothing."""
    world = await with_a_failed_and_a_missing_pod()
    world.client.fail[STATUS] = error
    async with world.running():
        world.queue.add("ns/mnist")
        await asyncio.sleep(seconds)
        world.client.fail.clear()
        await asyncio.sleep(MINUTE_S)
    assert EventReason.STATUS_REFUSED not in world.recorder.reasons
    assert not world.metrics.refused_statuses


async def test_a_status_that_needs_no_write_any_more_is_not_refused_any_more() -> None:
    """Nor is that of a job that is gone, of which nothing is kept."""
    worlds = [await with_a_failed_and_a_missing_pod() for _ in range(2)]
    for world in worlds:
        world.client.fail[STATUS] = REFUSALS["etcd"]
        for _ in range(2):
            with pytest.raises(errors.ServerError):
                await world.sync()
            await asyncio.sleep(WARN_AFTER_S)
        assert world.metrics.refused_statuses
    first, second = worlds
    for informer in (first.pods, first.services, first.jobs):
        for each in informer.indexer.list():
            informer.remove(each)
    assert not first.metrics.refused_statuses
    assert not remembered(first.controller, {job().metadata.uid})
    second.client.fail.clear()
    await second.sync_and_observe()
    assert not second.metrics.refused_statuses


async def test_jobs_of_the_alpha_dialect_are_reported_too() -> None:
    world = alpha.World(alpha.job())
    world.client.fail[alpha.STATUS] = REFUSALS["etcd"]
    for _ in range(2):
        with pytest.raises(errors.ServerError):
            await world.sync()
        await asyncio.sleep(WARN_AFTER_S)
    assert world.recorder.reasons == [EventReason.STATUS_REFUSED]
    assert world.metrics.refused_statuses
    world.client.fail.clear()
    await world.sync()
    assert not world.metrics.refused_statuses


def test_the_number_of_refused_jobs_is_a_metric() -> None:
    metrics = FakeMetrics()
    jobs = JobMetrics(metrics)
    for number in range(2):
        assert metrics[REFUSED_STATUSES].read() == number
        jobs.refused_statuses.add("uid")


def test_a_change_after_a_write_is_delayed_as_long_as_the_one_before() -> None:
    """Otherwise counters that change all the time would be written at each sync."""
    pending = PendingStatus[TFJob, JobStatus]()
    before = job(BOTH)
    assert pending.delayed_s(0.0, starts=False, busy=False) == COUNTER_WINDOW_S
    assert pending.delayed_s(1.0, starts=False, busy=False) == 0
    pending.known(before, before)
    assert pending.delayed_s(1.5, starts=False, busy=False) == COUNTER_WINDOW_S
