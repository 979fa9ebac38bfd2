"""How large a job may be, and what becomes of one that was scaled too far."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.jobs import good_spec, job, names, pod, replica
from fakes.virtual_loop import EPOCH
from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.types import InvalidSpec, Mistake, TFJob, TFJobSpec
from tfjob_operator.controller.tfjob.plan.plan import plan
from tfjob_operator.controller.tfjob.plan.status import bounded, read

LONG = "a" * (63 - len("-worker-9"))
"""A job of this name may have ten workers."""


def workers(count: int, **others: Any) -> dict[str, Any]:
    """A specification of so many workers."""
    return {"tfReplicaSpecs": {"Worker": replica(count, "ExitCode")} | others}


def begun(spec: dict[str, Any], name: str = LONG) -> TFJob:
    """A job whose first plan was made."""
    tfjob = job(spec, name=name)
    return msgspec.structs.replace(tfjob, status=plan(tfjob, good_spec(tfjob), [], [], EPOCH).status)


def edited(tfjob: TFJob, spec: dict[str, Any]) -> TFJob:
    """The job with another specification."""
    meta = msgspec.structs.replace(tfjob.metadata, generation=tfjob.metadata.generation + 1)
    return msgspec.structs.replace(tfjob, metadata=meta, spec=msgspec.Raw(msgspec.json.encode(spec)))


def in_bounds(tfjob: TFJob) -> TFJobSpec | InvalidSpec:
    """The specification as far as it is within bounds."""
    spec = read(tfjob)
    assert isinstance(spec, TFJobSpec)
    return bounded(tfjob, spec)


@pytest.mark.parametrize(("name", "count"), [(LONG, 11), ("mnist", 10_001), ("mnist", 10**30)])
def test_a_job_that_asks_for_too_much_from_the_start_is_wrong(name: str, count: int) -> None:
    """B05, D16: it has never begun, so it fails, and its owner sees at once what to mend."""
    found = in_bounds(job(workers(count), name=name))
    assert isinstance(found, InvalidSpec)
    assert len(found.mistakes) == 1


@pytest.mark.parametrize(("name", "count"), [(LONG, 11), ("mnist", 10_001), ("mnist", 10**30)])
def test_a_scale_up_beyond_a_bound_is_held_and_nothing_else(name: str, count: int) -> None:
    """D16: the job keeps its size, and is synced as ever; the condition and one Warning name the bound."""
    tfjob = edited(begun(workers(3), name), workers(count))
    spec = in_bounds(tfjob)
    assert isinstance(spec, TFJobSpec)
    pods = [pod("Worker", 0, job_name=name), pod("Worker", 1, "Failed", 137, job_name=name)]
    decided = plan(tfjob, spec, pods, [], EPOCH)
    assert names(decided)["create pods"] == [f"{name}-worker-2"]
    assert names(decided)["delete pods"] == [f"{name}-worker-1"]
    assert decided.status is not None
    held = next(each for each in decided.status.conditions if each.type == ConditionType.HELD)
    assert (held.status, held.reason, held.message) == ("True", "TFJobTooLarge", str(spec.too_large))
    assert decided.status.conditions[-1].type == ConditionType.RESTARTING
    assert decided.status.begun == tfjob.status.begun
    assert [event.reason for event in decided.events] == ["TFJobTooLarge", "TFJobRestarting"]
    after = msgspec.structs.replace(tfjob, status=decided.status)
    assert plan(after, spec, pods, [], EPOCH).events == ()


def test_scaled_back_the_job_is_held_no_more() -> None:
    """D16: to any size within bounds."""
    tfjob = edited(begun(workers(3)), workers(11))
    spec = in_bounds(tfjob)
    assert isinstance(spec, TFJobSpec)
    held = msgspec.structs.replace(tfjob, status=plan(tfjob, spec, [], [], EPOCH).status)
    mended = edited(held, workers(10))
    decided = plan(mended, good_spec(mended), [], [], EPOCH)
    assert len(decided.create_pods) == 10
    assert [event.reason for event in decided.events] == ["TFJobSpecMended"]


def test_what_shrinks_beside_a_scale_up_that_is_held_shrinks() -> None:
    """D16: no type gets more than it had, and one that is new gets none."""
    tfjob = edited(begun(workers(3, PS=replica(2))), workers(11, PS=replica(1), Evaluator=replica(1)))
    spec = in_bounds(tfjob)
    assert isinstance(spec, TFJobSpec)
    assert spec.sizes == {"PS": 1, "Worker": 3, "Evaluator": 0}


def test_a_bound_that_is_passed_already_takes_nothing_from_a_job() -> None:
    """D16: a job of this size has run since before the bound existed; only further growth is refused."""

    def at_most_two(_job: ObjectMeta, spec: TFJobSpec) -> Mistake | None:
        return Mistake("", "too many") if spec.total_replicas > 2 else None

    tfjob = edited(begun(workers(3)), workers(3) | {"runPolicy": {"backoffLimit": 5}})
    spec = read(tfjob)
    assert isinstance(spec, TFJobSpec)
    assert bounded(tfjob, spec, [at_most_two]) == spec
    larger = read(edited(tfjob, workers(4)))
    assert isinstance(larger, TFJobSpec)
    cut = bounded(tfjob, larger, [at_most_two])
    assert isinstance(cut, TFJobSpec)
    assert (cut.sizes, cut.too_large) == ({"Worker": 3}, Mistake("", "too many"))
