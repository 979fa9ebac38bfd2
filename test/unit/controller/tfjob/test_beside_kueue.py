"""Jobs beside Kueue 0.19.2: what the operator does on objects that were recorded there (test/data/recordings)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from fakes.jobs import good_spec
from fakes.recordings import kueue
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.tfjob.plan.plan import plan

if TYPE_CHECKING:
    from tfjob_operator.controller.tfjob.plan.actions import Plan

NOW = datetime(2026, 11, 24, 7, tzinfo=UTC)


def decided(body: dict[str, Any], pods: list[dict[str, Any]]) -> Plan:
    """What the operator plans for a job with these pods."""
    job = job_of(body)
    return plan(job, good_spec(job), msgspec.convert(pods, list[Pod]), (), NOW)


def job_of(body: dict[str, Any]) -> TFJob:
    """A job as the operator reads it."""
    return msgspec.json.decode(msgspec.json.encode(body), type=TFJob)


def test_while_a_job_is_suspended_every_pod_that_has_not_ended_is_active() -> None:
    """Kueue gives its quota away when no pod is active: the next job ran beside pods that took 5 s to stop."""
    job: dict[str, Any] = {}
    pods: dict[str, dict[str, Any]] = {}
    most_terminating = 0
    for seen in kueue("suspension"):
        if seen.resource == "tfjobs":
            job = seen.object
        elif seen.resource == "pods" and seen.event == "DELETED":
            del pods[seen.object["metadata"]["uid"]]
        elif seen.resource == "pods":
            pods[seen.object["metadata"]["uid"]] = seen.object
        if not job or not job["spec"]["runPolicy"]["suspend"]:
            continue
        there = [each for each in pods.values() if each["status"]["phase"] not in {"Succeeded", "Failed"}]
        status = decided(job, [*pods.values()]).status or job_of(job).status
        assert sum(each.active for each in status.replica_statuses.values()) == len(there)
        terminating = [each for each in there if "deletionTimestamp" in each["metadata"]]
        most_terminating = max(most_terminating, len(terminating))
    assert most_terminating == 3, "the recording proves nothing"
