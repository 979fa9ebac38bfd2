"""Whatever a server, a kubeconfig, a file or the command line contains: no verb lets it control the terminal."""

import json
import re
import shlex
from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import Result
from pytest_mock import MockerFixture

from hack.objects import a_kubeconfig, container_status
from tfjob_operator.cli import watches
from tfjob_operator.cli.commands import restart_, watch_
from tfjob_operator.cli.main import COMMANDS
from unit.cli.conftest import Server, job, operator_deployment, operator_lease, pod, run

HOSTILE = "\x1b[31m\x1b[2J\x1b]0;title\x07\x9b2J\r\b\x00\x7f\u202e\u2028\x85\nFORGED line"
JOBS, PODS = "/apis/kubeflow.org/v1/namespaces/team/tfjobs", "/api/v1/namespaces/team/pods"
OWN = re.compile(r"\x1b\[(31m|32m|33m|36m|90m|0m|K|J|\d+F)")
"""The control sequences of the plugin itself, and the color of a log line."""
LOG = f"2026-01-01T00:00:00Z step 1 of 2 loss 0.5 {HOSTILE}\n".encode(errors="replace")
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
TEMPLATE = {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}
SPEC = {"tfReplicaSpecs": {"Worker": {"replicas": 2, "template": TEMPLATE}}}
VERBS = {
    "submit": ["submit mnist --image=x", "submit mnist --image=x -o yaml"],
    "list": [
        "list",
        "list -A",
        "list -o wide",
        "list -o name",
        "list -o json",
        "list -o yaml",
        "list mnist",
        "list -w",
    ],
    "status": ["status mnist", "status mnist -o json", "status mnist -o yaml"],
    "watch": ["watch mnist"],
    "timeline": ["timeline mnist", "timeline mnist -o json"],
    "explain": ["explain mnist", "explain mnist -o yaml"],
    "logs": ["logs mnist", "logs mnist --container=other"],
    "wait": ["wait mnist --timeout=1s"],
    "suspend": ["suspend mnist other"],
    "resume": ["resume mnist other"],
    "scale": ["scale mnist worker=3", "scale mnist ps=3"],
    "restart": ["restart mnist", "restart mnist --type=worker", "restart mnist --type=ps"],
    "prune": ["prune --yes", "prune -A --dry-run", "prune"],
    "exec": ["exec mnist", "exec mnist -c other"],
    "top": ["top mnist", "top mnist -o json"],
    "tensorboard": ["tensorboard mnist --no-browser"],
    "dashboard": [],  # it prints a link; its errors are those of the kubeconfig
    "validate": ["validate FILE"],
    "convert": ["convert FILE"],
    "migrate": ["migrate --check", "migrate --check -A -o json", "migrate --check -o yaml", "migrate --plan"],
    "completion": ["completion"],
    "version": ["version", "version -o json"],
}
LINES = [line for lines in VERBS.values() for line in lines]
REFUSALS = [(code, json.dumps({"message": HOSTILE, "reason": f"Reason{HOSTILE}"}).encode()) for code in (403, 409)]


@pytest.fixture(autouse=True)
def no_waiting_for_writes(mocker: MockerFixture) -> None:
    """Let a command give up at once where it would read for half a minute whether its write took effect."""
    mocker.patch("tfjob_operator.cli.writes.READ_WITHIN_S", 0.0)


def spoiled(value: Any) -> Any:
    """Add hostile text to all strings but those that decide what an object is, and times."""
    if isinstance(value, dict):
        kept = {"apiVersion", "kind", "uid", "phase", "status", "type", "resourceVersion"}
        return {
            key: each
            if (key in kept and isinstance(each, str)) or key.endswith(("Time", "Timestamp", "At", "replica-index"))
            else spoiled(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [spoiled(each) for each in value]
    return f"{value}{HOSTILE}" if isinstance(value, str) else value


HISTORY = {"endTime": "2026-01-01T00:00:00Z", "reason": "r", "message": "m"}
crashing = partial(pod, spec={"nodeName": "n", "containers": [{"name": "tensorflow"}]}, reason="r", message="m")
a_job = partial(job, spec=SPEC, status={"attemptHistory": [HISTORY]})


def items(*found: dict[str, Any]) -> dict[str, Any]:
    return {"items": spoiled(list(found)), "metadata": {"resourceVersion": "9"}}


@pytest.fixture(autouse=True)
def at_once(mocker: MockerFixture) -> None:
    """Nothing waits, and no program runs."""
    for module, name in ((watches, "RETRY_S"), (watch_, "_MIN_REDRAW_S")):
        mocker.patch.object(module, name, 0.01)
    mocker.patch.object(restart_, "ACKNOWLEDGED_WITHIN_S", 0.0)
    mocker.patch("shutil.which", return_value="/bin/kubectl")
    mocker.patch("os.execv", side_effect=SystemExit)


def serve(server: Server, *conditions: str) -> None:
    """A job, its pods and all about them, with hostile text in all places."""
    found = spoiled(a_job("mnist", "Created", *conditions))
    for name in ("mnist", "other"):
        server.answers(f"{JOBS}/{name}", found)
    server.answers(JOBS, found | {"items": [found]})  # a list, and the answer to a POST
    server.answers("/apis/kubeflow.org/v1/tfjobs", {"items": [found], "metadata": {}})
    events = [{"type": kind, "object": found} for kind in ("MODIFIED", "DELETED")]
    server.answers(f"{JOBS}?watch", b"".join(json.dumps(each).encode() + b"\n" for each in events))
    # Once they have read the jobs, `watch` and `list --watch` retry until access is denied.
    server.responses[f"{JOBS}?watch"].append(REFUSALS[0])
    server.otherwise = REFUSALS[0]
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "m", "finishedAt": "2026-01-01T00:00:00Z"}}
    states: list[dict[str, Any]] = [RUNNING, ended, {"waiting": {"reason": "ErrImagePull", "message": "m"}}]
    pods = items(
        *(
            crashing(f"mnist-worker-{index}", containerStatuses=[container_status(state, restarts=1, ready=True)])
            for index, state in enumerate(states)
        )
    )
    for where in (PODS, "/api/v1/pods"):
        server.answers(where, pods)
        server.answers(f"{where}?watch", b"")
    for each in pods["items"]:
        server.answers(f"{PODS}/{each['metadata']['name']}/log", LOG)
    about = {"metadata": {"name": "e"}, "type": "Warning", "reason": "FailedCreatePod", "message": "m", "count": 2}
    about |= {"involvedObject": {"kind": "TFJob", "name": "mnist", "namespace": "team", "uid": "uid-mnist"}}
    about |= {"lastTimestamp": "2026-01-01T00:00:00Z", "firstTimestamp": "2026-01-01T00:00:00Z"}
    for where in ("/api/v1/namespaces/team/events", "/api/v1/events"):
        server.answers(where, items(about))
        server.answers(f"{where}?watch", b"")
    usage = {"metadata": {"name": "mnist-worker-0"}, "containers": [{"usage": {"cpu": "1", "memory": "1Gi"}}]}
    server.answers("/apis/metrics.k8s.io/v1beta1/namespaces/team/pods", items(usage))
    server.answers("/version", spoiled({"gitVersion": "v1"}))
    server.answers("/apis/kubeflow.org", spoiled({"versions": [{"version": "v1"}]}))
    deployments = (operator_deployment("evil", "--namespace=a"), operator_deployment("kubeflow", readyReplicas=1))
    server.answers("/apis/apps/v1/deployments", items(*deployments))
    entry = {"name": "validator.tfjob.training-operator.kubeflow.org", "clientConfig": {"service": {"namespace": "n"}}}
    webhook = spoiled({"metadata": {"name": "validator"}, "webhooks": [{}]})
    webhook["webhooks"] = [spoiled(entry) | {"name": entry["name"]}]
    server.answers(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {"items": [webhook], "metadata": {}}
    )
    server.answers("/apis/coordination.k8s.io/v1/leases", items(operator_lease("evil", datetime.now(UTC).isoformat())))


def assert_harmless(result: Result, *, data: bool = False) -> None:
    """Each character is printable or the plugin's own, and no line is the server's."""
    text = result.stdout + result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert not [each for each in OWN.sub("", text).split("\n") if not each.replace("\t", "").isprintable()]
    assert data or not [line for line in text.split("\n") if line.startswith("FORGED")], text


def test_every_verb_is_tried() -> None:
    assert [*VERBS] == [*COMMANDS]


@pytest.mark.parametrize(
    ("on_a_terminal", "condition"), [(False, "Held"), (True, "Running"), (False, "Failed"), (True, "Suspended")]
)
@pytest.mark.parametrize("line", LINES)
def test_what_a_server_sends_is_printed_without_control_characters(
    server: Server, tmp_path: Path, mocker: MockerFixture, *, line: str, on_a_terminal: bool, condition: str
) -> None:
    """On a terminal with colors, and to a program; but a program gets the bytes of a log."""
    if on_a_terminal:
        mocker.patch("click.testing._NamedTextIOWrapper.isatty", return_value=True)
    elif line.startswith("logs"):
        line = f"{line} --replica=worker-9"
    serve(server, condition)
    file = tmp_path / "job.json"
    file.write_text(json.dumps(spoiled(a_job()) | {"metadata": spoiled({"name": "mnist"})}))
    result = server.run(*shlex.split(line.replace("FILE", str(file))))
    assert_harmless(result, data="-o" in line or "convert" in line)
    assert result.output or line == "exec mnist"
    if result.exit_code == 0 and line.endswith(("-o json", "-o yaml")):
        data = (json.loads if line.endswith("json") else yaml.safe_load)(result.stdout)
        if line.startswith("list"):
            assert data["items"][0]["status"]["conditions"][0]["message"] == f"is Created{HOSTILE}"


@pytest.mark.parametrize("refusal", REFUSALS, ids=["403", "409"])
@pytest.mark.parametrize("line", [line for line in LINES if "FILE" not in line])
def test_why_a_server_refuses_is_printed_without_control_characters(
    server: Server, line: str, refusal: tuple[int, bytes]
) -> None:
    """The reason of a Status as well as its message, for the job, and for what else is read."""
    server.otherwise = refusal
    assert_harmless(server.run(*shlex.split(line)))
    serve(server, "Running")
    if line != "watch mnist":
        server.otherwise = refusal
    server.responses = {path: sent for path, sent in server.responses.items() if path.startswith(JOBS)}
    assert_harmless(server.run(*shlex.split(line)))


ODD: list[Any] = [
    None, True, 0, -1, 2**40, 1.5, "", "x", "0-99999999", "0001-01-01T00:00:00Z", "NaN", "1e999Mi", [], {}, [1], ["a"], [[]],
    [{}], [None], {"a": 1}, {"": {}}, {"name": 1}, {"type": 5}, [{"type": []}], {"items": []}, "a" * 3000, "\u00b2", "1/0",
]  # fmt: skip
SEEDS = 60


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield (*place, key)
        yield from places(each, (*place, key))


def odd(random: Random, document: Any) -> Any:
    """The document with some values missing or replaced."""
    for _ in range(random.choice([1, 1, 2, 4])):
        *path, last = random.choice([*places(document)] or [()]) or (None,)
        target = document
        for key in path:
            target = target[key]
        if last is None:
            return document
        if random.random() < 0.2:
            del target[last]
        else:
            target[last] = deepcopy(random.choice(ODD))
    return document


def test_no_response_is_too_odd_for_a_command(
    server: Server, mocker: MockerFixture, request: pytest.FixtureRequest
) -> None:
    """JSON of a proxy, of another program, or of a time when the CRD had no schema. `--seeds 10000` tries more."""
    mocker.patch("time.sleep")
    mocker.patch("subprocess.Popen", side_effect=OSError("no kubectl"))
    lines = [line for line in LINES if "FILE" not in line and line != "completion"]
    first = request.config.getoption("--seed") or 0
    for seed in range(first, first + (request.config.getoption("--seeds") or SEEDS)):
        random = Random(seed)
        serve(server, random.choice(["Held", "Running", "Failed", "Suspended", "Succeeded"]))
        for path in random.sample([*server.responses], random.choice([1, 1, 2, 3])):
            server.responses[path] = [
                (code, b"\n".join(json.dumps(odd(random, json.loads(line))).encode() for line in body.splitlines()))
                if body.startswith(b"{")
                else (code, body)
                for code, body in server.responses[path]
            ]
        line = random.choice(lines)
        result = server.run(*shlex.split(line))
        told = f"--seed {seed}: {line}\n{result.output}"
        assert result.exception is None or isinstance(result.exception, SystemExit), told
        assert "Traceback" not in result.output, told
        assert result.exit_code in {0, 1, 3, 4, 124}, told


CLUSTER = {"server": "http://127.0.0.1:1"}
KUBECONFIGS: list[dict[str, Any]] = [
    {"current-context": HOSTILE},
    {"contexts": [{"name": "here", "context": {"cluster": HOSTILE, "user": "u"}}]},
    {"contexts": [{"name": "here", "context": {"cluster": "c", "user": HOSTILE}}]},
    {"contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": HOSTILE}}]},
    {"clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:1/{HOSTILE}"}}]},
    {"clusters": [{"name": "c", "cluster": {"server": HOSTILE}}]},
    {"clusters": [{"name": "c", "cluster": CLUSTER | {"proxy-url": HOSTILE}}]},
    {"clusters": [{"name": "c", "cluster": CLUSTER | {"certificate-authority": "/nowhere/\x1b[2J"}}]},
    {"users": [{"name": "u", "user": {"tokenFile": "/nowhere/\x1b[2J"}}]},
    {"users": [{"name": "u", "user": {"exec": {"apiVersion": HOSTILE, "command": "x"}}}]},
    {
        "users": [
            {
                "name": "u",
                "user": {
                    "exec": {
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "interactiveMode": "Never",
                        "command": "/nowhere/\x1b[2J",
                        "installHint": HOSTILE,
                    }
                },
            }
        ]
    },
]


@pytest.mark.parametrize("config", KUBECONFIGS)
@pytest.mark.parametrize("verb", ["list", "dashboard"])
def test_what_is_wrong_in_a_kubeconfig_is_printed_without_control_characters(
    tmp_path: Path, config: dict[str, Any], verb: str
) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(a_kubeconfig(CLUSTER["server"]) | config))
    result = run(verb, f"--kubeconfig={file}")
    assert result.exit_code == 1
    assert_harmless(result)


ARGUMENTS = HOSTILE.replace("\0", "")


@pytest.mark.parametrize(
    "words",
    [
        [ARGUMENTS], [f"--{ARGUMENTS}"], ["list", "-o", ARGUMENTS], ["list", f"--sort-by={ARGUMENTS}"],
        ["wait", "mnist", ARGUMENTS], ["exec", "mnist", ARGUMENTS], [f"--request-timeout={ARGUMENTS}", "list"],
        ["-n", ARGUMENTS, "list"], ["-n", ARGUMENTS, "prune"], ["status", ARGUMENTS], ["scale", "mnist", ARGUMENTS],
        ["validate", ARGUMENTS], ["submit", "mnist", "-f", ARGUMENTS], [f"--context={ARGUMENTS}", "list"],
        ["logs", "mnist", f"--replica={ARGUMENTS}"], ["-n", ARGUMENTS, "delete", "mnist"],
        ["completion", "--install", f"--folder=/nowhere/{ARGUMENTS}"],
    ],
)  # fmt: skip
def test_a_command_line_is_quoted_without_control_characters(server: Server, words: list[str]) -> None:
    """A script may have it from elsewhere; click quotes what it does not understand."""
    server.otherwise = (404 if "status" in words else 200, json.dumps({"items": [], "metadata": {}}).encode())
    assert_harmless(run(f"--kubeconfig={server.kubeconfig}", *words), data=True)
