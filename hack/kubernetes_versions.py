"""The differences between Kubernetes 1.20 and 1.36 that matter to this project: one row per change, in one place.

The models (hollow node, simulated kubelet, model of the API server, model checker) ask a version whether it `has` a
change, so each of them can behave like any version. Values only. A row says from which minor version on the change
exists, with default feature gates and the newest patch release of that minor version; which component changed, what the
change is, where upstream decided it, and how we know of it.

`python -m hack.kubernetes_table` prints the table as docs/compatibility.md has it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

KUBELET: Final = "kubelet"
API_SERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"


class Known(enum.Flag):
    """How we know of a change.

    READ: from the sources of 1.25 to 1.36, and for older changes from upstream's pull requests, issues and changelogs.
    SEEN: servers and kubelets of 1.20.2 and 1.36.3 were run, and differ in this way (`test/data/recordings`). That does not
    show in which version between them the change came.
    """

    READ = enum.auto()
    SEEN = enum.auto()


@dataclass(frozen=True, slots=True)
class Change:
    """One change of behaviour.

    since: the first minor version that has it: 22 means Kubernetes 1.22.
    source: the pull request or KEP of upstream, else the file to look at.
    without: later minor versions that do not have it, because it was switched off or replaced.
    """

    since: int
    component: str
    what: str
    source: str
    known: Known
    without: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Kubernetes:
    """A version of Kubernetes, by its minor number."""

    minor: int

    def has(self, change: Change) -> bool:
        """Whether clusters of this version have the change."""
        return self.minor >= change.since and self.minor not in change.without

    def __str__(self) -> str:
        return f"1.{self.minor}"

    @staticmethod
    def parse(text: str) -> Kubernetes:
        """Parse `1.33`, `v1.36.3` or any other version that `/version` reports. Raises ValueError."""
        match = re.match(r"v?1\.(\d+)(?!\d)", text)
        if match is None:
            raise ValueError(f"{text!r} is no version of Kubernetes such as 1.33")
        return Kubernetes(int(match[1]))


OLDEST: Final = Kubernetes(20)
NEWEST: Final = Kubernetes(36)


def changes() -> dict[str, Change]:
    """All rows by their names, in the order in which they stand below."""
    return {name: row for name, row in globals().items() if isinstance(row, Change)}


BOTH: Final = Known.READ | Known.SEEN

# The ends of pods.
CONTAINERS_END_BEFORE_PHASE: Final = Change(
    22,
    KUBELET,
    "containers are reported terminated a second or so before the pod's phase becomes terminal",
    "kubernetes PR 108366 of 1.24, brought to 1.23 and 1.22 by 108723 and 108749 in spring 2022",
    BOTH,
)
"""The phase becomes terminal only when the pod worker has finished with the pod."""
DEADLINE_WAITS_FOR_CONTAINERS: Final = Change(
    22,
    KUBELET,
    "a pod past its activeDeadlineSeconds is Failed when its containers have ended, not while they still run",
    "kubernetes PR 108366",
    BOTH,
)
SHUTDOWN_TELLS_THE_TRUTH: Final = Change(
    22,
    KUBELET,
    "at a node's shutdown pods end as their containers do, with statuses, Succeeded where all exited with 0, else"
    " Failed with reason Terminated; before, all were Failed with reason Shutdown at once",
    "KEP-2000, kubernetes PRs 106900 and 108366",
    BOTH,
)
EVICTED_MAY_SUCCEED: Final = Change(
    22,
    KUBELET,
    "a pod that the kubelet evicts, and whose containers then exit with 0, is Succeeded, without reason or message",
    "kubernetes PR 108366; under restart policy Always 115331 of 1.27",
    Known.READ,
)
READY_TELLS_FAILURE: Final = Change(
    22,
    KUBELET,
    "the condition Ready of a pod that failed has the reason PodFailed, not ContainersNotReady",
    "kubernetes PR 110256 of 1.25, brought to 1.22 by 110481",
    BOTH,
)
UNSTARTED_ARE_CALLED_UNKNOWN: Final = Change(
    25,
    KUBELET,
    "containers that never ran are reported terminated with ContainerStatusUnknown and 137 when their pod ends: when"
    " it is deleted, and when the kubelet that had rejected it is restarted (1.25 is the oldest version that was read)",
    "status_manager.go, TerminatePod",
    BOTH,
)
REJECTIONS_SAY_SO: Final = Change(
    26,
    KUBELET,
    "the message of a pod that the kubelet rejects begins with `Pod was rejected: `, not `Pod `",
    "kubelet.go, rejectPod",
    BOTH,
)
DELETION_ENDS_IN_TERMINAL_PHASE: Final = Change(
    27,
    KUBELET,
    "a pod that is deleted gets phase Succeeded or Failed before it goes, under every restart policy, and if it never"
    " started",
    "kubernetes PR 115331",
    BOTH,
)
EXIT_CODES_SURVIVE_DELETION: Final = Change(
    27,
    KUBELET,
    "the exit codes are in the status of a deleted pod before it goes; older kubelets may lose one: the phase is Failed,"
    " the container waiting, its lastState ContainerStatusUnknown with 137",
    "kubernetes PR 115331",
    BOTH,
)
REJECTED_FOR_VOLUMES: Final = Change(
    35,
    KUBELET,
    "pods are rejected after their admission, too: VolumeAttachmentLimitExceeded when a driver has no room for a"
    " volume",
    "KEP-4876",
    Known.READ,
)
REJECTED_FOR_FEATURES: Final = Change(
    36,
    KUBELET,
    "pods that need a feature that their kubelet does not declare, such as RestartAllContainers, are rejected with"
    " PodFeatureUnsupported",
    "KEP-5328",
    Known.READ,
)

# Deletions and disruptions.
DISRUPTION_TARGET: Final = Change(
    26,
    CONTROLLERS,
    "whoever takes a pod away (eviction API, taints, preemption, pod garbage collection, kubelets) sets its condition"
    " DisruptionTarget: before the deletion, but kubelets only with the terminal phase, and not for pods over their"
    " own limits of local storage",
    "KEP-3329",
    BOTH,
)
TAINT_EVICTION_CONTROLLER: Final = Change(
    29, CONTROLLERS, "eviction by taints is a controller of its own, taint-eviction-controller", "KEP-3902", BOTH
)
DELETION_TIMESTAMP_MOVES: Final = Change(
    33,
    API_SERVER,
    "a later delete with a shorter grace period never sets a deletionTimestamp in the past: the kubelet's last delete sets"
    " its own time, and a grace period that is over already becomes 1 s",
    "kubernetes PR 122646",
    BOTH,
)
JOB_PODS_ARE_TRACKED: Final = Change(
    25,
    CONTROLLERS,
    "pods of a Job have the finalizer batch.kubernetes.io/job-tracking until they are counted; a count stays when its"
    " pod goes, and a pod that is told to go has failed unless it has succeeded before",
    "KEP-2307; kubernetes PRs 109487 and 109491 switched it off in 1.24 and 1.23",
    Known.READ,
)

# What pods are made of.
SCHEDULING_GATES: Final = Change(27, API_SERVER, "pods wait for their schedulingGates", "KEP-3521", BOTH)
ORDINARY_POLICIES_REFUSED: Final = Change(
    28,
    API_SERVER,
    "a pod one of whose ordinary containers has a restartPolicy is refused with 422; 1.27 does not know the field,"
    " 1.34 drops it",
    "KEP-753, KEP-5307",
    Known.READ,
    without=(34, 35, 36),
)
NATIVE_SIDECARS: Final = Change(
    29, KUBELET, "init containers with restartPolicy Always run beside the others and end after them", "KEP-753", BOTH
)
SANDBOX_CONDITION: Final = Change(29, KUBELET, "pods have the condition PodReadyToStartContainers", "KEP-3085", BOTH)
POD_GENERATION: Final = Change(33, API_SERVER, "pods have metadata.generation", "KEP-5067", BOTH)
POD_OBSERVED_GENERATION: Final = Change(
    34, KUBELET, "the status of pods, and each condition, has an observedGeneration", "KEP-5067", BOTH
)
CONTAINER_RESTART_RULES: Final = Change(
    35,
    KUBELET,
    "containers have a restartPolicy and restartPolicyRules of their own; a pod is at its end when none of its"
    " containers will be started again, under any policy of the pod",
    "KEP-5307",
    BOTH,
)
RESTART_ALL_CONTAINERS: Final = Change(
    36,
    KUBELET,
    "a rule can restart all containers of a pod in place, those too that had succeeded: killed without grace, and the"
    " phase may go back to Pending",
    "KEP-5532",
    BOTH,
)
SIGNATURES_ARE_CHECKED: Final = Change(
    28, KUBELET, "containers may wait with the reason SignatureValidationFailed", "images/image_manager.go", Known.READ
)

# Requests and responses.
NAMESPACE_NAME_LABEL: Final = Change(
    21, API_SERVER, "namespaces have the label kubernetes.io/metadata.name", "KEP-2161", BOTH
)
SERVICE_DELETE_ANSWERS_OBJECT: Final = Change(
    23, API_SERVER, "DELETE of a service returns the service, not a Status", "kubernetes PR 96684", BOTH
)
SERVICES_ARE_GENERIC: Final = Change(
    23,
    API_SERVER,
    "services are stored like everything else: PUT creates one that does not exist, and a wrong UID is a 409, not a 422",
    "kubernetes PR 96684",
    BOTH,
)
POD_SECURITY: Final = Change(
    23, API_SERVER, "namespaces can ask by labels for Pod Security, which refuses pods with 403", "KEP-2579", BOTH
)
FLOW_CONTROL_V1BETA2: Final = Change(
    23,
    API_SERVER,
    "flow schemas are served as v1beta2",
    "KEP-1040",
    Known.READ,
    without=tuple(range(29, 37)),
)
TOKENS_BY_REQUEST: Final = Change(
    24, CONTROLLERS, "service accounts get no token Secret; tokens come from TokenRequest", "KEP-2799", BOTH
)
FIELD_VALIDATION: Final = Change(
    25,
    API_SERVER,
    "unknown and repeated fields are named in a Warning header, and refused with 400 under fieldValidation=Strict",
    "KEP-2885",
    BOTH,
)
DELETE_ANSWERS_LAST_VERSION: Final = Change(
    26, API_SERVER, "the response to a DELETE has the resourceVersion of the deletion", "etcd3/store.go", BOTH
)
FLOW_CONTROL_V1: Final = Change(29, API_SERVER, "flow schemas are served as v1", "KEP-1040", BOTH)
REFUSALS_ARE_REWORDED: Final = Change(
    32,
    API_SERVER,
    "refusals of what is too long say `may not be more than` so many bytes",
    "util/validation/field/errors.go",
    BOTH,
)
LIST_VERSION_IS_CHECKED: Final = Change(
    33,
    API_SERVER,
    "a list at a resourceVersion that is not a number is a 400, not a 500",
    "cacher/delegator.go",
    BOTH,
)
PUT_OF_GONE_IS_NOT_FOUND: Final = Change(
    34, API_SERVER, "PUT with the UID of an object that is gone is 404, not 409", "kubernetes PR 132470", BOTH
)
VALUES_ARE_PRINTED_AS_JSON: Final = Change(
    34, API_SERVER, "refusals show values as JSON: 0 instead of 0x0", "util/validation/field/errors.go", BOTH
)
LABELS_ARE_MEASURED_IN_BYTES: Final = Change(
    35,
    API_SERVER,
    "refusals of labels that are too long count bytes, not characters",
    "api/validate/content/errors.go",
    BOTH,
)
NUMBERS_ARE_EXACT: Final = Change(
    36,
    API_SERVER,
    "the schema of a CRD checks int32 and int64; before, a fraction within one in 10^9 of a whole number passes for one",
    "kube-openapi PR 570",
    BOTH,
)
SERVICE_NAMES_ARE_RELAXED: Final = Change(36, API_SERVER, "names of services may begin with a digit", "KEP-5311", BOTH)

# Lists and watches.
INITIAL_EVENTS_ARE_CHECKED: Final = Change(
    27,
    API_SERVER,
    "a watch with sendInitialEvents is refused where it is not supported; before, the parameter was not known",
    "KEP-3157",
    BOTH,
)
IDLE_BOOKMARKS: Final = Change(
    31, API_SERVER, "watches of idle collections get a bookmark a minute", "cacher/cacher.go, dispatchEvents", BOTH
)
CACHES_KNOW_PROGRESS: Final = Change(
    31,
    API_SERVER,
    "the watch cache asks etcd for its newest version, so those of idle collections advance, and reads can wait for them",
    "KEP-2340",
    BOTH,
)
WATCH_REFUSED_WHILE_INITIALISING: Final = Change(
    31,
    API_SERVER,
    "a watch is refused with 429 while its cache initialises: for a CRD with the first request after a start or a change",
    "KEP-4568, kubernetes PR 124642",
    BOTH,
)
STREAMING_LISTS: Final = Change(
    32,
    API_SERVER,
    "a watch with sendInitialEvents begins with the whole collection",
    "KEP-3157; switched off in 1.33 by kubernetes PR 131359, on again in 1.34 by 132704",
    BOTH,
    without=(33,),
)
LISTS_FROM_SNAPSHOTS: Final = Change(
    34, API_SERVER, "exact lists and continue tokens survive a compaction: no 410", "KEP-4988", BOTH
)
FUTURE_LISTS_TIME_OUT: Final = Change(
    34,
    API_SERVER,
    "a list at a version of the future is a 504 after 3 s in all its forms, not a 500 where it has a limit or is exact",
    "etcd3/store.go, KEP-4988",
    BOTH,
)

# What the scheduler says.
SELECTORS_ARE_NAMED: Final = Change(
    21,
    SCHEDULER,
    "where a pod's nodeSelector does not match, the message says `node affinity/selector`, not `node affinity`",
    "nodeaffinity/node_affinity.go",
    Known.SEEN,
)
TAINTS_ARE_CALLED_UNTOLERATED: Final = Change(
    24,
    SCHEDULER,
    "the message says `had untolerated taint {a: b}`, not `had taint {a: b}, that the pod didn't tolerate`",
    "kubernetes PR 109119",
    Known.READ,
)
PREEMPTION_IS_EXPLAINED: Final = Change(
    24,
    SCHEDULER,
    "the message also says, after `preemption:`, why no other pod was evicted for this one",
    "defaultpreemption/default_preemption.go",
    Known.SEEN,
)
TAINTS_ARE_NOT_NAMED: Final = Change(
    34,
    SCHEDULER,
    "the message says `had untolerated taint(s)`, without keys and values",
    "kubernetes PR 134740 of 1.35, brought to 1.34 by 135023",
    Known.READ,
)
CLAIMS_ARE_DEALLOCATED: Final = Change(
    34,
    SCHEDULER,
    "the message says `no new claims to deallocate` before it speaks of preemption",
    "KEP-4381",
    Known.SEEN,
)

# How the components are started.
INSECURE_PORTS_GONE: Final = Change(
    24,
    CONTROLLERS,
    "kube-controller-manager and kube-scheduler have no port without TLS, nor the flag --port that closed it",
    "the changelog of 1.24",
    Known.SEEN,
)
CONTAINER_RUNTIME_INTERFACE_ONLY: Final = Change(
    24,
    KUBELET,
    "only runtimes with CRI are supported; the flag --container-runtime is removed in 1.27",
    "KEP-2221",
    Known.SEEN,
)
CGROUP_V1_REFUSED: Final = Change(
    35,
    KUBELET,
    "kubelets do not start on control groups of version 1, unless failCgroupV1 is false",
    "KEP-5573, kubernetes PR 134298",
    BOTH,
)

FOR_PEOPLE_ONLY: Final = frozenset(
    {
        REJECTED_FOR_VOLUMES,
        REJECTED_FOR_FEATURES,
        SCHEDULING_GATES,
        SIGNATURES_ARE_CHECKED,
        POD_SECURITY,
        FIELD_VALIDATION,
    }
)
"""Rows that no model and no test uses; they are for readers of the table."""
