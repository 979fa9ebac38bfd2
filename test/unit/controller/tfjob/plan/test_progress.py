"""Plans of jobs with progressDeadlineSeconds: which logs are read, when a job is stalled, and what rules do about it."""

from typing import Any, Final

import pytest

from fakes.jobs import decide, job, pod, spec, started, synced, true_of
from fakes.objects import after, changed
from support.cases import for_each
from tfjob_operator.api.core import ContainerState, ContainerStateWaiting, ContainerStatus
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.conditions import FALSE, TRUE
from tfjob_operator.api.v1.types import JobCondition, TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.plan.silence import Logs, LogTarget, Silence
from tfjob_operator.controller.tfjob.plan.types import Plan

DEADLINE_S: Final = 600
WORKERS: Final = (pod("Worker", 0), pod("Worker", 1))
RULE: Final = {"action": "RestartAll", "onFailureReasons": ["ProgressDeadlineExceeded"]}


def given(*rules: dict[str, Any], **sizes: int) -> dict[str, Any]:
    """A specification with a progress deadline, by default of two workers; at most one restart of the whole job."""
    policy: dict[str, Any] = {"progressDeadlineSeconds": DEADLINE_S}
    if rules:
        policy["failurePolicy"] = {"maxRestarts": 1, "rules": list(rules)}
    return spec(runPolicy=policy, **(sizes or {"Worker": 2}))


def target(of: Pod) -> LogTarget:
    assert of.status.container_statuses is not None
    return LogTarget(of.metadata.name, of.metadata.uid, of.status.container_statuses[0].restart_count)


def logs(*silences: float | Silence, pods: tuple[Pod, ...] = WORKERS) -> Logs:
    """The silences of the logs of these pods."""
    found = [each if isinstance(each, Silence) else Silence(each, line="step 7") for each in silences]
    return Logs(dict(zip(map(target, pods), found, strict=False)))


SILENT: Final = logs(600, 700)
NEW_LINE: Final = logs(Silence(0, changed=True, line="step 8"), 700)


def stalled_of(tfjob: TFJob) -> JobCondition | None:
    return conditions.find(tfjob.status.conditions, "Stalled")


def reasons(found: Plan) -> list[str]:
    return [each.reason for each in found.events]


def targets(found: Plan) -> list[str]:
    assert found.log_watch is not None
    return [each.pod.removeprefix("mnist-") for each in found.log_watch.targets]


# Which logs are read.


def test_no_log_is_read_for_a_job_without_the_field() -> None:
    found = decide(started(spec(Worker=2), *WORKERS), *WORKERS, logs=SILENT)
    assert (found.log_watch, found.status) == (None, None)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"Worker": 2}, ["worker-0", "worker-1"]),
        ({"Worker": 2, "Chief": 1, "PS": 1}, ["chief-0", "ps-0", "worker-0", "worker-1"]),
        ({"Worker": 2, "PS": 2, "Evaluator": 1}, ["worker-0", "ps-0", "evaluator-0", "ps-1", "worker-1"]),
        ({"PS": 2}, ["ps-0", "ps-1"]),
        ({"Worker": 40, "Chief": 1}, ["chief-0", *(f"worker-{index}" for index in range(15))]),
        ({"Worker": 20, "PS": 20, "Master": 1}, ["master-0", *_pairs] if (_pairs := [
            f"{kind}-{index}" for index in range(8) for kind in ("ps", "worker")][:15]) else []),
    ],
    ids=str,
)  # fmt: skip
def test_the_deciding_replica_and_those_with_the_lowest_indices_are_observed(
    sizes: dict[str, int], expected: list[str]
) -> None:
    pods = [pod(kind, index) for kind, size in sizes.items() for index in range(size)]
    found = decide(started(given(**sizes), *pods), *pods)
    assert targets(found) == expected
    assert found.log_watch is not None
    assert not found.log_watch.is_paused


def test_replicas_that_have_succeeded_are_not_observed() -> None:
    spec = given(Worker=3) | {"successPolicy": "AllWorkers"}
    pods = (pod("Worker", 0, "Succeeded", 0), *(pod("Worker", index) for index in (1, 2)))
    found = decide(started(spec, *pods), *pods, logs=logs(600, 600, pods=pods[1:]))
    assert targets(found) == ["worker-1", "worker-2"]
    assert reasons(found) == ["ProgressDeadlineExceeded"]


def waiting(of: Pod) -> Pod:
    state = ContainerState(waiting=ContainerStateWaiting("CrashLoopBackOff"))
    return changed(of, status__container_statuses=(ContainerStatus("tensorflow", 1, state),))


NOT_RUNNING: Final = {
    "has no pod": (),
    "is pending": (pod("Worker", 1, "Pending"),),
    "restarts": (waiting(pod("Worker", 1, policy="Always")),),
    "is being deleted": (pod("Worker", 1, terminating=True),),
    "has no container status": (changed(pod("Worker", 1), status__container_statuses=None),),
}


@for_each("name", NOT_RUNNING)
def test_the_clock_stops_while_a_replica_does_not_run(name: str) -> None:
    """Whatever was observed before: others may wait for it."""
    pods = (WORKERS[0], *NOT_RUNNING[name])
    tfjob = started(given(), *WORKERS)
    found = decide(tfjob, *pods, logs=SILENT)
    assert found.log_watch is not None
    assert (targets(found), found.log_watch.is_paused) == (["worker-0"], True)
    assert stalled_of(after(tfjob, found)) is None


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        pytest.param({"suspend": True}, WORKERS, id="suspended"),
        pytest.param({}, (pod("Worker", 0, "Succeeded", 0), pod("Worker", 1)), id="ending"),
        pytest.param({"backoffLimit": "x"}, WORKERS, id="on hold"),
    ],
)
def test_no_log_is_read_of_a_job_that_should_not_run(spec: dict[str, Any], pods: tuple[Pod, ...]) -> None:
    tfjob = started(given(), *WORKERS)
    edited = given()
    edited["runPolicy"] |= spec
    tfjob = changed(job(edited, generation=2), status=tfjob.status)
    tfjob = synced(tfjob, *pods)
    found = decide(tfjob, *pods, logs=SILENT)
    assert found.log_watch is None
    assert stalled_of(after(tfjob, found)) is None


# When a job is stalled.


def test_a_job_stalls_when_all_observed_replicas_are_silent() -> None:
    """It stays Running, which stays the last condition."""
    tfjob = started(given(), *WORKERS)
    found = decide(tfjob, *WORKERS, logs=SILENT)
    stalled = after(tfjob, found)
    assert true_of(stalled) == ["Created", "Stalled", "Running"]
    message = (
        "TFJob mnist is stalled: no new log line for 600s in mnist-worker-0 .. mnist-worker-1; "
        "last line of mnist-worker-0: step 7"
    )
    (event,) = found.events
    assert (event.type, event.reason, event.message) == ("Warning", "ProgressDeadlineExceeded", message)
    condition = stalled_of(stalled)
    assert condition is not None
    assert (condition.reason, condition.message) == ("ProgressDeadlineExceeded", message)
    assert not found.delete_pods
    assert decide(stalled, *WORKERS, logs=logs(900, 1000)).status is None


@for_each("found", [logs(599, 900), logs(900), Logs({}), logs(900, 900, pods=(pod("Worker", 0, uid="x"), WORKERS[1]))])
def test_a_job_is_not_stalled_while_a_replica_is_not_known_to_be_silent(found: Logs) -> None:
    tfjob = started(given(), *WORKERS)
    assert decide(tfjob, *WORKERS, logs=found).status is None


def test_a_run_of_a_container_is_observed_by_pod_and_number_of_restarts() -> None:
    again = pod("Worker", 0, restarts=1, policy="Always")
    found = decide(started(given(), *WORKERS), again, WORKERS[1], logs=SILENT)
    assert found.log_watch is not None
    assert found.log_watch.targets[0] == LogTarget("mnist-worker-0", again.metadata.uid, 1)
    assert "ProgressDeadlineExceeded" not in reasons(found)


def test_a_line_that_is_not_quoted_is_left_out() -> None:
    found = decide(started(given(), *WORKERS), *WORKERS, logs=logs(Silence(600), Silence(600)))
    assert found.events[0].message.endswith("for 600s in mnist-worker-0 .. mnist-worker-1")


def stalled_job(spec: dict[str, Any] | None = None) -> TFJob:
    return synced(started(spec or given(), *WORKERS), *WORKERS, logs=SILENT)


def test_a_new_line_ends_a_stall() -> None:
    tfjob = stalled_job()
    found = decide(tfjob, *WORKERS, logs=NEW_LINE)
    condition = stalled_of(after(tfjob, found))
    assert condition is not None
    assert (condition.status, condition.reason, reasons(found)) == (FALSE, "TFJobProgressing", ["TFJobProgressing"])
    assert true_of(after(tfjob, found)) == ["Created", "Running"]
    again = synced(after(tfjob, found), *WORKERS, logs=SILENT)
    assert true_of(again) == ["Created", "Stalled", "Running"]


@for_each("found", [Logs({}), logs(0, 0), logs(599, 599), Logs({}, "forbidden")])
def test_a_stalled_job_stays_stalled_for_a_new_leader_until_a_new_line(found: Logs) -> None:
    """The first line that it reads may be the old one. Nor does a missing permission end a stall."""
    assert decide(stalled_job(), *WORKERS, logs=found).status is None


@pytest.mark.parametrize(
    ("change", "pods", "reason"),
    [
        pytest.param({"suspend": True}, WORKERS, "TFJobSuspended", id="suspended"),
        pytest.param({"progressDeadlineSeconds": None}, WORKERS, "TFJobProgressing", id="without the field"),
        pytest.param({}, (WORKERS[0],), "TFJobProgressing", id="a replica is recreated"),
        pytest.param({}, (pod("Worker", 0, "Succeeded", 0), WORKERS[1]), "TFJobSucceeded", id="succeeded"),
        pytest.param({}, (pod("Worker", 0, "Failed", 1), WORKERS[1]), "TFJobFailed", id="failed"),
    ],
)
def test_a_job_that_does_not_run_is_not_stalled(change: dict[str, Any], pods: tuple[Pod, ...], reason: str) -> None:
    tfjob, edited = stalled_job(), given()
    edited["runPolicy"] |= change
    tfjob = changed(job(edited, generation=2), status=tfjob.status)
    tfjob = synced(tfjob, *pods)
    condition = stalled_of(synced(tfjob, *pods))
    assert condition is not None
    assert (condition.status, condition.reason) == (FALSE, reason)
    assert tfjob.status.conditions[-1].type != "Stalled"


def test_a_missing_permission_is_reported_with_the_addon() -> None:
    found = decide(started(given(), *WORKERS), *WORKERS, logs=Logs({}, "pods/log is forbidden"))
    assert [(each.event.reason, each.event.message) for each in found.problems] == [
        ("LogsUnavailable", "pods/log is forbidden")
    ]


# What rules do.


def test_a_rule_restarts_a_stalled_job() -> None:
    tfjob = started(given(RULE), *WORKERS)
    found = decide(tfjob, *WORKERS, logs=SILENT)
    assert reasons(found) == ["ProgressDeadlineExceeded", "RestartedAllReplicas"]
    assert len(found.delete_pods) == 2
    restarted = after(tfjob, found)
    (attempt,) = restarted.status.attempt_history
    assert (attempt.reason, attempt.action, attempt.replica_type, attempt.replica_index) == (
        "ProgressDeadlineExceeded", "RestartAll", "Worker", 0,
    )  # fmt: skip
    assert "last line of mnist-worker-0: step 7" in attempt.message
    assert restarted.status.counted_restarts == 1
    condition = stalled_of(restarted)
    assert condition is not None
    assert (condition.status, condition.reason) == (FALSE, "TFJobRestarting")
    assert restarted.status.conditions[-1].type == "Restarting"
    leaving = decide(restarted, *WORKERS, logs=SILENT)
    assert leaving.log_watch is not None
    assert (leaving.log_watch.targets, leaving.log_watch.is_paused) == ((), True)
    assert after(restarted, leaving).status.attempt == 1


def test_a_stalled_job_that_may_not_restart_again_fails() -> None:
    tfjob = started(given(RULE), *WORKERS)
    tfjob = changed(tfjob, status__counted_restarts=1)
    failed = synced(tfjob, *WORKERS, logs=SILENT)
    (condition,) = [each for each in failed.status.conditions if each.type == "Failed"]
    assert "it was restarted as often as maxRestarts allows. Pod mnist-worker-0: no new log line" in condition.message
    assert true_of(failed) == ["Created", "Failed"]


def test_a_rule_fails_a_stalled_job() -> None:
    failed = synced(started(given(RULE | {"action": "FailJob"}), *WORKERS), *WORKERS, logs=SILENT)
    (condition,) = [each for each in failed.status.conditions if each.type == "Failed"]
    assert condition.reason == "PodFailurePolicy"
    assert "pod mnist-worker-0: no new log line for 600s" in condition.message


@for_each(
    "rule",
    [
        {"action": "RestartAll"},
        {"action": "RestartAll", "onFailureReasons": ["StartDeadlineExceeded"]},
        RULE | {"targetReplicaTypes": ["PS"]},
    ],
)
def test_no_rule_acts_on_a_stall_that_does_not_name_it_and_the_deciding_replica(rule: dict[str, Any]) -> None:
    """A rule that matches every failure was not written for jobs that may be in an evaluation."""
    spec = given(rule, PS=1, Worker=2)
    pods = (*WORKERS, pod("PS", 0))
    found = decide(started(spec, *pods), *pods, logs=logs(600, 700, 800, pods=pods))
    assert reasons(found) == ["ProgressDeadlineExceeded"]
    assert not found.delete_pods


def test_a_rule_that_is_added_to_a_stalled_job_acts() -> None:
    tfjob = stalled_job()
    edited = changed(job(given(RULE), generation=2), status=tfjob.status)
    found = decide(edited, *WORKERS, logs=SILENT)
    assert "RestartedAllReplicas" in reasons(found)


def test_a_stall_counts_on_no_node() -> None:
    """Which of the nodes is at fault is unknown."""
    spec = given(RULE)
    spec["runPolicy"]["nodeAvoidance"] = {}
    pods = tuple(changed(each, node="n0") for each in WORKERS)
    restarted = synced(started(spec, *pods), *pods, logs=SILENT)
    assert (restarted.status.attempt, restarted.status.avoided_nodes) == (1, ())


def test_a_success_comes_before_a_stall() -> None:
    spec = given(RULE, Chief=1, Worker=2)
    pods = (pod("Chief", 0, "Succeeded", 0), *WORKERS)
    assert true_of(synced(started(spec, *pods), *pods, logs=SILENT))[-1] == "Succeeded"


def test_conditions_of_a_stalled_job_are_in_an_order_that_old_clients_read() -> None:
    """Suspended, resumed and restarted: the last condition is never Stalled."""
    tfjob = stalled_job()
    statuses = [(each.type, each.status) for each in tfjob.status.conditions]
    assert statuses == [("Created", TRUE), ("Stalled", TRUE), ("Running", TRUE)]
    suspended = given()
    suspended["runPolicy"]["suspend"] = True
    tfjob = synced(changed(job(suspended, generation=2), status=tfjob.status), *WORKERS)
    tfjob = synced(changed(job(given(), generation=3), status=tfjob.status))
    assert tfjob.status.conditions[-1].type == "Created"
