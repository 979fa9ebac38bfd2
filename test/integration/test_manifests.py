"""The manifests as people apply them, `kubectl apply -k`, with the oldest kubectl that there is to support."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from hack.control_plane import ControlPlane
from hack.matrix.installing import MONITORING_KINDS, open_crd

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFESTS = Path(__file__).parents[2] / "manifests"
INSTALLATIONS = ("standalone", "kubeflow", "namespaced")
OPERATOR = "deployment/tf-job-operator"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of this module's own: the manifests have fixed names, and cluster-wide ones."""
    with ControlPlane.start("manifests") as plane:
        plane.run_kubectl("create", "namespace", "kubeflow")
        yield plane


def built(plane: ControlPlane, folder: Path) -> list[dict[str, Any]]:
    """What kubectl makes of a kustomization."""
    return list(yaml.safe_load_all(plane.run_kubectl("kustomize", str(folder)).stdout))


@pytest.mark.parametrize("overlay", INSTALLATIONS)
def test_an_installation_is_applied_and_deleted_again(plane: ControlPlane, overlay: str) -> None:
    """Every field is one that the API server knows, and applying it again changes nothing."""
    folder = str(MANIFESTS / "overlays" / overlay)
    plane.run_kubectl("apply", "--validate=true", "-k", folder)
    again = plane.run_kubectl("apply", "-k", folder).stdout
    assert [line for line in again.splitlines() if not line.endswith("unchanged")] == []
    containers = json.loads(plane.run_kubectl("get", OPERATOR, "-n", "kubeflow", "-o", "json").stdout)
    assert containers["spec"]["template"]["spec"]["serviceAccountName"] == "tf-job-operator"
    plane.run_kubectl("delete", "--wait=false", "--ignore-not-found", "-k", folder)
    plane.run_kubectl("delete", "--ignore-not-found", "crd/tfjobs.kubeflow.org")  # waits until it is gone
    if overlay == "standalone":  # it brings the namespace, which takes its time to go
        plane.run_kubectl("wait", "--for=delete", "--timeout=60s", "namespace/kubeflow")
        plane.run_kubectl("create", "namespace", "kubeflow")


def test_monitoring_is_applied_where_there_is_a_prometheus_operator(plane: ControlPlane) -> None:
    """Beside any installation; its kinds are played by CRDs that take everything."""
    for kind, plural in MONITORING_KINDS.items():
        plane.run_kubectl("apply", "-f", "-", input=json.dumps(open_crd("monitoring.coreos.com", kind, plural)))
        plane.wait_for_crd(f"{plural}.monitoring.coreos.com")
    plane.run_kubectl("apply", "-k", str(MANIFESTS / "overlays" / "monitoring"))
    selector = "grafana_dashboard=1"
    found = plane.run_kubectl("get", "configmaps", "-n", "kubeflow", "-l", selector, "-o", "json").stdout
    (dashboard,) = json.loads(found)["items"]
    assert json.loads(dashboard["data"]["dashboard.json"])["title"] == "TFJob operator"


def test_an_installation_for_one_namespace_can_be_put_into_any(plane: ControlPlane, tmp_path: Path) -> None:
    """The account, its roles and what binds them follow the namespace of a kustomization around it; no right leads out."""
    relative = Path("../" * len(tmp_path.parts)) / (MANIFESTS / "overlays" / "namespaced").relative_to("/")
    (tmp_path / "kustomization.yaml").write_text(json.dumps({"namespace": "team-a", "bases": [str(relative)]}))
    made = built(plane, tmp_path)
    placed = {
        item["metadata"].get("namespace")
        for item in made
        if item["kind"] not in {"ClusterRole", "CustomResourceDefinition"}
    }
    assert placed == {"team-a"}
    bindings = [item for item in made if item["kind"].endswith("Binding")]
    assert {item["kind"] for item in bindings} == {"RoleBinding"}
    assert {subject["namespace"] for item in bindings for subject in item["subjects"]} == {"team-a"}


def test_the_rights_over_one_namespace_are_those_over_all(plane: ControlPlane) -> None:
    """The two lists of rules are kept by hand, since kustomize has no way to make one of the other."""

    def rules(*folder: str) -> list[Any]:
        found = built(plane, MANIFESTS.joinpath(*folder))
        return [
            item["rules"]
            for item in found
            if item["kind"] in {"Role", "ClusterRole"} and item["metadata"]["name"] == "tf-job-operator"
        ]

    assert rules("cluster-wide") == rules("overlays", "namespaced")
    assert len(rules("cluster-wide")) == 1


def test_the_operator_runs_with_no_more_than_it_needs(plane: ControlPlane) -> None:
    """Two replicas that are nobody, can write nowhere and become nothing else; probes; memory with a bound."""
    (deployment,) = [item for item in built(plane, MANIFESTS / "base") if item["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 2
    pod = deployment["spec"]["template"]
    assert pod["metadata"]["labels"]["name"] == "tf-job-operator"  # by which people are told to look for its log
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["spec"]["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize(
    ("role", "verbs"),
    [
        ("view", {"get", "list", "watch"}),
        ("edit", {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}),
        ("admin", {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}),
    ],
)
def test_people_with_a_usual_role_may_use_jobs_but_not_forge_their_status(
    plane: ControlPlane, role: str, verbs: set[str]
) -> None:
    """Kubernetes' own roles, bound in one namespace, hold for TFJobs; and so does each kubeflow-tfjobs-* by itself."""
    for file in ("crd.yaml", "user-roles.yaml"):
        plane.run_kubectl("apply", "-f", str(MANIFESTS / "base" / file))
    plane.wait_for_crd("tfjobs.kubeflow.org")
    for bound in (role, f"kubeflow-tfjobs-{role}"):
        user = f"user-of-{bound}"
        plane.run_kubectl("create", "rolebinding", user, f"--clusterrole={bound}", f"--user={user}", "-n", "default")
        may = f"--as={user}"
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"):
            _until_answer(plane, "yes" if verb in verbs else "no", verb, "tfjobs.kubeflow.org", may)
        assert _answer(plane, "patch", "tfjobs.kubeflow.org", "--subresource=status", may) == "no"
        assert _answer(plane, "get", "tfjobs.kubeflow.org", may, "-n", "kube-system") == "no"


def test_flow_schemas_differ_in_nothing_but_their_version(plane: ControlPlane) -> None:
    """No version of the API is served from 1.20 to 1.36, so there are three; the newest that this server has is applied."""
    versions = ("v1beta1", "v1beta2", "v1")
    folders = [MANIFESTS / "addons" / f"flow-control-{version}" for version in versions]
    texts = {
        (folder / "flow-schemas.yaml").read_text().replace(f"k8s.io/{version}\n", "k8s.io/VERSION\n")
        for folder, version in zip(folders, versions, strict=True)
    }
    assert len(texts) == 1
    served = plane.run_kubectl("api-versions").stdout.split()
    usable = [
        folder
        for folder, version in zip(folders, versions, strict=True)
        if f"flowcontrol.apiserver.k8s.io/{version}" in served
    ]
    assert usable
    plane.run_kubectl("apply", "-k", str(usable[-1]))
    plane.run_kubectl("delete", "-k", str(usable[-1]))


def _answer(plane: ControlPlane, *question: str) -> str:
    return plane.run_kubectl("auth", "can-i", *question, check=False).stdout.strip()


def _until_answer(plane: ControlPlane, wanted: str, *question: str) -> None:
    # A role that is filled by aggregation is filled a moment later.
    deadline = time.monotonic() + 30.0
    while (answer := _answer(plane, *question)) != wanted:
        assert time.monotonic() < deadline, f"can-i {question}: {answer}"
        time.sleep(0.1)
