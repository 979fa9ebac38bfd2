"""Who owns what: rules and calls; and jobs that another operator began, as this one finds them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from fakes.api import status_error
from fakes.controller import STATUS, ControllerHarness, Parts
from fakes.jobs import JOB_UID, OWNER, good_spec, job, pod, replica, service, template
from fakes.predecessors import PREDECESSORS, STAMP, Predecessor, condition
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError
from tfjob_operator.api.meta import OwnerReference
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus, TFJob, TFJobSpec, tfjob_with_unreadable_status
from tfjob_operator.api.v1.validation import MAX_REPLICAS, read_spec
from tfjob_operator.controller.jobs.children import (
    ChildLabels,
    ChildMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    ReplicaKey,
    Service,
    index_orphans,
)
from tfjob_operator.controller.jobs.draft import COUNTER_WINDOW_S
from tfjob_operator.controller.jobs.expectations import EXPIRY_S
from tfjob_operator.controller.jobs.writes import StaleViewError
from tfjob_operator.controller.tfjob.apply.conflicts import FIRST_DELAY_S, LONGEST_DELAY_S
from tfjob_operator.controller.tfjob.apply.ownership import Adoptions
from tfjob_operator.controller.tfjob.build.children import GangScheduler, gang_scheduler, labels_of
from tfjob_operator.controller.tfjob.plan.replicas import claims, unseen

JOB = job({"tfReplicaSpecs": {"Worker": replica(4)}})


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


class AdoptionHarness(Parts):
    """The parts of a controller, and a confirmation that may be refused."""

    def __init__(self) -> None:
        super().__init__()
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


async def test_an_adoption_that_succeeds_has_no_delay_left() -> None:
    """Nothing is kept of it, and another one of this child starts with the first delay."""
    world = AdoptionHarness()
    left = worker(0, orphan=True)
    for fails in (True, False, True):
        world.client.fail = {ADOPT: status_error(ConflictError, 409)} if fails else {}
        assert await world.adopt(left) == ((False, FIRST_DELAY_S) if fails else (True, None))
        world.clock.step(FIRST_DELAY_S)


SPEC = {"tfReplicaSpecs": {"Worker": replica(2), "PS": replica(1)}}
REPLICAS = (("Worker", 0), ("Worker", 1), ("PS", 0))
NAMES = ("mnist-ps-0", "mnist-worker-0", "mnist-worker-1")
OF_OLD = PREDECESSORS[0]
HIDDEN = [each for each in PREDECESSORS if not each.watched]
WATCHED = next(each for each in PREDECESSORS if each.watched)
DUE = ("create", "patch", "delete")


def status_of(said: dict[str, Any]) -> JobStatus:
    """A status as the cache holds it."""
    return msgspec.convert(said, JobStatus, strict=False)


class Cluster(ControllerHarness):
    """A namespace in which `predecessor` has begun the job, and a controller whose caches show what they select."""

    def __init__(
        self,
        predecessor: Predecessor,
        *replicas: tuple[str, int],
        phase: str = "Running",
        gang: GangScheduler | None = None,
    ) -> None:
        super().__init__(gang=gang)
        for kind, index in REPLICAS:
            for resource in ("pods", "services"):
                name = f"mnist-{kind.lower()}-{index}"
                self.client.fail["get", resource, name] = status_error(NotFoundError, 404)
        for kind, index in replicas or REPLICAS:
            self.keep("pods", predecessor.pod("mnist", JOB_UID, kind, index, replica()), phase)
            self.keep("services", predecessor.service("mnist", JOB_UID, kind, index))
            if predecessor.watched:
                for resource in ("pods", "services"):
                    self.show(resource, f"mnist-{kind.lower()}-{index}")

    def keep(self, resource: str, body: dict[str, Any], phase: str = "") -> None:
        """Put an object on the API server."""
        name = body["metadata"]["name"]
        meta = body["metadata"] | {"namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "5"}
        status: dict[str, Any] = {"phase": phase}
        if phase == "Succeeded":
            ended = {"terminated": {"exitCode": 0}}
            status["containerStatuses"] = [{"name": "tensorflow", "state": ended}]
        self.client.objects[resource, name] = body | {"metadata": meta, "status": status if phase else {}}
        self.client.fail.pop(("get", resource, name), None)

    def show(self, resource: str, name: str) -> None:
        """Let the cache see an object, with the labels and the selector that were patched into it."""
        body = self.client.objects[resource, name]
        patch = self.client.bodies.get(("patch", resource, name), {})
        body["metadata"]["labels"] |= patch.get("metadata", {}).get("labels", {})
        selector = body["spec"].get("selector", {}) | patch.get("spec", {}).get("selector", {})
        if resource == "services":
            body["spec"]["selector"] = {key: value for key, value in selector.items() if value is not None}
        (self.pods if resource == "pods" else self.services).put(
            msgspec.convert(body, Pod if resource == "pods" else Service, strict=False)
        )

    def show_all(self) -> None:
        """Let the caches see everything."""
        for resource, name in list(self.client.objects):
            if resource in {"pods", "services"}:
                self.show(resource, name)

    async def settle(self) -> list[tuple[str, str, str]]:
        """Sync until nothing waits in a window, and return what was changed."""
        await self.sync()
        await asyncio.sleep(COUNTER_WINDOW_S)
        await self.sync()
        return self.done()

    def done(self) -> list[tuple[str, str, str]]:
        """What was changed since the last call: no reads."""
        return [each for each in self.taken() if each[0].split()[0] in DUE]


@pytest.mark.parametrize("predecessor", HIDDEN, ids=str)
async def test_what_another_operator_made_is_labelled_and_goes_on(predecessor: Predecessor) -> None:
    """B13: with its UID, pods before services; nothing is made again, and a service selects by our labels alone.

    Invariant: "A patch of another operator's child carries the UID of that child"
    """
    world = Cluster(predecessor)
    await world.sync(job(SPEC, status=status_of(predecessor.running("ns", "mnist", Worker=2, PS=1))))
    assert world.done() == [("patch", kind, name) for kind in ("pods", "services") for name in NAMES]
    for kind in ("pods", "services"):
        assert {world.client.bodies["patch", kind, name]["metadata"]["uid"] for name in NAMES} == {
            f"uid-{name}" for name in NAMES
        }
    world.show_all()
    (service,) = [each for each in world.services.indexer.list() if each.metadata.name == NAMES[0]]
    assert service.spec is None  # it selects by its labels
    assert await world.settle() == [STATUS]
    status = world.client.bodies[STATUS][1]["value"]
    assert status["replicaStatuses"]["Worker"] == {"active": 2, "succeeded": 0, "failed": 0}
    assert status["begun"].keys() == {"replicas", "madeOf"}
    assert status["begun"]["replicas"] == {"PS": 1, "Worker": 2}
    assert world.recorder.events == [
        (
            "Normal",
            "SuccessfulAdopt",
            "Adopted 3 pods and 3 services created by another operator",
        )
    ]
    world.observe_status()
    await world.sync()
    assert world.taken() == []


async def test_what_the_caches_show_costs_no_call() -> None:
    """training-operator sets the newer labels alone, which are sufficient."""
    world = Cluster(WATCHED)
    world.jobs.put(job(SPEC, status=status_of(WATCHED.running("ns", "mnist", Worker=2, PS=1))))
    assert await world.settle() == [STATUS]
    assert world.recorder.events == []


async def test_what_is_missing_is_made_and_what_has_ended_is_not() -> None:
    """A worker that is done, one whose pod is gone, and a parameter server that was never made."""
    world = Cluster(OF_OLD, ("Worker", 0), phase="Succeeded")
    spec = SPEC | {"successPolicy": "AllWorkers"}
    await world.sync(job(spec, status=status_of(OF_OLD.running("ns", "mnist", Worker=1))))
    world.show_all()
    world.taken()
    await world.sync()
    assert sorted(each for each in world.done() if each[0] == "create") == [
        ("create", kind, name) for kind in ("pods", "services") for name in ("mnist-ps-0", "mnist-worker-1")
    ]
    assert world.client.bodies[STATUS][1]["value"]["finishedIndices"] == {"Worker": "0"}


async def test_a_job_without_children_begins_as_any_other() -> None:
    """The other operator wrote a Created condition and nothing else."""
    world = Cluster(OF_OLD)
    world.client.objects.clear()
    world.client.fail = {
        ("get", kind, name): status_error(NotFoundError, 404) for kind in ("pods", "services") for name in NAMES
    }
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "2"}}
    await world.sync(job(SPEC, status=status_of(OF_OLD.created("mnist"))))
    assert len([each for each in world.done() if each[0] == "create"]) == 6


CALLS = [(verb, kind, name) for kind in ("pods", "services") for name in NAMES for verb in ("get", "patch")]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
async def test_a_call_that_fails_is_made_again_and_nothing_is_planned_before(call: tuple[str, str, str]) -> None:
    """At whichever call: as if the operator had been killed there. No label is given twice, and no child made again."""
    world = Cluster(OF_OLD)
    world.jobs.put(job(SPEC, status=status_of(OF_OLD.running("ns", "mnist", Worker=2, PS=1))))
    world.client.fail[call] = status_error(ForbiddenError, 403)
    with pytest.raises(ForbiddenError):
        await world.sync()
    first = world.done()
    assert STATUS not in first
    del world.client.fail[call]
    for _, kind, name in first:
        if ("patch", kind, name) != call:
            world.show(kind, name)
    assert world.expectations.satisfied(OWNER)
    await world.sync()
    world.show_all()
    second = world.done()
    patched = [each for each in (*first, *second) if each != call]
    assert sorted({*patched, ("patch", *call[1:])}) == sorted(
        ("patch", kind, name) for kind in ("pods", "services") for name in NAMES
    )
    assert len(patched) == len(set(patched))
    assert await world.settle() == [STATUS]


async def test_nothing_is_planned_before_the_caches_show_what_was_labelled() -> None:
    """In a view without them the job would have no pod. If no event comes, it is looked at again when expectations expire.

    Invariant: "A job that another operator began is not planned before its children are in our caches"
    """
    world = Cluster(OF_OLD)
    await world.sync(job(SPEC, status=status_of(OF_OLD.running("ns", "mnist", Worker=2, PS=1))))
    assert len(world.done()) == 6
    for _ in range(3):
        await world.sync()
    assert world.taken() == []
    wait_s = world.expectations.expires_in_s(OWNER)
    assert wait_s is not None
    assert wait_s > EXPIRY_S - 1


async def test_the_pod_of_another_owner_is_left_alone() -> None:
    """B13, D2: it has the name, and the labels of an old operator.

    Invariant: "What another object controls is left alone"
    """
    world = Cluster(OF_OLD)
    owners = world.client.objects["pods", NAMES[0]]["metadata"]["ownerReferences"]
    owners[0]["uid"] = "another"
    await world.sync(job(SPEC, status=status_of(OF_OLD.running("ns", "mnist", Worker=2, PS=1))))
    assert ("patch", "pods", NAMES[0]) not in world.done()


async def test_a_pod_that_is_replaced_meanwhile_is_told_and_tried_again() -> None:
    """The UID in the patch is not that of the new pod."""
    world = Cluster(OF_OLD)
    world.jobs.put(job(SPEC, status=status_of(OF_OLD.running("ns", "mnist", Worker=2, PS=1))))
    world.client.fail["patch", "pods", NAMES[0]] = status_error(ConflictError, 409)
    with pytest.raises(ConflictError):
        await world.sync()
    assert world.recorder.events[0][:2] == ("Warning", "FailedAdoptPod")


async def test_replicas_that_were_scaled_away_while_nobody_worked_are_found_and_go() -> None:
    """The status of the other operator counts them."""
    world = Cluster(PREDECESSORS[2])
    spec = {"tfReplicaSpecs": {"Worker": replica(1)}}
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "2"}}
    await world.sync(job(spec, status=status_of(PREDECESSORS[2].running("ns", "mnist", Worker=2, PS=1))))
    assert len(world.done()) == 6
    world.show_all()
    await world.sync()
    deleted = sorted(name for verb, kind, name in world.done() if (verb, kind) == ("delete", "pods"))
    assert deleted == ["mnist-ps-0", "mnist-worker-1"]


def test_a_status_that_counts_without_end_is_not_believed() -> None:
    """Whoever may write a status cannot make this operator look for a billion pods."""
    status = JobStatus(replica_statuses={"Worker": ReplicaStatus(active=10**9)})
    old = msgspec.structs.replace(job(SPEC), status=status)
    spec = read_spec("mnist", old.spec)
    assert isinstance(spec, TFJobSpec)
    assert len(list(unseen(old, spec, ()))) == MAX_REPLICAS + 1


@pytest.mark.parametrize("predecessor", PREDECESSORS, ids=str)
async def test_a_job_that_another_operator_ended_is_left_as_it_is(predecessor: Predecessor) -> None:
    """So are its pods, though one still runs: today's default clean-up policy was not always so. Nothing is read or written."""
    world = Cluster(predecessor)
    said = predecessor.ended("ns", "mnist", Worker=2)
    world.jobs.put(job(SPEC, status=status_of(said)))
    for _ in range(3):
        await world.sync()
    assert world.taken() == []


async def test_a_clean_up_that_the_job_itself_asks_for_is_brought_to_its_end() -> None:
    """The other operator was stopped between the end and the clean-up. The status stays its own."""
    world = Cluster(WATCHED)
    spec = SPEC | {"runPolicy": {"cleanPodPolicy": "All"}}
    await world.sync(job(spec, status=status_of(WATCHED.ended("ns", "mnist", Worker=2))))
    done = world.done()
    assert STATUS not in done
    assert sorted(name for verb, kind, name in done if (verb, kind) == ("delete", "pods")) == sorted(NAMES)


@pytest.mark.parametrize("predecessor", PREDECESSORS, ids=str)
async def test_the_time_to_live_of_a_job_that_another_operator_ended_is_kept(predecessor: Predecessor) -> None:
    """B44, B45: also where its status lacks the time of the end, as some did after a deadline."""
    for forgotten in ((), ("completionTime",)):
        world = Cluster(predecessor)
        said = predecessor.ended("ns", "mnist", Worker=2)
        status = status_of({key: value for key, value in said.items() if key not in forgotten})
        await world.sync(job(SPEC | {"ttlSecondsAfterFinished": 60}, status=status))
        assert world.taken() == [("delete", "tfjobs", "mnist")]


async def test_a_job_whose_old_status_does_not_decode_never_runs_again_if_it_has_ended() -> None:
    """B01: without a schema the Go operators wrote null for an empty map."""
    said = OF_OLD.ended("ns", "mnist") | {"replicaStatuses": None}
    body = {"metadata": {"name": "mnist", "namespace": "ns", "uid": JOB_UID}, "spec": SPEC, "status": said}
    raw = msgspec.json.encode(body)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw.replace(b'"metadata"', b'"kind":"TFJob","metadata"', 1), type=TFJob)
    world = Cluster(OF_OLD)
    await world.sync(tfjob_with_unreadable_status(raw, ValueError()))
    assert world.taken() == []


async def test_conditions_that_nobody_knows_stay() -> None:
    """Such as one of a queue, or of a future operator."""
    world = Cluster(WATCHED)
    said = WATCHED.running("ns", "mnist", Worker=2, PS=1)
    said["conditions"].insert(0, {"type": "Admitted", "status": "True", "reason": "ByAQueue"})
    await world.sync(job(SPEC, status=status_of(said)))
    conditions = world.client.bodies[STATUS][1]["value"]["conditions"]
    assert [each["type"] for each in conditions] == ["Admitted", "Created", "Running"]


async def test_what_another_operator_made_goes_when_its_job_is_suspended() -> None:
    """B74: it was suspended while no operator ran; nothing that runs is overlooked."""
    world = Cluster(OF_OLD)
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "2"}}
    spec = SPEC | {"runPolicy": {"suspend": True}}
    await world.sync(job(spec, status=status_of(OF_OLD.running("ns", "mnist", Worker=2, PS=1))))
    assert len(world.done()) == 6
    world.show_all()
    await world.sync()
    assert sorted(name for verb, kind, name in world.done() if (verb, kind) == ("delete", "pods")) == sorted(NAMES)


async def test_a_job_that_was_suspended_stays_so() -> None:
    """By Kueue, perhaps: no child is made, and the condition keeps its time."""
    world = Cluster(OF_OLD)
    for kind in ("pods", "services"):
        for name in NAMES:
            world.client.fail["get", kind, name] = status_error(NotFoundError, 404)
    said = OF_OLD.created("mnist")
    said["conditions"].append(condition("Suspended", "TFJob mnist is suspended."))
    world.jobs.put(job(SPEC | {"runPolicy": {"suspend": True}}, status=status_of(said)))
    assert await world.settle() == [STATUS]
    last = world.client.bodies[STATUS][1]["value"]["conditions"][-1]
    assert (last["type"], last["status"], last["lastTransitionTime"]) == ("Suspended", "True", STAMP)
    assert world.recorder.events == []


@pytest.mark.parametrize("phase", ["Running", "Inqueue"])
async def test_the_group_that_training_operator_made_goes_on(phase: str) -> None:
    """B66: it is found by its name, and neither resized nor made again."""
    world = Cluster(WATCHED, gang=gang_scheduler("volcano"))
    owner = OwnerReference(kind="TFJob", name="mnist", uid=JOB_UID, controller=True)
    meta = ChildMeta(name="mnist", namespace="ns", uid="group-uid", owner_references=(owner,))
    world.pod_groups.put(PodGroup(metadata=meta, spec=PodGroupSpec(min_member=3), status=PodGroupStatus(phase=phase)))
    world.jobs.put(job(SPEC, status=status_of(WATCHED.running("ns", "mnist", Worker=2, PS=1))))
    assert await world.settle() == [STATUS]


@pytest.mark.parametrize(("own", "fails"), [("Never", True), ("OnFailure", False)])
async def test_a_pod_lives_by_the_policy_that_it_was_made_with(own: str, fails: bool) -> None:
    """U15: earlier operators overrode the template's OnFailure with Never; this one follows it."""
    world = Cluster(OF_OLD)
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": template(restartPolicy="OnFailure")}}}
    for name in NAMES:
        body = world.client.objects["pods", name]
        body["spec"] = body["spec"] | {"restartPolicy": own}
    world.client.objects["pods", NAMES[2]]["status"] = {"phase": "Failed", "reason": "Evicted"}
    world.client.objects["tfjobs", "mnist"] = {"metadata": {"resourceVersion": "2"}}
    await world.sync(job(spec, status=status_of(OF_OLD.running("ns", "mnist", Worker=2))))
    world.show_all()
    await world.settle()
    conditions = {each["type"]: each["status"] for each in world.client.bodies[STATUS][1]["value"]["conditions"]}
    assert (conditions.get("Failed") == "True") is fails
    assert (conditions.get("Restarting") == "True") is not fails
