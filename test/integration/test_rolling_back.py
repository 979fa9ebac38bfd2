"""The Deployment of the manifests is rolled back by `kubectl rollout undo`, and upgraded again, as docs/operations.md says."""

from pathlib import Path
from typing import Final

import pytest

from hack.control_plane import ControlPlane, ControlPlaneError
from support.pages import ROOT
from support.waiting import eventually

pytestmark = pytest.mark.nightly
DEPLOYMENT: Final = ("-n", "kubeflow", "deployment/tf-job-operator")
IMAGE: Final = "--output=jsonpath={.spec.template.spec.containers[0].image}"
PATCH: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: tf-job-operator, namespace: kubeflow}
spec: {template: {spec: {containers: [{name: operator, image: "operator:VERSION"}]}}}
"""
KUSTOMIZATION: Final = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
bases: [manifests/overlays/standalone]
patchesStrategicMerge: [image.yaml]
"""


def test_an_operator_that_was_rolled_back_alone_is_upgraded_again_by_force(tmp_path: Path) -> None:
    """The field of its image belongs to another manager by then, which `kubectl apply --server-side` alone respects."""
    with ControlPlane.start("rolling-back", extra_controllers=("deployment", "replicaset")) as plane:

        def apply(version: str, *more: str) -> None:
            (tmp_path / "image.yaml").write_text(PATCH.replace("VERSION", version))
            plane.run_kubectl("apply", "--server-side", *more, "-k", str(tmp_path))

        def image() -> str:
            return plane.run_kubectl("get", *DEPLOYMENT, IMAGE).stdout

        def revisions() -> int:
            return len(plane.run_kubectl("get", "replicasets", "-n", "kubeflow", "--output=name").stdout.split())

        (tmp_path / "manifests").symlink_to(ROOT / "manifests")
        (tmp_path / "kustomization.yaml").write_text(KUSTOMIZATION)
        apply("before")
        eventually(lambda: revisions() == 1, "there is a ReplicaSet of the first version")
        apply("after")
        eventually(lambda: revisions() == 2, "there is one of the second version, too")
        plane.run_kubectl("rollout", "undo", *DEPLOYMENT)
        assert image() == "operator:before"
        with pytest.raises(ControlPlaneError, match="conflict"):
            apply("after")
        apply("after", "--force-conflicts")
        assert image() == "operator:after"
