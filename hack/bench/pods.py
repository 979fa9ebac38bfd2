"""Realistic pods: the bodies that our own operator sends for TensorFlow jobs, and what a kubelet reports about them. Pure.

A job of 4 PS and 16 workers makes 20 pods with about 1 KB of TF_CONFIG each; with managedFields and a status such a pod
is about 5 KB of JSON as the server keeps it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from tfjob_operator.api.meta import ObjectMeta
from tfjob_operator.api.v1.types import TFJob, TFJobSpec, child_name
from tfjob_operator.api.v1.validation import read_spec
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.tfjob.build.children import PodBuilder

REPLICAS: Final = (("PS", 4), ("Worker", 16))
PODS_PER_JOB: Final = sum(count for _, count in REPLICAS)
JOB: Final = "mnist-dist"
BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
IMAGE: Final = "registry.example.com/mnist:2.15.0"
TEMPLATE: Final[dict[str, Any]] = {
    "spec": {
        "containers": [
            {
                "name": "tensorflow",
                "image": IMAGE,
                "command": ["python", "-m", "trainer.task", "--batch_size=32", "--training_steps=1000"],
                "resources": {"limits": {"memory": "8Gi"}},
            }
        ],
    },
}


def job_meta(number: int, namespace: str) -> ObjectMeta:
    """Return the metadata of a job as the server would have made it."""
    return ObjectMeta(
        name=f"{JOB}-{number:05d}",
        namespace=namespace,
        uid=f"7e1d2c4b-0000-4000-8000-{number:012d}",
        generation=1,
        resource_version="1",
    )


def job(number: int, namespace: str, replicas: tuple[tuple[str, int], ...] = REPLICAS) -> TFJob:
    """Return a job with these replicas, as the cache holds it."""
    body = {"tfReplicaSpecs": {kind: {"replicas": count, "template": TEMPLATE} for kind, count in replicas}}
    return TFJob(metadata=job_meta(number, namespace), spec=msgspec.Raw(msgspec.json.encode(body)))


@lru_cache
def job_spec(replicas: tuple[tuple[str, int], ...] = REPLICAS) -> TFJobSpec:
    """Return the specification of such a job, read as the operator reads it."""
    spec = read_spec(JOB, job(0, "", replicas).spec)
    if not isinstance(spec, TFJobSpec):
        raise TypeError(f"the benchmark's own job is invalid: {spec}")
    return spec


def pod_body(number: int, namespace: str) -> dict[str, Any]:
    """Pod `number` of the namespace, as the operator sends it to the server."""
    owner, place = divmod(number, PODS_PER_JOB)
    kind, index = [(kind, index) for kind, count in REPLICAS for index in range(count)][place]
    return _builder(owner, namespace).build(
        ReplicaKey(kind, index, child_name(job_meta(owner, namespace).name, kind, index))
    )


@lru_cache(maxsize=1)
def _builder(number: int, namespace: str) -> PodBuilder:
    return PodBuilder(job(number, namespace), job_spec())


def running_status(number: int) -> dict[str, Any]:
    """Return what a kubelet says of a pod that runs."""
    began = BEGAN.isoformat().replace("+00:00", "Z")
    return {
        "phase": "Running",
        "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "startTime": began,
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": began}
            for kind in ("Ready", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "name": "tensorflow",
                "image": IMAGE,
                "imageID": f"{IMAGE}@sha256:{'0123456789abcdef' * 4}",
                "containerID": f"containerd://{number:064x}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": began}},
                "lastState": {},
            }
        ],
    }
