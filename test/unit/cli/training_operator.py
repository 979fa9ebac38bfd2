"""Jobs and objects of a cluster with training-operator 1.9, for the tests of `kubectl tfjob migrate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from unit.cli.conftest import Server, items, operator_deployment

DATA = Path(__file__).parents[2] / "data" / "public_tfjobs.yaml"
JOBS = yaml.load(DATA.read_text(), Loader=yaml.CSafeLoader)
PUBLIC = {each["metadata"]["name"]: each for each in JOBS if not each["source"].startswith("recorded")}
RECORDED = {
    f"{each['metadata']['namespace']}/{each['metadata']['name']}": each
    for each in JOBS
    if each["source"].startswith("recorded")
}
OF_TEAM = "/apis/kubeflow.org/v1/namespaces/team/tfjobs"
OF_ALL = "/apis/kubeflow.org/v1/tfjobs"
DEPLOYMENTS = "/apis/apps/v1/deployments"
OURS = "app.kubernetes.io/name=tfjob-operator,app.kubernetes.io/component!=page"
PEERS = f"{DEPLOYMENTS}?{urlencode({'labelSelector': 'control-plane=kubeflow-training-operator'})}"
INSTALLED = f"{DEPLOYMENTS}?{urlencode({'labelSelector': OURS})}"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tfjobs.kubeflow.org"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
NAMESPACES = "/api/v1/namespaces"
DENIED = {"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}


def with_policy(policy: dict[str, Any], *, replicas: int = 1, **entry: Any) -> dict[str, Any]:
    """Return a job of workers with a run policy."""
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}
    spec = {"runPolicy": policy, "tfReplicaSpecs": {"Worker": {"replicas": replicas, "template": template, **entry}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "mnist"}, "spec": spec}


def served(*jobs: dict[str, Any], namespace: str = "team") -> list[dict[str, Any]]:
    """Return jobs as an API server sends them in a list."""
    return [
        job | {"metadata": {"namespace": namespace, "uid": f"u-{job['metadata']['name']}", **job["metadata"]}}
        for job in jobs
    ]


def deployment(namespace: str = "kubeflow", *, meta: Any = None, **container: Any) -> dict[str, Any]:
    """Return the Deployment of training-operator."""
    containers = [{"name": "istio-proxy"}, {"name": "training-operator", "command": ["/manager"], **container}]
    spec = {"replicas": 2, "template": {"spec": {"containers": containers}}}
    return {
        "metadata": {"name": "training-operator", "namespace": namespace, "uid": namespace, **(meta or {})},
        "spec": spec,
    }


def webhook(*kinds: str, name: str = "validator", namespace: str = "kubeflow", meta: Any = None) -> dict[str, Any]:
    entries = [
        {
            "name": f"{name}.{kind}.training-operator.kubeflow.org",
            "clientConfig": {"service": {"namespace": namespace, "name": "training-operator"}},
        }
        for kind in kinds
    ]
    return {
        "metadata": {"name": "validator.training-operator.kubeflow.org", "uid": "w", **(meta or {})},
        "webhooks": entries,
    }


def account(namespace: str, name: str) -> dict[str, Any]:
    """Return a service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def binding(
    name: str = "training-operator", role: str = "training-operator", subjects: Any = None, **meta: Any
) -> dict[str, Any]:
    """Return a ClusterRoleBinding, of training-operator unless it has other subjects."""
    found = [account("kubeflow", "training-operator")] if subjects is None else subjects
    return {"metadata": {"name": name, **meta}, "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": found}


def installed(namespace: str, *args: str, wanted: int = 2) -> dict[str, Any]:
    """Return a Deployment of this operator, as its manifests have it."""
    found = operator_deployment(
        namespace, "--monitoring-port=8443", *args, "--controller-config-file=/etc/config/f.yaml", wanted=wanted
    )
    found["spec"]["template"]["spec"]["serviceAccountName"] = "tf-job-operator"
    return found | {"metadata": found["metadata"] | {"uid": f"ours-{namespace}"}}


def cluster(
    server: Server,
    *jobs: dict[str, Any],
    deployments: Any = None,
    webhooks: Any = None,
    moved: Sequence[str] = (),
    bindings: Any = None,
    ours: Sequence[dict[str, Any]] = (),
    **kinds: dict[str, Any],
) -> None:
    """Fill the server as a cluster with training-operator: its Deployment, its webhook, and jobs of other kinds."""
    server.answers(OF_ALL, items(*served(*jobs)))
    server.answers(OF_TEAM, items(*served(*jobs)))
    server.answers(DEPLOYMENTS, items(*([deployment()] if deployments is None else deployments)))
    server.answers(INSTALLED, items(*ours))
    server.answers(WEBHOOKS, items(*([webhook("pytorchjob", "tfjob")] if webhooks is None else webhooks)))
    server.answers(CRD, {"metadata": {"name": "tfjobs.kubeflow.org"}})
    server.answers(NAMESPACES, items(*({"metadata": {"name": name, "uid": name}} for name in moved)))
    for name in ("kubeflow", "team"):
        server.answers(f"{NAMESPACES}/{name}", {"metadata": {"name": name, "uid": name}})
    server.answers(BINDINGS, items(*([binding()] if bindings is None else bindings)))
    for kind in ("jaxjobs", "mpijobs", "paddlejobs", "pytorchjobs", "xgboostjobs"):
        server.answers(f"/apis/kubeflow.org/v1/{kind}", kinds.get(kind, items()))
        server.answers(f"/apis/kubeflow.org/v1/namespaces/team/{kind}", kinds.get(kind, items()))
