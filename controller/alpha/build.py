"""Builds the children of a job in the alpha dialect: batch Jobs, services and a ConfigMap, with their labels. Pure.

Replicas find each other through TF_CONFIG and the command line of a server. Both are part of the API: types are in alphabetical
order, hosts are bare service names. Parameter servers without their own container run a program from the ConfigMap, in the
user's image.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tfjob_operator.api.core import JOBS
from tfjob_operator.api.meta import JSON, ObjectMeta, controller_reference
from tfjob_operator.api.v1 import constants as v1
from tfjob_operator.api.v1alpha1 import constants as c
from tfjob_operator.api.v1alpha1.constants import Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaReplicas, AlphaSpec, Chief
from tfjob_operator.api.v1alpha1.validation import split_server, templates_of
from tfjob_operator.controller.alpha.batch_jobs import config_map_name, replica_key
from tfjob_operator.controller.config.values import Accelerators, with_accelerators
from tfjob_operator.controller.jobs.children import ReplicaKey


def selector_of(dialect: Dialect, job: ObjectMeta, runtime_id: str, key: ReplicaKey) -> dict[str, str]:
    """Return the labels by which a service selects its replica's pod; earlier operators also set them."""
    return {
        dialect.label: "",
        c.LABEL_JOB_TYPE: key.type,
        c.LABEL_RUNTIME_ID: runtime_id,
        c.LABEL_JOB_NAME: job.name,
        c.LABEL_TASK_INDEX: str(key.index),
    }


def labels_of(dialect: Dialect, job: ObjectMeta, runtime_id: str, key: ReplicaKey, chief: Chief) -> dict[str, str]:
    """Return the labels of earlier operators and of current tools; the API server adds `job-name` to pods."""
    labels = selector_of(dialect, job, runtime_id, key) | labels_of_all(job)
    labels[v1.LABEL_PREFIX + v1.LABEL_REPLICA_TYPE] = key.type.lower()
    labels[v1.LABEL_PREFIX + v1.LABEL_REPLICA_INDEX] = str(key.index)
    if (key.type, key.index) == (chief.type, chief.index):
        labels[v1.LABEL_PREFIX + v1.LABEL_JOB_ROLE] = v1.ROLE_MASTER
    return labels


def labels_of_all(job: ObjectMeta) -> dict[str, str]:
    """Return the labels common to all children of a job, by which our caches select them."""
    return {v1.LABEL_OPERATOR_NAME: c.OPERATOR_NAME, v1.LABEL_PREFIX + v1.LABEL_JOB_NAME: job.name}


def labels_of_found(dialect: Dialect, job: ObjectMeta, spec: AlphaSpec, pod: ObjectMeta) -> dict[str, str]:
    """Return the labels to add to a pod created by another operator, so that our watches select it."""
    labels = pod.labels or {}
    kind, index = labels.get(c.LABEL_JOB_TYPE, ""), labels.get(c.LABEL_TASK_INDEX, "")
    if not kind or not (index.isascii() and index.isdigit()):
        return labels_of_all(job)
    return labels_of(dialect, job, spec.runtime_id, replica_key(spec.runtime_id, kind, int(index)), spec.chief)


def is_ours(pod: ObjectMeta) -> bool:
    """Return True if our watches select a pod with these labels."""
    return (pod.labels or {}).get(v1.LABEL_OPERATOR_NAME) == c.OPERATOR_NAME


Hosts = dict[str, list[str]]
"""Addresses, by lowercase type and index."""


def hosts_of(spec: AlphaSpec, runtime_id: str) -> Hosts:
    """Return the addresses of all replicas."""
    return {
        replica.type.lower(): [
            f"{replica_key(runtime_id, replica.type, index).name}:{replica.port}" for index in range(replica.replicas)
        ]
        for replica in sorted(spec.replicas, key=lambda each: each.type)
        if replica.replicas > 0
    }


def tf_config(hosts: Hosts, key: ReplicaKey) -> str:
    """Return TF_CONFIG of a replica; it is also set for a single replica."""
    task = {"type": key.type.lower(), "index": key.index}
    return msgspec.json.encode({"cluster": hosts, "task": task, "environment": "cloud"}).decode()


def server_arguments(hosts: Hosts, key: ReplicaKey) -> list[str]:
    """Return the arguments of a parameter server's program: `--cluster_spec master|host:port,ps|host:port;host:port`."""
    cluster = ",".join(f"{kind}|{';'.join(addresses)}" for kind, addresses in hosts.items())
    return ["--cluster_spec", cluster, "--job_name", key.type.lower(), "--task_id", str(key.index)]


SCRIPT: Final = '''\
"""Serve as one task of a TensorFlow cluster until the pod is deleted. For TensorFlow 1 and 2, Python 2.7 and 3.

  --cluster_spec  master|host:port,ps|host:port;host:port
  --job_name      the type of this task, such as ps
  --task_id       its number
"""
from __future__ import print_function

import argparse
import sys

import tensorflow as tf


def cluster_of(text):
    """Return the addresses by type."""
    cluster = {}
    for part in text.split(","):
        kind, _, hosts = part.partition("|")
        if not hosts:
            raise ValueError("no addresses of %r in --cluster_spec" % kind)
        cluster[kind] = hosts.split(";")
    return cluster


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster_spec", required=True, type=cluster_of)
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_id", required=True, type=int)
    given = parser.parse_args()
    # TensorFlow 2 has the server here, TensorFlow 1 there.
    distribute = getattr(tf, "distribute", None)
    server_class = getattr(distribute, "Server", None) or tf.train.Server
    cluster = tf.train.ClusterSpec(given.cluster_spec)
    server = server_class(cluster, job_name=given.job_name, task_index=given.task_id)
    print("serving as %s %d at %s" % (given.job_name, given.task_id, server.target))
    sys.stdout.flush()  # or the log would be empty for as long as it serves
    server.join()


if __name__ == "__main__":
    main()
'''


def build_config_map(dialect: Dialect, job: ObjectMeta, runtime_id: str) -> dict[str, Any]:
    """Return the ConfigMap of a job with parameter servers that have no container of their own."""
    labels = {dialect.label: "", c.LABEL_RUNTIME_ID: runtime_id, c.LABEL_JOB_NAME: job.name}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": config_map_name(runtime_id),
            "labels": labels | labels_of_all(job),
            "ownerReferences": [controller_reference(dialect.resource, job)],
        },
        "data": {c.SERVER_FILE: SCRIPT},
    }


def build_service(
    dialect: Dialect, job: ObjectMeta, spec: AlphaSpec, runtime_id: str, key: ReplicaKey
) -> dict[str, Any]:
    """Return the service of a replica. It has a cluster IP, as with earlier operators, and publishes unready addresses."""
    port = next(replica.port for replica in spec.replicas if replica.type == key.type)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": key.name,
            "labels": labels_of(dialect, job, runtime_id, key, spec.chief),
            "ownerReferences": [controller_reference(dialect.resource, job)],
        },
        "spec": {
            "publishNotReadyAddresses": True,
            "selector": selector_of(dialect, job, runtime_id, key),
            "ports": [{"name": c.PORT_NAME, "port": port}],
        },
    }


NO_LIMIT: Final = 2**31 - 1
"""The largest backoffLimit. It did not exist at the time of the alpha APIs, so the Job controller must never give up; permanent
failures are detected by this operator."""
_COPIED_METADATA: Final = ("annotations", "finalizers")
_OF_THE_JOB_CONTROLLER: Final = frozenset(
    f"{prefix}{name}" for prefix in ("", "batch.kubernetes.io/") for name in ("job-name", "controller-uid")
)
"""Labels that the API server sets on the pods of a Job; it rejects templates with different values."""


class JobBuilder:
    """Builds the batch Jobs of one job. Templates are shared and never modified."""

    def __init__(
        self,
        dialect: Dialect,
        job: AlphaJob,
        spec: AlphaSpec,
        runtime_id: str,
        *,
        accelerators: Accelerators | None = None,
    ) -> None:
        """`accelerators` is what containers get that request one of these resources."""
        self._dialect = dialect
        self._accelerators = accelerators
        self._job = job.metadata
        self._spec = spec
        self._runtime_id = runtime_id
        self._replicas = {replica.type.value: replica for replica in spec.replicas}
        self._templates: dict[str, JSON] = {kind.value: each for kind, each in templates_of(dialect, job.spec).items()}
        self._hosts = hosts_of(spec, runtime_id)

    def build(self, key: ReplicaKey) -> dict[str, Any]:
        """Return the Job of a replica: one pod, recreated as long as it fails."""
        labels = labels_of(self._dialect, self._job, self._runtime_id, key, self._spec.chief)
        template = self._pod_template(key, labels)
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {
                "name": key.name,
                "labels": labels,
                "ownerReferences": [controller_reference(self._dialect.resource, self._job)],
            },
            "spec": {"completions": 1, "parallelism": 1, "backoffLimit": NO_LIMIT, "template": template},
        }

    def _pod_template(self, key: ReplicaKey, labels: dict[str, str]) -> dict[str, Any]:
        replicas, template = self._replicas[key.type], self._templates[key.type]
        own: Any = template.get("metadata") or {}
        metadata = {name: own[name] for name in _COPIED_METADATA if own.get(name)}
        kept = {name: value for name, value in (own.get("labels") or {}).items() if name not in _OF_THE_JOB_CONTROLLER}
        spec: Any = dict(template.get("spec") or {})  # type: ignore[call-overload]
        containers = spec.get("containers") or []
        if replicas.gets_server:
            containers, stored = split_server(template)
            containers.append(self._server(key, stored))
            source = {"name": c.SERVER_VOLUME, "configMap": {"name": config_map_name(self._runtime_id)}}
            spec["volumes"] = [*(spec.get("volumes") or []), source]
        spec["containers"] = [self._with_tf_config(container, replicas, key) for container in containers]
        spec["restartPolicy"] = replicas.restart_policy
        if self._spec.scheduler_name:
            spec["schedulerName"] = self._spec.scheduler_name
        return {"metadata": metadata | {"labels": kept | labels}, "spec": with_accelerators(spec, self._accelerators)}

    def _server(self, key: ReplicaKey, stored: dict[str, Any]) -> dict[str, Any]:
        """Return the container of a standard parameter server, with the fields of the container `stored`."""
        command = ["python", f"{c.SERVER_FOLDER}/{c.SERVER_FILE}", *server_arguments(self._hosts, key)]
        mount = {"name": c.SERVER_VOLUME, "mountPath": c.SERVER_FOLDER}
        container = {"name": v1.CONTAINER_NAME, "image": self._spec.image, "command": command, **stored}
        return container | {"volumeMounts": [*stored.get("volumeMounts", ()), mount]}

    def _with_tf_config(self, container: dict[str, Any], replicas: AlphaReplicas, key: ReplicaKey) -> dict[str, Any]:
        if container.get("name") != v1.CONTAINER_NAME or replicas.sets_tf_config:
            return container
        variable = {"name": v1.TF_CONFIG, "value": tf_config(self._hosts, key)}
        return container | {"env": [*(container.get("env") or []), variable]}
