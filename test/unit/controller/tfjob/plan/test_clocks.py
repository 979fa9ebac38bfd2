"""Waits while the clocks of operators, API server and nodes differ by up to an hour."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from fakes.jobs import (
    PlannedJob,
    at,
    decide,
    good_spec,
    job,
    planned,
    pod,
    replica,
    spec,
    started,
    synced,
    true_of,
    with_sidecar,
)
from fakes.objects import changed, labelled
from support.cases import for_each
from tfjob_operator.api.v1.constants import LABEL_QUEUE
from tfjob_operator.api.v1.types import AvoidedNode, ConditionPattern, TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.plan.clocks import Fact, Observer
from tfjob_operator.controller.tfjob.plan.placement import Nodes, NodeState, Since
from tfjob_operator.controller.tfjob.plan.types import Plan

SKEWS_S: Final = (-3600, -1, 0, 1, 3600)
"""By how much another machine's clock is ahead of ours."""
BUSY: Final = pod("Worker", 0)


class Process(PlannedJob):
    """An operator that keeps what it has seen from one plan to the next."""

    def __init__(self, found: TFJob) -> None:
        super().__init__(found, {})

    def acts_after_s(self, is_due: Callable[[Plan], object], *pods: Pod, at_s: float = 60, **more: Any) -> float:
        """Return after how many seconds, by its own clock, a plan acts, woken by nothing but the requests of its plans."""
        now = at_s
        while True:
            found = self.sync(*pods, at_s=now, **more)
            if is_due(found):
                return now - at_s
            assert found.requeue_after_s is not None
            assert found.requeue_after_s > 0
            now += found.requeue_after_s


def has_ended(found: Plan) -> bool:
    return found.status is not None and found.status.completion_time is not None


def restarts_all(found: Plan) -> bool:
    return found.status is not None and found.status.attempt > 0


def created(found: Pod, at_s: float) -> Pod:
    return changed(found, metadata__creation_timestamp=at(at_s))


# Times of the API server and of nodes.


@for_each("skew_s", SKEWS_S)
def test_a_success_waits_for_workers_whatever_the_clock_of_its_node(skew_s: float) -> None:
    """A node an hour ahead delayed Succeeded by 3,700 s instead of 100 s; one behind took the whole time away."""
    given = spec(Worker=2, runPolicy={"completionGracePeriodSeconds": 100})
    process = Process(started(given, BUSY, pod("Worker", 1)))
    done = pod("Worker", 0, "Succeeded", 0, ended_s=60 + skew_s)
    assert process.acts_after_s(has_ended, done, pod("Worker", 1)) == 101


def test_another_success_has_the_whole_time_again() -> None:
    """An edit of the success policy lets another replica decide."""
    given = spec(Worker=2, runPolicy={"completionGracePeriodSeconds": 100})
    process = Process(started(given, BUSY, pod("Worker", 1)))
    assert process.sync(pod("Worker", 0, "Succeeded", 0, ended_s=60), pod("Worker", 1), at_s=60).requeue_after_s == 101
    later = process.sync(pod("Worker", 0, "Succeeded", 0, ended_s=70), pod("Worker", 1), at_s=80)
    assert later.requeue_after_s == 101


def sick(seen_s: float, skew_s: float) -> Nodes:
    """A node that is sick and not ready, as this process saw it then."""
    kinds = (ConditionPattern("Sick", "True"), ConditionPattern("Ready", "False"))
    return Nodes({"n0": NodeState({kind: Since(seen_s, at(seen_s + skew_s)) for kind in kinds}, {})})


@for_each("skew_s", SKEWS_S)
def test_a_sick_node_is_sick_after_half_a_minute_whatever_its_clock(skew_s: float) -> None:
    """Both the time of the condition and the start of the pod are by the clock of the node."""
    rule = {"action": "RestartAll", "onNodes": {"conditions": [{"type": "Sick"}]}}
    given = {
        "tfReplicaSpecs": {"Worker": replica(1)},
        "runPolicy": {"failurePolicy": {"rules": [rule], "maxRestarts": 1}},
    }
    on = created(changed(BUSY, node="n0", started=at(skew_s)), skew_s)
    assert Process(started(given, on)).acts_after_s(restarts_all, on, nodes=sick(60, skew_s)) == 30
    process = Process(started(given, on))
    process.sync(on, at_s=2, nodes=sick(2, skew_s))
    new = changed(on, metadata__uid="new", started=at(25 + skew_s))
    assert process.acts_after_s(restarts_all, new, at_s=25, nodes=sick(2, skew_s)) == 30


@for_each("skew_s", SKEWS_S)
def test_a_node_is_lost_after_its_timeout_whatever_its_clock(skew_s: float) -> None:
    """A kubelet ten minutes behind that was not ready for one second lost its pods."""
    given = spec(Worker=1, runPolicy={"nodeLostTimeoutSeconds": 300})
    on = created(changed(BUSY, node="n0"), skew_s)
    process = Process(started(given, on))
    assert process.acts_after_s(lambda found: found.lost_pods, on, nodes=sick(60, skew_s)) == 300
    new = created(changed(on, metadata__uid="new"), 500 + skew_s)
    assert process.acts_after_s(lambda found: found.lost_pods, new, at_s=500, nodes=sick(60, skew_s)) == 300


def test_the_timeout_of_a_lost_node_runs_on_when_the_job_ends() -> None:
    """The plan that ends the job does not look at nodes."""
    given = spec(Worker=2, runPolicy={"nodeLostTimeoutSeconds": 300})
    on = changed(pod("Worker", 1), node="n0")
    process = Process(started(given, BUSY, on))
    process.sync(BUSY, on, at_s=60, nodes=sick(60, 0))
    process.sync(pod("Worker", 0, "Succeeded", 0), on, at_s=100, nodes=sick(60, 0))
    assert true_of(process.job)[-1] == "Succeeded"
    leaving = changed(pod("Worker", 1, terminating=True), node="n0")
    assert process.acts_after_s(lambda found: found.lost_pods, leaving, at_s=359, nodes=sick(60, 0)) == 1


@for_each("skew_s", SKEWS_S)
def test_a_pod_is_given_up_after_its_grace_period_and_a_minute_whatever_the_clock_of_the_api_server(
    skew_s: float,
) -> None:
    """A server an hour behind freed the quota of a pod that still ran; one ahead kept it for another hour."""
    process = Process(started(spec(Chief=1, Worker=1), pod("Chief", 0), BUSY, labels={LABEL_QUEUE: "gpus"}))
    chief = pod("Chief", 0, "Succeeded", 0)
    leaving = changed(pod("Worker", 0, terminating=True), metadata__deletion_timestamp=at(60 + 30 + skew_s))
    process.sync(chief, BUSY, at_s=60)
    assert process.acts_after_s(has_ended, chief, leaving, at_s=61) == 90


@for_each("skew_s", SKEWS_S)
def test_a_replica_has_its_whole_start_deadline_whatever_the_clock_of_the_api_server(skew_s: float) -> None:
    given = spec("ExitCode", Worker=1, runPolicy={"startDeadlineSeconds": 100})
    waiting = created(pod("Worker", 0, "Pending"), skew_s)
    process = Process(synced(job(given, creation_timestamp=at(skew_s)), at_s=0))
    assert process.acts_after_s(has_ended, waiting, at_s=0) == 101
    process = Process(synced(job(given, creation_timestamp=at(skew_s)), at_s=0))
    process.sync(waiting, at_s=1)
    process.sync(pod("Worker", 0, "Failed", 137), at_s=60)
    process.sync(at_s=61)
    again = created(pod("Worker", 0, "Pending", uid="new"), 62 + skew_s)
    assert process.acts_after_s(has_ended, again, at_s=62) == 101


@for_each("skew_s", SKEWS_S)
def test_an_escalation_gives_the_next_pod_its_whole_time_whatever_the_clock_of_the_api_server(skew_s: float) -> None:
    rule = {"action": "RestartReplica", "escalation": {"afterSeconds": 50, "action": "RestartAll"}}
    process = Process(started(spec(Worker=1, runPolicy={"failurePolicy": {"rules": [rule], "maxRestarts": 1}}), BUSY))
    process.sync(pod("Worker", 0, "Failed", 1), at_s=60)
    process.sync(at_s=61)
    again = created(pod("Worker", 0, "Pending", uid="new"), 62 + skew_s)
    assert process.acts_after_s(restarts_all, again, at_s=62) == 50


def test_the_deadline_of_a_job_does_not_begin_at_a_time_of_the_api_server() -> None:
    """A leader that was killed before it wrote the first status leaves pods, whose creation is the start of the job."""
    process = Process(job(spec(Worker=1, runPolicy={"activeDeadlineSeconds": 100})))
    assert process.acts_after_s(has_ended, created(BUSY, 60 - 3600)) == 101
    assert process.job.status.start_time == at(60 - 3600)


@for_each("skew_s", SKEWS_S)
def test_pods_that_exclude_a_node_are_created_again_whatever_the_clock_of_the_api_server(skew_s: float) -> None:
    """A pod that seemed to be newer than the expiration of the node waited forever."""
    asks = spec(Worker=1, runPolicy={"nodeAvoidance": {}})
    found = changed(started(asks, BUSY), status__avoided_nodes=(AvoidedNode("n1", 1, at(100)),))
    waits = created(pod("Worker", 0, "Pending", uid="new"), 60 + skew_s)
    process = Process(found)
    assert process.acts_after_s(lambda each: each.delete_pods, waits) == 40
    assert process.sync(at_s=101).create_pods
    assert process.job.status.avoided_nodes == ()
    assert not process.sync(created(pod("Worker", 0, "Pending", uid="newer"), 101 + skew_s), at_s=102).delete_pods


# Times that another operator wrote.

RULES: Final = [{"action": "RestartAll"}]
LINGERING: Final = with_sidecar(pod("Worker", 1, "Running", 1))
BY_LEADER: Final[
    dict[str, tuple[dict[str, Any], tuple[Pod, ...], tuple[Pod, ...], Callable[[Plan], object], float]]
] = {
    "activeDeadlineSeconds": (
        spec(Worker=1, runPolicy={"activeDeadlineSeconds": 100}),
        (BUSY,),
        (BUSY,),
        has_ended,
        101,
    ),
    "ttlSecondsAfterFinished": (
        spec(Worker=1, runPolicy={"ttlSecondsAfterFinished": 100}),
        (pod("Worker", 0, "Failed", 1),),
        (pod("Worker", 0, "Failed", 1),),
        lambda found: found.delete_job,
        101,
    ),
    "startDeadlineSeconds": (
        spec(Worker=1, runPolicy={"startDeadlineSeconds": 100}),
        (),
        (pod("Worker", 0, "Pending"),),
        has_ended,
        101,
    ),
    "the grace period of a sidecar": (
        spec(Worker=2),
        (BUSY, LINGERING),
        (BUSY, LINGERING),
        lambda found: LINGERING in [each.pod for each in found.delete_pods],
        31,
    ),
    "the grace period of workers": (
        spec(Chief=1, Worker=1),
        (pod("Chief", 0, "Succeeded", 0), BUSY),
        (pod("Chief", 0, "Succeeded", 0), BUSY),
        lambda found: found.delete_pods,
        31,
    ),
    "an escalation": (
        spec(
            Worker=1,
            runPolicy={
                "failurePolicy": {
                    "rules": [{"action": "RestartReplica", "escalation": {"afterSeconds": 50, "action": "FailJob"}}],
                    "maxRestarts": 1,
                }
            },
        ),
        (pod("Worker", 0, "Failed", 1),),
        (),
        has_ended,
        50,
    ),
}


@pytest.mark.parametrize("ahead_s", [1, 3600])
@pytest.mark.parametrize("wait", BY_LEADER)
def test_a_wait_from_the_future_begins_when_this_process_sees_it(wait: str, ahead_s: float) -> None:
    """A former leader an hour ahead made 3,631 s of 30 s. It is not over at once either: clocks differ by a second anywhere."""
    given, before, pods, is_due, after_s = BY_LEADER[wait]
    found = synced(started(given, *(BUSY for _ in before[:1]), at_s=60 + ahead_s), *before, at_s=60 + ahead_s + 2)
    assert Process(found).acts_after_s(is_due, *pods) == after_s


@pytest.mark.parametrize("whole", [False, True], ids=["of a replica", "of the whole job"])
def test_a_delay_that_a_leader_ahead_of_us_wrote_is_as_long_as_it_asked(*, whole: bool) -> None:
    policy = {"failurePolicy": {"rules": RULES, "maxRestarts": 3}} if whole else {}
    found = started(spec("ExitCode", Worker=1, runPolicy=policy), BUSY, at_s=3600)
    for number in range(2):
        failed = pod("Worker", 0, "Failed", 137, uid=f"{number}")
        if whole:
            failed = labelled(failed, attempt=str(number))
        found = synced(found, failed, at_s=3620 + number)
    process = Process(found)
    assert process.acts_after_s(lambda each: each.create_pods, at_s=60) == 10
    assert found.status.next_restart_time is None or found.status.next_restart_time == at(3631)


@for_each("jump_s", [-3600, 3600])
def test_a_change_of_our_own_clock_ends_and_extends_no_wait(jump_s: float) -> None:
    given = spec(Worker=1, runPolicy={"nodeLostTimeoutSeconds": 300})
    on = changed(BUSY, node="n0")
    tfjob = started(given, on)
    wanted, first = good_spec(tfjob), decide(tfjob, on, first_seen={}, nodes=sick(60, 0))
    for now_s, is_due in ((359, False), (360, True)):
        now, seen = at(now_s + jump_s), first.first_seen
        found = planned(tfjob, wanted, [on], [], now, nodes=sick(60, 0), first_seen=seen, monotonic_s=now_s)
        assert bool(found.lost_pods) is is_due
    ahead = Observer({}, at(60), 60)
    assert ahead.begins(at(3600)) == at(60)
    assert Observer(ahead.seen, at(70 + jump_s), 70).begins(at(3600)) == min(at(3600), at(60 + jump_s))


def test_the_end_that_a_leader_ahead_of_us_decided_is_written_as_it_was_decided() -> None:
    found = started(spec(Chief=1, Worker=1), pod("Chief", 0), BUSY, labels={LABEL_QUEUE: "gpus"})
    decided = synced(found, pod("Chief", 0, "Succeeded", 0), BUSY, at_s=3660)
    ended = synced(decided, pod("Chief", 0, "Succeeded", 0), at_s=60)
    assert (true_of(ended)[-1], ended.status.completion_time) == ("Succeeded", at(3660))


def test_what_no_plan_depends_on_is_forgotten() -> None:
    """So the memory does not grow with the pods that a job has had."""
    given = spec(Worker=1, runPolicy={"nodeLostTimeoutSeconds": 300})
    process = Process(started(given, BUSY))
    assert [each.fact for each in process.sync(BUSY, at_s=60, nodes=Nodes({})).first_seen] == [Fact.POD]
    assert process.sync(at_s=61, nodes=Nodes({})).first_seen == {}
    assert decide(process.job, BUSY, first_seen={}).first_seen == {}


def test_a_time_in_the_future_counts_from_its_first_sight_even_when_it_has_come() -> None:
    first = Observer({}, at(10.5), 10.5)
    assert first.begins(at(3600)) == at(10)
    later = Observer(first.seen, at(5000.999_999), 5000.999_999)
    assert later.begins(at(3600)) == at(10)
    assert later.begins(at(4000)) == at(4000)
