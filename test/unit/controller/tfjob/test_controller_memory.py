"""What the controller remembers of jobs: as little as it can."""

from __future__ import annotations

import gc
import tracemalloc
from contextlib import nullcontext
from typing import Any

import pytest

from fakes.api import status_error
from fakes.controller import CREATE_POD, STATUS, ControllerHarness
from fakes.jobs import job, replica, spec
from fakes.objects import changed, edited
from simulation.scenarios.memory import remembered as found_in
from tfjob_operator.api.client.errors import ForbiddenError, NamespaceTerminatingError, StatusError
from tfjob_operator.api.meta import meta_key
from tfjob_operator.api.v1.types import JobCondition, JobStatus, TFJob

JOBS = 100


def large_spec() -> dict[str, Any]:
    """A specification of 5 KB, which is 30 KB when it is decoded. Its job wants no replica, so nothing is created for it."""
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 20} for number in range(40)]
    container = {"name": "tensorflow", "image": "registry.example.com/team/mnist:2.15.0", "env": env}
    none = replica(0, template={"spec": {"containers": [container]}})
    return spec(Worker=none, PS=none)


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


ENDED = JobStatus(conditions=(JobCondition("Succeeded", "True"),))


@pytest.mark.parametrize(("status", "most"), [(None, 3000), (ENDED, 1500)])
async def test_no_decoded_template_is_kept(status: JobStatus | None, most: int) -> None:
    """D17: beside the cache a running job costs less than the size of its specification; decoded templates were 31 KB.

    No specification is kept for a finished job; its clean-up decodes it again.
    """
    jobs = [job(large_spec(), name=f"job-{number}", uid=f"uid-{number}", status=status) for number in range(JOBS)]
    assert len(jobs[0].spec) > 4500
    assert await remembered(ControllerHarness(), jobs) < most


async def test_a_job_that_has_ended_is_still_known_as_ours() -> None:
    """D17: its deletion is counted, and an edit of its clean-up policy takes effect, after its specification was dropped."""
    world, delete = ControllerHarness(), ("delete", "tfjobs", "mnist")
    given = large_spec() | {"runPolicy": {"ttlSecondsAfterFinished": 100}}
    first = job(given, status=changed(ENDED, completion_time=world.clock.now()))
    await world.sync(first)
    assert delete not in world.taken()
    edit = given | {"runPolicy": {"ttlSecondsAfterFinished": 0}}
    await world.sync(edited(first, edit, metadata__resource_version="2"))
    assert delete in world.taken()


@pytest.mark.parametrize(
    ("action", "error"),
    [
        pytest.param(STATUS, None, id="UnkeptStatus"),
        pytest.param(CREATE_POD, NamespaceTerminatingError, id="Expectations"),
        pytest.param(CREATE_POD, ForbiddenError, id="BlockedChildren, Delays"),
    ],
)
async def test_a_job_that_is_deleted_during_its_own_sync_is_forgotten(
    action: tuple[str, str, str], error: type[StatusError] | None
) -> None:
    """EX-08: the deletion is handled before the sync writes down what becomes of its last request."""
    tfjob = job(spec(Worker=1), uid="uid-of-the-dead")
    world = ControllerHarness(tfjob)
    world.client.drops = frozenset({"startTime"})
    world.confirms()
    if error is not None:
        world.client.fail[action] = status_error(error, 403)

    def delete(now: tuple[str, str, str]) -> None:
        if now == action:
            world.jobs.remove(tfjob)

    world.client.before = delete
    with pytest.raises(ForbiddenError) if error is ForbiddenError else nullcontext():
        await world.sync()
    assert action in world.taken()
    world.queue.shut_down()  # the key is taken out of it by a sync that finds no job
    assert not found_in(world.controller, {"uid-of-the-dead"})
