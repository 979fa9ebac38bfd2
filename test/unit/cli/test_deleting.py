"""Commands that delete, and what all commands print to which stream."""

import json
import socket
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from hack.objects import condition, owned_by
from tfjob_operator.cli.commands import restart_, tensorboard_
from unit.cli import training_operator
from unit.cli.conftest import JOBS, PODS, Server, job, operator_deployment, pod

PREFIX = "training.kubeflow.org"


def deletes(server: Server) -> dict[str, Any]:
    return {path: json.loads(body)["preconditions"] for method, path, _, body in server.asked if method == "DELETE"}


def test_restart_deletes_those_very_pods(server: Server) -> None:
    server.answers(f"{JOBS}/mnist", job("mnist", "Running"))
    other = pod("mnist-worker-9", meta=owned_by("mnist", "else"))
    gone = pod("mnist-worker-2", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    pods = [pod("mnist-worker-0"), pod("mnist-worker-1", "Succeeded"), gone, pod("mnist-worker-3"), other]
    server.answers(PODS, {"metadata": {}, "items": pods})
    server.answers(f"{PODS}/mnist-worker-0", {})
    server.answers(f"{PODS}/mnist-worker-3", {"message": "the UID does not match", "reason": "Conflict"}, code=409)
    result = server.run("restart", "mnist", "--type=worker")
    assert result.output.splitlines() == [
        "pod/mnist-worker-0 deleted",
        "pod/mnist-worker-1 not deleted: worker-1 has succeeded",
        "pod/mnist-worker-2 is already being deleted",
        "pod/mnist-worker-3 was already recreated",
    ]
    assert deletes(server) == {
        f"{PODS}/mnist-worker-0": {"uid": "uid-mnist-worker-0"},
        f"{PODS}/mnist-worker-3": {"uid": "uid-mnist-worker-3"},
    }


def test_restart_of_some_is_of_those_alone(server: Server) -> None:
    server.answers(f"{JOBS}/mnist", job("mnist", "Running"))
    server.answers(PODS, {"metadata": {}, "items": [pod(f"mnist-worker-{index}") for index in range(3)]})
    server.answers(f"{PODS}/mnist-worker-0", {"message": "no", "reason": "Forbidden"}, code=403)
    server.answers(f"{PODS}/mnist-worker-1", {})
    chosen = ["--index=0", "--replica=worker-1"]
    dry = server.run("restart", "mnist", *chosen, "--dry-run")
    assert dry.output.splitlines() == [f"pod/mnist-worker-{index} deleted (dry run)" for index in (0, 1)]
    assert deletes(server) == {}
    result = server.run("restart", "mnist", *chosen)
    assert (result.exit_code, result.stdout) == (1, "pod/mnist-worker-1 deleted\n")
    assert result.stderr == "Error from server (Forbidden): no\n"


@pytest.mark.parametrize(
    ("code", "wanted", "why"),
    [
        (200, 0, "The operator is stopped: its Deployment kubeflow/tf-job-operator is scaled to 0"),
        (200, 1, ""),
        (403, 0, ""),
    ],
)
def test_restart_deletes_no_pod_that_nobody_would_recreate(server: Server, code: int, wanted: int, why: str) -> None:
    """As far as its user may look: else the pods are deleted."""
    server.answers(f"{JOBS}/mnist", job("mnist", "Running"))
    server.answers(PODS, {"metadata": {}, "items": [pod("mnist-worker-0")]})
    server.answers(f"{PODS}/mnist-worker-0", {})
    operator = operator_deployment("kubeflow", wanted=wanted, readyReplicas=wanted)
    for path in ("/apis/apps/v1/deployments", "/apis/coordination.k8s.io/v1/leases"):
        items = [operator] if "apps" in path else []
        server.answers(path, {"metadata": {}, "items": items, "reason": "Forbidden"}, code=code)
    server.answers(training_operator.PEERS, {"metadata": {}, "items": []})
    for chosen in (["--index=0"], []) if why else (["--index=0"],):
        result = server.run("restart", "mnist", *chosen)
    assert bool(deletes(server)) is not bool(why)
    assert not [each for each in server.asked if each[0] == "PATCH"]
    refusal = f"error: mnist not restarted, because nobody would recreate its pods: {why}\n"
    assert (result.exit_code, result.stderr) == ((1, refusal) if why else (0, ""))


def test_restart_deletes_no_pod_while_the_move_of_its_namespace_is_unfinished(server: Server) -> None:
    """A plan for the namespace that was killed after its second step: nobody may write there, and there is no Lease."""
    server.answers(f"{JOBS}/mnist", job("mnist", "Running"))
    server.answers(PODS, {"metadata": {}, "items": [pod("mnist-worker-0")]})
    space = {"metadata": {"name": "team", "labels": {"tfjob.kubeflow.org/operator": "tfjob-operator"}}}
    server.answers(f"{training_operator.NAMESPACES}/team", space)
    running = training_operator.deployment() | {"status": {"readyReplicas": 2}}
    server.answers(training_operator.PEERS, {"metadata": {}, "items": [running]})
    for path in (training_operator.DEPLOYMENTS, "/apis/coordination.k8s.io/v1/leases"):
        server.answers(path, {"metadata": {}, "items": []})
    for chosen in (["--index=0"], []):
        result = server.run("restart", "mnist", *chosen)
        assert (result.exit_code, deletes(server)) == (1, {})
        assert "nobody would recreate its pods: No operator is installed" in result.stderr


@pytest.mark.parametrize(
    ("phase", "why"),
    [("Pending", ""), ("Running", "because training-operator serves the job: it may count a deleted pod as failed")],
)
def test_restart_deletes_only_pods_that_training_operator_recreates(server: Server, phase: str, why: str) -> None:
    """After a way back: the Deployment of this operator is still there, with 0 replicas.

    Seen: the job failed when training-operator found a deleted pod, in one of three deletions.
    """
    server.answers(f"{JOBS}/mnist", job("mnist", "Running"))
    server.answers(PODS, {"metadata": {}, "items": [pod("mnist-worker-0", phase)]})
    server.answers(f"{PODS}/mnist-worker-0", {})
    server.answers(
        training_operator.DEPLOYMENTS, {"metadata": {}, "items": [operator_deployment("kubeflow", wanted=0)]}
    )
    running = training_operator.deployment() | {"status": {"readyReplicas": 2}}
    server.answers(training_operator.PEERS, {"metadata": {}, "items": [running]})
    server.answers("/apis/coordination.k8s.io/v1/leases", {"metadata": {}, "items": []})
    result = server.run("restart", "mnist", "--index=0")
    assert result.exit_code == bool(why)
    assert why in result.stderr
    assert bool(deletes(server)) is not bool(why)
    whole = server.run("restart", "mnist")
    assert whole.exit_code == 1
    assert "training-operator kubeflow/training-operator serves it, which cannot restart whole jobs" in whole.stderr
    ours = operator_deployment("kubeflow", readyReplicas=2)
    server.answers(training_operator.DEPLOYMENTS, {"metadata": {}, "items": [ours]})  # both serve the job
    both = server.run("restart", "mnist")
    assert (both.exit_code, "it may count a deleted pod as failed" in both.stderr) == (1, True)
    assert not [each for each in server.asked if each[0] == "PATCH"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (job("mnist", "Failed"), "kubectl FLAGS -n team get tfjob.kubeflow.org/mnist -o yaml > mnist.saved.yaml"),
        (job("mnist", "Failed"), "kubectl FLAGS -n team replace --force -f mnist.saved.yaml"),
        (job(spec={"runPolicy": {"suspend": True}}), "kubectl tfjob FLAGS resume mnist -n team"),
        (job("mnist", "Running", "Held"), "mnist is on hold, and its pods would not be recreated"),
        (job(), "mnist has no pods: see kubectl tfjob FLAGS explain mnist -n team"),
        (job(spec={"replicaSpecs": []}), "mnist is a v1alpha1 job, which cannot be restarted as a whole: choose"),
    ],
)
def test_restart_says_what_to_do_where_it_can_do_nothing(server: Server, given: dict[str, Any], says: str) -> None:
    server.answers(f"{JOBS}/mnist", given)
    server.answers(PODS, {"metadata": {}, "items": []})
    result = server.run("restart", "mnist")
    assert result.exit_code == 1
    assert says.replace("FLAGS", server.flags) in result.stderr
    assert all(method == "GET" for method, *_ in server.asked)


LATER = "2999-01-01T12:05:40Z"
RECORDS = [{"type": "Worker", "index": 0, "nextTime": LATER}, {"type": "Worker", "index": 1, "nextTime": "odd"}]
WHOLE = {"begun": {"delaySeconds": 40}, "attemptHistory": [{"endTime": "2999-01-01T12:05:00Z"}]}


@pytest.mark.parametrize(
    ("chosen", "status", "is_delayed"),
    [
        ("worker-0", {"restarts": RECORDS}, True),
        ("worker-1", {"restarts": RECORDS}, False),
        ("worker-1", {"restarts": [RECORDS[1] | {"nextTime": LATER.removesuffix("Z")}]}, False),
        ("worker-1", WHOLE, True),
        ("worker-1", {"restarts": [RECORDS[1] | {"nextTime": "2020-01-01T12:05:40Z"}]}, False),
    ],
)
def test_a_replica_without_a_pod_says_until_when_its_restart_is_delayed(
    server: Server, chosen: str, status: dict[str, Any], is_delayed: bool
) -> None:
    delayed = job("mnist", "Running")
    delayed["status"] |= status
    server.answers(f"{JOBS}/mnist", delayed)
    server.answers(PODS, {"metadata": {}, "items": []})
    result = server.run("restart", "mnist", f"--replica={chosen}")
    see = f"see kubectl {server.flags} -n team get pods --selector=training.kubeflow.org/job-name=mnist"
    why = " yet: their restart is delayed until 12:05:40 UTC" if is_delayed else f": {see}"
    assert (result.exit_code, result.stderr) == (1, f"error: no pods of these replicas of mnist{why}\n")


ANNOTATION = f"{PREFIX}/restart-requested-at"


def requested(value: str = "now", *, noted: str = "", conditions: tuple[str, ...] = ("Running",), **status: Any) -> Any:
    made = job("mnist", *conditions)
    made["metadata"]["annotations"] = {ANNOTATION: value}
    made["status"] |= {"begun": {"generation": 1}, "observedRestartRequest": noted, **status}
    return made


UNNOTED = (
    "error: mnist was not restarted: no operator noted the request within 0s, and it was withdrawn. An operator that cannot "
    "restart whole jobs recreates pods (but training-operator may fail the job): "
    "kubectl tfjob FLAGS restart mnist --replica=worker-0 -n team\n"
)
ENDED = "error: mnist was not restarted: its training has ended, and the job finishes when its workers have exited\n"


@pytest.mark.parametrize(
    ("seen", "printed", "errors"),
    [
        ([requested(noted="now", attempt=3)], "tfjob.kubeflow.org/mnist restarted as attempt 3\n", ""),
        ([requested(), requested(noted="now", attempt=3)], "tfjob.kubeflow.org/mnist restarted as attempt 3\n", ""),
        (
            [requested("a later one", noted="a later one", attempt=4)],
            "tfjob.kubeflow.org/mnist restarted as attempt 4\n",
            "",
        ),
        (
            [requested(), requested(), (409, b'{"reason": "Conflict"}'), requested(noted="now", attempt=3)],
            "tfjob.kubeflow.org/mnist restarted as attempt 3\n",
            "",
        ),
        ([requested(noted="now")], "", ENDED),
        ([requested(noted="now", conditions=("Failed",), attempt=2)], "", "error: mnist has finished: Failed\n"),
        ([requested(noted="an earlier one")], "", UNNOTED),
        ([requested(), (404, b'{"message": "gone", "reason": "NotFound"}')], "", "error: mnist was deleted\n"),
    ],
)
def test_restart_of_the_whole_job_prints_what_the_operator_has_made_of_it(
    server: Server, mocker: MockerFixture, seen: list[Any], printed: str, errors: str
) -> None:
    """A request that nobody notes is withdrawn: an operator that is installed later would follow it."""
    mocker.patch.object(restart_, "ACKNOWLEDGED_WITHIN_S", 5.0 if "deleted" in errors else 0.0)
    mocker.patch("time.sleep")
    before = requested(noted="", attempt=2)
    before["metadata"]["annotations"] = None
    server.answers(JOBS, b"")
    server.answers(f"{JOBS}/mnist", before, before)
    server.responses[f"{JOBS}/mnist"] += [
        each if isinstance(each, tuple) else (200, json.dumps(each).encode()) for each in seen
    ]
    result = server.run("restart", "mnist")
    expected = errors.replace("FLAGS", server.flags)
    assert (result.exit_code, result.stdout, result.stderr) == (bool(errors), printed, expected)
    first, *others = [json.loads(body)["metadata"] for method, _, _, body in server.asked if method == "PATCH"]
    assert datetime.fromisoformat(first["annotations"][ANNOTATION]).microsecond
    withdrawn = {"resourceVersion": "7", "annotations": {ANNOTATION: None}}
    assert others == ([withdrawn] if errors == UNNOTED or len(seen) == 4 else [])
    assert deletes(server) == {}


@pytest.mark.usefixtures("pauses")
def test_a_restart_that_was_requested_is_followed_through_an_outage(server: Server) -> None:
    """The result is unknown if the outage lasts, because a request that cannot be withdrawn may still be processed."""
    noted, away = json.dumps(requested(noted="now", attempt=3)).encode(), (503, b"{}")
    sent = [(200, json.dumps(requested()).encode())] * 2
    server.answers(JOBS, b"")
    server.responses[f"{JOBS}/mnist"] = [*sent, away, away, (200, noted)]
    assert server.run("restart", "mnist").stdout == "tfjob.kubeflow.org/mnist restarted as attempt 3\n"
    server.responses[f"{JOBS}/mnist"] = [*sent, away]
    result = server.run("restart", "mnist")
    unknown = "error: mnist may restart: it was requested, but the result cannot be read: 503 Service Unavailable: {}"
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (4, unknown)


def test_a_dry_run_of_a_restart_requests_none(server: Server) -> None:
    server.answers(f"{JOBS}/mnist", requested())
    assert server.run("restart", "mnist", "--dry-run").output == "tfjob.kubeflow.org/mnist restarted (dry run)\n"
    assert all(method == "GET" for method, *_ in server.asked)


def ended(name: str, state: str, days: float | None, **meta: Any) -> dict[str, Any]:
    """A job that ended so many days ago; with None nothing says when."""
    made = job(name, "Running", state, **meta)
    for each in made["status"]["conditions"]:
        del each["lastTransitionTime"]
    if days is not None:
        made["status"]["completionTime"] = f"{datetime.now(UTC) - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"
    return made


def ended_jobs(server: Server) -> None:
    items = [
        ended("old", "Succeeded", 9),
        ended("failed", "Failed", 8),
        ended("young", "Succeeded", 1),
        ended("timeless", "Succeeded", None),
        ended("zoneless", "Succeeded", None),
        job("runs", "Running"),
        ended("going", "Succeeded", 9, deletionTimestamp="2026-01-01T00:00:00Z"),
    ]
    items[4]["status"]["completionTime"] = "2026-01-01T00:00:00"
    server.answers(JOBS, {"metadata": {}, "items": items})
    for each in items:
        server.answers(f"{JOBS}/{each['metadata']['name']}", {})


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ([], ["old", "failed", "young", "timeless", "zoneless"]),
        (["--older-than=7d"], ["old", "failed"]),
        (["--state=failed"], ["failed"]),
        (["--state=Succeeded", "--older-than=24h"], ["old", "young"]),
    ],
)
def test_prune_deletes_what_has_ended_as_it_was_seen(server: Server, options: list[str], names: list[str]) -> None:
    ended_jobs(server)
    result = server.run("prune", "--yes", *options)
    assert result.output.splitlines() == [f"tfjob.kubeflow.org/{name} deleted" for name in names]
    assert deletes(server) == {f"{JOBS}/{name}": {"uid": f"uid-{name}", "resourceVersion": "7"} for name in names}


def test_prune_deletes_jobs_of_tensorflow_org_too(server: Server) -> None:
    first = JOBS.replace("kubeflow.org/v1", "tensorflow.org/v1alpha1")
    assert "TFJobs are not served by this cluster" in server.run("prune", "--yes").stderr
    server.answers(first, {"metadata": {}, "items": [ended("old", "Failed", 9)]})
    server.answers(f"{first}/old", {})
    assert server.run("prune", "--yes").output == "tfjob.tensorflow.org/old deleted\n"
    server.answers(JOBS, {"metadata": {}, "items": [ended("old", "Succeeded", 9)]})
    server.answers(f"{JOBS}/old", {})
    result = server.run("prune", "--yes")
    assert result.output == "tfjob.kubeflow.org/old deleted\ntfjob.tensorflow.org/old deleted\n"
    assert {*deletes(server)} == {f"{JOBS}/old", f"{first}/old"}


def test_prune_deletes_nothing_that_nobody_agreed_to(server: Server, mocker: MockerFixture) -> None:
    """A script has to say --yes; a person is shown what would be deleted."""
    ended_jobs(server)
    refused = server.run("prune")
    missing = "error: standard input is not a terminal: pass --yes to delete 5 jobs, or --dry-run to list them\n"
    assert (refused.exit_code, refused.stderr) == (1, missing)
    dry = server.run("prune", "--dry-run", "--state=failed")
    assert dry.output == "tfjob.kubeflow.org/failed deleted (dry run)\n"
    mocker.patch("click.testing._NamedTextIOWrapper.isatty", return_value=True, create=True)
    for answer, code in (("n\n", 1), ("", 130), ("y\n", 0)):
        assert deletes(server) == {}
        asked = server.run("prune", "--state=failed", stdin=answer)
        assert "Delete this job?" in asked.output
        assert asked.exit_code == code
    assert list(deletes(server)) == [f"{JOBS}/failed"]


def test_prune_goes_on_when_one_job_can_not_be_deleted(server: Server) -> None:
    items = [ended(name, "Failed", 9) for name in ("changed", "gone", "forbidden", "fine")]
    server.answers("/apis/kubeflow.org/v1/tfjobs", {"metadata": {}, "items": items})
    server.answers(f"{JOBS}/changed", {"message": "the version does not match", "reason": "Conflict"}, code=409)
    server.answers(f"{JOBS}/forbidden", {"message": "no", "reason": "Forbidden"}, code=403)
    server.answers(f"{JOBS}/fine", {})
    result = server.run("prune", "-A", "-l", "team=vision", "--yes")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [f"tfjob.kubeflow.org/{name} in team deleted" for name in ("gone", "fine")]
    assert "has changed and was not deleted" in result.stderr
    assert "labelSelector=team%3Dvision" in server.asked[0][1]
    server.answers("/apis/kubeflow.org/v1/tfjobs", {"metadata": {}, "items": []})
    assert server.run("prune", "-A").stderr == "No finished jobs found.\n"


METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in the PATH; it is empty."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def make_kubectl(programs: Path, script: str) -> Path:
    """Make a kubectl that runs this Python; return the file in which it writes its arguments, a line for each call."""
    told = programs / "told"
    program = programs / "kubectl"
    program.write_text(
        f"#!{sys.executable}\nimport sys, time\nopen({str(told)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n{script}"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return told


def replicas(server: Server, *names: str, spec: Any = None, phase: str = "Running") -> None:
    server.answers(f"{JOBS}/mnist", job(spec=spec or {"tfReplicaSpecs": {"Worker": {}, "PS": {}, "Chief": {}}}))
    pods = [
        pod(f"mnist-{name}", phase, spec={"containers": [{"name": "side"}, {"name": "tensorflow"}]}) for name in names
    ]
    server.answers(PODS, {"metadata": {}, "items": pods})


@pytest.mark.parametrize(
    ("names", "options", "given"),
    [
        (("chief-0", "ps-0", "worker-0"), [], "mnist-chief-0 --container=tensorflow -- sh"),
        (("ps-0", "worker-0"), ["--", "ls", "-l"], "mnist-worker-0 --container=tensorflow -- ls -l"),
        (("ps-0", "worker-0"), ["--replica=ps-0", "-c", "side", "--", "ls"], "mnist-ps-0 --container=side -- ls"),
        (("ps-1", "ps-0"), ["-i", "--", "cat"], "--stdin mnist-ps-0 --container=tensorflow -- cat"),
    ],
)
def test_exec_becomes_kubectl_exec_in_the_pod_of_a_replica(
    *, server: Server, programs: Path, mocker: MockerFixture, names: tuple[str, ...], options: list[str], given: str
) -> None:
    make_kubectl(programs, "")
    replicas(server, *names)
    become = mocker.patch("os.execv")
    assert server.run("exec", "mnist", *options).exit_code == 0
    (program, line), _ = become.call_args
    assert program == str(programs / "kubectl")
    assert " ".join(line[1:]) == f"--namespace=team --kubeconfig={server.kubeconfig} exec {given}"


@pytest.mark.parametrize(
    ("phase", "options", "code", "says"),
    [
        ("Pending", [], 1, "worker-0 is not running: pod mnist-worker-0 is Pending"),
        ("Running", ["--container=no"], 1, "container no not found in pod mnist-worker-0"),
        ("Running", ["--replica=worker-7"], 1, "no pods of these replicas of mnist"),
        ("Running", ["--replica=evaluator-0"], 1, "mnist has no replicas of type evaluator"),
        ("Running", ["--replica=worker"], 2, "'worker' is not a replica such as worker-0"),
        ("Running", [], 1, "kubectl not found in PATH"),
    ],
)
def test_exec_says_in_one_line_why_it_cannot(
    *, server: Server, programs: Path, phase: str, options: list[str], code: int, says: str
) -> None:
    assert not list(programs.iterdir())
    replicas(server, "worker-0", phase=phase)
    result = server.run("exec", "mnist", *options)
    assert (result.exit_code, says in result.stderr.splitlines()[-1]) == (code, True), result.stderr


def test_top_shows_usage_against_requests_and_limits(server: Server) -> None:
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 2}}
    pods = [pod("mnist-worker-0"), pod("mnist-worker-1"), pod("mnist-ps-0")]
    pods[0]["spec"] = {"containers": [{"resources": resources}, {"resources": resources}]}
    pods[1]["spec"] = {"containers": [{"resources": resources}, {}]}
    pods[2]["spec"] = {"containers": [{"resources": resources}]}
    server.answers(f"{JOBS}/mnist", job())
    server.answers(PODS, {"metadata": {}, "items": pods})
    usage = {"usage": {"cpu": "250000001n", "memory": "524288Ki"}}
    items = [{"metadata": {"name": f"mnist-worker-{index}"}, "containers": [usage, usage]} for index in (0, 1)]
    server.answers(METRICS, {"items": items})
    lines = server.run("top", "mnist").output.splitlines()
    assert [line.split() for line in lines] == [
        ["REPLICA", "CPU(CORES)", "%REQUEST", "%LIMIT", "MEMORY(BYTES)", "%REQUEST", "%LIMIT"],
        ["ps-0", "-", "-", "-", "-", "-", "-"],
        ["worker-0", "501m", "50%", "13%", "1024Mi", "50%", "-"],
        ["worker-1", "501m", "100%", "-", "1024Mi", "100%", "-"],
    ]
    found = json.loads(server.run("top", "mnist", "-o", "json").output)["items"]
    assert found[1] == {
        "replica": "worker-0", "cpu": "501m", "cpuRequest": "50%", "cpuLimit": "13%",
        "memory": "1024Mi", "memoryRequest": "50%", "memoryLimit": "-"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "says"), [(404, "install metrics-server"), (503, "install metrics-server"), (403, "no")]
)
def test_top_without_metrics_is_one_line(server: Server, code: int, says: str) -> None:
    replicas(server, "worker-0")
    server.answers(METRICS, {"message": "no", "reason": "x"}, code=code)
    result = server.run("top", "mnist")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert says in result.stderr


BOARD = "training.kubeflow.org%2Foperator-name%3Dtensorboard-controller%2C"
V1_BOARD = f"{PODS}?labelSelector={BOARD}app.kubernetes.io%2Finstance%3Dmnist"


def board_pod(uid: str, *, ready: bool = True) -> dict[str, Any]:
    status = {"phase": "Running" if ready else "Pending", "conditions": [condition("Ready", str(ready))]}
    return {"metadata": {"name": f"mnist-tensorboard-{uid}", "uid": uid}, "status": status}


@pytest.fixture
def fast(mocker: MockerFixture) -> None:
    """The pod is polled at short intervals."""
    mocker.patch.object(tensorboard_, "POLL_S", 0.02)


@pytest.mark.usefixtures("fast")
def test_tensorboard_forwards_to_the_pod_that_is_ready_and_then_to_its_successor(
    server: Server, programs: Path, mocker: MockerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = mocker.patch("webbrowser.open")
    monkeypatch.setenv("DISPLAY", ":0")
    told = make_kubectl(programs, "print('Forwarding from 127.0.0.1', flush=True)\ntime.sleep(600)")
    wanted = job(spec={"tensorBoard": {"logDir": "/logs"}})
    server.answers(f"{JOBS}/mnist", wanted)
    pods = [[], [board_pod("a", ready=False)], *[[board_pod("a")]] * 2, *[[board_pod("b")]] * 2, []]
    server.answers(V1_BOARD, *({"items": items} for items in pods))
    server.responses[f"{JOBS}/mnist"] += [server.responses[f"{JOBS}/mnist"][0]] * 2
    server.responses[f"{JOBS}/mnist"] += [(404, b'{"message": "gone", "reason": "NotFound"}')]
    result = server.run("tensorboard", "mnist")
    assert result.exit_code == 0
    url = browser.call_args.args[0]
    assert browser.call_count == 1
    assert result.stdout.splitlines() == [f"TensorBoard of mnist: {url}   (press Ctrl-C to stop)"] * 2
    port = url.rpartition(":")[2].rstrip("/")
    for uid, line in zip(("a", "b"), told.read_text().splitlines(), strict=True):
        forward = f"port-forward pod/mnist-tensorboard-{uid} {port}:6006 --address=127.0.0.1"
        assert line == f"--namespace=team --kubeconfig={server.kubeconfig} {forward}"
    first, second, *_, last = result.stderr.splitlines()
    assert first == "TensorBoard of mnist: waiting for its pod (not created)"
    assert second == "TensorBoard of mnist: waiting for its pod (Pending)"
    assert last == "the TensorBoard of mnist was deleted"


@pytest.mark.usefixtures("fast")
def test_what_kubectl_says_when_it_cannot_forward_is_told(server: Server, programs: Path) -> None:
    make_kubectl(programs, "sys.exit('error: pods is forbidden')")
    server.answers(f"{JOBS}/mnist", job(spec={"replicaSpecs": [], "tensorboard": {"logDir": "/logs"}}))
    server.answers(f"{PODS}?labelSelector={BOARD}tf_job_name%3Dmnist", {"items": [board_pod("a")]})
    result = server.run("tensorboard", "mnist", "--no-browser")
    assert (result.exit_code, result.stderr) == (1, "error: kubectl port-forward: error: pods is forbidden\n")


def test_a_job_without_a_tensorboard_is_told_how_to_get_one(server: Server) -> None:
    server.answers(f"{JOBS}/mnist", job())
    result = server.run("tensorboard", "mnist")
    assert "set spec.tensorBoard.logDir" in result.stderr


def test_a_port_that_is_taken_is_left_alone(server: Server, mocker: MockerFixture) -> None:
    """If the user asked for it that is an error, else another one is used."""
    server.answers(f"{JOBS}/mnist", job(spec={"tensorBoard": {"logDir": "/logs"}}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = server.run("tensorboard", "mnist", f"--port={port}")
        assert f"cannot listen on 127.0.0.1:{port}: " in result.stderr
        mocker.patch.object(tensorboard_, "PORT", port)
        assert tensorboard_._free_port(None) != port
