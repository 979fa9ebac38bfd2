"""What is remembered of jobs, of children that could not be created, and of growing delays: as little as possible."""

import gc
import time
import tracemalloc
from contextlib import nullcontext
from typing import Any

import pytest

from fakes.api import status_error
from fakes.controller import CREATE_POD, STATUS, ControllerHarness, Parts
from fakes.jobs import OWNER, job, pod, replica, spec
from fakes.objects import changed, edited
from kit.virtual_loop import FakeClock
from simulation.scenarios.memory import remembered
from tfjob_operator.api.client.errors import ForbiddenError, NamespaceTerminatingError, StatusError
from tfjob_operator.api.meta import ObjectMeta, meta_key, owner_uid_key
from tfjob_operator.api.v1.types import JobCondition, JobStatus, TFJob
from tfjob_operator.controller.jobs.blocked import (
    DELAY_RESET_S,
    FIRST_DELAY_S,
    LONGEST_DELAY_S,
    BlockedChildren,
    Delays,
)
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.plan.types import Plan, PodDeletion, without_blocked
from tfjob_operator.workqueue import ItemExponentialFailureRateLimiter

META = ObjectMeta(name="mnist", namespace="ns", uid="uid-1")
AGAIN = changed(META, uid="uid-2")
EDITED = changed(META, generation=1)
PS = ReplicaKey.of("mnist", "PS", 0)
WORKERS = tuple(ReplicaKey.of("mnist", "Worker", index) for index in range(3))
PLAN = Plan(create_services=(PS, *WORKERS), create_pods=(PS, *WORKERS))
NAMES = [slot.name for slot in PLAN.create_pods]


@pytest.fixture
def world() -> Parts:
    return Parts()


def names(blocked: BlockedChildren, job: ObjectMeta = META) -> list[str]:
    """Return the names of the replicas for which something is created."""
    plan = without_blocked(PLAN, blocked.of(job))
    assert plan.create_services == plan.create_pods
    return [slot.name for slot in plan.create_pods]


def test_a_replica_that_was_refused_waits_longer_each_time_and_the_others_do_not(world: Parts) -> None:
    """U2: doubled from a second, as all delays."""
    for wait_s in (FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S):
        assert sorted(names(world.blocked)) == sorted(NAMES)
        world.blocked.failed(META, "mnist-worker-1")
        assert world.blocked.next_due_in_s(META) == pytest.approx(wait_s)
        world.clock.step(wait_s - 0.01)
        assert names(world.blocked) == [name for name in NAMES if name != "mnist-worker-1"]
        world.clock.step(0.02)
        assert world.blocked.next_due_in_s(META) is None


def test_a_replica_whose_pods_the_kubelet_rejects_waits_longer_each_time(world: Parts) -> None:
    """Nothing of such a pod runs: without a delay seven a second were made, whose events hid those of the whole namespace.

    The pod stays meanwhile, since it says why; a suspension takes it at once. Neither the pod that is created nor the one that
    goes lets the delays start over; an edit does.
    """
    replacing, taking = (Plan(delete_pods=(PodDeletion(pod("Worker", 1), restarts=again),)) for again in (True, False))
    for wait_s in (FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S):
        assert without_blocked(replacing, world.blocked.of(META)) == replacing
        world.blocked.rejected(META, "mnist-worker-1")
        world.blocked.freed("ns", "mnist-worker-1")
        world.blocked.created(META, "mnist-worker-1")
        assert world.blocked.next_due_in_s(META) == pytest.approx(wait_s)
        assert without_blocked(replacing, world.blocked.of(META)) == Plan(
            requeue_after_s=world.blocked.next_due_in_s(META)
        )
        assert without_blocked(taking, world.blocked.of(META)) == taking
        world.clock.step(wait_s + 0.01)
        assert world.blocked.next_due_in_s(META) is None
    world.blocked.rejected(META, "mnist-worker-1")
    world.blocked.failed(META, "mnist-worker-0")
    world.blocked.created(META, "mnist-worker-0")  # another one
    assert world.blocked.of(META).rejected_by_kubelet == {"mnist-worker-1"}
    assert not world.blocked.of(EDITED).rejected_by_kubelet


def test_types_of_which_nothing_was_refused_come_first(world: Parts) -> None:
    """U2: a policy that refuses parameter servers ends the batch; it must not delay the workers."""
    world.blocked.failed(META, "mnist-ps-0")
    world.clock.step(FIRST_DELAY_S)
    assert names(world.blocked)[-1] == "mnist-ps-0"


def test_a_name_that_becomes_free_is_taken_at_once(world: Parts) -> None:
    """B12, U2: nobody waits for a minute for a name whose holder was seen to go, whoever it belonged to."""
    blocked = world.blocked
    for _ in range(8):
        blocked.failed(META, "mnist-worker-0")
    assert blocked.freed("ns", "mnist-worker-1") == blocked.freed("other", "mnist-worker-0") == []
    assert "mnist-worker-0" not in names(blocked)
    assert blocked.freed("ns", "mnist-worker-0") == ["ns/mnist"]
    assert "mnist-worker-0" in names(blocked)
    blocked.failed(META, "mnist-worker-0")
    assert blocked.next_due_in_s(META) == pytest.approx(FIRST_DELAY_S)
    blocked.failed(META, "mnist")  # the Service of all, or the PodGroup
    assert blocked.freed("ns", "mnist") == ["ns/mnist"]


def test_an_edit_is_tried_at_once(world: Parts) -> None:
    """Whoever corrects a template does not wait for five minutes, which the old one had earned."""
    for _ in range(8):
        world.blocked.failed(META, "mnist-worker-0")
    assert "mnist-worker-0" in names(world.blocked, EDITED)
    world.blocked.failed(EDITED, "mnist-worker-0")
    assert "mnist-worker-0" not in names(world.blocked, EDITED)
    assert world.blocked.next_due_in_s(EDITED) == pytest.approx(FIRST_DELAY_S)


def test_the_same_news_of_each_child_is_reported_once(world: Parts) -> None:
    """U2: it used to be reported 13 times in 30 s."""
    news = (("mnist-worker-0", "it is web's"), ("mnist-worker-1", "it is web's"), ("mnist-worker-0", "it is mail's"))
    assert [world.blocked.notes_failure(META, *each) for each in (*news, news[-1])] == [True, True, True, False]


def test_nothing_is_kept_of_what_is_created_or_gone() -> None:
    """U2: memory is bounded by the replicas that wait; a job made again under the name starts afresh.

    The deletion of a job is no news to what has no record of it, so it is dropped when all its children are created.
    """
    limiter = ItemExponentialFailureRateLimiter()
    blocked = BlockedChildren(FakeClock(), Delays(FakeClock(), limiter))
    for name in ("mnist-worker-0", "mnist-worker-1"):
        blocked.failed(META, name)
        blocked.notes_failure(META, name, "taken")
    blocked.created(META, "mnist-worker-0")
    assert "mnist-worker-0" in names(blocked)
    assert blocked.notes_failure(META, "mnist-worker-0", "taken")
    for index in (0, 1):
        blocked.created(META, f"mnist-worker-{index}")
    assert not remembered(blocked, {META.uid})
    blocked.failed(META, "mnist-worker-1")
    blocked.failed(AGAIN, "mnist-worker-2")
    assert "mnist-worker-1" in names(blocked, AGAIN)
    blocked.forget(META)  # the earlier job of this name; the event of its deletion may come late
    assert "mnist-worker-2" not in names(blocked, AGAIN)
    blocked.forget(AGAIN)
    assert not remembered(blocked, {META.uid, AGAIN.uid})
    assert all(not limiter.num_requeues((owner_uid_key(meta), slot.name)) for meta in (META, AGAIN) for slot in WORKERS)
    assert names(blocked, AGAIN) == NAMES


def test_a_plan_without_a_child_that_waits_is_made_again_when_its_wait_is_over(world: Parts) -> None:
    """U2: the wait may end while the plan is executed, and then nothing else would wake the job."""
    world.blocked.failed(META, "mnist-worker-1")
    due = world.blocked.of(META)
    assert without_blocked(PLAN, due).requeue_after_s == due.next_due_in_s == pytest.approx(FIRST_DELAY_S)
    assert without_blocked(PLAN.requeued_within(0.25), due).requeue_after_s == 0.25
    assert without_blocked(Plan(create_pods=WORKERS[:1]), due).requeue_after_s is None


def test_the_delays_of_what_is_tried_grow_and_are_forgiven() -> None:
    """U9, D14: whoever edits a label again and again costs one patch in five minutes; one edit a month is mended at once."""
    clock = FakeClock()
    delays, waits = Delays(clock), list[float]()
    for _ in range(12):
        assert delays.wait_s(OWNER, "this") == 0
        waits.append(delays.tried(OWNER, "this"))
        assert (delays.wait_s(OWNER, "this"), delays.wait_s(OWNER, "that")) == (waits[-1], 0)
        clock.step(waits[-1])
    assert waits == [min(FIRST_DELAY_S * 2**failures, LONGEST_DELAY_S) for failures in range(12)]
    clock.step(DELAY_RESET_S + 1)
    assert delays.tried(OWNER, "this") == FIRST_DELAY_S
    delays.forget(OWNER)
    assert delays.wait_s(OWNER, "this") == 0


def test_a_try_costs_the_same_however_much_else_waits() -> None:
    """D14: ten thousand orphans that are refused took seconds; what is not tried any more is dropped all the same."""
    clock = FakeClock()
    delays = Delays(clock)
    before = time.process_time()
    for number in range(20_000):
        delays.tried(OWNER, f"orphan-{number}")
    assert time.process_time() - before < 1.0
    clock.step(FIRST_DELAY_S + DELAY_RESET_S + 1)
    delays.tried(OWNER, "the last")
    assert [*delays._due[OWNER]] == ["the last"]


JOBS = 100


def large_spec() -> dict[str, Any]:
    """A specification of 5 KB, which is 30 KB when it is decoded. Its job wants no replica, so nothing is created for it."""
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 20} for number in range(40)]
    container = {"name": "tensorflow", "image": "registry.example.com/team/mnist:2.15.0", "env": env}
    none = replica(0, template={"spec": {"containers": [container]}})
    return spec(Worker=none, PS=none)


async def bytes_kept(world: ControllerHarness, jobs: list[TFJob]) -> float:
    """The bytes that the controller keeps for each of these jobs once it has synced them."""
    for each in jobs:
        world.jobs.put(each)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for each in jobs:
            await world.controller.sync(meta_key(each.metadata))
            world.taken()
            world.client.bodies.clear()
            world.recorder.events.clear()
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / len(jobs)
    finally:
        tracemalloc.stop()


ENDED = JobStatus(conditions=(JobCondition("Succeeded", "True"),))


@pytest.mark.parametrize(("status", "most"), [(None, 3000), (ENDED, 1500)])
async def test_no_decoded_template_is_kept(status: JobStatus | None, most: int) -> None:
    """D17: beside the cache a running job costs less than the size of its specification; decoded templates were 31 KB.

    No specification is kept for a finished job; its clean-up decodes it again.
    """
    jobs = [job(large_spec(), name=f"job-{number}", uid=f"uid-{number}", status=status) for number in range(JOBS)]
    assert len(jobs[0].spec) > 4500
    assert await bytes_kept(ControllerHarness(), jobs) < most


async def test_a_job_that_has_ended_is_still_known_as_ours() -> None:
    """D17: its deletion is counted, and an edit of its clean-up policy takes effect, after its specification was dropped."""
    world, delete = ControllerHarness(), ("delete", "tfjobs", "mnist")
    given = large_spec() | {"runPolicy": {"ttlSecondsAfterFinished": 100}}
    first = job(given, status=changed(ENDED, completion_time=world.clock.now()))
    await world.sync(first)
    assert delete not in world.taken()
    edit = edited(first, given | {"runPolicy": {"ttlSecondsAfterFinished": 0}}, metadata__resource_version="2")
    world.expectations.expect_deletions(OWNER, "pod", ["uid-mnist-worker-0"])
    await world.sync(edit)
    assert delete not in world.taken(), "an expectation is not met"
    world.expectations.forget(OWNER)
    await world.sync(edit)
    assert delete in world.taken()


@pytest.mark.parametrize(
    ("action", "error"),
    [
        pytest.param(STATUS, None, id="PrunedStatus"),
        pytest.param(CREATE_POD, NamespaceTerminatingError, id="Expectations"),
        pytest.param(CREATE_POD, ForbiddenError, id="BlockedChildren, Delays"),
    ],
)
async def test_a_job_that_is_deleted_during_its_own_sync_is_forgotten(
    action: tuple[str, str, str], error: type[StatusError] | None
) -> None:
    """EX-08: the deletion is handled before the sync writes down what becomes of its last request."""
    tfjob = job(spec(Worker=1), uid="uid-of-the-dead")
    world = ControllerHarness(tfjob)
    world.client.drops = frozenset({"startTime"})
    world.confirms()
    if error is not None:
        world.client.fail[action] = status_error(error, 403)

    def delete(now: tuple[str, str, str]) -> None:
        if now == action:
            world.jobs.remove(tfjob)

    world.client.before = delete
    with pytest.raises(ForbiddenError) if error is ForbiddenError else nullcontext():
        await world.sync()
    assert action in world.taken()
    world.queue.shut_down()  # the key is taken out of it by a sync that finds no job
    assert not remembered(world.controller, {"uid-of-the-dead"})
