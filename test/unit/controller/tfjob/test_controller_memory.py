"""What the controller remembers of jobs: as little as it can."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from fakes.api import status_error
from fakes.controller import STATUS, ControllerHarness
from fakes.jobs import job, replica
from simulation.scenarios.memory import remembered as found_in
from tfjob_operator.api.client.errors import ForbiddenError, NamespaceTerminatingError, StatusError
from tfjob_operator.api.meta import meta_key
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobCondition, JobStatus, TFJob

JOBS = 100


def large_spec() -> dict[str, Any]:
    """A specification of 5 KB, which is 30 KB when it is decoded. Its job wants no replica, so nothing is created for it."""
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 20} for number in range(40)]
    container = {"name": "tensorflow", "image": "registry.example.com/team/mnist:2.15.0", "env": env}
    template = {"spec": {"containers": [container]}}
    return {"tfReplicaSpecs": {"Worker": replica(0, template=template), "PS": replica(0, template=template)}}


async def remembered(world: ControllerHarness, jobs: list[TFJob]) -> float:
    """The bytes that the controller keeps for each of these jobs once it has synced them."""
    for each in jobs:
        world.jobs.put(each)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for each in jobs:
            await world.controller.sync(meta_key(each.metadata))
            world.taken()
            world.client.bodies.clear()
            world.recorder.events.clear()
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / len(jobs)
    finally:
        tracemalloc.stop()


async def test_no_decoded_template_is_kept() -> None:
    """D17: beside the cache a running job costs less than the size of its specification; decoded templates were 31 KB."""
    jobs = [job(large_spec(), name=f"job-{number}", uid=f"uid-{number}") for number in range(JOBS)]
    assert len(jobs[0].spec) > 4500
    assert await remembered(ControllerHarness(), jobs) < 3000


async def test_what_is_remembered_of_a_job_is_dropped_at_its_end() -> None:
    """D17: no specification is kept for a finished job; its clean-up decodes it again."""
    ended = JobStatus(conditions=(JobCondition(type=ConditionType.SUCCEEDED, status="True"),))
    jobs = [job(large_spec(), name=f"job-{number}", uid=f"uid-{number}", status=ended) for number in range(JOBS)]
    assert await remembered(ControllerHarness(), jobs) < 1500


async def test_a_job_that_has_ended_is_still_known_as_ours() -> None:
    """D17: its deletion is counted, and an edit of its clean-up policy takes effect, after its specification was dropped."""
    world = ControllerHarness()
    ended = JobStatus(conditions=(JobCondition(type=ConditionType.SUCCEEDED, status="True"),))
    spec = large_spec() | {"runPolicy": {"ttlSecondsAfterFinished": 100}}
    first = job(spec, status=msgspec.structs.replace(ended, completion_time=world.clock.now()))
    assert conditions.is_finished(first.status)
    await world.sync(first)
    assert ("delete", "tfjobs", "mnist") not in world.taken()
    meta = msgspec.structs.replace(first.metadata, generation=2, resource_version="2")
    spec["runPolicy"]["ttlSecondsAfterFinished"] = 0
    await world.sync(msgspec.structs.replace(first, metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec))))
    assert ("delete", "tfjobs", "mnist") in world.taken()


CREATE = ("create", "pods", "mnist-worker-0")


@pytest.mark.parametrize(
    ("action", "error"),
    [
        pytest.param(STATUS, None, id="UnkeptStatus"),
        pytest.param(CREATE, NamespaceTerminatingError, id="Expectations"),
        pytest.param(CREATE, ForbiddenError, id="BlockedChildren, Delays"),
    ],
)
async def test_a_job_that_is_deleted_during_its_own_sync_is_forgotten(
    action: tuple[str, str, str], error: type[StatusError] | None
) -> None:
    """EX-08: the deletion is handled before the sync writes down what becomes of its last request."""
    world = ControllerHarness()
    tfjob = job({"tfReplicaSpecs": {"Worker": replica(1)}}, uid="uid-of-the-dead")
    world.jobs.put(tfjob)
    world.client.drops = frozenset({"startTime"})
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": world.client.given_version}}
    if error is not None:
        world.client.fail[action] = status_error(error, 403)

    def delete(now: tuple[str, str, str]) -> None:
        if now == action:
            world.jobs.remove(tfjob)

    world.client.before = delete
    try:
        await world.sync()
    except ForbiddenError:
        assert error is ForbiddenError
    assert action in world.taken()
    world.queue.shut_down()  # the key is taken out of it by a sync that finds no job
    assert not found_in(world.controller, {"uid-of-the-dead"})
