"""Who owns what: the rules, and the calls by which a reference is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from api.client.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError
from api.v1 import constants as c
from api.v1.children import ChildLabels, Pod
from controller.tfjob.actions import Slot
from controller.tfjob.executor import POD, SERVICE
from controller.tfjob.expectations import Expectations
from controller.tfjob.ownership import index_orphans
from controller.tfjob.pod_template import labels_of
from controller.tfjob.ref_manager import Claims, RefManager, claims
from controller.tfjob.status_writer import StaleViewError
from fakes.api import FakeClient, status_error
from fakes.clock import FakeClock
from fakes.jobs import JOB_UID, OWNER, good_spec, job, pod, replica, service
from fakes.virtual_loop import EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping

JOB = job({"tfReplicaSpecs": {"Worker": replica(4)}})
PREFIXED_JOB = c.LABEL_PREFIX + c.LABEL_JOB_NAME


def read(labels: Mapping[str, str]) -> ChildLabels:
    """What is decoded of these labels."""
    return msgspec.convert(labels, ChildLabels)


def worker(index: int = 0, *, orphan: bool = False, **meta: Any) -> Pod:
    """A worker's pod with all its labels."""
    slot = Slot(c.WORKER, index, f"mnist-worker-{index}")
    made = pod(c.WORKER, index)
    changed = msgspec.structs.replace(made.metadata, labels=read(labels_of(JOB.metadata, good_spec(JOB), slot)))
    if orphan:
        changed = msgspec.structs.replace(changed, owner_references=None)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(changed, **meta))


def labelled(child: Pod, **labels: str | None) -> Pod:
    """The pod with these labels changed; None takes one away. `_` and `__` stand for `-` and the prefix."""
    names = {name.replace("__", c.LABEL_PREFIX).replace("_", "-"): value for name, value in labels.items()}
    merged = {**child.metadata.label_map(), **names}
    kept = {name: value for name, value in merged.items() if value is not None}
    return msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, labels=read(kept)))


def claim(owned: list[Pod], orphans: list[Pod]) -> Claims[Pod]:
    """What is claimed for the job."""
    return claims("mnist", POD, owned, orphans)


def test_an_orphan_that_matches_is_adopted() -> None:
    """RM-01, controller_ref_manager_test.go:TestClaimPods."""
    orphan = worker(0, orphan=True)
    assert claim([worker(1)], [orphan]) == Claims(POD, (orphan,), ())


@pytest.mark.parametrize(
    "orphan",
    [
        labelled(worker(0, orphan=True), group_name="other.org"),
        labelled(worker(0, orphan=True), group_name=None),
        labelled(worker(0, orphan=True), job_name="other"),
        labelled(worker(0, orphan=True), __job_name="other"),
        labelled(worker(0, orphan=True), __operator_name=None),
        labelled(worker(0, orphan=True), replica_index="x"),
        labelled(worker(0, orphan=True), replica_type="driver"),
        worker(0, orphan=True, deletion_timestamp=EPOCH),
        worker(0, orphan=True, labels=None),
    ],
    ids=["group", "no group", "job", "prefixed job", "operator", "index", "type", "leaving", "no labels"],
)
def test_an_orphan_that_does_not_match_or_leaves_is_left_alone(orphan: Pod) -> None:
    """RM-01: all labels must say so, and it must be going to stay."""
    assert claim([], [orphan]) == Claims(POD)


def test_an_orphan_is_not_adopted_for_a_replica_that_has_its_pod() -> None:
    """Two pods for one replica would both be counted."""
    assert claim([worker(0)], [worker(0, orphan=True, name="copy", uid="2")]) == Claims(POD)


@pytest.mark.parametrize("turn", [1, -1])
def test_of_several_orphans_for_a_replica_the_one_with_its_name_is_adopted(turn: int) -> None:
    """In whatever order they come."""
    true, copy = worker(0, orphan=True), worker(0, orphan=True, name="copy", uid="2")
    assert claim([], [true, copy][::turn]).adopt == (true,)
    assert claim([], [copy]).adopt == (copy,)


@pytest.mark.parametrize(
    "child",
    [
        labelled(worker(0), job_name="debug"),
        labelled(worker(0), __job_name="debug"),
        labelled(worker(0), replica_index="x"),
        labelled(worker(0), replica_type=None, __replica_type=None),
    ],
    ids=["job", "prefixed job", "index", "no type"],
)
def test_a_child_whose_labels_deny_the_job_is_released_and_not_adopted_again(child: Pod) -> None:
    """RM-01: as users take a pod out, to look at it in peace."""
    assert claim([child], []) == Claims(POD, (), (child,))
    freed = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, owner_references=None))
    assert claim([], [freed]) == Claims(POD)


def test_a_child_that_leaves_is_not_released() -> None:
    """RM-01: it goes anyway."""
    assert claim([labelled(worker(0, deletion_timestamp=EPOCH), job_name="debug")], []) == Claims(POD)


def test_children_with_one_family_of_labels_stay() -> None:
    """Other operators for TFJob set but one of the two; taking over from them must not cost a job its pods."""
    short = labelled(worker(0), __job_name=None, __replica_type=None, __replica_index=None)
    prefixed = labelled(worker(1), job_name=None, replica_type=None, replica_index=None, group_name=None)
    assert claim([short, prefixed], []) == Claims(POD)


def test_the_index_holds_orphans_under_the_job_that_their_labels_name() -> None:
    """And nothing that is controlled by anybody, so that it is empty in most clusters."""
    assert index_orphans(worker(0, orphan=True)) == ("ns/mnist",)
    assert index_orphans(worker(0)) == ()
    assert index_orphans(worker(0, orphan=True, labels=None)) == ()


class World:
    """A ref manager and what surrounds it."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.expectations = Expectations(FakeClock())
        self.manager = RefManager(self.client, self.expectations)
        self.confirmed = 0
        self.refusal: ApiError | None = None

    async def carry_out(self, *claimed: Claims[Any]) -> bool:
        """Adopt and release."""
        return await self.manager.carry_out(JOB, claimed, self._confirm)

    async def _confirm(self) -> None:
        self.confirmed += 1
        if self.refusal is not None:
            raise self.refusal


async def test_where_nothing_is_claimed_nothing_is_called() -> None:
    """The common case costs neither a read nor a write."""
    world = World()
    assert not await world.carry_out(Claims(POD), Claims(SERVICE))
    assert world.client.actions == []
    assert world.confirmed == 0


async def test_an_adoption_carries_the_uid_and_a_whole_reference_after_one_look_at_the_job() -> None:
    """RM-02, RM-03, RM-04, TestGetPodsForJobAdopt."""
    world = World()
    child = service(c.WORKER, 0)
    adopted: list[Claims[Any]] = [
        Claims(POD, (worker(0, orphan=True), worker(1, orphan=True))),
        Claims(SERVICE, (child,)),
    ]
    assert await world.carry_out(*adopted)
    assert world.confirmed == 1
    assert world.client.actions == [
        ("patch", "pods", "mnist-worker-0"),
        ("patch", "pods", "mnist-worker-1"),
        ("patch", "services", "mnist-worker-0"),
    ]
    reference = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "name": "mnist",
        "uid": JOB_UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert world.client.bodies["patch", "pods", "mnist-worker-1"] == {
        "metadata": {"uid": "uid-mnist-worker-1", "ownerReferences": [reference]}
    }


async def test_an_adoption_is_expected_until_the_cache_has_seen_it() -> None:
    """EX-04: no second sync adopts it again meanwhile."""
    world = World()
    await world.carry_out(Claims(POD, (worker(0, orphan=True),)))
    assert not world.expectations.satisfied(OWNER)
    world.expectations.creation_observed(OWNER, "pod", "mnist-worker-0")
    assert world.expectations.satisfied(OWNER)


async def test_nothing_is_adopted_when_the_job_is_not_what_the_cache_shows() -> None:
    """RM-02, TestGetPodsForJobNoAdoptIfBeingDeletedRace: deleted, or another of that name, while we looked."""
    world = World()
    world.refusal = StaleViewError("the job is gone")
    with pytest.raises(StaleViewError):
        await world.carry_out(Claims(POD, (worker(0, orphan=True),)))
    assert world.client.actions == []
    assert world.expectations.satisfied(OWNER)


async def test_a_release_takes_our_reference_out_and_needs_no_look_at_the_job() -> None:
    """RM-03, TestGetPodsForJobRelease."""
    world = World()
    assert await world.carry_out(Claims(POD, (), (worker(0),)))
    assert world.confirmed == 0
    assert world.client.bodies["patch", "pods", "mnist-worker-0"] == {
        "metadata": {"uid": "uid-mnist-worker-0", "ownerReferences": [{"$patch": "delete", "uid": JOB_UID}]}
    }


@pytest.mark.parametrize("error", [(NotFoundError, 404), (InvalidError, 422), (ConflictError, 409)])
async def test_a_child_that_is_gone_or_another_by_now_needs_no_release(error: Any) -> None:
    """RM-03: newer servers answer 409 to a UID that differs. Nothing was changed, so the sync may go on."""
    world = World()
    world.client.fail["patch", "pods", "mnist-worker-0"] = status_error(*error)
    assert not await world.carry_out(Claims(POD, (), (worker(0),)))


async def test_an_orphan_that_is_gone_needs_no_adoption() -> None:
    """RM-03: 404; nothing is expected of it."""
    world = World()
    world.client.fail["patch", "pods", "mnist-worker-0"] = status_error(NotFoundError, 404)
    assert not await world.carry_out(Claims(POD, (worker(0, orphan=True),)))
    assert world.expectations.satisfied(OWNER)


@pytest.mark.parametrize("error", [(InvalidError, 422), (ConflictError, 409), (ForbiddenError, 403)])
async def test_an_adoption_that_fails_is_raised_after_all_have_been_tried(error: Any) -> None:
    """RM-03, TestPatchPodFails: another controller was faster, say; the next sync sees whose it is."""
    world = World()
    world.client.fail["patch", "pods", "mnist-worker-0"] = status_error(*error)
    with pytest.raises(error[0]):
        await world.carry_out(Claims(POD, (worker(0, orphan=True), worker(1, orphan=True))))
    assert len(world.client.actions) == 2
    assert not world.expectations.satisfied(OWNER)  # the other one was adopted, and is awaited
    world.expectations.creation_observed(OWNER, "pod", "mnist-worker-1")
    assert world.expectations.satisfied(OWNER)
