"""The operator starts on a cluster of another operator, is killed and restarted: no replica of an old job runs twice.

Without a kubelet pods never end: the operator must create exactly the missing pods, and delete none that a job needs.
"""

import asyncio
from random import Random
from typing import Any, Final

from fakes.jobs import replica
from fakes.predecessors import PREDECESSORS, Predecessor
from kit.model.controllers import GarbageCollector
from kit.world import require
from simulation.processes import OperatorProcess
from simulation.stage import haunt
from simulation.world import World
from simulation.write_judge import LEASE, OPERATOR
from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.options import MERGE_PATCH
from tfjob_operator.api.core import PODS, SERVICES
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, SELECTING_LABELS, TFJOBS
from tfjob_operator.api.v1.types import child_name
from tfjob_operator.controller.leaderelection import LeaderElectionConfig

HOME: Final = "team"
JOBS: Final = ("a", "b", "c", "d")
SETTLED_S: Final = 480.0
"""Seconds after the end of the faults: an unmet expectation delays a job by 300s (EX-02), a retry by a minute."""
Place = tuple[str, str]


class _Past:
    """The other operator's pods (UIDs), and the expected final state."""

    def __init__(self) -> None:
        self.pods: dict[Place, str] = {}
        self.wanted: set[Place] = set()
        self.ended: dict[str, str] = {}
        """The resourceVersions of finished jobs, by name."""


async def nothing_of_another_operator_runs_twice(world: World) -> None:
    """Two replicas take over the other operator's jobs under faults, and are killed now and then."""
    random = world.random
    await world.create_namespaces(LEASE[0], HOME)
    GarbageCollector(world.server, random)
    past = _Past()
    for name in JOBS:
        await _leave_behind(world.client("predecessor"), random, name, past)
    election = LeaderElectionConfig()
    replicas = [OperatorProcess(world, number, election=election, workers=random.choice((1, 4))) for number in range(2)]
    for each in replicas:
        each.start()
    async with asyncio.TaskGroup() as group:
        for each in replicas:
            group.create_task(haunt(world, each, (6.0,)), name="fate")
    for _ in range(int(SETTLED_S)):
        await asyncio.sleep(1.0)
        for each in replicas:
            if each.has_ended:
                each.start()
    _check(world, past)
    for each in replicas:
        await each.stop()


async def _leave_behind(client: RestClient, random: Random, name: str, past: _Past) -> None:
    """Write a job and its children like one of the operators; some pods may be missing."""
    predecessor = random.choice(PREDECESSORS)
    sizes = {"Worker": random.randint(1, 3), "PS": random.randint(0, 1)}
    has_ended = random.random() < 0.3
    # Scaled down while no operator ran. Not for tf-operator 0.3, whose counters this operator does not read.
    is_shrunk = not has_ended and predecessor.counters == "replicaStatuses" and random.random() < 0.4
    asked = sizes | {"Worker": sizes["Worker"] - is_shrunk}
    spec = predecessor.spec({kind: replica(size) for kind, size in asked.items()})
    status = predecessor.ended(HOME, name) if has_ended else predecessor.running(HOME, name, **sizes)
    body = predecessor.job(name, spec, status) | {"apiVersion": TFJOBS.api_version}
    job = await client.create(TFJOBS, HOME, body, dict[str, Any])
    told = await client.patch(
        TFJOBS, HOME, name, {"status": status}, dict[str, Any], subresource="status", content_type=MERGE_PATCH
    )
    if has_ended:
        past.ended[name] = told["metadata"]["resourceVersion"]
    uid = job["metadata"]["uid"]
    for kind, size in sizes.items():
        for index in range(size):
            child = child_name(name, kind, index)
            made = {plural for plural, likely in (("pods", 0.8), ("services", 0.9)) if random.random() < likely}
            if "pods" in made:
                found = await _make_pod(client, predecessor, name, uid, (kind, index))
                past.pods |= {("pods", child): found} if index < asked[kind] else {}
            if "services" in made:
                await client.create(SERVICES, HOME, predecessor.service(name, uid, kind, index))
            if index < asked[kind]:
                past.wanted |= {(plural, child) for plural in (made if has_ended else ("pods", "services"))}


async def _make_pod(client: RestClient, predecessor: Predecessor, job: str, uid: str, which: tuple[str, int]) -> str:
    body = predecessor.pod(job, uid, *which, replica())
    made = await client.create(PODS, HOME, body, dict[str, Any])
    running = {"status": {"phase": "Running"}}
    await client.patch(PODS, HOME, made["metadata"]["name"], running, subresource="status", content_type=MERGE_PATCH)
    found: str = made["metadata"]["uid"]
    return found


def _check(world: World, past: _Past) -> None:
    collections = world.server.storage.collections
    there = {
        (plural, name): version.body
        for plural in ("pods", "services")
        for (_, name), version in collections[plural].objects.items()
    }
    require(set(there) == past.wanted, f"there are {sorted(there)}, should be {sorted(past.wanted)}")
    for place, uid in past.pods.items():
        require(there[place]["metadata"]["uid"] == uid, f"{place} is not the pod that ran")
    created = [each.path for each in world.server.writes if each.client.startswith(OPERATOR) and each.method == "POST"]
    pods = [path for path in created if path.endswith("/pods")]
    missing = [place for place in past.wanted if place[0] == "pods" and place not in past.pods]
    require(len(pods) == len(missing), f"{len(pods)} pods were made for {missing}")
    jobs = {name: version.body for (_, name), version in collections["tfjobs"].objects.items()}
    for name, body in jobs.items():
        if name in past.ended:
            require(body["metadata"]["resourceVersion"] == past.ended[name], f"{name} had ended, and was written")
        else:
            require("begun" in body["status"], f"{name} was not taken over")
            _check_children(name, there)


def _check_children(job: str, there: dict[Place, dict[str, Any]]) -> None:
    """Check that the children of a running job are labeled, and that each service selects its own pod."""
    for (plural, name), body in there.items():
        if body["metadata"]["ownerReferences"][0]["name"] != job:
            continue
        require(body["metadata"]["labels"].get(LABEL_OPERATOR_NAME), f"{plural} {name} cannot be seen")
        if plural == "services":
            labels = there["pods", name]["metadata"]["labels"]
            wanted = {label: labels[label] for label in SELECTING_LABELS}
            require(body["spec"]["selector"] == wanted, f"service {name} selects {body['spec']['selector']}")
