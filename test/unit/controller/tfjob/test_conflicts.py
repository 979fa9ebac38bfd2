"""What is remembered of children that could not be created, and growing delays."""

from __future__ import annotations

import time

import pytest

from fakes.jobs import OWNER
from fakes.virtual_loop import FakeClock
from simulation.scenarios.memory import remembered
from tfjob_operator.api.meta import ObjectMeta, owner_uid_key
from tfjob_operator.controller.jobs.children import ChildMeta, Pod, ReplicaKey
from tfjob_operator.controller.tfjob.apply.conflicts import (
    FIRST_DELAY_S,
    FORGIVEN_S,
    LONGEST_DELAY_S,
    REPEAT_AFTER_S,
    BlockedChildren,
    Delays,
)
from tfjob_operator.controller.tfjob.plan.actions import Plan, PodDeletion
from tfjob_operator.controller.tfjob.plan.plan import without_blocked
from tfjob_operator.workqueue import ItemExponentialFailureRateLimiter

META = ObjectMeta(name="mnist", namespace="ns", uid="uid-1")
AGAIN = ObjectMeta(name="mnist", namespace="ns", uid="uid-2")
PS = ReplicaKey("PS", 0, "mnist-ps-0")
WORKERS = tuple(ReplicaKey("Worker", index, f"mnist-worker-{index}") for index in range(3))
PLAN = Plan(create_services=(PS, *WORKERS), create_pods=(PS, *WORKERS))


def names(plan: Plan) -> list[str]:
    """Return the names of the replicas for which something is to be created."""
    assert plan.create_services == plan.create_pods
    return [slot.name for slot in plan.create_pods]


def test_a_replica_that_was_refused_waits_longer_each_time_and_the_others_do_not() -> None:
    """U2: doubled from a second to five minutes."""
    clock = FakeClock()
    blocked = BlockedChildren(clock, Delays(clock))
    waits = []
    for _ in range(12):
        blocked.refused(META, "mnist-worker-1")
        wait = blocked.next_due_in_s(META)
        assert wait is not None
        waits.append(wait)
        clock.step(wait - 0.01)
        assert "mnist-worker-1" not in names(without_blocked(PLAN, blocked.of(META)))
        clock.step(0.02)
        assert sorted(names(without_blocked(PLAN, blocked.of(META)))) == sorted(names(PLAN))
        assert blocked.next_due_in_s(META) is None
    assert waits == pytest.approx([min(FIRST_DELAY_S * 2**failures, LONGEST_DELAY_S) for failures in range(12)])
    assert waits[-1] == pytest.approx(LONGEST_DELAY_S)


def test_a_replica_whose_pods_the_kubelet_rejects_waits_longer_each_time() -> None:
    """Nothing of such a pod runs: without a delay seven a second were made, whose events hid those of the whole namespace.

    The pod stays meanwhile, since it says why; a suspension takes it at once. Neither the pod that is created nor the one that
    goes lets the delays start over; an edit does.
    """
    pod = Pod(metadata=ChildMeta(name="mnist-worker-1", namespace="ns", uid="pod-uid"))
    replacing, taking = Plan(delete_pods=(PodDeletion(pod, restarts=True),)), Plan(delete_pods=(PodDeletion(pod),))
    clock = FakeClock()
    blocked = BlockedChildren(clock, Delays(clock))
    waits = []
    for _ in range(12):
        assert without_blocked(replacing, blocked.of(META)) == replacing
        blocked.rejected(META, "mnist-worker-1")
        blocked.freed("ns", "mnist-worker-1")
        blocked.created(META, "mnist-worker-1")
        wait = blocked.next_due_in_s(META)
        assert wait is not None
        waits.append(wait)
        assert without_blocked(replacing, blocked.of(META)) == Plan(requeue_after_s=wait)
        assert without_blocked(taking, blocked.of(META)) == taking
        clock.step(wait + 0.01)
        assert blocked.next_due_in_s(META) is None
    assert waits == pytest.approx([min(FIRST_DELAY_S * 2**failures, LONGEST_DELAY_S) for failures in range(12)])
    blocked.rejected(META, "mnist-worker-1")
    assert not blocked.of(ObjectMeta(name="mnist", namespace="ns", uid="uid-1", generation=1)).rejected


def test_types_of_which_nothing_was_refused_come_first() -> None:
    """U2: a policy that refuses parameter servers ends the batch; it must not delay the workers."""
    clock = FakeClock()
    blocked = BlockedChildren(clock, Delays(clock))
    blocked.refused(META, "mnist-ps-0")
    clock.step(FIRST_DELAY_S)
    assert names(without_blocked(PLAN, blocked.of(META)))[-1] == "mnist-ps-0"


def test_a_name_that_becomes_free_is_taken_at_once() -> None:
    """B12, U2: nobody waits for a minute for a name whose holder was seen to go, whoever it belonged to."""
    blocked = BlockedChildren(FakeClock(), Delays(FakeClock()))
    for _ in range(8):
        blocked.refused(META, "mnist-worker-0")
    assert blocked.freed("ns", "mnist-worker-1") == blocked.freed("other", "mnist-worker-0") == []
    assert "mnist-worker-0" not in names(without_blocked(PLAN, blocked.of(META)))
    assert blocked.freed("ns", "mnist-worker-0") == ["ns/mnist"]
    assert "mnist-worker-0" in names(without_blocked(PLAN, blocked.of(META)))
    blocked.refused(META, "mnist-worker-0")
    assert blocked.next_due_in_s(META) == pytest.approx(FIRST_DELAY_S)
    blocked.refused(META, "mnist")  # the Service of all, or the PodGroup
    assert blocked.freed("ns", "mnist") == ["ns/mnist"]


def test_an_edit_is_tried_at_once() -> None:
    """Whoever corrects a template does not wait for five minutes, which the old one had earned."""
    blocked = BlockedChildren(FakeClock(), Delays(FakeClock()))
    edited = ObjectMeta(name="mnist", namespace="ns", uid="uid-1", generation=1)
    for _ in range(8):
        blocked.refused(META, "mnist-worker-0")
    assert "mnist-worker-0" in names(without_blocked(PLAN, blocked.of(edited)))
    blocked.refused(edited, "mnist-worker-0")
    assert "mnist-worker-0" not in names(without_blocked(PLAN, blocked.of(edited)))
    assert blocked.next_due_in_s(edited) == pytest.approx(FIRST_DELAY_S)


def test_a_rejected_replica_still_waits_when_another_that_was_refused_is_created() -> None:
    blocked = BlockedChildren(FakeClock(), Delays(FakeClock()))
    blocked.rejected(META, "mnist-worker-1")
    blocked.refused(META, "mnist-worker-0")
    blocked.created(META, "mnist-worker-0")
    assert blocked.of(META).rejected == {"mnist-worker-1"}


def test_the_same_news_of_a_child_is_reported_once_in_ten_minutes() -> None:
    """U2: it used to be reported 13 times in 30 s."""
    clock = FakeClock()
    blocked = BlockedChildren(clock, Delays(clock))
    assert blocked.should_warn(META, "mnist-worker-0", "it is web's")
    assert blocked.should_warn(META, "mnist-worker-1", "it is web's")
    clock.step(REPEAT_AFTER_S - 1)
    assert not blocked.should_warn(META, "mnist-worker-0", "it is web's")
    assert blocked.should_warn(META, "mnist-worker-0", "it is mail's")
    assert not blocked.should_warn(META, "mnist-worker-0", "it is mail's")
    clock.step(REPEAT_AFTER_S)
    assert blocked.should_warn(META, "mnist-worker-0", "it is mail's")


def test_nothing_is_kept_of_what_is_created_or_gone() -> None:
    """U2: memory is bounded by the replicas that wait; a job made again under the name starts afresh."""
    limiter = ItemExponentialFailureRateLimiter()
    blocked = BlockedChildren(FakeClock(), Delays(FakeClock(), limiter))
    for name in ("mnist-worker-0", "mnist-worker-1"):
        blocked.refused(META, name)
        blocked.should_warn(META, name, "taken")
    blocked.created(META, "mnist-worker-0")
    assert "mnist-worker-0" in names(without_blocked(PLAN, blocked.of(META)))
    assert blocked.should_warn(META, "mnist-worker-0", "taken")
    blocked.refused(AGAIN, "mnist-worker-2")
    assert "mnist-worker-1" in names(without_blocked(PLAN, blocked.of(AGAIN)))
    blocked.forget(META)  # the earlier job of this name; the event of its deletion may come late
    assert "mnist-worker-2" not in names(without_blocked(PLAN, blocked.of(AGAIN)))
    blocked.forget(AGAIN)
    assert not remembered(blocked, {META.uid, AGAIN.uid})
    assert all(not limiter.num_requeues((owner_uid_key(meta), slot.name)) for meta in (META, AGAIN) for slot in WORKERS)
    assert names(without_blocked(PLAN, blocked.of(AGAIN))) == names(PLAN)


def test_nothing_is_kept_of_a_job_whose_children_are_all_created() -> None:
    """Its deletion is no news to what has no record of it, so nothing else would be dropped then."""
    blocked = BlockedChildren(FakeClock(), Delays(FakeClock()))
    blocked.refused(META, "mnist-worker-0")
    assert blocked.should_warn(META, "mnist-worker-0", "taken")
    blocked.created(META, "mnist-worker-0")
    assert not remembered(blocked, {META.uid})


def test_a_plan_without_a_child_that_waits_is_made_again_when_its_wait_is_over() -> None:
    """U2: the wait may end while the plan is executed, and then nothing else would wake the job."""
    clock = FakeClock()
    blocked = BlockedChildren(clock, Delays(clock))
    blocked.refused(META, "mnist-worker-1")
    due = blocked.of(META)
    assert without_blocked(PLAN, due).requeue_after_s == due.next_due_in_s == pytest.approx(FIRST_DELAY_S)
    sooner = PLAN.requeued_within(0.25)
    assert without_blocked(sooner, due).requeue_after_s == 0.25
    assert without_blocked(Plan(create_pods=WORKERS[:1]), due).requeue_after_s is None


async def test_the_delays_of_what_is_tried_grow_and_are_forgiven() -> None:
    """U9, D14: whoever edits a label again and again costs one patch in five minutes; one edit a month is mended at once."""
    clock = FakeClock()
    delays = Delays(clock)
    waits = []
    for _ in range(12):
        assert delays.wait_s(OWNER, "this") == 0
        waits.append(delays.tried(OWNER, "this"))
        assert delays.wait_s(OWNER, "that") == 0
        assert delays.wait_s(OWNER, "this") == waits[-1]
        clock.step(waits[-1])
    assert waits[:3] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert waits[-1] == LONGEST_DELAY_S
    clock.step(FORGIVEN_S + 1)
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
    clock.step(FIRST_DELAY_S + FORGIVEN_S + 1)
    delays.tried(OWNER, "the last")
    assert [*delays._due[OWNER]] == ["the last"]
