"""The operator on a view of its jobs that lags behind: Sieve's stale state, played by hand instead of drawn from a seed.

The watch cache of the API server, which serves lists at version 0 and all watches, stops to hear of TFJobs; everything else
goes on. What the operator does then must be refused or harmless.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from api.v1 import constants as c
from simulation.model.controllers import GarbageCollector
from simulation.pods import Kubelet
from simulation.scenarios.operator import HOME, OPERATOR, Operator
from simulation.weather import CALM
from simulation.world import World, require, run_seed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Play = Callable[[World, Operator, Kubelet], Awaitable[None]]


def _job(clean_pod_policy: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "train"}]}}
    spec = {"cleanPodPolicy": clean_pod_policy, "tfReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}
    return {"apiVersion": c.TFJOBS.api_version, "kind": c.TFJOBS.kind, "metadata": {"name": "job"}, "spec": spec}


def _play(play: Play, *, exit_code: int | None) -> None:
    async def scenario(world: World) -> None:
        await world.create_namespaces(HOME)
        GarbageCollector(world.server, Random(0))
        kubelet = Kubelet(world, Random(0), lambda _: exit_code)
        nodes = asyncio.create_task(kubelet.run())
        operator = Operator(world)
        operator.start()
        await asyncio.sleep(1.0)
        await play(world, operator, kubelet)
        await operator.stop()
        nodes.cancel()
        await asyncio.wait([nodes])

    run_seed(scenario, 0, weather=CALM)


def _pod_creations(world: World) -> int:
    path = f"/api/v1/namespaces/{HOME}/pods"
    creates = (each for each in world.server.writes if each.method == "POST" and each.path == path)
    return sum(each.client.startswith(OPERATOR) for each in creates)


@pytest.mark.usefixtures("logged_errors")
def test_a_job_that_has_ended_is_not_run_again_by_an_operator_that_starts_on_an_old_view() -> None:
    """Durable facts live in the status; but a new operator may be shown the status from before the job's end."""

    async def play(world: World, operator: Operator, kubelet: Kubelet) -> None:
        storage = world.server.storage
        jobs = storage.collections["tfjobs"]
        await world.client("user").create(c.TFJOBS, HOME, _job(c.CLEAN_ALL))
        await asyncio.sleep(2.0)
        before_the_end = jobs.objects[HOME, "job"].rv
        await asyncio.sleep(100.0)
        status = jobs.objects[HOME, "job"].body["status"]
        require(status["conditions"][-1]["type"] == c.SUCCEEDED, "the job has not ended")
        require(not storage.collections["pods"].objects, "the job is not cleaned up")
        await operator.kill()
        storage.freeze(jobs, at=before_the_end)
        operator.start()
        await asyncio.sleep(60.0)
        storage.thaw(jobs)
        await asyncio.sleep(60.0)
        require(not kubelet.repeated, f"had ended well, and were run again: {kubelet.repeated}")

    _play(play, exit_code=0)


@pytest.mark.usefixtures("logged_errors")
def test_a_job_that_the_server_says_is_gone_gets_no_more_pods() -> None:
    """Else operator and garbage collector make and delete the pods of a deleted job in turns, until the watch goes on."""

    async def play(world: World, _operator: Operator, _kubelet: Kubelet) -> None:
        storage = world.server.storage
        await world.client("user").create(c.TFJOBS, HOME, _job(c.CLEAN_NONE))
        await asyncio.sleep(30.0)
        storage.freeze(storage.collections["tfjobs"])
        await world.client("user").delete(c.TFJOBS, HOME, "job", propagation="Background")
        before = _pod_creations(world)
        await asyncio.sleep(120.0)
        again = _pod_creations(world) - before
        storage.thaw(storage.collections["tfjobs"])
        await asyncio.sleep(60.0)
        require(not storage.collections["pods"].objects, "pods have outlived their job")
        require(again <= 1, f"the pod of a job that is gone was made {again} times")

    _play(play, exit_code=None)
