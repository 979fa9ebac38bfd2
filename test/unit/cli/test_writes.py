"""A write whose response is lost is never sent again blindly: the command tells whether it took effect."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pytest_mock import MockerFixture

from hack.objects import wanting
from tfjob_operator.api.v1.constants import ANNOTATION_RESTART
from tfjob_operator.cli import writes
from unit.cli.conftest import JOBS, PODS, Server, job, pod

WORKER = "mnist-worker-0"
CUT = (0, b"")
"""The server receives the request, and closes the connection."""
Answer = tuple[int, bytes]


def ok(body: Any) -> Answer:
    return 200, json.dumps(body).encode()


def refusal(code: int, reason: str) -> Answer:
    return code, json.dumps({"message": "no", "reason": reason}).encode()


MISSING = refusal(404, "NotFound")
CONFLICT = refusal(409, "Conflict")


SPEC = wanting(Worker=2) | {"runPolicy": {"suspend": False}}
a_job = partial(job, "mnist", "Running", spec=SPEC, generation=1)
RUNNING, LATER = a_job(), a_job(resourceVersion="8")
"""The operator has written its status meanwhile."""
SUSPENDED = a_job(spec=SPEC | {"runPolicy": {"suspend": True}}, generation=2, resourceVersion="9")
EDITED = a_job(spec=SPEC | wanting(Worker=3), generation=2, resourceVersion="8")
TOOK_EFFECT = "; the request took effect"
SENT_AGAIN = "; the request did not take effect and is sent again"
UNKNOWN = "; the request may have taken effect: see kubectl"


def writes_of(server: Server) -> list[tuple[str, Any]]:
    """The methods and bodies of the requests that change something."""
    return [(method, json.loads(body)) for method, _, _, body in server.asked if method != "GET"]


SUSPENSION = {"spec": {"runPolicy": {"suspend": True}}}
CASES: dict[str, tuple[list[Answer], list[str], list[str]]] = {
    "took effect": ([CUT, ok(SUSPENDED)], [TOOK_EFFECT], [""]),
    "took effect, and the server restarts": ([CUT, (500, b"{}"), ok(SUSPENDED)], [TOOK_EFFECT], [""]),
    "did not": ([CUT, ok(LATER), ok(SUSPENDED)], [SENT_AGAIN], ["", "8"]),
    "did not, twice": ([CUT, ok(RUNNING), CUT, ok(LATER), ok(SUSPENDED)], [SENT_AGAIN] * 2, ["", "7", "8"]),
    "late": ([CUT, ok(RUNNING), CONFLICT, ok(SUSPENDED)], [SENT_AGAIN, TOOK_EFFECT], ["", "7"]),
    "other writer": ([CUT, ok(RUNNING), CONFLICT, ok(LATER), ok(SUSPENDED)], [SENT_AGAIN] * 2, ["", "7", "8"]),
    "garbage": ([(200, b"<html>"), ok(SUSPENDED)], [TOOK_EFFECT], [""]),
    "gateway timeout": ([(504, b"<html>"), ok(SUSPENDED)], [TOOK_EFFECT], [""]),
}  # fmt: skip


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(("answers", "says", "versions"), CASES.values(), ids=CASES)
def test_a_patch_without_a_response_ends_as_it_did_on_the_server(
    server: Server, answers: list[Answer], says: list[str], versions: list[str]
) -> None:
    """It is sent again only while the job is as it was, and then only for that version."""
    server.responses[f"{JOBS}/mnist"] = [ok(RUNNING), *answers]
    result = server.run("suspend", "mnist")
    assert (result.exit_code, result.stdout) == (0, "tfjob.kubeflow.org/mnist suspended\n")
    warnings = [line for line in result.stderr.splitlines() if "cannot read" not in line]
    assert [line.partition(";")[1] + line.partition(";")[2] for line in warnings] == says
    conditions = [{"metadata": {"resourceVersion": each}} if each else {} for each in versions]
    assert writes_of(server) == [("PATCH", {**SUSPENSION, **each}) for each in conditions]


UNKNOWNS: dict[str, list[Answer]] = {
    "edited by another": [CUT, ok(EDITED)],
    "replaced": [CUT, ok(a_job(uid="u2"))],
    "deleted": [CUT, MISSING],
    "unreadable": [CUT, (500, b"{}")],
    "forbidden": [CUT, refusal(403, "Forbidden")],
    "always lost": [CUT, ok(RUNNING)] * writes.MAX_SENDS,
}


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize("answers", UNKNOWNS.values(), ids=UNKNOWNS)
@pytest.mark.parametrize(
    ("verb", "code"), [(["suspend", "mnist"], 1), (["scale", "mnist", "worker=4"], 4), (["restart", "mnist"], 4)]
)
def test_a_patch_whose_effect_is_unknown_is_an_error_with_a_command_to_look(
    server: Server, mocker: MockerFixture, answers: list[Answer], verb: list[str], code: int
) -> None:
    mocker.patch("tfjob_operator.cli.collecting.obstacle", return_value="")
    server.answers(PODS, {"metadata": {}, "items": [pod(WORKER)]})
    if verb[0] == "restart" and answers[1:] == [ok(EDITED)]:
        answers = [CUT, ok(requested("another"))]
    server.responses[f"{JOBS}/mnist"] = [ok(RUNNING), *answers]
    result = server.run(*verb)
    assert (result.exit_code, result.stdout) == (code, "")
    look = f"kubectl {server.flags} -n team get tfjob.kubeflow.org/mnist -o yaml"
    assert result.stderr.splitlines()[-1].endswith(f"; the request may have taken effect: see {look}")


def requested(value: str | None, version: str = "8") -> Any:
    made = a_job(resourceVersion=version)
    made["metadata"]["annotations"] = {ANNOTATION_RESTART: value} if value else None
    made["status"]["observedRestartRequest"] = value
    return made


@pytest.mark.usefixtures("pauses")
def test_the_withdrawal_of_a_restart_is_not_sent_again_if_it_took_effect(server: Server, mocker: MockerFixture) -> None:
    mocker.patch("tfjob_operator.cli.collecting.obstacle", return_value="")
    mocker.patch("tfjob_operator.cli.commands.restart_.ACKNOWLEDGED_WITHIN_S", 0.0)
    server.answers(PODS, {"metadata": {}, "items": [pod(WORKER)]})
    pending = requested("now")
    pending["status"] = {}
    server.responses[f"{JOBS}/mnist"] = [ok(RUNNING), *[ok(pending)] * 3, CUT, ok(requested(None, "9"))]
    result = server.run("restart", "mnist")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0].endswith(TOOK_EFFECT)
    assert "mnist was not restarted: no operator noted the request within 0s, and it was withdrawn" in result.stderr
    assert [body["metadata"].get("resourceVersion") for _, body in writes_of(server)] == [None, "8"]


@pytest.mark.usefixtures("pauses")
def test_a_restart_is_requested_for_later_than_the_last_one_of_a_user_whose_clock_is_ahead(
    server: Server, mocker: MockerFixture
) -> None:
    """Else the operator would take it for an old manifest."""
    mocker.patch("tfjob_operator.cli.collecting.obstacle", return_value="")
    before, observed, pending = requested("2099-01-01T00:00:00Z"), requested("any"), "2099-01-01T00:00:05Z"
    before["metadata"]["annotations"] = {ANNOTATION_RESTART: pending}
    before["status"]["begun"] = {"generation": 1}
    observed["status"]["attempt"] = 1
    server.responses[f"{JOBS}/mnist"] = [ok(before), ok(before), ok(observed)]
    result = server.run("restart", "mnist")
    assert (result.stdout, result.stderr) == ("tfjob.kubeflow.org/mnist restarted as attempt 1\n", "")
    ((_, body),) = writes_of(server)
    assert body["metadata"]["annotations"] == {ANNOTATION_RESTART: "2099-01-01T00:00:05.000001Z"}


def created(age_s: float = -3600.0, image: str = "x") -> Any:
    """The job as the server has it. A new one is younger than this module, which is imported before a test begins."""
    made = a_job()
    time = datetime.now(UTC) - timedelta(seconds=age_s)
    made["metadata"]["creationTimestamp"] = f"{time:%Y-%m-%dT%H:%M:%SZ}"
    container = {"name": "tensorflow", "image": image}
    made["spec"] = {
        "tfReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}},
        "runPolicy": {"cleanPodPolicy": "Running"},
    }
    return made


TAKEN = refusal(409, "AlreadyExists")
CREATIONS: dict[str, tuple[list[Answer], list[Answer], int, int]] = {
    "took effect": ([CUT], [ok(created())], 0, 1),
    "did not": ([CUT, ok(created())], [MISSING], 0, 2),
    "late": ([CUT, TAKEN], [MISSING, ok(created())], 0, 2),
    "submitted twice within a second": ([TAKEN], [ok(created())], 1, 1),
    "gateway timeout": ([(504, b"")], [ok(created())], 0, 1),
    "older job": ([CUT], [ok(created(60))], 4, 1),
    "other job": ([CUT], [ok(created(image="y"))], 4, 1),
    "unreadable": ([CUT], [refusal(403, "Forbidden")], 4, 1),
    "taken by an older job": ([TAKEN], [ok(created(60))], 1, 1),
    "taken by another": ([TAKEN], [ok(created(image="y"))], 1, 1),
}


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(("posts", "reads", "code", "count"), CREATIONS.values(), ids=CREATIONS)
def test_a_job_that_may_have_been_created_is_ours_if_it_is_new_and_has_what_was_sent(
    server: Server, posts: list[Answer], reads: list[Answer], code: int, count: int
) -> None:
    """A second job would train the same a second time; an older one is not what was submitted."""
    server.responses |= {JOBS: posts, f"{JOBS}/mnist": reads}
    server.answers("/apis/kubeflow.org/v1", {"resources": [{"name": "tfjobs"}]})
    result = server.run("submit", "mnist", "--image=x")
    assert result.exit_code == code, result.stderr
    assert result.stdout == ("" if code else "tfjob.kubeflow.org/mnist created\n")
    assert (UNKNOWN in result.stderr) == (code == 4)
    assert [method for method, _ in writes_of(server)] == ["POST"] * count


ENDING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
DELETIONS: dict[str, tuple[list[Answer], int, int]] = {
    "gone": ([CUT, MISSING], 0, 1),
    "being deleted": ([CUT, ok(pod(WORKER, meta=ENDING))], 0, 1),
    "recreated": ([CUT, ok(pod(WORKER, meta={"uid": "other"}))], 0, 1),
    "did not": ([CUT, ok(pod(WORKER)), ok({})], 0, 2),
    "late": ([CUT, ok(pod(WORKER)), MISSING, MISSING], 0, 2),
    "unknown": ([CUT, refusal(403, "Forbidden")], 1, 1),
}


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(("answers", "code", "count"), DELETIONS.values(), ids=DELETIONS)
def test_a_pod_that_may_have_been_deleted_is_looked_for_by_its_uid(
    server: Server, mocker: MockerFixture, answers: list[Answer], code: int, count: int
) -> None:
    mocker.patch("tfjob_operator.cli.collecting.obstacle", return_value="")
    server.answers(f"{JOBS}/mnist", RUNNING)
    server.answers(PODS, {"metadata": {}, "items": [pod(WORKER)]})
    server.responses[f"{PODS}/mnist-worker-0"] = answers
    result = server.run("restart", "mnist", "--replica=worker-0")
    assert (result.exit_code, result.stdout) == (code, "" if code else "pod/mnist-worker-0 deleted\n")
    assert (f"{UNKNOWN} {server.flags} -n team get pod mnist-worker-0" in result.stderr) == bool(code)
    options = [body["preconditions"] for _, body in writes_of(server)]
    assert options == [{"uid": "uid-mnist-worker-0"}] * count


def test_prune_prints_once_why_several_jobs_are_not_deleted(server: Server) -> None:
    over = [job(name, "Succeeded") for name in ("a1", "b2", "c3", "d4", "e5")]
    server.answers(JOBS, {"metadata": {}, "items": over})
    forbidden = 'tfjobs.kubeflow.org "%s" is forbidden: User "me" cannot delete it in the namespace "team"'
    for name in ("a1", "c3", "d4"):
        server.answers(f"{JOBS}/{name}", {"message": forbidden % name, "reason": "Forbidden"}, code=403)
    server.answers(f"{JOBS}/b2", {})
    server.answers(f"{JOBS}/e5", {"message": "no", "reason": "Conflict"}, code=409)
    result = server.run("prune", "--yes")
    assert (result.exit_code, result.stdout) == (1, "tfjob.kubeflow.org/b2 deleted\n")
    assert result.stderr.splitlines() == [
        f"Error from server (Forbidden): {forbidden % 'a1'}; the same for 2 more jobs",
        "error: tfjob.kubeflow.org/e5 has changed and was not deleted: no",
    ]


@pytest.mark.usefixtures("pauses")
def test_prune_looks_for_each_job_whose_deletion_was_not_answered(server: Server) -> None:
    over = [job(name, "Succeeded") for name in ("a", "b", "c")]
    server.answers(JOBS, {"metadata": {}, "items": over})
    server.responses[f"{JOBS}/a"] = [CUT, MISSING]
    server.responses[f"{JOBS}/b"] = [CUT, ok(over[1]), CONFLICT, ok(over[1]), CONFLICT, ok(over[1])]
    server.responses[f"{JOBS}/c"] = [CUT, ok(over[2]), ok({})]
    result = server.run("prune", "--yes")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [f"tfjob.kubeflow.org/{name} deleted" for name in ("a", "c")]
    assert "error: tfjob.kubeflow.org/b has changed and was not deleted: no\n" in result.stderr
