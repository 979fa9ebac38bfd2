"""`kubectl tfjob migrate` on a real API server: what it reads, and its plan, executed there and back.

There is no node: a Deployment of training-operator stands in for it, so commands that wait for pods are left out.
"""

import json
import os
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from fakes.predecessors import PREDECESSORS
from hack.control_plane import ControlPlane
from hack.matrix.cluster import open_crd
from hack.page_cluster import DASHBOARD, page_of
from integration.audit import AuditLog, Fact, fact_of
from integration.cluster import Cluster, replica, specs, tfjob, with_policy
from integration.operator_process import ROOT, with_token
from integration.pages import Page
from integration.plugin import Plugin
from support.pages import below
from support.waiting import eventually

ACCOUNT: Final = "system:serviceaccount:default:reader"
KINDS: Final = ("jax", "paddle", "pytorch", "tf", "xgboost")
"""The entries of the webhook of training-operator 1.9."""
CONFIG: Final = "validator.training-operator.kubeflow.org"
WEBHOOKS: Final = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIG}"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/kubeflow/deployments"
TRAINING_OPERATOR: Final = next(each for each in PREDECESSORS if each.name == "training-operator-1.9")
AROUND: Final = ("move() (", "back() (", "set -e", ")", '"${1:-move}" "${2-}"')
"""The lines of a plan around its commands."""
CHECKED: Final = {
    Fact("kubeflow.org", "tfjobs", "list"),
    Fact("apps", "deployments", "list"),
    Fact("admissionregistration.k8s.io", "validatingwebhookconfigurations", "list"),
}
PLANNED: Final = CHECKED | {
    Fact("apiextensions.k8s.io", "customresourcedefinitions", "get"),
    *(Fact("kubeflow.org", f"{kind}jobs", "list") for kind in ("jax", "mpi", "paddle", "pytorch", "xgboost")),
    Fact("", "namespaces", "list"),
}
PLANNED_BY_NAMESPACE: Final = PLANNED | {
    Fact("rbac.authorization.k8s.io", "clusterrolebindings", "list"),
    Fact("", "namespaces", "get"),
}
"""All that is read, as RBAC has it."""


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> AuditLog:
    return AuditLog(tmp_path_factory.mktemp("audit"), ACCOUNT)


@pytest.fixture(scope="module")
def plane(audit: AuditLog) -> Iterator[ControlPlane]:
    """An API server with two CRDs of training-operator, which are without a schema here, and an account that may read."""
    with ControlPlane.start("migrate", extra_apiserver_args=audit.flags) as plane:
        for kind, plural in (("TFJob", "tfjobs"), ("PyTorchJob", "pytorchjobs")):
            plane.run_kubectl("create", "-f", "-", input=json.dumps(open_crd("kubeflow.org", kind, plural)))
            plane.wait_for_crd(f"{plural}.kubeflow.org")
        plane.create_namespace("kubeflow")
        plane.run_kubectl("create", "serviceaccount", "reader", "--namespace=default")
        rules = "--verb=get,list,watch", "--resource=*.*,pods,pods/log,events,nodes"
        plane.run_kubectl("create", "clusterrole", "reader", *rules)
        plane.run_kubectl(
            "create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:reader"
        )
        account = "--serviceaccount=kubeflow:training-operator"
        plane.run_kubectl(
            "create", "clusterrolebinding", "training-operator", "--clusterrole=training-operator", account
        )
        yield plane


@pytest.fixture(scope="module")
def reader(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of the account."""
    return with_token(plane, plane.request_token("default", "reader"), tmp_path_factory.mktemp("account"))


@pytest.fixture
def team(plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """A namespace with the jobs of training-operator: its Deployment, and a webhook that nobody serves."""
    cluster = Cluster(plane, f"team-{secrets.token_hex(4)}", tmp_path)
    plane.create_namespace(cluster.namespace)
    cluster.create("mnist", specs(Worker=replica(2, policy="ExitCode")))
    meta = {"name": "training-operator", "labels": {"control-plane": "kubeflow-training-operator"}}
    container = {
        "name": "training-operator",
        "image": "training-operator",
        "command": ["/manager"],
        "args": ["--zap=1"],
    }
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    assert plane.request("POST", DEPLOYMENTS, {"metadata": meta, "spec": spec})[0] == 201
    body = {"metadata": {"name": CONFIG}, "webhooks": [entry(kind) for kind in KINDS]}
    assert plane.request("POST", WEBHOOKS.rpartition("/")[0], body)[0] == 201
    yield cluster
    plane.request("DELETE", WEBHOOKS)
    plane.request("DELETE", f"{DEPLOYMENTS}/training-operator")
    plane.request("DELETE", f"{DEPLOYMENTS}/tf-job-operator")
    path = f"/api/v1/namespaces/{cluster.namespace}"
    plane.request("DELETE", path)
    # The next test may read and write the jobs of all namespaces.
    eventually(lambda: plane.request("GET", path)[0] == 404, "the namespace is gone")


def entry(kind: str) -> dict[str, Any]:
    service = {"namespace": "kubeflow", "name": "training-operator", "path": f"/validate-{kind}job", "port": 443}
    rule = {"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    return {
        "name": f"validator.{kind}job.training-operator.kubeflow.org",
        "clientConfig": {"service": service, "caBundle": "Q0E="},
        "rules": [rule | {"resources": [f"{kind}jobs"], "scope": "*"}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }


class Script:
    """The plan of a cluster, which `run` executes as an administrator in a folder with the files of a release."""

    def __init__(self, plane: ControlPlane, lines: list[str], folder: Path) -> None:
        self._folder = folder
        self._environment = os.environ | {
            "KUBECONFIG": str(plane.kubeconfig),
            "PATH": f"{plane.kubectl.parent}:{os.environ['PATH']}",
        }
        back = lines.index("back() (")
        self.there, self.back = lines[:back], lines[back:]
        (folder / "manifests").symlink_to(ROOT / "manifests")
        overlay = plane.run_kubectl("kustomize", str(ROOT / "manifests" / "overlays" / "kubeflow")).stdout
        (folder / "install-kubeflow.yaml").write_text(overlay)

    def run(self, lines: list[str], *arguments: str, ends: bool = False) -> str:
        """Execute the commands that do not wait for a node, and return what they print. `ends`: they must fail."""
        done = [
            line
            for line in lines
            if line
            and line not in AROUND
            and not line.startswith("#")
            and not {"rollout", "wait"} & {*shlex.split(line)}
        ]
        ended = subprocess.run(
            ["bash", "-euc", "\n".join(done), "plan.sh", *arguments],
            cwd=self._folder,
            env=self._environment,
            check=False,
            stdout=subprocess.PIPE,
            text=True,
            timeout=120,
        )
        assert bool(ended.returncode) is ends, ended.stdout
        return ended.stdout


def planned(plane: ControlPlane, reader: Path, folder: Path) -> Script:
    """Return the plan of the whole cluster."""
    return Script(plane, Plugin(reader, "", plane.kubectl)("migrate", "--plan").splitlines(), folder)


def read(plane: ControlPlane, path: str) -> Any:
    code, body = plane.request("GET", path)
    assert code == 200, body
    return body


def arguments(plane: ControlPlane, name: str) -> list[str] | None:
    """The arguments of the first container of a Deployment, None if there are none."""
    found: list[str] | None = read(plane, f"{DEPLOYMENTS}/{name}")["spec"]["template"]["spec"]["containers"][0].get(
        "args"
    )
    return found


def entries(plane: ControlPlane) -> dict[str, Any]:
    return {each["name"]: each for each in read(plane, WEBHOOKS)["webhooks"]}


def can_create(cluster: Cluster, name: str) -> bool:
    """Return False if the webhook of TFJobs rejects a new one, since nobody serves it."""
    body = tfjob(name, specs(Worker=replica()))
    code, answer = cluster.plane.request("POST", f"/apis/kubeflow.org/v1/namespaces/{cluster.namespace}/tfjobs", body)
    assert code == 201 or "failed calling webhook" in answer["message"], answer
    return bool(code == 201)


def test_the_check_and_the_plan_only_get_and_list(
    plane: ControlPlane, reader: Path, team: Cluster, audit: AuditLog
) -> None:
    """By the audit log, they ask for no more than the permissions that the documentation names."""
    before = len(audit.events())
    plugin = Plugin(reader, team.namespace, plane.kubectl)
    assert "mnist   New     exit-codes, clean-pod-policy, restart-delay, counters" in plugin(
        "migrate", "--check", code=3
    )
    plugin("migrate", "--check", "-A", "-o", "json", code=3)
    assert asked(audit, before) == CHECKED
    Plugin(reader, "", plane.kubectl)("migrate", "--plan")
    assert asked(audit, before) == PLANNED
    plugin("migrate", "--plan")
    assert asked(audit, before) == PLANNED_BY_NAMESPACE
    assert not audit.refused()


def asked(audit: AuditLog, since: int) -> set[Fact]:
    """What the account asked for, without the discovery of clients."""
    events = audit.events()[since:]
    return {fact_of(event["objectRef"], event["verb"]) for event in events if "resource" in event.get("objectRef", {})}


def test_the_plan_replaces_training_operator_and_goes_back(
    plane: ControlPlane, reader: Path, team: Cluster, tmp_path: Path
) -> None:
    before = entries(plane)
    assert not can_create(team, "too-early")
    script = planned(plane, reader, tmp_path)
    assert "mnist" in script.run(script.there)
    assert entries(plane) == {name: each for name, each in before.items() if ".tfjob." not in name}
    assert len(before) == len(entries(plane)) + 1
    assert read(plane, f"{DEPLOYMENTS}/training-operator")["spec"]["replicas"] == 0
    assert arguments(plane, "tf-job-operator") == [
        "--monitoring-port=8443",
        "--retryable-exit-codes=128-255",
        "--restart-backoff=false",
        "--controller-config-file=/etc/config/controller_config_file.yaml",
    ]
    crd = read(plane, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org")
    assert {each["name"] for each in crd["spec"]["versions"]} > {"v1", "v1beta2"}
    assert can_create(team, "in-time")
    script.run(script.there)  # again, after an error: the saved entry is kept

    failure_policy = {"rules": [{"name": "all", "action": "RestartAll"}]}
    team.create("policy", specs(Worker=replica()) | {"runPolicy": {"failurePolicy": failure_policy}})
    team.create("shared", specs(Worker=replica()) | {"runPolicy": {"network": "shared"}})
    team.create("board", specs(Worker=replica()) | {"tensorBoard": {"logDir": "/logs"}})
    team.create("held", specs(Worker=replica()))
    condition = {"type": "Held", "status": "True", "reason": "InvalidTFJobSpec"}
    held = f"/apis/kubeflow.org/v1/namespaces/{team.namespace}/tfjobs/held/status"
    code, answer = plane.request("PUT", held, team.job("held") | {"status": {"conditions": [condition]}})
    assert code == 200, answer
    team.create(
        "suspended", specs(Worker=replica()) | {"runPolicy": {"suspend": True, "failurePolicy": failure_policy}}
    )
    team.create("finished", specs(Worker=replica()))
    path = f"/apis/kubeflow.org/v1/namespaces/{team.namespace}/tfjobs/finished/status"
    done = {"finishedIndices": {"Worker": "0"}}
    assert plane.request("PUT", path, team.job("finished") | {"status": done})[0] == 200
    listed = script.run(script.back, ends=True).splitlines()
    assert read(plane, f"{DEPLOYMENTS}/training-operator")["spec"]["replicas"] == 0, "nothing was changed"
    heads = [number for number, line in enumerate(listed) if line.startswith("Jobs ")]
    assert len(heads) == 3
    own = [[line.rpartition("/")[2] for line in listed if line.startswith(f"{team.namespace}/")]]
    assert own == [["board", "policy", "shared", "finished", "held"]]
    script.run(script.back, "anyway")
    assert entries(plane) == before
    assert read(plane, f"{DEPLOYMENTS}/training-operator")["spec"]["replicas"] == 1
    assert arguments(plane, "training-operator") == ["--zap=1"]
    assert read(plane, f"{DEPLOYMENTS}/tf-job-operator")["spec"]["replicas"] == 0
    assert not can_create(team, "too-late")


def test_the_loop_of_the_page_sets_the_policy_of_unfinished_jobs_that_have_none(
    plane: ControlPlane, reader: Path, team: Cluster, tmp_path: Path
) -> None:
    """Then `--check` no longer reports them."""
    script = planned(plane, reader, tmp_path)
    plane.request("DELETE", WEBHOOKS)  # nobody serves it here
    eventually(lambda: can_create(team, "probe"), "the webhook is gone")
    team.create("all", with_policy(specs(Worker=replica(2)), cleanPodPolicy="All"))
    team.create("done", specs(Worker=replica(2)))
    path = f"/apis/kubeflow.org/v1/namespaces/{team.namespace}/tfjobs/done"
    ended = {"conditions": [{"type": "Succeeded", "status": "True"}], "completionTime": "2026-01-01T00:00:00Z"}
    for each in (path, f"{path}/status"):  # the CRD of this operator, if it is installed already, has the subresource
        plane.request("PUT", each, team.job("done") | {"status": ended})
    (loop,) = (each.text for each in below("docs/migration.md", "Before you start") if "patch tfjob" in each.text)
    script.run([loop])
    script.run([loop])  # again, after an error
    policies = {
        name: team.job(name)["spec"].get("runPolicy", {}).get("cleanPodPolicy") for name in ("mnist", "all", "done")
    }
    assert policies == {"mnist": "None", "all": "All", "done": None}
    plugin = Plugin(reader, team.namespace, plane.kubectl)
    assert "clean-pod-policy" not in plugin("migrate", "--check", code=3)


def test_training_operator_continues_with_other_kinds_and_goes_back_to_its_arguments(
    plane: ControlPlane, reader: Path, team: Cluster, tmp_path: Path
) -> None:
    """Its Deployment is as before, with its other fields."""
    before = read(plane, f"{DEPLOYMENTS}/training-operator")["spec"]
    path = f"/apis/kubeflow.org/v1/namespaces/{team.namespace}/pytorchjobs"
    # Its webhook rejects it like those of TFJobs, so it is created without that.
    plane.request("DELETE", WEBHOOKS)
    body = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "bert"}}
    eventually(lambda: plane.request("POST", path, body)[0] in {201, 409}, "the webhook is gone")
    script = planned(plane, reader, tmp_path)
    assert not [line for line in script.there if "patch validatingwebhookconfiguration" in line]
    script.run(script.there)
    assert arguments(plane, "training-operator") == ["--zap=1", "--enable-scheme=pytorchjob"]
    later = tmp_path / "later"
    later.mkdir()
    script = planned(plane, reader, later)  # the arguments of the first plan are recorded
    script.run(script.back)
    assert read(plane, f"{DEPLOYMENTS}/training-operator")["spec"] == before


def test_the_plugin_and_the_dashboard_read_what_training_operator_has_written_and_write_nothing(
    plane: ControlPlane, reader: Path, tmp_path: Path, audit: AuditLog
) -> None:
    """Before anything is replaced: with its labels, statuses and events, and without this operator."""
    cluster = Cluster(plane, "beside", tmp_path)
    plane.create_namespace("beside")
    entries = {"Worker": replica(2, run="forever")}
    status = TRAINING_OPERATOR.running("beside", "mnist", Worker=2)
    with cluster.node():
        body = TRAINING_OPERATOR.job("mnist", TRAINING_OPERATOR.spec(entries), status)
        cluster.post(body)
        if not cluster.job("mnist").get("status"):  # the CRD has a status subresource
            job = "/apis/kubeflow.org/v1/namespaces/beside/tfjobs/mnist/status"
            code, answer = plane.request("PATCH", job, {"status": status}, content_type="application/merge-patch+json")
            assert code == 200, answer
        uid = cluster.job("mnist")["metadata"]["uid"]
        for index in range(2):
            cluster.post(TRAINING_OPERATOR.pod("mnist", uid, "Worker", index, entries["Worker"], master=index == 0))
        eventually(lambda: all(each["status"].get("phase") == "Running" for each in cluster.items("pods")), "pods run")
        before = len(audit.events())
        plugin = Plugin(reader, "beside", plane.kubectl)
        (row,) = plugin("list").splitlines()[1:]
        assert row.split()[:4] == ["mnist", "Running", "2/2", "0"]
        assert "Worker: 2 of 2 ready" in plugin("status", "mnist")
        assert "Nothing wrong was found." in plugin("explain", "mnist", "--silent-after=0")
        assert "worker-1" in plugin("timeline", "mnist")
        with page_of(reader, *DASHBOARD, "-n", "beside") as (_, address):
            # The first rows come before the caches are filled.
            assert any(kind == "rows" and "mnist" in json.dumps(data) for kind, data in Page(address).news())
        reads = {fact.verb for fact in asked(audit, before) if fact.resource != "selfsubjectaccessreviews"}
        assert reads <= {"get", "list", "watch"}
