"""Who owns what: the rules, and the calls by which a reference is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from fakes.api import FakeClient, status_error
from fakes.clock import FakeClock
from fakes.jobs import JOB_UID, OWNER, good_spec, job, pod, replica, service
from fakes.recorder import FakeRecorder, job_events
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.jobs.children import ChildLabels, Pod, ReplicaKey, Service, index_orphans
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.tfjob.apply.conflicts import FIRST_DELAY_S, LONGEST_DELAY_S, Delays
from tfjob_operator.controller.tfjob.apply.ownership import Adoptions, RefManager
from tfjob_operator.controller.tfjob.build.children import labels_of
from tfjob_operator.controller.tfjob.plan.replicas import claims
from tfjob_operator.controller.tfjob.view import StaleViewError

JOB = job({"tfReplicaSpecs": {"Worker": replica(4)}})
PREFIXED_JOB = c.LABEL_PREFIX + c.LABEL_JOB_NAME


def read(labels: Mapping[str, str]) -> ChildLabels:
    """Decode these labels."""
    return msgspec.convert(labels, ChildLabels)


def worker(index: int = 0, *, orphan: bool = False, **meta: Any) -> Pod:
    """A worker's pod with all its labels."""
    slot = ReplicaKey(c.WORKER, index, f"mnist-worker-{index}")
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


def claim(owned: list[Pod], orphans: list[Pod]) -> tuple[Pod, ...]:
    """Return the children that are claimed for the job."""
    return claims("mnist", owned, orphans)


def test_an_orphan_that_matches_is_adopted() -> None:
    """RM-01, controller_ref_manager_test.go:TestClaimPods."""
    orphan = worker(0, orphan=True)
    assert claim([worker(1)], [orphan]) == (orphan,)


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
    """RM-01: all its labels must match, and it must not be terminating."""
    assert claim([], [orphan]) == ()


def test_an_orphan_is_not_adopted_for_a_replica_that_has_its_pod() -> None:
    """Two pods for one replica would both be counted."""
    assert claim([worker(0)], [worker(0, orphan=True, name="copy", uid="2")]) == ()


@pytest.mark.parametrize("turn", [1, -1])
def test_the_orphan_with_the_replicas_name_is_adopted_before_others(turn: int) -> None:
    """In whatever order they come."""
    true, copy = worker(0, orphan=True), worker(0, orphan=True, name="copy", uid="2")
    assert claim([], [true, copy][::turn]) == (true,)
    assert claim([], [copy]) == (copy,)


@pytest.mark.parametrize(
    "child",
    [
        labelled(worker(0), job_name="debug"),
        labelled(worker(0), __job_name="debug"),
        labelled(worker(0), replica_index="x"),
        labelled(worker(0), replica_type=None, __replica_type=None),
        worker(0, labels=None),
    ],
    ids=["job", "prefixed job", "index", "no type", "no labels"],
)
def test_a_child_whose_labels_deny_the_job_still_holds_its_place(child: Pod) -> None:
    """U9, RM-01: its name says which replica it is; no orphan is adopted in its stead."""
    assert claim([child], [worker(0, orphan=True, name="copy", uid="2")]) == ()


def test_a_pod_that_has_ended_is_not_adopted() -> None:
    """D15: how the pods of an earlier job ended is not the outcome of a new one."""
    for phase, code in (("Succeeded", 0), ("Failed", 1), ("Running", 0)):
        meta = worker(0, orphan=True).metadata
        ended = msgspec.structs.replace(pod(c.WORKER, 0, phase, code), metadata=meta)
        assert claim([], [ended]) == (), phase


def test_an_orphan_whose_name_is_that_of_another_replica_is_not_adopted() -> None:
    """U9: its name and its labels would stand for different replicas."""
    assert claim([], [worker(0, orphan=True, name="mnist-worker-1")]) == ()


def test_a_service_is_adopted_under_the_name_of_its_replica_alone() -> None:
    """The job's pods look for each other under no other name."""
    meta = worker(0, orphan=True).metadata
    named = Service(metadata=meta)
    copy = Service(metadata=msgspec.structs.replace(meta, name="copy"))
    assert claims("mnist", [], [copy, named]) == (named,)
    assert claims("mnist", [], [copy]) == ()


def test_children_with_one_family_of_labels_stay() -> None:
    """Other operators for TFJob set only one of the two; taking over from them must not cost a job its pods."""
    short = labelled(worker(0, name="a"), __job_name=None, __replica_type=None, __replica_index=None)
    prefixed = labelled(worker(1, name="b"), job_name=None, replica_type=None, replica_index=None, group_name=None)
    orphans = [worker(index, orphan=True) for index in range(3)]
    assert claim([short, prefixed], orphans) == (orphans[2],), "the places of the others are held"


def test_the_index_holds_orphans_under_the_job_that_their_labels_name() -> None:
    """And nothing that has a controller, so it is empty in most clusters."""
    assert index_orphans(worker(0, orphan=True)) == ("ns/mnist",)
    assert index_orphans(worker(0)) == ()
    assert index_orphans(worker(0, orphan=True, labels=None)) == ()


class AdoptionHarness:
    """A ref manager and what surrounds it."""

    def __init__(self) -> None:
        self.client = FakeClient()
        self.clock = FakeClock()
        self.recorder = FakeRecorder()
        self.expectations = Expectations(self.clock)
        self.manager = RefManager(self.client, job_events(self.recorder), self.expectations, Delays(self.clock))
        self.confirmed = 0
        self.refusal: ApiError | None = None

    async def adopt(self, *children: Pod | Service) -> Adoptions:
        """Adopt these children for the job."""
        return await self.manager.adopt(JOB, children, self._confirm)

    async def _confirm(self) -> None:
        self.confirmed += 1
        if self.refusal is not None:
            raise self.refusal


async def test_where_nothing_is_claimed_nothing_is_called() -> None:
    """The common case costs neither a read nor a write."""
    world = AdoptionHarness()
    assert await world.adopt() == (False, None)
    assert world.client.actions == []
    assert world.confirmed == 0


async def test_an_adoption_carries_the_uid_and_a_whole_reference_after_one_look_at_the_job() -> None:
    """RM-02, RM-03, RM-04, TestGetPodsForJobAdopt.

    Invariant: "An adoption carries the UID of its child"
    """
    world = AdoptionHarness()
    child = service(c.WORKER, 0)
    assert await world.adopt(worker(0, orphan=True), worker(1, orphan=True), child) == (True, None)
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
    """EX-04: no second sync adopts it again meanwhile.

    Invariant: "An adoption is expected until the cache has seen it"
    """
    world = AdoptionHarness()
    await world.adopt(worker(0, orphan=True))
    assert not world.expectations.satisfied(OWNER)
    world.expectations.creation_observed(OWNER, "pod", "mnist-worker-0")
    assert world.expectations.satisfied(OWNER)


async def test_an_adopted_child_that_a_list_does_not_show_is_expected_no_more() -> None:
    """EX-10: it was deleted before the watch has shown its new owner; the tombstone that the list leads to names none."""
    world = AdoptionHarness()
    world.client.given_version = "20"
    await world.adopt(worker(0, orphan=True))
    assert world.expectations.listed("pod", "19") == []
    assert world.expectations.listed("pod", "20") == ["ns/mnist"]


async def test_nothing_is_adopted_when_the_job_is_not_what_the_cache_shows() -> None:
    """RM-02, TestGetPodsForJobNoAdoptIfBeingDeletedRace: it was deleted, or replaced by another of that name.

    Invariant: "Nothing is adopted before the job itself was read from the API server"
    """
    world = AdoptionHarness()
    world.refusal = StaleViewError("the job is gone")
    with pytest.raises(StaleViewError):
        await world.adopt(worker(0, orphan=True))
    assert world.client.actions == []
    assert world.expectations.satisfied(OWNER)


async def test_an_orphan_that_is_gone_needs_no_adoption() -> None:
    """RM-03: 404; nothing is expected of it."""
    world = AdoptionHarness()
    world.client.fail["patch", "pods", "mnist-worker-0"] = status_error(NotFoundError, 404)
    assert await world.adopt(worker(0, orphan=True)) == (False, None)
    assert world.expectations.satisfied(OWNER)


ADOPT = ("patch", "pods", "mnist-worker-0")


@pytest.mark.parametrize(
    ("error", "told"), [((InvalidError, 422), 1), ((ConflictError, 409), 1), ((ForbiddenError, 403), 2)]
)
async def test_an_adoption_that_fails_costs_an_event_and_is_tried_again_later(error: Any, told: int) -> None:
    """D14, RM-03, TestPatchPodFails: the others are adopted. After a 409 or 422 no event at once: another may be faster."""
    world = AdoptionHarness()
    world.client.fail[ADOPT] = status_error(*error)
    both = worker(0, orphan=True), worker(1, orphan=True)
    assert await world.adopt(*both) == (True, FIRST_DELAY_S)
    assert not world.expectations.satisfied(OWNER)  # the other one was adopted, and is awaited
    world.expectations.creation_observed(OWNER, "pod", "mnist-worker-1")
    assert world.expectations.satisfied(OWNER)
    left = worker(0, orphan=True)
    assert await world.adopt(left) == (False, FIRST_DELAY_S), "too early"
    assert world.client.actions.count(ADOPT) == world.confirmed == 1
    world.clock.step(FIRST_DELAY_S)
    assert await world.adopt(left) == (False, 2 * FIRST_DELAY_S)
    assert world.client.actions.count(ADOPT) == world.confirmed == 2
    assert world.recorder.reasons == ["FailedAdoptPod"] * told


async def test_an_adoption_that_fails_for_ever_is_tried_every_five_minutes_at_last() -> None:
    """D14: it is not given up, and causes little load."""
    world = AdoptionHarness()
    world.client.fail[ADOPT] = status_error(ForbiddenError, 403)
    left = worker(0, orphan=True)
    for _ in range(20):
        wait_s = (await world.adopt(left)).wait_s
        assert wait_s is not None
        world.clock.step(wait_s)
    assert world.client.actions.count(ADOPT) == 20
    assert wait_s == LONGEST_DELAY_S
