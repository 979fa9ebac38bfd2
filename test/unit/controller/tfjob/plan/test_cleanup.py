"""What happens once the end of a job is decided: the record, the final condition, grace periods and clean-up, by tables."""

from collections.abc import Callable
from typing import Any

import pytest

from fakes.jobs import (
    Punctual,
    all_workers,
    at,
    decide,
    disrupted,
    good_spec,
    names,
    planned,
    pod,
    replica,
    service,
    spec,
    started,
    synced,
    true_of,
    with_sidecar,
)
from fakes.objects import changed, edited
from support.cases import for_each
from tfjob_operator.api.core import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    LastState,
)
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import LABEL_QUEUE
from tfjob_operator.api.v1.types import EndRecord, IndexRestarts, JobAnnotations, ReplicaStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod, ReplicaKey
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.tfjob.plan.clocks import Fact, Sight
from tfjob_operator.controller.tfjob.plan.spec import refused
from tfjob_operator.controller.tfjob.plan.status import merged_status
from tfjob_operator.controller.tfjob.plan.types import DEFAULTS

QUEUED: dict[str, Any] = {"labels": {LABEL_QUEUE: "gpus"}}
LED = spec(Chief=1, PS=1, Worker=1)
DONE, PS, BUSY = pod("Chief", 0, "Succeeded", 0), pod("PS", 0), pod("Worker", 0)
FAILED = pod("Worker", 0, "Failed", 1)


def ending(given: dict[str, Any] = LED, *pods: Pod, at_s: float = 60) -> TFJob:
    """A queued job whose end was decided a minute after EPOCH, while pods hold quota."""
    decided = synced(started(given, pod("Chief", 0), PS, BUSY, **QUEUED), *(pods or (DONE, PS, BUSY)), at_s=at_s)
    assert conditions.is_ending(decided.status)
    return decided


# The grace period of pods whose training has ended.

LINGERING = with_sidecar(pod("Worker", 1, "Running", 1))
RULES = [{"action": "RestartAll", "onExitCodes": {"operator": "In", "values": [1]}}]
ENDS: dict[str, tuple[dict[str, Any], tuple[Pod, ...], str]] = {
    "success": (
        spec(Worker=2),
        (pod("Worker", 0, "Succeeded", 0), with_sidecar(pod("Worker", 1, "Running", 0, policy="OnFailure"))),
        "Succeeded",
    ),
    "failure": (spec(Worker=2), (BUSY, with_sidecar(pod("Worker", 1, "Running", 1))), "Failed"),
    "a limit": (
        spec("ExitCode", Worker=2, runPolicy={"activeDeadlineSeconds": 30}),
        (BUSY, with_sidecar(pod("Worker", 1, "Running", 0))),
        "Failed",
    ),
    "a single restart": (
        spec("ExitCode", Worker=2),
        (BUSY, with_sidecar(pod("Worker", 1, "Running", 137))),
        "Restarting",
    ),
    "a whole-job restart": (
        spec(Worker=2, runPolicy={"failurePolicy": {"maxRestarts": 3, "rules": RULES}}),
        (BUSY, with_sidecar(pod("Worker", 1, "Running", 1))),
        "Restarting",
    ),
}


def deleted(tfjob: TFJob, *pods: Pod, at_s: float, **more: Any) -> list[str]:
    return names(decide(tfjob, *pods, at_s=at_s, **more))["delete pods"]


@for_each("end", ENDS)
def test_a_pod_whose_sidecar_works_is_deleted_when_its_grace_period_is_over(end: str) -> None:
    """Katib's collector, log shippers and uploaders start when the training has ended. At every kind of end and restart."""
    given, pods, state = ENDS[end]
    decided = synced(started(given, BUSY, pod("Worker", 1)), *pods)
    assert true_of(decided)[-1] == state
    first = decide(started(given, BUSY, pod("Worker", 1)), *pods)
    assert "mnist-worker-1" not in names(first)["delete pods"]
    early = decide(decided, *pods, at_s=89.9)
    assert "mnist-worker-1" not in names(early)["delete pods"]
    assert early.requeue_after_s == pytest.approx(1.1)
    assert "mnist-worker-1" in deleted(decided, *pods, at_s=91)


@for_each("end", ENDS)
@pytest.mark.parametrize(("field", "default", "grace_s"), [(None, 100, 100), (0, 100, 0), (None, 0, 0), (5, 100, 5)])
def test_the_job_or_the_operator_sets_the_grace_period(end: str, field: int | None, default: int, grace_s: int) -> None:
    given, pods, _ = ENDS[end]
    policy = given.get("runPolicy", {}) | ({} if field is None else {"completionGracePeriodSeconds": field})
    given, defaults = given | {"runPolicy": policy}, DEFAULTS._replace(completion_grace_s=default)
    before = started(given, BUSY, pod("Worker", 1))
    decided = synced(before, *pods, defaults=defaults)
    if grace_s:
        assert "mnist-worker-1" not in deleted(decided, *pods, at_s=60 + grace_s, defaults=defaults)
    assert "mnist-worker-1" in deleted(decided, *pods, at_s=61 + grace_s, defaults=defaults)
    if not grace_s:
        assert "mnist-worker-1" in deleted(decided, *pods, at_s=60, defaults=defaults)


@for_each("end", ENDS)
def test_a_grace_period_that_began_ahead_of_our_clock_begins_when_it_is_first_seen(end: str) -> None:
    """Another leader's clock was ahead: waiting for it could take hours."""
    given, pods, _ = ENDS[end]
    decided = synced(started(given, BUSY, pod("Worker", 1)), *pods, at_s=3660)
    first = decide(decided, *pods, at_s=60)
    assert "mnist-worker-1" not in names(first)["delete pods"]
    assert "mnist-worker-1" in deleted(decided, *pods, at_s=91, first_seen=first.first_seen)


@for_each("end", ENDS)
def test_only_ordinary_containers_of_pods_that_the_cluster_leaves_alone_have_a_grace_period(end: str) -> None:
    given, pods, _ = ENDS[end]
    for other in (disrupted(pods[1], "PreemptionByScheduler"), pod("Worker", 1)):
        decided = synced(started(given, BUSY, pod("Worker", 1)), *pods)
        plan = decide(decided, pods[0], other, at_s=91)
        assert plan.requeue_after_s is None or "mnist-worker-1" in names(plan)["delete pods"]


def test_scaling_down_and_suspending_delete_a_pod_whose_sidecar_works_at_once() -> None:
    lingering = with_sidecar(pod("Worker", 1, "Running", 0))
    running = started(all_workers(2), BUSY, pod("Worker", 1))
    smaller = edited(running, all_workers(1))
    assert deleted(smaller, BUSY, lingering, at_s=2) == ["mnist-worker-1"]
    suspended = edited(running, all_workers(2) | {"runPolicy": {"suspend": True}})
    assert deleted(suspended, BUSY, lingering, at_s=2) == ["mnist-worker-0", "mnist-worker-1"]


def test_neither_a_new_attempt_nor_an_end_nor_an_edited_rule_begins_the_grace_period_again() -> None:
    rules = [{"name": "a", "action": "RestartReplica", "onExitCodes": {"operator": "In", "values": [1]}}]
    policy = {"failurePolicy": {"maxRestarts": 3, "rules": rules}}
    given = spec(Worker=2, runPolicy=policy)
    pods = BUSY, LINGERING
    failed = synced(started(given, BUSY, pod("Worker", 1)), *pods)
    renamed = edited(
        failed,
        spec(Worker=2, runPolicy=policy | {"failurePolicy": {"maxRestarts": 3, "rules": [rules[0] | {"name": "b"}]}}),
    )
    requested = changed(failed, metadata__annotations=JobAnnotations(restart_requested_at="now"))
    limited = edited(failed, spec(Worker=2, runPolicy=policy | {"activeDeadlineSeconds": 80}))
    for later in (renamed, requested, limited):
        again = synced(later, *pods, at_s=85)
        assert "mnist-worker-1" not in deleted(again, *pods, at_s=90)
        assert "mnist-worker-1" in deleted(again, *pods, at_s=91)
    assert synced(requested, *pods, at_s=85).status.attempt == 1
    assert true_of(synced(limited, *pods, at_s=85))[-1] == "Failed"


def test_the_failure_of_an_earlier_pod_does_not_begin_the_grace_period_of_its_successor() -> None:
    """The record of a replica moves to its next pod when the kubelet restarts a container there."""
    record = IndexRestarts(type="Worker", index=0, pod="second", carried=1, in_place=1, failed_at=at(2))
    running = changed(started(spec(Worker=1), BUSY), status__restarts=(record,))
    lingering = with_sidecar(pod("Worker", 0, "Running", 0, uid="second"))
    decided = synced(running, lingering)
    assert true_of(decided)[-1] == "Succeeded"
    assert deleted(decided, lingering, at_s=90) == []
    assert deleted(decided, lingering, at_s=91) == ["mnist-worker-0"]


def test_a_successor_waits_for_the_pod_and_the_back_off_runs_meanwhile() -> None:
    given = spec("ExitCode", Worker=2)
    lingering = with_sidecar(pod("Worker", 1, "Running", 137))
    failed = synced(started(given, BUSY, pod("Worker", 1)), BUSY, lingering)
    assert decide(failed, BUSY, lingering, at_s=62).create_pods == ()
    assert names(decide(failed, BUSY, at_s=95))["create pods"] == ["mnist-worker-1"]


def test_a_whole_restart_that_waits_for_a_pod_reports_how_it_ended() -> None:
    """B57: its log goes with it."""
    given, pods, _ = ENDS["a whole-job restart"]
    decided = synced(started(given, BUSY, pod("Worker", 1)), *pods)
    (deletion,) = decide(decided, pods[1], at_s=91).delete_pods
    assert deletion.event is not None
    assert "exited with code 1" in deletion.event.message


def test_a_job_with_ttl_zero_waits_for_the_grace_period_only() -> None:
    given, pods, _ = ENDS["success"]
    given = given | {"runPolicy": {"ttlSecondsAfterFinished": 0}}
    decided = synced(started(given, BUSY, pod("Worker", 1)), *pods)
    assert not decide(decided, *pods, at_s=90).delete_job
    assert decide(decided, *pods, at_s=91).delete_job
    assert decide(decided, pods[0], pod("Worker", 1), at_s=60).delete_job


# Only a pod shows why it failed.

AFTER_CRASH = ContainerStatus(
    name="tensorflow", restart_count=1, last_state=LastState(terminated=ContainerStateTerminated(exit_code=1))
)
CRASHING = changed(
    pod("Worker", 1, policy="OnFailure"),
    status__container_statuses=(
        changed(
            AFTER_CRASH,
            state=ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff")),
            last_state=LastState(terminated=ContainerStateTerminated(exit_code=1, message="KeyError: 'LR'")),
        ),
    ),
)


@pytest.mark.parametrize(("policy", "gone"), [("Running", [1]), ("All", [0, 1])])
def test_the_failures_of_pods_that_are_deleted_after_a_success_stay_on_record(policy: str, gone: list[int]) -> None:
    """Their message was gone with them. Pods that run or have succeeded cost no event."""
    given = spec(
        "OnFailure", Chief=1, Worker=3, runPolicy={"cleanPodPolicy": policy, "completionGracePeriodSeconds": 0}
    )
    pods = (DONE, FAILED, CRASHING, changed(pod("Worker", 2), status__container_statuses=(AFTER_CRASH,)))
    ended = synced(started(given, pod("Chief", 0), BUSY, pod("Worker", 1), pod("Worker", 2)), *pods)
    assert true_of(ended)[-1] == "Succeeded"
    deletions = decide(ended, *pods, at_s=61).delete_pods
    messages = [each.event.message for each in deletions if each.event is not None]
    words = ["1", "1: KeyError: 'LR'"]
    assert messages == [f"Pod: ns.mnist-worker-{index} exited with code {words[index]}" for index in gone]
    assert "mnist-worker-2" in [each.pod.metadata.name for each in deletions]


def test_a_failed_pod_that_a_queued_end_deletes_stays_on_record() -> None:
    lingering = with_sidecar(pod("Worker", 0, "Running", 1))
    decided = ending(LED, DONE, lingering, PS)
    events = {each.pod.metadata.name: each.event for each in decide(decided, DONE, lingering, PS, at_s=91).delete_pods}
    assert events == {
        "mnist-worker-0": JobEvent("Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 1"),
        "mnist-ps-0": None,
    }


# Start deadlines and escalations begin when the previous pod is gone.


def test_a_start_deadline_does_not_run_while_pods_of_an_earlier_attempt_exist() -> None:
    """RestartAll with an old pod that needed 63 s used up all restarts without creating a pod."""
    rules = [*RULES, {"action": "RestartAll", "onFailureReasons": ["StartDeadlineExceeded"]}]
    given = spec(Worker=2, runPolicy={"startDeadlineSeconds": 20, "failurePolicy": {"maxRestarts": 3, "rules": rules}})
    restarted = synced(started(given, BUSY, pod("Worker", 1)), BUSY, pod("Worker", 1, "Failed", 1))
    assert restarted.status.attempt == 1
    leaving = pod("Worker", 1, "Running", terminating=True)
    assert (
        decide(restarted, leaving, at_s=122).status is None or synced(restarted, leaving, at_s=122).status.attempt == 1
    )
    assert not decide(restarted, leaving, at_s=122).first_seen
    gone = decide(restarted, at_s=123).first_seen
    assert names(decide(restarted, at_s=123, first_seen=gone))["create pods"] == ["mnist-worker-0", "mnist-worker-1"]
    assert synced(restarted, at_s=143, first_seen=gone).status.attempt == 1
    assert synced(restarted, at_s=144, first_seen=gone).status.attempt == 2


def test_the_start_deadline_of_a_successor_begins_when_the_previous_pod_is_gone() -> None:
    given = spec("ExitCode", Worker=1, runPolicy={"startDeadlineSeconds": 20})
    failed = synced(started(given, pod("Worker", 0, "Pending")), pod("Worker", 0, "Failed", 137), at_s=10)
    assert true_of(failed)[-1] == "Restarting"
    gone = Punctual({Sight(Fact.ABSENT, "mnist-worker-0"): 73})
    assert names(decide(failed, at_s=73, first_seen=gone))["create pods"] == ["mnist-worker-0"]
    assert decide(failed, at_s=93, first_seen=gone).requeue_after_s == 1
    assert true_of(synced(failed, at_s=94, first_seen=gone))[-1] == "Failed"


def test_nothing_is_escalated_while_the_previous_pod_exists() -> None:
    rule = {"name": "r", "action": "RestartReplica", "onExitCodes": {"operator": "In", "values": [1]}}
    rule |= {"escalation": {"afterSeconds": 20, "action": "FailJob"}}
    given = spec(Worker=2, runPolicy={"failurePolicy": {"maxRestarts": 3, "rules": [rule]}})
    failed = synced(started(given, BUSY, pod("Worker", 1)), BUSY, pod("Worker", 1, "Failed", 1))
    for old in (LINGERING, pod("Worker", 1, "Failed", 1, terminating=True)):
        assert not conditions.is_over(synced(failed, BUSY, old, at_s=200).status)
    gone = Punctual({Sight(Fact.ABSENT, "mnist-worker-1"): 200})
    assert not conditions.is_over(synced(failed, BUSY, at_s=219, first_seen=gone).status)
    assert true_of(synced(failed, BUSY, at_s=220, first_seen=gone))[-1] == "Failed"
    new = changed(pod("Worker", 1, "Pending", uid="new"), metadata__creation_timestamp=at(200))
    assert not conditions.is_over(synced(failed, BUSY, new, at_s=219).status)
    assert true_of(synced(failed, BUSY, new, at_s=220))[-1] == "Failed"


# The end of a queued job.


def test_the_end_of_a_job_without_a_queue_is_one_write_and_waits_for_no_pod() -> None:
    decided = synced(started(LED, pod("Chief", 0), PS, BUSY), DONE, PS, BUSY)
    record = conditions.end_record(decided.status)
    assert true_of(decided)[-1] == "Succeeded"
    assert record is not None
    assert (record.type, record.time, record.completion_time) == ("Succeeded", at(60), decided.status.completion_time)


def test_the_end_of_a_queued_job_is_decided_first_and_written_when_nothing_holds_quota() -> None:
    """Kueue frees the quota as soon as the job has the condition (jobframework: `Finished`)."""
    before = started(LED, pod("Chief", 0), PS, BUSY, **QUEUED)
    decision = decide(before, DONE, PS, BUSY)
    assert (names(decision), decision.ends(before), decision.may_outlive) == ({}, True, None)
    decided = ending()
    assert true_of(decided) == true_of(before)
    assert decided.status.completion_time is None
    counters = decided.status.replica_statuses
    assert counters == {"Chief": ReplicaStatus(succeeded=1), "PS": ReplicaStatus(1), "Worker": ReplicaStatus(1)}
    waits = decide(decided, DONE, PS, BUSY, services=[service("PS", 0)], at_s=61)
    assert names(waits) == {"delete pods": ["mnist-ps-0"]}  # the worker has its half minute
    assert (waits.status, waits.requeue_after_s) == (None, 30)
    assert deleted(decided, DONE, BUSY, at_s=91) == ["mnist-worker-0"]
    leaving = pod("Worker", 0, terminating=True)
    assert decide(decided, DONE, leaving, at_s=80).status is None
    over = decide(decided, DONE, at_s=85)
    written = synced(decided, DONE, at_s=85)
    assert over.may_outlive == frozenset()
    assert true_of(written)[-1] == "Succeeded"
    assert written.status.completion_time == at(60)
    final = {name: ReplicaStatus(succeeded=1) for name in ("Chief", "PS", "Worker")}
    assert written.status.replica_statuses == final
    assert [each.reason for each in over.events] == ["TFJobSucceeded"]


def test_a_queued_job_whose_pods_have_all_ended_needs_one_write() -> None:
    decided = decide(started(spec(Worker=1), BUSY, **QUEUED), pod("Worker", 0, "Succeeded", 0))
    assert (decided.may_outlive, decided.status and decided.status.conditions[-1].type) == (frozenset(), "Succeeded")


def test_a_create_that_is_not_observed_yet_delays_the_end_of_a_queued_job_and_counts_as_active() -> None:
    """Just after pods were created, the cache shows none of them."""
    before = started(spec(Chief=1, Worker=1), pod("Chief", 0), **QUEUED)
    key = ReplicaKey.of("mnist", "Worker", 0)
    decided = synced(before, DONE, expected=[key])
    assert conditions.is_ending(decided.status)
    assert decided.status.replica_statuses["Worker"].active == 1
    assert decide(decided, DONE, expected=[key]).status is None
    suspended = edited(before, spec(Chief=1, Worker=1, runPolicy={"suspend": True}))
    assert synced(suspended, DONE, expected=[key]).status.replica_statuses["Worker"].active == 1


def _suspend(tfjob: TFJob) -> TFJob:
    return edited(tfjob, LED | {"runPolicy": {"suspend": True}})


def _break(tfjob: TFJob) -> TFJob:
    return edited(tfjob, LED | {"tfReplicaSpecs": {"Chief": replica(-1)}})


def _judge_by_workers(tfjob: TFJob) -> TFJob:
    return edited(tfjob, spec(Worker=1, successPolicy="AllWorkers"))


def _grow(tfjob: TFJob) -> TFJob:
    return edited(tfjob, spec(Chief=1, PS=2, Worker=3))


def _limit(tfjob: TFJob) -> TFJob:
    return edited(tfjob, LED | {"runPolicy": {"activeDeadlineSeconds": 1, "backoffLimit": 0}})


def _take_label(tfjob: TFJob) -> TFJob:
    return edited(tfjob, LED, metadata__labels={})


def _request_restart(tfjob: TFJob) -> TFJob:
    return edited(tfjob, LED, metadata__annotations=JobAnnotations(restart_requested_at="2026"))


@for_each("edit", [_suspend, _break, _judge_by_workers, _grow, _limit, _take_label, _request_restart])
def test_nothing_reverts_a_decided_end(edit: Callable[[TFJob], TFJob]) -> None:
    """Nothing is created, repaired or restarted, and the end waits for the same pods."""
    changed_job = edit(ending())
    wrong_labels = changed(PS, metadata__labels=None)
    waits = decide(changed_job, DONE, wrong_labels, pod("Worker", 0, "Failed", 1), services=[], at_s=62)
    assert {*names(waits)} <= {"delete pods"}
    assert (waits.label_drift, waits.begins_attempt, waits.delete_job) == ((), False, False)
    still = synced(changed_job, DONE, PS, BUSY, at_s=62)
    assert true_of(still) == true_of(ending())
    assert true_of(synced(still, DONE, at_s=63))[-1] == "Succeeded"


def test_deleting_the_job_and_handing_it_over_stop_a_decided_end() -> None:
    for other in (
        changed(ending(), metadata__deletion_timestamp=at(61)),
        edited(ending(), LED | {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}),
    ):
        assert names(decide(other, DONE, PS, BUSY, at_s=100)) == {}
        assert decide(other, DONE, at_s=100).status is None


def test_a_suspension_ends_the_grace_periods_of_a_decided_end() -> None:
    """Kueue preempts a job that has not finished yet."""
    lingering = with_sidecar(pod("Chief", 0, "Running", 0))
    decided = ending(LED, lingering, PS, BUSY)
    assert deleted(decided, lingering, PS, BUSY, at_s=61) == ["mnist-ps-0"]
    assert deleted(_suspend(decided), lingering, PS, BUSY, at_s=61) == ["mnist-chief-0", "mnist-ps-0", "mnist-worker-0"]


def test_a_decision_that_is_not_written_is_decided_again() -> None:
    """Meanwhile a user may have edited the job."""
    before = started(LED, pod("Chief", 0), PS, BUSY, **QUEUED)
    decided = ending()
    assert not conditions.is_over(merged_status(before.status, decided.status))
    assert conditions.is_ending(merged_status(decided.status, before.status))


SURPLUS = pod("Worker", 7)


def test_surplus_pods_are_waited_for() -> None:
    assert deleted(ending(LED, DONE, SURPLUS), DONE, SURPLUS, at_s=61) == ["mnist-worker-7"]
    assert decide(ending(LED, DONE, SURPLUS), DONE, pod("Worker", 7, terminating=True), at_s=61).status is None


def test_a_pod_that_was_deleted_is_given_up_a_minute_after_its_grace_period() -> None:
    """However long the operator was away: what it did not ask to end is asked first."""
    decided = ending()
    assert deleted(decided, DONE, PS, at_s=4000) == ["mnist-ps-0"]
    leaving = changed(pod("PS", 0, terminating=True), metadata__deletion_timestamp=at(4030), node="node-a")
    waits = decide(decided, DONE, leaving, at_s=4089)
    assert (waits.status, waits.requeue_after_s) == (None, 1)
    over = decide(decided, DONE, leaving, at_s=4090)
    assert over.may_outlive == frozenset({PS.metadata.uid})
    assert [each.reason for each in over.events] == ["PodsOutliveJob", "TFJobSucceeded"]
    assert "Pods mnist-ps-0 on node-a did not end" in over.events[0].message


def with_native_sidecar(found: Pod) -> Pod:
    """The pod with a native sidecar, which runs, while its other containers have ended."""
    return changed(
        found,
        spec__init_containers=(Container(name="proxy", restart_policy="Always"),),
        status__init_container_statuses=(ContainerStatus(name="proxy"),),
    )


def test_a_pod_that_only_native_sidecars_keep_is_waited_for_and_not_deleted() -> None:
    """The kubelet ends them, within the pod's grace period."""
    kept = with_native_sidecar(pod("Chief", 0, "Running", 0))
    decided = ending(LED, kept)
    assert decided.status.replica_statuses["Chief"] == ReplicaStatus(active=1, succeeded=1)
    waits = decide(decided, kept, at_s=149)
    assert (names(waits), waits.status, waits.requeue_after_s) == ({}, None, 1)
    assert decide(decided, kept, at_s=150).may_outlive == frozenset({kept.metadata.uid})
    suspended = edited(started(LED, pod("Chief", 0), PS, BUSY), LED | {"runPolicy": {"suspend": True}})
    worker = with_native_sidecar(pod("Worker", 0, "Running", 0))
    assert synced(suspended, worker).status.replica_statuses["Worker"].active == 1


def test_under_none_only_surplus_pods_are_waited_for_and_a_warning_names_the_others() -> None:
    given = LED | {"runPolicy": {"cleanPodPolicy": "None"}}
    decided = ending(given, DONE, PS, SURPLUS)
    assert deleted(decided, DONE, PS, SURPLUS, at_s=61) == ["mnist-worker-7"]
    over = decide(decided, DONE, PS, at_s=70)
    assert over.may_outlive == frozenset({PS.metadata.uid})
    assert "Pods mnist-ps-0 continue, since cleanPodPolicy is None" in over.events[0].message
    one_write = decide(started(given, pod("Chief", 0), PS, **QUEUED), DONE, PS)
    assert one_write.may_outlive == frozenset({PS.metadata.uid})


@pytest.mark.parametrize("policy", ["Sometimes", 3, ["x"]])
def test_an_unreadable_clean_up_policy_is_running_until_the_end_is_written(policy: Any) -> None:
    broken = edited(ending(), LED | {"runPolicy": {"cleanPodPolicy": policy}})
    assert deleted(broken, DONE, PS, BUSY, at_s=91) == ["mnist-ps-0", "mnist-worker-0"]


def test_an_unreadable_clean_up_policy_does_not_change_what_is_deleted_after_the_end() -> None:
    for before, gone in (("Running", ["mnist-ps-0"]), ("All", ["mnist-chief-0", "mnist-ps-0"]), ("None", [])):
        over = synced(started(LED | {"runPolicy": {"cleanPodPolicy": before}}, pod("Chief", 0), PS), DONE, PS)
        broken = edited(over, LED | {"runPolicy": {"cleanPodPolicy": "Sometimes"}})
        assert deleted(broken, DONE, PS, at_s=61) == gone, before


def test_a_limit_leaves_nothing_running_under_none() -> None:
    given = LED | {"runPolicy": {"cleanPodPolicy": "None", "activeDeadlineSeconds": 30}}
    decided = ending(given, pod("Chief", 0), PS)
    assert deleted(decided, pod("Chief", 0), PS, at_s=61) == ["mnist-chief-0", "mnist-ps-0"]
    assert conditions.end_record(decided.status).event == "DeadlineExceeded"  # type: ignore[union-attr]


def test_a_failed_pod_is_deleted_before_the_end_only_if_its_sidecar_works() -> None:
    """A pod with a terminal phase shows an operator without the record how the job ended."""
    lingering = with_sidecar(pod("Worker", 0, "Running", 1))
    for failed, gone in ((FAILED, ["mnist-ps-0"]), (lingering, ["mnist-worker-0", "mnist-ps-0"])):
        decided = ending(spec(PS=1, Worker=1, runPolicy={"cleanPodPolicy": "All"}), failed, PS)
        assert deleted(decided, failed, PS, at_s=61) == ["mnist-ps-0"]
        assert deleted(decided, failed, PS, at_s=91) == gone


def test_a_job_that_the_api_server_refuses_waits_for_the_pods_that_it_has() -> None:
    before = started(spec(Worker=2), BUSY, **QUEUED)
    decided = planned(before, refused(good_spec(before), "pod mnist-worker-1 is invalid"), [BUSY], [], at(60))
    assert decided.status is not None
    record = conditions.end_record(decided.status)
    assert record is not None
    assert (record.type, record.reason) == ("Failed", "InvalidTFJobSpec")
    assert decided.status.replica_statuses["Worker"].active == 1
    assert not conditions.is_finished(decided.status)


def test_the_record_of_a_failure_has_its_facts() -> None:
    decided = synced(
        started(spec(Worker=2), BUSY, pod("Worker", 1)), BUSY, changed(pod("Worker", 1, "Failed", 9), node="n")
    )
    record = conditions.end_record(decided.status)
    assert record is not None
    failure = record.failure
    assert failure is not None
    assert (failure.replica_type, failure.replica_index, failure.exit_code, failure.node_name) == ("Worker", 1, 9, "n")
    assert (record.event, failure.pod_name) == ("TFJobFailed", "mnist-worker-1")


def test_a_record_that_somebody_wrote_is_not_an_end() -> None:
    before = started(LED, pod("Chief", 0), PS, BUSY, **QUEUED)
    assert before.status.begun is not None
    forged = changed(before, status__begun=changed(before.status.begun, ending=EndRecord(type="Won")))
    assert names(decide(forged, PS, BUSY, services=[]))["create pods"] == ["mnist-chief-0"]
