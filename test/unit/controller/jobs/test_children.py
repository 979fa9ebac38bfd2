"""Names of children, and children in another namespace that name a job as their owner.

Whoever may create pods in one namespace can write any UID into them.
"""

from typing import Any

import msgspec
import pytest

from fakes.controller import KEY, STATUS, ControllerHarness, StubInformer
from fakes.jobs import OWNER, good_spec, job, pod, service, spec
from kit.virtual_loop import FakeClock
from tfjob_operator.api.meta import index_by_owner, owner_uid_key
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import child_name
from tfjob_operator.controller.jobs.children import ChildLabels, Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.writes import EventDeduplicator
from tfjob_operator.controller.tfjob.build.builder import labels_of

ONE_WORKER = spec(Worker=1)
CHILDREN = [("create", "services", "mnist-worker-0"), ("create", "pods", "mnist-worker-0")]


def elsewhere(child: Any) -> Any:
    """The same child in another tenant's namespace, with the victim's UID and all of its labels."""
    tfjob = job(ONE_WORKER)
    labels = labels_of(tfjob.metadata, good_spec(tfjob), ReplicaKey("Worker", 0, "mnist-worker-0"))
    meta = msgspec.structs.replace(
        child.metadata, namespace="mallory", uid="mallory's", labels=msgspec.convert(labels, ChildLabels)
    )
    return msgspec.structs.replace(child, metadata=meta)


def stores(world: ControllerHarness) -> list[tuple[StubInformer, Pod | Service, str]]:
    return [(world.pods, pod("Worker", 0), "pod"), (world.services, service("Worker", 0), "service")]


def test_a_child_is_found_under_the_owner_of_its_own_namespace() -> None:
    """D2: a controller reference has no namespace; it is resolved in the child's. Users find pods by JOB-TYPE-INDEX."""
    assert child_name("mnist", c.PS, 3) == "mnist-ps-3"
    assert index_by_owner(pod("Worker", 0)) == (owner_uid_key(job().metadata),) == (OWNER,)
    assert index_by_owner(elsewhere(pod("Worker", 0))) == ("mallory/job-uid",)


@pytest.mark.parametrize("suspend", [False, True])
async def test_children_in_another_namespace_stand_for_none_of_the_jobs_own(suspend: bool) -> None:
    """D2: the job gets its own pod and service, counts nothing else, and when suspended sends no request elsewhere."""
    world = ControllerHarness(job(ONE_WORKER | {"runPolicy": {"suspend": suspend}}))
    for store, child, _ in stores(world):
        store.put(elsewhere(child))
    assert await world.sync_and_take() == [STATUS, *([] if suspend else CHILDREN)]
    if not suspend:
        assert world.status["replicaStatuses"]["Worker"]["active"] == 0


@pytest.mark.parametrize(("phase", "code"), [("Failed", 1), ("Succeeded", 0)])
async def test_what_becomes_of_a_pod_in_another_namespace_does_not_end_the_job(phase: str, code: int) -> None:
    """D2: neither its failure nor its success is the job's."""
    world = ControllerHarness(job(ONE_WORKER))
    world.pods.put(pod("Worker", 0))
    world.pods.put(elsewhere(pod("Worker", 0, phase, code)))
    await world.sync()
    assert world.conditions == [ConditionType.CREATED, ConditionType.RUNNING]
    assert world.status["replicaStatuses"]["Worker"] == {"active": 1, "succeeded": 0, "failed": 0}


async def test_a_child_in_another_namespace_meets_no_expectation() -> None:
    """D2, EX-06: neither of a creation nor of a deletion."""
    for number in range(2):
        world = ControllerHarness()
        store, child, kind = stores(world)[number]
        foreign = elsewhere(child)
        world.expectations.expect_creations(OWNER, kind, [child.metadata.name])
        world.expectations.expect_deletions(OWNER, kind, [foreign.metadata.uid])
        store.put(foreign)
        store.remove(foreign)
        world.expectations.deletion_observed(OWNER, kind, foreign.metadata.uid)
        assert not world.expectations.satisfied(OWNER)
        store.put(child)
        assert world.expectations.satisfied(OWNER)


async def test_a_child_wakes_only_a_job_of_its_own_namespace() -> None:
    """D2: what others do elsewhere costs the job no sync."""
    world = ControllerHarness()
    world.pods.put(elsewhere(pod("Worker", 0)))
    assert await world.queue.get() == "mallory/mnist"
    assert len(world.queue) == 0
    world.pods.put(pod("Worker", 0))
    assert await world.queue.get() == KEY


def test_what_the_pods_of_a_job_have_in_common_is_stored_once() -> None:
    """Each comes with its own copy; a hundred thousand of them would take half a gigabyte."""

    def decoded(index: int, phase: str = "Running") -> Pod:
        labels = {c.LABEL_JOB_NAME: "mnist", c.LABEL_REPLICA_TYPE: "worker", c.LABEL_REPLICA_INDEX: str(index)}
        owner = {"kind": "TFJob", "name": "mnist", "uid": "u-1", "controller": True}
        meta = {"name": f"mnist-worker-{index}", "namespace": "team", "labels": labels, "ownerReferences": [owner]}
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
        spec = {"restartPolicy": "Never", "containers": [{"name": "tensorflow"}]}
        text = msgspec.json.encode({"kind": "Pod", "metadata": meta, "spec": spec, "status": status})
        return msgspec.json.decode(text, type=Pod)

    one, two = decoded(1), decoded(2)
    assert one.spec is two.spec
    assert one.status is two.status
    assert one.metadata.owner_references is two.metadata.owner_references
    assert one.metadata.namespace is two.metadata.namespace
    assert one.metadata.labels is not None
    assert two.metadata.labels is not None
    assert one.metadata.labels.job_name is two.metadata.labels.job_name
    assert (one.metadata.labels.replica_index, two.metadata.labels.replica_index) == ("1", "2")
    ended, too = decoded(1, "Failed"), decoded(2, "Failed")
    assert ended.status is not too.status, "each ends in a second of its own, so it would only fill the memory"
    assert ended.status == too.status


def test_a_warning_is_repeated_after_its_subject_was_forgotten_and_a_job_without_any_takes_no_memory() -> None:
    clock = FakeClock()
    warnings = EventDeduplicator[str](clock, 60, most=2)
    assert [warnings.should_emit("uid", each) for each in ("a", "a", "b", "c", "a")] == [True, False, True, True, True]
    clock.step(60)
    assert warnings.should_emit("uid", "a")
    assert [*warnings.subjects("uid")] == ["c", "a"]
    warnings.forget_subject("uid", "c")
    assert warnings.should_emit("uid", "c")
    for each in ("a", "c", "d"):
        warnings.forget_subject("uid", each)
    assert warnings.subjects("uid") == (), "not even an empty entry"
