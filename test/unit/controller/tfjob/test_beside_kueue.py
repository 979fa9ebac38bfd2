"""Jobs beside Kueue 0.19.2: what the operator does on objects that were recorded there (test/data/recordings)."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from fakes.jobs import decide
from fakes.recorder import FakeRecorder, job_events
from fakes.recordings import kueue
from tfjob_operator.api.meta import Meta
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import JobStatus, TFJob
from tfjob_operator.controller.alpha.batch_jobs import BatchJob, Children
from tfjob_operator.controller.alpha.observe import problems_of, replicas_of
from tfjob_operator.controller.jobs.children import Pod
from tfjob_operator.controller.jobs.pods import StartProblem
from tfjob_operator.controller.tfjob.plan.types import Plan

GANG = next(seen.object for seen in kueue("gates") if seen.object["metadata"]["name"] == "gang")


def decided(body: dict[str, Any], pods: Iterable[dict[str, Any]] = ()) -> Plan:
    """What the operator plans for a job with these pods."""
    return decide(msgspec.json.decode(msgspec.json.encode(body), type=TFJob), *msgspec.convert([*pods], list[Pod]))


def reported(problems: Iterable[StartProblem]) -> list[tuple[str, str, str]]:
    """The events about these problems, if nothing was reported before."""
    recorder = FakeRecorder()
    job_events(recorder).report(Meta(name="mnist", namespace="ns", uid="uid"), tuple(problems))
    return recorder.events


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
        status = decided(job, pods.values()).status or msgspec.convert(job["status"], JobStatus)
        assert sum(each.active for each in status.replica_statuses.values()) == len(there)
        terminating = [each for each in there if "deletionTimestamp" in each["metadata"]]
        most_terminating = max(most_terminating, len(terminating))
    assert most_terminating == 3, "the recording proves nothing"


def test_that_kueue_queues_pods_one_by_one_is_one_warning() -> None:
    """With Kueue's default configuration and a LocalQueue `default`; 6 of 8 workers run, and the job is Running."""
    pods: dict[str, dict[str, Any]] = {}
    recorder, message = FakeRecorder(), ""
    events = job_events(recorder)
    for seen in kueue("gates"):
        if seen.resource == "pods":
            pods[seen.object["metadata"]["name"]] = seen.object
            found = decided(GANG, pods.values())
            events.report(Meta(name="mnist", namespace="ns", uid="uid"), found.problems)
            running = conditions.find(found.status.conditions, ConditionType.RUNNING) if found.status else None
            message = running.message if running is not None else ""
    assert [event[:2] for event in recorder.events] == [("Warning", "ReplicasQueuedSeparately")]
    assert "pod gang-worker-0 has the scheduling gate kueue.x-k8s.io/admission" in recorder.events[0][-1]
    assert message == "TFJob gang is running, but not all of its replicas can start."


@pytest.mark.parametrize("name", ["alphat", "alphak"])
def test_that_kueue_queues_batch_jobs_one_by_one_is_one_warning(name: str) -> None:
    """Of both alpha APIs; Kueue suspends each batch Job."""
    jobs = [
        seen.object for seen in kueue("gates") if seen.object["metadata"].get("labels", {}).get("tf_job_name") == name
    ]
    suspended = {each["metadata"]["name"]: each for each in jobs if each["spec"]["suspend"]}
    assert len(suspended) == 2
    created = msgspec.convert([*suspended.values()], list[BatchJob])
    (event,) = reported(problems_of(replicas_of(Children(jobs=created)).values()))
    assert event[:2] == ("Warning", "ReplicasQueuedSeparately")
    last = {each["metadata"]["name"]: each for each in jobs}
    admitted = msgspec.convert([each for each in last.values() if not each["spec"]["suspend"]], list[BatchJob])
    assert admitted
    assert problems_of(replicas_of(Children(jobs=admitted)).values()) == ()


@pytest.mark.parametrize(
    ("label", "kind", "warned"), [("queue-name", "ps", True), ("queue-name", "PS", False), ("x", "ps", False)]
)
@pytest.mark.parametrize("suspend", [True, False])
def test_replica_types_that_kueue_does_not_count_are_one_warning(
    label: str, kind: str, warned: bool, suspend: bool
) -> None:
    """It knows one spelling of each: of `ps: 50` it counted none, and 51 pods ran on a quota of 1."""
    worker = GANG["spec"]["tfReplicaSpecs"]["Worker"]
    body = {
        "metadata": GANG["metadata"] | {"labels": {f"kueue.x-k8s.io/{label}": "team"}},
        "spec": {"tfReplicaSpecs": {"Worker": worker, kind: worker}, "runPolicy": {"suspend": suspend}},
    }
    events = reported(decided(body).problems)
    assert [event[:2] for event in events] == [("Warning", "ReplicasNotQueued")] * warned
    assert all("Kueue does not count ps in spec.tfReplicaSpecs" in message for *_, message in events)
