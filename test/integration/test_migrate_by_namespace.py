"""`kubectl tfjob migrate --plan -n NAMESPACE` on a real API server with RBAC: its commands, one by one, there and back.

training-operator is its ServiceAccount with the ClusterRole of its manifests. After each command, at most one of both operators
may write the jobs of a namespace, so whatever both do meanwhile, no job is written by two. The real training-operator 1.9.4 was
run through the same commands. There is no node, so commands that wait for pods are left out.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from hack.control_plane import ControlPlane
from hack.matrix.cluster import open_crd
from integration.cluster import Cluster, replica, specs
from integration.operator_process import ROOT, with_token
from integration.plugin import Plugin
from integration.test_migrate import AROUND, CONFIG, DEPLOYMENTS, KINDS, WEBHOOKS, Script, entries, entry
from support.pages import below
from support.waiting import eventually

NAME: Final = "training-operator"
LABEL: Final = "tfjob.kubeflow.org/operator"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
ALL: Final = ["create", "delete", "get", "list", "patch", "update", "watch"]
RULES: Final = [
    {"apiGroups": [""], "resources": ["pods", "services", "events"], "verbs": ALL},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list", "update", "watch"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "update", "watch"]},
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingwebhookconfigurations"],
        "verbs": ["get", "list", "update", "watch"],
    },
    {"apiGroups": ["kubeflow.org"], "resources": ["tfjobs", "pytorchjobs"], "verbs": ALL},
    {
        "apiGroups": ["kubeflow.org"],
        "resources": ["tfjobs/status", "pytorchjobs/status"],
        "verbs": ["get", "patch", "update"],
    },
]
"""The rules of training-operator 1.9.4 for its TFJobs, its webhook and its certificate."""


class Right(NamedTuple):
    verb: str
    resource: str
    group: str = ""
    subresource: str = ""


WRITES: Final = (
    Right("create", "pods"),
    Right("delete", "pods"),
    Right("create", "services"),
    Right("delete", "services"),
    Right("delete", "tfjobs", "kubeflow.org"),
    Right("patch", "tfjobs", "kubeflow.org", "status"),
)
"""The writes of both operators."""
READS: Final = (Right("watch", "tfjobs", "kubeflow.org"), Right("list", "pods"), Right("list", "secrets"))


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane.start("by-namespace") as plane:
        for kind, plural in (("TFJob", "tfjobs"), ("PyTorchJob", "pytorchjobs")):
            plane.run_kubectl("create", "-f", "-", input=json.dumps(open_crd("kubeflow.org", kind, plural)))
            plane.wait_for_crd(f"{plural}.kubeflow.org")
        plane.create_namespace("kubeflow")
        yield plane


@pytest.fixture
def teams(plane: ControlPlane, tmp_path: Path) -> Iterator[list[str]]:
    """Three namespaces with a job each, of a cluster with training-operator."""
    names = [f"{team}-{secrets.token_hex(3)}" for team in ("a", "b", "c")]
    for name in names:
        plane.create_namespace(name)
        Cluster(plane, name, tmp_path).create("mnist", specs(Worker=replica(2)))
    plane.run_kubectl("create", "serviceaccount", NAME, "--namespace=kubeflow")
    role = {"metadata": {"name": NAME}, "rules": RULES}
    assert plane.request("POST", f"{RBAC}/clusterroles", role)[0] == 201
    account = f"--serviceaccount=kubeflow:{NAME}"
    plane.run_kubectl("create", "clusterrolebinding", NAME, f"--clusterrole={NAME}", account)
    labels = {"control-plane": "kubeflow-training-operator"}
    pod = {"serviceAccountName": NAME, "containers": [{"name": NAME, "image": NAME, "command": ["/manager"]}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": NAME, "labels": labels}, "spec": spec}
    assert plane.request("POST", DEPLOYMENTS, body)[0] == 201
    config = {"metadata": {"name": CONFIG}, "webhooks": [entry(kind) for kind in KINDS]}
    assert plane.request("POST", WEBHOOKS.rpartition("/")[0], config)[0] == 201
    yield names
    for path in (
        WEBHOOKS,
        f"{DEPLOYMENTS}/{NAME}",
        *(f"{RBAC}/{each}/{NAME}" for each in ("clusterroles", "clusterrolebindings")),
    ):
        plane.request("DELETE", path)
    plane.run_kubectl("delete", "serviceaccount", NAME, "--namespace=kubeflow")
    for name in names:
        plane.request("DELETE", f"/api/v1/namespaces/{name}")


class Operators:
    """The permissions of training-operator and of this operator in namespaces."""

    def __init__(self, plane: ControlPlane, teams: Sequence[str]) -> None:
        self._plane = plane
        self._teams = teams

    def allowed(self, namespace: str, account: str, rights: Sequence[Right], within: str) -> int:
        """Return how many of these rights a service account in `namespace` has in the namespace `within`."""
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        found = 0
        for right in rights:
            attributes = right._asdict() | {"namespace": within}
            spec = {"user": f"system:serviceaccount:{namespace}:{account}", "groups": groups}
            body = {"spec": spec | {"resourceAttributes": attributes}}
            code, answer = self._plane.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
            assert code == 201, answer
            found += answer["status"]["allowed"]
        return found

    def writers(self, within: str) -> set[str]:
        """Return the operators that may write anything about the jobs of a namespace."""
        found = {NAME} if self.allowed("kubeflow", NAME, WRITES, within) else set()
        for each in ("kubeflow", *self._teams):
            if self.allowed(each, "tf-job-operator", WRITES, within):
                found.add(each)
        return found

    def check(self, moved: Sequence[str], moving: str) -> None:
        """Check that each namespace has one operator, and `moving` at most one; training-operator reads everywhere.

        Authorizers learn of a new binding a moment later. That nobody else may write holds at any time.
        """
        for team in self._teams:
            writers = self.writers(team)
            if team == moving:
                assert len(writers) <= 1, writers
            else:
                one = {team} if team in moved else {NAME}
                assert writers <= one
                eventually(partial(self._are_writers, one, team), "it has an operator")
        for rights, within in ((WRITES, "kubeflow"), *((READS, team) for team in self._teams)):
            eventually(partial(self._has, rights, within), "training-operator still may")

    def _are_writers(self, expected: set[str], within: str) -> bool:
        return self.writers(within) == expected

    def _has(self, rights: Sequence[Right], within: str) -> bool:
        return self.allowed("kubeflow", NAME, rights, within) == len(rights)


def commands(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if line and line not in AROUND and not line.startswith("#")]


class Steps:
    """The plans of namespaces, executed command by command, as an administrator."""

    def __init__(self, plane: ControlPlane, operators: Operators, folder: Path) -> None:
        self._plane = plane
        self._operators = operators
        self._folder = folder
        self.moved: list[str] = []

    def plan(self, team: str = "") -> Script:
        """Return the plan of a namespace, or of the whole cluster."""
        folder = self._folder / secrets.token_hex(3)
        folder.mkdir()
        lines = Plugin(self._plane.kubeconfig, team, self._plane.kubectl)("migrate", "--plan")
        script = Script(self._plane, lines.splitlines(), folder)
        one = self._plane.run_kubectl("kustomize", str(ROOT / "manifests" / "overlays" / "namespaced")).stdout
        (folder / "install-namespaced.yaml").write_text(one)
        return script

    def move(self, team: str) -> Script:
        script = self.plan(team)
        self._run(script, script.there, team)
        self.moved.append(team)
        eventually(
            lambda: self._operators.writers(team) == {team},
            "this operator may write",
            yet=lambda: self._operators.writers(team),
        )
        return script

    def back(self, script: Script, team: str) -> None:
        self._run(script, script.back, team)
        self.moved.remove(team)
        eventually(lambda: self._operators.writers(team) == {NAME}, "training-operator may write again")

    def _run(self, script: Script, lines: Sequence[str], team: str) -> None:
        for line in commands(lines):
            script.run([line])
            self._operators.check([each for each in self.moved if each != team], team)


def denied(plane: ControlPlane, namespace: str, account: str, within: str, folder: Path) -> list[bool]:
    """Return which real writes of an account are denied: of a pod, and of the status of the job."""
    kubeconfig = with_token(plane, plane.request_token(namespace, account), folder)
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}
    body = json.dumps({"apiVersion": "v1", "kind": "Pod"} | pod)
    found = []
    for words, text in (
        (("create", "--dry-run=server", "-f", "-"), body),
        (("delete", "tfjob", "mnist", "--dry-run=server"), None),
    ):
        done = plane.run_kubectl(*words, f"--kubeconfig={kubeconfig}", "-n", within, input=text, check=False)
        assert not done.returncode or "(Forbidden)" in done.stderr, done.stderr
        found.append(bool(done.returncode))
    return found


@pytest.mark.nightly
def test_namespaces_move_one_by_one_and_back_and_no_job_ever_has_two_operators(
    plane: ControlPlane, teams: list[str], tmp_path: Path
) -> None:
    """With the rest at last: the plan for all removes the installations of single namespaces first."""
    first, second, _ = teams
    operators = Operators(plane, teams)
    steps = Steps(plane, operators, tmp_path)
    operators.check([], "")
    there = steps.move(first)
    assert denied(plane, "kubeflow", NAME, first, tmp_path) == [True, True]
    assert denied(plane, first, "tf-job-operator", first, tmp_path) == [False, False]
    assert denied(plane, "kubeflow", NAME, second, tmp_path) == [False, False]
    assert denied(plane, first, "tf-job-operator", second, tmp_path) == [True, True]
    assert selected(plane, first) is False
    assert selected(plane, second) is True
    code, found = plane.request("GET", f"/apis/apps/v1/namespaces/{first}/deployments/tf-job-operator")
    assert code == 200
    assert found["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--namespace=$(KUBEFLOW_NAMESPACE)"
    there.run(there.there)  # again, after an error

    later = steps.move(second)
    steps.back(there, first)
    assert plane.request("GET", f"{RBAC}/clusterrolebindings/{NAME}")[0] == 404
    steps.move(first)
    steps.back(later, second)
    created = f"d-{secrets.token_hex(3)}"
    plane.create_namespace(created)
    assert operators.writers(created) == set()
    there.run([line for line in there.there if line.startswith("if namespaces=")])
    eventually(lambda: operators.writers(created) == {NAME}, "training-operator serves it")
    assert operators.writers(first) == {first}

    script = steps.plan()
    stop = next(number for number, line in enumerate(script.there) if line.startswith("# 3. Install"))
    script.run(script.there[:stop])  # training-operator does not run from here on
    for line in commands(script.there[stop:]):
        script.run([line])
        assert operators.writers(first) - {NAME} in ({first}, set(), {"kubeflow"})
    eventually(lambda: all(operators.writers(team) - {NAME} == {"kubeflow"} for team in teams), "all are moved")
    script.run(script.back)
    plane.request("DELETE", f"{RBAC}/clusterrolebindings/tf-job-operator")
    eventually(lambda: all(operators.writers(team) == {NAME} for team in teams), "all are back")
    assert all(selected(plane, team) for team in teams)
    plane.request("DELETE", f"/api/v1/namespaces/{created}")


def selected(plane: ControlPlane, namespace: str) -> bool:
    """Return True if the webhook of training-operator validates the TFJobs of a namespace."""
    _, config = plane.request("GET", WEBHOOKS)
    (found,) = (each for each in config["webhooks"] if ".tfjob." in each["name"])
    expressions = found.get("namespaceSelector", {}).get("matchExpressions", [])
    _, body = plane.request("GET", f"/api/v1/namespaces/{namespace}")
    labels = body["metadata"].get("labels", {})
    return all(labels.get(each["key"]) not in each["values"] for each in expressions)


@pytest.mark.nightly
def test_the_way_back_of_the_last_namespace_restores_the_binding_for_all(
    plane: ControlPlane, teams: list[str], tmp_path: Path
) -> None:
    operators = Operators(plane, teams)
    steps = Steps(plane, operators, tmp_path)
    script = steps.move(teams[0])
    assert plane.request("GET", f"{RBAC}/clusterrolebindings/{NAME}")[0] == 404
    later = steps.plan(teams[0])
    assert later.back == script.back
    steps.back(later, teams[0])
    assert plane.request("GET", f"{RBAC}/clusterrolebindings/{NAME}")[0] == 200
    annotations = plane.request("GET", f"{DEPLOYMENTS}/{NAME}")[1]["metadata"].get("annotations", {})
    assert not [key for key in annotations if "before-migration" in key]
    operators.check([], "")


GANG: Final = "tf-job-operator-gang-scheduling"


def left(plane: ControlPlane) -> set[str]:
    """Return what is left of a migration in all namespaces, as kubectl names it, except the CRD."""
    kinds = "deployment,service,serviceaccount,role,rolebinding,networkpolicy,configmap,clusterrolebinding,clusterrole"
    ours = plane.run_kubectl(
        "get", kinds, "--all-namespaces", "--selector=app.kubernetes.io/name=tfjob-operator", "--output=name"
    ).stdout.split()
    by_name = []
    for kind, names in (
        ("lease", {"tf-operator"}),
        ("rolebinding", {NAME, GANG}),
        ("clusterrolebinding,clusterrole", {f"{NAME}-read", GANG, "tf-job-operator"}),
    ):
        found = plane.run_kubectl("get", kind, "--all-namespaces", "--output=name").stdout.split()
        by_name += [each for each in found if each.rpartition("/")[2] in names]
    moved = plane.run_kubectl("get", "namespaces", f"--selector={LABEL}", "--output=name").stdout.split()
    return {*ours, *by_name, *moved}


def test_the_commands_of_the_page_remove_what_a_migration_there_and_back_has_left(
    plane: ControlPlane, teams: list[str], tmp_path: Path
) -> None:
    """One namespace there and back, one there, then all there and back. Jobs, the CRD and training-operator stay."""
    first, second, _ = teams
    operators = Operators(plane, teams)
    steps = Steps(plane, operators, tmp_path)
    before = entries(plane)
    steps.back(steps.move(first), first)
    steps.move(second)
    script = steps.plan()
    script.run(script.there)
    script.run(script.back)
    lease = {"metadata": {"name": "tf-operator"}}
    for namespace in ("kubeflow", second):
        assert plane.request("POST", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", lease)[0] == 201
    account = f"--serviceaccount={first}:tf-job-operator"
    plane.run_kubectl("create", "rolebinding", GANG, f"--clusterrole={GANG}", account, f"--namespace={first}")
    assert {each.partition("/")[0].partition(".")[0] for each in left(plane)} >= {
        "deployment", "serviceaccount", "lease", "rolebinding", "clusterrole", "clusterrolebinding"
    }  # fmt: skip

    page = [each.text for each in below("docs/migration.md", "Clean up after the way back")]
    permissions, moved = page[:2]
    assert NAME in script.run([permissions])
    assert script.run([moved]) == ""
    script.run(page[2:])
    assert {each for each in left(plane) if "kubeflow-tfjobs-" not in each} == set()
    assert entries(plane) == before
    eventually(lambda: all(operators.writers(team) == {NAME} for team in teams), "training-operator serves all")
    for team in teams:
        assert plane.request("GET", f"/apis/kubeflow.org/v1/namespaces/{team}/tfjobs/mnist")[0] == 200
    script.run(page[2:])  # again, after an error
