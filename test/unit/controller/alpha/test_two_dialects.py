"""Which of the two controllers works on a job, and what the controller of v1 says of the alpha dialect."""

from typing import Any

import msgspec
import pytest

from fakes import alpha
from fakes.api import status_error
from fakes.controller import ControllerHarness
from fakes.jobs import job, mistakes, spec
from kit.virtual_loop import EPOCH
from tfjob_operator.api.client.errors import NotFoundError
from tfjob_operator.api.v1.types import JobCondition, JobStatus, StartRecord, TFJob, tfjob_with_unreadable_status
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW
from tfjob_operator.api.v1alpha1.types import AlphaJob

V1: dict[str, Any] = spec(Worker=1)
ALPHA = alpha.spec()
CREATED = JobCondition(type="Created", status="True", last_transition_time=EPOCH)

STATUSES = [
    JobStatus(),
    JobStatus(conditions=(CREATED,)),
    JobStatus(conditions=(CREATED,), begun=StartRecord(generation=1)),
    JobStatus(begun=StartRecord(generation=1)),
    JobStatus(phase="Creating"),
    JobStatus(phase="Running", conditions=(CREATED,)),
    JobStatus(phase="Failed", conditions=(JobCondition(type="Failed", status="True"),)),
]


def harness(*, alpha_is_served: bool) -> ControllerHarness:
    world = ControllerHarness(ignore_alpha=alpha_is_served)
    for kind in ("pods", "services"):
        world.client.fail["get", kind, "mnist-worker-0"] = status_error(NotFoundError, 404)
    return world


async def works_on(found: TFJob, *, alpha_is_served: bool = True) -> bool:
    world = harness(alpha_is_served=alpha_is_served)
    await world.sync(found)
    world.jobs.remove(found)
    return bool(world.taken() or world.recorder.events)


@pytest.mark.parametrize("status", STATUSES, ids=str)
@pytest.mark.parametrize("spec", [V1, ALPHA, V1 | ALPHA, {}, {"REPLICASPECS": []}], ids="+".join)
async def test_every_job_has_exactly_one_controller(spec: dict[str, Any], status: JobStatus) -> None:
    found = job(spec, status=status, name="mnist")
    wire = msgspec.json.encode({"metadata": found.metadata, "spec": spec, "status": status})
    other = msgspec.json.decode(wire, type=AlphaJob)
    assert await works_on(found) != other.is_of(KUBEFLOW)


async def test_a_job_that_began_in_the_alpha_dialect_is_left_alone_also_where_that_is_not_served_any_more() -> None:
    """Its Jobs go on without the operator; nothing of it is overwritten."""
    status = JobStatus(phase="Running", conditions=(CREATED,))
    for given in (ALPHA, V1):
        assert not await works_on(job(given, status=status), alpha_is_served=False)


async def test_where_the_alpha_dialect_is_not_served_its_jobs_fail_and_say_how_it_would_be() -> None:
    world = harness(alpha_is_served=False)
    await world.sync(job(ALPHA))
    assert world.conditions == ["Failed"]
    told = " ".join(mistakes(job(ALPHA)))
    assert "spec.replicaSpecs: Forbidden: v1alpha1 format" in told
    assert "--apis=kubeflow.org/v1,kubeflow.org/v1alpha1" in told


def test_both_forms_in_one_specification_are_a_mistake() -> None:
    assert [each for each in mistakes(job(V1 | ALPHA)) if each.startswith("spec.replicaSpecs: ")]


def test_a_job_of_operators_of_the_time_keeps_its_phase_when_its_status_can_not_be_read() -> None:
    """Their replicaStatuses are a list. Without the phase the job would be taken for a new one of v1."""
    raw = b'{"metadata":{"name":"a"},"status":{"phase":"Done","replicaStatuses":[]}}'
    assert tfjob_with_unreadable_status(raw, ValueError()).status == JobStatus(phase="Done")
    raw = b'{"metadata":{"name":"a"},"status":{"phase":5,"conditions":7}}'
    assert tfjob_with_unreadable_status(raw, ValueError()).status == JobStatus()
