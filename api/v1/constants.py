"""Names of the kubeflow.org/v1 API: what users write, what their tools look for, what we print. Changing one breaks users."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from tfjob_operator.api.meta import Resource

TFJOBS: Final = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
OLDER_VERSIONS: Final = ("v1alpha2", "v1beta1", "v1beta2", "v1alpha1")
"""The other versions in which the CRD serves TFJobs. All are stored and read as v1, and their fields are those of v1; but those
of v1alpha1 are the alpha dialect's (`api.v1alpha1`)."""

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

RETRYABLE_EXIT_CODES: Final = frozenset({130, 137, 138, 143})
"""Ended by SIGINT, SIGKILL, SIGUSR1 (reserved for users) or SIGTERM. Every other code but 0 is permanent."""
EVENT_SOURCE: Final = "tf-operator"

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
LABEL_QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""On jobs: the LocalQueue of Kueue in which they wait."""
QUEUE_GATE: Final = "kueue.x-k8s.io/admission"
"""The scheduling gate of pods that Kueue queues one by one."""
LABEL_RESTART_POLICY: Final = "training.kubeflow.org/restart-policy"
"""On pods: the policy of the replica when the pod was made. Never and ExitCode look the same in a pod itself."""
LABEL_ATTEMPT: Final = "training.kubeflow.org/restart-attempt"
"""On pods of a job with a failure policy, and of attempt 1 or later: the attempt that they belong to. Without it: 0."""
ATTEMPT_VARIABLE: Final = "TFJOB_RESTART_ATTEMPT"
"""The variable that tells the program the attempt, on the same pods."""
ANNOTATION_RESTART: Final = "training.kubeflow.org/restart-requested-at"
"""On jobs: each new value restarts the whole job once. `kubectl tfjob restart JOB` writes the time."""
MIN_NODE_LOST_TIMEOUT_S: Final = 60
"""A kubelet reports to the API server every 10 s, and counts as lost after 50 s (kube-controller-manager)."""
TOPOLOGY_ANNOTATIONS: Final = frozenset(
    f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("required", "preferred", "unconstrained")
)
"""By these annotations of a pod template Kueue decides on which nodes the pods run."""
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
"""The scheduling gate of pods that wait for this decision."""
ANNOTATION_FORCE_DELETE: Final = "kueue.x-k8s.io/safe-to-forcefully-delete"
"""On pods: "false" forbids to force-delete the pod when its node is lost. The word is Kueue's."""
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


class RestartPolicy(StrEnum):
    """Restart policies of a replica. ExitCode is TFJob's own: the pod runs with Never, and its exit code decides."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class CleanPodPolicy(StrEnum):
    """Which pods go when the job has ended."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class Network(StrEnum):
    """How the pods of a job are found: each by a service of its own, or all by one service of the job."""

    PER_REPLICA = "perReplica"
    SHARED = "shared"


class SuccessPolicy(StrEnum):
    """When a job without a chief has succeeded: with worker 0, or with all workers."""

    DEFAULT = ""
    ALL_WORKERS = "AllWorkers"


class RuleAction(StrEnum):
    """What a rule of the failure policy does about a failure it matches."""

    FAIL_JOB = "FailJob"
    RESTART_ALL = "RestartAll"
    """Restart the whole job, as an attempt that counts to `maxRestarts`."""
    RESTART_ALL_UNCOUNTED = "RestartAllAndIgnoreMaxRestarts"
    RESTART_REPLICA = "RestartReplica"
    """Restart the replica; program failures count to `backoffLimit`, disruptions do not."""
    IGNORE = "Ignore"
    """Restart the replica, and count nothing."""


class FailureReason(StrEnum):
    """Reasons of failures that rules can match."""

    OOM_KILLED = "OOMKilled"
    EVICTED = "Evicted"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """The pod exceeded its own activeDeadlineSeconds."""
    NODE_LOST = "NodeLost"
    START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"


class FinishedReplicaPolicy(StrEnum):
    """Whether a restart of the whole job runs replicas again that have succeeded."""

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
    """No state of the job: it says that the specification is not followed (any more), and is never the last condition."""


class ConditionReason(StrEnum):
    """Reasons of conditions. Events that report a condition have the same reason, except those of limits (`LIMITS`)."""

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
    """The job reached one of `LIMITS`: its running pods are deleted, whatever the clean-up policy."""
    SUSPENDED = "TFJobSuspended"
    RESUMED = "TFJobResumed"
    BY_RULE = "PodFailurePolicy"
    """A rule of the failure policy has the action FailJob. The word is batch Job's."""


class EventReason(StrEnum):
    """Reasons of events on a job, beside the reasons of its conditions."""

    CREATED_POD = "SuccessfulCreatePod"
    FAILED_CREATE_POD = "FailedCreatePod"
    DELETED_POD = "SuccessfulDeletePod"
    FAILED_DELETE_POD = "FailedDeletePod"
    CREATED_SERVICE = "SuccessfulCreateService"
    FAILED_CREATE_SERVICE = "FailedCreateService"
    DELETED_SERVICE = "SuccessfulDeleteService"
    FAILED_DELETE_SERVICE = "FailedDeleteService"
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
    RULE_UNREACHABLE = "FailureRuleUnreachable"
    RESTARTED_BY_OPERATOR = "PodRestartPolicyNever"
    NODE_SICK = "NodeSick"
    NODE_LOST = "NodeLost"
    NODES_UNAVAILABLE = "NodesUnavailable"
    NODES_NOT_AVOIDED = "NodesNotAvoided"
    EXITED_WITH_CODE = "ExitedWithCode"
    RESTART_POLICY_OVERWRITTEN = "SettedPodTemplateRestartPolicy"
    DELETED_JOB = "SuccessfulDeleteJob"
    FAILED_DELETE_JOB = "FailedDeleteJob"
    STATUS_FIELDS_PRUNED = "StatusFieldsPruned"
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
    """A limit of a job: its field below `spec`, and what Failed says: `Job NAME has failed because ` and these words."""

    field: str
    words: str


LIMITS: Final = {
    EventReason.BACKOFF_LIMIT_EXCEEDED: Limit("runPolicy.backoffLimit", "it has reached the specified backoff limit"),
    EventReason.DEADLINE_EXCEEDED: Limit(
        "runPolicy.activeDeadlineSeconds", "it was active longer than specified deadline"
    ),
    EventReason.MAX_RESTARTS_EXCEEDED: Limit(
        "runPolicy.failurePolicy.maxRestarts", "it was restarted as often as maxRestarts allows"
    ),
    EventReason.START_DEADLINE_EXCEEDED: Limit(
        "runPolicy.startDeadlineSeconds", "not all of its replicas ran within the start deadline"
    ),
}
"""All limits, by the reason of the event; Failed has the reason `JobFailed` for each. These words are the Go operators'."""


def limit_of(reason: str, message: str) -> EventReason | None:
    """Return the limit that a Failed condition with this reason and message reports, None for any other failure."""
    words = message.partition(" has failed because ")[2].partition(". ")[0]
    return next((each for each in LIMITS if reason == ConditionReason.LIMIT and words == LIMITS[each].words), None)


ON_HOLD: Final = "is on hold: running pods continue; no pod is created, deleted or evaluated until the spec is fixed"
"""What is reported of a started job whose edited specification cannot be followed."""
