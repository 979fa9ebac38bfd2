"""What differs between Kubernetes 1.20 and 1.36 in what this project depends on: one row a change, in one place.

The models (hollow node, simulated kubelet, model of the API server, small worlds) ask a version whether it `has` a change, so
each of them can behave like any version. Values only. A row says from which minor version on the change is there in a cluster with default
settings, which component makes it, what it is, where upstream decided it, and on what our knowledge rests: `READ` in that version's source,
`SEEN` on a running server or kubelet (`test/data/recordings`). `python -m hack.kubernetes_versions` prints the table as docs/compatibility.md has it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

KUBELET: Final = "kubelet"
API_SERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"


class Known(enum.Flag):
    """On what a row rests."""

    READ = enum.auto()
    SEEN = enum.auto()


@dataclass(frozen=True, slots=True)
class Change:
    """One change of behaviour. `since` is the minor version: 22 means Kubernetes 1.22."""

    since: int
    component: str
    what: str
    source: str
    known: Known


@dataclass(frozen=True, slots=True, order=True)
class Kubernetes:
    """A version of Kubernetes, by its minor number."""

    minor: int

    def has(self, change: Change) -> bool:
        """Whether clusters of this version behave by the change."""
        return self.minor >= change.since

    def __str__(self) -> str:
        return f"1.{self.minor}"

    @staticmethod
    def parse(text: str) -> Kubernetes:
        """Read `1.33`, `v1.36.3` or what else `/version` says. Raises ValueError."""
        match = re.match(r"v?1\.(\d+)(?!\d)", text)
        if match is None:
            raise ValueError(f"{text!r} is no version of Kubernetes such as 1.33")
        return Kubernetes(int(match[1]))


OLDEST: Final = Kubernetes(20)
NEWEST: Final = Kubernetes(36)

CONTAINERS_END_BEFORE_PHASE: Final = Change(
    22,
    KUBELET,
    "containers are reported terminated a second or so before the pod's phase becomes terminal",
    "kubernetes PR 108366",
    Known.SEEN,
)
"""The phase becomes terminal only when the pod worker has finished with the pod."""
DELETION_ENDS_IN_TERMINAL_PHASE: Final = Change(
    27,
    KUBELET,
    "a pod that is deleted gets phase Succeeded or Failed before it goes, under every restart policy",
    "kubernetes PR 115331",
    Known.SEEN,
)
DEADLINE_WAITS_FOR_CONTAINERS: Final = Change(
    22,
    KUBELET,
    "a pod past its activeDeadlineSeconds is Failed when its containers have ended, not while they still run",
    "kubernetes PR 108366",
    Known.SEEN,
)
DELETION_TIMESTAMP_MOVES: Final = Change(
    33,
    API_SERVER,
    "a later delete with less grace never leaves a deletionTimestamp in the past: that of the kubelet's last one is its own time",
    "kubernetes PR 122646",
    Known.SEEN,
)
DISRUPTION_TARGET: Final = Change(
    26,
    CONTROLLERS,
    "whoever takes a pod away (eviction API, taints, preemption, node shutdown) sets its condition DisruptionTarget",
    "KEP-3329",
    Known.SEEN,
)
SHUTDOWN_TELLS_THE_TRUTH: Final = Change(
    22,
    KUBELET,
    "at a node's shutdown pods end as their containers do, with statuses; before, all were Failed with reason Shutdown at once",
    "KEP-2000",
    Known.SEEN,
)
NATIVE_SIDECARS: Final = Change(
    29,
    KUBELET,
    "init containers with restartPolicy Always run beside the others and end after them",
    "KEP-753",
    Known.SEEN,
)
SANDBOX_CONDITION: Final = Change(
    29, KUBELET, "pods have the condition PodReadyToStartContainers", "KEP-3085", Known.SEEN
)
SCHEDULING_GATES: Final = Change(27, API_SERVER, "pods wait for their schedulingGates", "KEP-3521", Known.SEEN)
CONTAINER_RESTART_RULES: Final = Change(
    35, KUBELET, "containers have a restartPolicy and restartPolicyRules of their own", "KEP-5307", Known.SEEN
)
RESTART_ALL_CONTAINERS: Final = Change(
    36, KUBELET, "a rule can restart all containers of a pod in place", "KEP-5532", Known.SEEN
)
POD_GENERATION: Final = Change(
    34, API_SERVER, "pods have metadata.generation, and status.observedGeneration", "KEP-5067", Known.SEEN
)
TAINT_EVICTION_CONTROLLER: Final = Change(
    29, CONTROLLERS, "eviction by taints is a controller of its own, taint-eviction-controller", "KEP-3902", Known.SEEN
)
TOKENS_BY_REQUEST: Final = Change(
    24, CONTROLLERS, "service accounts get no token Secret; tokens come by TokenRequest", "KEP-2799", Known.SEEN
)
NAMESPACE_NAME_LABEL: Final = Change(
    21, API_SERVER, "namespaces have the label kubernetes.io/metadata.name", "KEP-2161", Known.SEEN
)
SERVICE_DELETE_ANSWERS_OBJECT: Final = Change(
    22, API_SERVER, "DELETE of a service answers with the service, not with a Status", "kubernetes PR 95894", Known.SEEN
)
IDLE_BOOKMARKS: Final = Change(
    31, API_SERVER, "watches of idle collections get a bookmark a minute", "KEP-2340", Known.SEEN
)
WATCH_REFUSED_WHILE_INITIALISING: Final = Change(
    31,
    API_SERVER,
    "a watch is refused with 429 while its cache initialises, as after each change of a CRD",
    "KEP-4568",
    Known.SEEN,
)
STREAMING_LISTS: Final = Change(
    34, API_SERVER, "a watch with sendInitialEvents begins with the whole collection", "KEP-3157", Known.SEEN
)
LISTS_FROM_SNAPSHOTS: Final = Change(
    34, API_SERVER, "exact lists and continue tokens survive a compaction: no 410", "KEP-4988", Known.SEEN
)
PUT_OF_GONE_IS_NOT_FOUND: Final = Change(
    31, API_SERVER, "PUT with the UID of an object that is gone is 404, not 409", "to be read", Known.SEEN
)
# What the model of the API server asks besides.
SERVICES_ARE_GENERIC: Final = Change(
    23,
    API_SERVER,
    "services are stored as all else: PUT creates one that is not there, and another UID is a 409, not a 422",
    "kubernetes PR 107151 and those before it",
    Known.SEEN,
)
DELETE_ANSWERS_LAST_VERSION: Final = Change(
    26,
    API_SERVER,
    "the object in the answer to its DELETE bears the version of the deletion",
    "etcd3/store.go",
    Known.READ | Known.SEEN,
)
INITIAL_EVENTS_ARE_CHECKED: Final = Change(
    27,
    API_SERVER,
    "a watch with sendInitialEvents is refused where it can not be had; before, the parameter was not known",
    "KEP-3157",
    Known.READ | Known.SEEN,
)
CACHES_KNOW_PROGRESS: Final = Change(
    31,
    API_SERVER,
    "a watch cache asks etcd how far it is, so that the versions of idle collections move on, and reads wait for them",
    "KEP-2340",
    Known.READ | Known.SEEN,
)
LIST_VERSION_IS_CHECKED: Final = Change(
    33,
    API_SERVER,
    "a list at a resourceVersion that is no number is a 400, not a 500",
    "storage/interfaces.go",
    Known.READ | Known.SEEN,
)
VALUES_ARE_PRINTED_AS_JSON: Final = Change(
    34,
    API_SERVER,
    "refusals show values as JSON: 0 instead of 0x0",
    "util/validation/field/errors.go",
    Known.READ | Known.SEEN,
)
LABELS_ARE_MEASURED_IN_BYTES: Final = Change(
    35,
    API_SERVER,
    "a label that is too long has too many bytes, not characters",
    "api/validate/content/errors.go",
    Known.READ | Known.SEEN,
)
REFUSALS_ARE_REWORDED: Final = Change(
    32,
    API_SERVER,
    "what is too long `may not be more than` so many bytes",
    "util/validation/field/errors.go",
    Known.READ | Known.SEEN,
)
SERVICE_NAMES_ARE_RELAXED: Final = Change(
    36, API_SERVER, "names of services may begin with a digit", "KEP-5311", Known.READ | Known.SEEN
)
