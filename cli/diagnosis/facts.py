"""Everything that was read about a job, and derived values that finders share. Pure.

All lists are sorted, so that a diagnosis does not depend on the order of reads.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from tfjob_operator.api.core import Lease
from tfjob_operator.api.v1 import conditions, validation
from tfjob_operator.api.v1 import constants as v1
from tfjob_operator.api.v1.constants import ConditionType
from tfjob_operator.api.v1.indices import parse_indices
from tfjob_operator.api.v1.tf_config import first_ranks
from tfjob_operator.api.v1.types import InvalidSpec, JobCondition, TFJob, TFJobSpec, child_name
from tfjob_operator.api.v1.validation import MAX_REPLICAS
from tfjob_operator.api.v1alpha1 import constants as alpha
from tfjob_operator.api.v1alpha1 import validation as v1alpha1
from tfjob_operator.api.v1alpha1.constants import Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob
from tfjob_operator.cli.model import objects
from tfjob_operator.cli.model.objects import EventDetails, PodDetails
from tfjob_operator.cli.model.pods import has_started
from tfjob_operator.cli.model.replica_names import ReplicaName, replica_of
from tfjob_operator.cli.model.snapshot import JobSnapshot, snapshot_of
from tfjob_operator.cli.model.words import event_line, seconds_between
from tfjob_operator.cli.operators import TrainingOperator


class LastLine(NamedTuple):
    """The last line of a container's log, its time, and the last lines with it; the time is None if the log is empty.

    `head` is the beginning of the log of a container that requests an accelerator. `times` are those of the lines of `log`.
    """

    at: datetime | None
    text: str = ""
    log: str = ""
    head: str = ""
    times: tuple[datetime | None, ...] = ()


class Absent(NamedTuple):
    """An object that was looked up by name and does not exist, such as ("Lease", "tf-operator")."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class AlphaEvidence:
    """The API, the job and its replicas' Jobs in the alpha dialect; `batch_jobs` is None without permission to read them."""

    dialect: Dialect
    job: AlphaJob
    batch_jobs: Sequence[objects.BatchJobDetails] | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was read about a job at the time `now`; None means not requested, or no permission.

    `created_at` and `finalizers` are separate fields here, since the operator's job struct omits creationTimestamp and
    finalizers. `suspended_by` is the manager of the field `suspend`, if known. `former` are pods of an earlier job with the
    same name. `events_cut`: there were too many events to read. `logs` are the last log lines of failed containers, by (pod,
    container). `last_lines` are those of running replicas, by pod; logs are reported whose last line is older than
    `silent_after_s`.
    `storage_classes` are read if a claim is Pending.
    `unmatched` are the nodeSelectors of pods, as label selectors, that no node matches.
    `forbidden` lists what the user may not read ("nodes"), and `absent` what does not exist. `alpha` is None for a v1 job.
    `body` is the job as it was read; if it is None, what `job` or `alpha` has of it counts. `place` is that of the Workload in
    its queue, if Kueue serves it.
    `stale_lease` is a second Lease of an operator; its holder no longer renews it. `deployments` and `operator_pods` belong to
    the operator; they are read if no holder still renews a lease for the namespace, or if there are `peers`: the Deployments of
    training-operator that can write the job while they run. `elsewhere` is one that may not write in the
    namespace, running or not.
    """

    job: TFJob
    now: datetime
    created_at: datetime | None = None
    finalizers: tuple[str, ...] = ()
    pods: Sequence[PodDetails] = ()
    former: Sequence[PodDetails] = ()
    services: Sequence[objects.ReplicaService] | None = None
    events: Sequence[EventDetails] = ()
    events_cut: bool = False
    nodes: Sequence[objects.NodeDetails] | None = None
    unmatched: Sequence[str] = ()
    quotas: Sequence[objects.ResourceQuota] = ()
    limit_ranges: Sequence[objects.LimitRange] = ()
    claims: Sequence[objects.PersistentVolumeClaim] = ()
    storage_classes: Sequence[objects.StorageClass] | None = None
    namespace: objects.Namespace | None = None
    lease: Lease | None = None
    stale_lease: Lease | None = None
    deployments: Sequence[objects.OperatorDeployment] = ()
    peers: Sequence[TrainingOperator] = ()
    elsewhere: TrainingOperator | None = None
    operator_pods: Sequence[PodDetails] = ()
    crd: objects.Crd | None = None
    workload: objects.Workload | None = None
    place: objects.PendingWorkload | None = None
    pod_group: objects.PodGroupDetails | None = None
    logs: Mapping[tuple[str, str], str] = field(default_factory=dict)
    last_lines: Mapping[str, LastLine] = field(default_factory=dict)
    silent_after_s: float = 600.0
    forbidden: Sequence[str] = ()
    suspended_by: str = ""
    absent: Sequence[Absent] = ()
    alpha: AlphaEvidence | None = None
    body: Mapping[str, Any] | None = None


_OVER = frozenset({alpha.Phase.CLEAN_UP, alpha.Phase.DONE, alpha.Phase.FAILED})


@dataclass(frozen=True, slots=True)
class Shape:
    """How a job of either dialect is interpreted.

    spec: the specification; for the alpha dialect the fields that it shares with v1, without `replicas`. sizes: the number of
    replicas by v1 type. kind: the kind of the job in its events. resource: the job's resource in commands. label: the pod label
    that has the job's name. is_over: whether the status reports the end of the job by other means than conditions, as operators
    of 2018 did. runtime_id: the part that the names of all replicas share; None if the dialect has none.
    """

    spec: TFJobSpec | InvalidSpec
    sizes: Mapping[str, int]
    kind: str = v1.TFJOBS.kind
    resource: str = "tfjob"
    label: str = v1.LABEL_PREFIX + v1.LABEL_JOB_NAME
    is_over: bool = False
    runtime_id: str | None = None

    @property
    def is_alpha(self) -> bool:
        """True if every pod belongs to a Job of its own."""
        return self.runtime_id is not None

    def child(self, job: str, kind: str, index: int) -> str:
        """Return the name of a replica, which is also that of its Service and its pod or, in the alpha dialect, its Job."""
        if self.runtime_id is None:
            return child_name(job, kind, index)
        return f"{kind.lower()}-{self.runtime_id}-{index}"

    def replica_of(self, pod: PodDetails) -> str:
        """Return the name of the replica that a pod belongs to."""
        labels = pod.metadata.labels or {}
        kind, index = labels.get(alpha.LABEL_JOB_TYPE), labels.get(alpha.LABEL_TASK_INDEX)
        if self.runtime_id is None or kind is None or index is None:
            return pod.metadata.name
        return f"{kind.lower()}-{labels.get(alpha.LABEL_RUNTIME_ID, '')}-{index}"


def shape_of(evidence: Evidence) -> Shape:
    """Return the interpretation of the job. Never raises, whatever the specification."""
    job = evidence.job
    if evidence.alpha is not None:
        return _alpha(job, evidence.alpha)
    begun = job.status.begun
    spec = validation.read_spec(job.metadata.name, job.spec, was_good=begun is not None)
    return Shape(spec, spec.sizes if isinstance(spec, TFJobSpec) else begun.replicas if begun is not None else {})


def _alpha(job: TFJob, found: AlphaEvidence) -> Shape:
    status, dialect = found.job.status, found.dialect
    read = v1alpha1.read_spec(dialect, job.metadata.name, found.job.spec)
    sizes: Mapping[str, int] = status.begun.replicas if status.begun is not None else {}
    spec: TFJobSpec | InvalidSpec
    if isinstance(read, InvalidSpec):
        spec = read
    else:
        sizes = {alpha.V1_TYPES[replica.type]: replica.replicas for replica in read.replicas}
        spec = TFJobSpec(
            replicas={},
            clean_pod_policy=read.cleanup_policy,
            success_policy=v1.SuccessPolicy.DEFAULT,
            managed_by=read.managed_by,
            warnings=read.warnings,
        )
    return Shape(
        spec,
        sizes,
        kind=dialect.resource.kind,
        resource="tfjob" if dialect is alpha.KUBEFLOW else str(dialect.resource),
        label=alpha.LABEL_JOB_NAME,
        is_over=status.phase in _OVER,
        runtime_id=status.runtime_id,
    )


_NUMBER: Final = re.compile(r"(\d+)")
_ADDRESS: Final = re.compile(r"\d{1,3}(\.\d{1,3}){3}")


class Facts:
    """The evidence and values derived from it.

    Only the newest pod of a replica counts, since the alpha dialect keeps failed pods. `earlier` has the number of older pods
    by replica. `ending` is the condition that an Ending job will get. Such a job counts as finished: it needs no more pods.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.now: datetime = evidence.now
        self.job = evidence.job
        self.name = evidence.job.metadata.name
        self.namespace = evidence.job.metadata.namespace
        self.shape = shape_of(evidence)
        self.spec: TFJobSpec | InvalidSpec = self.shape.spec
        self.ending = conditions.decided_end(evidence.job.status)
        self.finished = conditions.is_over(evidence.job.status) or self.shape.is_over
        newest: dict[str, PodDetails] = {}
        self.earlier: Counter[str] = Counter()
        for pod in sorted(evidence.pods, key=self._order):
            replica = self.shape.replica_of(pod)
            self.earlier[replica] += replica in newest
            newest[replica] = pod
        self.pods: tuple[PodDetails, ...] = tuple(
            sorted(newest.values(), key=lambda pod: (natural_sort_key(pod.metadata.name), pod.metadata.uid))
        )

    def _order(self, pod: PodDetails) -> tuple[float, str]:
        age_s = self.age_s(pod.metadata.creation_timestamp)
        return (-age_s if age_s is not None else 0.0, pod.metadata.uid)

    @property
    def peers(self) -> list[TrainingOperator]:
        """The training-operators that serve the job."""
        return [peer for peer in self.evidence.peers if peer.serves_tfjobs]

    @property
    def serving(self) -> list[objects.OperatorDeployment]:
        """The Deployments of this operator, running or not, that serve the namespace."""
        return [each for each in self.evidence.deployments if each.served in {"", self.namespace}]

    @property
    def is_left_to_peer(self) -> bool:
        """True if training-operator alone serves the job: no Deployment of this operator that serves it has replicas."""
        return bool(self.peers) and not any(each.spec.replicas for each in self.serving)

    @property
    def suspended(self) -> bool:
        """True if the spec suspends the job, so that it should have no pods."""
        return self.spec.suspend

    @property
    def is_edited(self) -> bool:
        """True if the status reflects an older spec. A deletion also increases the generation, but is not an edit."""
        meta, seen = self.job.metadata, self.job.status.observed_generation
        return meta.deletion_timestamp is None and 0 < seen < meta.generation

    @cached_property
    def snapshot(self) -> JobSnapshot:
        """The job as all displays show it."""
        evidence = self.evidence
        job = evidence.body or msgspec.json.decode(
            msgspec.json.encode(evidence.alpha.job if evidence.alpha else self.job)
        )
        pods = None if "pods" in evidence.forbidden else [msgspec.to_builtins(pod) for pod in evidence.pods]
        events = map(msgspec.to_builtins, evidence.events)
        workload = msgspec.to_builtins(evidence.workload) if evidence.workload is not None else None
        return snapshot_of(job, pods, self.now.timestamp(), events, workload)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The requested number of replicas by type, as far as it is known."""
        sizes = self.shape.sizes
        return dict(sizes) if sum(sizes.values()) <= MAX_REPLICAS else {}

    def replica_of_process(self, rank: int) -> str:
        """Return the replica that is a process of Keras 3 and JAX, by its rank; "" if there is none."""
        for kind, first in first_ranks(self.sizes).items():
            if rank < first + self.sizes[kind]:
                return self.shape.child(self.name, kind, rank - first)
        return ""

    @cached_property
    def wanted(self) -> dict[str, str]:
        """The names of the replicas that should have a pod, with their types: see `Shape.child`."""
        if self.finished or self.suspended:
            return {}
        done = {
            name: parse_indices(self.job.status.finished_indices.get(name, ""), size)
            for name, size in self.sizes.items()
        }
        return {
            self.shape.child(self.name, name, index): name
            for name, size in self.sizes.items()
            for index in range(size)
            if index not in done[name]
        }

    def is_replica(self, host: str, *, by_http: bool = False) -> bool:
        """Return True if a host is one of the job's replicas, or the pod itself.

        An unknown address may be that of a deleted pod. HTTP clients have no such addresses: they are not given TF_CONFIG.
        """
        name, *domain = host.rstrip(".").lower().split(".")
        if name == "localhost" or domain[-1:] == ["localdomain"]:
            return True
        if _ADDRESS.fullmatch(host):
            known = {pod.status.pod_ip for pod in self.pods}
            is_unknown = "" in known or len(known) < sum(self.sizes.values())
            return name == "127" or host in known or (is_unknown and not by_http)
        known_names = {service.metadata.name for service in self.evidence.services or ()} | {self.name}
        runtime_id = self.shape.runtime_id or ""
        is_named = name in known_names or replica_of(None, self.name, name, runtime_id) != ReplicaName()
        if domain[:1] == [self.name]:  # the pods of a shared network have the Service's name as their domain
            domain = domain[1:]
        return is_named and domain[:1] in ([], [self.namespace])

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The replicas that should have a pod and have none; none without permission to read pods."""
        if "pods" in self.evidence.forbidden:
            return ()
        present = set(map(self.shape.replica_of, self.pods))
        return tuple(name for name in self.wanted if name not in present)

    @cached_property
    def live_pods(self) -> tuple[PodDetails, ...]:
        """The pods that have not terminated and are not being deleted; none if the job has finished."""
        if self.finished:
            return ()
        return tuple(
            pod
            for pod in self.pods
            if pod.metadata.deletion_timestamp is None and pod.status.phase not in {"Succeeded", "Failed"}
        )

    @cached_property
    def unscheduled(self) -> tuple[PodDetails, ...]:
        """The pods that have no node yet."""
        return tuple(pod for pod in self.live_pods if not pod.spec.node_name and pod.status.phase in {"", "Pending"})

    @cached_property
    def starting(self) -> tuple[PodDetails, ...]:
        """The pods with a node in which not all containers have started."""
        return tuple(pod for pod in self.live_pods if pod.spec.node_name and not has_started(pod))

    @cached_property
    def _events(self) -> dict[tuple[str, str], list[EventDetails]]:
        found: dict[tuple[str, str], list[EventDetails]] = defaultdict(list)
        for event in self.evidence.events:
            found[event.involved_object.kind, event.involved_object.name].append(event)
        for events in found.values():
            events.sort(key=lambda event: (-_age(event, self.now), event.reason, event.message, event.metadata.name))
        return found

    def events_of(self, kind: str, name: str, uid: str = "") -> tuple[EventDetails, ...]:
        """Return the events about an object, newest last, without those about an earlier object of the same name."""
        return tuple(
            event for event in self._events.get((kind, name), ()) if not uid or event.involved_object.uid in {"", uid}
        )

    def job_events(self, *reasons: str) -> tuple[EventDetails, ...]:
        """Return the events on the job with these reasons, newest last."""
        events = self.events_of(self.shape.kind, self.name, self.job.metadata.uid)
        return tuple(event for event in events if event.reason in reasons)

    def pod_events(self, pod: PodDetails, *reasons: str) -> tuple[EventDetails, ...]:
        """Return the events about a pod with these reasons, or all, newest last."""
        events = self.events_of("Pod", pod.metadata.name, pod.metadata.uid)
        return tuple(event for event in events if event.reason in reasons) if reasons else events

    def line(self, event: EventDetails) -> str:
        """Format an event as a line of evidence."""
        return event_line(event, self.now)

    def age_s(self, then: datetime | None) -> float | None:
        """Return the seconds since that time."""
        return None if then is None else seconds_between(then, self.now)

    def condition(self, kind: ConditionType) -> JobCondition | None:
        """Return this condition of the job if it is True, or if an Ending job will get it."""
        if self.ending is not None and self.ending.type == kind:
            return self.ending
        found = conditions.find(self.job.status.conditions, kind)
        return found if found is not None and found.status == conditions.TRUE else None

    def is_starting(self, pod: PodDetails) -> bool:
        """Return True if the pod is one of `starting`."""
        return id(pod) in self._starting

    @cached_property
    def _starting(self) -> frozenset[int]:
        return frozenset(map(id, self.starting))

    @cached_property
    def _absent(self) -> frozenset[tuple[str, str]]:
        return frozenset((each.kind, each.name) for each in self.evidence.absent)

    def log(self, pod: str, container: str) -> str:
        """Return the last log lines of a container, if they were read."""
        return self.evidence.logs.get((pod, container), "")

    def is_absent(self, kind: str, name: str) -> bool:
        """Return True if this object was looked up and does not exist."""
        return (kind, name) in self._absent


def natural_sort_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that orders worker-10 after worker-9."""
    parts = _NUMBER.split(name)
    return tuple(
        (0, int(part[:18]), part) if part.isdecimal() and part.isascii() else (1, 0, part) for part in parts if part
    )


def latest(events: Sequence[EventDetails]) -> tuple[EventDetails, ...]:
    """Return a tuple of the newest event, or an empty one."""
    return tuple(events[-1:])


def _age(event: EventDetails, now: datetime) -> float:
    at = event.at
    return float("inf") if at is None else seconds_between(at, now)
