"""TFJobs, pods and events as JSON, as API servers send them."""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from tfjob_operator.api.core import EVENTS, PODS
from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import TFJOBS
from tfjob_operator.cli.model.objects import BATCH_JOBS, EventDetails, PodDetails
from tfjob_operator.cli.page.objects import PageJob, TensorFlowV1Alpha1Job

T = TypeVar("T")
NAMES = "training.kubeflow.org/"
CREATED = "2026-03-01T10:00:00Z"
CREATED_S = 1772359200.0
TEMPLATE: Final = {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}}


def ago(seconds: float) -> str:
    """Return the time this many seconds before now."""
    return f"{datetime.now(UTC) - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def an_object(resource: Resource, name: str, /, spec: Any = None, status: Any = None, **meta: Any) -> dict[str, Any]:
    """Return an object with this metadata; a spec or status that is None is omitted."""
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name, **meta}}
    return body | {key: value for key, value in {"spec": spec, "status": status}.items() if value is not None}


def owned_by(name: str, uid: str = "", resource: Resource = TFJOBS) -> dict[str, Any]:
    """Return metadata with this controller; its UID is derived from its name by default."""
    owner = {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": uid or f"uid-{name}"}
    return {"ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}]}


def condition(kind: str, status: str = "True", **fields: Any) -> dict[str, Any]:
    """Return a condition of a job or pod."""
    return {"type": kind, "status": status, "lastTransitionTime": CREATED, **fields}


def a_job(
    name: str = "mnist", *states: str, spec: Any = None, status: Any = None, age_s: float | None = None, **meta: Any
) -> dict[str, Any]:
    """Return a job with a True condition of each of these types; the last type is the job's current state.

    The conditions are as old as the job. With `age_s` it was created and started this many seconds ago.
    """
    created = meta.get("creationTimestamp") or (CREATED if age_s is None else ago(age_s))
    conditions = [
        condition(each, reason=f"TFJob{each}", message=f"is {each}", lastTransitionTime=created) for each in states
    ]
    made = {"namespace": "team", "uid": f"uid-{name}", "creationTimestamp": created, **meta}
    body = wanting(Worker=2) if spec is None else spec
    started = {} if age_s is None else {"startTime": created}
    return an_object(TFJOBS, name, body, {"conditions": conditions, **started, **(status or {})}, **made)


def wanting(**sizes: int) -> dict[str, Any]:
    """Return a spec with this number of replicas by type."""
    template = deepcopy(TEMPLATE)
    return {"tfReplicaSpecs": {kind: {"replicas": size, "template": template} for kind, size in sizes.items()}}


def replica_labels(job: str, kind: str = "Worker", index: int | str = 0) -> dict[str, str]:
    """Return the labels of a replica's pod."""
    labels = {
        "operator-name": "tfjob-controller",
        "job-name": job,
        "replica-type": kind.lower(),
        "replica-index": str(index),
    }
    return {NAMES + key: value for key, value in labels.items()}


def a_pod(job: str, kind: str = "Worker", index: int = 0, *, status: Any = None, **meta: Any) -> dict[str, Any]:
    """Return a pod of a replica, running by default."""
    name = f"{job}-{kind.lower()}-{index}"
    own: dict[str, Any] = {"namespace": "team", "uid": f"uid-{name}", "creationTimestamp": CREATED, **owned_by(job)}
    own["labels"] = replica_labels(job, kind, index)
    spec = {"nodeName": "node-1", "containers": [{"name": "tensorflow", "image": "train:1"}]}
    return an_object(PODS, name, spec, status or running(), **own | meta)


def container_status(
    state: Any, last: Any = None, restarts: int = 0, *, name: str = "tensorflow", **fields: Any
) -> dict[str, Any]:
    """Return the status of a container with these states; it is ready if it runs."""
    known = {"name": name, "ready": "running" in state, "restartCount": restarts, "state": state}
    return {**known, "lastState": last or {}, **fields}


def running(restarts: int = 0) -> dict[str, Any]:
    """Return the status of a ready pod."""
    ready = {"startTime": CREATED, "conditions": [{"type": "Ready", "status": "True"}]}
    return _status("Running", {"running": {"startedAt": CREATED}}, restarts) | ready


def ended(code: int, message: str = "") -> dict[str, Any]:
    """Return the status of a finished pod."""
    over = {"exitCode": code, "message": message, "finishedAt": "2026-03-01T10:05:00Z"}
    return _status("Failed" if code else "Succeeded", {"terminated": over})


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """Return the status of a pod whose container is waiting."""
    return _status("Pending", {"waiting": {"reason": reason, "message": message}})


def _status(phase: str, state: dict[str, Any], restarts: int = 0) -> dict[str, Any]:
    return {"phase": phase, "containerStatuses": [container_status(state, None, restarts)]}


def a_tensorflow_job(name: str = "old", *states: str, status: Any = None, **meta: Any) -> dict[str, Any]:
    """Return a TfJob of tensorflow.org with a MASTER, two WORKERs and the RuntimeId x7ab; see `a_job`."""
    replicas = {"MASTER": 1, "WORKER": 2}
    spec = {
        "replicaSpecs": [
            {"tfReplicaType": kind, "replicas": size, "template": TEMPLATE} for kind, size in replicas.items()
        ]
    }
    made = a_job(name, *states, spec=spec, status={"phase": "Running", "runtimeId": "x7ab", **(status or {})}, **meta)
    return made | {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob"}


def an_alpha_pod(
    job: str, kind: str = "WORKER", index: int = 0, *, suffix: str = "abcde", status: Any = None, **meta: Any
) -> dict[str, Any]:
    """Return a pod of the batch Job for one replica of a tensorflow.org TfJob with the RuntimeId x7ab."""
    name = f"{kind.lower()}-x7ab-{index}-{suffix}"
    labels = {
        "job_type": kind,
        "task_index": str(index),
        "tf_job_name": job,
        "runtime_id": "x7ab",
        "tensorflow.org": "",
    }
    labels |= {f"{NAMES}operator-name": "tfjob-alpha-controller", f"{NAMES}job-name": job}
    own = {"name": name, "uid": f"uid-{name}", "labels": labels, **owned_by(name[:-6], resource=BATCH_JOBS), **meta}
    return a_pod(job, kind, index, status=status, **own)


def an_event(name: str, kind: str = "TFJob", number: int = 0, **fields: Any) -> dict[str, Any]:
    """Return an event about a job or a pod."""
    fields = {"reason": "Scheduled", "message": "was scheduled", "type": "Normal", "count": 1, **fields}
    version = {each.kind: each.api_version for each in (TFJOBS, BATCH_JOBS)}.get(kind, PODS.api_version)
    about = {"apiVersion": version, "kind": kind, "namespace": "team", "name": name, "uid": f"uid-{name}"}
    made = an_object(EVENTS, f"{name}.{number}", namespace="team", uid=f"event-{name}-{number}")
    return made | {"involvedObject": about, "lastTimestamp": f"2026-03-01T10:00:{number:02}Z", **fields}


def a_kubeconfig(
    server: str, user: Any = None, *, context: str = "here", namespace: str = "team", **cluster: Any
) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u", **place}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def decoding(make: Callable[..., dict[str, Any]], kind: type[T]) -> Callable[..., T]:
    """Return a function that calls `make` and returns the part of the object that an informer caches."""
    return lambda *given, **more: msgspec.json.decode(msgspec.json.encode(make(*given, **more)), type=kind)


job, tensorflow_job = decoding(a_job, PageJob), decoding(a_tensorflow_job, TensorFlowV1Alpha1Job)
pod, alpha_pod = decoding(a_pod, PodDetails), decoding(an_alpha_pod, PodDetails)
event = decoding(an_event, EventDetails)


def a_board(host: str | None, namespace: str = "team", **of: str) -> dict[str, Any]:
    """Return a TensorBoard's Service with a load balancer address; `of` is the label that names the job."""
    labels = {"training.kubeflow.org/operator-name": "tensorboard-controller"} | of
    return {
        "metadata": {"name": "board", "namespace": namespace, "labels": labels},
        "spec": {"ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"hostname": host}] if host else None}},
    }
