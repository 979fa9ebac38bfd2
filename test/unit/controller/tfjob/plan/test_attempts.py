"""Failure policies: which rule decides about a failure, and what a restart of the whole job does."""

from functools import partial
from typing import Any

import msgspec
import pytest

from fakes.jobs import Punctual, at, decide, disrupted, job, pod, pod_group, replica, spec, synced, true_of, workers
from fakes.objects import after, changed, edited, labelled
from tfjob_operator.api import core
from tfjob_operator.api.core import Condition, Container
from tfjob_operator.api.v1.constants import MAX_ATTEMPT, RuleAction
from tfjob_operator.api.v1.types import JobAnnotations, JobStatus, StartRecord, TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.build.builder import gang_scheduler
from tfjob_operator.controller.tfjob.plan.clocks import Fact, Sight
from tfjob_operator.controller.tfjob.plan.status import merged_status
from tfjob_operator.controller.tfjob.plan.types import Defaults, Gang, Plan

RESTART_ALL: dict[str, Any] = {"action": "RestartAll"}
FAIL: dict[str, Any] = {"action": "FailJob"}


def on(*codes: int) -> dict[str, Any]:
    """A matcher of exit codes."""
    return {"onExitCodes": {"operator": "In", "values": [*codes]}}


def policy(*rules: dict[str, Any], workers: int = 3, restart: str = "Never", **more: Any) -> dict[str, Any]:
    """A specification with these rules; `maxRestarts` is 3 unless it is given."""
    types = {"Worker": replica(workers, restart), "Evaluator": replica(0)}
    return {"tfReplicaSpecs": types, "runPolicy": {"failurePolicy": {"rules": [*rules], "maxRestarts": 3} | more}}


running = partial(workers, attempt=0)


def of(attempt: int, each: Pod) -> Pod:
    """The pod as one of this attempt."""
    return labelled(each, attempt=str(attempt))


failed = partial(pod, "Worker", phase="Failed", exit_code=42, ended_s=30)
"""A worker that has failed."""


def evicted(index: int) -> Pod:
    """A worker that is being evicted through the API, and still runs."""
    return disrupted(pod("Worker", index, terminating=True, uid=f"{index}-evicted"), "EvictionByEvictionAPI")


def stopped(index: int) -> Pod:
    """A worker that exited with 0 when its node was shut down."""
    return disrupted(failed(index, exit_code=0), "TerminationByKubelet")


def started(given: dict[str, Any], **meta: Any) -> TFJob:
    """A job whose pods of attempt 0 run."""
    return synced(synced(job(given, **meta), at_s=0), *running(len(range(3))), at_s=10)


def names(found: Plan) -> tuple[list[str], list[str]]:
    """The pods that a plan deletes and creates."""
    return sorted(each.pod.metadata.name for each in found.delete_pods), [key.name for key in found.create_pods]


END = core.ContainerStateTerminated(exit_code=137, reason="OOMKilled", finished_at=at(30))
OOM = (core.ContainerStatus(name="tensorflow", state=core.ContainerState(terminated=END)),)
WAITS = core.ContainerStateWaiting(reason="ImagePullBackOff", message="no such image")
PULLING = (core.ContainerStatus(name="tensorflow", state=core.ContainerState(waiting=WAITS)),)
ALL = [f"mnist-worker-{index}" for index in range(3)]


def test_a_restart_of_the_whole_job_is_one_status_write_and_ends_all_pods() -> None:
    """The attempt and its history are in the status before the first pod is deleted; nothing is created in that plan."""
    before = started(policy(RESTART_ALL | on(42) | {"name": "nan"}))
    found = decide(before, *running(but={1: failed(1)}))
    assert names(found) == (ALL, [])
    leaving = pod("Worker", 0, terminating=True)
    assert names(decide(before, *running(but={0: leaving, 1: failed(1)}))) == (ALL[1:], [])
    status = after(before, found).status
    assert (status.attempt, status.counted_restarts, status.restarts) == (1, 1, ())
    (over,) = status.attempt_history
    assert (over.number, over.rule, over.action) == (0, "nan", RuleAction.RESTART_ALL)
    assert (over.pod_name, over.replica_type, over.replica_index, over.exit_code) == ("mnist-worker-1", "Worker", 1, 42)
    assert (over.start_time, over.end_time) == (before.status.start_time, at(60))
    assert true_of(after(before, found))[-1] == "Restarting"
    assert [event.reason for event in found.events] == ["RestartedAllReplicas"]


def test_no_pod_is_created_while_one_of_an_earlier_attempt_exists() -> None:
    """Neither beside one that terminates, nor beside one that somebody keeps. Then the API server is asked first."""
    restarted = synced(started(policy(RESTART_ALL)), *running(but={1: failed(1)}))
    for left in (pod("Worker", 0, terminating=True), failed(0), pod("Worker", 0)):
        found = decide(restarted, left, at_s=61)
        assert found.create_pods == ()
        assert [each.pod for each in found.delete_pods] == ([] if left.metadata.deletion_timestamp else [left])
    found = decide(restarted, at_s=61)
    assert (names(found), found.begins_attempt) == (([], ALL), True)
    rest = decide(restarted, *running(attempt=1, but={2: None}), at_s=62)
    assert (names(rest), rest.begins_attempt) == (([], ALL[2:]), False)


def test_an_operator_that_was_killed_after_the_write_deletes_the_rest_and_counts_nothing_again() -> None:
    """Pods of an earlier attempt match no rule, whatever they end with."""
    restarted = synced(started(policy(RESTART_ALL)), *running(but={1: failed(1)}))
    found = decide(restarted, *running(but={1: failed(1), 2: failed(2, exit_code=137)}), at_s=61)
    assert names(found)[0] == ALL
    assert after(restarted, found).status.attempt == restarted.status.attempt == 1
    assert after(restarted, found).status.counted_restarts == 1


@pytest.mark.parametrize(
    ("rules", "failures", "expected"),
    [
        ([FAIL | on(1), RESTART_ALL], {0: failed(0, ended_s=10), 1: failed(1, exit_code=1, ended_s=20)}, ("Failed", 0)),
        (
            [RESTART_ALL | on(42), FAIL],
            {0: failed(0, exit_code=1, ended_s=10), 1: failed(1, ended_s=20)},
            ("Restarting", 1),
        ),
        ([RESTART_ALL | on(42)], {0: failed(0, exit_code=1)}, ("Failed", 0)),
        ([RESTART_ALL | on(42)], {0: failed(0, exit_code=1), 1: failed(1)}, ("Restarting", 1)),
        ([RESTART_ALL | {"targetReplicaTypes": ["Evaluator"]}], {0: failed(0)}, ("Failed", 0)),
        ([RESTART_ALL | {"onFailureReasons": ["Evicted"]}], {0: failed(0, reason="Evicted")}, ("Restarting", 1)),
        ([RESTART_ALL | {"onFailureReasons": ["Evicted"]}], {0: evicted(0)}, ("Restarting", 1)),
        ([RESTART_ALL], {0: evicted(0)}, ("Restarting", 1)),
        ([RESTART_ALL | on(42)], {0: evicted(0)}, ("Running", 0)),
        ([RESTART_ALL | {"onPodConditions": [{"type": "DisruptionTarget"}]}], {0: evicted(0)}, ("Restarting", 1)),
        ([RESTART_ALL], {0: pod("Worker", 0, terminating=True)}, ("Running", 0)),
        ([RESTART_ALL | on(1)], {0: failed(0, exit_code=1, terminating=True)}, ("Running", 0)),
        ([RESTART_ALL], {0: failed(0, exit_code=0, reason="DeadlineExceeded")}, ("Restarting", 1)),
        ([RESTART_ALL], {0: stopped(0)}, ("Restarting", 1)),
        ([FAIL], {0: pod("Worker", 0, "Succeeded", 0), 1: failed(1)}, ("Succeeded", 0)),
    ],
    ids=[
        "a rule before it decides about a later failure",
        "a rule before it decides though an earlier failure matches a later rule",
        "what no rule matches follows the restart policy",
        "a rule about one failure comes before the restart policy of another",
        "rules are about their replica types only",
        "a reason of the pod",
        "an eviction through the API, before the pod has ended",
        "a rule without a matcher is about disruptions, too",
        "a rule about exit codes is not about a pod that still runs",
        "a condition of the pod",
        "a pod that a user deletes is no failure",
        "nor is one that then fails",
        "an exit with 0 at the deadline of the pod is a failure",
        "and so is one at the shutdown of its node",
        "success comes first",
    ],
)
def test_rules_decide_in_their_order(
    rules: list[dict[str, Any]], failures: dict[int, Pod], expected: tuple[str, int]
) -> None:
    found = synced(started(policy(*rules)), *running(but=dict(failures)))
    assert (true_of(found)[-1], found.status.attempt) == expected


def test_never_in_a_pod_without_its_label_shows_nothing_where_a_rule_is_about_it() -> None:
    """This operator made it so: the policy is the replica's. A user may take the label away, or copy the pod without it."""
    before = started(policy(FAIL | on(3), restart="OnFailure"))
    found = decide(before, *running(but={1: failed(1, exit_code=137, reason="Preempting")}))
    assert (names(found), true_of(after(before, found))[-1]) == ((["mnist-worker-1"], []), "Restarting")


def test_a_rule_that_fails_the_job_says_so_in_the_condition() -> None:
    found = synced(started(policy(FAIL | {"name": "fatal"})), *running(but={1: failed(1)}))
    assert found.status.conditions[-1].reason == "PodFailurePolicy"
    assert "rule fatal" in found.status.conditions[-1].message
    assert "exited with code 42" in found.status.conditions[-1].message
    assert [(each.number, each.action) for each in found.status.attempt_history] == [(0, "FailJob")]


def test_the_job_fails_when_it_was_restarted_as_often_as_it_may_be() -> None:
    """The attempt stays as it was."""
    found = started(policy(RESTART_ALL, maxRestarts=0))
    found = synced(found, *running(but={1: failed(1)}))
    assert (true_of(found)[-1], found.status.attempt, found.status.counted_restarts) == ("Failed", 0, 0)
    assert "maxRestarts" in found.status.conditions[-1].message
    assert [(each.reason, each.action) for each in found.status.attempt_history] == [("Error", "RestartAll")]
    assert "maxRestarts allows. Pod mnist-worker-1: container tensorflow exited" in found.status.conditions[-1].message


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (failed(1), "Error"),
        (changed(failed(1, exit_code=137), status__container_statuses=OOM), "OOMKilled"),
        (failed(1, reason="Evicted"), "Evicted"),
        (evicted(1), "Evicted"),
        (failed(1, reason="NodeLost"), "NodeLost"),
        (failed(1, reason="UnexpectedAdmissionError"), "UnexpectedAdmissionError"),
    ],
    ids=["an exit code", "out of memory", "evicted", "evicted through the API", "a lost node", "rejected"],
)
def test_the_history_says_in_a_word_why_an_attempt_ended(failure: Pod, reason: str) -> None:
    found = synced(started(policy(RESTART_ALL)), *running(but={1: failure}))
    assert [each.reason for each in found.status.attempt_history] == [reason]


def test_restarts_that_do_not_count_go_on_beyond_the_maximum() -> None:
    rule = {"action": "RestartAllAndIgnoreMaxRestarts"}
    found = synced(started(policy(rule, maxRestarts=0)), *running(but={1: failed(1)}))
    assert (found.status.attempt, found.status.counted_restarts) == (1, 0)


@pytest.mark.parametrize(("action", "restarts"), [("RestartReplica", 1), ("Ignore", 0)])
def test_a_rule_about_a_replica_replaces_it_alone(action: str, restarts: int) -> None:
    """Also under restartPolicy Never. Ignored failures do not count to backoffLimit."""
    before = started(policy({"action": action}))
    found = decide(before, *running(but={1: failed(1)}))
    assert names(found) == (["mnist-worker-1"], [])
    (gone,) = found.delete_pods
    assert gone.decision == ("failurePolicyRule0", action, "Worker")
    assert gone.event is not None
    assert gone.event.message.endswith(f"(rule failurePolicyRule0: {action})")
    assert sum(each.total for each in after(before, found).status.restarts) == restarts


def test_a_program_that_fails_at_once_is_delayed_though_its_failures_are_ignored() -> None:
    """Not the first time, and not again for the same pod; pods that the cluster takes away are replaced at once."""
    job = started(policy({"action": "Ignore"}))
    waits = []
    for uid in ("first", "second", "third"):
        pods = running(but={1: failed(1, uid=uid)})
        job = synced(synced(job, *pods, at_s=70), *pods, at_s=72)
        waits.append(names(decide(job, *running(but={1: None}), at_s=75))[1] == [])
    assert waits == [False, True, True]
    assert [(each.next_time, each.total) for each in job.status.restarts] == [(at(90), 0)]
    job = synced(job, *running(but={1: evicted(1)}), at_s=100)
    assert names(decide(job, *running(but={1: None}), at_s=100))[1] == ["mnist-worker-1"]


@pytest.mark.parametrize(("kept", "created"), [("Keep", ALL[1:]), ("Restart", ALL)])
def test_replicas_that_are_done_run_again_or_not_as_the_policy_says(kept: str, created: list[str]) -> None:
    given = policy(RESTART_ALL, finishedReplicaPolicy=kept) | {"successPolicy": "AllWorkers"}
    pods = running(but={0: pod("Worker", 0, "Succeeded", 0), 1: failed(1)})
    assert names(decide(started(given), *pods))[0] == created
    restarted = synced(started(given), *pods)
    left = pods[:1] if kept == "Keep" else []
    found = decide(restarted, *left, at_s=61)
    assert names(found) == ([], created)
    status = after(restarted, found).status
    assert status.finished_indices.get("Worker", "") == ("0" if kept == "Keep" else "")
    assert merged_status(restarted.status, started(given).status).finished_indices == status.finished_indices


def test_a_replica_that_does_not_run_again_in_time_is_a_matter_of_the_whole_job() -> None:
    """The time counts from the failure, also while the pod cannot even be created."""
    rule = {"action": "RestartReplica", "escalation": {"afterSeconds": 30, "action": "RestartAll"}}
    found = synced(started(policy(rule)), *running(but={1: failed(1)}))
    gone = Punctual({Sight(Fact.ABSENT, "mnist-worker-1"): 60})
    waits = decide(found, *running(but={1: None}), at_s=80, first_seen=gone)
    assert (names(waits)[1], waits.requeue_after_s) == (["mnist-worker-1"], 10)
    found = after(found, waits)
    again = synced(found, *running(but={1: pod("Worker", 1, uid="new")}), at_s=85)
    # The second failure is delayed by 10 s, in which the time does not run.
    delayed = synced(again, *running(but={1: failed(1, uid="new")}), at_s=100)
    absent: dict[str, Any] = {"first_seen": gone}
    waits_s = [decide(delayed, *running(but={1: None}), at_s=at_s, **absent).requeue_after_s for at_s in (101, 111)]
    assert waits_s == [9, 29]
    assert synced(delayed, *running(but={1: None}), at_s=139, **absent).status.attempt == 0
    assert synced(delayed, *running(but={1: None}), at_s=140, **absent).status.attempt == 1
    assert decide(again, *running(but={1: evicted(1)}), at_s=120).requeue_after_s is None
    assert synced(again, *running(but={1: pod("Worker", 1, "Pending", uid="new")}), at_s=120).status.attempt == 0
    escalated = synced(found, *running(but={1: pod("Worker", 1, "Pending", uid="new")}), at_s=90)
    assert (escalated.status.attempt, escalated.status.counted_restarts) == (1, 1)
    assert "mnist-worker-1 did not run again in time" in escalated.status.conditions[-1].message
    assert escalated.status.attempt_history[0].reason == "NotRunningAgain"
    assert synced(escalated, at_s=99).status.attempt == 1, "the next attempt has not failed"
    # What was due in the attempt before is not due in this one, also if the memory of the other comes back.
    later = changed(escalated, status=merged_status(escalated.status, found.status))
    later = synced(later, *running(attempt=1, but={1: pod("Worker", 1, "Pending")}), at_s=200)
    assert (later.status.attempt, later.status.counted_restarts) == (1, 1)


def test_a_restart_after_a_roll_back_is_of_a_higher_attempt_than_any_pod() -> None:
    """An older release drops the attempt from the status, and the label stays on the pods."""
    before = started(policy(RESTART_ALL))
    found = decide(before, *running(attempt=3, but={1: failed(1)}))
    assert names(found) == (ALL, [])
    assert after(before, found).status.attempt == 4
    assert [each.number for each in after(before, found).status.attempt_history] == [3]


def test_a_job_beyond_its_backoff_limit_fails_and_is_not_restarted_first() -> None:
    """The restarts of the replicas of all attempts count, so the next attempt would fail at once."""
    given = policy(RESTART_ALL | {"targetReplicaTypes": ["Evaluator"]}, RESTART_ALL | on(42), restart="OnFailure")
    given["tfReplicaSpecs"]["PS"] = replica(1, "OnFailure")
    given["runPolicy"] |= {"backoffLimit": 2}
    given["runPolicy"]["failurePolicy"]["rules"][1]["targetReplicaTypes"] = ["Worker"]
    before = started(given)
    server = pod("PS", 0, restarts=3)
    found = decide(before, *running(but={1: failed(1)}), server)
    done = after(before, found)
    assert (true_of(done)[-1], done.status.attempt, done.status.attempt_history) == ("Failed", 0, ())
    assert [event.reason for event in found.events] == ["BackoffLimitExceeded"]
    assert "Pod mnist-ps-0 was restarted most often (3 times)" in found.events[0].message
    within = synced(before, *running(but={1: failed(1)}), pod("PS", 0, restarts=2))
    assert (true_of(within)[-1], within.status.attempt) == ("Restarting", 1)
    assert true_of(synced(within, at_s=61))[-1] == "Restarting"


@pytest.mark.parametrize("number", [10**6, 999_999_999, 10**9])
def test_the_failure_of_a_pod_whose_attempt_a_user_wrote_is_decided_once(number: int) -> None:
    """Its label counts as 0, so the pod belongs to an earlier attempt after the restart, also for the next operator."""
    found = started(policy(RESTART_ALL))
    pods = running(attempt=number, but={1: failed(1)})
    for at_s in (60, 61, 62):
        found = synced(found, *pods, at_s=at_s)
        assert (found.status.attempt, found.status.counted_restarts) == (1, 1)
        assert (names(decide(found, *pods, at_s=at_s))[0]) == ALL


def test_pods_that_the_operator_creates_are_of_the_present_attempt_whatever_number_a_user_wrote() -> None:
    """A label below the maximum is taken for that of a status that was lost, and the attempts after it are readable too."""
    found = synced(started(policy(RESTART_ALL)), *running(attempt=MAX_ATTEMPT - 1, but={1: failed(1)}))
    assert found.status.attempt == MAX_ATTEMPT
    assert names(decide(found, *running(attempt=MAX_ATTEMPT), at_s=61)) == ([], [])
    assert names(decide(found, *running(attempt=MAX_ATTEMPT + 1), at_s=61)) == (ALL, [])


def requested(found: TFJob, value: str) -> TFJob:
    return changed(found, metadata__annotations=JobAnnotations(value))


def test_a_user_restarts_the_whole_job_once_for_each_request() -> None:
    """It is not counted, and needs no policy. What was requested before the job began is nothing to do."""
    given = spec(Worker=3)
    found = started(given, annotations=JobAnnotations("copied"))
    assert (found.status.attempt, found.status.observed_restart_request) == (0, "copied")
    found = synced(requested(found, "now"), *running())
    assert (found.status.attempt, found.status.counted_restarts) == (1, 0)
    assert found.status.attempt_history[0].reason == "RestartRequested"
    found = synced(found, at_s=70)
    assert synced(found, *running(attempt=1), at_s=80).status.attempt == 1


EARLIER, LATER = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00.5+02:00"
FAR = "9999-12-31T23:59:59Z"


@pytest.mark.parametrize(
    ("observed", "request_", "restarts", "warning"),
    [
        (LATER, EARLIER, False, f"its time is not later than that of the last restart request, {LATER}"),
        (EARLIER, "2024-01-01T01:00:00+01:00", False, "its time is not later than"),
        (EARLIER, "x" * 65, False, "it has 65 characters, and the maximum is 64"),
        (EARLIER, LATER, True, ""),
        (EARLIER, EARLIER, False, ""),
        (EARLIER, "2023", True, ""),
        ("any", EARLIER, True, ""),
        ("any", "x" * 64, True, ""),
        (FAR, EARLIER, True, ""),
        (EARLIER, FAR, True, ""),
        (LATER, "2024-01-01T00:00:00", True, ""),
    ],
    ids=[
        "an earlier time",
        "the same time in another zone",
        "a text that is too long",
        "a later time",
        "the same value",
        "a text that is no time",
        "a time after a text",
        "the longest text",
        "a time after one in the future, which must not be the last one",
        "a time in the future",
        "a time without a zone",
    ],
)
def test_a_request_is_a_new_value_that_is_no_earlier_time(
    observed: str, request_: str, warning: str, *, restarts: bool
) -> None:
    """Applying an old manifest, or reverting an edit, restarts nothing. The status never has more than 64 characters."""
    before = changed(started(spec(Worker=3)), status__observed_restart_request=observed)
    before = requested(before, request_)
    found = decide(before, *running())
    assert after(before, found).status.attempt == restarts
    assert after(before, found).status.observed_restart_request == (request_ if restarts else observed)
    problems = [(each.event.reason, each.event.message) for each in found.problems]
    assert [reason for reason, _ in problems] == ["RestartRequestIgnored"] * bool(warning)
    assert all(warning in message for _, message in problems)
    if restarts:
        assert not decide(after(before, found), *running()).problems


def test_a_long_value_that_an_older_release_has_recorded_leaves_the_status_and_restarts_nothing() -> None:
    """The next valid value is a request again. Before the start, a long value is not recorded either."""
    text = "x" * 250_000
    before = changed(started(spec(Worker=3)), status__observed_restart_request=text)
    found = synced(requested(before, text), *running())
    assert (found.status.attempt, found.status.observed_restart_request) == (0, "")
    assert synced(requested(found, "now"), *running()).status.attempt == 1
    new = started(spec(Worker=3), annotations=JobAnnotations(text))
    assert new.status.observed_restart_request == ""


def test_the_warning_about_a_request_ends_with_the_job() -> None:
    before = requested(started(spec(Worker=3)), "x" * 65)
    done = synced(before, *running(but={0: pod("Worker", 0, "Succeeded", 0)}))
    assert (true_of(done)[-1], decide(done).problems) == ("Succeeded", ())


def test_a_request_is_not_followed_again_after_an_older_release_dropped_it_from_the_status() -> None:
    """The attempt of the pods shows it. Pods that the older release created have none: then the job is restarted once more."""
    found = requested(started(spec(Worker=3)), "before the roll-back")
    mixed = synced(found, pod("Worker", 0), *running(attempt=2, but={0: None}))
    assert (mixed.status.attempt, mixed.status.attempt_history[0].reason) == (3, "RestartRequested")
    found = synced(found, *running(attempt=2))
    assert (found.status.attempt, found.status.observed_restart_request) == (2, "before the roll-back")
    assert not found.status.attempt_history
    assert synced(requested(found, "later"), *running(attempt=2), at_s=70).status.attempt == 3
    edited = synced(requested(found, "now"), *running(attempt=999_999_999))
    assert edited.status.attempt == 3, "a user wrote these labels"


def test_restarts_of_the_whole_job_are_delayed_as_a_kubelet_delays_those_of_a_container() -> None:
    """None before the first, then 10 s, doubled up to 5 min; none again after 10 min of running; none after a disruption."""
    found, now, delays = started(policy(RESTART_ALL, maxRestarts=99)), 60.0, []
    began = found.status.start_time
    for attempt in range(9):
        found = synced(found, *running(attempt=attempt, but={1: failed(1)}), at_s=now)
        assert found.status.attempt_history[-1].start_time == began, "the delay is no part of an attempt"
        due = found.status.next_restart_time
        delays.append(0 if due is None else (due - at(now)).total_seconds())
        early = decide(found, at_s=now + delays[-1] - 1)
        assert (names(early)[1] == []) is (delays[-1] > 0)
        if delays[-1]:
            assert early.requeue_after_s == 1
        now += delays[-1]
        began = at(now)
        assert names(decide(found, at_s=now))[1] == ALL
        found = synced(found, at_s=now)
        found = synced(found, *running(attempt=attempt + 1), at_s=now + 1)
        now += 700 if attempt == 7 else 5
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300, 0]


def test_an_operator_that_delays_no_restarts_drops_recorded_delays() -> None:
    """Those of the whole job, and of one replica. Its flag was set meanwhile."""
    whole = started(policy(RESTART_ALL, maxRestarts=99))
    for attempt in range(2):
        whole = synced(whole, *running(attempt=attempt, but={1: failed(1)}), at_s=60 + attempt)
        whole = synced(whole, at_s=60.5 + attempt)
    one = started(spec("ExitCode", Worker=3))
    for number in range(2):
        one = synced(one, *running(but={1: failed(1, exit_code=137, uid=f"try-{number}")}), at_s=60 + number)
    rest = running(but={1: None})
    for found, pods, missing in ((whole, (), ALL), (one, rest, ALL[1:2])):
        assert (names(decide(found, *pods, at_s=63))[1], found.status.next_restart_time is None) == ([], found is one)
        plan = decide(found, *pods, at_s=63, defaults=Defaults(delays=False))
        assert names(plan)[1] == missing
        status = after(found, plan).status
        assert (status.next_restart_time, [each.next_time for each in status.restarts if each.next_time]) == (None, [])


def test_the_delay_does_not_start_over_after_ten_minutes_in_which_the_job_did_not_run() -> None:
    """Its pods waited for nodes, say."""
    found = synced(synced(started(policy(RESTART_ALL)), *running(but={1: failed(1)})), at_s=61)
    found = synced(found, *running(attempt=1, but={1: failed(1, ended_s=899)}), at_s=900)
    assert found.status.next_restart_time == at(910)


def test_a_job_whose_earlier_pods_outlast_its_back_off_waits_for_them_and_not_for_a_time() -> None:
    """Their deletion brings the next sync; a time that is over would bring one after the other."""
    found = synced(started(policy(RESTART_ALL)), *running(but={1: failed(1)}))
    found = synced(synced(found, at_s=61), *running(attempt=1, but={1: failed(1)}), at_s=70)
    assert found.status.next_restart_time == at(80)
    left = of(1, pod("Worker", 0, terminating=True))
    assert decide(found, left, at_s=75).requeue_after_s == 5
    assert decide(found, left, at_s=81).requeue_after_s is None


def test_the_memory_of_a_later_attempt_wins() -> None:
    """Whichever of two processes wrote it, what an earlier attempt had finished is not finished any more."""
    early = JobStatus(finished_indices={"Worker": "0-1"})
    late = JobStatus(attempt=1, counted_restarts=1, finished_indices={"Worker": "2"}, begun=StartRecord(delay_s=10))
    early = msgspec.structs.replace(early, begun=StartRecord(all_ran=True))
    for merged in (merged_status(early, late), merged_status(late, early)):
        assert (merged.attempt, merged.counted_restarts, merged.finished_indices) == (1, 1, {"Worker": "2"})
        assert merged.begun == StartRecord(delay_s=10)


def test_a_job_whose_replicas_do_not_all_run_in_time_fails_and_says_which() -> None:
    """The time of creation counts, and once all have run at the same time it is over, whatever restarts then."""
    given = policy(RESTART_ALL | on(1)) | {}
    given["runPolicy"]["startDeadlineSeconds"] = 100
    found = synced(job(given, creation_timestamp=at(0)), at_s=0)
    waits = decide(found, *running(but={2: pod("Worker", 2, "Pending")}), at_s=60)
    assert waits.requeue_after_s == 41
    absent = Punctual({Sight(Fact.ABSENT, "mnist-worker-1"): 0})
    pods = running(but={2: pod("Worker", 2, "Pending"), 1: None})
    late = synced(after(found, waits), *pods, at_s=101, first_seen=absent)
    assert true_of(late)[-1] == "Failed"
    assert "2 did not, the first is mnist-worker-1: it has no pod, see the events" in late.status.conditions[-1].message
    assert late.status.begun is not None
    assert late.status.begun.ending is not None
    failure = late.status.begun.ending.failure
    assert failure is not None
    assert (failure.replica_type, failure.replica_index, failure.pod_name) == ("Worker", 1, "")
    assert failure.message == "did not run in time: it has no pod, see the events of the job"
    pulls = changed(pod("Worker", 2, "Pending"), status__container_statuses=PULLING)
    late = synced(after(found, waits), *running(but={2: pulls}), at_s=101)
    assert late.status.begun is not None
    assert late.status.begun.ending is not None
    failure = late.status.begun.ending.failure
    assert failure is not None
    assert (failure.pod_name, failure.reason) == ("mnist-worker-2", "StartDeadlineExceeded")
    assert failure.message == "did not run in time: container tensorflow: no such image"
    assert (failure.container_name, failure.exit_code) == ("", None)
    last = core.LastState(terminated=core.ContainerStateTerminated(exit_code=1, message="PermissionError: /data"))
    looping = core.ContainerStatus(name="fetch", restart_count=4, state=core.ContainerState(), last_state=last)
    failing = changed(pod("Worker", 2, "Pending"), status__init_container_statuses=(looping,))
    late = synced(after(found, waits), *running(but={2: failing}), at_s=101)
    assert late.status.conditions[-1].message.endswith("container fetch exited with code 1: PermissionError: /data")
    ran = synced(found, *running(), at_s=90)
    assert ran.status.begun is not None
    assert ran.status.begun.all_ran
    assert true_of(synced(ran, *running(but={2: pod("Worker", 2, "Pending")}), at_s=101))[-1] == "Running"


def state(name: str, reason: str = "", message: str = "", *, exit_code: int | None = None) -> core.ContainerStatus:
    """A container that waits for this reason or has terminated; with neither, it runs."""
    waiting = core.ContainerStateWaiting(reason, message) if reason else None
    terminated = core.ContainerStateTerminated(exit_code=exit_code) if exit_code is not None else None
    return core.ContainerStatus(name=name, state=core.ContainerState(waiting, terminated))


WORKS = state("tensorflow", "PodInitializing")
NATIVE = Container(name="proxy", restart_policy="Always")


@pytest.mark.parametrize(
    ("words", "node", "pod_spec", "status"),
    [
        ("not scheduled yet", "", {}, {}),
        ("not scheduled: SchedulerError: no plugin", "", {}, {"conditions": (
            Condition("PodScheduled", "False", "SchedulerError", "no plugin"),)}),
        ("it has scheduling gates: example.com/a, example.com/b", "", {
            "scheduling_gates": (core.Named("example.com/a"), core.Named("example.com/b"))}, {}),
        ("the kubelet of node n reported no container status", "n", {}, {}),
        ("init container fetch is running", "n", {}, {
            "init_container_statuses": (state("prepare", exit_code=0), state("fetch"), state("last", "PodInitializing")),
            "container_statuses": (WORKS,)}),
        ("init container fetch is waiting: ContainerCreating: no volume", "n", {}, {
            "init_container_statuses": (state("fetch", "ContainerCreating", "no volume"),), "container_statuses": (WORKS,)}),
        ("init container proxy has not started", "n", {"init_containers": (NATIVE,)}, {
            "init_container_statuses": (state("proxy"),), "container_statuses": (WORKS,)}),
        ("init container fetch is running", "n", {"init_containers": (NATIVE, Container(name="fetch"))}, {
            "init_container_statuses": (state("proxy"), state("fetch")), "container_statuses": (WORKS,)}),
        ("container tensorflow is waiting: ContainerCreating", "n", {}, {
            "container_statuses": (state("logs"), state("tensorflow", "ContainerCreating"))}),
        ("container tensorflow is waiting: PodInitializing", "n", {}, {"container_statuses": (WORKS,)}),
        ("its phase is Pending", "n", {}, {"container_statuses": (state("tensorflow"),)}),
    ],
)  # fmt: skip
def test_a_job_that_did_not_start_in_time_says_what_the_replica_waited_for(
    words: str, node: str, pod_spec: dict[str, Any], status: dict[str, Any]
) -> None:
    """Whatever its pod shows, as the condition, the event and the record of the end."""
    given = spec(Worker=2, runPolicy={"startDeadlineSeconds": 100})
    found = synced(job(given, creation_timestamp=at(0)), at_s=0)
    late = pod("Worker", 1, "Pending")
    late = msgspec.structs.replace(
        late,
        node=node,
        spec=msgspec.structs.replace(late.spec, **pod_spec),
        status=msgspec.structs.replace(late.status, **status),
    )
    plan = decide(found, pod("Worker", 0), late, at_s=101)
    assert plan.status is not None
    assert plan.status.conditions[-1].message.endswith(f"1 did not, the first is mnist-worker-1: {words}")
    assert plan.events[-1].message == plan.status.conditions[-1].message
    assert plan.status.begun is not None
    assert plan.status.begun.ending is not None
    failure = plan.status.begun.ending.failure
    assert failure is not None
    assert failure.message == f"did not run in time: {words}"


def test_a_start_deadline_counts_all_replicas_that_do_not_run_and_names_one_whose_time_is_over() -> None:
    """The pods of a job are not created in the same second."""
    given = spec(Worker=2, runPolicy={"startDeadlineSeconds": 100})
    found = synced(job(given, creation_timestamp=at(0)), at_s=0)
    later = changed(pod("Worker", 0, "Pending"), metadata__creation_timestamp=at(1))
    late = synced(found, later, pod("Worker", 1, "Pending"), at_s=101)
    assert "2 did not, the first is mnist-worker-1: not scheduled yet" in late.status.conditions[-1].message


def test_a_start_deadline_names_the_pod_group_for_which_the_pods_wait() -> None:
    given = spec(Worker=2, runPolicy={"startDeadlineSeconds": 100})
    waits = Gang(gang_scheduler("volcano"), pod_group("Pending", 2), known=True)
    found = synced(job(given, creation_timestamp=at(0)), at_s=0, gang=waits)
    absent = Punctual({Sight(Fact.ABSENT, f"mnist-worker-{index}"): 0 for index in range(2)})
    late = synced(found, at_s=101, gang=waits, first_seen=absent)
    assert late.status.conditions[-1].message.endswith("mnist-worker-0: its pod waits for the PodGroup of the job")


def test_a_job_that_has_run_is_not_late_when_its_record_is_lost() -> None:
    """A drained pod has just gone: without the record, it would count as waiting since the creation of the job."""
    given = policy(RESTART_ALL | on(1)) | {}
    given["runPolicy"]["startDeadlineSeconds"] = 100
    ran = synced(job(given, creation_timestamp=at(0)), *running(), at_s=10)
    lost = synced(changed(ran, status__begun=None), *running(but={2: None}), at_s=500)
    assert true_of(lost)[-1] == "Running"


def test_a_rule_may_restart_the_whole_job_that_did_not_start_in_time() -> None:
    """The next attempt has as long again."""
    given = policy(RESTART_ALL | {"onFailureReasons": ["StartDeadlineExceeded"]})
    given["runPolicy"]["startDeadlineSeconds"] = 100
    found = synced(job(given, creation_timestamp=at(0)), at_s=0)
    stuck = changed(pod("Worker", 2, "Pending"), status__container_statuses=PULLING)
    found = synced(found, *running(but={2: stuck}), at_s=101)
    (over,) = found.status.attempt_history
    assert (found.status.attempt, over.pod_name, over.reason) == (1, "mnist-worker-2", "StartDeadlineExceeded")
    assert "did not run in time: " in over.message
    assert "no such image" in over.message
    found = synced(found, at_s=102)
    absent = Punctual({Sight(Fact.ABSENT, "mnist-worker-2"): 120})  # the earlier pod was gone 19 s after it was deleted
    again = running(attempt=1, but={2: None})
    assert decide(found, *again, at_s=220, first_seen=absent).requeue_after_s == 1
    assert synced(found, *again, at_s=221, first_seen=absent).status.attempt == 2


def test_a_job_that_is_resumed_has_its_start_deadline_again() -> None:
    """Pods of before that still terminate do not count as running."""
    given = policy(RESTART_ALL | on(1))
    given["runPolicy"]["startDeadlineSeconds"] = 100
    ran = synced(synced(job(given, creation_timestamp=at(0)), at_s=0), *running(), at_s=10)
    given["runPolicy"]["suspend"] = True
    paused = synced(changed(ran, spec=job(given).spec), *running(), at_s=20)
    given["runPolicy"]["suspend"] = False
    left = [pod("Worker", index, terminating=True) for index in range(3)]
    resumed = synced(changed(paused, spec=job(given).spec), *left, at_s=30)
    assert true_of(synced(resumed, *running(but={2: pod("Worker", 2, "Pending")}), at_s=130))[-1] == "Running"
    assert true_of(synced(resumed, *running(but={2: pod("Worker", 2, "Pending")}), at_s=131))[-1] == "Failed"


def switched(found: TFJob, *pods: Pod, at_s: float, suspend: bool) -> TFJob:
    """The job after the sync that follows an edit of `suspend`."""
    given = policy(RESTART_ALL) | {"runPolicy": policy(RESTART_ALL)["runPolicy"] | {"suspend": suspend}}
    return synced(changed(found, spec=job(given).spec), *pods, at_s=at_s)


def test_each_execution_of_a_job_has_a_higher_number_also_after_a_suspension() -> None:
    """KEP-1282 of JobSet: Kueue evicts by suspending. A job that was created suspended begins with 0, one that ran does not."""
    queued = switched(job(policy(RESTART_ALL)), at_s=0, suspend=True)
    begun = switched(queued, at_s=5, suspend=False)
    assert (begun.status.execution_attempt, true_of(begun)) == (0, ["Created"])
    ran = synced(begun, *running(), at_s=10)
    again = switched(switched(ran, *running(), at_s=20, suspend=True), at_s=30, suspend=False)
    assert (again.status.execution_attempt, again.status.attempt) == (1, 0)
    restarted = synced(synced(again, *running(), at_s=40), *running(but={1: failed(1)}), at_s=50)
    assert (restarted.status.execution_attempt, restarted.status.attempt) == (2, 1)
    assert synced(restarted, *running(attempt=1), at_s=60).status.execution_attempt == 2


def test_pods_whose_operator_was_killed_before_it_wrote_a_status_were_an_execution() -> None:
    """In a burst the first pods precede the first status; a suspension sees only the pods."""
    paused = switched(job(policy(RESTART_ALL)), *running(), at_s=20, suspend=True)
    assert switched(paused, at_s=30, suspend=False).status.execution_attempt == 1


def test_the_number_of_an_execution_outlives_a_release_that_does_not_know_it() -> None:
    """Its status has lost it, and the labels of its pods have not, nor while they are suspended. No upgrade writes a status."""
    before = started(policy(RESTART_ALL))
    pods = [labelled(each, execution="5") for each in running(but={2: None})] + [pod("Worker", 2)]
    assert synced(before, *pods).status.execution_attempt == 5
    resumed = switched(switched(before, *pods, at_s=20, suspend=True), at_s=30, suspend=False)
    assert resumed.status.execution_attempt == 6
    written_by_a_user = [labelled(each, execution=str(MAX_ATTEMPT)) for each in running()]
    assert synced(before, *written_by_a_user).status.execution_attempt == 0
    older = changed(before, status=msgspec.structs.replace(before.status, attempt=3))
    assert decide(older, *running(attempt=3)).status is None
    assert synced(older, *running(attempt=3, but={1: of(3, failed(1))}), at_s=70).status.execution_attempt == 4


def test_a_resumption_that_was_not_written_is_counted_once() -> None:
    """The write that was lost is decided again, and no pod of it exists; that of a restart keeps its number."""
    ran = started(policy(RESTART_ALL))
    paused = switched(ran, *running(), at_s=20, suspend=True)
    resumed = switched(paused, at_s=30, suspend=False)
    lost = changed(paused, status=merged_status(paused.status, resumed.status))
    assert switched(lost, at_s=31, suspend=False).status.execution_attempt == 1
    queued = switched(job(policy(RESTART_ALL)), at_s=0, suspend=True)
    admitted = switched(queued, at_s=5, suspend=False)
    lost = changed(queued, status=merged_status(queued.status, admitted.status))
    assert switched(lost, at_s=6, suspend=False).status.execution_attempt == 0
    restarted = synced(ran, *running(but={1: failed(1)}), at_s=30)
    assert merged_status(ran.status, restarted.status).execution_attempt == 1


@pytest.mark.parametrize(("own", "created"), [("", ["mnist-worker-1"]), ("Never", [])])
def test_the_operator_restarts_after_success_only_what_the_kubelet_would_have_restarted(
    own: str, created: list[str]
) -> None:
    """A container's own restart policy overrides that of its pod, Always."""
    found = pod("Worker", 1, "Succeeded", 0)
    spec = msgspec.structs.replace(found.spec, containers=(Container(name="tensorflow", restart_policy=own),))
    done = changed(labelled(found, restart_policy="Always"), spec=spec)
    given = policy(RESTART_ALL | {"onFailureReasons": ["OOMKilled"]}, restart="Always") | {
        "successPolicy": "AllWorkers"
    }
    assert names(decide(started(given), *running(but={1: done})))[0] == created


IN_TIME: dict[str, Any] = {"action": "RestartReplica", "escalation": {"afterSeconds": 30, "action": "FailJob"}}
ELASTIC = {"enableDynamicWorker": True}
SUSPENDED = policy(IN_TIME) | {"runPolicy": policy(IN_TIME)["runPolicy"] | {"suspend": True}}
WRONG = {"tfReplicaSpecs": {"Worker": {"replicas": -1}}}


@pytest.mark.parametrize(
    ("first", "between", "then", "pods"),
    [
        (policy(IN_TIME), SUSPENDED, policy(IN_TIME), []),
        (policy(IN_TIME), WRONG, policy(IN_TIME), running(but={2: None})),
        (policy(IN_TIME) | ELASTIC, policy(IN_TIME, workers=2) | ELASTIC, None, running(2)),
        (
            policy(IN_TIME) | {"successPolicy": "AllWorkers"},
            None,
            None,
            running(but={2: pod("Worker", 2, "Succeeded", 0, uid="new")}),
        ),
    ],
    ids=["it was suspended", "it was held", "the replica is not wanted any more", "the replica has succeeded"],
)
def test_an_escalation_is_about_replicas_that_should_run(
    first: dict[str, Any], between: dict[str, Any] | None, then: dict[str, Any] | None, pods: list[Pod]
) -> None:
    found = synced(started(first), *running(but={2: failed(2)}))
    found = synced(found, *running(but={2: None}), at_s=61)
    if between is not None:
        found = synced(edited(found, between), *pods, at_s=65)
    if then is not None:
        found = edited(found, then)
    assert "Failed" not in true_of(synced(found, *pods, at_s=4000))


def test_the_time_of_an_escalation_goes_on_while_replacements_do_not_run() -> None:
    """Such as those that the kubelet rejects: none of them counts as a restart."""
    found = synced(started(policy(IN_TIME)), *running(but={2: failed(2)}))
    for number in range(3):
        rejected = pod("Worker", 2, "Failed", reason="UnexpectedAdmissionError", uid=f"new-{number}")
        found = synced(found, *running(but={2: rejected}), at_s=70 + 10 * number)
    assert true_of(found)[-1] == "Failed"


def test_a_pod_that_is_deleted_by_a_rule_has_had_its_decision() -> None:
    """Whatever takes it away meanwhile: a later rule about everything must not restart the whole job for it."""
    found = synced(started(policy({"action": "RestartReplica"} | on(42), RESTART_ALL)), *running(but={1: failed(1)}))
    dying = disrupted(changed(failed(1), metadata__deletion_timestamp=at(61)), "DeletionByTaintManager")
    assert synced(found, *running(but={1: dying}), at_s=62).status.attempt == 0


@pytest.mark.parametrize("matcher", [{}, {"onFailureReasons": ["StartDeadlineExceeded"]}])
def test_a_replica_that_has_no_pod_in_time_is_no_matter_of_rules_about_replicas(matcher: dict[str, Any]) -> None:
    """Such as one that a quota has no room for: nothing would ever happen."""
    given = policy({"action": "RestartReplica"} | matcher)
    given["runPolicy"]["startDeadlineSeconds"] = 100
    found = synced(job(given, creation_timestamp=at(0)), at_s=0)
    absent = Punctual({Sight(Fact.ABSENT, "mnist-worker-2"): 0})
    assert true_of(synced(found, *running(but={2: None}), at_s=500, first_seen=absent))[-1] == "Failed"


def test_a_new_process_does_not_know_since_when_a_replica_has_no_pod() -> None:
    """It may have had one that was evicted before it ran: its status says nothing of that. The first plan notes the absence."""
    given = policy({"action": "RestartReplica"} | on(42))
    given["runPolicy"]["startDeadlineSeconds"] = 100
    found = decide(job(given, creation_timestamp=at(0)), at_s=0)
    assert found.first_seen[Sight(Fact.ABSENT, "mnist-worker-2")] == 0
    begun = after(job(given, creation_timestamp=at(0)), found)
    later = decide(begun, *running(but={2: None}), at_s=500)
    assert (true_of(after(begun, later))[-1], later.requeue_after_s) == ("Running", 101)


@pytest.mark.parametrize(
    "other", [None, pod("Worker", 1, terminating=True)], ids=["in the back-off", "that is being deleted"]
)
def test_a_replica_is_not_late_while_its_restart_is_under_way(other: Pod | None) -> None:
    given = policy({"action": "RestartReplica"} | on(42))
    given["runPolicy"]["startDeadlineSeconds"] = 100
    young = changed(pod("Worker", 2, "Pending"), metadata__creation_timestamp=at(95))
    found = synced(job(given, creation_timestamp=at(0)), *running(but={2: young}), at_s=96)
    if other is None:
        found = synced(found, *running(but={2: young, 1: failed(1)}), at_s=110)
    assert "Failed" not in true_of(synced(found, *running(but={2: young, 1: other}), at_s=111))


def test_what_was_noted_and_not_written_yet_is_not_forgotten() -> None:
    """A request that a new job was created with, and that all replicas have run: both may be in a write that failed."""
    given = policy(RESTART_ALL) | {}
    given["runPolicy"]["startDeadlineSeconds"] = 100
    new = job(given, creation_timestamp=at(0), annotations=JobAnnotations("copied"))
    early = decide(new, at_s=0).status
    assert early is not None
    begun = changed(new, status=merged_status(new.status, early))
    assert synced(begun, at_s=1).status.attempt == 0
    written = synced(begun, *running(but={2: None}), at_s=50)
    ran = decide(written, *running(), at_s=60).status
    assert ran is not None
    merged = merged_status(written.status, ran).begun
    assert merged is not None
    assert merged.all_ran


@pytest.mark.parametrize("is_over", ["on hold", "suspended", "failed"])
def test_a_job_that_does_not_restart_any_more_says_no_time_of_its_next_restart(is_over: str) -> None:
    given = policy(RESTART_ALL)
    given["runPolicy"]["activeDeadlineSeconds"] = 90
    found = synced(started(given), *running(but={1: failed(1)}))
    found = synced(synced(found, at_s=61), *running(attempt=1, but={1: failed(1)}), at_s=85)
    assert found.status.next_restart_time == at(95)
    if is_over == "on hold":
        found = edited(found, WRONG)
    elif is_over == "suspended":
        found = edited(found, given | {"runPolicy": given["runPolicy"] | {"suspend": True}})
    found = synced(found, at_s=94)
    assert found.status.next_restart_time is None
    assert true_of(found)[-1] == {"on hold": "Restarting", "suspended": "Suspended", "failed": "Failed"}[is_over]


@pytest.mark.parametrize("kept", ["Keep", "Restart"])
def test_a_restart_changes_nothing_about_how_many_pods_are_placed_together(kept: str) -> None:
    """Neither while pods of the attempt before are left, nor in a back-off: the PodGroup counts what is created later."""
    gang = Gang(gang_scheduler("volcano"), pod_group("Running", 3))
    given = policy(RESTART_ALL, finishedReplicaPolicy=kept) | {"successPolicy": "AllWorkers"}
    pods = running(but={0: pod("Worker", 0, "Succeeded", 0), 1: failed(1)})
    assert decide(synced(started(given), *pods), *pods, at_s=61, gang=gang).resize_pod_group is None
    one_by_one = started(policy({"action": "RestartReplica"}))
    for number in range(2):
        one_by_one = synced(one_by_one, *running(but={1: failed(1, uid=f"{number}")}), at_s=60 + number)
    waits = decide(one_by_one, *running(but={1: None}), at_s=62, gang=gang)
    assert (waits.create_pods, waits.resize_pod_group) == ((), None)
