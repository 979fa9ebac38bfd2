"""Names of the kubeflow.org/v1 API: field values, labels, reasons and messages. Changing one breaks users."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from tfjob_operator.api.meta import Resource
from tfjob_operator.api.v1.states import LIMIT_WORDS, limit_in

TFJOBS: Final = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
OLDER_VERSIONS: Final = ("v1alpha2", "v1beta1", "v1beta2", "v1alpha1")
"""The other served versions of the CRD. All are stored and read as v1 and have its fields, except v1alpha1, which has
those of the alpha dialect (`api.v1alpha1`)."""

CHIEF: Final = "Chief"
MASTER: Final = "Master"
WORKER: Final = "Worker"
PS: Final = "PS"
EVALUATOR: Final = "Evaluator"
REPLICA_TYPES: Final = (CHIEF, MASTER, PS, WORKER, EVALUATOR)
"""All replica types, in the order in which queues such as Kueue list them."""
CHIEF_TYPES: Final = (CHIEF, MASTER)
"""The replica types that decide the outcome of a job that has one; two names of one role."""

CONTAINER_NAME: Final = "tensorflow"
"""The training container: it gets TF_CONFIG, and its exit code decides the outcome of its replica."""
PORT_NAME: Final = "tfjob-port"
DEFAULT_PORT: Final = 2222
TCP: Final = "TCP"
TF_CONFIG: Final = "TF_CONFIG"
"""The environment variable from which TensorFlow reads the cluster and its own task."""
CLUSTER_VARIABLE: Final = "TFJOB_CLUSTER_SPEC"
"""The environment variable that TF_CONFIG expands; set from a ConfigMap if the cluster specification is long."""
CLUSTER_KEY: Final = "cluster"
"""The key of the cluster specification in that ConfigMap."""
OUR_VARIABLES: Final = frozenset({TF_CONFIG, CLUSTER_VARIABLE})
MAX_VARIABLE: Final = 131_071
"""The longest environment string (`NAME=value`, in bytes) that Linux passes to a process: MAX_ARG_STRLEN is 32 pages of 4
KiB, including the terminating NUL."""

RETRYABLE_EXIT_CODES: Final = frozenset({130, 134, 137, 138, 143})
"""Exit codes after SIGINT, SIGABRT, SIGKILL, SIGUSR1 (reserved for users) and SIGTERM. Every other code except 0 is permanent.

The runtimes of JAX and XLA abort (134) when another replica has died.
"""
EVENT_SOURCE: Final = "tf-operator"

# Labels. Older SDKs and scripts read the short names; the newer SDK and Kueue read the prefixed ones. Names with `tf-`
# are from before 2021; kubeflow-tfjob 0.1 selects pods by them.
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
"""Set on pods only: the hash of the ConfigMap that contains their cluster specification."""
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Set on jobs: the LocalQueue of Kueue that admits them."""
QUEUE_GATE: Final = "kueue.x-k8s.io/admission"
"""The scheduling gate of pods that Kueue queues individually."""
LABEL_RESTART_POLICY: Final = "training.kubeflow.org/restart-policy"
"""Set on pods: the replica's restart policy when the pod was created. The pod spec alone does not distinguish Never from
ExitCode."""
LABEL_ATTEMPT: Final = "training.kubeflow.org/restart-attempt"
"""Set on pods of a job with a failure policy from attempt 1 on: the attempt that they belong to. A pod without it belongs
to attempt 0."""
MAX_ATTEMPT: Final = 10**6
"""The operator does not raise `status.attempt` to this number or above because of a label: a user wrote it."""
ATTEMPT_VARIABLE: Final = "TFJOB_RESTART_ATTEMPT"
"""The environment variable with the attempt, set in the same pods."""
LABEL_EXECUTION: Final = "training.kubeflow.org/execution-attempt"
"""Set on pods: the execution of the job that they belong to. Unlike the attempt, its number also rises when a suspended job is
resumed, as `executionAttempts` of JobSet (KEP-1282). A pod without it belongs to execution 0, or to an older release."""
EXECUTION_VARIABLE: Final = "TFJOB_EXECUTION_ATTEMPT"
"""The environment variable with that number."""
BACKEND_VARIABLES: Final = (
    ("KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID"),
    ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
)
"""Groups of variables by which processes find each other without TF_CONFIG: the address of process 0, the number of processes,
and the number of this one. `keras.distribution.initialize` of Keras 3 reads the first group. The second one has the names of
Kubeflow Trainer; JAX itself reads only the address."""
ANNOTATION_RESTART: Final = "training.kubeflow.org/restart-requested-at"
"""Set on jobs: each new value requests one restart of the whole job (`api.v1.restart_requests`). `kubectl tfjob restart JOB`
sets it to the current time."""
MIN_NODE_LOST_TIMEOUT_S: Final = 60
"""A kubelet reports every 10 s; kube-controller-manager considers its node lost after 50 s."""
MIN_PROGRESS_DEADLINE_S: Final = 60
"""The last log line is read four times per deadline: shorter ones would cost more reads than they save in time."""
TOPOLOGY_ANNOTATIONS: Final = frozenset(
    f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("required", "preferred", "unconstrained")
)
"""Annotations of a pod template that make Kueue choose the nodes of the pods."""
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
"""The scheduling gate of pods that wait for Kueue to choose their nodes."""
ANNOTATION_FORCE_DELETE: Final = "kueue.x-k8s.io/safe-to-forcefully-delete"
"""Set on pods: "false" forbids force-deleting the pod when its node is lost. The annotation is Kueue's."""
GROUP_NAME: Final = "kubeflow.org"
CONTROLLER_NAME: Final = "tf-operator"
OPERATOR_NAME: Final = "tfjob-controller"
ROLE_MASTER: Final = "master"
SELECTING_LABELS: Final = (
    LABEL_OPERATOR_NAME,
    *(LABEL_PREFIX + name for name in (LABEL_JOB_NAME, LABEL_REPLICA_TYPE, LABEL_REPLICA_INDEX)),
)
"""The labels by which a replica's Service selects its pod."""
CHILD_SELECTOR: Final = f"{LABEL_OPERATOR_NAME}={OPERATOR_NAME}"
"""Selects the pods, Services and ConfigMaps of this operator; only these are cached."""

MANAGED_BY_US: Final = ("", "kubeflow.org/training-operator", "kubeflow.org/tfjob-operator")
"""Values of `spec.runPolicy.managedBy` for which this operator manages the job; any other value belongs to another controller.
"""


class RestartPolicy(StrEnum):
    """Restart policies of a replica.

    ExitCode exists in TFJob only: the pod has the restart policy Never, and the operator restarts it depending on its exit
    code.
    """

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when the job finishes."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class Network(StrEnum):
    """How pods find each other: by one Service per replica, or by one headless Service of the job."""

    PER_REPLICA = "perReplica"
    SHARED = "shared"


class SuccessPolicy(StrEnum):
    """What makes a job without a chief succeed: the success of worker 0, or of all workers."""

    DEFAULT = ""
    ALL_WORKERS = "AllWorkers"


class RuleAction(StrEnum):
    """What a failure policy rule does when it matches a failure."""

    FAIL_JOB = "FailJob"
    RESTART_ALL = "RestartAll"
    """Restart the whole job as a new attempt, which counts toward `maxRestarts`."""
    RESTART_ALL_UNCOUNTED = "RestartAllAndIgnoreMaxRestarts"
    RESTART_REPLICA = "RestartReplica"
    """Restart the replica. Program failures count toward `backoffLimit`, disruptions do not."""
    IGNORE = "Ignore"
    """Restart the replica without counting the failure."""


class FailureReason(StrEnum):
    """Failure reasons that rules can match."""

    OOM_KILLED = "OOMKilled"
    EVICTED = "Evicted"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """The pod exceeded its own activeDeadlineSeconds."""
    NODE_LOST = "NodeLost"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    """No replica has written a new log line for `progressDeadlineSeconds`, although all run."""


class AcceleratorOutcome(StrEnum):
    """How the seconds of a pod with accelerators were spent."""

    SUCCEEDED = "succeeded"
    """The replica succeeded."""
    ENDED_WITH_JOB = "endedWithJob"
    """The pod ran when the job ended, as parameter servers do."""
    FAILED = "failed"
    """The pod failed, and was not replaced."""
    RESTARTED = "restarted"
    """The pod was replaced because of its own failure, or by a rule for its replica."""
    RESTARTED_WITH_JOB = "restartedWithJob"
    """The whole job was restarted."""
    DISRUPTED = "disrupted"
    """The cluster took the pod away: preemption, eviction, drain, a lost node."""
    SUSPENDED = "suspended"
    """The job was suspended."""
    DELETED = "deleted"
    """The pod was deleted: by a user, by scaling down, or without a trace of the reason."""


NOT_LOST: Final = frozenset({AcceleratorOutcome.SUCCEEDED, AcceleratorOutcome.ENDED_WITH_JOB})
"""The outcomes of pods that did their work; the seconds of all others are lost, except what a checkpoint saved."""


class AttemptReason(StrEnum):
    """Reasons of finished attempts besides `FailureReason`, `EventReason.NODE_SICK` and the reasons of pods."""

    RESTART_REQUESTED = "RestartRequested"
    NOT_RUNNING_AGAIN = "NotRunningAgain"
    """An escalation: a replica restarted by a rule did not run again in time."""
    NOT_RUNNING = "NotRunning"
    """A replica that was not running when the job reached its `activeDeadlineSeconds`."""


class FinishedReplicaPolicy(StrEnum):
    """Whether a restart of the whole job also reruns the replicas that have succeeded."""

    RESTART = "Restart"
    KEEP = "Keep"


class ConditionType(StrEnum):
    """The conditions of a job."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    HELD = "Held"
    """Not a state of the job: the current spec is not applied. It is never the last condition."""
    STALLED = "Stalled"
    """Not a state of the job, which is also Running: no replica writes log lines. It is never the last condition."""


class ConditionReason(StrEnum):
    """Reasons of conditions. The event for a condition has the same reason, except for limits (`LIMITS`)."""

    CREATED = "TFJobCreated"
    RUNNING = "TFJobRunning"
    RESTARTING = "TFJobRestarting"
    SUCCEEDED = "TFJobSucceeded"
    FAILED = "TFJobFailed"
    INVALID = "InvalidTFJobSpec"
    REFUSED = "RefusedTFJobSpec"
    TOO_LARGE = "TFJobTooLarge"
    MENDED = "TFJobSpecMended"
    LIMIT = "JobFailed"
    """The job exceeded one of `LIMITS`; its running pods are deleted whatever the cleanPodPolicy."""
    SUSPENDED = "TFJobSuspended"
    RESUMED = "TFJobResumed"
    NO_PROGRESS = "ProgressDeadlineExceeded"
    PROGRESSING = "TFJobProgressing"
    BY_RULE = "PodFailurePolicy"
    """A rule of the failure policy with the action FailJob matched. The name is batch Job's."""


class EventReason(StrEnum):
    """Reasons of events on a job, besides the reasons of its conditions."""

    CREATED_POD = "SuccessfulCreatePod"
    FAILED_CREATE_POD = "FailedCreatePod"
    DELETED_POD = "SuccessfulDeletePod"
    FAILED_DELETE_POD = "FailedDeletePod"
    CREATED_SERVICE = "SuccessfulCreateService"
    FAILED_CREATE_SERVICE = "FailedCreateService"
    DELETED_SERVICE = "SuccessfulDeleteService"
    FAILED_DELETE_SERVICE = "FailedDeleteService"
    PODS_OUTLIVE_JOB = "PodsOutliveJob"
    NETWORK_NOT_UPDATED = "NetworkNotUpdated"
    POD_TEMPLATE_NOT_APPLIED = "PodTemplateNotApplied"
    POD_GROUP_NOT_UPDATED = "PodGroupNotUpdated"
    FAILED_ADOPT_POD = "FailedAdoptPod"
    FAILED_ADOPT_SERVICE = "FailedAdoptService"
    RESTORED_POD_LABELS = "RestoredPodLabels"
    FAILED_RESTORE_POD_LABELS = "FailedRestorePodLabels"
    RESTORED_SERVICE_LABELS = "RestoredServiceLabels"
    FAILED_RESTORE_SERVICE_LABELS = "FailedRestoreServiceLabels"
    RESTORED_SERVICE_SELECTOR = "RestoredServiceSelector"
    FAILED_RESTORE_SERVICE_SELECTOR = "FailedRestoreServiceSelector"
    ADOPTED = "SuccessfulAdopt"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    MAX_RESTARTS_EXCEEDED = "MaxRestartsExceeded"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
    RESTARTED_ALL = "RestartedAllReplicas"
    RESTART_REQUEST_IGNORED = "RestartRequestIgnored"
    RULE_UNREACHABLE = "FailureRuleUnreachable"
    RULE_MATCHES_HEALTHY = "FailureRuleMatchesHealthyNodes"
    RULE_WITHOUT_DEADLINE = "FailureRuleWithoutDeadline"
    RESTARTED_BY_OPERATOR = "PodRestartPolicyNever"
    NODE_SICK = "NodeSick"
    NODE_LOST = "NodeLost"
    NODES_UNAVAILABLE = "NodesUnavailable"
    LOGS_UNAVAILABLE = "LogsUnavailable"
    NODES_NOT_AVOIDED = "NodesNotAvoided"
    EXITED_WITH_CODE = "ExitedWithCode"
    RESTART_POLICY_OVERWRITTEN = "SettedPodTemplateRestartPolicy"
    DELETED_JOB = "SuccessfulDeleteJob"
    FAILED_DELETE_JOB = "FailedDeleteJob"
    STATUS_FIELDS_PRUNED = "StatusFieldsPruned"
    STATUS_REFUSED = "StatusRefused"
    POLICY_CONFLICT = "ConflictingRunPolicy"
    NO_WORKERS = "NoWorkersToScale"
    UNKNOWN_FIELD = "UnknownField"
    QUEUED_SEPARATELY = "ReplicasQueuedSeparately"
    NOT_QUEUED = "ReplicasNotQueued"
    NO_REPLICAS = "NoReplicas"
    CREATED_POD_GROUP = "SuccessfulCreatePodGroup"
    FAILED_CREATE_POD_GROUP = "FailedCreatePodGroup"
    DELETED_POD_GROUP = "SuccessfulDeletePodGroup"
    FAILED_DELETE_POD_GROUP = "FailedDeletePodGroup"
    POD_GROUPS_UNKNOWN = "PodGroupsUnavailable"
    OTHER_SCHEDULER = "SettedPodTemplateSchedulerName"
    CREATED_CONFIG_MAP = "SuccessfulCreateConfigMap"
    FAILED_CREATE_CONFIG_MAP = "FailedCreateConfigMap"
    DELETED_CONFIG_MAP = "SuccessfulDeleteConfigMap"
    FAILED_DELETE_CONFIG_MAP = "FailedDeleteConfigMap"
    CREATED_TENSOR_BOARD = "SuccessfulCreateTensorBoard"
    UPDATED_TENSOR_BOARD = "SuccessfulUpdateTensorBoard"
    DELETED_TENSOR_BOARD = "SuccessfulDeleteTensorBoard"
    FAILED_TENSOR_BOARD = "FailedTensorBoard"
    INVALID_TENSOR_BOARD = "InvalidTensorBoard"
    SERVICE_TYPE_NOT_ALLOWED = "ServiceTypeNotAllowed"
    TENSOR_BOARD_UNAVAILABLE = "TensorBoardUnavailable"


class Limit(NamedTuple):
    """A limit of a job: its field below `spec`, and the end of the Failed message `Job NAME has failed because ...`."""

    field: str
    words: str


LIMITS: Final = {
    EventReason(limit): Limit(field, LIMIT_WORDS[limit])
    for limit, field in (
        ("BackoffLimitExceeded", "runPolicy.backoffLimit"),
        ("DeadlineExceeded", "runPolicy.activeDeadlineSeconds"),
        ("MaxRestartsExceeded", "runPolicy.failurePolicy.maxRestarts"),
        ("StartDeadlineExceeded", "runPolicy.startDeadlineSeconds"),
    )
}
"""All limits by event reason. The reason of the Failed condition is always `JobFailed`; its message is the Go operators'."""


def limit_of(reason: str, message: str) -> EventReason | None:
    """Return the limit to which a Failed condition with this reason and message refers; None for any other failure."""
    limit = limit_in(message)
    return EventReason(limit) if reason == ConditionReason.LIMIT and limit else None


EXITED: Final = "Pod: {namespace}.{pod} exited with code {code}"
"""The message of the event ExitedWithCode, as in the Go operators. A reason and the termination message may follow."""
_EXITED: Final = re.compile(r"Pod: [^\s.]+\.(\S{1,253}) exited with code (-?\d{1,10})(?:: ([A-Z]\w{0,63})(?=: |\Z))?")


class PodExit(NamedTuple):
    """The exit of a training container in an event. `reason` is the only word after the code, or that before a colon.

    A reason begins with a capital letter, and `slurmstepd: error` does not.
    """

    pod: str
    code: int
    reason: str


def exit_of(message: str) -> PodExit | None:
    """Return the exit in the message of an event ExitedWithCode; None if it has another form."""
    match = _EXITED.match(message)
    return None if match is None else PodExit(match[1], int(match[2]), match[3] or "")


def attempt_in(label: str, current: int) -> int:
    """Return the attempt in a pod's label; 0 if users must have written it. `current` is the job's attempt.

    A status that lost its attempt continues with that of its pods, so a higher number may be right, but not any number: pods of
    an attempt that the job never reaches would never be of an earlier one, and their failures would be evaluated again.
    """
    if not (label and len(label) < 10 and label.isascii() and label.isdecimal()):
        return 0
    attempt = int(label)
    return attempt if attempt < MAX_ATTEMPT or attempt <= current else 0


WAS_REJECTED: Final = "was rejected: "
"""Precedes the API server's message about a pod or Service in the error of a job; nothing but the API server can find it."""

ON_HOLD: Final = "is on hold: running pods continue; no pod is created, deleted or evaluated until the spec is fixed"
"""Reported for a started job whose edited spec is invalid."""
