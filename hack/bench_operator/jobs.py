"""The load: jobs of one parameter server and four workers, and the same children that the operator creates for them."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import msgspec

from hack.bench.raw_load import Target
from hack.hollow_node.script import RUN
from tfjob_operator.api.client.options import JSON_PATCH, STRATEGIC_MERGE_PATCH
from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import TFJob, TFJobSpec, child_name
from tfjob_operator.api.v1.validation import read_spec
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.children import PodBuilder, build_config_map, build_service


def replica(replicas: int, run: str) -> dict[str, Any]:
    """Return one entry of tfReplicaSpecs, as long as real ones are; on the hollow node its pods run as `run` says."""
    container = {
        "name": "tensorflow",
        "image": "registry.example.com/team/mnist:2.15.0",
        "command": ["python", "-m", "trainer.task", "--train-steps=10000", "--batch-size=256"],
        "env": [{"name": "MODEL_DIR", "value": "/models/mnist"}, {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "1"}],
        "resources": {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    volumes = [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}]
    template = {"metadata": {"annotations": {RUN: run}}, "spec": {"containers": [container], "volumes": volumes}}
    return {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}


def ps_and_workers(workers: int = 4, *, servers: int = 1, run: str = "2s:0") -> dict[str, Any]:
    """Return a specification of parameter servers, which run for ever, and workers, all of which must succeed."""
    specs = {"Worker": replica(workers, run)}
    if servers:
        specs = {"PS": replica(servers, "forever")} | specs
    return {"tfReplicaSpecs": specs, "successPolicy": "AllWorkers", "runPolicy": {"cleanPodPolicy": "Running"}}


def job_requests(target: Target, namespace: str, names: list[str], spec: dict[str, Any]) -> list[bytes]:
    """Return the requests that create jobs of these names."""
    path = c.TFJOBS.path(namespace)
    return [
        target.request(
            "POST",
            path,
            json.dumps(
                {
                    "apiVersion": c.TFJOBS.api_version,
                    "kind": c.TFJOBS.kind,
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": spec,
                }
            ).encode(),
        )
        for name in names
    ]


def child_requests(target: Target, namespace: str, names: list[str], spec: dict[str, Any]) -> list[bytes]:
    """Return the requests that create all children of these jobs, in the operator's own order and with its bodies."""
    requests = []
    for name in names:
        raw = msgspec.json.encode(spec)
        checked = read_spec(name, raw)
        if not isinstance(checked, TFJobSpec):
            raise TypeError(f"the load is no valid job: {checked}")
        meta = ObjectMeta(name=name, namespace=namespace, uid=f"00000000-0000-0000-0000-{abs(hash(name)) % 10**12:012}")
        builder = PodBuilder(TFJob(metadata=meta, spec=msgspec.Raw(raw)), checked)
        if digest := builder.cluster.digest:
            path = f"/api/v1/namespaces/{namespace}/configmaps?fieldManager={c.EVENT_SOURCE}"
            body = build_config_map(meta, builder.cluster, digest)
            requests.append(target.request("POST", path, msgspec.json.encode(body)))
        for kind, index, child in children(name, spec):
            slot = ReplicaKey(kind, index, child)
            for resource, body in (
                ("services", build_service(meta, checked, slot)),
                ("pods", builder.build(slot)),
            ):
                path = f"/api/v1/namespaces/{namespace}/{resource}?fieldManager={c.EVENT_SOURCE}"
                requests.append(target.request("POST", path, msgspec.json.encode(body)))
    return requests


def status_requests(target: Target, namespace: str, names: list[str], status: dict[str, Any]) -> list[bytes]:
    """Return the requests that write a status to these jobs, as the operator does."""
    body = json.dumps([{"op": "add", "path": "/status", "value": status}]).encode()
    query = f"?fieldManager={c.EVENT_SOURCE}"
    paths = (f"{c.TFJOBS.path(namespace)}/{name}/status{query}" for name in names)
    return [target.request("PATCH", path, body, JSON_PATCH) for path in paths]


def node_requests(
    target: Target, namespace: str, names: list[str], spec: dict[str, Any], status: dict[str, Any]
) -> tuple[list[bytes], list[bytes]]:
    """Return the requests by which a node lets the pods of these jobs run: first those that bind them, then their status."""
    pods = [child for name in names for _, _, child in children(name, spec)]
    path = f"/api/v1/namespaces/{namespace}"
    bind = {
        "apiVersion": "v1",
        "kind": "Binding",
        "target": {"apiVersion": "v1", "kind": "Node", "name": "hollow-node"},
    }
    report = json.dumps({"status": status}).encode()
    return (
        [
            target.request("POST", f"{path}/bindings", json.dumps(bind | {"metadata": {"name": pod}}).encode())
            for pod in pods
        ],
        [target.request("PATCH", f"{path}/pods/{pod}/status", report, STRATEGIC_MERGE_PATCH) for pod in pods],
    )


def delete_requests(target: Target, namespace: str, names: list[str], spec: dict[str, Any]) -> list[bytes]:
    """Return the requests that delete the jobs and ConfigMaps of a namespace, and all services and pods of these jobs."""
    return [
        *_delete_jobs_and_config_maps(target, namespace),
        *(
            target.request("DELETE", f"/api/v1/namespaces/{namespace}/{resource}/{child}")
            for name in names
            for _, _, child in children(name, spec)
            for resource in ("services", "pods")
        ),
    ]


def clear_requests(target: Target, namespace: str, services: list[str]) -> list[bytes]:
    """Return the requests that delete the jobs, pods and ConfigMaps of a namespace at once, and these services."""
    path = f"/api/v1/namespaces/{namespace}"
    return [
        *_delete_jobs_and_config_maps(target, namespace),
        target.request("DELETE", f"{path}/pods?gracePeriodSeconds=0"),
        *(target.request("DELETE", f"{path}/services/{service}") for service in services),
    ]


def _delete_jobs_and_config_maps(target: Target, namespace: str) -> list[bytes]:
    selector = urllib.parse.quote(f"{c.LABEL_OPERATOR_NAME}={c.OPERATOR_NAME}", safe="")
    return [
        target.request("DELETE", c.TFJOBS.path(namespace)),
        target.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps?labelSelector={selector}"),
    ]


def children(job: str, spec: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Type, index and name of every replica of a job."""
    for kind, given in spec["tfReplicaSpecs"].items():
        for index in range(given["replicas"]):
            yield kind, index, child_name(job, kind, index)
