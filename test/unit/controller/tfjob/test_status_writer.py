"""Writing a job's status and telling of it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import msgspec
import pytest

from fakes.api import FakeClient, status_error
from fakes.jobs import good_spec, job, replica
from fakes.jobs import pod as a_pod
from fakes.recorder import FakeRecorder
from fakes.transport import Answer, FakeTransport, refusal
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client import Request, Response, RestClient
from tfjob_operator.api.client.errors import ConflictError, NotFoundError
from tfjob_operator.api.client.http import OnLeave, unchanged
from tfjob_operator.controller.tfjob.decide.plan import plan
from tfjob_operator.controller.tfjob.metrics import NoJobMetrics
from tfjob_operator.controller.tfjob.status_writer import StaleViewError, StatusWriter

PATCH = ("patch status", "tfjobs", "mnist")


class CountingMetrics(NoJobMetrics):
    """Counts as (what, namespace)."""

    def __init__(self) -> None:
        self.counted: list[tuple[str, str]] = []

    def job_created(self, namespace: str) -> None:
        self.counted.append(("created", namespace))

    def job_succeeded(self, namespace: str) -> None:
        self.counted.append(("succeeded", namespace))


class World:
    """A status writer and what surrounds it, with a job that has just succeeded."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.recorder = FakeRecorder()
        self.metrics = CountingMetrics()
        self.writer = StatusWriter(self.client, self.recorder, self.metrics)
        self.job = job({"tfReplicaSpecs": {"Worker": replica(1)}})
        pods = [a_pod("Worker", 0, "Succeeded", 0)]
        decided = plan(self.job, good_spec(self.job), pods, [], EPOCH)
        assert decided.status is not None
        self.status, self.events = decided.status, decided.events


async def test_a_status_replaces_the_old_one_and_carries_the_version_it_was_computed_from() -> None:
    """A merge would keep counters of replica types that are gone; the version lets the server refuse a stale view."""
    world = World()
    written = await world.writer.write(world.job, world.status, world.events)
    version, status = world.client.bodies[PATCH]
    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}
    assert (status["op"], status["path"]) == ("add", "/status")
    assert status["value"] == msgspec.to_builtins(world.status)
    assert written is not None
    assert (written.metadata.resource_version, written.status) == ("2", world.status)


async def test_each_new_condition_is_counted_and_told_once() -> None:
    """Counted once per transition, and not again for a condition that stood there before."""
    world = World()
    written = await world.writer.write(world.job, world.status, world.events)
    assert world.metrics.counted == [("created", "ns"), ("succeeded", "ns")]
    assert world.recorder.reasons == ["TFJobSucceeded"]
    assert written is not None
    await world.writer.write(written, world.status, ())
    assert len(world.metrics.counted) == 2


async def test_a_write_that_lost_a_race_tells_nothing() -> None:
    """The sync is repeated on the newer version and will tell what is true then."""
    world = World()
    world.client.fail[PATCH] = status_error(ConflictError, 409)
    with pytest.raises(ConflictError):
        await world.writer.write(world.job, world.status, world.events)
    assert (world.recorder.events, world.metrics.counted) == ([], [])


async def test_a_job_that_is_gone_needs_no_status() -> None:
    """404 is no error."""
    world = World()
    world.client.fail[PATCH] = status_error(NotFoundError, 404)
    assert await world.writer.write(world.job, world.status, world.events) is None
    assert world.recorder.events == []


@pytest.mark.parametrize(("uid", "there"), [("uid-of-the-pod", True), ("another", False), (None, False)])
async def test_a_pod_is_confirmed_by_its_uid(uid: str | None, there: bool) -> None:
    """Names are used again and again, so a pod that is there may be another one than the cache saw."""
    world = World()
    if uid is None:
        world.client.fail["get", "pods", "mnist-worker-0"] = status_error(NotFoundError, 404)
    world.client.objects["pods", "mnist-worker-0"] = {"metadata": {"uid": uid}}
    with nullcontext() if there else pytest.raises(StaleViewError):
        await world.writer.confirm_pods("ns", [("mnist-worker-0", "uid-of-the-pod")])


class SlowServer:
    """Has each pod that is asked for, but those in `missing`; takes a second for each."""

    def __init__(self, missing: frozenset[str] = frozenset()) -> None:
        self.missing = missing
        self.asked: list[str] = []
        self.in_work = self.most_in_work = 0

    async def send(self, request: Request, on_leave: OnLeave = unchanged) -> Response:
        name = request.path.rpartition("/")[2]
        self.asked.append(name)
        self.in_work += 1
        self.most_in_work = max(self.most_in_work, self.in_work)
        await asyncio.sleep(1.0)
        self.in_work -= 1
        found = name not in self.missing
        answer = Answer(body=msgspec.json.encode({"metadata": {"uid": name}})) if found else refusal(404, "NotFound")
        return await FakeTransport(answer).send(request)


async def test_five_hundred_restarts_are_confirmed_in_thirty_round_trips() -> None:
    """D22: the status of a job whose nodes were restarted waited for five hundred; and sixteen at a time flood nobody."""
    server = SlowServer()
    names = [f"mnist-worker-{index}" for index in range(500)]
    began = asyncio.get_running_loop().time()
    await StatusWriter(RestClient(server), FakeRecorder(), NoJobMetrics()).confirm_pods("ns", [(n, n) for n in names])
    assert server.asked == names
    assert server.most_in_work == 16
    assert asyncio.get_running_loop().time() - began == 32.0


async def test_one_pod_that_is_gone_ends_the_asking() -> None:
    """D22: the view is old, so the others need not be known; the error is that of the pod, not of a group of tasks."""
    server = SlowServer(frozenset({"p3"}))
    with pytest.raises(StaleViewError, match="pod p3 is gone"):
        await StatusWriter(RestClient(server), FakeRecorder(), NoJobMetrics()).confirm_pods(
            "ns", [(f"p{index}", f"p{index}") for index in range(100)]
        )
    assert len(server.asked) < 32  # two rounds; there would be seven
    assert server.in_work == 0
