"""Jobs, pods and events as sent by the API server."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, TypeVar

import msgspec

from tfjob_operator.cli.model.objects import EventDetails, PodDetails
from tfjob_operator.cli.page.objects import PageJob, TensorFlowV1Alpha1Job

T = TypeVar("T")
NAMES = "training.kubeflow.org/"
CREATED = "2026-03-01T10:00:00Z"
CREATED_S = 1772359200.0
TEMPLATE: Final = {"spec": {"containers": [{"name": "tensorflow", "image": "train:1"}]}}


def a_job(name: str = "mnist", *states: str, spec: Any = None, status: Any = None, **meta: Any) -> dict[str, Any]:
    """Return a job with a True condition of each of these types; the last type is the job's current state."""
    true = {"status": "True", "lastTransitionTime": CREATED}
    conditions = [{"type": each, "reason": f"TFJob{each}", "message": f"is {each}", **true} for each in states]
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", "creationTimestamp": CREATED, **meta},
        "spec": spec if spec is not None else wanting(Worker=2),
        "status": {"conditions": conditions, **(status or {})},
    }


def wanting(**sizes: int) -> dict[str, Any]:
    """Return a spec with this number of replicas by type."""
    template = deepcopy(TEMPLATE)
    return {"tfReplicaSpecs": {kind: {"replicas": size, "template": template} for kind, size in sizes.items()}}


def a_pod(job: str, kind: str = "Worker", index: int = 0, *, status: Any = None, **meta: Any) -> dict[str, Any]:
    """Return a pod of a replica, running by default."""
    name = f"{job}-{kind.lower()}-{index}"
    labels = {
        "operator-name": "tfjob-controller",
        "job-name": job,
        "replica-type": kind.lower(),
        "replica-index": str(index),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
            "labels": {NAMES + key: value for key, value in labels.items()},
            "ownerReferences": [{"kind": "TFJob", "name": job, "uid": f"uid-{job}", "controller": True}],
            **meta,
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "tensorflow", "image": "train:1"}]},
        "status": status or running(),
    }


def running(**more: Any) -> dict[str, Any]:
    """Return the status of a ready pod."""
    ready = {"startTime": CREATED, "conditions": [{"type": "Ready", "status": "True"}]}
    return _status("Running", {"running": {"startedAt": CREATED}}, **more) | ready


def ended(code: int, message: str = "") -> dict[str, Any]:
    """Return the status of a finished pod."""
    over = {"exitCode": code, "message": message, "finishedAt": "2026-03-01T10:05:00Z"}
    return _status("Failed" if code else "Succeeded", {"terminated": over})


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """Return the status of a pod whose container is waiting."""
    return _status("Pending", {"waiting": {"reason": reason, "message": message}})


def _status(phase: str, state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"phase": phase, "containerStatuses": [{"name": "tensorflow", "state": state, **more}]}


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
    own = {"operator-name": "tfjob-alpha-controller", "job-name": job}
    made = a_pod(job, kind, index, status=status)
    made["metadata"] |= {
        "name": name,
        "uid": f"uid-{name}",
        "labels": {**labels, **{NAMES + key: value for key, value in own.items()}},
        "ownerReferences": [{"kind": "Job", "name": name[:-6], "uid": f"uid-{name[:-6]}", "controller": True}],
        **meta,
    }
    return made


def an_event(name: str, kind: str = "TFJob", number: int = 0, **fields: Any) -> dict[str, Any]:
    """Return an event about a job or a pod."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{number}", "namespace": "team", "uid": f"event-{name}-{number}"},
        "involvedObject": {"kind": kind, "namespace": "team", "name": name, "uid": f"uid-{name}"},
        "reason": "Scheduled",
        "message": "was scheduled",
        "type": "Normal",
        "count": 1,
        "lastTimestamp": f"2026-03-01T10:00:{number:02}Z",
        **fields,
    }


def _decoding(make: Callable[..., dict[str, Any]], kind: type[T]) -> Callable[..., T]:
    """Return a function that calls `make` and returns the part of the object that an informer caches."""
    return lambda *given, **more: msgspec.json.decode(msgspec.json.encode(make(*given, **more)), type=kind)


job, tensorflow_job = _decoding(a_job, PageJob), _decoding(a_tensorflow_job, TensorFlowV1Alpha1Job)
pod, alpha_pod = _decoding(a_pod, PodDetails), _decoding(an_alpha_pod, PodDetails)
event = _decoding(an_event, EventDetails)


def a_board(host: str | None, namespace: str = "team", **of: str) -> dict[str, Any]:
    """Return a TensorBoard's Service with a load balancer address; `of` is the label that names the job."""
    labels = {"training.kubeflow.org/operator-name": "tensorboard-controller"} | of
    return {
        "metadata": {"name": "board", "namespace": namespace, "labels": labels},
        "spec": {"ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"hostname": host}] if host else None}},
    }
