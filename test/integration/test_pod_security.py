"""A namespace that enforces the Pod Security Standard `restricted`, on a real API server."""

import json
from pathlib import Path
from typing import Final

import pytest

from fakes.manifests import read_documents
from hack.control_plane import ControlPlane
from hack.kubernetes_versions import POD_SECURITY
from integration.cluster import Cluster
from integration.plugin import Plugin
from support.waiting import eventually
from tfjob_operator.cli.submission import Submission, job_of

EXAMPLES: Final = Path(__file__).parents[2] / "manifests" / "examples"


@pytest.fixture
def restricted(control_plane: ControlPlane, cluster: Cluster) -> Cluster:
    """The namespace of a test, in which only restricted pods are created."""
    if not control_plane.version.has(POD_SECURITY):
        pytest.skip(f"Kubernetes {control_plane.version} has no Pod Security")
    cluster.kubectl("label", "namespace", cluster.namespace, "pod-security.kubernetes.io/enforce=restricted")
    return cluster


def test_a_job_of_submit_runs_and_explain_names_what_another_one_misses(restricted: Cluster, plugin: Plugin) -> None:
    """All four fields of the standard, in the words of the API server."""
    with restricted.operator(), restricted.node():
        plugin("submit", "good", "--image=train:1", "--restricted")
        plugin("submit", "bad", "--image=train:1")
        restricted.wait_for("good", "Succeeded")
        eventually(lambda: "[error: pod-security]" in " ".join(plugin("explain", "bad").split()), "explain knows why")
        said = " ".join(plugin("explain", "bad").split())
    for field in (
        "set securityContext.allowPrivilegeEscalation=false",
        'set securityContext.capabilities.drop=["ALL"]',
        "set securityContext.runAsNonRoot=true",
        'set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"',
    ):
        assert field in said


def test_every_example_passes_as_it_is_or_with_restricted(restricted: Cluster) -> None:
    """As it is if it runs as another user than root, else as `submit --restricted --filename` makes it."""
    count = 0
    for file in sorted(EXAMPLES.rglob("*.yaml")):
        for document in read_documents(file):
            if document.get("apiVersion") != "kubeflow.org/v1" or file.name == "06-invalid.yaml":
                continue
            job = document
            if "runAsNonRoot" not in file.read_text():
                job = job_of(Submission("mnist", restricted=True), restricted.namespace, document)
            for kind, entry in job["spec"]["tfReplicaSpecs"].items():
                meta = {"name": f"{file.stem}-{kind.lower()}"}
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": entry["template"]["spec"]}
                restricted.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
                count += 1
    assert count > 30
