"""Which of several pods stands for a replica, and whose child each is: names decide, for nobody can edit them."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest

from fakes.controller import STATUS, ControllerHarness
from fakes.jobs import good_spec, job, names, pod, replica, service
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType, RestartPolicy
from tfjob_operator.api.v1.types import IndexRestarts, JobCondition, JobStatus
from tfjob_operator.controller.jobs.children import ChildLabels, Pod, ReplicaKey
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.replicas import key_of, observe, replicas_of

ONE = {"tfReplicaSpecs": {"Worker": replica(1, RestartPolicy.EXIT_CODE)}}
TRUE = pod("Worker", 0)


def copy(name: str = "copy", *, age_s: float = 0.0, of: Pod = TRUE, **meta: Any) -> Pod:
    """Another pod of worker 0, which the job controls as well."""
    changes = {"name": name, "uid": f"uid-{name}", "creation_timestamp": EPOCH - timedelta(seconds=age_s)} | meta
    return msgspec.structs.replace(of, metadata=msgspec.structs.replace(of.metadata, **changes))


def chosen(*pods: Pod) -> list[str]:
    """The names of the pods that stand for replicas."""
    return [each.pod.metadata.name for each in replicas_of("mnist", pods)[0]]


def test_the_pod_with_the_replicas_name_stands_for_it_before_others() -> None:
    """D7, U7: however young it is, and also while it is on its way out: its name is taken until it is gone."""
    going = pod("Worker", 0, terminating=True)
    for true in (TRUE, going):
        for pods in permutations((true, copy("a", age_s=50), copy("z", age_s=60))):
            assert chosen(*pods) == ["mnist-worker-0"]


def test_without_one_of_its_name_the_oldest_is_a_replicas_pod() -> None:
    """D7: so nothing that comes later takes the place of what runs; the UID decides between two of one second."""
    for pods in permutations((copy("b", age_s=5), copy("a", age_s=3), copy("c", age_s=5))):
        assert chosen(*pods) == ["b"]


def test_a_second_pod_goes_also_from_a_job_that_is_cut_down() -> None:
    """U7: together with the pods beyond the size to which it is cut down."""
    seen = observe(job(ONE), [TRUE, copy(), pod("Worker", 1)], []).limited_to({"Worker": 1})
    assert {each.pod.metadata.name for each in seen.surplus} == {"copy", "mnist-worker-1"}


def test_a_second_pod_is_neither_counted_nor_judged_and_goes() -> None:
    """U7: whatever has become of it; nothing is made in its stead."""
    for second in (copy(), copy(of=pod("Worker", 0, "Failed", 1)), copy(of=pod("Worker", 0, "Succeeded", 0))):
        tfjob = job(ONE)
        decided = plan(tfjob, good_spec(tfjob), [second, TRUE], [service("Worker", 0)], EPOCH)
        assert names(decided) == {
            "create pods": [],
            "create services": [],
            "delete pods": ["copy"],
            "delete services": [],
        }
        assert [deletion.event for deletion in decided.delete_pods] == [None]
        assert decided.status is not None
        counts = decided.status.replica_statuses[c.WORKER]
        assert (counts.active, counts.succeeded, counts.failed) == (1, 0, 0)
        assert [each.type for each in decided.status.conditions] == [ConditionType.CREATED, ConditionType.RUNNING]


def test_two_pods_of_a_replica_invent_no_restarts() -> None:
    """D7: the record stays with the replica's pod, whoever else fails beside it, and whichever comes first."""
    true, second = pod("Worker", 0, restarts=2), copy(of=pod("Worker", 0, "Failed", 137, restarts=3))
    counted = (IndexRestarts(type=c.WORKER, index=0, pod="uid-mnist-worker-0", in_place=2),)
    for pods in permutations((true, second)):
        tfjob = job(ONE | {"runPolicy": {"backoffLimit": 4}})
        for _ in range(5):
            status = plan(tfjob, good_spec(tfjob), pods, [], EPOCH).status or tfjob.status
            assert status.restarts == counted
            tfjob = msgspec.structs.replace(tfjob, status=status)


@pytest.mark.parametrize("suspend", [True, False])
def test_second_pods_go_with_all_others(suspend: bool) -> None:
    """D7: when a job is suspended, and when it has ended; after the end they are kept or deleted by the same rules."""
    tfjob = job(ONE | {"runPolicy": {"suspend": suspend}})
    if not suspend:
        done = JobStatus(
            conditions=(JobCondition(type=ConditionType.SUCCEEDED, status="True"),),
            completion_time=EPOCH,
            observed_generation=1,
        )
        tfjob = msgspec.structs.replace(tfjob, status=done)
    decided = plan(tfjob, good_spec(tfjob), [copy(), TRUE], [], EPOCH)
    assert sorted(names(decided)["delete pods"]) == ["copy", "mnist-worker-0"]


async def test_restarts_of_a_pod_under_another_name_are_counted() -> None:
    """D7: the pod is read by its own name; otherwise every sync would fail with a stale view."""
    world = ControllerHarness()
    adopted = copy(of=pod("Worker", 0, "Failed", 137))
    counted = (IndexRestarts(type=c.WORKER, index=0, pod="uid-before", replaced=True),)
    world.jobs.put(job(ONE, status=JobStatus(restarts=counted)))
    world.pods.put(adopted)
    world.client.objects["pods", "copy"] = {"metadata": {"name": "copy", "uid": "uid-copy"}}
    await world.sync()
    (record,) = world.client.bodies[STATUS][1]["value"]["restarts"]
    assert (record["pod"], record["carried"], record["replaced"]) == ("uid-copy", 1, True)


@pytest.mark.parametrize(
    "labels",
    [
        {"replica_index": "abc"},
        {"replica_index": "1", "prefixed_replica_index": "1"},
        {"replica_type": "driver", "prefixed_replica_type": ""},
        {"job_name": "debug"},
        None,
    ],
    ids=["unreadable", "another's", "another type", "another job", "none"],
)
def test_whatever_its_labels_say_a_child_is_what_its_name_says(labels: dict[str, str] | None) -> None:
    """U9: for the garbage collector, too, it is the job's; it is counted and judged as before."""
    changed = None if labels is None else msgspec.structs.replace(TRUE.metadata.labels or ChildLabels(), **labels)
    edited = msgspec.structs.replace(TRUE, metadata=msgspec.structs.replace(TRUE.metadata, labels=changed))
    assert key_of("mnist", edited.metadata) == ReplicaKey.of("mnist", c.WORKER, 0)
    tfjob = job(ONE)
    decided = plan(tfjob, good_spec(tfjob), [edited], [service("Worker", 0)], EPOCH)
    assert not any(names(decided).values())
    assert decided.status is not None
    assert decided.status.replica_statuses[c.WORKER].active == 1


NO_NAMES = (
    "mnist-worker-00",
    "mnist-worker-",
    "mnist-worker-0-x",
    "mnist-Worker-0",
    "mnist-driver-0",
    "worker-0",
    "mnist-0",
)


@pytest.mark.parametrize("name", NO_NAMES)
def test_only_the_very_name_of_a_replica_names_it(name: str) -> None:
    """U9: of all others only their labels say what they are."""
    unlabelled = copy(name, labels=None)
    assert key_of("mnist", unlabelled.metadata) is None
    assert key_of("mnist", copy(name).metadata) == ReplicaKey.of("mnist", c.WORKER, 0)


def test_a_pod_that_nothing_says_what_it_is_goes() -> None:
    """U9: it is the job's child but stands for no replica, so its end would count for nothing."""
    lost = copy(labels=msgspec.structs.replace(TRUE.metadata.labels or ChildLabels(), job_name="debug"))
    tfjob = job(ONE)
    decided = plan(tfjob, good_spec(tfjob), [lost, TRUE], [service("Worker", 0)], EPOCH)
    assert names(decided)["delete pods"] == ["copy"]
