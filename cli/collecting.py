"""Reads the evidence for a diagnosis with the user's permissions. Objects that the user may not read are omitted and listed.

Expensive reads are limited to the nodes of the job's pods, the last log lines of failed containers and of the replica by which
a job has succeeded, and of some containers that run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from tfjob_operator.api import core
from tfjob_operator.api.meta import Resource, controller_of
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import JobMeta, JobStatus, TFJob, child_name, tfjob_with_unreadable_status
from tfjob_operator.api.v1alpha1.constants import KUBEFLOW, TENSORFLOW
from tfjob_operator.api.v1alpha1.types import AlphaJob, job_with_unreadable_status
from tfjob_operator.cli import jobs
from tfjob_operator.cli.diagnosis import operator
from tfjob_operator.cli.diagnosis.advice import COUNTED
from tfjob_operator.cli.diagnosis.causes import fill
from tfjob_operator.cli.diagnosis.facts import Absent, AlphaEvidence, Evidence, Facts, LastLine
from tfjob_operator.cli.diagnosis.operator import is_renewed
from tfjob_operator.cli.errors import ApiServerError, CliError
from tfjob_operator.cli.logs.lines import LOG_GONE
from tfjob_operator.cli.model import facts, objects
from tfjob_operator.cli.model.pods import (
    condition_of,
    exits_of,
    is_down_after,
    is_training,
    running_inits,
    running_since,
)
from tfjob_operator.cli.model.words import seconds_between
from tfjob_operator.cli.operators import MOVED, ClusterState, TrainingOperator, is_proven, may_write, read_deployment
from tfjob_operator.cli.operators import SELECTOR as PEER
from tfjob_operator.cli.permissions import ResourceAttributes
from tfjob_operator.cli.selection import selector_of
from tfjob_operator.cli.session import Session

_VISIBILITY: Final = "visibility.kueue.x-k8s.io"
LEASE: Final = "tf-operator"
"""The name of the operator's Lease, in any namespace."""
OPERATOR: Final = "app.kubernetes.io/name=tfjob-operator,app.kubernetes.io/component!=page"
"""Selects the operator's Deployments. The page's Deployment has the same name label."""
MAX_LOGS: Final = 3
"""The most containers whose logs are read: the others usually have the same messages, or ended as a consequence."""
MAX_LAST_LINES: Final = 10
"""The most running replicas whose last log lines are read, with one request each."""
_SOON_S: Final = 30.0
"""How long a replica must have been running. A program that fails at its start has written its exception by then."""
SILENT_AFTER_S: Final = 600.0
"""A running replica that has logged nothing for this long may hang."""
MAX_NODES: Final = 20
"""The most nodes of running pods that are read, with one request each."""
_LINES: Final = 400
"""A traceback of TensorFlow has up to 60 lines, with the reason at its end or at its beginning. Libraries that upload results
log hundreds of lines after it."""
_LOG_BYTES: Final = 262_144
_LAST_LINES: Final = 200
_HEAD_BYTES: Final = 65_536
"""At their beginning, libraries log which devices they have found."""
_MAX_EVENTS: Final = 50_000
"""The most events of a namespace that are read, with one request per page: those of the job may be the last."""
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404

T = TypeVar("T")
_Filter = Callable[[T], bool]


class _ObjectPage(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: dict[str, Any] = {}


def _page(body: bytes) -> dict[str, Any]:
    """Return a page of a list, of objects in JSON."""
    try:
        return msgspec.structs.asdict(msgspec.json.decode(body, type=_ObjectPage))
    except RecursionError as error:
        raise ValueError("too many levels of nesting") from error


def collect(
    session: Session,
    name: str,
    now: datetime,
    silent_after_s: float = SILENT_AFTER_S,
    *,
    granted: frozenset[ResourceAttributes] | None = None,
) -> Evidence:
    """Read everything about a job, including last log lines unless `silent_after_s` is 0. Raises CliError.

    Beside the job, only reads with a permission in `granted` are sent, if it is given; the others count as forbidden.
    """
    whole = jobs.get(session, name)
    raw = msgspec.json.encode(whole)
    reader = _EvidenceReader(session, granted)
    meta = whole["metadata"]
    name = meta["name"]
    alpha = _alpha(reader, raw, whole)
    job = _job(raw) if alpha is None else _as_v1(alpha.job, whole)
    selector = selector_of(whole)
    owners = {job.metadata.uid} if alpha is None else _owners(alpha)
    labelled = reader.selected(core.PODS, objects.PodDetails, selector) or []
    pods = [pod for pod in labelled if _is_of(pod, owners)]
    claims = {
        volume.persistent_volume_claim.claim_name
        for pod in pods
        for volume in pod.spec.volumes or ()
        if volume.persistent_volume_claim is not None
    }
    space = reader.space()
    peers, elsewhere = reader.peers(space)
    lease, stale_lease = reader.lease(now, beside=bool(peers))
    found_claims = reader.claims(sorted(claims))
    workload = reader.workload(job) if c.LABEL_QUEUE in (job.metadata.labels or {}) else None
    return Evidence(
        job=job,
        now=now,
        created_at=_time(meta.get("creationTimestamp")),
        finalizers=tuple(meta.get("finalizers") or ()),
        pods=pods,
        former=[pod for pod in labelled if not _is_of(pod, owners)],
        services=reader.selected(core.SERVICES, objects.ReplicaService, selector),
        events=reader.events(lambda each: _concerns(each, name, claims, _runtime_id(alpha))),
        events_cut=reader.events_cut,
        nodes=reader.nodes_of(pods),
        unmatched=reader.unmatched(pods),
        quotas=reader.here(objects.RESOURCE_QUOTAS, objects.ResourceQuota, "quotas"),
        limit_ranges=reader.here(objects.LIMIT_RANGES, objects.LimitRange, "limit ranges"),
        claims=found_claims,
        storage_classes=reader.storage_classes(found_claims),
        namespace=space,
        lease=lease,
        stale_lease=stale_lease,
        deployments=reader.deployments,
        peers=peers,
        elsewhere=elsewhere,
        operator_pods=reader.operator_pods,
        crd=reader.one(objects.CRDS, objects.Crd, f"{jobs.PLURAL}.{facts.group_of(whole)}", "CRDs"),
        workload=workload,
        place=reader.place(workload) if workload is not None else None,
        pod_group=reader.pod_group(name),
        logs=reader.logs(job, pods, now),
        last_lines=reader.last_lines(pods, now, silent_after_s),
        silent_after_s=silent_after_s,
        forbidden=sorted(reader.forbidden),
        suspended_by=_manager_of_suspend(meta),
        absent=reader.absent,
        alpha=alpha,
        body=whole,
    )


def obstacle(session: Session, job: Mapping[str, Any], now: datetime, *, whole: bool, have_run: bool) -> str:
    """Return why a restart would be harmful or useless; "" if nothing is known against it, or if that cannot be read.

    `whole`: the whole job is to be restarted, otherwise some of its pods. `have_run`: at least one of the pods has started.
    """
    reader = _EvidenceReader(session)
    peers, elsewhere = reader.peers(reader.space())
    lease, _ = reader.lease(now, beside=bool(peers))
    evidence = Evidence(
        job=_job(msgspec.json.encode(job)),
        now=now,
        lease=lease,
        deployments=reader.deployments,
        peers=peers,
        elsewhere=elsewhere,
        forbidden=sorted(reader.forbidden),
        absent=reader.absent,
    )
    facts = Facts(evidence)
    for finding in operator.find(facts):
        if finding.problem.id in operator.SURELY_STOPPED:
            title = fill(finding.problem.title, {"namespace": session.namespace, **finding.values})
            return f"nobody would recreate its pods: {title}"
    if whole and facts.is_left_to_peer:
        return f"training-operator {facts.peers[0]} serves it, which cannot restart whole jobs"
    return COUNTED if have_run and facts.peers else ""


class _EvidenceReader:
    """Reads objects of one namespace. `forbidden` lists kinds without read permission; `absent` lists missing objects."""

    def __init__(self, session: Session, granted: frozenset[ResourceAttributes] | None = None) -> None:
        self._session = session
        self._granted = granted
        self._here = session.namespace
        self.forbidden: set[str] = set()
        self.absent: list[Absent] = []
        self.events_cut = False
        self.deployments: list[objects.OperatorDeployment] = []
        self.operator_pods: list[objects.PodDetails] = []

    def one(self, resource: Resource, kind: type[T], name: str, words: str) -> T | None:
        """Return an object, or None if it does not exist or the user may not read it."""
        here = self._here if resource.namespaced or resource == objects.NAMESPACES else ""
        read = ResourceAttributes("get", resource, here, name)
        try:
            path = read.path
        except ValueError:  # a template or a pod names what no object can be called
            return None
        raw = self._read(read, words, path=path)
        return _decoded(raw, kind) if raw is not None else None

    def all(self, resource: Resource, kind: type[T], words: str, name: str = "", **query: str) -> list[T] | None:
        """Return the objects of all namespaces or, if that is forbidden, of this namespace; None if this namespace has none."""
        found = self._list(ResourceAttributes("list", resource, "", name), kind, words, query)
        return found if found is not None else self.here(resource, kind, words, name, **query) or None

    def here(self, resource: Resource, kind: type[T], words: str, name: str = "", **query: str) -> list[T]:
        """Return the objects of the namespace, an empty list without permission."""
        return self._list(ResourceAttributes("list", resource, self._here, name), kind, words, query) or []

    def selected(self, resource: Resource, kind: type[T], selector: str) -> list[T] | None:
        """Return the objects of the namespace with these labels, None without permission."""
        read = ResourceAttributes("list", resource, self._here)
        return self._list(read, kind, resource.plural, {"labelSelector": selector})

    def events(self, concerns: Callable[[objects.EventDetails], bool]) -> list[objects.EventDetails]:
        """Return the matching events among the first `_MAX_EVENTS` of the namespace; sets `events_cut` if there are more."""
        read = ResourceAttributes("list", core.EVENTS, self._here)
        return self._list(read, objects.EventDetails, "events", {}, concerns) or []

    def nodes_of(self, pods: Sequence[objects.PodDetails]) -> list[objects.NodeDetails] | None:
        """Return the nodes of the first pods, None without permission."""
        names = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
        nodes: list[objects.NodeDetails] = []
        for name in names[:MAX_NODES]:
            node = self.one(objects.NODES, objects.NodeDetails, name, "nodes")
            if node is None and "nodes" in self.forbidden:
                return None
            nodes += [node] if node is not None else []
        return nodes

    def unmatched(self, pods: Sequence[objects.PodDetails]) -> list[str]:
        """Return the nodeSelectors of pods without a node that no node matches, as label selectors."""
        selectors = {pod.spec.label_selector for pod in pods if not pod.spec.node_name} - {""}
        read, found = ResourceAttributes("list", objects.NODES), list[str]()
        with suppress(ApiServerError):  # few users may list nodes, and it only decides about the order of advice
            for selector in sorted(selectors)[:MAX_NODES] if read.is_granted(self._granted) else ():
                page = _page(self._session.read(read.path, labelSelector=selector, limit=1))
                found += [selector] if not page["items"] else []
        return found

    def claims(self, names: Sequence[str]) -> list[objects.PersistentVolumeClaim]:
        """Return the claims with these names, and record which do not exist."""
        if not names:
            return []
        read = ResourceAttributes("list", objects.CLAIMS, self._here)
        found = self._list(read, objects.PersistentVolumeClaim, "persistent volume claims", {})
        if found is None:
            return []
        there = {claim.metadata.name for claim in found}
        self.absent += [Absent(objects.CLAIMS.kind, name) for name in names if name not in there]
        return [claim for claim in found if claim.metadata.name in names]

    def storage_classes(self, claims: Sequence[objects.PersistentVolumeClaim]) -> list[objects.StorageClass] | None:
        """Return the StorageClasses if a claim waits for one; None without permission."""
        read = ResourceAttributes("list", objects.STORAGE_CLASSES)
        if any(claim.status.phase == "Pending" and claim.spec.storage_class_name for claim in claims):
            with suppress(ApiServerError):  # few users may list them; without them, the advice names the command
                if read.is_granted(self._granted):
                    items = _page(self._session.read(read.path))["items"]
                    return [each for raw in items if (each := _decoded(raw, objects.StorageClass)) is not None]
        return None

    def space(self) -> objects.Namespace | None:
        """Return the namespace."""
        return self.one(objects.NAMESPACES, objects.Namespace, self._here, "the namespace")

    def peers(self, space: objects.Namespace | None) -> tuple[list[TrainingOperator], TrainingOperator | None]:
        """Return the Deployments of training-operator that can write jobs of the namespace while they run, and one that cannot.

        Without permission there are none: few users may read them, and only administrators can do something about them.
        """
        found = self._unnoted(ResourceAttributes("list", core.DEPLOYMENTS), labelSelector=PEER)
        if not found:
            return [], None
        is_moved = space is not None and MOVED in (space.metadata.labels or {})
        bindings = self._unnoted(ResourceAttributes("list", objects.CLUSTER_ROLE_BINDINGS))
        cluster = ClusterState(found, None, moved=[self._here] * is_moved, bindings=bindings)
        proven = [peer for peer in map(read_deployment, found) if is_proven(cluster, peer)]
        peers = [peer for peer in proven if may_write(cluster, peer, self._here)]
        return peers, next((peer for peer in proven if peer not in peers), None)

    def _unnoted(self, read: ResourceAttributes, **query: str) -> list[Mapping[str, Any]] | None:
        """Return the objects of a list; None without permission, which is not reported."""
        with suppress(ApiServerError):
            if read.is_granted(self._granted):
                items = _page(self._session.read(read.path, **query))["items"]
                return [each for raw in items or () if (each := _decoded(raw, dict[str, Any])) is not None]
        return None

    def lease(self, now: datetime, *, beside: bool = False) -> tuple[core.Lease | None, core.Lease | None]:
        """Return the most recently renewed lease of an operator for this namespace, and a stale one.

        Deployments and pods of the operator are also read, unless the lease of this namespace, or the only lease, is renewed in
        time and no other operator is `beside` it. If there is no lease, this is recorded in `absent`.
        """
        here = self._here
        leases = self.all(core.LEASES, core.Lease, "leases", LEASE)
        if leases is not None and not leases:
            self.absent.append(Absent(core.LEASES.kind, LEASE))
        leases = leases or []
        renewed = [lease for lease in leases if is_renewed(lease, now)]
        own = [lease for lease in renewed if lease.metadata.namespace == here]
        if not beside and (own or (renewed and len(leases) == 1)):
            return (own or renewed)[0], None
        self.deployments = (
            self.all(core.DEPLOYMENTS, objects.OperatorDeployment, "deployments", labelSelector=OPERATOR) or []
        )
        if "leases" in self.forbidden and not self.deployments:
            return None, None  # the relevant Lease may be in another namespace
        serving = {deployment.metadata.namespace for deployment in self.deployments if deployment.served in {"", here}}
        if serving and not renewed:
            selector = "name=tf-job-operator"
            self.operator_pods = (
                self.all(core.PODS, objects.PodDetails, "pods of the operator", labelSelector=selector) or []
            )
        elsewhere = {deployment.metadata.namespace for deployment in self.deployments} - serving
        dated = {
            lease.spec.renew_time: lease
            for lease in leases
            if lease.spec is not None
            and lease.spec.renew_time is not None
            and lease.metadata.namespace not in elsewhere
        }
        stale = [lease for lease in dated.values() if lease not in renewed]
        return dated[max(dated)] if dated else None, stale[-1] if stale else None

    def workload(self, job: TFJob) -> objects.Workload | None:
        """Return the Workload of a job, in the version that this Kueue prefers."""
        needs = ResourceAttributes("list", objects.WORKLOADS, self._here)
        raw = self._read(needs, "workloads", path=f"/apis/{objects.WORKLOADS.group}")
        if raw is None:
            return None
        version = msgspec.json.decode(raw)["preferredVersion"]["version"]
        resource = Resource(objects.WORKLOADS.group, version, objects.WORKLOADS.plural, objects.WORKLOADS.kind)
        for workload in self.here(resource, objects.Workload, "workloads"):
            owner = controller_of(workload.metadata)
            if owner is not None and owner.uid == job.metadata.uid:
                return workload
        return None

    def place(self, workload: objects.Workload) -> objects.PendingWorkload | None:
        """Return the place of a Workload in its queue; None if it does not wait, or if this cannot be read."""
        reserved = condition_of(workload.status.conditions, "QuotaReserved")
        if reserved is not None and reserved.status == "True":
            return None
        name, queue = workload.metadata.name, quote(workload.spec.queue_name, safe="")
        with suppress(CliError, msgspec.ValidationError):  # few clusters serve it, and few users may read it
            version = self._session.get(f"/apis/{_VISIBILITY}")["preferredVersion"]["groupVersion"]
            where = f"/apis/{version}/namespaces/{self._session.namespace}/localqueues/{queue}/pendingworkloads"
            found = msgspec.json.decode(self._session.read(where), type=objects.PendingWorkloads)
            return next((item for item in found.items or () if item.metadata.name == name), None)
        return None

    def pod_group(self, name: str) -> objects.PodGroupDetails | None:
        """Return the job's PodGroup of either gang scheduler."""
        for resource in (core.VOLCANO_POD_GROUPS, core.COSCHEDULING_POD_GROUPS):
            found = self.one(resource, objects.PodGroupDetails, name, "pod groups")
            if found is not None:
                return found
        return None

    def logs(self, job: TFJob, pods: Sequence[objects.PodDetails], now: datetime) -> dict[tuple[str, str], str]:
        """Return the last log lines of failed containers, and then of init containers that still run.

        First that of the pod whose failure ended the job, then those that are down, in the order of their ends. The log of the
        replica by which a job has succeeded is read too.
        """
        record = conditions.end_record(job.status)
        decided_by = record.failure.pod_name if record is not None and record.failure is not None else ""
        failed = sorted(
            (end for pod in pods for end in exits_of(pod)),
            key=lambda end: (
                end.pod.metadata.name != decided_by,
                not is_down_after(end, now),
                end.ended.finished_at or now,
            ),
        )
        ends = [(end.pod.metadata.name, end.container, end.now) for end in failed]
        if conditions.is_true(job.status, c.ConditionType.SUCCEEDED):
            deciders = [child_name(job.metadata.name, kind, 0) for kind in (*c.CHIEF_TYPES, c.WORKER)]
            done = {pod.metadata.name for pod in pods if pod.status.phase == "Succeeded"}
            ends = [*[(name, c.CONTAINER_NAME, True) for name in deciders if name in done][:1], *ends]
        running = [(pod.metadata.name, name) for pod in pods for name in running_inits(pod)]
        ends += [(*each, True) for each in running if each not in {end[:2] for end in ends}]
        found: dict[tuple[str, str], str] = {}
        for pod, container, is_last in ends:
            if len(found) == MAX_LOGS or "logs" in self.forbidden:
                break
            query = {"container": container, "tailLines": _LINES, "limitBytes": _LOG_BYTES}
            with suppress(_NoLogError):
                query |= {} if is_last else {"previous": "true"}
                raw = self._read(self._log_of(pod), "logs", query) or b""
                found[pod, container] = "" if raw.startswith(LOG_GONE) else raw.decode(errors="replace")
        return found

    def last_lines(
        self, pods: Sequence[objects.PodDetails], now: datetime, silent_after_s: float
    ) -> dict[str, LastLine]:
        """Return the last log lines, by pod, of the first replicas that train; none if `silent_after_s` is 0."""
        found: dict[str, LastLine] = {}
        for pod in pods if silent_after_s else ():
            since, name = running_since(pod), pod.metadata.name
            if since is None or seconds_between(since, now) < min(silent_after_s, _SOON_S) or not is_training(pod):
                continue
            if len(found) == MAX_LAST_LINES or "logs" in self.forbidden:
                break
            query = {
                "container": c.CONTAINER_NAME,
                "tailLines": _LAST_LINES,
                "limitBytes": _LOG_BYTES,
                "timestamps": "true",
            }
            with suppress(_NoLogError):
                raw = self._read(self._log_of(name), "logs", query)
                stamped = [
                    line.partition(" ") for line in (raw or b"").decode(errors="replace").rstrip("\n").split("\n")
                ]
                text = stamped[-1][2]
                lines, head = "\n".join(line for _, _, line in stamped), b""
                if len(stamped) == _LAST_LINES and _requests_accelerator(pod):
                    first = {"container": c.CONTAINER_NAME, "limitBytes": _HEAD_BYTES}
                    head = self._read(self._log_of(name), "logs", first) or b""
                times = tuple(_time(each) for each, *_ in stamped)
                found[name] = LastLine(times[-1], text, lines, head.decode(errors="replace"), times)
        return found if "logs" not in self.forbidden else {}

    def _log_of(self, pod: str) -> ResourceAttributes:
        return ResourceAttributes("get", core.PODS, self._here, pod, "log")

    def _list(
        self,
        read: ResourceAttributes,
        kind: type[T],
        words: str,
        query: dict[str, str],
        chosen: _Filter[T] | None = None,
    ) -> list[T] | None:
        """Return the objects. A filter is applied only to the first `_MAX_EVENTS`."""
        if not read.is_granted(self._granted):
            self.forbidden.add(words)
            return None
        query = query | {"fieldSelector": f"metadata.name={read.name}"} if read.name else query
        found: list[T] = []
        page: dict[str, Any] = {}
        most = None if chosen is None else _MAX_EVENTS
        try:
            for page in self._session.pages(read.path, most, parse=_page, **query):
                decoded = [each for item in page["items"] or () if (each := _decoded(item, kind)) is not None]
                found += decoded if chosen is None else filter(chosen, decoded)
        except ApiServerError as error:
            self._note(error, words)
            return None if words in self.forbidden else []
        self.events_cut |= chosen is not None and bool(page["metadata"].get("continue"))
        return found

    def _note(self, error: ApiServerError, words: str) -> None:
        """Record missing permission, and accept that nothing exists. Raises all other errors."""
        if error.code == _FORBIDDEN:
            self.forbidden.add(words)
        elif error.code != _NOT_FOUND:
            raise error

    def _read(
        self, read: ResourceAttributes, words: str, query: Mapping[str, Any] | None = None, path: str = ""
    ) -> bytes | None:
        """Return the response of a read, or of a `path` that needs the same permission.

        None if the object does not exist or the user may not read it. Raises _NoLogError.
        """
        is_log = read.subresource == "log"
        if not read.is_granted(self._granted):
            self.forbidden.add(words)
            return None
        try:
            return self._session.read(path or read.path, **query or {})
        except ApiServerError as error:
            if is_log and error.code != _FORBIDDEN:  # 400 and 404: there is none; 5xx: the kubelet does not respond
                raise _NoLogError from error
            self._note(error, words)
            return None
        except CliError as error:
            if is_log:
                raise _NoLogError from error
            raise


def _requests_accelerator(pod: objects.PodDetails) -> bool:
    """Return True if a container of a pod requests an extended resource."""
    resources = (container.resources for container in pod.spec.containers or ())
    return any("/" in name for each in resources if each is not None for name in each.limits or ())


class _NoLogError(Exception):
    """A container has no log or no previous log, or its node is unreachable."""


def _job(raw: bytes) -> TFJob:
    try:
        return msgspec.json.decode(raw, type=TFJob)
    except msgspec.ValidationError as error:
        return tfjob_with_unreadable_status(raw, error)


def _decoded(raw: bytes | msgspec.Raw, kind: type[T]) -> T | None:
    """Decode an object; None if it is invalid, so that the others can still be used."""
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except (msgspec.DecodeError, RecursionError):
        return None


def _alpha(reader: _EvidenceReader, raw: bytes, whole: Mapping[str, Any]) -> AlphaEvidence | None:
    """Return the alpha dialect's data of a job that the alpha controller manages; None for any other job."""
    dialect = TENSORFLOW if facts.group_of(whole) == facts.TENSORFLOW_GROUP else KUBEFLOW
    try:
        job = msgspec.json.decode(raw, type=AlphaJob)
    except msgspec.ValidationError as error:
        job = job_with_unreadable_status(raw, error)
    if not job.is_of(dialect):
        return None
    found = reader.selected(objects.BATCH_JOBS, objects.BatchJobDetails, selector_of(whole))
    if found is None:
        return AlphaEvidence(dialect, job)
    uid = job.metadata.uid
    return AlphaEvidence(
        dialect, job, [each for each in found if (owner := controller_of(each.metadata)) is None or owner.uid == uid]
    )


def _as_v1(alpha: AlphaJob, whole: Mapping[str, Any]) -> TFJob:
    """Return a job of the alpha dialect with the status fields that it shares with v1."""
    status = alpha.status
    return TFJob(
        metadata=msgspec.json.decode(msgspec.json.encode(whole["metadata"]), type=JobMeta),
        spec=msgspec.Raw(msgspec.json.encode(whole.get("spec"))),
        status=JobStatus(
            conditions=status.conditions or (),
            finished_indices=status.finished_indices,
            begun=status.begun,
            start_time=status.start_time,
            completion_time=status.completion_time,
            observed_generation=status.observed_generation,
            phase=status.phase,
        ),
    )


def _owners(alpha: AlphaEvidence) -> set[str] | None:
    """Return the UIDs of possible owners of an alpha job's pods; None if they are unknown."""
    return (
        None if alpha.batch_jobs is None else {alpha.job.metadata.uid, *(job.metadata.uid for job in alpha.batch_jobs)}
    )


def _runtime_id(alpha: AlphaEvidence | None) -> str:
    return alpha.job.status.runtime_id if alpha is not None else ""


def _is_of(pod: objects.PodDetails, owners: set[str] | None) -> bool:
    owner = controller_of(pod.metadata)
    return owner is None or owners is None or owner.uid in owners


def _concerns(event: objects.EventDetails, job: str, claims: set[str], runtime_id: str) -> bool:
    name = event.involved_object.name
    return (
        name == job or name.startswith(f"{job}-") or name in claims or (bool(runtime_id) and f"-{runtime_id}-" in name)
    )


def _time(text: object) -> datetime | None:
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None


def _manager_of_suspend(meta: Mapping[str, Any]) -> str:
    """Return the last manager in `managedFields` that owns `spec.runPolicy.suspend`; "" if there is none."""
    found = ""
    for entry in meta.get("managedFields") or ():
        spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if "f:suspend" in (spec.get("f:runPolicy") or {}):
            found = str(entry.get("manager", ""))
    return found
