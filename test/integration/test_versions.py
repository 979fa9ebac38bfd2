"""The versions of TFJob on a real API server: jobs of each are accepted, stored unchanged, and run."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.manifests import read_document
from hack.control_plane import ControlPlane, ControlPlaneError
from hack.crd_schema.__main__ import CRD
from integration.cluster import Cluster, replica, specs, tfjob
from integration.operator_process import ROOT
from support.waiting import eventually
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionType

VERSIONS = ("v1", *c.OLDER_VERSIONS)
EACH = pytest.mark.parametrize(
    "version", [each if each == VERSIONS[-1] else pytest.param(each, marks=pytest.mark.nightly) for each in VERSIONS]
)
"""The oldest version; nightly, each: the CRD is made so that they differ in nothing but the columns."""
EXAMPLES = sorted((ROOT / "manifests" / "examples" / "migration").glob("*.yaml"))


def document(version: str, name: str, spec: Any) -> str:
    return json.dumps(tfjob(name, spec) | {"apiVersion": f"kubeflow.org/{version}"})


def read(cluster: Cluster, version: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.kubectl("get", f"tfjobs.{version}.kubeflow.org", name, "--output=json"))
    return found


def container(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "tensorflow", "image": "i", **fields}]}}}


def test_jobs_of_every_version_run_and_stay_as_they_were_written(served: Cluster) -> None:
    """Whichever version they are read in, no field of a specification is moved, added or renamed."""
    written: dict[str, dict[str, Any]] = {}
    for path in EXAMPLES:
        given = read_document(path)
        given["metadata"].pop("namespace", None)
        made = json.loads(served.kubectl("create", "-f", "-", "--output=json", stdin=json.dumps(given)))
        assert made["apiVersion"] == given["apiVersion"]
        written[made["metadata"]["name"]] = given["spec"]
    assert {read_document(path)["apiVersion"] for path in EXAMPLES} == {
        f"kubeflow.org/{version}"
        for version in c.OLDER_VERSIONS
        if version != "v1alpha1"  # in test_alpha
    }
    for name, spec in written.items():
        served.wait_for(name, ConditionType.SUCCEEDED)
        for version in VERSIONS:
            shown = read(served, version, name)
            assert shown["apiVersion"] == f"kubeflow.org/{version}"
            assert shown["spec"] == spec
            assert shown["status"]["conditions"][-1]["type"] == ConditionType.SUCCEEDED
        assert "Succeeded" in served.kubectl("describe", f"tfjobs.{VERSIONS[-1]}.kubeflow.org", name)


def test_each_version_has_the_columns_of_its_time(cluster: Cluster) -> None:
    """And without a version kubectl reads v1, whichever version the job was created in."""
    cluster.kubectl("create", "-f", "-", stdin=document("v1alpha2", "shown", specs(Worker=replica())))

    def columns(resource: str) -> list[str]:
        return cluster.kubectl("get", resource).splitlines()[0].split()

    assert columns("tfjob") == columns("tfjobs.v1.kubeflow.org") == ["NAME", "STATE", "AGE"]
    assert columns("tfjobs.v1beta2.kubeflow.org") == columns("tfjobs.v1beta1.kubeflow.org") == ["NAME", "STATE", "AGE"]
    assert columns("tfjobs.v1alpha2.kubeflow.org") == ["NAME", "AGE"]


@EACH
def test_no_version_lets_in_what_readers_of_another_can_not_decode(cluster: Cluster, version: str) -> None:
    """U6: a list of v1 shows what was created as v1alpha2."""
    wrong: dict[str, Any] = {
        "args": {"tfReplicaSpecs": {"Worker": container(args=[5])}},
        "ttlSecondsAfterFinished": {"tfReplicaSpecs": {"Worker": container()}, "ttlSecondsAfterFinished": "1h"},
        "runPolicy": {"tfReplicaSpecs": {"Worker": container()}, "runPolicy": "x"},
        "tfReplicaSpecs": {"tfReplicaSpecs": [container()]},
    }
    for told, spec in wrong.items():
        with pytest.raises(ControlPlaneError, match=told):
            cluster.kubectl("create", "--validate=false", "-f", "-", stdin=document(version, "refused", spec))


def test_an_old_client_that_writes_whole_objects_changes_no_status(served: Cluster) -> None:
    """Clients from before v1beta2 wrote the status with the object. Here only the operator writes it, in every version."""
    served.kubectl("create", "-f", "-", stdin=document("v1beta1", "kept", specs(Worker=replica())))
    before = served.wait_for("kept", ConditionType.SUCCEEDED)
    whole = read(served, "v1beta1", "kept")
    whole["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    whole["metadata"]["labels"] = {"team": "a"}
    served.kubectl("replace", "-f", "-", stdin=json.dumps(whole))
    after = read(served, "v1beta1", "kept")
    assert after["metadata"]["labels"] == {"team": "a"}
    assert after["status"] == before


@EACH
def test_kubectl_scales_and_edits_a_job_through_any_version(served: Cluster, version: str) -> None:
    spec = specs(Worker=replica(1, run="forever"))
    served.kubectl("create", "-f", "-", stdin=document("v1beta1", "wide", spec))
    served.wait_for("wide", ConditionType.RUNNING)
    served.kubectl("scale", f"tfjobs.{version}.kubeflow.org", "wide", "--replicas=2")
    eventually(lambda: len(served.names("pods")) == 2, "it has two pods")
    patch = '{"spec":{"tfReplicaSpecs":{"Worker":{"replicas":1}}}}'
    served.kubectl("patch", f"tfjobs.{version}.kubeflow.org", "wide", "--type=merge", f"--patch={patch}")
    eventually(lambda: len(served.names("pods")) == 1, "it has one pod")
    served.kubectl("delete", f"tfjobs.{version}.kubeflow.org", "wide", "--cascade=foreground")


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    """An API server of a test's own, whose CRD changes."""
    with ControlPlane.start("versions") as plane:
        yield plane


def test_a_crd_that_was_applied_client_side_is_upgraded_server_side(plane: ControlPlane) -> None:
    """After removing its annotation, which may get too long on old servers, with --force-conflicts; stored jobs stay."""
    crd = read_document(CRD)
    alone = {**crd, "spec": {**crd["spec"], "versions": crd["spec"]["versions"][:1]}}
    plane.run_kubectl("apply", "-f", "-", input=json.dumps(alone))
    plane.wait_for_crd("tfjobs.kubeflow.org")
    plane.run_kubectl("create", "-f", "-", input=document("v1", "stays", specs(Worker=replica())))
    plane.run_kubectl("annotate", "crd", "tfjobs.kubeflow.org", "kubectl.kubernetes.io/last-applied-configuration-")
    plane.run_kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    found = json.loads(plane.run_kubectl("get", "crd", "tfjobs.kubeflow.org", "--output=json").stdout)
    assert [version["name"] for version in found["spec"]["versions"]] == [
        version["name"] for version in crd["spec"]["versions"]
    ]
    for version in c.OLDER_VERSIONS:
        show = ("get", f"tfjobs.{version}.kubeflow.org", "stays", "--output=json")
        eventually(lambda show=show: plane.run_kubectl(*show, check=False).returncode == 0, f"{version} is served")  # type: ignore[misc]
        assert json.loads(plane.run_kubectl(*show).stdout)["spec"] == specs(Worker=replica())
    again = plane.run_kubectl("apply", "--server-side", "-f", str(CRD))
    assert "serverside-applied" in again.stdout
