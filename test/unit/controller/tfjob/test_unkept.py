"""What happens when the API server keeps only a part of a status."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
from structlog.testing import capture_logs

from fakes.controller import STATUS, ControllerHarness
from fakes.jobs import job, pod, replica
from fakes.recorder import FakeRecorder, job_events
from tfjob_operator.api.v1.types import JobCondition, JobStatus
from tfjob_operator.controller.jobs.draft import COUNTER_WINDOW_S
from tfjob_operator.controller.tfjob.view import UnkeptStatus

SENT = JobStatus(
    conditions=(JobCondition("Running", "True"),),
    finished_indices={"Worker": "0"},
    worker_selector="a=b",
    start_time=datetime(2026, 1, 1, tzinfo=UTC),
    observed_generation=3,
)
KEPT = msgspec.structs.replace(SENT, finished_indices={}, worker_selector="", observed_generation=0)
JOB = job({"tfReplicaSpecs": {"Worker": replica(1)}})


UNKNOWN = frozenset({"finishedIndices", "restarts", "workerSelector", "observedGeneration", "begun"})
"""Fields that the CRD of the Go operators lacks."""


class UnkeptHarness:
    """A memory of dropped fields, with a recorder."""

    def __init__(self) -> None:
        self.recorder = FakeRecorder()
        self.unkept = UnkeptStatus(job_events(self.recorder))


def test_what_was_dropped_stands_in_as_it_was_sent() -> None:
    """D3: otherwise the status would seem incomplete at every sync, and be written again once a second."""
    world = UnkeptHarness()
    world.unkept.compare(JOB, SENT, KEPT)
    shown = msgspec.structs.replace(JOB, status=KEPT)
    assert world.unkept.as_sent(shown).status == SENT


def test_what_the_server_keeps_is_taken_from_the_server() -> None:
    """D3: somebody else may have written since, and what was kept then is newer than what we sent."""
    world = UnkeptHarness()
    world.unkept.compare(JOB, SENT, KEPT)
    newer = msgspec.structs.replace(KEPT, conditions=(JobCondition("Succeeded", "True"),))
    assert world.unkept.as_sent(msgspec.structs.replace(JOB, status=newer)).status.conditions == newer.conditions


def test_a_status_that_is_kept_whole_is_nothing_to_tell_of() -> None:
    world = UnkeptHarness()
    with capture_logs() as logs:
        world.unkept.compare(JOB, SENT, SENT)
    assert (logs, world.recorder.events) == ([], [])
    assert world.unkept.as_sent(JOB) is JOB


def test_the_log_and_each_job_say_so_once() -> None:
    """D3: with the names of the fields as they stand in the CRD, and what to do."""
    world = UnkeptHarness()
    other = msgspec.structs.replace(JOB, metadata=msgspec.structs.replace(JOB.metadata, uid="other"))
    with capture_logs() as logs:
        for each in (JOB, other, JOB, other):
            world.unkept.compare(each, SENT, KEPT)
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("status_fields_pruned", "error")
    assert line["fields"] == ["finishedIndices", "workerSelector", "observedGeneration"]
    assert "manifests/base/crd.yaml" in line["to_do"]
    assert world.recorder.reasons == ["StatusFieldsPruned", "StatusFieldsPruned"]


def test_a_crd_that_was_mended_is_noticed_with_the_next_write() -> None:
    world = UnkeptHarness()
    world.unkept.compare(JOB, SENT, KEPT)
    world.unkept.compare(JOB, SENT, SENT)
    assert world.unkept.as_sent(JOB) is JOB


def test_nothing_is_remembered_of_a_job_that_is_gone() -> None:
    world = UnkeptHarness()
    world.unkept.compare(JOB, SENT, KEPT)
    world.unkept.forget(JOB.metadata.uid)
    assert world.unkept.as_sent(JOB) is JOB


async def test_a_job_under_a_crd_that_lacks_our_fields_comes_to_rest() -> None:
    """D3: it used to be rewritten once a second for ever, after its end too."""
    world = ControllerHarness()
    world.client.drops = UNKNOWN
    world.jobs.put(JOB)
    await world.sync()
    world.observe_children()
    for phase in ("Running", "Succeeded"):
        world.pods.put(pod("Worker", 0, phase, 0 if phase == "Succeeded" else None))
        written = 0
        for _ in range(10):
            world.observe_status()
            world.client.given_version = str(int(world.client.given_version) + 1)
            world.taken()
            await world.sync()
            if not (writes := world.taken().count(STATUS)):
                world.client.given_version = str(int(world.client.given_version) - 1)
            written += writes
            await asyncio.sleep(COUNTER_WINDOW_S)
        assert written == 1, phase
    assert world.recorder.reasons.count("StatusFieldsPruned") == 1
