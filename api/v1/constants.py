"""Names of the kubeflow.org/v1 API: what users type, what their tools look for, what we print. All of it is API."""

from __future__ import annotations

from typing import Final

from tfjob_operator.api.meta import Resource

TFJOBS: Final = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")

CHIEF: Final = "Chief"
MASTER: Final = "Master"
WORKER: Final = "Worker"
PS: Final = "PS"
EVALUATOR: Final = "Evaluator"
REPLICA_TYPES: Final = (CHIEF, MASTER, PS, WORKER, EVALUATOR)
"""All replica types, in the order in which queues such as Kueue list them."""
CHIEF_TYPES: Final = (CHIEF, MASTER)
"""The types that decide about the job when present; two names of one role."""

CONTAINER_NAME: Final = "tensorflow"
"""The container that trains: it gets TF_CONFIG, and its exit decides about its replica."""
PORT_NAME: Final = "tfjob-port"
DEFAULT_PORT: Final = 2222
TCP: Final = "TCP"
TF_CONFIG: Final = "TF_CONFIG"
"""The variable in which TensorFlow looks for the cluster and its place in it."""
CLUSTER_VARIABLE: Final = "TFJOB_CLUSTER_SPEC"
"""The variable that brings a long cluster specification out of a ConfigMap into TF_CONFIG."""
CLUSTER_KEY: Final = "cluster"
"""The key under which it lies in that ConfigMap."""
OUR_VARIABLES: Final = frozenset({TF_CONFIG, CLUSTER_VARIABLE})
MAX_VARIABLE: Final = 131_071
"""Bytes of the longest environment string, name and all, that Linux hands to a process (MAX_ARG_STRLEN is 32 pages of 4 KiB,
and the string ends with a zero)."""

# Restart policies of a replica. ExitCode is ours: the pod runs with Never and we look at how it ended.
ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"
EXIT_CODE: Final = "ExitCode"
RESTART_POLICIES: Final = (ALWAYS, ON_FAILURE, NEVER, EXIT_CODE)
POD_RESTART_POLICIES: Final = (ALWAYS, ON_FAILURE, NEVER)

CLEAN_ALL: Final = "All"
CLEAN_RUNNING: Final = "Running"
CLEAN_NONE: Final = "None"
CLEAN_POD_POLICIES: Final = (CLEAN_ALL, CLEAN_RUNNING, CLEAN_NONE)

ALL_WORKERS: Final = "AllWorkers"
SUCCESS_POLICIES: Final = ("", ALL_WORKERS)

RETRYABLE_EXIT_CODES: Final = frozenset({130, 137, 138, 143})
"""Ended by SIGINT, SIGKILL, SIGUSR1 (reserved for users) or SIGTERM. Every other code but 0 is permanent."""

# Condition types and their reasons.
CREATED: Final = "Created"
RUNNING: Final = "Running"
RESTARTING: Final = "Restarting"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
SUSPENDED: Final = "Suspended"
HELD: Final = "Held"
"""No state of the job: it says that the specification is not followed (any more), and is never the last condition."""

REASON_CREATED: Final = "TFJobCreated"
REASON_RUNNING: Final = "TFJobRunning"
REASON_RESTARTING: Final = "TFJobRestarting"
REASON_SUCCEEDED: Final = "TFJobSucceeded"
REASON_FAILED: Final = "TFJobFailed"
REASON_INVALID: Final = "InvalidTFJobSpec"
REASON_REFUSED: Final = "RefusedTFJobSpec"
REASON_TOO_LARGE: Final = "TFJobTooLarge"
REASON_MENDED: Final = "TFJobSpecMended"
REASON_LIMIT: Final = "JobFailed"
"""The job ran into a limit of its own (deadline, back-off limit): then nothing of it goes on, whatever the clean-up policy."""
REASON_SUSPENDED: Final = "TFJobSuspended"
REASON_RESUMED: Final = "TFJobResumed"

# Events.
EVENT_SOURCE: Final = "tf-operator"
EVENT_CREATED_POD: Final = "SuccessfulCreatePod"
EVENT_FAILED_CREATE_POD: Final = "FailedCreatePod"
EVENT_DELETED_POD: Final = "SuccessfulDeletePod"
EVENT_FAILED_DELETE_POD: Final = "FailedDeletePod"
EVENT_CREATED_SERVICE: Final = "SuccessfulCreateService"
EVENT_FAILED_CREATE_SERVICE: Final = "FailedCreateService"
EVENT_DELETED_SERVICE: Final = "SuccessfulDeleteService"
EVENT_FAILED_DELETE_SERVICE: Final = "FailedDeleteService"
EVENT_FAILED_ADOPT_POD: Final = "FailedAdoptPod"
EVENT_FAILED_ADOPT_SERVICE: Final = "FailedAdoptService"
EVENT_RELABELLED_POD: Final = "RelabelledPod"
EVENT_FAILED_RELABEL_POD: Final = "FailedRelabelPod"
EVENT_RELABELLED_SERVICE: Final = "RelabelledService"
EVENT_FAILED_RELABEL_SERVICE: Final = "FailedRelabelService"
EVENT_RESELECTED_SERVICE: Final = "ReselectedService"
EVENT_FAILED_RESELECT_SERVICE: Final = "FailedReselectService"
EVENT_EXITED_WITH_CODE: Final = "ExitedWithCode"
EVENT_RESTART_POLICY_OVERWRITTEN: Final = "SettedPodTemplateRestartPolicy"
EVENT_DELETED_JOB: Final = "SuccessfulDeleteJob"
EVENT_FAILED_DELETE_JOB: Final = "FailedDeleteJob"
EVENT_STATUS_NOT_KEPT: Final = "StatusNotKept"
EVENT_POLICY_CONFLICT: Final = "ConflictingRunPolicy"
EVENT_NO_WORKERS: Final = "NoWorkersToScale"
EVENT_UNKNOWN_FIELD: Final = "UnknownField"
EVENT_NO_REPLICAS: Final = "NoReplicas"
EVENT_CREATED_POD_GROUP: Final = "SuccessfulCreatePodGroup"
EVENT_FAILED_CREATE_POD_GROUP: Final = "FailedCreatePodGroup"
EVENT_DELETED_POD_GROUP: Final = "SuccessfulDeletePodGroup"
EVENT_FAILED_DELETE_POD_GROUP: Final = "FailedDeletePodGroup"
EVENT_POD_GROUPS_UNKNOWN: Final = "PodGroupsUnavailable"
EVENT_OTHER_SCHEDULER: Final = "SettedPodTemplateSchedulerName"
EVENT_CREATED_CONFIG_MAP: Final = "SuccessfulCreateConfigMap"
EVENT_FAILED_CREATE_CONFIG_MAP: Final = "FailedCreateConfigMap"
EVENT_DELETED_CONFIG_MAP: Final = "SuccessfulDeleteConfigMap"
EVENT_FAILED_DELETE_CONFIG_MAP: Final = "FailedDeleteConfigMap"
NORMAL: Final = "Normal"
WARNING: Final = "Warning"

# Labels. Two families: the short names are read by older SDKs and by scripts, the prefixed ones by the newer SDK and Kueue.
# Those with `tf-` are the names of before 2021, by which kubeflow-tfjob 0.1 looks for pods.
LABEL_GROUP_NAME: Final = "group-name"
LABEL_JOB_NAME: Final = "job-name"
LABEL_TF_JOB_NAME: Final = "tf-job-name"
LABEL_CONTROLLER_NAME: Final = "controller-name"
LABEL_REPLICA_TYPE: Final = "replica-type"
LABEL_REPLICA_INDEX: Final = "replica-index"
LABEL_TF_REPLICA_TYPE: Final = "tf-replica-type"
LABEL_TF_REPLICA_INDEX: Final = "tf-replica-index"
LABEL_JOB_ROLE: Final = "job-role"
LABEL_PREFIX: Final = "training.kubeflow.org/"
LABEL_OPERATOR_NAME: Final = "training.kubeflow.org/operator-name"
LABEL_CLUSTER_SPEC: Final = "training.kubeflow.org/cluster-spec"
"""On pods alone: the hash of the ConfigMap that brings them the cluster specification."""
LABEL_RESTART_POLICY: Final = "training.kubeflow.org/restart-policy"
"""On pods: the policy of the replica when the pod was made. Never and ExitCode look the same in a pod itself."""
GROUP_NAME: Final = "kubeflow.org"
CONTROLLER_NAME: Final = "tf-operator"
OPERATOR_NAME: Final = "tfjob-controller"
ROLE_MASTER: Final = "master"
SELECTING_LABELS: Final = (
    LABEL_OPERATOR_NAME,
    *(LABEL_PREFIX + name for name in (LABEL_JOB_NAME, LABEL_REPLICA_TYPE, LABEL_REPLICA_INDEX)),
)
"""The labels by which a replica's service selects its pod."""
CHILD_SELECTOR: Final = f"{LABEL_OPERATOR_NAME}={OPERATOR_NAME}"
"""Selects our pods, services and ConfigMaps: nothing else of the cluster enters our cache."""

MANAGED_BY_US: Final = ("", "kubeflow.org/training-operator", "kubeflow.org/tfjob-operator")
"""Values of `spec.runPolicy.managedBy` under which this operator acts; any other belongs to somebody else."""
