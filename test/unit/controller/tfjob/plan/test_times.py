"""When a job starts and ends: `startTime`, `completionTime`, and what counts from them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from fakes.jobs import good_spec, job, pod, replica
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobCondition, JobStatus
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.plan.plan import plan

CREATED = JobCondition(type="Created", status="True", last_transition_time=EPOCH)
SUSPENDED = JobCondition(type="Suspended", status="True", last_transition_time=EPOCH)


def at(seconds: float) -> datetime:
    """So many seconds after EPOCH."""
    return EPOCH + timedelta(seconds=seconds)


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
