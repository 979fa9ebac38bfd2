"""The verbs that hand streams over to kubectl, `exec` and `tensorboard`, and `top`, which reads the metrics API."""

from __future__ import annotations

import json
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from tfjob_operator.cli.commands import tensorboard_
from unit.cli.conftest import Server, job, run
from unit.cli.test_deleting import JOBS, PODS, pod

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
    pods = [pod(name, phase) | {"spec": {"containers": [{"name": "side"}, {"name": "tensorflow"}]}} for name in names]
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
    *,
    server: Server,
    kubeconfig: Path,
    programs: Path,
    mocker: MockerFixture,
    names: tuple[str, ...],
    options: list[str],
    given: str,
) -> None:
    """In the container that trains, of the chief or worker 0, with the same cluster, user and namespace."""
    make_kubectl(programs, "")
    replicas(server, *names)
    become = mocker.patch("os.execv")
    assert run("exec", "mnist", f"--kubeconfig={kubeconfig}", *options).exit_code == 0
    (program, line), _ = become.call_args
    assert program == str(programs / "kubectl")
    assert " ".join(line[1:]) == f"--namespace=team --kubeconfig={kubeconfig} exec {given}"


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
    *, server: Server, kubeconfig: Path, programs: Path, phase: str, options: list[str], code: int, says: str
) -> None:
    """Before kubectl is started."""
    assert not list(programs.iterdir())
    replicas(server, "worker-0", phase=phase)
    result = run("exec", "mnist", f"--kubeconfig={kubeconfig}", *options)
    assert (result.exit_code, says in result.stderr.splitlines()[-1]) == (code, True), result.stderr


def test_top_shows_usage_against_requests_and_limits(server: Server, kubeconfig: Path) -> None:
    """Of all containers of a pod; a dash for what was not measured or not asked for, and if one container has no limit."""
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 2}}
    pods = [pod("worker-0"), pod("worker-1"), pod("ps-0")]
    pods[0]["spec"] = {"containers": [{"resources": resources}, {"resources": resources}]}
    pods[1]["spec"] = {"containers": [{"resources": resources}, {}]}
    pods[2]["spec"] = {"containers": [{"resources": resources}]}
    server.answers(f"{JOBS}/mnist", job())
    server.answers(PODS, {"metadata": {}, "items": pods})
    usage = {"usage": {"cpu": "250000001n", "memory": "524288Ki"}}
    items = [{"metadata": {"name": f"mnist-worker-{index}"}, "containers": [usage, usage]} for index in (0, 1)]
    server.answers(METRICS, {"items": items})
    lines = run("top", "mnist", f"--kubeconfig={kubeconfig}").output.splitlines()
    assert [line.split() for line in lines] == [
        ["REPLICA", "CPU(CORES)", "%REQUEST", "%LIMIT", "MEMORY(BYTES)", "%REQUEST", "%LIMIT"],
        ["ps-0", "-", "-", "-", "-", "-", "-"],
        ["worker-0", "501m", "50%", "13%", "1024Mi", "50%", "-"],
        ["worker-1", "501m", "100%", "-", "1024Mi", "100%", "-"],
    ]
    found = json.loads(run("top", "mnist", "-o", "json", f"--kubeconfig={kubeconfig}").output)["items"]
    assert found[1] == {
        "replica": "worker-0", "cpu": "501m", "cpuRequest": "50%", "cpuLimit": "13%",
        "memory": "1024Mi", "memoryRequest": "50%", "memoryLimit": "-",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "says"), [(404, "install metrics-server"), (503, "install metrics-server"), (403, "no")]
)
def test_top_without_metrics_is_one_line(server: Server, kubeconfig: Path, code: int, says: str) -> None:
    """It says what is missing."""
    replicas(server, "worker-0")
    server.answers(METRICS, {"message": "no", "reason": "x"}, code=code)
    result = run("top", "mnist", f"--kubeconfig={kubeconfig}")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert says in result.stderr


BOARD = "training.kubeflow.org%2Foperator-name%3Dtensorboard-controller%2C"
V1_BOARD = f"{PODS}?labelSelector={BOARD}app.kubernetes.io%2Finstance%3Dmnist"


def board_pod(uid: str, *, ready: bool = True) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    meta = {"name": f"mnist-tensorboard-{uid}", "uid": uid}
    return {"metadata": meta, "status": {"phase": "Running" if ready else "Pending", "conditions": [condition]}}


@pytest.fixture
def fast(mocker: MockerFixture) -> None:
    """The pod is polled at short intervals."""
    mocker.patch.object(tensorboard_, "LOOK_S", 0.02)


@pytest.mark.usefixtures("fast")
def test_tensorboard_forwards_to_the_pod_that_is_ready_and_then_to_its_successor(
    server: Server, kubeconfig: Path, programs: Path, mocker: MockerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The browser is opened once; the command ends when the job is gone."""
    browser = mocker.patch("webbrowser.open")
    monkeypatch.setenv("DISPLAY", ":0")
    told = make_kubectl(programs, "print('Forwarding from 127.0.0.1', flush=True)\ntime.sleep(600)")
    wanted = job(spec={"tensorBoard": {"logDir": "/logs"}})
    server.answers(f"{JOBS}/mnist", wanted)
    pods = [
        [],
        [board_pod("a", ready=False)],
        [board_pod("a")],
        [board_pod("a")],
        [board_pod("b")],
        [board_pod("b")],
        [],
    ]
    server.answers(V1_BOARD, *({"items": items} for items in pods))
    server.responses[f"{JOBS}/mnist"] += [server.responses[f"{JOBS}/mnist"][0]] * 2
    server.responses[f"{JOBS}/mnist"] += [(404, b'{"message": "gone", "reason": "NotFound"}')]
    result = run("tensorboard", "mnist", f"--kubeconfig={kubeconfig}")
    assert result.exit_code == 0
    url = browser.call_args.args[0]
    assert browser.call_count == 1
    assert result.stdout.splitlines() == [f"TensorBoard of mnist: {url}   (press Ctrl-C to stop)"] * 2
    port = url.rpartition(":")[2].rstrip("/")
    assert told.read_text().splitlines() == [
        f"--namespace=team --kubeconfig={kubeconfig} port-forward pod/mnist-tensorboard-{uid} {port}:6006 --address=127.0.0.1"
        for uid in ("a", "b")
    ]
    assert result.stderr.splitlines()[:2] == [
        "TensorBoard of mnist: waiting for its pod (not created)",
        "TensorBoard of mnist: waiting for its pod (Pending)",
    ]
    assert result.stderr.splitlines()[-1] == "the TensorBoard of mnist was deleted"


@pytest.mark.usefixtures("fast")
def test_what_kubectl_says_when_it_cannot_forward_is_told(server: Server, kubeconfig: Path, programs: Path) -> None:
    """In one line; pods of alpha jobs are found by other labels."""
    make_kubectl(programs, "sys.exit('error: pods is forbidden')")
    server.answers(f"{JOBS}/mnist", job(spec={"replicaSpecs": [], "tensorboard": {"logDir": "/logs"}}))
    server.answers(f"{PODS}?labelSelector={BOARD}tf_job_name%3Dmnist", {"items": [board_pod("a")]})
    result = run("tensorboard", "mnist", f"--kubeconfig={kubeconfig}", "--no-browser")
    assert (result.exit_code, result.stderr) == (1, "error: kubectl port-forward: error: pods is forbidden\n")


def test_a_job_without_a_tensorboard_is_told_how_to_get_one(server: Server, kubeconfig: Path) -> None:
    """One line."""
    server.answers(f"{JOBS}/mnist", job())
    result = run("tensorboard", "mnist", f"--kubeconfig={kubeconfig}")
    assert "set spec.tensorBoard.logDir" in result.stderr


def test_a_port_that_is_taken_is_left_alone(server: Server, kubeconfig: Path, mocker: MockerFixture) -> None:
    """If the user asked for it that is an error, else another one is used."""
    server.answers(f"{JOBS}/mnist", job(spec={"tensorBoard": {"logDir": "/logs"}}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("tensorboard", "mnist", f"--kubeconfig={kubeconfig}", f"--port={port}")
        assert f"cannot listen on 127.0.0.1:{port}: " in result.stderr
        mocker.patch.object(tensorboard_, "PORT", port)
        assert tensorboard_._free_port(None) != port
