"""Limits, times, suspension, and what the status remembers: what a plan decides from more than the current pods."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from fakes.jobs import good_spec, job, names, pod, replica, service
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.core import ContainerState, ContainerStateTerminated
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobCondition, JobStatus, ReplicaStatus, TFJob
from tfjob_operator.controller.jobs.children import Pod, Service
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.tfjob.apply.executor import all_active
from tfjob_operator.controller.tfjob.plan.actions import NOTHING, Plan
from tfjob_operator.controller.tfjob.plan.plan import plan


def at(seconds: float) -> datetime:
    """So many seconds after EPOCH."""
    return EPOCH + timedelta(seconds=seconds)


class Life:
    """A job whose plans' statuses are written, one after the other."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.job = job(spec)

    def sync(self, pods: list[Pod], seconds: float = 0, services: list[Service] | None = None) -> Plan:
        """Plan at that time, and write the status."""
        decided = plan(self.job, good_spec(self.job), pods, services or [], at(seconds))
        if decided.status is not None:
            self.job = msgspec.structs.replace(self.job, status=decided.status)
        return decided

    def edit(self, **policy: Any) -> None:
        """Change the run policy."""
        spec = msgspec.json.decode(self.job.spec)
        spec["runPolicy"] = spec.get("runPolicy", {}) | policy
        self.job = TFJob(
            metadata=self.job.metadata, spec=msgspec.Raw(msgspec.json.encode(spec)), status=self.job.status
        )

    @property
    def status(self) -> JobStatus:
        """The status as it stands."""
        return self.job.status

    @property
    def true(self) -> list[str]:
        """The conditions that are True, in order."""
        return [condition.type for condition in self.status.conditions if condition.status == "True"]

    @property
    def message(self) -> str:
        """The message of the last condition."""
        return self.status.conditions[-1].message


def workers(count: int = 1, policy: str = "ExitCode", /, **run_policy: Any) -> dict[str, Any]:
    """Workers under a run policy."""
    return {"tfReplicaSpecs": {"Worker": replica(count, policy)}, "runPolicy": run_policy}


def killed(uid: str, index: int = 0) -> Pod:
    """A worker that ended with 137."""
    return pod("Worker", index, "Failed", 137, uid=uid)


# Back-off limit.


def test_a_replica_is_made_again_as_often_as_the_limit_says_and_no_more() -> None:
    """B36: limit 3 and always 137: exactly three new pods, then Failed; the count is in the status, not in memory."""
    life = Life(workers(backoffLimit=3))
    made = 0
    for attempt in range(4):
        decided = life.sync([killed(f"uid-{attempt}")])
        made += len(decided.delete_pods)
        life.job = msgspec.json.decode(msgspec.json.encode(life.job), type=TFJob)  # the operator starts anew
    assert made == 3
    assert life.true == [ConditionType.CREATED, ConditionType.FAILED]
    assert life.message.startswith("Job mnist has failed because it has reached the specified backoff limit")
    assert life.status.conditions[-1].reason == "JobFailed"
    assert decided.events == (JobEvent("Warning", "BackoffLimitExceeded", life.message),)
    assert life.status.completion_time == EPOCH


def test_restarts_in_place_count_against_the_limit() -> None:
    """B37: the sum over all replicas, whoever restarts them."""
    life = Life(workers(2, "OnFailure", backoffLimit=3))
    life.sync([pod("Worker", 0, restarts=2), pod("Worker", 1, restarts=1)])
    assert ConditionType.RUNNING in life.true
    life.sync([pod("Worker", 0, restarts=2), pod("Worker", 1, restarts=2)])
    assert life.true == [ConditionType.CREATED, ConditionType.FAILED]


def test_a_limit_of_zero_fails_at_the_first_restart() -> None:
    """B37: not before, and not later."""
    life = Life(workers(1, "OnFailure", backoffLimit=0))
    life.sync([pod("Worker", 0)])
    assert ConditionType.FAILED not in life.true
    life.sync([pod("Worker", 0, restarts=1)])
    assert ConditionType.FAILED in life.true


def test_disruptions_are_made_good_without_counting() -> None:
    """B38: evictions never use up the limit."""
    life = Life(workers(1, "OnFailure", backoffLimit=0))
    for number in range(5):
        decided = life.sync([pod("Worker", 0, "Failed", reason="Evicted", uid=f"uid-{number}", policy="OnFailure")])
        assert len(decided.delete_pods) == 1
    assert ConditionType.FAILED not in life.true
    assert life.status.restarts == ()


def test_a_disrupted_pod_is_made_again_whatever_its_process_answered_to_the_sigterm() -> None:
    """B38: under ExitCode a permanent code ends the job, but not the code of a pod that the cluster took away."""
    life = Life(workers(1, "ExitCode", backoffLimit=0))
    decided = life.sync([pod("Worker", 0, "Failed", 1, reason="Preempting")])
    assert len(decided.delete_pods) == 1
    assert ConditionType.FAILED not in life.true
    assert life.status.restarts == ()


def test_an_orderly_end_of_a_pod_that_the_cluster_took_away_is_no_success() -> None:
    """B38: whoever saves a checkpoint on SIGTERM and exits with 0 has not finished."""
    life = Life(workers(1, "OnFailure"))
    decided = life.sync([pod("Worker", 0, "Failed", 0, reason="Evicted", policy="OnFailure")])
    assert len(decided.delete_pods) == 1
    assert life.status.finished_indices == {}


@pytest.mark.parametrize(("ended_s", "finished"), [(-1, {"Worker": "0"}), (0, {}), (1, {})])
def test_only_an_end_before_the_deletion_is_a_success_of_a_pod_that_goes(
    ended_s: float, finished: dict[str, str]
) -> None:
    """B42: a job that was suspended while it trained goes on when it is resumed, and is not done."""
    life = Life(workers(1, "Always"))
    life.sync([pod("Worker", 0)])
    life.edit(suspend=True)
    life.sync([pod("Worker", 0)])
    life.sync([pod("Worker", 0, "Succeeded", 0, terminating=True, ended_s=ended_s)])
    assert life.status.finished_indices == finished
    life.edit(suspend=False)
    decided = life.sync([])
    assert (names(decided)["create pods"] == []) is bool(finished)
    assert (ConditionType.SUCCEEDED in life.true) is bool(finished)


@pytest.mark.parametrize("reason", ["UnexpectedAdmissionError", "OutOfcpu", "OutOfnvidia.com/gpu", "NodeAffinity"])
def test_a_pod_that_its_node_turned_away_is_made_again_without_counting(reason: str) -> None:
    """B39: nothing of it has run, so there is no exit code that could call its end permanent."""
    life = Life(workers(1, "ExitCode", backoffLimit=0))
    assert len(life.sync([pod("Worker", 0, "Failed", reason=reason)]).delete_pods) == 1
    assert ConditionType.FAILED not in life.true
    assert life.status.restarts == ()


def test_a_pod_that_has_run_was_not_turned_away() -> None:
    """B39: a permanent exit code is permanent, whatever reason stands beside it."""
    life = Life(workers(1, "ExitCode"))
    life.sync([pod("Worker", 0, "Failed", 1, reason="NodeAffinity")])
    assert ConditionType.FAILED in life.true


def test_limits_of_centuries_are_no_limits() -> None:
    """The greatest number of the API, which some write for "never", overflows no date."""
    forever = 2**63 - 1
    life = Life(workers(1, "Never", activeDeadlineSeconds=forever, ttlSecondsAfterFinished=forever))
    assert life.sync([pod("Worker", 0)]).requeue_after_s == pytest.approx(forever)
    life.sync([pod("Worker", 0, "Succeeded", 0)], 1)
    assert life.true[-1] == ConditionType.SUCCEEDED
    assert life.sync([pod("Worker", 0, "Succeeded", 0)], 2).requeue_after_s == pytest.approx(forever)


@pytest.mark.parametrize(
    ("policy", "left"), [("None", ["mnist-worker-2"]), ("Running", ["mnist-worker-2"]), ("All", [])]
)
def test_scaling_a_finished_job_takes_no_pod_that_its_clean_up_policy_keeps(policy: str, left: list[str]) -> None:
    """B54: the log of a replica that has ended stays; one that would run on does not."""
    life = Life(workers(3, "Never", cleanPodPolicy=policy))
    pods = [pod("Worker", 0, "Succeeded", 0), pod("Worker", 1), pod("Worker", 2, "Succeeded", 0)]
    life.sync(pods)
    life.job = msgspec.structs.replace(life.job, spec=job(workers(1, "Never", cleanPodPolicy=policy)).spec)
    taken = {deletion.pod.metadata.name for deletion in life.sync(pods).delete_pods}
    assert "mnist-worker-1" in taken
    assert [each.metadata.name for each in pods[2:] if each.metadata.name not in taken] == left


@pytest.mark.parametrize(("dynamic", "failed"), [(True, False), (False, True)])
def test_a_lost_worker_of_an_elastic_job_does_not_fail_it(dynamic: bool, failed: bool) -> None:
    """B50: workers come and go, even under the policy Never."""
    life = Life(workers(2, "Never") | {"enableDynamicWorker": dynamic})
    decided = life.sync([pod("Worker", 0), pod("Worker", 1, "Failed", reason="Evicted")])
    assert (ConditionType.FAILED in life.true) is failed
    assert [deletion.pod.metadata.name for deletion in decided.delete_pods] == ([] if failed else ["mnist-worker-1"])


def test_what_a_pod_said_of_its_end_is_reported_before_it_is_deleted() -> None:
    """B57: its log goes with it."""
    lost = pod("Worker", 0, "Failed", 137)
    (status,) = lost.status.container_statuses or ()
    state = ContainerState(terminated=ContainerStateTerminated(137, reason="OOMKilled", message="epoch 3\n"))
    told = msgspec.structs.replace(status, state=state)
    lost = msgspec.structs.replace(lost, status=msgspec.structs.replace(lost.status, container_statuses=(told,)))
    (deletion,) = Life(workers()).sync([lost]).delete_pods
    assert deletion.event == JobEvent(
        "Normal", "ExitedWithCode", "Pod: ns.mnist-worker-0 exited with code 137: OOMKilled: epoch 3"
    )


# Deadline.


def test_a_job_that_is_active_too_long_fails_on_time() -> None:
    """B46: by a timer, not by the next event; each plan says when to look again."""
    life = Life(workers(activeDeadlineSeconds=60))
    assert life.sync([pod("Worker", 0)], 0.9).requeue_after_s == pytest.approx(60.1)
    assert life.sync([pod("Worker", 0)], 60.8).requeue_after_s == pytest.approx(0.2)  # startTime has lost the 0.9 s
    assert ConditionType.FAILED not in life.true
    ended = life.sync([pod("Worker", 0)], 61)
    assert life.true == [ConditionType.CREATED, ConditionType.FAILED]
    assert life.message == "Job mnist has failed because it was active longer than specified deadline"
    assert life.status.conditions[-1].reason == "JobFailed"
    assert ended.events == (JobEvent("Warning", "DeadlineExceeded", life.message),)


def test_an_edited_deadline_counts_from_the_same_start() -> None:
    """B46: lengthened, then shortened below what has passed."""
    life = Life(workers(activeDeadlineSeconds=60))
    life.sync([pod("Worker", 0)], 0)
    life.edit(activeDeadlineSeconds=120)
    assert life.sync([pod("Worker", 0)], 90).requeue_after_s == pytest.approx(31)
    life.edit(activeDeadlineSeconds=80)
    life.sync([pod("Worker", 0)], 91)
    assert ConditionType.FAILED in life.true


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_a_job_that_ran_into_a_limit_leaves_nothing_running(policy: str) -> None:
    """B47: whatever the clean-up policy; what has ended stays unless the policy is All."""
    life = Life(workers(2, activeDeadlineSeconds=60, cleanPodPolicy=policy))
    pods = [pod("Worker", 0), pod("Worker", 1, "Succeeded", 0)]
    life.sync(pods, 0)
    life.sync(pods, 61)
    gone = ["mnist-worker-0"] if policy != "All" else ["mnist-worker-0", "mnist-worker-1"]
    assert names(life.sync(pods, 62))["delete pods"] == gone
    assert life.status.replica_statuses == {"Worker": ReplicaStatus(active=0, succeeded=1)}


# TTL.


def test_a_finished_job_is_deleted_when_its_time_has_come() -> None:
    """B45, B48: by a timer, on time; also when no sync came at the moment itself."""
    life = Life(workers(ttlSecondsAfterFinished=60))
    done = [pod("Worker", 0, "Succeeded", 0)]
    life.sync(done, 0)
    assert life.sync(done, 1) == Plan(requeue_after_s=60)
    assert life.sync(done, 60.75) == Plan(requeue_after_s=0.25)  # the condition may be of 0.9 s, rounded down
    assert life.sync(done, 61) == Plan(delete_job=True)
    assert life.sync(done, 5000) == Plan(delete_job=True)


def test_a_ttl_that_is_edited_after_the_end_is_honoured() -> None:
    """B45: longer, shorter, or taken away."""
    life = Life(workers(ttlSecondsAfterFinished=60))
    done = [pod("Worker", 0, "Succeeded", 0)]
    life.sync(done, 0)
    life.edit(ttlSecondsAfterFinished=600)
    assert not life.sync(done, 61).delete_job
    life.edit(ttlSecondsAfterFinished=None)
    assert life.sync(done, 10_000) == NOTHING
    life.edit(ttlSecondsAfterFinished=0)
    assert life.sync(done, 10_000).delete_job


@pytest.mark.parametrize(
    ("pods", "seconds", "policy"),
    [
        pytest.param([pod("Worker", 0, "Succeeded", 0)], 0, {}, id="succeeded"),
        pytest.param([pod("Worker", 0, "Failed", 1)], 0, {}, id="failed"),
        pytest.param([pod("Worker", 0)], 11, {"activeDeadlineSeconds": 10}, id="deadline"),
        pytest.param([killed("x")], 0, {"backoffLimit": 0}, id="backoff limit"),
    ],
)
def test_every_end_has_a_time_from_which_the_ttl_counts(
    pods: list[Pod], seconds: float, policy: dict[str, int]
) -> None:
    """B44: earlier operators crashed where completionTime was missing."""
    life = Life(workers(ttlSecondsAfterFinished=1, **policy))
    life.sync([], 0)
    life.sync(pods, seconds)
    assert life.status.completion_time == at(seconds)
    assert life.sync(pods, seconds + 2).delete_job


# Suspension.


def test_a_job_that_is_created_suspended_makes_nothing_and_has_not_started() -> None:
    """B49: Kueue's contract: Created and Suspended, no startTime, no children."""
    life = Life(workers(suspend=True, ttlSecondsAfterFinished=0, activeDeadlineSeconds=1))
    decided = life.sync([], 0)
    assert names(decided)["create pods"] == []
    assert life.true == [ConditionType.CREATED, ConditionType.SUSPENDED]
    assert life.status.start_time is None
    assert life.status.replica_statuses == {"Worker": ReplicaStatus()}
    assert decided.events == (JobEvent("Normal", "TFJobSuspended", "TFJob mnist is suspended."),)
    assert life.sync([], 1000) == NOTHING  # B49: neither the TTL nor the deadline counts


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_suspending_takes_every_pod_and_service_whatever_the_clean_up_policy(policy: str) -> None:
    """B74: active reaches 0, Running is False, the start time stays until the job is resumed."""
    life = Life(workers(2, "OnFailure", cleanPodPolicy=policy))
    pods, services = [pod("Worker", 0), pod("Worker", 1, "Pending")], [service("Worker", 0), service("Worker", 1)]
    life.sync(pods, 0, services)
    life.edit(suspend=True)
    decided = life.sync(pods, 5, services)
    assert names(decided)["delete pods"] == ["mnist-worker-0", "mnist-worker-1"]
    assert names(decided)["delete services"] == ["mnist-worker-0", "mnist-worker-1"]
    assert life.true == [ConditionType.CREATED, ConditionType.SUSPENDED]
    assert life.status.start_time == EPOCH
    assert life.status.replica_statuses == {"Worker": ReplicaStatus(active=2)}
    life.sync([pod("Worker", 0, terminating=True)], 6)
    assert life.status.replica_statuses == {"Worker": ReplicaStatus(active=1)}
    life.sync([], 7)
    assert life.status.replica_statuses == {"Worker": ReplicaStatus()}
    assert life.sync([], 8) == NOTHING


def test_a_resumed_job_starts_anew_and_its_last_condition_is_true() -> None:
    """B35, B74: pods are made, the start time is that of the resumption, and STATE does not show Suspended."""
    life = Life(workers(activeDeadlineSeconds=60))
    life.sync([pod("Worker", 0)], 0)
    life.edit(suspend=True)
    life.sync([], 50)
    life.edit(suspend=False)
    decided = life.sync([], 1000)
    assert names(decided)["create pods"] == ["mnist-worker-0"]
    assert life.status.start_time == at(1000)
    assert decided.requeue_after_s == pytest.approx(61)
    assert [event.reason for event in decided.events] == ["TFJobResumed"]
    assert life.status.conditions[-1].status == "True"
    assert ConditionType.SUSPENDED not in life.true
    life.sync([pod("Worker", 0)], 1001)
    assert life.true == [ConditionType.CREATED, ConditionType.RUNNING]


def test_a_suspended_job_that_is_suspended_again_tells_it_again() -> None:
    """Each transition is one event; a sync in between is none."""
    life = Life(workers())
    told = []
    for second, suspended in enumerate([False, True, True, False, True]):
        life.edit(suspend=suspended)
        told += [event.reason for event in life.sync([], second).events]
    assert told == ["TFJobSuspended", "TFJobResumed", "TFJobSuspended"]


def test_a_finished_job_can_not_be_suspended() -> None:
    """Terminal is final."""
    life = Life(workers())
    life.sync([pod("Worker", 0, "Succeeded", 0)], 0)
    life.edit(suspend=True)
    life.sync([pod("Worker", 0, "Succeeded", 0)], 1)
    assert life.true == [ConditionType.CREATED, ConditionType.SUCCEEDED]


# Memory of what has succeeded.


def all_workers(count: int) -> dict[str, Any]:
    """A job that succeeds when all workers have."""
    return workers(count) | {"successPolicy": "AllWorkers"}


def test_a_replica_that_has_succeeded_is_never_run_again() -> None:
    """B42: its pod is deleted, by a drain or a person: it is not made again, and the job succeeds when the others do."""
    life = Life(all_workers(3))
    life.sync([pod("Worker", 0), pod("Worker", 1, "Succeeded", 0), pod("Worker", 2)], 0)
    assert life.status.finished_indices == {"Worker": "1"}
    decided = life.sync([pod("Worker", 0), pod("Worker", 2)], 1)
    assert names(decided)["create pods"] == []
    assert life.status.replica_statuses == {"Worker": ReplicaStatus(active=2, succeeded=1)}
    life.sync([pod("Worker", 0, "Succeeded", 0), pod("Worker", 2, "Succeeded", 0)], 2)
    assert life.true == [ConditionType.CREATED, ConditionType.SUCCEEDED]
    assert life.status.finished_indices == {"Worker": "0-2"}


def test_what_has_succeeded_stays_so_over_a_suspension() -> None:
    """Its pod is deleted with the others, and is not made again."""
    life = Life(all_workers(2))
    life.sync([pod("Worker", 0, "Succeeded", 0), pod("Worker", 1)], 0)
    life.edit(suspend=True)
    life.sync([], 1)
    life.edit(suspend=False)
    assert names(life.sync([], 2))["create pods"] == ["mnist-worker-1"]


def test_a_chief_whose_pod_vanished_after_its_success_has_succeeded() -> None:
    """`finishedIndices` counts as its pod would."""
    life = Life({"tfReplicaSpecs": {"Worker": replica(2)}})
    remembered = msgspec.structs.replace(life.status, finished_indices={"Worker": "0"})
    life.job = msgspec.structs.replace(life.job, status=remembered)
    life.sync([pod("Worker", 1)], 0)
    assert ConditionType.SUCCEEDED in life.true


CREATED = JobCondition(type="Created", status="True", last_transition_time=EPOCH)
SUSPENDED = JobCondition(type="Suspended", status="True", last_transition_time=EPOCH)


def created(found: Pod, seconds: float) -> Pod:
    """The pod, created then."""
    meta = msgspec.structs.replace(found.metadata, creation_timestamp=at(seconds))
    return msgspec.structs.replace(found, metadata=meta)


def status_after(spec: dict[str, Any], pods: list[Pod], seconds: float, before: JobStatus | None = None) -> JobStatus:
    """The status that is planned then."""
    tfjob = job(spec, status=before or JobStatus(conditions=(CREATED,), start_time=EPOCH))
    found = plan(tfjob, good_spec(tfjob), pods, [], at(seconds)).status
    assert found is not None
    return found


def spec(count: int = 1, kind: str = "Worker", policy: str = "Never", **rest: Any) -> dict[str, Any]:
    """A job of one type."""
    return {"tfReplicaSpecs": {kind: replica(count, policy)}} | rest


def test_a_new_leader_takes_the_creation_of_the_oldest_pod_as_the_start() -> None:
    """Its predecessor created pods in a burst, and was killed before it wrote the first status."""
    pods = [created(pod("Worker", 0), 20), created(pod("Worker", 1), 10)]
    assert status_after(spec(3), pods, 60.5, JobStatus()).start_time == at(10)
    assert status_after(spec(3), [], 60.5, JobStatus()).start_time == at(60)
    ahead = [created(pod("Worker", 0), 90)]
    assert status_after(spec(3), ahead, 60.5, JobStatus()).start_time == at(60)
    leaving = [created(pod("Worker", 0, terminating=True), 10)]
    assert status_after(spec(3), leaving, 60.5, JobStatus()).start_time == at(60)


def test_a_resume_sets_the_start_anew_also_beside_pods_that_were_not_deleted_yet() -> None:
    """The operator was killed between the status that said Suspended and the deletes."""
    before = JobStatus(conditions=(CREATED, SUSPENDED), start_time=EPOCH)
    assert status_after(spec(), [created(pod("Worker", 0), 5)], 60.5, before).start_time == at(60)


def done(index: int, seconds: float | None, kind: str = "Worker") -> Pod:
    """A replica that succeeded then."""
    return pod(kind, index, "Succeeded", 0, ended_s=seconds)


def lost(index: int, seconds: float | None, code: int = 1) -> Pod:
    """A replica that failed then."""
    return pod("Worker", index, "Failed", code, ended_s=seconds)


@pytest.mark.parametrize(
    ("job_spec", "pods", "seconds"),
    [
        pytest.param(spec(kind="Chief"), [done(0, 40, "Chief")], 40, id="the chief's"),
        pytest.param(spec(2), [done(0, 40), done(1, 50)], 40, id="worker 0's"),
        pytest.param(spec(2, successPolicy="AllWorkers"), [done(0, 50), done(1, 40)], 50, id="the last worker's"),
        pytest.param(spec(2, "PS"), [done(0, 40, "PS"), done(1, 50, "PS")], 50, id="the last of all"),
        pytest.param(spec(2), [pod("Worker", 0), lost(1, 40)], 40, id="the failed one's"),
        pytest.param(spec(2), [lost(0, 50), lost(1, 40)], 40, id="the first failed one's"),
        pytest.param(spec(), [done(0, -5)], 0, id="not before the start"),
        pytest.param(spec(), [done(0, 95)], 90, id="not after now"),
        pytest.param(spec(), [done(0, None)], 90, id="no time is shown"),
        pytest.param(spec(), [pod("Worker", 0, "Failed", reason="NodeLost")], 90, id="no container is shown"),
        pytest.param(spec(2, successPolicy="AllWorkers"), [done(0, 40)], 90, id="a pod is gone"),
        pytest.param(spec(activeDeadlineSeconds=80), [pod("Worker", 0), done(1, 40)], 90, id="the deadline's"),
        pytest.param(spec(policy="ExitCode", backoffLimit=0), [lost(0, 40, 137)], 90, id="the backoff limit's"),
    ],
)
def test_a_job_is_complete_when_the_container_that_decided_ended(
    job_spec: dict[str, Any], pods: list[Pod], seconds: float
) -> None:
    """However late the operator sees it; an end that no container decided has the time of its sync."""
    before = JobStatus(conditions=(CREATED,), start_time=EPOCH, finished_indices={"Worker": "1"})
    if "AllWorkers" not in str(job_spec):
        before = msgspec.structs.replace(before, finished_indices={})
    after = status_after(job_spec, pods, 90.5, before)
    assert after.completion_time == at(seconds)
    assert after.conditions[-1].type in {ConditionType.SUCCEEDED, ConditionType.FAILED}
    assert after.conditions[-1].last_transition_time == at(90)


def test_a_failed_init_container_decides_when_no_other_has_run() -> None:
    """The training container is then still waiting, and has no time."""
    found = pod("Worker", 0, "Failed")
    (init,) = lost(0, 40).status.container_statuses or ()
    status = msgspec.structs.replace(found.status, init_container_statuses=(init,))
    assert status_after(spec(), [msgspec.structs.replace(found, status=status)], 90).completion_time == at(40)


def test_no_job_is_complete_before_it_started_whatever_the_clock_of_the_leader_before() -> None:
    """That was an hour ahead: the job has run for no time, and not for less."""
    before = JobStatus(conditions=(CREATED,), start_time=at(3600))
    assert status_after(spec(), [done(0, 40)], 90, before).completion_time == at(3600)
    assert status_after(spec(policy="ExitCode", backoffLimit=0), [lost(0, 9, 137)], 90, before).completion_time == at(
        3600
    )


def test_the_ttl_counts_from_the_write_of_the_end_and_not_from_the_end() -> None:
    """The job ended while no operator ran: whoever looks for it finds it for its whole TTL."""
    wanted = spec(runPolicy={"ttlSecondsAfterFinished": 60})
    pods = [done(0, 40)]
    ended = job(wanted, status=status_after(wanted, pods, 5000.5))
    assert ended.status.completion_time == at(40)
    assert not plan(ended, good_spec(ended), pods, [], at(5060.9)).delete_job
    assert plan(ended, good_spec(ended), pods, [], at(5061)).delete_job


@pytest.mark.parametrize("ttl_s", [0, 1])
def test_a_ttl_of_zero_is_due_at_once(ttl_s: int) -> None:
    """Nothing has to be rounded up there."""
    wanted = spec(runPolicy={"ttlSecondsAfterFinished": ttl_s})
    ended = job(wanted, status=status_after(wanted, [done(0, 40)], 90.5))
    assert plan(ended, good_spec(ended), [done(0, 40)], [], at(90.6)).delete_job is (ttl_s == 0)


@pytest.mark.parametrize(
    ("active", "wanted", "answer"),
    [
        ({"PS": 1, "Worker": 4}, {"PS": 1, "Worker": 4}, True),
        ({"PS": 1, "Worker": 3}, {"PS": 1, "Worker": 4}, False),
        ({"Worker": 4}, {"PS": 1, "Worker": 4}, False),
        ({"Worker": 4}, {"PS": 0, "Worker": 4}, True),
        ({"Worker": 5}, {"Worker": 4}, True),
    ],
)
def test_all_replicas_are_active_when_each_type_has_as_many_as_it_wants(
    active: dict[str, int], wanted: dict[str, int], answer: bool
) -> None:
    """U12: then no further start is to be waited for. While a job is scaled down there may be more."""
    status = JobStatus(replica_statuses={name: ReplicaStatus(active=number) for name, number in active.items()})
    assert all_active(status, wanted) is answer
