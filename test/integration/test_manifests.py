"""The manifests as users apply them, with `kubectl apply -k` of the oldest supported kubectl."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.control_plane import ControlPlane
from hack.matrix.cluster import MONITORING_KINDS, open_crd
from hack.yaml_text import documents
from support.waiting import eventually

MANIFESTS = Path(__file__).parents[2] / "manifests"
INSTALLATIONS = ("standalone", "kubeflow", "namespaced")
OPERATOR = "deployment/tf-job-operator"
SHARED = {"ClusterRole", "CustomResourceDefinition"}
"""The kinds of objects that all installations for one namespace have in common."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of this module's own: the names in the manifests are fixed, and some are cluster-wide."""
    with ControlPlane.start("manifests") as plane:
        plane.run_kubectl("create", "namespace", "kubeflow")
        yield plane


def built(plane: ControlPlane, folder: Path) -> list[dict[str, Any]]:
    return documents(plane.run_kubectl("kustomize", str(folder)).stdout)


def generations(plane: ControlPlane) -> list[int]:
    """How often the specifications of the CRD and the Deployment were changed."""
    objects = ("crd/tfjobs.kubeflow.org", OPERATOR)
    shown = (plane.run_kubectl("get", name, "-n", "kubeflow", "-o", "json").stdout for name in objects)
    return [json.loads(text)["metadata"]["generation"] for text in shown]


@pytest.mark.parametrize("overlay", INSTALLATIONS)
def test_an_installation_is_applied_and_deleted_again(plane: ControlPlane, overlay: str) -> None:
    """Every field is one that the API server knows, and applying it again changes nothing."""
    folder = str(MANIFESTS / "overlays" / overlay)
    apply = ("apply", "--server-side", "--validate=true", "-k", folder)
    plane.run_kubectl(*apply)
    before = generations(plane)
    plane.run_kubectl(*apply)
    assert generations(plane) == before
    containers = json.loads(plane.run_kubectl("get", OPERATOR, "-n", "kubeflow", "-o", "json").stdout)
    assert containers["spec"]["template"]["spec"]["serviceAccountName"] == "tf-job-operator"
    plane.run_kubectl("delete", "--wait=false", "--ignore-not-found", "-k", folder)
    plane.run_kubectl("delete", "--ignore-not-found", "crd/tfjobs.kubeflow.org")  # waits until it is gone
    if overlay == "standalone":  # it brings the namespace, which takes its time to go
        plane.run_kubectl("delete", "--ignore-not-found", "namespace/kubeflow")
        plane.run_kubectl("create", "namespace", "kubeflow")


def test_monitoring_is_applied_where_there_is_a_prometheus_operator(plane: ControlPlane) -> None:
    """It works beside any installation; CRDs that accept everything stand in for its kinds."""
    for kind, plural in MONITORING_KINDS.items():
        plane.run_kubectl("apply", "-f", "-", input=json.dumps(open_crd("monitoring.coreos.com", kind, plural)))
        plane.wait_for_crd(f"{plural}.monitoring.coreos.com")
    plane.run_kubectl("apply", "-k", str(MANIFESTS / "overlays" / "monitoring"))
    selector = "grafana_dashboard=1"
    found = plane.run_kubectl("get", "configmaps", "-n", "kubeflow", "-l", selector, "-o", "json").stdout
    (dashboard,) = json.loads(found)["items"]
    assert json.loads(dashboard["data"]["tf-job-operator.json"])["title"] == "TFJob operator"


def test_an_installation_for_one_namespace_can_be_put_into_any(plane: ControlPlane, tmp_path: Path) -> None:
    """A kustomization around it sets the namespace of the account, roles and bindings; no right goes beyond that namespace."""
    put_into("team-a", tmp_path)
    made = built(plane, tmp_path)
    placed = {item["metadata"].get("namespace") for item in made if item["kind"] not in SHARED}
    assert placed == {"team-a"}
    bindings = [item for item in made if item["kind"].endswith("Binding")]
    assert {item["kind"] for item in bindings} == {"RoleBinding"}
    assert {subject["namespace"] for item in bindings for subject in item["subjects"]} == {"team-a"}


def put_into(namespace: str, folder: Path) -> None:
    """Write the kustomization of docs/install.md for an installation in another namespace."""
    relative = Path("../" * len(folder.parts)) / (MANIFESTS / "overlays" / "namespaced").relative_to("/")
    (folder / "kustomization.yaml").write_text(json.dumps({"namespace": namespace, "bases": [str(relative)]}))


def test_one_of_two_installations_is_removed_by_the_commands_of_the_guide(plane: ControlPlane, tmp_path: Path) -> None:
    """Nothing of it is left in its namespace; the CRD, all jobs, the roles of users and the other installation are."""
    made = {}
    for namespace in ("team-a", "team-b"):
        plane.create_namespace(namespace)
        put_into(namespace, tmp_path)
        plane.run_kubectl("apply", "--server-side", "-k", str(tmp_path))
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "tf-operator"}}
        plane.run_kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(lease))
        plane.wait_for_crd("tfjobs.kubeflow.org")
        plane.run_kubectl("create", "-n", namespace, "-f", str(MANIFESTS / "examples" / "00-hello.yaml"))
        made[namespace] = [*built(plane, tmp_path), lease]

    def left(namespace: str) -> list[str]:
        names = [f"{item['kind']}/{item['metadata']['name']}" for item in made[namespace]]
        shown = plane.run_kubectl("get", "-n", namespace, "--ignore-not-found", "-o", "json", *names).stdout
        return sorted(f"{item['kind']}/{item['metadata']['name']}" for item in json.loads(shown)["items"])

    before = left("team-b")
    text = (MANIFESTS.parent / "docs" / "install.md").read_text().partition("\n### One of several installations\n")[2]
    commands = re.findall(r"^    kubectl (-n team-a .*)$", text.partition("\n### ")[0], re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        plane.run_kubectl(*command.split())
    assert {name.partition("/")[0] for name in left("team-a")} == SHARED
    assert left("team-b") == before
    for namespace in ("team-a", "team-b"):
        assert "hello" in plane.run_kubectl("get", "tfjobs", "-n", namespace, "-o", "name").stdout
    plane.run_kubectl("delete", "--wait=false", "-k", str(tmp_path))
    plane.run_kubectl("delete", "--ignore-not-found", "crd/tfjobs.kubeflow.org")


def test_a_standalone_installation_can_be_deleted_without_its_namespace(plane: ControlPlane) -> None:
    """By the overlay for Kubeflow, as README and docs/install.md say: it has the same objects but for the namespace."""

    def names(overlay: str) -> set[tuple[str, str]]:
        found = built(plane, MANIFESTS / "overlays" / overlay)
        return {(item["kind"], item["metadata"]["name"]) for item in found}

    assert names("standalone") - names("kubeflow") == {("Namespace", "kubeflow")}
    assert names("kubeflow") <= names("standalone")


def test_versions_that_nobody_uses_are_left_out_by_the_patch_of_the_guide(plane: ControlPlane, tmp_path: Path) -> None:
    """As docs/install.md says: from a new CRD and from one that serves all; refused where an old version was once stored."""
    text = (MANIFESTS.parent / "docs" / "install.md").read_text().partition("\n### Unused API versions\n")[2]
    kustomization, patch = re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[:2]
    overlay = MANIFESTS / "overlays" / "kubeflow"
    relative = Path("../" * len(tmp_path.parts)) / overlay.relative_to("/")
    (tmp_path / "kustomization.yaml").write_text(f"bases: [{relative}]\n{kustomization}")
    (tmp_path / "v1-alone.yaml").write_text(patch)

    def served() -> list[str]:
        shown = plane.run_kubectl("get", "crd", "tfjobs.kubeflow.org", "-o", "json").stdout
        return [version["name"] for version in json.loads(shown)["spec"]["versions"]]

    apply = ("apply", "--server-side", "-k")
    plane.run_kubectl(*apply, str(tmp_path))
    assert served() == ["v1"]
    plane.run_kubectl(*apply, str(overlay))
    assert len(served()) == 5
    plane.run_kubectl(*apply, str(tmp_path))
    assert served() == ["v1"]
    plane.run_kubectl(*apply, str(overlay))
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org"
    crd = plane.request("GET", path)[1]
    crd["status"]["storedVersions"].append("v1beta1")  # as after a Go operator's CRD
    assert plane.request("PUT", f"{path}/status", crd)[0] == 200
    refused = plane.run_kubectl(*apply, str(tmp_path), check=False)
    assert "status.storedVersions" in refused.stderr
    assert len(served()) == 5
    plane.run_kubectl("delete", "--ignore-not-found", "-k", str(overlay), "--wait=false")
    plane.run_kubectl("delete", "--ignore-not-found", "crd/tfjobs.kubeflow.org")


def test_the_rights_over_one_namespace_are_those_over_all(plane: ControlPlane) -> None:
    """The two lists of rules are kept by hand, since kustomize has no way to make one of the other."""

    def rules(*folder: str) -> list[Any]:
        roles = [item for item in built(plane, MANIFESTS.joinpath(*folder)) if item["kind"] in {"Role", "ClusterRole"}]
        return [item["rules"] for item in roles if item["metadata"]["name"] == "tf-job-operator"]

    assert rules("cluster-wide") == rules("overlays", "namespaced")
    assert len(rules("cluster-wide")) == 1


def test_the_operator_runs_with_no_more_than_it_needs(plane: ControlPlane) -> None:
    """Two replicas that are not root, cannot write to their file systems or gain privileges; probes; a limit of memory."""
    (deployment,) = [item for item in built(plane, MANIFESTS / "base") if item["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 2
    pod = deployment["spec"]["template"]
    assert pod["metadata"]["labels"]["name"] == "tf-job-operator"  # the docs tell users to find the log by it
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


READS = ("get", "list", "watch")
WRITES = ("create", "update", "patch", "delete", "deletecollection")


@pytest.mark.parametrize(("role", "may"), [("view", READS), ("edit", READS + WRITES), ("admin", READS + WRITES)])
def test_people_with_a_usual_role_may_use_jobs_but_not_forge_their_status(
    plane: ControlPlane, role: str, may: tuple[str, ...]
) -> None:
    """Kubernetes' own roles, bound in one namespace, hold for TFJobs; and so does each kubeflow-tfjobs-* by itself."""
    for file in ("crd.yaml", "user-roles.yaml"):
        plane.run_kubectl("apply", "--server-side", "-f", str(MANIFESTS / "base" / file))
    plane.wait_for_crd("tfjobs.kubeflow.org")
    for bound in (role, f"kubeflow-tfjobs-{role}"):
        user = f"user-of-{bound}"
        plane.run_kubectl("create", "rolebinding", user, f"--clusterrole={bound}", f"--user={user}", "-n", "default")

        def allowed(user: str = user) -> list[str]:
            return [verb for verb in READS + WRITES if is_allowed(plane, user, verb)]

        # Aggregation fills a role a moment after its creation.
        eventually(lambda allowed=allowed: allowed() == [*may], f"{bound} is filled", yet=allowed)  # type: ignore[misc]
        assert not is_allowed(plane, user, "patch", subresource="status")
        assert not is_allowed(plane, user, "get", namespace="kube-system")


def is_allowed(plane: ControlPlane, user: str, verb: str, namespace: str = "default", **more: str) -> bool:
    """Whether a user may do that with TFJobs, as `kubectl auth can-i` asks."""
    about = {"group": "kubeflow.org", "resource": "tfjobs", "verb": verb, "namespace": namespace, **more}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    spec = {"user": user, "groups": ["system:authenticated"], "resourceAttributes": about}
    _, found = plane.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body | {"spec": spec})
    return bool(found["status"]["allowed"])


def test_flow_schemas_differ_in_nothing_but_their_version(plane: ControlPlane) -> None:
    """No version of that API is served from 1.20 to 1.36, so there are three; the newest that this server has is applied."""
    folders = {each: MANIFESTS / "addons" / f"flow-control-{each}" for each in ("v1beta1", "v1beta2", "v1")}
    texts = {
        (folder / "flow-schemas.yaml").read_text().replace(f"k8s.io/{version}\n", "k8s.io/VERSION\n")
        for version, folder in folders.items()
    }
    assert len(texts) == 1
    served = plane.run_kubectl("api-versions").stdout.split()
    newest = [folder for version, folder in folders.items() if f"flowcontrol.apiserver.k8s.io/{version}" in served][-1]
    plane.run_kubectl("apply", "-k", str(newest))
    plane.run_kubectl("delete", "-k", str(newest))
