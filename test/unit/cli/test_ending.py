"""A job whose end is decided and not written yet: every display says Ending, and how it ends."""

import json
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from typing import Any

import msgspec
import pytest
from pytest_mock import MockerFixture

from fakes.jobs import at, spec, synced, true_of
from fakes.jobs import job as v1_job
from fakes.jobs import pod as v1_pod
from hack.objects import container_status
from tfjob_operator.api.v1 import conditions, constants, states
from tfjob_operator.api.v1.types import TFJob
from tfjob_operator.cli.diagnosis import ending
from tfjob_operator.cli.diagnosis.causes import Cause, Diagnosis
from tfjob_operator.cli.diagnosis.diagnose import diagnose
from tfjob_operator.cli.diagnosis.facts import Evidence
from tfjob_operator.cli.gathering import job_from, pods_from
from tfjob_operator.cli.model import facts
from tfjob_operator.cli.page.objects import PageJob
from tfjob_operator.cli.selection import ReplicaPod
from tfjob_operator.cli.status import ASCII, job_summary_of, render
from tfjob_operator.cli.timelines.build import timeline_of
from tfjob_operator.cli.timelines.render import Frame
from tfjob_operator.cli.timelines.render import render as render_timeline
from tfjob_operator.cli.watching import LiveState, Printer
from tfjob_operator.controller.jobs.job_metrics import index_by_state, state_of
from tfjob_operator.controller.tfjob.plan import cleanup
from tfjob_operator.controller.tfjob.plan.types import DEFAULTS
from unit.cli.conftest import JOBS, PODS, Server, operator_deployment, outcome, pod
from unit.cli.diagnosis.troubled import Troubled
from unit.cli.page.conftest import view_of_page

LED = spec(Chief=1, PS=1, Worker=1)
DONE, FAILED = v1_pod("Chief", 0, "Succeeded", 0), v1_pod("Chief", 0, "Failed", 3)
NOW = at(70)
"""Ten seconds after the decision."""


@cache
def stages(outcome: str = "Succeeded") -> tuple[TFJob, ...]:
    """A queued job: new, running, Ending since second 60, and finished at second 90."""
    new = v1_job(LED, labels={constants.LABEL_QUEUE: "gpus"})
    kept = [v1_pod("PS", 0), v1_pod("Worker", 0)]
    running = synced(synced(new, at_s=0), v1_pod("Chief", 0), *kept, at_s=1)
    last = DONE if outcome == "Succeeded" else FAILED
    decided = synced(running, last, *kept, at_s=60)
    written = synced(decided, last, at_s=90)
    assert (true_of(decided), true_of(written)) == (["Created", "Running"], ["Created", outcome])
    return new, running, decided, written


def raw(tfjob: TFJob) -> dict[str, Any]:
    """The job as the API server sends it."""
    body: dict[str, Any] = json.loads(msgspec.json.encode(tfjob))
    body["metadata"] |= {
        "namespace": "team",
        "uid": "uid-mnist",
        "creationTimestamp": text(at(0)),
        "resourceVersion": "7",
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob"} | body


def text(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def an_ending(outcome: str = "Succeeded") -> dict[str, Any]:
    return raw(stages(outcome)[2])


def container(name: str, code: int | None = None) -> dict[str, Any]:
    return container_status({"running": {}} if code is None else {"terminated": {"exitCode": code}}, name=name)


ALONE = {"restartPolicy": "Never", "containers": [{"name": "tensorflow"}]}
BESIDE = {"restartPolicy": "Never", "containers": [{"name": "tensorflow"}, {"name": "collector"}]}
a_pod = partial(pod, spec=ALONE, containerStatuses=[container("tensorflow")])
"""A running pod."""


def succeeded(name: str = "mnist-chief-0") -> dict[str, Any]:
    found = a_pod(name, containerStatuses=[container("tensorflow", 0)])
    found["status"]["phase"] = "Succeeded"
    return found


DELETED = {"deletionTimestamp": text(at(90)), "deletionGracePeriodSeconds": 30}
SUCCEEDS = "TFJob ns/mnist successfully completed."


@pytest.mark.parametrize("outcome", ["Succeeded", "Failed"])
def test_raw_and_typed_statuses_have_the_same_state(outcome: str) -> None:
    """The plugin reads most jobs as JSON, since decoding imports msgspec."""
    bodies = [raw(each) for each in stages(outcome)]
    assert [facts.state_of(each) for each in bodies] == ["New", "Running", "Ending", outcome]
    assert [state_of(each) for each in stages(outcome)] == ["New", "Running", "Ending", outcome]
    for body, tfjob in zip(bodies, stages(outcome), strict=True):
        decided, typed = facts.decided_end(body), conditions.decided_end(tfjob.status)
        assert (decided is not None) is (typed is not None) is conditions.is_ending(tfjob.status)
        assert decided is None or typed is None or decided["message"] == typed.message
    assert states.ENDING == conditions.ENDING


@pytest.mark.parametrize("record", [{}, "won", {"type": "Won"}, {"reason": "x"}])
def test_a_record_that_nobody_understands_is_no_end(record: Any) -> None:
    """Old CRDs accept anything in `status.begun`."""
    body = an_ending()
    for begun in ({"ending": record}, record):
        body["status"]["begun"] = begun
        assert facts.state_of(body) == "Running"


def test_the_gauge_counts_an_ending_job_as_such() -> None:
    assert index_by_state(stages()[2]) == ("ns/Ending",)


def serve(server: Server, body: dict[str, Any], *pods: dict[str, Any]) -> None:
    server.answers(JOBS, {"metadata": {"resourceVersion": "9"}, "items": [body]})
    server.answers(f"{JOBS}/mnist", body)
    server.answers(PODS, {"metadata": {"resourceVersion": "9"}, "items": list(pods)})


@pytest.mark.parametrize(("outcome", "reason"), [("Succeeded", []), ("Failed", ["ExitCode:3"])])
def test_a_listed_job_is_ending_with_the_reason_of_its_failure_and_no_other(
    server: Server, outcome: str, reason: list[str]
) -> None:
    """Deleted pods, and pods that failed because they were deleted, are no problem; the duration is the final one."""
    killed = a_pod("mnist-worker-0", meta=DELETED, containerStatuses=[container("tensorflow", 143)])
    killed["status"]["phase"] = "Failed"
    for pods in ((), (killed,)):
        serve(server, an_ending(outcome), *pods)
        shown = server.run("list", "--state=Ending")
        (row,) = [line.split() for line in shown.stdout.splitlines()[1:]]
        assert [*row[:5], *row[6:]] == ["mnist", "Ending", "0/3", "0", "60s", *reason]
    assert len(server.run("list", "--state=running").stdout.splitlines()) <= 1


def test_a_suspended_ending_job_waits_for_no_queue(server: Server) -> None:
    body = an_ending()
    body["spec"]["runPolicy"] = {"suspend": True}
    serve(server, body)
    assert "Queued" not in server.run("list").stdout


def state_line(*pods: dict[str, Any], outcome: str = "Succeeded") -> list[str]:
    body = an_ending(outcome)
    summary = job_summary_of(job_from(body), body, pods, NOW)
    return render(summary, NOW, lambda text, _: text, 80, ASCII)


def test_status_says_how_the_job_ends_and_that_no_replica_is_missing(server: Server) -> None:
    shown = state_line(succeeded(), a_pod("mnist-ps-0"))
    assert shown[0] == "mnist in team: Ending, created 70s ago"
    assert shown[3] == f"  Ends as Succeeded, decided 10s ago: {SUCCEEDS}"
    assert [line.split()[1:] for line in shown if "worker-0" in line] == [["worker-0", "No", "pod"]]
    serve(server, an_ending())
    found = json.loads(server.run("status", "mnist", "-o", "json").stdout)
    assert (found["state"], found["ending"]["type"], found["ended"]) == ("Ending", "Succeeded", None)
    serve(server, raw(stages()[3]))
    assert json.loads(server.run("status", "mnist", "-o", "json").stdout)["ending"] is None


def test_watch_prints_a_line_when_the_end_is_decided(capsys: pytest.CaptureFixture[str]) -> None:
    printer = Printer()
    for body in map(raw, stages()[1:]):
        printer.show(LiveState(body, replicas=[ReplicaPod("chief", 0, succeeded())]), NOW)
    lines = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith("mnist ")] == [
        "mnist Running: TFJob mnist is running.",
        "mnist 0 of 3 ready, NotReconciled: no operator has created the pods of this job",
        f"mnist Ending: ends as Succeeded: {SUCCEEDS}",
        f"mnist Succeeded: {SUCCEEDS}",
    ]


def test_wait_waits_for_the_condition(server: Server) -> None:
    """Not for the decision: until then, pods of the job work."""
    serve(server, an_ending("Failed"))
    event = {"type": "MODIFIED", "object": raw(stages("Failed")[3])}
    server.answers(JOBS, json.dumps(event).encode() + b"\n")
    code, out, err = outcome(server.run("wait", "mnist"))
    assert (code, err, out.count("\n")) == (1, "", 1)
    assert out.startswith("tfjob.kubeflow.org/mnist Failed: TFJob ns/mnist has failed")
    server.answers(JOBS, b"")
    late = "timed out waiting for tfjob.kubeflow.org/mnist\n"
    assert outcome(server.run("wait", "mnist", "--timeout=0s")) == (124, "", late)


@pytest.mark.parametrize(
    "arguments",
    [
        ["scale", "mnist", "worker=2"],
        ["restart", "mnist"],
        ["restart", "mnist", "--replica=worker-0"],
        ["resume", "mnist"],
    ],
)
def test_commands_that_have_no_effect_any_more_are_refused(server: Server, arguments: list[str]) -> None:
    serve(server, an_ending(), a_pod("mnist-worker-0"))
    code, _, err = outcome(server.run(*arguments))
    assert (code, err.startswith("error: mnist is ending, and nothing changes its outcome any more: Succeeded")) == (
        1,
        True,
    )
    assert all(method == "GET" for method, *_ in server.asked)


def test_suspend_is_allowed_and_says_what_it_does(server: Server) -> None:
    """It ends the grace periods of the pods."""
    given = an_ending()
    queue = given["metadata"]["labels"].pop(constants.LABEL_QUEUE)
    serve(server, given)
    warning = "warning: mnist ends as Succeeded: its pods only lose their grace periods\n"
    assert outcome(server.run("suspend", "mnist")) == (0, "tfjob.kubeflow.org/mnist suspended\n", warning)
    assert json.loads(server.asked[-1][3]) == {"spec": {"runPolicy": {"suspend": True}}}
    given["metadata"]["labels"][constants.LABEL_QUEUE] = queue
    serve(server, given)
    assert server.run("suspend", "mnist").stderr == f"{warning.rstrip()}, unless Kueue undoes it first\n"


def test_a_restart_that_the_end_forestalled_is_withdrawn_and_explained(server: Server, mocker: MockerFixture) -> None:
    """The operator does not acknowledge a request after its decision."""
    mocker.patch("tfjob_operator.cli.collecting.obstacle", return_value="")
    mocker.patch("tfjob_operator.cli.commands.restart_.ACKNOWLEDGED_WITHIN_S", 0.0)
    asked = an_ending()
    asked["metadata"]["annotations"] = {constants.ANNOTATION_RESTART: "now"}
    server.answers(f"{JOBS}/mnist", raw(stages()[1]), asked)
    result = server.run("restart", "mnist")
    assert (result.exit_code, "error: mnist is ending" in result.stderr) == (1, True), result.stderr
    assert json.loads(server.asked[-1][3])["metadata"]["annotations"] == {constants.ANNOTATION_RESTART: None}


def diagnosed(
    *pods: dict[str, Any], outcome: str = "Succeeded", edit: Callable[[Any], Any] = id, stage: int = 2
) -> Diagnosis:
    body = raw(stages(outcome)[stage])
    edit(body)
    job = msgspec.json.decode(json.dumps(body), type=TFJob)
    return diagnose(Evidence(job=job, now=NOW, pods=pods_from(pods)))


def cause(found: Diagnosis, id_: str = "ending") -> Cause:
    return next(each for each in found.causes if each.id == id_)


COLLECTED = a_pod("mnist-worker-0", spec=BESIDE, containerStatuses=[container("tensorflow", 0), container("collector")])
NATIVE = a_pod(
    "mnist-worker-0",
    spec=ALONE | {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]},
    containerStatuses=[container("tensorflow", 0)],
)


@pytest.mark.parametrize(
    ("given", "until", "how"),
    [
        ([a_pod("mnist-ps-0", meta=DELETED)], 80, "is being deleted; its grace period ends in 20s"),
        ([a_pod("mnist-ps-0")], 90, "runs; deleted now"),
        ([a_pod("mnist-ps-0", spec=ALONE | {"terminationGracePeriodSeconds": 20})], 80, "runs; deleted now"),
        ([COLLECTED], 110, "its sidecar works; deleted in 20s"),
        ([a_pod("mnist-worker-0")], 110, "still trains; deleted in 20s"),
        ([NATIVE], 80, "only its native sidecars run"),
    ],
)
def test_explain_says_how_the_job_ends_and_for_which_pods_it_waits_how_long(
    given: list[dict[str, Any]], until: float, how: str
) -> None:
    found = diagnosed(succeeded(), *given)
    assert found.state_line == "mnist: Ending for 10s, will be Succeeded"
    name = given[0]["metadata"]["name"]
    assert cause(found).title == f"Ending: will be Succeeded when pod {name} has ended, within {until}s"
    assert cause(found).evidence == (f"pod {name}: {how}",)
    assert {each.severity for each in found.causes} == {"info"}, "nothing is wrong"


def test_explain_names_the_longest_wait_of_many_pods_and_says_when_none_is_left() -> None:
    waits = diagnosed(a_pod("mnist-ps-0", meta=DELETED), a_pod("mnist-worker-0"))
    assert cause(waits).title == "Ending: will be Succeeded when 2 pods have ended, within 110s"
    assert cause(diagnosed(succeeded())).title == "Ending: will be Succeeded as soon as the operator writes it"


def test_explain_gives_the_cause_of_a_failure_before_it_is_written() -> None:
    failed = a_pod("mnist-chief-0", containerStatuses=[container("tensorflow", 3)])
    failed["status"]["phase"] = "Failed"
    found = diagnosed(failed, a_pod("mnist-ps-0"), outcome="Failed")
    assert [each.id for each in found.causes] == ["exit-code", "ending"]
    assert "exited with code 3" in " ".join(found.causes[0].evidence)
    gone = diagnosed(outcome="Failed")
    assert gone.causes[0].evidence[0].startswith("job: decided end Failed, TFJobFailed: TFJob ns/mnist has failed")


def test_explain_says_first_that_no_operator_runs_to_write_the_end() -> None:
    world = Troubled()
    world.ending()
    world.lease = world._lease("11:50:00")
    world.deployments = [operator_deployment("kubeflow", readyReplicas=2)]
    assert [each.id for each in diagnose(world.evidence()).causes] == ["operator-not-running", "ending"]


def kept(body: Any) -> None:
    body["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}


def test_under_none_only_surplus_pods_are_waited_for() -> None:
    surplus = a_pod("mnist-worker-7")
    assert "when pod mnist-worker-7 has" in cause(diagnosed(COLLECTED, surplus, edit=kept)).title
    ids = [each.id for each in diagnosed(COLLECTED, edit=kept, stage=3).causes]
    assert "sidecar-after-training" not in ids


def suspended(body: Any) -> None:
    body["spec"]["runPolicy"] = {"suspend": True}


def test_a_suspension_ends_the_grace_periods() -> None:
    assert cause(diagnosed(COLLECTED, edit=suspended)).evidence == (
        "pod mnist-worker-0: its sidecar works; deleted now",
    )


def granted(body: Any) -> None:
    body["spec"]["runPolicy"] = {"completionGracePeriodSeconds": 300}


@pytest.mark.parametrize("stage", [2, 3])
def test_explain_names_the_field_for_a_collector_that_needs_longer(stage: int) -> None:
    """Both while the end is waited for and after it."""
    found = cause(diagnosed(COLLECTED, stage=stage), "sidecar-after-training")
    grace = "after its grace period (30s by default)"
    assert (
        found.title
        == f"A sidecar still works after the training has ended (mnist-worker-0): the pod is deleted {grace}"
    )
    assert found.evidence == ("pod mnist-worker-0: tensorflow has ended, still working: collector; deleted in 20s",)
    assert "spec.runPolicy.completionGracePeriodSeconds" in found.to_do[0]
    assert (
        "deleted in 4m50s"
        in cause(diagnosed(COLLECTED, stage=stage, edit=granted), "sidecar-after-training").evidence[0]
    )


@pytest.mark.parametrize(
    ("status", "is_kept"),
    [
        (
            {"restarts": [{"type": "Worker", "index": 0, "pod": "w0", "failedAt": text(at(60))}]},
            True,
        ),
        (
            {"restarts": [{"type": "Worker", "index": 0, "pod": "w1", "failedAt": text(at(60))}]},
            False,
        ),
        ({"attempt": 1, "attemptHistory": [{"number": 0, "endTime": text(at(60))}]}, True),
        ({}, False),
    ],
)
def test_a_sidecar_is_reported_only_after_an_end_or_a_failure(status: dict[str, Any], is_kept: bool) -> None:
    """A worker that has succeeded keeps its pod while the job trains."""
    ends = [container("tensorflow", 137), container("collector")]
    failed = a_pod("mnist-worker-0", meta={"uid": "w0"}, spec=BESIDE, containerStatuses=ends)
    found = diagnosed(
        failed, a_pod("mnist-ps-0"), a_pod("mnist-chief-0"), edit=lambda body: body["status"].update(status), stage=1
    )
    assert ("sidecar-after-training" in [each.id for each in found.causes]) is is_kept


def test_the_times_of_explain_are_those_of_the_operator() -> None:
    assert (cleanup.GIVE_UP_S, DEFAULTS.completion_grace_s) == (ending.GIVE_UP_S, ending.DEFAULT_GRACE_S)


def test_a_timeline_shows_since_when_the_job_ends() -> None:
    body = an_ending()
    lines = render_timeline(timeline_of(job_from(body)), "mnist", Frame(NOW), lambda text, _: text)
    assert lines[0].endswith(f"ending since {at(60):%H:%M:%S}")
    assert any(line.startswith("ending ") for line in lines)
    assert f"mnist Ending: will be Succeeded: {SUCCEEDS}" in " ".join(" ".join(lines).split())
    over = timeline_of(job_from(raw(stages()[3])))
    assert over.ending is not None
    assert (over.ending.start, over.ending.end, over.end) == (at(60), at(90), at(60))
    assert timeline_of(job_from(raw(stages()[1]))).ending is None


def test_the_page_shows_an_ending_job_and_how_it_ends() -> None:
    """Its pods, which are being deleted, are no problem of a job that succeeds."""
    for end, note in (("Succeeded", ""), ("Failed", "ExitCode:3")):
        job = msgspec.json.decode(json.dumps(an_ending(end)), type=PageJob)
        failed = a_pod("mnist-chief-0", containerStatuses=[container("tensorflow", 3)])
        failed["status"]["phase"] = "Failed"
        view = view_of_page(job, pods_from([failed]))
        row = view["row"]
        assert (row["state"], row["since"], row["ended"], row["note"]) == ("Ending", *2 * [at(60).timestamp()], note)
        assert ("successfully completed" in view["message"]) is (end == "Succeeded")
        assert view["timeline"]["spans"][-1]["kind"] == "ending"
