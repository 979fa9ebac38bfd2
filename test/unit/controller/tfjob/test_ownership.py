"""Who owns what: rules and calls; and jobs that another operator began, as this one finds them."""

import asyncio
from typing import Any

import msgspec
import pytest

from fakes.api import status_error
from fakes.controller import LOOK, STATUS, ControllerHarness, Parts
from fakes.jobs import JOB_UID, OWNER, good_spec, job, pod, pod_group, replica, service, spec, template
from fakes.objects import changed, labelled
from fakes.predecessors import PREDECESSORS, STAMP, Predecessor, condition
from kit.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import ApiError, ConflictError, ForbiddenError, InvalidError, NotFoundError
from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus, TFJob, tfjob_with_unreadable_status
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.controller.jobs.blocked import FIRST_DELAY_S
from tfjob_operator.controller.jobs.children import Pod, Service, index_orphans
from tfjob_operator.controller.jobs.expectations import EXPIRY_S
from tfjob_operator.controller.jobs.pending import COUNTER_WINDOW_S
from tfjob_operator.controller.tfjob.apply.ownership import Adoptions
from tfjob_operator.controller.tfjob.build.builder import gang_scheduler
from tfjob_operator.controller.tfjob.plan.replicas import claims, missing_children

OWNED = [pod("Worker", index) for index in range(3)]
ORPHANS = [changed(each, metadata__owner_references=None) for each in OWNED]
ORPHAN = ORPHANS[0]
COPY = changed(ORPHAN, metadata__name="copy", metadata__uid="2")


def claim(owned: list[Pod], *orphans: Pod) -> tuple[Pod, ...]:
    return claims("mnist", owned, orphans)


def test_an_orphan_that_matches_is_adopted() -> None:
    """RM-01, controller_ref_manager_test.go:TestClaimPods. That with the replica's name is adopted before others."""
    assert claim(OWNED[1:], ORPHAN) == claim([], ORPHAN, COPY) == claim([], COPY, ORPHAN) == (ORPHAN,)
    assert claim([], COPY) == (COPY,)


@pytest.mark.parametrize(
    "orphan",
    [
        pytest.param(labelled(ORPHAN, group_name="other.org"), id="group"),
        pytest.param(labelled(ORPHAN, group_name=""), id="no group"),
        pytest.param(labelled(ORPHAN, job_name="other"), id="job"),
        pytest.param(labelled(ORPHAN, prefixed_job_name="other"), id="prefixed job"),
        pytest.param(labelled(ORPHAN, operator_name=""), id="operator"),
        pytest.param(labelled(ORPHAN, replica_index="x"), id="index"),
        pytest.param(labelled(ORPHAN, replica_type="driver"), id="type"),
        pytest.param(changed(ORPHAN, metadata__deletion_timestamp=EPOCH), id="leaving"),
        pytest.param(changed(ORPHAN, metadata__labels=None), id="no labels"),
        pytest.param(changed(ORPHAN, metadata__name="mnist-worker-1"), id="the name of another replica"),  # U9
        pytest.param(changed(ORPHAN, status=pod("Worker", 0, "Succeeded", 0).status), id="succeeded"),
        pytest.param(changed(ORPHAN, status=pod("Worker", 0, "Failed", 1).status), id="failed"),
        pytest.param(changed(ORPHAN, status=pod("Worker", 0, "Running", 0).status), id="ended"),
    ],
)
def test_an_orphan_that_does_not_match_or_leaves_is_left_alone(orphan: Pod) -> None:
    """RM-01: all its labels must match, and it must not be terminating.

    U9: its name and its labels must not stand for different replicas. D15: how the pods of an earlier job ended is not the
    outcome of a new one.
    """
    assert claim([], orphan) == ()


@pytest.mark.parametrize(
    "child",
    [
        pytest.param(OWNED[0], id="two pods for one replica would both be counted"),
        pytest.param(labelled(OWNED[0], job_name="debug", replica_index="x"), id="other labels"),
        pytest.param(changed(OWNED[0], metadata__labels=None), id="no labels"),
    ],
)
def test_a_child_holds_its_place_though_its_labels_deny_the_job(child: Pod) -> None:
    """U9, RM-01: its name says which replica it is; no orphan is adopted in its stead."""
    assert claim([child], COPY) == ()


def test_a_service_is_adopted_under_the_name_of_its_replica_alone() -> None:
    """The job's pods look for each other under no other name."""
    named, copy = Service(ORPHAN.metadata), Service(COPY.metadata)
    assert claims("mnist", [], [copy, named]) == (named,)
    assert claims("mnist", [], [copy]) == ()


def test_children_with_one_family_of_labels_stay() -> None:
    """Other operators for TFJob set only one of the two; taking over from them must not cost a job its pods."""
    short = labelled(OWNED[0], prefixed_job_name="", prefixed_replica_type="", prefixed_replica_index="")
    prefixed = labelled(OWNED[1], job_name="", replica_type="", replica_index="", group_name="")
    owned = [changed(short, metadata__name="a"), changed(prefixed, metadata__name="b")]
    assert claim(owned, *ORPHANS) == (ORPHANS[2],), "the places of the others are held"


def test_the_index_holds_orphans_under_the_job_that_their_labels_name() -> None:
    """And nothing that has a controller, so it is empty in most clusters."""
    assert index_orphans(ORPHAN) == ("ns/mnist",)
    assert index_orphans(OWNED[0]) == index_orphans(changed(ORPHAN, metadata__labels=None)) == ()


JOB = job(spec(Worker=4))
ADOPT = ("patch", "pods", "mnist-worker-0")


class AdoptionHarness(Parts):
    """The parts of a controller; the job is confirmed."""

    def __init__(self, failure: ApiError | None = None) -> None:
        """`failure`: of the adoption of worker 0's pod."""
        super().__init__()
        self.client.fail = {} if failure is None else {ADOPT: failure}
        self.client.objects[LOOK[1:]] = {"metadata": {"name": "mnist", "resourceVersion": "1"}}

    async def adopt(self, *children: Pod | Service) -> Adoptions:
        return await self.manager.adopt(JOB, children)


async def test_an_adoption_carries_the_uid_and_a_whole_reference_after_one_look_at_the_job() -> None:
    """RM-02, RM-03, RM-04, TestGetPodsForJobAdopt.

    Invariant: "Every patch of a child specifies its UID"
    """
    world = AdoptionHarness()
    assert await world.adopt(*ORPHANS[:2], service("Worker", 0)) == (True, None)
    second = ("patch", "pods", "mnist-worker-1")
    assert world.client.actions == [LOOK, ADOPT, second, ("patch", "services", "mnist-worker-0")]
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "mnist", "uid": JOB_UID}
    owner = reference | {"controller": True, "blockOwnerDeletion": True}
    assert world.client.bodies[second] == {"metadata": {"uid": "uid-mnist-worker-1", "ownerReferences": [owner]}}


async def test_an_adoption_is_expected_until_the_cache_has_seen_it() -> None:
    """EX-04: no second sync adopts it again meanwhile.

    EX-10: a child that was deleted before the watch has shown its new owner is expected no more when a list does not show it;
    the tombstone that the list leads to names none.

    Invariant: "An adoption counts as an expected create until the cache contains the child"
    """
    world = AdoptionHarness()
    world.client.given_version = "20"
    await world.adopt(ORPHAN)
    assert not world.expectations.satisfied(OWNER)
    assert world.expectations.listed("pod", "19") == []
    assert world.expectations.listed("pod", "20") == ["ns/mnist"]
    await world.adopt(ORPHAN)
    world.expectations.creation_observed(OWNER, "pod", "mnist-worker-0")
    assert world.expectations.satisfied(OWNER)


async def test_an_orphan_that_is_gone_needs_no_adoption() -> None:
    """RM-03: 404; nothing is expected of it."""
    world = AdoptionHarness(status_error(NotFoundError, 404))
    assert await world.adopt(ORPHAN) == (False, None)
    assert world.expectations.satisfied(OWNER)


@pytest.mark.parametrize(
    ("error", "told"), [((InvalidError, 422), 1), ((ConflictError, 409), 1), ((ForbiddenError, 403), 2)]
)
async def test_an_adoption_that_fails_costs_an_event_and_is_tried_again_later(error: Any, told: int) -> None:
    """D14, RM-03, TestPatchPodFails: the others are adopted. After a 409 or 422 no event at once: another may be faster."""
    world = AdoptionHarness(status_error(*error))
    assert await world.adopt(*ORPHANS[:2]) == (True, FIRST_DELAY_S)
    assert not world.expectations.satisfied(OWNER)  # the other one was adopted, and is awaited
    world.expectations.creation_observed(OWNER, "pod", "mnist-worker-1")
    assert world.expectations.satisfied(OWNER)
    assert await world.adopt(ORPHAN) == (False, FIRST_DELAY_S), "too early"
    assert world.client.actions.count(ADOPT) == world.client.actions.count(LOOK) == 1
    world.clock.step(FIRST_DELAY_S)
    assert await world.adopt(ORPHAN) == (False, 2 * FIRST_DELAY_S)
    assert world.client.actions.count(ADOPT) == world.client.actions.count(LOOK) == 2
    assert world.recorder.reasons == ["FailedAdoptPod"] * told


async def test_an_adoption_that_succeeds_has_no_delay_left() -> None:
    """Nothing is kept of it, and another one of this child starts with the first delay."""
    world = AdoptionHarness()
    for fails in (True, False, True):
        world.client.fail = {ADOPT: status_error(ConflictError, 409)} if fails else {}
        assert await world.adopt(ORPHAN) == ((False, FIRST_DELAY_S) if fails else (True, None))
        world.clock.step(FIRST_DELAY_S)


SPEC = spec(Worker=2, PS=1)
REPLICAS = (("Worker", 0), ("Worker", 1), ("PS", 0))
NAMES = ("mnist-ps-0", "mnist-worker-0", "mnist-worker-1")
CHILDREN = [(kind, name) for kind in ("pods", "services") for name in NAMES]
PATCHES = [("patch", *child) for child in CHILDREN]
OF_OLD = PREDECESSORS[0]
HIDDEN = [each for each in PREDECESSORS if not each.watched]
WATCHED = next(each for each in PREDECESSORS if each.watched)
SUSPENDED = SPEC | {"runPolicy": {"suspend": True}}


def begun_by(predecessor: Predecessor, body: dict[str, Any] = SPEC, said: dict[str, Any] | None = None) -> TFJob:
    """A job whose status another operator wrote: that it runs, or what it `said`."""
    found = predecessor.running("ns", "mnist", Worker=2, PS=1) if said is None else said
    return job(body, status=msgspec.convert(found, JobStatus, strict=False))


class Cluster(ControllerHarness):
    """A namespace in which `predecessor` has begun the job, and a controller whose caches show what they select."""

    def __init__(
        self, predecessor: Predecessor, *replicas: tuple[str, int], phase: str = "Running", **options: Any
    ) -> None:
        super().__init__(**options)
        self.client.fail = {("get", *child): status_error(NotFoundError, 404) for child in CHILDREN}
        self.confirms()
        for kind, index in replicas or REPLICAS:
            self.keep("pods", predecessor.pod("mnist", JOB_UID, kind, index, replica()), phase)
            self.keep("services", predecessor.service("mnist", JOB_UID, kind, index))
        if predecessor.watched:
            self.show_all()

    def keep(self, resource: str, body: dict[str, Any], phase: str = "") -> None:
        """Put an object on the API server."""
        name = body["metadata"]["name"]
        meta = body["metadata"] | {"namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "5"}
        status: dict[str, Any] = {"phase": phase} if phase else {}
        if phase == "Succeeded":
            status["containerStatuses"] = [{"name": "tensorflow", "state": {"terminated": {"exitCode": 0}}}]
        self.client.objects[resource, name] = body | {"metadata": meta, "status": status}
        self.client.fail.pop(("get", resource, name), None)

    def show(self, resource: str, name: str) -> None:
        """Let the cache see an object, with the labels and the selector that were patched into it."""
        body = self.client.objects[resource, name]
        patch = self.client.bodies.get(("patch", resource, name), {})
        body["metadata"]["labels"] |= patch.get("metadata", {}).get("labels", {})
        selector = body["spec"].get("selector", {}) | patch.get("spec", {}).get("selector", {})
        if resource == "pods":
            self.pods.put(msgspec.convert(body, Pod, strict=False))
            return
        body["spec"]["selector"] = {key: value for key, value in selector.items() if value is not None}
        self.services.put(msgspec.convert(body, Service, strict=False))

    def show_all(self) -> None:
        for resource, name in list(self.client.objects):
            if resource in {"pods", "services"}:
                self.show(resource, name)

    async def ensure_labelled(self) -> list[tuple[str, str, str]]:
        """Sync until nothing waits in a window, and return what was changed."""
        await self.sync()
        await asyncio.sleep(COUNTER_WINDOW_S)
        await self.sync()
        return self.done()

    def done(self) -> list[tuple[str, str, str]]:
        """What was changed since the last call: no reads."""
        return [each for each in self.taken() if each[0] != "get"]

    async def take_over(self, tfjob: TFJob) -> list[tuple[str, str, str]]:
        """Sync the job until its children are labelled and seen, and once more; return what that changed."""
        await self.sync(tfjob)
        assert self.done() == [each for each in PATCHES if each[1:] in self.client.objects]
        self.show_all()
        await self.sync()
        return sorted(self.done())


@pytest.mark.parametrize("predecessor", HIDDEN, ids=str)
async def test_what_another_operator_made_is_labelled_and_goes_on(predecessor: Predecessor) -> None:
    """B13: with its UID, pods before services; nothing is made again, and a service selects by our labels alone.

    Invariant: "Every patch of a child specifies its UID"
    """
    world = Cluster(predecessor)
    await world.sync(begun_by(predecessor))
    assert world.done() == PATCHES
    for _, kind, name in PATCHES:
        assert world.client.bodies["patch", kind, name]["metadata"]["uid"] == f"uid-{name}"
    world.show_all()
    (service,) = [each for each in world.services.indexer.list() if each.metadata.name == NAMES[0]]
    assert service.spec is None  # it selects by its labels
    assert await world.ensure_labelled() == [STATUS]
    assert world.status["replicaStatuses"]["Worker"] == {"active": 2, "succeeded": 0, "failed": 0}
    assert world.status["begun"].keys() == {"replicas", "madeOf", "allRan"}
    assert world.status["begun"]["replicas"] == {"PS": 1, "Worker": 2}
    message = "Adopted 3 pods and 3 services created by another operator"
    assert world.recorder.events == [("Normal", "SuccessfulAdopt", message)]
    world.observe_status()
    assert await world.sync_and_take() == []


async def test_what_the_caches_show_costs_no_call() -> None:
    """training-operator sets the newer labels alone, which are sufficient."""
    world = Cluster(WATCHED)
    world.jobs.put(begun_by(WATCHED))
    assert await world.ensure_labelled() == [STATUS]
    assert world.recorder.events == []


async def test_what_is_missing_is_made_and_what_has_ended_is_not() -> None:
    """A worker that is done, one whose pod is gone, and a parameter server that was never made."""
    world = Cluster(OF_OLD, ("Worker", 0), phase="Succeeded")
    said = OF_OLD.running("ns", "mnist", Worker=1)
    changes = await world.take_over(begun_by(OF_OLD, SPEC | {"successPolicy": "AllWorkers"}, said))
    assert changes == [*(("create", *child) for child in CHILDREN if "worker-0" not in child[1]), STATUS]
    assert world.status["finishedIndices"] == {"Worker": "0"}


async def test_a_job_without_children_begins_as_any_other() -> None:
    """The other operator wrote a Created condition and nothing else."""
    world = Cluster(OF_OLD)
    world.client.fail = {("get", *child): status_error(NotFoundError, 404) for child in CHILDREN}
    await world.sync(begun_by(OF_OLD, said=OF_OLD.created("mnist")))
    assert sorted(each for each in world.done() if each[0] == "create") == [("create", *child) for child in CHILDREN]


CALLS = [(verb, *child) for child in CHILDREN for verb in ("get", "patch")]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
async def test_a_call_that_fails_is_made_again_and_nothing_is_planned_before(call: tuple[str, str, str]) -> None:
    """At whichever call: as if the operator had been killed there. No label is given twice, and no child made again."""
    world = Cluster(OF_OLD)
    world.client.fail[call] = status_error(ForbiddenError, 403)
    with pytest.raises(ForbiddenError):
        await world.sync(begun_by(OF_OLD))
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
    assert sorted({*patched, ("patch", *call[1:])}) == PATCHES
    assert len(patched) == len(set(patched))
    assert await world.ensure_labelled() == [STATUS]


async def test_nothing_is_planned_before_the_caches_show_what_was_labelled() -> None:
    """In a view without them the job would have no pod. If no event comes, it is looked at again when expectations expire.

    Invariant: "A job started by another operator is not planned before its children are in our caches"
    """
    world = Cluster(OF_OLD)
    await world.sync(begun_by(OF_OLD))
    assert world.done() == PATCHES
    for _ in range(3):
        await world.sync()
    assert world.taken() == []
    wait_s = world.expectations.expires_in_s(OWNER)
    assert wait_s is not None
    assert wait_s > EXPIRY_S - 1


async def test_the_pod_of_another_owner_is_left_alone() -> None:
    """B13, D2: it has the name, and the labels of an old operator.

    Invariant: "Objects controlled by another object are not modified"
    """
    world = Cluster(OF_OLD)
    world.client.objects["pods", NAMES[0]]["metadata"]["ownerReferences"][0]["uid"] = "another"
    await world.sync(begun_by(OF_OLD))
    assert PATCHES[0] not in world.done()


async def test_a_pod_that_is_replaced_meanwhile_is_told_and_tried_again() -> None:
    """The UID in the patch is not that of the new pod."""
    world = Cluster(OF_OLD)
    world.client.fail[PATCHES[0]] = status_error(ConflictError, 409)
    with pytest.raises(ConflictError):
        await world.sync(begun_by(OF_OLD))
    assert world.recorder.events[0][:2] == ("Warning", "FailedAdoptPod")


@pytest.mark.parametrize(
    ("body", "gone"),
    [(spec(Worker=1), ("mnist-ps-0", "mnist-worker-1")), (SUSPENDED, NAMES)],
    ids=["scaled", "suspended"],
)
async def test_what_is_to_go_is_found_and_goes(body: dict[str, Any], gone: tuple[str, ...]) -> None:
    """B74: the job was scaled down or suspended while no operator ran; nothing that runs is overlooked.

    The status of the other operator counts the replicas.
    """
    changes = await Cluster(PREDECESSORS[2]).take_over(begun_by(PREDECESSORS[2], body))
    assert [name for verb, kind, name in changes if (verb, kind) == ("delete", "pods")] == [*gone]


def test_a_status_that_counts_without_end_is_not_believed() -> None:
    """Whoever may write a status cannot make this operator look for a billion pods."""
    old = job(SPEC, status=JobStatus(replica_statuses={"Worker": ReplicaStatus(active=10**9)}))
    assert len(list(missing_children(old, good_spec(job(SPEC)), ()))) == MAX_REPLICAS + 1


@pytest.mark.parametrize("predecessor", PREDECESSORS, ids=str)
async def test_a_job_that_another_operator_ended_is_left_as_it_is(predecessor: Predecessor) -> None:
    """So are its pods, though one still runs: today's default clean-up policy was not always so. Nothing is read or written."""
    world = Cluster(predecessor)
    world.jobs.put(begun_by(predecessor, said=predecessor.ended("ns", "mnist", Worker=2)))
    for _ in range(3):
        await world.sync()
    assert world.taken() == []


async def test_a_clean_up_that_the_job_itself_asks_for_is_brought_to_its_end() -> None:
    """The other operator was stopped between the end and the clean-up. The status stays its own."""
    world = Cluster(WATCHED)
    said = WATCHED.ended("ns", "mnist", Worker=2)
    await world.sync(begun_by(WATCHED, SPEC | {"runPolicy": {"cleanPodPolicy": "All"}}, said))
    done = world.done()
    assert STATUS not in done
    assert sorted(name for verb, kind, name in done if (verb, kind) == ("delete", "pods")) == sorted(NAMES)


@pytest.mark.parametrize("predecessor", PREDECESSORS, ids=str)
async def test_the_time_to_live_of_a_job_that_another_operator_ended_is_kept(predecessor: Predecessor) -> None:
    """B44, B45: also where its status lacks the time of the end, as some did after a deadline."""
    for forgotten in ((), ("completionTime",)):
        world = Cluster(predecessor)
        ended = predecessor.ended("ns", "mnist", Worker=2)
        said = {key: value for key, value in ended.items() if key not in forgotten}
        assert await world.sync_and_take(begun_by(predecessor, SPEC | {"ttlSecondsAfterFinished": 60}, said)) == [
            ("delete", "tfjobs", "mnist")
        ]


async def test_a_job_whose_old_status_does_not_decode_never_runs_again_if_it_has_ended() -> None:
    """B01: without a schema the Go operators wrote null for an empty map."""
    said = OF_OLD.ended("ns", "mnist") | {"replicaStatuses": None}
    body = {"metadata": {"name": "mnist", "namespace": "ns", "uid": JOB_UID}, "spec": SPEC, "status": said}
    raw = msgspec.json.encode(body)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw.replace(b'"metadata"', b'"kind":"TFJob","metadata"', 1), type=TFJob)
    world = Cluster(OF_OLD)
    assert await world.sync_and_take(tfjob_with_unreadable_status(raw, ValueError())) == []


async def test_conditions_that_nobody_knows_stay() -> None:
    """Such as one of a queue, or of a future operator."""
    world = Cluster(WATCHED)
    said = WATCHED.running("ns", "mnist", Worker=2, PS=1)
    said["conditions"].insert(0, {"type": "Admitted", "status": "True", "reason": "ByAQueue"})
    await world.sync(begun_by(WATCHED, said=said))
    assert world.conditions == ["Admitted", "Created", "Running"]


async def test_a_job_that_was_suspended_stays_so() -> None:
    """By Kueue, perhaps: no child is made, and the condition keeps its time."""
    world = Cluster(OF_OLD)
    world.client.fail = {("get", *child): status_error(NotFoundError, 404) for child in CHILDREN}
    said = OF_OLD.created("mnist")
    said["conditions"].append(condition("Suspended", "TFJob mnist is suspended."))
    world.jobs.put(begun_by(OF_OLD, SUSPENDED, said))
    assert await world.ensure_labelled() == [STATUS]
    last = world.status["conditions"][-1]
    assert (last["type"], last["status"], last["lastTransitionTime"]) == ("Suspended", "True", STAMP)
    assert world.recorder.events == []


@pytest.mark.parametrize("phase", ["Running", "Inqueue"])
async def test_the_group_that_training_operator_made_goes_on(phase: str) -> None:
    """B66: it is found by its name, and neither resized nor made again."""
    world = Cluster(WATCHED, gang=gang_scheduler("volcano"))
    world.pod_groups.put(pod_group(phase, 3))
    world.jobs.put(begun_by(WATCHED))
    assert await world.ensure_labelled() == [STATUS]


@pytest.mark.parametrize(("own", "fails"), [("Never", True), ("OnFailure", False)])
async def test_a_pod_lives_by_the_policy_that_it_was_made_with(own: str, fails: bool) -> None:
    """U15: earlier operators overrode the template's OnFailure with Never; this one follows it."""
    world = Cluster(OF_OLD)
    for name in NAMES:
        world.client.objects["pods", name]["spec"] |= {"restartPolicy": own}
    world.client.objects["pods", NAMES[2]]["status"] = {"phase": "Failed", "reason": "Evicted"}
    body = spec(Worker={"replicas": 2, "template": template(restartPolicy="OnFailure")})
    await world.sync(begun_by(OF_OLD, body, OF_OLD.running("ns", "mnist", Worker=2)))
    world.show_all()
    await world.ensure_labelled()
    true = {each["type"] for each in world.status["conditions"] if each["status"] == "True"}
    assert ("Failed" in true, "Restarting" in true) == (fails, not fails)
