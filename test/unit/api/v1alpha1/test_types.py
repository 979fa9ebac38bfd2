"""Jobs of the alpha dialect in the cache: which controller they belong to, and which parts of their status are kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fakes.alpha import entry, job, spec
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, TENSORFLOW, Phase
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaStatus, SetStatus, is_alpha, job_with_unreadable_status

V1_SPEC: dict[str, Any] = {"tfReplicaSpecs": {"Worker": {"template": {"spec": {}}}}}


def wire(given: object, **status: Any) -> bytes:
    """A job as an API server sends it."""
    return msgspec.json.encode({"kind": "TFJob", "metadata": {"name": "j"}, "spec": given, "status": status})


def decoded(given: object, **status: Any) -> AlphaJob:
    """A job as an informer decodes it."""
    return msgspec.json.decode(wire(given, **status), type=AlphaJob)


CONDITIONS = [{"type": "Created", "status": "True"}]


@pytest.mark.parametrize(
    ("given", "status", "ours"),
    [
        (spec(), {}, True),
        (V1_SPEC, {}, False),
        (None, {}, False),
        (5, {}, False),
        (spec(), {"conditions": CONDITIONS}, False),
        (spec(), {"phase": "Running", "conditions": CONDITIONS}, True),
        (V1_SPEC, {"phase": "Running", "conditions": CONDITIONS}, True),
        (V1_SPEC | spec(), {}, True),
        (V1_SPEC | spec(), {"begun": {"generation": 1}}, False),
    ],
    ids=[
        "alpha",
        "v1",
        "nothing",
        "no object",
        "began as v1",
        "began as alpha",
        "began as alpha, edited into v1",
        "both",
        "began as v1, now both",
    ],
)
def test_a_job_stays_with_the_controller_that_began_it_and_else_its_shape_decides(
    given: object, status: dict[str, Any], ours: bool
) -> None:
    """The phase, which no other controller writes, tells that the alpha controller began it."""
    assert decoded(given, **status).is_of(KUBEFLOW) == ours


def test_all_jobs_of_tensorflow_org_are_of_its_dialect() -> None:
    assert decoded(None).is_of(TENSORFLOW)


def test_nothing_is_kept_of_a_job_of_another_dialect_but_its_metadata() -> None:
    """One list has the jobs of all dialects of kubeflow.org."""
    found = decoded(V1_SPEC, conditions=CONDITIONS)
    assert bytes(found.spec) == b"null"
    assert found.status == AlphaStatus()


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Done", "conditions": None, "controlPaused": False, "replicaStatuses": None},
        {
            "phase": "Done",
            "replicaStatuses": [{"tf_replica_type": "PS", "state": "Running", "ReplicasStates": {"Running": 1}}],
        },
        {"phase": "Done", "replicaStatuses": {"Worker": {"active": 1}}},
    ],
    ids=["null", "array", "map"],
)
def test_a_status_is_read_in_every_form_that_it_had(status: dict[str, Any]) -> None:
    assert decoded(spec(), **status).status.phase == Phase.DONE


def test_a_job_that_is_done_stays_done_when_the_rest_of_its_status_can_not_be_read() -> None:
    raw = wire(spec(), phase="Done", runtimeId="76no", conditions=5)
    found = job_with_unreadable_status(raw, ValueError())
    assert (found.status.phase, found.status.runtime_id) == ("Done", "76no")
    assert job_with_unreadable_status(wire(spec(), phase=5), ValueError()).status == AlphaStatus()


def test_a_status_is_written_with_the_spellings_of_the_time() -> None:
    """They are visible with `-o yaml`."""
    states = SetStatus(tf_replica_type="MASTER", state="Running", replicas_states={"Running": 1})
    status = AlphaStatus(phase="Running", state="Running", alpha_replica_statuses=(states,), runtime_id="76no")
    assert msgspec.json.decode(msgspec.json.encode(status.to_wire())) == {
        "phase": "Running",
        "state": "Running",
        "reason": "",
        "controlPaused": False,
        "runtimeId": "76no",
        "alphaReplicaStatuses": [{"tf_replica_type": "MASTER", "state": "Running", "ReplicasStates": {"Running": 1}}],
    }


def test_the_word_in_a_template_makes_no_alpha_job() -> None:
    """Only a key of the specification itself makes one."""
    pod = {"spec": {"containers": [{"name": "tensorflow", "env": [{"name": "X", "value": '"replicaSpecs"'}]}]}}
    assert not is_alpha(msgspec.json.encode({"tfReplicaSpecs": {"Worker": {"template": pod, "replicaSpecs": []}}}))
    assert is_alpha(msgspec.json.encode({"REPLICASPECS": []}))
    assert not is_alpha(b'{"replicaSpecs": ' + b"[" * 1000 + b"]" * 1000 + b"}")


def test_the_bytes_of_a_job_are_its_own() -> None:
    """A view into a list page would keep the whole page in memory."""
    found = job(spec(entry("MASTER")))
    assert msgspec.json.decode(found.spec) == spec(entry("MASTER"))
