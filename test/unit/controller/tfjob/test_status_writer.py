"""Writing a job's status, and counting and reporting what it says."""

from __future__ import annotations

import msgspec
import pytest

from fakes.api import FakeClient, status_error
from fakes.controller import status_writer
from fakes.jobs import good_spec, job, replica
from fakes.jobs import pod as a_pod
from fakes.recorder import FakeRecorder
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import ConflictError, NotFoundError
from tfjob_operator.controller.jobs.metrics import JobMetrics
from tfjob_operator.controller.tfjob.plan.plan import plan

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
