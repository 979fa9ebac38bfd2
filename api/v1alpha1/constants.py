"""Names of the alpha APIs: what users type, what their tools look for, what we print. All of it is API."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, MASTER, PS, TFJOBS, WORKER, CleanPodPolicy


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the two APIs in which jobs have `replicaSpecs`.

    resource: where the operator reads and writes them. Those of kubeflow.org are stored as v1, field by field as they came.
    label: the label, without a value, of all that is made for such a job.
    any_case: whether the letter case of keys is free: Go's encoding/json read these jobs.
    keeps_map: whether `status.replicaStatuses` stays the map of v1, with the array beside it as `alphaReplicaStatuses`.
    """

    resource: Resource
    label: str
    any_case: bool
    keeps_map: bool


KUBEFLOW: Final = Dialect(TFJOBS, "kubeflow.org", any_case=False, keeps_map=True)
TENSORFLOW: Final = Dialect(
    Resource("tensorflow.org", "v1alpha1", "tfjobs", "TfJob"), "tensorflow.org", any_case=True, keeps_map=False
)
DIALECTS: Final = (KUBEFLOW, TENSORFLOW)


class ReplicaType(StrEnum):
    """The types of replicas."""

    MASTER = "MASTER"
    WORKER = "WORKER"
    PS = "PS"


V1_TYPES: Final = {ReplicaType.MASTER: MASTER, ReplicaType.WORKER: WORKER, ReplicaType.PS: PS}
"""What each type is called in v1, where readers of v1 look for its counters."""


class Phase(StrEnum):
    """What the operator does about a job. A job that has failed is Done; Failed is one that never began."""

    CREATING = "Creating"
    RUNNING = "Running"
    CLEAN_UP = "CleanUp"
    FAILED = "Failed"
    DONE = "Done"


class State(StrEnum):
    """How a job, a type of replicas, or one replica stands."""

    UNKNOWN = "Unknown"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


DEFAULT_PORT: Final = 2222
PORT_NAME: Final = "tf-port"
DEFAULT_IMAGE: Final = "tensorflow/tensorflow:1.3.0"
"""What parameter servers without a template run, and TensorBoard, where `tfImage` is left out."""
DEFAULT_CLEANUP: Final = CleanPodPolicy.RUNNING
"""What is neither Running nor Done when the chief has ended would hold its node for ever, and the logs of what has ended are
still read. The operators of the time kept everything at first, and deleted everything later."""

OOM_KILLED: Final = "OOMKilled"
"""The reason of an exit that is permanent in this dialect, though its code is 137."""

SERVER_FOLDER: Final = "/ps-server"
SERVER_VOLUME: Final = "ps-config-volume"
SERVER_FILE: Final = "grpc_tensorflow_server.py"
"""The program of parameter servers without a template: its ConfigMap is mounted there, under that name, with that key."""

LABEL_JOB_TYPE: Final = "job_type"
LABEL_RUNTIME_ID: Final = "runtime_id"
LABEL_JOB_NAME: Final = "tf_job_name"
LABEL_TASK_INDEX: Final = "task_index"
OPERATOR_NAME: Final = "tfjob-alpha-controller"
CHILD_SELECTOR: Final = f"{LABEL_OPERATOR_NAME}={OPERATOR_NAME}"
"""Selects what was made for jobs of this dialect, and the pods of their Jobs: nothing else enters the cache."""

MAX_REPLICAS: Final = 1_000
"""Of one job: each pod bears the addresses of all, so that a job of more would be tens of megabytes in etcd."""


class EventReason(StrEnum):
    """Reasons of events on a job, beside those that v1 has too."""

    CREATED = "SuccessfulCreate"
    FAILED_CREATE = "FailedCreate"
    DELETED = "SuccessfulDelete"
    FAILED_DELETE = "FailedDelete"
    RUNTIME_ID_CONFLICT = "RuntimeIdConflict"
