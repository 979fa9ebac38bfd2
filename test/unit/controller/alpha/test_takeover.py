"""Jobs that tf-operator 0.3 began in the alpha dialect, as this operator finds them: pods without Jobs, and a phase."""

import asyncio
from typing import Any

import msgspec
import pytest

from fakes.alpha import STATUS, UID, World, batch_job, child_meta, entry, job, pod_of, spec
from fakes.api import status_error
from fakes.predecessors import Alpha
from tfjob_operator.api.client.errors import ForbiddenError
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME
from tfjob_operator.api.v1alpha1.constants import OPERATOR_NAME
from tfjob_operator.api.v1alpha1.types import AlphaStatus
from tfjob_operator.controller.alpha.batch_jobs import replica_of_bare_pod
from tfjob_operator.controller.jobs.children import Pod, Service
from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S

GIVEN = spec(entry("MASTER"), entry("WORKER", 2), RuntimeId="76no")
KINDS = (("MASTER", 0), ("WORKER", 0), ("WORKER", 1))
OURS = ("master-76no-0", "worker-76no-0", "worker-76no-1")
NAMES = tuple(f"example-job-{name}-x7k2q" for name in OURS)
LIST = ("list", "pods", "")
SERVICES = [("create", "services", name) for name in OURS]


class Cluster(World):
    """A namespace in which tf-operator 0.3 has begun the job, and a controller whose caches show what they select."""

    def __init__(self, phase: str = "Running", state: str = "Running", **pods: dict[str, Any]) -> None:
        super().__init__()
        for kind, index in KINDS:
            body = Alpha.pod(Alpha.child("example-job", UID, "76no", kind, index), entry(kind)["template"])
            body["metadata"] |= {"namespace": "ns", "uid": f"uid-{body['metadata']['name']}"}
            body["status"] = pods.get(f"{kind}{index}", {"phase": "Running"})
            self.client.listed.setdefault("pods", []).append(body)
        said = Alpha.status(phase, state, "MASTER", "WORKER")
        self.put(job(GIVEN, status=msgspec.convert(said, AlphaStatus, strict=False)))

    def show(self) -> None:
        for body in self.client.listed["pods"]:
            patch = self.client.bodies.get(("patch", "pods", body["metadata"]["name"]))
            if patch is not None:
                body["metadata"]["labels"] |= patch["metadata"]["labels"]
                self.pods.put(msgspec.convert(body, Pod, strict=False))

    async def taken_over(self) -> None:
        await self.sync()
        self.show()
        await self.sync()
        self.observe_status()
        self.observe(*OURS)


def ended(code: int, phase: str) -> dict[str, Any]:
    return {"phase": phase, "containerStatuses": [{"name": "tensorflow", "state": {"terminated": {"exitCode": code}}}]}


async def test_pods_that_run_are_labelled_and_go_on_and_no_job_is_made_beside_them() -> None:
    """Their names cannot be known, so nothing but their labels keeps them from running twice."""
    world = Cluster()
    assert await world.sync() == [LIST, *(("patch", "pods", name) for name in NAMES)]
    patch = world.client.bodies["patch", "pods", NAMES[0]]["metadata"]
    assert patch["uid"] == f"uid-{NAMES[0]}"
    assert patch["labels"][LABEL_OPERATOR_NAME] == OPERATOR_NAME
    assert world.recorder.events == [("Normal", "SuccessfulAdopt", "Adopted 3 pods created by another operator")]
    world.show()
    assert await world.sync() == [LIST, STATUS, *SERVICES]
    assert (world.status["phase"], world.status["runtimeId"]) == ("Running", "76no")
    world.observe_status()
    world.observe(*OURS)
    assert await world.sync() == [STATUS]
    assert world.status["replicaStatuses"]["Worker"]["active"] == 2
    assert world.status["begun"] == {"generation": 1, "replicas": {"Master": 1, "Worker": 2}}
    world.observe_status()
    assert await world.sync() == []


async def test_nothing_is_planned_before_the_cache_shows_what_was_labelled() -> None:
    """Otherwise a replica whose pod is not seen yet would get a Job."""
    world = Cluster()
    await world.sync()
    for _ in range(3):
        assert [each for each in await world.sync() if each[0] != "patch"] == [LIST]


async def test_a_pod_that_can_not_be_labelled_keeps_its_job_waiting_and_is_told() -> None:
    """As if the operator had been killed there: the next attempt begins with what is left."""
    world = Cluster()
    world.client.fail["patch", "pods", NAMES[1]] = status_error(ForbiddenError, 403)
    with pytest.raises(ForbiddenError):
        await world.sync()
    assert world.recorder.events[0][:2] == ("Warning", "FailedAdoptPod")
    assert STATUS not in world.client.actions


async def test_pods_of_another_owner_are_left_alone() -> None:
    """They belong to an earlier job of that name and RuntimeId, or their labels are forged."""
    world = Cluster()
    for body in world.client.listed["pods"]:
        body["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert await world.sync() == [LIST, STATUS, *SERVICES]


async def test_a_replica_whose_pod_has_failed_gets_a_job_and_one_that_is_done_does_not() -> None:
    """tf-operator 0.3 also made another pod in place of one whose phase was Failed."""
    world = Cluster(WORKER0=ended(137, "Failed"), WORKER1=ended(0, "Succeeded"))
    await world.taken_over()
    assert await world.sync() == [STATUS, ("create", "jobs", "worker-76no-0")]
    assert world.status["finishedIndices"] == {"Worker": "1"}
    world.batch_jobs.put(batch_job("WORKER", 0, runtime_id="76no"))
    world.pods.put(pod_of(batch_job("WORKER", 0, runtime_id="76no")))
    world.observe_status()
    await world.sync()
    await asyncio.sleep(COUNTER_WINDOW_S)
    assert await world.sync() == [STATUS]
    assert world.status["replicaStatuses"]["Worker"] == {"active": 1, "succeeded": 1, "failed": 0}


async def test_a_replica_whose_pod_is_on_its_way_out_gets_a_job_when_it_is_gone() -> None:
    world = Cluster()
    for body in world.client.listed["pods"][1:2]:
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await world.taken_over()
    await world.sync()
    world.observe_status()
    assert await world.sync() == []
    world.pods.remove(world.pods.indexer.get(f"ns/{NAMES[1]}"))
    assert await world.sync() == [STATUS, ("create", "jobs", OURS[1])]


async def test_the_chief_ends_the_job_and_what_still_runs_goes() -> None:
    """That includes the pods that another operator made; the events of their deletion meet the expectations."""
    world = Cluster()
    await world.taken_over()
    await world.sync()
    world.observe_status()
    chief = world.client.listed["pods"][0]
    chief["status"] = ended(0, "Succeeded")
    world.pods.put(msgspec.convert(chief, Pod, strict=False))
    assert await world.sync() == [STATUS]
    assert (world.status["phase"], world.status["state"]) == ("CleanUp", "Succeeded")
    world.observe_status()
    assert sorted(await world.sync()) == sorted(
        [*(("delete", "pods", name) for name in NAMES[1:]), *(("delete", "services", name) for name in OURS[1:])]
    )
    for name in NAMES[1:]:
        world.pods.remove(world.pods.indexer.get(f"ns/{name}"))
    for name in OURS[1:]:
        world.services.remove(Service(metadata=child_meta(name)))
    assert await world.sync() == [STATUS]
    assert world.status["phase"] == "Done"


@pytest.mark.parametrize("code", [1, 139])
async def test_a_chief_that_fails_for_good_fails_the_job(code: int) -> None:
    world = Cluster(MASTER0=ended(code, "Failed"))
    await world.sync()
    world.show()
    assert await world.sync() == [LIST, STATUS]
    assert world.status["state"] == "Failed"


@pytest.mark.parametrize(("phase", "state"), [("Done", "Succeeded"), ("Done", "Failed"), ("Failed", "Failed")])
async def test_a_job_that_another_operator_has_ended_stays_as_it_is(phase: str, state: str) -> None:
    world = Cluster(phase, state)
    assert await world.sync() == []
    assert world.recorder.events == []


async def test_a_job_that_can_not_be_read_by_this_operator_is_left_to_run() -> None:
    """It would have been refused, had it not begun."""
    world = Cluster()
    status = msgspec.convert(Alpha.status("Running", "Running", "PS"), AlphaStatus, strict=False)
    world.put(job(spec(entry("PS"), RuntimeId="76no"), status=status, resource_version="9"))
    assert await world.sync() == []


def test_a_pod_without_a_job_says_by_its_name_which_replica_it_is() -> None:
    assert replica_of_bare_pod("job", "job-master-76no-0-x7k2q") == "master-76no-0"
    assert replica_of_bare_pod("j" * 50, f"{'j' * 40}-ps-a-b-12-x7k2q") == "ps-a-b-12"
