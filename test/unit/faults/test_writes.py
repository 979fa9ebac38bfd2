"""How the crash matrix names writes, and deals its cases into tenths."""

from __future__ import annotations

import json
from collections import Counter

from faults.crash import AFTER, FAULTS, Outcome
from faults.matrix import TENTHS, Matrix
from faults.scheme import Case
from faults.writes import Nth, Write, writes
from hack.fault_proxy.proxy import Seen


def seen(method: str, path: str, body: object = None, number: int = 1) -> Seen:
    return Seen(method, path, {}, 0.0, number=number, body=json.dumps(body).encode())


HISTORY = [
    seen("GET", "/api/v1/namespaces/one/pods", number=0),
    seen("POST", "/api/v1/namespaces/one/pods", {"metadata": {"name": "job-worker-0"}}),
    seen("PUT", "/apis/kubeflow.org/v1/namespaces/one/tfjobs/job/status"),
    seen("POST", "/api/v1/namespaces/one/events", {"metadata": {"name": "job.17a"}, "reason": "SuccessfulCreatePod"}),
    seen("PATCH", "/api/v1/namespaces/one/events/job.17a"),
    seen("DELETE", "/api/v1/namespaces/one/pods/job-worker-0"),
    seen("PUT", "/apis/kubeflow.org/v1/namespaces/one/tfjobs/job/status"),
]


def test_a_write_is_named_by_what_it_does_to_which_object_and_counted() -> None:
    assert [str(write) for write in writes(HISTORY)] == [
        "create pods/job-worker-0#1",
        "update tfjobs/job/status#1",
        "create events/SuccessfulCreatePod#1",
        "patch events#1",
        "delete pods/job-worker-0#1",
        "update tfjobs/job/status#2",
    ]


def test_a_write_is_found_again_among_others() -> None:
    second = Nth(Write("update tfjobs/job/status", 2))
    assert [second(each) for each in HISTORY] == [False] * 6 + [True]


def test_a_case_is_read_as_it_is_told() -> None:
    case = Case("plain", Write("delete pods/job-worker-0", 1), AFTER)
    assert Case.parse(str(case)) == case


def test_the_tenths_are_all_cases_and_each_has_every_workload() -> None:
    made = [Write(f"create pods/job-worker-{index}", 1) for index in range(20)]
    stated = [Write("update tfjobs/job/status", nth) for nth in range(1, 5)]
    outcomes = {name: Outcome(Case(name), writes=[*made, *stated]) for name in ("plain", "held")}
    matrix = Matrix(outcomes)
    assert Counter(matrix.cases) == Counter(
        Case(name, write, fault) for name in outcomes for write in [*made, *stated] for fault in FAULTS
    )
    for number in range(TENTHS):
        tenth = matrix.tenth(number)
        assert {case.workload for case in tenth} == set(outcomes)
        assert any(case.write in stated for case in tenth)


def test_the_first_tenth_begins_with_a_kill_after_a_delete() -> None:
    """What a delete destroys the evidence of must be known by then."""
    matrix = Matrix({"plain": Outcome(Case("plain"), writes=list(writes(HISTORY)))})
    assert matrix.tenth(0)[0] == Case("plain", Write("delete pods/job-worker-0", 1), AFTER)
