"""What the controller remembers of jobs: as little as it can."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Any

import msgspec

from fakes.controller import ControllerHarness
from fakes.jobs import job, replica
from tfjob_operator.api.meta import meta_key
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobCondition, JobStatus

if TYPE_CHECKING:
    from tfjob_operator.api.v1.types import TFJob

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
    world.jobs.put(first)
    await world.sync()
    assert ("delete", "tfjobs", "mnist") not in world.taken()
    meta = msgspec.structs.replace(first.metadata, generation=2, resource_version="2")
    spec["runPolicy"]["ttlSecondsAfterFinished"] = 0
    world.jobs.put(msgspec.structs.replace(first, metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec))))
    await world.sync()
    assert ("delete", "tfjobs", "mnist") in world.taken()
