"""A Deployment and a DNS record for each Website, with kopf and the client `kubernetes`: `kopf run -A website_kopf.py`.

The record is a ConfigMap in the namespace `dns`, which cannot have an owner in another namespace: hence the finalizer.
"""

from datetime import UTC, datetime
from typing import Any

import kopf
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

WEBSITES = ("example.com", "v1", "websites")
MANAGER = {"field_manager": "website-operator", "force": True, "_content_type": "application/apply-patch+yaml"}


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    config.load_config()
    settings.persistence.finalizer = "example.com/dns"


@kopf.on.resume(*WEBSITES)
@kopf.on.create(*WEBSITES)
@kopf.on.update(*WEBSITES, field="spec")
def apply(name: str, namespace: str, spec: kopf.Spec, body: kopf.Body, reason: str, **_: Any) -> None:
    labels = {"website": name}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {**labels}},  # kopf.adopt adds the labels of the Website to these
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": spec["image"]}]},
            },
        },
    }
    kopf.adopt(deployment)
    client.AppsV1Api().patch_namespaced_deployment(name, namespace, deployment, **MANAGER)
    meta = {"name": f"{namespace}.{name}", "labels": {"website-uid": body["metadata"]["uid"]}}
    record = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    client.CoreV1Api().patch_namespaced_config_map(f"{namespace}.{name}", "dns", record, **MANAGER)
    if reason == "create":
        kopf.info(body, reason="Created", message=f"Created Deployment {name}")


@kopf.on.delete(*WEBSITES)
def clean_up(name: str, namespace: str, **_: Any) -> None:
    try:
        client.CoreV1Api().delete_namespaced_config_map(f"{namespace}.{name}", "dns")
    except ApiException as error:
        if error.status != 404:
            raise


@kopf.on.event("apps", "v1", "deployments", labels={"website": kopf.PRESENT})
def report(name: str, namespace: str, spec: kopf.Spec, status: kopf.Status, **_: Any) -> None:
    ready = status.get("readyReplicas", 0)
    is_ready = str(ready == spec.get("replicas", 1))
    websites = client.CustomObjectsApi()
    try:
        website = websites.get_namespaced_custom_object(*WEBSITES[:2], namespace, WEBSITES[2], name)
    except ApiException as error:
        if error.status == 404:
            return
        raise
    before = website.get("status", {}).get("conditions", [{}])[0]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    since = before["lastTransitionTime"] if before.get("status") == is_ready else now
    condition = {"type": "Ready", "status": is_ready, "reason": "Replicas", "lastTransitionTime": since}
    body = {"status": {"readyReplicas": ready, "conditions": [condition]}}
    websites.patch_namespaced_custom_object_status(*WEBSITES[:2], namespace, WEBSITES[2], name, body)
