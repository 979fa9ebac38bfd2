"""How a job stands, replica by replica, on terminals of any width."""

import json
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.objects import container_status, owned_by
from tfjob_operator.cli.gathering import job_from
from tfjob_operator.cli.status import ASCII, JobSummary, job_summary_of, render
from unit.cli.conftest import EVENTS, JOBS, PODS, Server
from unit.cli.conftest import job as a_job
from unit.cli.conftest import pod as a_pod

NOW = datetime(2026, 11, 22, 12, 5, tzinfo=UTC)
CREATED = "2026-11-22T12:00:00Z"
PREFIX = "training.kubeflow.org/"


SPEC = {"tfReplicaSpecs": {"Worker": {"replicas": 3}, "PS": {}}}
job = partial(a_job, spec=SPEC, creationTimestamp="2026-11-22T12:00:00Z")
pod = partial(a_pod, meta={"creationTimestamp": "2026-11-22T12:01:00Z"}, spec={"nodeName": "node-1"})


def container(state: dict[str, Any], last: dict[str, Any] | None = None, restarts: int = 0) -> list[dict[str, Any]]:
    return [container_status(state, last, restarts)]


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def standing(body: dict[str, Any], *pods: dict[str, Any]) -> JobSummary:
    return job_summary_of(job_from(body), body, pods, NOW)


def shown(body: dict[str, Any], *pods: dict[str, Any], width: int = 80) -> list[str]:
    return render(standing(body, *pods), NOW, lambda text, _: text, width, ASCII)


def states(body: dict[str, Any], *pods: dict[str, Any]) -> dict[str, str]:
    return {each.replica: each.state for kind in standing(body, *pods).types for each in kind.replicas}


def test_the_tree_tells_of_each_replica_and_of_what_is_missing() -> None:
    ended_so = ended(1, message="Traceback\nValueError: no data\n")
    crash = container({"waiting": {"reason": "CrashLoopBackOff"}}, ended_so, 4)
    sidecar = [container({"running": {}})[0], crash[0] | {"name": "sidecar"}]
    assert "|    Traceback / ValueError: no data" in shown(job(), pod("mnist-worker-0", containerStatuses=sidecar))
    server = pod("mnist-ps-0", conditions=[{"type": "Ready", "status": "True"}])
    assert shown(job("mnist", "Created", "Running"), server, pod("mnist-worker-0", containerStatuses=crash)) == [
        "mnist in team: Running (CrashLoopBackOff), created 5m ago",
        "  Created 5m ago: is Created",
        "  Running 5m ago: is Running",
        "",
        "REPLICA          STATE             NODE    AGE  RESTARTS  EXIT",
        "PS: 1 of 1 ready",
        "`- ps-0          Running           node-1  4m   0",
        "Worker: 0 of 3 ready, worker-[1-2] missing",
        "|- worker-0      CrashLoopBackOff  node-1  4m   4         1",
        "|    Traceback / ValueError: no data",
        "`- worker-[1-2]  Missing",
    ]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"containerStatuses": container({"waiting": {"reason": "ImagePullBackOff"}})}, "ImagePullBackOff"),
        ({"containerStatuses": container({"waiting": {"reason": "ContainerCreating"}})}, "ContainerCreating"),
        ({"containerStatuses": container({"running": {}})}, "Pending"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, "Unschedulable"),
        ({"initContainerStatuses": container({"waiting": {"reason": "ErrImagePull"}})}, "ErrImagePull"),
        ({}, "Pending"),
    ],
)
def test_a_pod_that_does_not_run_says_why_in_a_word(status: dict[str, Any], state: str) -> None:
    assert states(job("mnist", "Created"), pod("mnist-ps-0", "Pending", **status))["ps-0"] == state


def test_how_a_replica_ended_is_told() -> None:
    failed = pod("mnist-worker-0", "Failed", containerStatuses=container(ended(137, "OOMKilled")))
    evicted = pod("mnist-worker-1", "Failed", reason="Evicted", message="The node was low on memory.")
    (_, workers) = standing(job("mnist", "Running"), failed, evicted).types
    first, second, third = workers.replicas
    assert (first.state, first.exit_code, first.reason) == ("Failed", 137, "OOMKilled")
    assert (second.state, second.exit_code, second.message) == ("Evicted", None, "The node was low on memory.")
    assert (third.state, workers.failed) == ("Missing", 2)


def test_replicas_without_pods_are_missing_only_where_there_should_be_one() -> None:
    """Those that have succeeded never run again; a suspended job has none, one that has ended needs none."""
    done = {"finishedIndices": {"Worker": "0-1"}}
    runs = states(job("mnist", "Running", status=done))
    assert runs == {"ps-0": "Missing", "worker-[0-1]": "Succeeded", "worker-2": "Missing"}
    assert states(job("mnist", "Suspended"))["worker-[0-2]"] == "Suspended"
    over = states(job("mnist", "Succeeded", status=done))
    assert over == {"ps-0": "No pod", "worker-[0-1]": "Succeeded", "worker-2": "No pod"}
    assert standing(job("mnist", "Suspended")).types[0].missing == ""


def test_of_two_pods_of_one_replica_the_newest_counts() -> None:
    """The older one is on its way out."""
    old = pod("mnist-ps-0", "Failed", meta={"uid": "old"})
    old["metadata"]["creationTimestamp"] = "2026-11-22T11:00:00Z"
    assert states(job("mnist", "Running"), pod("mnist-ps-0"), old)["ps-0"] == "Running"


def test_restarts_by_new_pods_are_counted_as_well() -> None:
    """The operator has a record of them in the status."""
    records = [{"type": "Worker", "index": 0, "carried": 2, "inPlace": 1}]
    (_, workers) = standing(job("mnist", "Running", status={"restarts": records}), pod("mnist-worker-0")).types
    assert workers.replicas[0].restarts == 3


ATTEMPTS: dict[str, Any] = {
    "attempt": 2,
    "countedRestarts": 1,
    "nextRestartTime": "2026-11-22T12:05:40Z",
    "attemptHistory": [
        {
            "number": 0,
            "startTime": CREATED,
            "endTime": "2026-11-22T12:03:00Z",
            "rule": "badGpu",
            "action": "RestartAll",
            "replicaType": "Worker",
            "replicaIndex": 2,
            "nodeName": "node-a",
            "exitCode": 42,
            "message": "CUDA error\n",
        },
        {"number": 1, "startTime": "2026-11-22T12:03:00Z", "endTime": "2026-11-22T12:04:30Z"},
    ],
    "avoidedNodes": [
        {"name": "node-a", "failures": 1, "expirationTime": "2026-11-22T13:03:00Z"},
        {"name": "node-b", "failures": 1},
        {"name": "node-c", "failures": 2, "expirationTime": "2026-11-22T12:04:00Z"},
    ],
}
LIMITED = {"tfReplicaSpecs": {"Worker": {"replicas": 3}}, "runPolicy": {"failurePolicy": {"maxRestarts": 3}}}


def test_an_execution_is_told_if_it_is_not_the_attempt() -> None:
    """Else the number of the attempt says it."""
    body = job("mnist", "Running", spec=LIMITED, status=ATTEMPTS | {"executionAttempt": 4})
    assert shown(body, width=120)[2:4] == [
        "  Attempt 2: 1 of 3 restarts used",
        "  Execution 4, counting resumptions",
    ]
    assert standing(job("mnist", "Running", status={"attempt": 2})).execution_attempt == 2


def test_attempts_are_told_with_what_ended_each_and_nodes_that_are_avoided_now() -> None:
    """A replica that is not created yet, since its restart is delayed, is not missing."""
    body = job("mnist", "Restarting", spec=LIMITED, status=ATTEMPTS)
    assert shown(body, width=120)[2:] == [
        "  Attempt 2: 1 of 3 restarts used",
        "  Next restart in 40s",
        "  Attempt 1 ended 30s ago after 90s: restart requested",
        "  Attempt 0 ended 2m ago after 3m: rule badGpu (RestartAll), worker-2 on node-a, exit code 42: CUDA error",
        "  Avoids node-a (1 failure, 58m left)",
        "",
        "REPLICA          STATE",
        "Worker: 0 of 3 ready",
        "`- worker-[0-2]  BackOff",
    ]
    over = shown(job("mnist", "Failed", status={"completionTime": "2026-11-22T12:05:00Z", **ATTEMPTS}))
    assert any(line.startswith("  Attempt 2") for line in over)
    assert not any("Next restart" in line or "Avoids" in line for line in over)


def test_the_hours_of_accelerators_are_shown_with_the_part_that_was_lost() -> None:
    seconds = {
        "nvidia.com/gpu": {"endedWithJob": 3600, "succeeded": 7200, "restarted": 1800, "disrupted": 360, "failed": 0},
        "google.com/tpu": {"succeeded": 4_680_000},
        "amd.com/gpu": {"succeeded": 20, "failed": 4},
    }
    assert shown(job("mnist", "Running", status={"acceleratorSeconds": seconds}), width=120)[2:5] == [
        "  Ended pods held nvidia.com/gpu: 3.60 hours, 36m lost (restarted 30m, disrupted 6m)",
        "  Ended pods held google.com/tpu: 1,300.00 hours",
        "  Ended pods held amd.com/gpu: 24s, 4s lost (failed 4s)",
    ]
    assert standing(job("mnist", "Running", status={"acceleratorSeconds": seconds})).accelerator_seconds == seconds
    assert standing(job("mnist", "Running")).accelerator_seconds == {}


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        ({"reason": "OOMKilled", "exitCode": 137}, "exit code 137 (OOMKilled)"),
        ({"reason": "Error", "exitCode": 1, "message": "no data"}, "exit code 1: no data"),
        ({"reason": "Evicted", "message": "low on memory"}, "Evicted: low on memory"),
        (
            {"reason": "StartDeadlineExceeded", "message": "did not run in time"},
            "StartDeadlineExceeded: did not run in time",
        ),
        ({"reason": "NotRunningAgain", "message": "did not run again in time"}, "did not run again in time"),
        ({"reason": "NodeSick", "message": "its node a has taint gpu"}, "its node a has taint gpu"),
        ({"containerName": "metrics", "exitCode": 7}, "exit code 7 of container metrics"),
        ({"containerName": "tensorflow", "exitCode": 7}, "exit code 7"),
    ],
)
def test_an_attempt_is_told_with_the_reason_of_its_end_where_that_says_more(attempt: dict[str, Any], told: str) -> None:
    history = [
        {"number": 0, "rule": "any", "action": "RestartAll", "replicaType": "Worker", "replicaIndex": 2, **attempt}
    ]
    lines = shown(job("mnist", "Running", status={"attemptHistory": history}), width=120)
    (line,) = [each for each in lines if "Attempt 0" in each]
    assert line.partition("worker-2")[2].strip(", :") == told


def test_a_job_of_the_alpha_dialect_has_a_tree_too() -> None:
    """Its pods are found by the labels that they had then."""
    spec = {"replicaSpecs": [{"tfReplicaType": "MASTER"}, {"tfReplicaType": "PS", "replicas": 2}]}
    labels = {"job_type": "MASTER", "task_index": "0", "tf_job_name": "mnist"}
    body = job(spec=spec, status={"phase": "Running"})
    master = pod("mnist-master-x-0", meta={"labels": labels, **owned_by("mnist")})
    assert states(body, master) == {"master-0": "Running", "ps-[0-1]": "Missing"}
    assert standing(body).state == "Running"


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = pod("mnist-worker-1", "Failed", containerStatuses=container(ended(1, message="word " * 200)))
    lines = shown(job("mnist", "Running", status=ATTEMPTS), pod("mnist-worker-0"), long, width=width)
    assert max(map(len, lines)) <= max(width, 30)
    assert any("worker-0" in line and "Run" in line for line in lines)
    assert any("node-1" in line for line in lines) == (width >= 60)


KEYS = st.sampled_from(["replicas", "Worker", "index", "type", "tfReplicaType"])
ODD: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.just("0-99999999"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("tfReplicaSpecs", "replicaSpecs", "runPolicy"), ODD)),
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("finishedIndices", "restarts", "conditions", "phase", *ATTEMPTS), ODD)
    ),
)
def test_no_job_is_too_odd_to_be_shown(spec: dict[str, Any], status: dict[str, Any]) -> None:
    """Jobs may be from a time when the CRD had no schema."""
    body = {"metadata": {"name": "mnist", "namespace": "team"}, "spec": spec, "status": status}
    assert render(standing(body, pod("mnist-worker-0")), NOW, lambda text, _: text, 80, ASCII)


def test_the_end_of_a_long_message_is_shown_which_names_the_error() -> None:
    traceback = "Traceback (most recent call last):\n" + "  File x, line 1, in y\n" * 12 + "ValueError: no data"
    crashed = pod("mnist-worker-1", "Failed", containerStatuses=container(ended(1, message=traceback)))
    message = f"TFJob mnist has failed. {'word ' * 300}ValueError: no data"
    failed = {"type": "Failed", "status": "True", "reason": "TFJobFailed", "message": message}
    lines = shown(job(status={"conditions": [failed]}), crashed)
    assert sum("ValueError: no data" in line for line in lines) == 2
    assert any(line.endswith(" ...") for line in lines)


@pytest.mark.parametrize("is_granted", [False, True])
def test_a_progress_deadline_without_effect_is_shown_with_the_remedy(server: Server, is_granted: bool) -> None:
    """Until the operator has found a stall, which takes the permission."""
    body = job("mnist", "Running", spec={**SPEC, "runPolicy": {"progressDeadlineSeconds": 60}})
    if is_granted:
        stalled = {"type": "Stalled", "status": "False", "lastTransitionTime": "2026-11-22T12:04:00Z"}
        body["status"]["conditions"].insert(0, stalled)
    server.answers(f"{JOBS}/mnist", body)
    server.answers(PODS, {"items": [], "metadata": {"resourceVersion": "9"}})
    told = "progressDeadlineSeconds has no effect: forbidden; to grant this, apply manifests/addons/logs"
    warning = {"reason": "LogsUnavailable", "message": told, "lastTimestamp": "2026-11-22T12:03:00Z"}
    event = {
        "metadata": {"name": "e", "namespace": "team", "uid": "u"},
        "involvedObject": {"uid": "uid-mnist"},
        **warning,
    }
    server.answers(EVENTS, {"items": [event], "metadata": {}})
    shown_lines = " ".join(server.run("status", "mnist").output.split())
    assert ("LogsUnavailable " in shown_lines, told in shown_lines) == (not is_granted, not is_granted)
    assert sum("LogsUnavailable" in path for _, path, *_ in server.asked) == 1


def test_what_others_wrote_is_shown_without_its_control_characters() -> None:
    evil = pod("mnist-ps-0", "Failed", reason="\x1b[2J", message="\x1b]0;x\x07\nsecond")
    assert not any("\x1b" in line or "\n" in line for line in shown(job("mnist", "Running"), evil))


def test_status_reads_the_job_and_its_pods(server: Server) -> None:
    server.answers(f"{JOBS}/mnist", job("mnist", "Running"))
    server.answers(PODS, {"items": [pod("mnist-ps-0")], "metadata": {"resourceVersion": "9"}})
    server.answers(EVENTS, {"items": [], "metadata": {}})
    result = server.run("status", "mnist")
    assert result.exit_code == 0
    assert result.output.startswith("mnist in team: Running (NotReconciled), created ")
    assert "\x1b" not in result.output
    assert len(server.asked) == 3, "events, since pods are missing"
    told = json.loads(server.run("status", "mnist", "-o", "json").output)
    assert (told["state"], told["types"][1]["missing"]) == ("Running", "0-2")
    assert "missing: 0-2\n" in server.run("status", "mnist", "-o", "yaml").output


def test_a_terminal_that_knows_ascii_alone_gets_ascii(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answers(f"{JOBS}/mnist", job("mnist", "Running"))
    odd = pod("mnist-ps-0", "Failed", message="größer")
    server.answers(PODS, {"items": [odd], "metadata": {}})
    server.answers(EVENTS, {"items": [], "metadata": {}})
    monkeypatch.setenv("LC_ALL", "C")
    output = server.run("status", "mnist").output
    assert output.isascii()
    assert r"gr\xf6\xdfer" in output
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    assert "└─ ps-0" in server.run("status", "mnist").output
