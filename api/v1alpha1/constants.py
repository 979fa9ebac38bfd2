"""Names of the alpha APIs: field values, labels, reasons and messages. All of them are API."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.constants import LABEL_OPERATOR_NAME, MASTER, PS, TFJOBS, WORKER, CleanPodPolicy


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of the two APIs in which jobs have `replicaSpecs`.

    resource: where jobs are read and written. Jobs of kubeflow.org are stored as v1, with their fields unchanged. label: the
    key of a label, with an empty value, on every child of such a job. any_case: keys are case-insensitive, since Go's
    encoding/json decoded these jobs. keeps_map: `status.replicaStatuses` remains v1's map, and the array of the alpha API is
    written to `alphaReplicaStatuses`.
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
    """Replica types."""

    MASTER = "MASTER"
    WORKER = "WORKER"
    PS = "PS"


V1_TYPES: Final = {ReplicaType.MASTER: MASTER, ReplicaType.WORKER: WORKER, ReplicaType.PS: PS}
"""The v1 name of each type, under which v1 clients look for its counters."""


class Phase(StrEnum):
    """The phase of a job. A job that has failed is Done; Failed means that the job never started."""

    CREATING = "Creating"
    RUNNING = "Running"
    CLEAN_UP = "CleanUp"
    FAILED = "Failed"
    DONE = "Done"


class AlphaState(StrEnum):
    """The state of a job, of a replica type, or of one replica."""

    UNKNOWN = "Unknown"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


DEFAULT_PORT: Final = 2222
PORT_NAME: Final = "tf-port"
DEFAULT_IMAGE: Final = "tensorflow/tensorflow:1.3.0"
"""The image of TensorBoard and of parameter servers without a template, if `tfImage` is not set."""
DEFAULT_CLEANUP: Final = CleanPodPolicy.RUNNING
"""A pod that is neither Running nor Done when the chief has finished would hold its node forever, and the logs of finished
pods are still read. The operators of that time first kept all pods, and later deleted all."""

OOM_KILLED: Final = "OOMKilled"
"""The termination reason that is permanent in this dialect, although its exit code is 137."""

SERVER_FOLDER: Final = "/ps-server"
SERVER_VOLUME: Final = "ps-config-volume"
SERVER_FILE: Final = "grpc_tensorflow_server.py"
"""The program of parameter servers without a template: the key in the ConfigMap, and the name of the mounted file."""

LABEL_JOB_TYPE: Final = "job_type"
LABEL_RUNTIME_ID: Final = "runtime_id"
LABEL_JOB_NAME: Final = "tf_job_name"
LABEL_TASK_INDEX: Final = "task_index"
OPERATOR_NAME: Final = "tfjob-alpha-controller"
CHILD_SELECTOR: Final = f"{LABEL_OPERATOR_NAME}={OPERATOR_NAME}"
"""Selects the children of jobs of this dialect, and the pods of their Jobs; only these are cached."""

MAX_REPLICAS: Final = 1_000
"""The most replicas of one job: each pod contains the addresses of all, so a larger job would take tens of megabytes in
etcd."""


class AlphaEventReason(StrEnum):
    """Reasons of events on a job, besides those that it shares with v1."""

    CREATED = "SuccessfulCreate"
    FAILED_CREATE = "FailedCreate"
    DELETED = "SuccessfulDelete"
    FAILED_DELETE = "FailedDelete"
    RUNTIME_ID_CONFLICT = "RuntimeIdConflict"
