"""What a person does with the manifests: build, apply client side and server side, look, delete. Each check has a name."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hack.control_plane import ControlPlane
from hack.matrix.cluster import MANIFESTS
from hack.matrix.kubectl import Kubectl, expect, expect_in
from hack.matrix.releases import Release
from hack.yaml_text import documents

INSTALLATION: Final = "overlays/standalone"
OTHER_INSTALLATIONS: Final = ("overlays/kubeflow", "overlays/namespaced")
FLOW_CONTROL: Final = ("addons/flow-control-v1beta1", "addons/flow-control-v1beta2", "addons/flow-control-v1")
KUSTOMIZATIONS: Final = (
    "base",
    "cluster-wide",
    INSTALLATION,
    *OTHER_INSTALLATIONS,
    "overlays/monitoring",
    "addons/gang-scheduling",
    *FLOW_CONTROL,
    "examples/training",
)
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
MONITORING_KINDS: Final = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}


@dataclass(frozen=True, slots=True)
class Session:
    """One client with its control plane, as a check gets it."""

    kubectl: Kubectl
    plane: ControlPlane
    release: Release


@dataclass(frozen=True, slots=True)
class Check:
    """A named check; `run` raises CheckError when something is not as it should be."""

    name: str
    run: Callable[[Session], None]


def version(session: Session) -> None:
    """The client has the expected version, and reads the server's."""
    found = json.loads(session.kubectl("version", "--output=json"))
    expect(found["clientVersion"]["gitVersion"] == f"v{session.release.version}", "it is another release")
    expect("gitVersion" in found["serverVersion"], "it does not tell the server's version")


def kustomize(folder: str, session: Session) -> None:
    """The kustomize in this kubectl makes the same objects from a folder as the one in the control plane's own kubectl."""
    built = _objects(session.kubectl("kustomize", str(MANIFESTS / folder)))
    expected = _expected(session.plane, folder)
    expect(built.keys() == expected.keys(), f"other objects: {sorted(built.keys() ^ expected.keys())}")
    differing = [name for name in built if built[name] != expected[name]]
    expect(not differing, f"objects that differ: {differing}")


def apply_server_side(session: Session) -> None:
    """`kubectl apply --server-side -k` of the installation for an empty cluster makes every object."""
    _expect_lines(session.kubectl("apply", "--server-side", "-k", str(MANIFESTS / INSTALLATION)), "serverside-applied")
    session.plane.wait_for_crd("tfjobs.kubeflow.org")  # kubectl 1.22 can not wait for conditions that are null
    session.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/tfjobs.kubeflow.org")


def apply_server_side_again(session: Session) -> None:
    """Applying the same once more causes no conflict and changes no specification."""
    before = _specs(session)
    _expect_lines(session.kubectl("apply", "--server-side", "-k", str(MANIFESTS / INSTALLATION)), "serverside-applied")
    expect(_specs(session) == before, "a specification was changed")


def apply_client_side(session: Session) -> None:
    """Without `--server-side`, kubectl refuses the CRD, and nothing else, as too long for an annotation."""
    before = _specs(session)
    said = session.kubectl.refused("apply", "-k", str(MANIFESTS / INSTALLATION))
    expect_in(said, '"tfjobs.kubeflow.org" is invalid', "metadata.annotations", "262144")
    expect(said.count("is invalid") == 1, f"more is refused than the CRD: {said}")
    expect(_specs(session) == before, "a specification was changed")


def upgrade_crd(session: Session) -> None:
    """A CRD that was applied client side, as long as it had one version, is taken over by `--force-conflicts`."""
    session.kubectl("delete", "crd", "tfjobs.kubeflow.org")
    (crd,) = documents((MANIFESTS / "base" / "crd.yaml").read_text())
    versions = crd["spec"]["versions"]
    crd["spec"]["versions"] = versions[:1]
    session.kubectl("apply", "--filename=-", stdin=json.dumps(crd))
    session.plane.wait_for_crd("tfjobs.kubeflow.org")
    session.kubectl("annotate", "crd", "tfjobs.kubeflow.org", f"{LAST_APPLIED}-")
    session.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(MANIFESTS / INSTALLATION))
    served = [each["name"] for each in session.kubectl.read("get", "crd/tfjobs.kubeflow.org")["spec"]["versions"]]
    expect(served == [each["name"] for each in versions], f"versions: {served}")


def diff(session: Session) -> None:
    """`kubectl diff --server-side` finds nothing that an apply would change.

    Kubectl 1.22 shows managed fields too, and in them the time of the last apply.
    """
    settings = {"KUBECTL_EXTERNAL_DIFF": "diff -u -N -Itime"}
    said = session.kubectl("diff", "--server-side", "-k", str(MANIFESTS / INSTALLATION), environment=settings)
    expect(not said.strip(), f"differences: {said}")


def api_resources(session: Session) -> None:
    """Discovery shows TFJobs with their kind, and that they live in namespaces."""
    said = session.kubectl("api-resources", "--api-group=kubeflow.org", "--no-headers")
    expect(said.split()[0] == "tfjobs", "no line for tfjobs")
    expect_in(said, "kubeflow.org/v1", "true", "TFJob")


def explain(session: Session) -> None:
    """`kubectl explain` has the descriptions of the CRD; those of `spec` and `status` name the fields in them."""
    expect_in(session.kubectl("explain", "tfjob"), "TFJob", "kubeflow.org", "runs a distributed TensorFlow training")
    expect_in(session.kubectl("explain", "tfjobs.spec"), "successPolicy")
    expect_in(session.kubectl("explain", "tfjobs.status"), "conditions", "replicaStatuses")


def explain_fields(session: Session) -> None:
    """`kubectl explain` has the descriptions of single fields (U6)."""
    expect_in(session.kubectl("explain", "tfjob.spec.runPolicy.backoffLimit"), "<integer>", "restarts")
    expect_in(
        session.kubectl("explain", "tfjob.status.conditions"), "lastTransitionTime", "newest transition stands last"
    )


def dry_run(folder: str, session: Session) -> None:
    """Another installation beside this one passes the API server's validation."""
    dry = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-k", str(MANIFESTS / folder))
    lines = session.kubectl(*dry).splitlines()
    expect(bool(lines) and all(line.endswith("(server dry run)") for line in lines), "not a dry run of every object")


def without_their_crds(session: Session) -> None:
    """The overlay `monitoring` where there is no Prometheus operator: kubectl says which kinds are missing."""
    said = session.kubectl.refused("apply", "-k", str(MANIFESTS / "overlays/monitoring"))
    expect_in(said, "no matches for kind", *MONITORING_KINDS)


def apply_monitoring(session: Session) -> None:
    """With CRDs of those kinds (without a schema), the overlay `monitoring` is applied, and deleted again."""
    for kind, plural in MONITORING_KINDS.items():
        crd = open_crd("monitoring.coreos.com", kind, plural)
        session.kubectl("create", "--filename=-", stdin=json.dumps(crd))
        session.plane.wait_for_crd(f"{plural}.monitoring.coreos.com")
        session.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{plural}.monitoring.coreos.com")
    apply_and_delete("overlays/monitoring", session)


def apply_and_delete(folder: str, session: Session) -> None:
    """A folder is applied, and deleted."""
    session.kubectl("apply", "-k", str(MANIFESTS / folder))
    session.kubectl("delete", "-k", str(MANIFESTS / folder))


def delete_installation(session: Session) -> None:
    """`kubectl delete -k` deletes all that was applied, and waits until it is gone."""
    session.kubectl("delete", "-k", str(MANIFESTS / INSTALLATION))
    for name in ("crd/tfjobs.kubeflow.org", "namespace/kubeflow", "clusterrole/tf-job-operator"):
        expect_in(session.kubectl.refused("get", name), "NotFound")


def _expected(plane: ControlPlane, folder: str) -> dict[str, Any]:
    # Made once for all clients: a build costs a second of CPU time.
    if folder not in _EXPECTED:
        _EXPECTED[folder] = _objects(plane.run_kubectl("kustomize", str(MANIFESTS / folder)).stdout)
    return _EXPECTED[folder]


_EXPECTED: Final[dict[str, dict[str, Any]]] = {}


def _objects(text: str) -> dict[str, Any]:
    return {f"{item['kind']} {item['metadata']['name']}": item for item in documents(text)}


def _expect_lines(text: str, *ends: str) -> None:
    wrong = [line for line in text.splitlines() if not line.endswith(ends)]
    expect(bool(text.strip()) and not wrong, f"not {' or '.join(ends)}: {wrong}")


def _specs(session: Session) -> list[object]:
    objects = ("crd/tfjobs.kubeflow.org", "deployment/tf-job-operator", "networkpolicy/tf-job-operator")
    found = [session.kubectl.read("get", name, "--namespace=kubeflow") for name in objects]
    return [item["spec"] for item in found]


def open_crd(group: str, kind: str, plural: str) -> dict[str, Any]:
    """Return a CRD without a schema."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


CHECKS: Final = (
    Check("version", version),
    *(Check(f"kustomize {folder}", functools.partial(kustomize, folder)) for folder in KUSTOMIZATIONS),
    Check(f"apply --server-side -k {INSTALLATION}", apply_server_side),
    Check(f"apply --server-side -k {INSTALLATION}, again", apply_server_side_again),
    Check(f"diff --server-side -k {INSTALLATION}", diff),
    Check(f"apply -k {INSTALLATION}, client side", apply_client_side),
    Check("apply --server-side over a CRD that was applied client side", upgrade_crd),
    Check("api-resources", api_resources),
    Check("explain", explain),
    Check("explain, single fields", explain_fields),
    *(Check(f"apply -k {folder}, dry run", functools.partial(dry_run, folder)) for folder in OTHER_INSTALLATIONS),
    Check("apply -k examples/training, dry run", functools.partial(dry_run, "examples/training")),
    Check("apply -k overlays/monitoring, without its CRDs", without_their_crds),
    Check("apply -k overlays/monitoring", apply_monitoring),
    *(
        Check(f"apply -k {folder}", functools.partial(apply_and_delete, folder))
        for folder in ("addons/gang-scheduling", *FLOW_CONTROL)
    ),
)
"""Run before the operator starts."""
REMOVING: Final = (Check(f"delete -k {INSTALLATION}", delete_installation),)
"""Run after the operator has stopped."""
