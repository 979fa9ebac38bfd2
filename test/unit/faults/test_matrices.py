"""What the fault matrices play: how they name writes, deal cases into tenths, and what the right end of a case is."""

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pytest_mock import MockerFixture

from faults import releases
from faults.census import Census
from faults.crash import AFTER, FAULTS, Outcome
from faults.matrix import TENTHS, Matrix
from faults.processes import ROOT
from faults.quota import Ends
from faults.record import Record, differences
from faults.releases import NotThereError, before
from faults.scheme import Case, Nth, Write, writes
from faults.unseen import AGAIN, BESIDE, DELETED, ENDED, STRANGER, applies, right_for
from faults.unseen import FAULTS as UNSEEN
from faults.upgrade import CHANGES, ORDERS, WAYS, Course, courses
from faults.workloads import WORKLOADS
from hack.earlier import COMMITS, PREVIOUS
from hack.fault_proxy.proxy import Seen
from hack.image.build import VERSION
from support.machine import lacks
from tfjob_operator.api.core import PODS, SERVICES, VOLCANO_POD_GROUPS
from tfjob_operator.api.v1.constants import LABEL_QUEUE


def seen(method: str, path: str, body: object = None, number: int = 1) -> Seen:
    return Seen(method, path, {}, 0.0, number=number, body=json.dumps(body).encode())


CORE, JOB = "/api/v1/namespaces/one", "/apis/kubeflow.org/v1/namespaces/one/tfjobs/job/status"
HISTORY: Final = {
    "": seen("GET", f"{CORE}/pods", number=0),
    "create pods/job-worker-0#1": seen("POST", f"{CORE}/pods", {"metadata": {"name": "job-worker-0"}}),
    "update tfjobs/job/status#1": seen("PUT", JOB),
    "create events/SuccessfulCreatePod#1": seen("POST", f"{CORE}/events", {"reason": "SuccessfulCreatePod"}),
    "patch events#1": seen("PATCH", f"{CORE}/events/job.17a"),
    "delete pods/job-worker-0#1": seen("DELETE", f"{CORE}/pods/job-worker-0"),
    "update tfjobs/job/status#2": seen("PUT", JOB),
}


def test_a_write_is_named_by_what_it_does_to_which_object_and_counted() -> None:
    """So it is found again among others."""
    assert [str(write) for write in writes(HISTORY.values())] == list(HISTORY)[1:]
    second = Nth(Write("update tfjobs/job/status", 2))
    assert [second(each) for each in HISTORY.values()] == [False] * 6 + [True]


def test_a_case_is_read_as_it_is_told() -> None:
    """So that one that went wrong can be played again."""
    case = Case("plain", Write("delete pods/job-worker-0", 1), AFTER)
    assert Case.parse(str(case)) == case
    course = Course("short-lived", "crd-first", "killed", (3, 1, 12))
    assert Course.parse(str(course)) == course


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
    matrix = Matrix({"plain": Outcome(Case("plain"), writes=list(writes(HISTORY.values())))})
    assert matrix.tenth(0)[0] == Case("plain", Write("delete pods/job-worker-0", 1), AFTER)


def child(uid: str, *, kind: str = "TFJob", namespace: str = "one") -> dict[str, Any]:
    owner = {"kind": kind, "name": "job", "uid": "1", "controller": True}
    return {"metadata": {"name": "job-worker-1", "namespace": namespace, "uid": uid, "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("shown", "made"),
    [
        pytest.param([child("a")], 1, id="an object that is there, whatever its client was told"),
        pytest.param([child("a")] * 3, 1, id="a child that is shown again was made once"),
        pytest.param([child("a"), child("b")], 2, id="a second object of the name was made twice"),
        pytest.param([], 0, id="a child that nobody has seen was never made"),
        pytest.param([child("a", kind="Job"), child("b", namespace="two")], 0, id="children of others do not count"),
    ],
)
def test_creates_are_counted_by_the_objects_that_the_server_shows(shown: list[dict[str, Any]], made: int) -> None:
    census = Census()
    for item in shown:
        census.take(SERVICES, item)
    census.take(PODS, {"metadata": {"name": "another", "namespace": "one", "uid": "c"}})
    right = Record(None, {}, Counter({"services/job-worker-1": 1}), Counter())
    found = Record(None, {}, census.made("one"), Counter())
    wrong = [] if made == 1 else [f"services/job-worker-1 was created {made} times, not 1"]
    assert list(differences(found, right, WORKLOADS["plain"], {})) == wrong


NAMED: Final = {"failure": {"containerName": "tensorflow", "exitCode": 1}}
DECIDED: Final = {"type": "Failed", "reason": "TFJobFailed", "time": "2026-01-01T00:00:00Z"}


def job_at(version: int, *, ending: object = None, end: str = "", queue: str = LABEL_QUEUE) -> dict[str, Any]:
    condition = {"type": end, "status": "True", "reason": f"TFJob{end}", "lastTransitionTime": "2026-01-01T01:05:00Z"}
    meta = {"namespace": "one", "uid": "1", "resourceVersion": str(version), "labels": {queue: "team"}}
    return {"metadata": meta, "status": {"begun": {"ending": ending}, "conditions": [condition] if end else []}}


def pod_at(version: int, phase: str = "Running", **meta: str) -> dict[str, Any]:
    pod = child("a")
    pod["metadata"] |= meta | {"resourceVersion": str(version)}
    return pod | {"status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pods", "early"),
    [
        pytest.param([], False, id="without a pod"),
        pytest.param([("ADDED", pod_at(1)), ("MODIFIED", pod_at(4, "Succeeded"))], False, id="ended before"),
        pytest.param([("ADDED", pod_at(1)), ("DELETED", pod_at(4))], False, id="gone before"),
        pytest.param([("ADDED", pod_at(6))], False, id="created later"),
        pytest.param([("ADDED", pod_at(1))], True, id="still there"),
        pytest.param([("ADDED", pod_at(1)), ("MODIFIED", pod_at(6, "Succeeded"))], True, id="ended later"),
        pytest.param([("ADDED", pod_at(1, deletionTimestamp="2026-01-01T00:04:00Z"))], False, id="given up"),
        pytest.param([("ADDED", pod_at(1, deletionTimestamp="2026-01-01T00:04:01Z"))], True, id="given up early"),
    ],
)
def test_a_queued_job_must_not_end_while_a_pod_holds_quota(
    pods: list[tuple[str, dict[str, Any]]], *, early: bool
) -> None:
    """Whatever time the operator wrote: its clock is as wrong as the others'."""
    for queue in (LABEL_QUEUE, "another-label"):
        ends = Ends(lambda: datetime(2026, 1, 1, 0, 5, tzinfo=UTC))
        ends.see_job(job_at(2, queue=queue))
        for event, pod in pods:
            ends.see_pod(event, pod)
        ends.see_job(job_at(5, ending=DECIDED, end="Failed", queue=queue))
        found = ["Failed was written while job-worker-1 held quota"] if early and queue == LABEL_QUEUE else []
        assert (list(ends.early("one", older=False)), ends.reverted["one"]) == (found, [])


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        ([job_at(1, ending=DECIDED), job_at(2, ending=DECIDED), job_at(3, ending=DECIDED, end="Failed")], ""),
        ([job_at(1, ending=DECIDED), job_at(2, ending=DECIDED | {"time": "2026-01-01T00:01:00Z"})], "and then as"),
        ([job_at(1, ending=DECIDED), job_at(2)], "and then as None"),
        ([job_at(1, ending=DECIDED | NAMED), job_at(2, ending=DECIDED | {"failure": {"exitCode": 1}})], ""),
        ([job_at(1, ending=DECIDED | NAMED), job_at(2, ending=DECIDED | {"failure": {}})], "and then as"),
        ([job_at(1, ending=DECIDED), job_at(2, ending=DECIDED, end="Succeeded")], "and it has the condition"),
    ],
    ids=["kept", "decided twice", "lost", "without what 0.2.1 drops", "without the exit code", "not as decided"],
)
def test_a_decision_about_the_end_is_made_once_and_stays(shown: list[dict[str, Any]], words: str) -> None:
    ends = Ends()
    for job in shown:
        ends.see_job(job)
    assert [words in wrong for wrong in ends.reverted["one"]] == ([True] if words else [])


def test_only_a_release_without_decisions_may_end_a_job_without_one() -> None:
    """It may do so between the two writes, and while pods run, but not in another way."""
    ends = Ends()
    ends.see_pod("ADDED", pod_at(1))
    ends.see_job(job_at(2, ending=DECIDED))
    ends.see_job(job_at(3, end="Failed"))
    assert (list(ends.early("one", older=True)), ends.reverted["one"]) == ([], [])
    assert "Failed was written without a decision" in set(ends.early("one", older=False))
    ends = Ends()
    ends.see_job(job_at(2, ending=DECIDED))
    ends.see_job(job_at(3, end="Succeeded"))
    assert ends.reverted["one"]


@pytest.mark.parametrize(
    ("version", "size", "wrong"),
    [(1, 2, False), (3, 2, True), (3, 3, True), (5, 2, False)],
    ids=["before the decision", "made again", "resized", "after the end"],
)
def test_no_child_is_created_or_resized_between_the_decision_and_the_condition(
    version: int, size: int, *, wrong: bool
) -> None:
    ends = Ends()
    group = pod_at(1) | {"spec": {"minMember": 2}}
    ends.see_child(VOLCANO_POD_GROUPS, group)
    ends.see_job(job_at(2, ending=DECIDED))
    uid = group["metadata"]["uid"] if size != 2 else "another"
    changed = group["metadata"] | {"uid": uid, "resourceVersion": str(version)}
    ends.see_child(VOLCANO_POD_GROUPS, {"metadata": changed, "spec": {"minMember": size}})
    ends.see_job(job_at(4, ending=DECIDED, end="Failed"))
    found = [f"podgroups/{changed['name']} was created, adopted or resized after the decision how the job ends"]
    assert list(ends.early("one", older=False)) == (found if wrong else [])


POD, SERVICE = "create pods/job-worker-0", "create services/job-worker-0"


@pytest.mark.parametrize(
    ("workload", "write", "faults"),
    [
        ("plain", POD, set(UNSEEN)),
        ("plain", SERVICE, set(UNSEEN) - {ENDED}),
        ("gang", POD, set(UNSEEN) - {ENDED}),
        ("restarts", POD, set(UNSEEN) - {AGAIN}),
        ("alpha", "create jobs/master-abcd-0", set(UNSEEN) - {ENDED, STRANGER}),
        ("plain", "create events/SuccessfulCreatePod", set()),
        ("plain", "delete pods/job-worker-0", set()),
        ("plain", "patch tfjobs/job/status", set()),
    ],
)
def test_lives_are_unseen_at_the_creates_of_children(workload: str, write: str, faults: set[str]) -> None:
    """Pods that nobody has placed do not run to an end, and what is made later cannot be told from what is made again."""
    assert {fault for fault in UNSEEN if applies(Case(workload, Write(write, 1), fault))} == faults


def record(pods: int, created: int = 0) -> Record:
    return Record({}, {}, Counter({"pods/job-worker-0": pods}), Counter({"Normal Created": created}))


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [(DELETED, [2, 2, 2, 2, 2]), (STRANGER, [1] * 5), (BESIDE, [1] * 5), (AGAIN, [1, 1, 2, 3, 3])],
)
def test_a_child_that_was_deleted_unseen_is_to_be_made_exactly_once_more(fault: str, wanted: list[int]) -> None:
    """Whatever was found; of a job that was made again once or twice, or once more by a create that was under way."""
    case = Case("plain", Write(POD, 1), fault)
    ends = [right_for(case, record(1, 1), record(found, 9)) for found in range(5)]
    assert [each.created["pods/job-worker-0"] for each in ends] == wanted
    assert {each.events["Normal Created"] for each in ends} == {9 if fault == AGAIN else 1}


def test_every_bug_can_be_planted() -> None:
    """In a process of its own, since nobody takes bugs out again: a function that was renamed has lost its bug."""
    plant = "from faults.bugs import BUGS\nfor bug in BUGS.values(): bug.plant()"
    subprocess.run(
        [sys.executable, "-c", plant], cwd=ROOT / "test", env=os.environ | {"PYTHONPATH": "..:."}, check=True
    )


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.CalledProcessError(128, "git")])
def test_without_git_or_its_history_it_is_said_why_there_is_no_release_before(
    tmp_path: Path, mocker: MockerFixture, error: Exception
) -> None:
    """As in an archive of the sources, or a shallow clone."""
    mocker.patch("subprocess.run", side_effect=error)
    with pytest.raises(NotThereError, match=f"{PREVIOUS} .*{COMMITS[PREVIOUS]}"):
        before(tmp_path)


@pytest.mark.parametrize("name", COMMITS)
def test_the_commit_of_a_release_has_its_version(name: str) -> None:
    """And not that of this checkout: `hack/earlier.py` is changed when the version is raised."""
    shown = subprocess.run(
        ["git", "show", f"{COMMITS[name]}:setup.cfg"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shown.returncode:
        pytest.skip(lacks("git's history", shown.stderr))
    assert f"\nversion = {name}\n" in shown.stdout
    assert name != VERSION


def test_a_release_runs_its_own_packages(tmp_path: Path, mocker: MockerFixture) -> None:
    """Python would otherwise import those of the present checkout, through its editable install."""
    mocker.patch.object(releases, "_newest_tag", return_value="HEAD")
    assert before(tmp_path).root == tmp_path
    assert (tmp_path / "tfjob_operator" / "api").resolve() == tmp_path.resolve() / "api"


def test_every_workload_gets_each_way_in_one_of_three_waves_and_changes_within_its_writes() -> None:
    """A change comes after one more write at least, and all of them within as many as there are without a change."""
    known = {"plain": 3, "held": 20, "alpha": 31}
    waves = [courses(known, ORDERS[0], turn, Random(1)) for turn in range(len(WAYS))]
    for found in zip(*waves, strict=True):
        assert {case.way for case in found} == set(WAYS)
        for case in found:
            assert len(case.terms) == CHANGES
            assert min(case.terms) > 0
            assert sum(case.terms) <= known[case.workload]
