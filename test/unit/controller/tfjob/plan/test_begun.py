"""When a job counts as begun: from then on no edit of its specification ends it."""

from __future__ import annotations

import msgspec
import pytest

from fakes.jobs import good_spec, job, pod, replica
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import Begun, IndexRestarts, JobStatus, TFJob
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.status import has_begun, with_memory_of

SPEC = {"tfReplicaSpecs": {"PS": replica(1), "Worker": replica(2)}}


def status_of(tfjob: TFJob, *pods: object) -> JobStatus:
    """The status that the next plan writes."""
    status = plan(tfjob, good_spec(tfjob), pods, [], EPOCH).status  # type: ignore[arg-type]
    assert status is not None
    return status


def with_condition(kind: ConditionType, status: str = "True") -> JobStatus:
    """A status as an operator of an older version wrote it."""
    written = conditions.set_true((), ConditionType.CREATED, "", "", EPOCH)
    written = conditions.set_true(written, kind, "", "", EPOCH)
    if status == "False":
        written = conditions.set_true(written, ConditionType.SUSPENDED, "", "", EPOCH)
    return JobStatus(conditions=written)


def test_a_job_has_begun_with_the_status_that_comes_before_its_first_pod() -> None:
    """U4: so no pod exists while the status does not say so, and no further write is needed."""
    begun = status_of(job(SPEC, generation=3)).begun
    assert begun is not None
    assert (begun.generation, begun.replicas) == (3, {"PS": 1, "Worker": 2})


def test_a_job_that_makes_no_pods_has_not_begun() -> None:
    """Suspended from the start, or of no replicas."""
    assert status_of(job(SPEC | {"runPolicy": {"suspend": True}})).begun is None
    assert status_of(job({"tfReplicaSpecs": {"Worker": replica(0)}})).begun is None


def test_the_generation_of_the_beginning_stays_and_the_sizes_follow_the_specification() -> None:
    """What is in force is what the newest good specification asked for."""
    first = status_of(job(SPEC))
    scaled = {"tfReplicaSpecs": {"Worker": replica(4)}}
    begun = status_of(job(scaled, generation=2, status=first)).begun
    assert begun is not None
    assert (begun.generation, begun.replicas) == (1, {"Worker": 4})
    suspended = SPEC | {"runPolicy": {"suspend": True}}
    assert status_of(job(suspended, generation=2, status=first)).begun == first.begun


@pytest.mark.parametrize(
    "status",
    [
        with_condition(ConditionType.RUNNING),
        with_condition(ConditionType.RUNNING, "False"),
        with_condition(ConditionType.RESTARTING),
        JobStatus(finished_indices={"Worker": "0"}),
        JobStatus(restarts=(IndexRestarts(type="Worker", index=0, pod="p"),)),
    ],
)
def test_a_job_that_an_older_operator_ran_has_begun(status: JobStatus) -> None:
    """U4: it recorded no `begun`, but what can exist only if there was a pod proves it."""
    assert has_begun(status, has_pods=False)
    assert not has_begun(with_condition(ConditionType.SUSPENDED), has_pods=False)
    assert has_begun(with_condition(ConditionType.SUSPENDED), has_pods=True)


def test_what_was_edited_before_this_version_came_nobody_knows() -> None:
    """Generation 0: any specification of such a job counts as edited, so that no refusal ends it."""
    begun = status_of(job(SPEC, generation=7, status=with_condition(ConditionType.RUNNING))).begun
    assert begun is not None
    assert (begun.generation, begun.replicas) == (0, {"PS": 1, "Worker": 2})


def test_pods_without_any_status_are_our_own_of_a_moment_ago() -> None:
    """In a burst pods come before the first status, and the operator may have been killed in between."""
    begun = status_of(job(SPEC, generation=2), pod("Worker", 0)).begun
    assert begun is not None
    assert begun.generation == 2


def test_what_is_not_written_yet_of_the_beginning_is_remembered() -> None:
    """Whichever of the two is the newer: the earlier generation, and the sizes of the later specification."""
    old = JobStatus(begun=Begun(generation=1, replicas={"Worker": 2}), observed_generation=1)
    new = JobStatus(begun=Begun(generation=3, replicas={"Worker": 5}), observed_generation=3)
    both = Begun(generation=1, replicas={"Worker": 5})
    assert with_memory_of(old, new).begun == with_memory_of(new, old).begun == both
    assert with_memory_of(JobStatus(), old).begun == with_memory_of(old, JobStatus()).begun == old.begun
    assert msgspec.json.decode(msgspec.json.encode(new), type=JobStatus) == new
