"""Argo CD compares a TFJob with its manifest: what the manifest sets is stored as it is, and the operator never edits it."""

from typing import Any

import pytest

from fakes.manifests import crd
from hack.crd_schema.schema import Schema
from integration.cluster import Cluster, replica, specs, tfjob
from integration.go_types import INT_OR_STRING, QUANTITY, SPEC, TIME, resolved, scalar

VERSION: Schema = next(each for each in crd()["spec"]["versions"] if each["name"] == "v1")
OURS: Schema = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]
VALUES: dict[str, Any] = {
    "string": "text",
    "boolean": True,
    "integerint32": 1,
    "integerint64": 1,
    "object": {"any": [1, "text", {"empty": {}}]},
    INT_OR_STRING: 1,
    QUANTITY: "1500m",
    TIME: "2020-01-01T00:00:00Z",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {"f:spec": {}},
}


def example(schema: Schema) -> Any:
    """Return a value that sets every field of a schema."""
    schema = resolved(schema)
    if "items" in schema:
        return [example(schema["items"])] * 2
    if not schema.keys() & {"properties", "additionalProperties"}:
        return VALUES[scalar(schema)]
    fields = {name: example(each) for name, each in schema.get("properties", {}).items()}
    return fields | ({"any": example(schema["additionalProperties"])} if "additionalProperties" in schema else {})


def every_field() -> dict[str, Any]:
    """Return a spec with all fields of Go's types, of training-operator and the core API, and those that our CRD adds."""
    spec = example(SPEC) | _added(OURS, SPEC)
    policy = _added(OURS["properties"]["runPolicy"], SPEC["properties"]["runPolicy"])
    spec["runPolicy"] |= policy | {"managedBy": "kubeflow.org/training-operator", "ttlSecondsAfterFinished": 3600}
    return dict(spec)


def _added(ours: Schema, theirs: Schema) -> dict[str, Any]:
    found = ours["properties"].items()
    return {name: example(each) for name, each in found if name not in theirs["properties"]}


def restricted(manifest: Any, live: Any) -> Any:
    """Return the live value without the fields that the manifest does not set.

    argoproj/argo-cd v3.5.1, gitops-engine/pkg/utils/json/json.go:4-54.
    """
    if isinstance(manifest, dict) and isinstance(live, dict):
        return {name: restricted(value, live[name]) for name, value in manifest.items() if name in live}
    if isinstance(manifest, list) and isinstance(live, list):
        pairs = zip(manifest, live, strict=False)
        return [*(restricted(*pair) for pair in pairs), *live[len(manifest) :]]
    return live


def drift(manifest: Any, live: Any) -> Any:
    """Return what Argo CD's three-way diff would change, if the manifest is the one that was applied last.

    A merge patch from the live object to the manifest, which replaces lists as a whole (argoproj/argo-cd v3.5.1,
    gitops-engine/pkg/diff/diff.go:731-764 and 846-859).
    """
    return _merge_patch(restricted(manifest, live), manifest)


def _merge_patch(live: Any, manifest: Any) -> Any:
    if not (isinstance(live, dict) and isinstance(manifest, dict)):
        return {} if live == manifest else manifest
    changes = {name: _merge_patch(live.get(name), value) for name, value in manifest.items() if live.get(name) != value}
    return {name: value for name, value in changes.items() if value is not None}


def without_bookkeeping(live: dict[str, Any]) -> dict[str, Any]:
    """Return an object as Argo CD's server-side diff compares it (diff.go:189-206)."""
    meta = {name: value for name, value in live["metadata"].items() if name not in {"managedFields", "resourceVersion"}}
    return live | {"metadata": meta}


def applied(cluster: Cluster, manifest: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
    """Apply a manifest as Argo CD's server-side apply does; return the object."""
    query = f"fieldManager=argocd-controller&force=true{'&dryRun=All' if dry_run else ''}"
    path = f"/apis/kubeflow.org/v1/namespaces/{cluster.namespace}/tfjobs/{manifest['metadata']['name']}?{query}"
    code, found = cluster.plane.request("PATCH", path, manifest, content_type="application/apply-patch+yaml")
    assert code < 300, found
    return dict(found)


@pytest.mark.parametrize(
    ("spec", "end"),
    [
        pytest.param(every_field(), "Failed", id="every field"),
        pytest.param(specs(Worker=replica(2), PS=replica(1, run="forever")), "Succeeded", id="a job that runs"),
    ],
)
def test_argo_cd_sees_no_drift_from_the_creation_of_a_job_to_its_end(
    served: Cluster, spec: dict[str, Any], end: str
) -> None:
    """With either way to compare; a job in which every field is set is not valid, so it fails."""
    manifest = tfjob("drifts", spec, labels={"app": "train"}, annotations={"note": "text"})
    created = applied(served, manifest)
    assert drift(manifest, created) == {}
    served.wait_for("drifts", end)
    live = served.job("drifts")
    assert drift(manifest, live) == {}
    assert live["metadata"]["generation"] == 1
    predicted = applied(served, manifest, dry_run=True)
    assert without_bookkeeping(predicted) == without_bookkeeping(served.job("drifts"))


def test_the_diff_finds_what_differs() -> None:
    """A field that is missing, changed or in a list; and not one that the manifest does not set."""
    manifest = {"a": 1, "b": {"c": [1, {"d": 2}]}}
    assert drift(manifest, {"a": 1, "b": {"c": [1, {"d": 2, "default": 3}], "e": 4}, "f": 5}) == {}
    assert drift(manifest, {"b": {"c": [1, {"d": 2}]}}) == {"a": 1}
    assert drift(manifest, {"a": 1, "b": {"c": [1, {"d": 3}]}}) == {"b": {"c": [1, {"d": 2}]}}
    assert drift(manifest, {"a": 1, "b": {"c": [1, {"d": 2}, 3]}}) == {"b": {"c": [1, {"d": 2}]}}
