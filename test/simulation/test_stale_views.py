"""The operator on a view that lags behind: Sieve's stale state, scripted instead of drawn from a seed.

The watch cache of the API server, which serves lists at version 0 and all watches, stops following one resource; everything
else goes on. What the operator does then must be refused or harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from hack.hollow_node.objects import HollowPod
from hack.hollow_node.script import Run
from simulation.kubelet import Kubelet
from simulation.model.controllers import GarbageCollector
from simulation.model.storage import Body
from simulation.processes import OperatorProcess
from simulation.scripts import Script, exits
from simulation.watchman import LEASE, Watchman
from simulation.weather import CALM
from simulation.world import World, require, run_seed
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import CleanPodPolicy, ConditionType, SuccessPolicy
from tfjob_operator.controller.leaderelection import LeaderElectionConfig

Play = Callable[[World, OperatorProcess], Awaitable[None]]

HOME = "team"
PODS_PATH = PODS.path(HOME)


def _job(clean_pod_policy: str, **run_policy: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "train"}]}}
    replicas = {"Worker": {"replicas": 2, "restartPolicy": "ExitCode", "template": template}}
    spec = {
        "runPolicy": {"cleanPodPolicy": clean_pod_policy, **run_policy},
        "successPolicy": SuccessPolicy.ALL_WORKERS,
        "tfReplicaSpecs": replicas,
    }
    return {"apiVersion": c.TFJOBS.api_version, "kind": c.TFJOBS.kind, "metadata": {"name": "job"}, "spec": spec}


def _play(play: Play, *, runs: dict[str, list[Run]]) -> None:
    """Play with one operator; `runs` has the runs of each replica's container in order; the last one repeats."""

    async def scenario(world: World) -> None:
        await world.create_namespaces(HOME, LEASE[0])
        GarbageCollector(world.server, Random(0))
        kubelet = Kubelet(world, Random(0), script=_Listed(runs))
        watchman = Watchman(world, kubelet)
        operator = OperatorProcess(world, 0, election=LeaderElectionConfig(), workers=1)
        operator.start()
        await asyncio.sleep(1.0)
        await play(world, operator)
        await operator.stop()
        require(not watchman.violations, "\n".join(watchman.violations))

    run_seed(scenario, 0, weather=CALM)


class _Listed(Script):
    """The runs of each replica in order; the last one repeats."""

    def __init__(self, runs: dict[str, list[Run]]) -> None:
        self._runs_of = runs

    def run(self, random: Random, pod: HollowPod, name: str, tries: int) -> Run:
        runs = self._runs_of[pod.metadata.name]
        return runs[min(tries, len(runs) - 1)]

    def rejection(self, random: Random, tries: int) -> str:
        return ""


def _creations(world: World) -> int:
    """How many pods were created; only the operator creates them."""
    return sum(each.method == "POST" and each.path == PODS_PATH for each in world.server.writes)


def _stored(world: World) -> Body:
    return world.server.storage.collections["tfjobs"].objects[HOME, "job"].body


@pytest.mark.usefixtures("logged_errors")
def test_a_job_that_has_ended_is_not_run_again_by_an_operator_that_starts_on_an_old_view() -> None:
    """That a job has ended is in its status, but a new operator may be shown the status from before the end."""

    async def play(world: World, operator: OperatorProcess) -> None:
        storage = world.server.storage
        jobs = storage.collections["tfjobs"]
        await world.client("user").create(c.TFJOBS, HOME, _job(CleanPodPolicy.ALL))
        await asyncio.sleep(2.0)
        before_the_end = jobs.objects[HOME, "job"].rv
        await asyncio.sleep(100.0)
        require(_stored(world)["status"]["conditions"][-1]["type"] == ConditionType.SUCCEEDED, "the job has not ended")
        require(not storage.collections["pods"].objects, "the job is not cleaned up")
        await operator.kill()
        storage.freeze(jobs, at=before_the_end)
        operator.start()
        await asyncio.sleep(60.0)
        storage.thaw(jobs)
        await asyncio.sleep(60.0)
        require(_creations(world) == 2, "a job that had ended was run again")

    _play(play, runs={"job-worker-0": [exits(3.0, 0)], "job-worker-1": [exits(3.0, 0)]})


@pytest.mark.usefixtures("logged_errors")
def test_a_job_that_the_server_says_is_gone_gets_no_more_pods() -> None:
    """Else operator and garbage collector would create and delete a deleted job's pods in turns until the watch goes on."""

    async def play(world: World, _operator: OperatorProcess) -> None:
        storage = world.server.storage
        await world.client("user").create(c.TFJOBS, HOME, _job(CleanPodPolicy.NONE))
        await asyncio.sleep(30.0)
        storage.freeze(storage.collections["tfjobs"])
        await world.client("user").delete(c.TFJOBS, HOME, "job", propagation="Background")
        await asyncio.sleep(120.0)
        storage.thaw(storage.collections["tfjobs"])
        await asyncio.sleep(60.0)
        require(not storage.collections["pods"].objects, "pods have outlived their job")
        require(_creations(world) == 2, f"pods of a job that is gone were made {_creations(world) - 2} times")

    _play(play, runs={"job-worker-0": [exits(3.0, None)], "job-worker-1": [exits(3.0, None)]})


@pytest.mark.usefixtures("logged_errors")
def test_a_success_that_nobody_has_seen_yet_is_not_destroyed_by_a_suspension() -> None:
    """B42: a pod is deleted only in the version that the operator has seen; so the resumed job knows of the success.

    The simulation found succeeded pods that went unseen (seed 25).
    """

    async def play(world: World, _operator: OperatorProcess) -> None:
        storage = world.server.storage
        pods = storage.collections["pods"]
        user = world.client("user")
        await user.create(c.TFJOBS, HOME, _job(CleanPodPolicy.NONE))
        await asyncio.sleep(10.0)
        require({pod.body["status"]["phase"] for pod in pods.objects.values()} == {"Running"}, "they do not run")
        storage.freeze(pods)
        await asyncio.sleep(30.0)
        require(pods.objects[HOME, "job-worker-0"].body["status"]["phase"] == "Succeeded", "it is still running")
        await user.patch(c.TFJOBS, HOME, "job", {"spec": {"runPolicy": {"suspend": True}}})
        await asyncio.sleep(10.0)
        storage.thaw(pods)
        await asyncio.sleep(60.0)
        require(not pods.objects, "the suspended job has pods")
        require(_stored(world)["status"]["finishedIndices"] == {"Worker": "0"}, "nobody knows that worker 0 is done")
        await user.patch(c.TFJOBS, HOME, "job", {"spec": {"runPolicy": {"suspend": False}}})
        await asyncio.sleep(20.0)
        require([*pods.objects] == [(HOME, "job-worker-1")], f"these run: {[*pods.objects]}")

    _play(play, runs={"job-worker-0": [exits(20.0, 0)], "job-worker-1": [exits(3.0, None)]})


@pytest.mark.usefixtures("logged_errors")
def test_a_failure_that_has_been_counted_is_not_counted_again_on_an_old_view_of_the_pods() -> None:
    """B36: a new operator may be shown a failed pod that was replaced long ago; the status already has its restart."""

    async def play(world: World, operator: OperatorProcess) -> None:
        pods = world.server.storage.collections["pods"]
        await world.client("user").create(c.TFJOBS, HOME, _job(CleanPodPolicy.NONE, backoffLimit=1))
        await asyncio.sleep(60.0)
        failed = next(change.rv for change in pods.log if change.new.body["status"]["phase"] == "Failed")
        await operator.kill()
        pods_before = dict(pods.objects)
        world.server.storage.freeze(pods, at=failed)
        operator.start()
        await asyncio.sleep(30.0)
        world.server.storage.thaw(pods)
        await asyncio.sleep(30.0)
        require(_stored(world)["status"]["conditions"][-1]["type"] == ConditionType.RUNNING, "the job does not go on")
        require(pods.objects == pods_before, "the pods are others now")

    _play(play, runs={"job-worker-0": [exits(3.0, 137), exits(3.0, None)], "job-worker-1": [exits(3.0, None)]})


@pytest.mark.usefixtures("logged_errors")
@pytest.mark.parametrize("resource", [PODS, SERVICES], ids=str)
def test_a_child_whose_whole_life_no_watch_has_shown_is_made_again_at_once(resource: Resource) -> None:
    """EX-10: somebody deletes it while the watch cache stands still; then the server starts anew, and all is listed."""

    async def play(world: World, _operator: OperatorProcess) -> None:
        children = world.server.storage.collections[resource.plural]
        world.server.storage.freeze(children)
        user = world.client("user")
        await user.create(c.TFJOBS, HOME, _job(CleanPodPolicy.NONE))
        await asyncio.sleep(10.0)
        first = children.objects[HOME, "job-worker-0"].body["metadata"]["uid"]
        await user.delete(resource, HOME, "job-worker-0", grace_s=0)
        require((HOME, "job-worker-0") not in children.objects, "it is still there")
        children.frozen = False
        world.server.restart()
        await asyncio.sleep(60.0)
        require((HOME, "job-worker-0") in children.objects, "the job stands still")
        require(children.objects[HOME, "job-worker-0"].body["metadata"]["uid"] != first, "it is the same")
        path = resource.path(HOME)
        made = sum(each.method == "POST" and each.path == path for each in world.server.writes)
        require(made == 3, f"{made - 2} children were made again")

    _play(play, runs={"job-worker-0": [exits(3.0, None)], "job-worker-1": [exits(3.0, None)]})
