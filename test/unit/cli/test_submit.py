"""`submit`: a job of flags, checked before it is sent."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pytest_mock import MockerFixture

from tfjob_operator.api.v1.constants import CleanPodPolicy, RestartPolicy
from tfjob_operator.cli import watches
from tfjob_operator.cli.commands import submit_
from unit.cli.conftest import JOBS, Server, job, outcome, run


def shown(*arguments: str) -> Any:
    result = run("submit", "mnist", "--image=train:1", "--dry-run=client", "-o", "yaml", *arguments)
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.stdout)


def replicas(body: Any) -> dict[str, int]:
    return {kind: each["replicas"] for kind, each in body["spec"]["tfReplicaSpecs"].items()}


def test_the_policies_are_those_of_the_api() -> None:
    """They are not imported, so that the command line is parsed at once."""
    assert list(submit_.RESTART_POLICIES) == [*RestartPolicy]
    assert list(submit_.CLEAN_POD_POLICIES) == [*CleanPodPolicy]


def test_an_image_is_enough() -> None:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}}
    assert shown() == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "mnist"},
        "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}},
    }
    assert replicas(shown("--chief")) == {"Chief": 1}
    all_types = shown("--chief", "--workers=4", "--ps=2", "--evaluator")
    assert replicas(all_types) == {"Chief": 1, "PS": 2, "Worker": 4, "Evaluator": 1}


def test_a_manifest_without_the_container_gets_no_second_one(tmp_path: Path) -> None:
    """Both would run in each pod; the mistake is the name."""
    file = tmp_path / "job.yaml"
    container = {"name": "trainer", "image": "train:1"}
    spec = {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}
    file.write_text(json.dumps({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "spec": spec}))
    result = run("submit", "mnist", "-f", str(file), "--image=train:2", "--dry-run=client")
    assert result.exit_code == 1
    assert "one container must be named tensorflow; found trainer" in result.stderr


def test_every_flag_has_its_field() -> None:
    body = shown(
        "--cpu=2", "--memory=4Gi", "--gpu=1", "--ps=1", "--volume=data:/data:ro", "--volume=out:/out", "--env=A=b=c",
        "--restart-policy=ExitCode", "--clean-pod-policy=None", "--ttl=7d", "--deadline=1h30m", "--backoff-limit=3",
        "--priority-class=high", "--suspend", "-l", "team=vision,run=7", "-n", "ml", "--", "python", "train.py", "--lr", "-1"
    )  # fmt: skip
    assert body["metadata"] == {"name": "mnist", "namespace": "ml", "labels": {"team": "vision", "run": "7"}}
    assert body["spec"]["runPolicy"] == {
        "cleanPodPolicy": "None",
        "ttlSecondsAfterFinished": 604_800,
        "activeDeadlineSeconds": 5400,
        "backoffLimit": 3,
        "suspend": True,
    }
    worker, server = (body["spec"]["tfReplicaSpecs"][kind] for kind in ("Worker", "PS"))
    assert worker["restartPolicy"] == "ExitCode"
    pod = worker["template"]["spec"]
    assert pod["priorityClassName"] == "high"
    assert [each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"]] == ["data", "out"]
    (container,) = pod["containers"]
    assert container["command"] == ["python", "train.py", "--lr", "-1"]
    assert container["env"] == [{"name": "A", "value": "b=c"}]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"memory": "4Gi", "nvidia.com/gpu": 1},
    }
    mounts = container["volumeMounts"]
    assert mounts[0] == {"name": pod["volumes"][0]["name"], "mountPath": "/data", "readOnly": True}
    assert mounts[1] == {"name": pod["volumes"][1]["name"], "mountPath": "/out"}
    assert "nvidia.com/gpu" not in server["template"]["spec"]["containers"][0]["resources"]["limits"]


def test_a_gpu_job_for_a_tainted_pool_needs_no_file() -> None:
    body = shown(
        "--toleration=gpu", "--toleration=pool=spot:NoSchedule", "--node-selector=zone=a,gpu=a100", "--env-from-secret=bucket",
        "--image-pull-secret=registry", "--ps=1"
    )  # fmt: skip
    for kind in ("Worker", "PS"):
        pod = body["spec"]["tfReplicaSpecs"][kind]["template"]["spec"]
        assert pod["tolerations"] == [
            {"key": "gpu", "operator": "Exists"},
            {"key": "pool", "operator": "Equal", "value": "spot", "effect": "NoSchedule"},
        ]
        assert pod["nodeSelector"] == {"zone": "a", "gpu": "a100"}
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "bucket"}}]


BASE = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: base, uid: u, labels: {team: vision, run: "1"}, annotations: {a: b}}
spec:
  runPolicy: {backoffLimit: 3}
  tfReplicaSpecs:
    worker:
      replicas: 4
      restartPolicy: OnFailure
      template:
        metadata: {labels: {x: z}}
        spec:
          nodeSelector: {zone: b}
          volumes: [{name: volume-0, emptyDir: {}}]
          containers:
            - {name: side, image: side:1}
            - name: tensorflow
              image: old:1
              args: ["--lr=1"]
              env: [{name: A, value: "1"}, {name: B, value: "2"}]
              resources: {requests: {cpu: 1, ephemeral-storage: 1Gi}}
status: {conditions: []}
"""


def from_base(tmp_path: Path, *arguments: str) -> Any:
    file = tmp_path / "base.yaml"
    file.write_text(BASE)
    result = run("submit", "mine", "-f", str(file), "--dry-run=client", "-o", "yaml", *arguments)
    assert result.exit_code == 0, result.output
    return yaml.safe_load(result.stdout)


def test_restricted_sets_what_pod_security_requires_in_every_container(tmp_path: Path) -> None:
    """A user, a profile and other settings of the manifest stay; `test/integration/test_pod_security.py` asks a real server."""
    file = tmp_path / "job.yaml"
    containers = [{"name": "tensorflow"}, {"name": "log", "image": "log:1", "securityContext": {"privileged": False}}]
    pod = {"containers": containers, "initContainers": [{"name": "fetch", "image": "fetch:1"}]}
    pod["securityContext"] = {"runAsUser": 7, "fsGroup": 7}
    spec = {"tfReplicaSpecs": {"Worker": {"template": {"spec": pod}}}}
    file.write_text(json.dumps({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "spec": spec}))
    required = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for arguments, context in (((), {"runAsUser": 1000}), (("-f", str(file)), {"runAsUser": 7, "fsGroup": 7})):
        body = shown("--restricted", "--ps=1", *arguments)
        for entry in body["spec"]["tfReplicaSpecs"].values():
            found = entry["template"]["spec"]
            profile = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
            assert found["securityContext"] == context | profile
            for each in [*found["containers"], *found.get("initContainers", ())]:
                more = {"privileged": False} if each["name"] == "log" else {}
                assert each["securityContext"] == required | more


def test_flags_override_the_job_of_a_file(tmp_path: Path) -> None:
    same = from_base(tmp_path)
    expected = yaml.safe_load(BASE)
    del expected["status"], expected["metadata"]["uid"]
    expected["metadata"]["name"] = "mine"
    assert same == expected
    body = from_base(
        tmp_path, "--image=new:2", "--workers=2", "--chief", "--env=B=3", "--cpu=8", "--label=run=2", "--deadline=1h",
        "--node-selector=gpu=a100", "--volume=data:/data", "--restart-policy=Never", "--", "python", "new.py"
    )  # fmt: skip
    assert body["metadata"]["labels"] == {"team": "vision", "run": "2"}
    assert body["spec"]["runPolicy"] == {"backoffLimit": 3, "activeDeadlineSeconds": 3600}
    entries = body["spec"]["tfReplicaSpecs"]
    assert {kind: (each["replicas"], each["restartPolicy"]) for kind, each in entries.items()} == {
        "worker": (2, "Never"), "Chief": (1, "Never"),
    }  # fmt: skip
    for each in entries.values():
        pod = each["template"]["spec"]
        assert each["template"]["metadata"] == {"labels": {"x": "z"}}
        assert pod["nodeSelector"] == {"zone": "b", "gpu": "a100"}
        assert [volume["name"] for volume in pod["volumes"]] == ["volume-0", "volume-1"]
        side, container = pod["containers"]
        assert side == {"name": "side", "image": "side:1"}
        assert container == {
            "name": "tensorflow",
            "image": "new:2",
            "command": ["python", "new.py"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}],
            "resources": {"requests": {"cpu": "8", "ephemeral-storage": "1Gi"}},
            "volumeMounts": [{"name": "volume-1", "mountPath": "/data"}],
        }
    assert "worker" not in from_base(tmp_path, "--workers=0", "--chief", "--ps=1")["spec"]["tfReplicaSpecs"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has 0 TFJobs: --filename takes one"),
        (f"{BASE}---{BASE}", "has 2 TFJobs: --filename takes one"),
        (BASE.replace("/v1", "/v1beta2"), "is not kubeflow.org/v1: convert it with kubectl tfjob convert"),
    ],
)
def test_a_file_must_have_one_job_of_v1(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "base.yaml").write_text(text)
    result = run("submit", "mine", "-f", str(tmp_path / "base.yaml"), "--dry-run")
    assert (result.exit_code, says in result.stderr) == (1, True)


def test_a_second_file_is_refused_rather_than_the_first_ignored(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    file = str(tmp_path / "base.yaml")
    result = run("submit", "mine", "-f", file, "-f", file, "--dry-run")
    assert (result.exit_code, "one manifest is expected" in result.stderr) == (2, True)


def test_a_job_for_a_queue_waits_until_kueue_admits_it() -> None:
    body = shown("--queue=gpus")
    assert body["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "gpus"}
    assert body["spec"]["runPolicy"] == {"suspend": True}


def test_what_the_operator_would_refuse_is_not_sent(server: Server) -> None:
    code, _, errors = outcome(server.run("submit", "Not_A_Name", "--image=x"))
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith("error: job not created: metadata.name: ")
    assert server.run("submit", "mnist", "--image=").exit_code == 2
    assert server.asked == []


def test_a_job_is_sent_to_the_namespace_of_the_context(server: Server) -> None:
    server.answers(JOBS, job())
    result = server.run("submit", "mnist", "--image=x")
    assert (result.exit_code, result.output) == (0, "tfjob.kubeflow.org/mnist created\n")
    (method, path, headers, body), = server.asked  # fmt: skip
    assert (method, path, headers["Content-Type"]) == ("POST", f"{JOBS}?fieldManager=kubectl-tfjob", "application/json")
    assert json.loads(body)["metadata"] == {"name": "mnist", "namespace": "team"}
    dry = server.run("submit", "mnist", "--image=x", "--dry-run=server")
    assert dry.output == "tfjob.kubeflow.org/mnist created (server dry run)\n"
    assert "dryRun=All" in server.asked[1][1]


@pytest.mark.parametrize(("output", "printed"), [("name", "tfjob.kubeflow.org/mnist\n"), ("json", None)])
def test_what_was_made_is_printed_as_it_was_asked_for(server: Server, output: str, printed: str | None) -> None:
    made = job()
    made["metadata"]["managedFields"] = [{"manager": "kubectl-tfjob"}]
    server.answers(JOBS, made)
    result = server.run("submit", "mnist", "--image=x", "-o", output)
    if printed:
        assert result.stdout == printed
    else:
        meta = json.loads(result.stdout)["metadata"]
        assert (meta["uid"], "managedFields" in meta) == ("uid-mnist", False)


def test_a_refusal_of_the_server_is_one_line(server: Server) -> None:
    taken = 'tfjobs.kubeflow.org "mnist" already exists'
    server.answers(JOBS, {"message": taken, "reason": "AlreadyExists"}, code=409)
    refusal = f"Error from server (AlreadyExists): {taken}\n"
    assert outcome(server.run("submit", "mnist", "--image=x")) == (1, "", refusal)
    assert outcome(server.run("submit", "mnist", "--image=x", "--watch")) == (4, "", refusal), "1 means: it has failed"


def test_a_job_that_was_started_can_be_watched_at_once(server: Server) -> None:
    server.answers(JOBS, job())
    server.answers(f"{JOBS}/mnist", job("mnist", "Failed"))
    pods = "/api/v1/namespaces/team/pods"
    server.answers(pods, {"items": [], "metadata": {}})
    server.answers(f"{pods}?labelSelector=training.kubeflow.org%2Fjob-name%3Dmnist&watch=true", b"")
    server.answers(f"{JOBS}?fieldSelector=metadata.name%3Dmnist&resourceVersion=7&watch=true", b"")
    result = server.run("submit", "mnist", "--image=x", "--watch")
    assert result.exit_code == 1
    first, *_, last = result.stdout.splitlines()
    assert (first, last) == ("tfjob.kubeflow.org/mnist created", "tfjob.kubeflow.org/mnist Failed: is Failed")


def test_a_job_that_cannot_be_read_after_its_creation_is_watched_nevertheless(
    server: Server, mocker: MockerFixture
) -> None:
    mocker.patch.object(watches, "FIRST_RETRY_DELAY_S", 0.02)
    server.answers(JOBS, job())
    server.answers(f"{JOBS}?fieldSelector=metadata.name%3Dmnist&resourceVersion=7&watch=true", b"")
    server.responses[f"{JOBS}/mnist"] = [(503, b"{}"), (200, json.dumps(job("mnist", "Succeeded")).encode())]
    assert server.run("submit", "mnist", "--image=x", "--watch").exit_code == 0
