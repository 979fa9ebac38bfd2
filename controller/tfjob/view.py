"""A job as one sync sees it: its newest version, its children, and whether children may be created or deleted.

A cache lags behind the API server and our own writes. An operator that has just started may have listed from a stale API server
cache. Such a cache may show a job as running although another leader has finished it and cleaned it up. Acting on it would run
the job again. So most views are confirmed by a read (`apply.confirmer`) before the controller acts on them. A job with a
resourceVersion from our own leadership term and an empty status needs no confirmation (`LeadershipTerm`): controllers write the
status before anything else, and no other process has been active since.

API servers prune status fields that the CRD lacks because it is outdated or belongs to another operator. The pruned fields
are then restored in the view (`PrunedStatus`); otherwise each sync would find the status incomplete and write it again. They
are written again when the CRD is repaired.

Invariants:

- No child is created or deleted on an unconfirmed view. A view is confirmed by the status write of the same sync, or by a read.
  Two cases need no confirmation: a job whose end is decided, since that is final; and the first action on a job whose
  resourceVersion is from our leadership term and whose status is empty, if we never tried to write a status.
- A resourceVersion from before we acquired the lease is never mistaken for one of our term.
- Expectations are checked before the caches are read. While they are not satisfied, nothing is created or deleted: a child
  that arrives between check and read delays the job but is never created twice.
- Our own status write replaces the cached version until the watch delivers it. Resource versions are compared only for
  equality, except to determine whether one is from our leadership term.
- Observed facts that are not written yet are part of the view: a replica has succeeded even if its pod is gone.
- A restart record is not moved to a pod that does not exist on the server: the view may be stale, and the restarts of that pod
  may be counted already.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.errors import ApiError
from tfjob_operator.api.core import EventType
from tfjob_operator.api.meta import OWNER_INDEX, PartialObjectMetadata, meta_key, owner_uid_key, version_number
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import TFJOBS, EventReason
from tfjob_operator.api.v1.tf_config import too_long
from tfjob_operator.api.v1.types import InvalidSpec, JobStatus, TFJob, TFJobSpec
from tfjob_operator.api.v1.validation import BOUNDS, Bound
from tfjob_operator.api.v1alpha1.types import is_alpha
from tfjob_operator.controller.jobs.blocked import BlockedChildren
from tfjob_operator.controller.jobs.children import ORPHAN_INDEX, Pod, Service
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.handlers import Feed
from tfjob_operator.controller.jobs.pending import PendingStatus
from tfjob_operator.controller.jobs.writes import JobEvents
from tfjob_operator.controller.tfjob.apply.creator import POD
from tfjob_operator.controller.tfjob.caches import TFJobCaches
from tfjob_operator.controller.tfjob.crd_check import REMEDY
from tfjob_operator.controller.tfjob.log_reader import LogReader
from tfjob_operator.controller.tfjob.nodes import NodeCache
from tfjob_operator.controller.tfjob.plan.clocks import FirstSeen
from tfjob_operator.controller.tfjob.plan.placement import Nodes
from tfjob_operator.controller.tfjob.plan.replicas import is_from_other_operator, unobserved
from tfjob_operator.controller.tfjob.plan.silence import NO_LOGS
from tfjob_operator.controller.tfjob.plan.spec import effective_spec, read, refused, spec_cache_key
from tfjob_operator.controller.tfjob.plan.status import merged_status
from tfjob_operator.controller.tfjob.plan.types import DEFAULTS, Defaults, PlanInput
from tfjob_operator.workqueue import Clock

log = structlog.get_logger(__name__)
PROBE_S: Final = 60.0
"""How often a status whose fields were pruned is written again: one job costs one write a minute."""
LOGGED_AGAIN_S: Final = 3600.0
"""How long after the end of a job a new operator process logs it again."""


class _Pruned(NamedTuple):
    key: str
    fields: dict[str, Any]


class LeadershipTerm:
    """The time since this process acquired the lease.

    Resource versions of one kind of object are increasing numbers (KEP-5504, and etcd's revisions before it). If they are not
    numbers, no version is considered to be from our term.
    """

    def __init__(self, client: RestClient, namespace: str) -> None:
        """No version is from our term before `begin`. `namespace` "" means all."""
        self._client = client
        self._namespace = namespace
        self._since = math.inf

    async def begin(self) -> None:
        """Read the server's current resourceVersion; call this only when no earlier leader can write anymore.

        If the read fails, no ApiError is raised; views are then confirmed with the server instead.
        """
        try:
            # Without a resourceVersion the response comes from etcd, and not from a cache that may be stale.
            newest = await self._client.list_page(TFJOBS, ListOptions(self._namespace, limit=1), PartialObjectMetadata)
            self._since = int(newest.metadata.resource_version)
        except (ApiError, ValueError) as error:  # the version need not be a number
            log.debug("leadership_term_unknown", error=str(error))

    def is_untouched(self, job: TFJob) -> bool:
        """Return True if this version is from our term and has no status: no process has worked on the job yet."""
        version = job.metadata.resource_version
        return not job.status.conditions and (version_number(version) or 0) > self._since


class PrunedStatus:
    """Remembers, by job, the status fields that the server pruned, until it stores them.

    No watch event tells that the CRD was repaired. So the status of one job is written again each minute; the jobs take turns.
    When the server stores its fields, the statuses of the other jobs are written too. All this is lost with the process: then
    each status is written once more.
    """

    def __init__(self, events: JobEvents, feed: Feed, clock: Clock) -> None:
        self._events = events
        self._feed = feed
        self._clock = clock
        self._sent: dict[str, _Pruned] = {}
        self._due = set[str]()
        self._probe_at: float | None = None
        self._logged = False

    def compare(self, job: TFJob, sent: JobStatus, kept: JobStatus) -> None:
        """Store the pruned fields; log this once, and record an event once per job."""
        uid = job.metadata.uid
        pruned = {
            name: getattr(sent, name) for name in sent.__struct_fields__ if getattr(sent, name) != getattr(kept, name)
        }
        before = self._sent.pop(uid, None)
        was_queued = uid in self._due
        self._due.discard(uid)
        if not pruned:
            lost = {} if before is None or was_queued else before.fields
            if any(getattr(sent, name) == value for name, value in lost.items()):
                self._write_all()
            return
        fields = _json_names(pruned)
        if not self._logged:
            self._logged = True
            log.error("status_fields_pruned", fields=fields, remedy=REMEDY)
        if before is None:
            why = "the installed CRD is outdated or belongs to another operator"
            message = f"Status fields {', '.join(fields)} were pruned: {why}"
            self._events.post(job.metadata, JobEvent(EventType.WARNING, EventReason.STATUS_FIELDS_PRUNED, message))
        self._sent[uid] = _Pruned(meta_key(job.metadata), pruned)
        self._schedule_probe()

    def as_sent(self, job: TFJob) -> TFJob:
        """Return the job with the pruned fields restored."""
        pruned = self._sent.get(job.metadata.uid)
        if pruned is None:
            return job
        return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, **pruned.fields))

    def is_due(self, uid: str) -> bool:
        """Return True if the status of a job is to be written again although nothing has changed.

        Before that time, the job whose turn is next is queued again: the queue may have kept the delay of an earlier write.
        """
        if uid in self._due:
            return True
        pruned = self._sent.get(uid)
        if pruned is None or self._probe_at is None or uid != next(iter(self._sent)):
            return False
        if (wait_s := self._probe_at - self._clock.monotonic()) > 0:
            self._feed.after(pruned.key, wait_s)
        return wait_s <= 0

    def forget(self, uid: str) -> None:
        """Forget all state of a deleted job."""
        self._due.discard(uid)
        if self._sent.pop(uid, None) is not None:
            self._schedule_probe()

    def _schedule_probe(self) -> None:
        first = next(iter(self._sent.values()), None)
        self._probe_at = None if first is None else self._clock.monotonic() + PROBE_S
        if first is not None:
            self._feed.after(first.key, PROBE_S)

    def _write_all(self) -> None:
        """Queue all jobs with pruned fields, after the server has stored those of one."""
        log.info("status_fields_kept", jobs=len(self._sent))
        self._logged = False
        self._due.update(self._sent)
        for pruned in self._sent.values():
            self._feed.add(pruned.key, low_priority=True)


def _json_names(names: Iterable[str]) -> list[str]:
    by_name = {field.name: field.encode_name for field in msgspec.structs.fields(JobStatus)}
    return [by_name[name] for name in names]


_UNREAD: Final = InvalidSpec(())


class Permission(enum.Enum):
    """Whether children may be created and deleted on a view, and why."""

    EXPECTING = "no: earlier creates or deletes have not been observed yet"
    UNCONFIRMED = "after the server has confirmed the view"
    CONFIRMED = "yes: a status write has confirmed the view"
    FIRST = "yes: no process can have worked on the job yet"
    FINAL = "yes: the end of the job is decided, and that is final"


@dataclass(slots=True)
class JobMemory:
    """The state of a job kept between syncs, which is lost with the process.

    Most of it only saves work. The loss of an unwritten status can change a decision: if a pod that it reports is gone by then,
    the replica has not succeeded, and runs again. The loss of `first_seen` starts waits again that do not start at a time which
    an operator wrote.
    """

    status: PendingStatus[TFJob, JobStatus] = field(default_factory=PendingStatus)
    reading: tuple[int, bool] | None = None
    """The key for which `spec` was parsed."""
    spec: TFJobSpec | InvalidSpec = _UNREAD
    ours: bool = False
    """True if no other controller manages the job."""
    acted: bool = False
    """True once children were to be created or deleted."""
    first_seen: FirstSeen = field(default_factory=dict)
    """That of the last plan (`plan.clocks`)."""
    accelerators_confirmed: bool = False
    """True once the cache cannot show pods anymore that an earlier process has counted."""
    end_logged: bool = False
    """True if the end of the job was logged, or is too old for that."""

    def logs_end(self, job: TFJob, now: datetime) -> bool:
        """Return True once for a finished job that ended in the last hour: an operator killed then may not have logged it."""
        first, self.end_logged = not self.end_logged, True
        ends = [condition.last_transition_time for condition in job.status.conditions if conditions.is_end(condition)]
        return first and all(end is not None and (now - end).total_seconds() < LOGGED_AGAIN_S for end in ends)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class View(PlanInput):
    """One job in one sync. A status write or a rejected child results in a new view."""

    key: str
    written: JobStatus
    """The status on the API server."""
    orphan_pods: Sequence[Pod]
    """Those whose labels name this job, as the services."""
    orphan_services: Sequence[Service]
    permission: Permission
    """Whether children may be changed. Writing a status needs no permission: the server rejects a stale write."""
    may_wait: bool
    """True if no status was written before, so that the first one may be delayed."""

    @property
    def may_act(self) -> bool:
        """True if children may be created and deleted, once the view is confirmed if it must be."""
        return self.permission is not Permission.EXPECTING

    @property
    def valid_spec(self) -> TFJobSpec | None:
        """The spec, or None if invalid: then nothing is created, adopted or repaired for the job."""
        return self.spec if isinstance(self.spec, TFJobSpec) else None

    def after_write(self, job: TFJob) -> View:
        """Return the view after a successful status write. `job` is the job after the write."""
        confirmed = self.permission is Permission.UNCONFIRMED
        permission = Permission.CONFIRMED if confirmed else self.permission
        return replace(self, job=job, written=job.status, permission=permission)

    def after_refusal(self, message: str, pending: PendingStatus[TFJob, JobStatus]) -> View:
        """Return the view after the API server rejected a child permanently, with this message.

        If the status of the first plan was not yet written, it becomes part of the new view, together with its events.
        """
        view = replace(self, spec=refused(self.spec, message))
        if pending.unwritten is None:
            return view
        unwritten = msgspec.structs.replace(
            pending.unwritten,  # what is counted is confirmed together with the plan that counts it
            accelerator_seconds=self.written.accelerator_seconds,
            accelerator_pods=self.written.accelerator_pods,
        )
        return replace(view, job=msgspec.structs.replace(self.job, status=unwritten), unreported=pending.events)


class Views:
    """Opens views."""

    def __init__(
        self,
        caches: TFJobCaches,
        expectations: Expectations,
        pruned: PrunedStatus,
        blocked: BlockedChildren,
        *,
        clock: Clock,
        nodes: NodeCache | None = None,
        logs: LogReader | None = None,
        domain: str = "",
        defaults: Defaults = DEFAULTS,
        leadership_term: LeadershipTerm | None = None,
        ignore_alpha: bool = False,
    ) -> None:
        """`leadership_term` is None if other processes may work on jobs at the same time.

        `domain` is the cluster's DNS domain if TF_CONFIG needs it. `ignore_alpha` is true if jobs of the alpha dialect have
        their own controller. A job started by that controller is always left to it.
        """
        self._caches = caches
        self._expectations = expectations
        self._pruned_status = pruned
        self._blocked = blocked
        self._leadership_term = leadership_term
        self._clock = clock
        self._nodes = nodes
        self._logs = logs
        self._domain = domain
        self._defaults = defaults
        self._bounds: Sequence[Bound] = (*BOUNDS, lambda meta, spec: too_long(meta, spec, domain))
        self._ignores_alpha = ignore_alpha

    def open(self, key: str, cached: TFJob, memory: JobMemory) -> View | None:
        """Return the view of the job with this key; None if another controller manages it."""
        pending = memory.status
        newest = pending.newest(cached) or self._pruned_status.as_sent(cached)
        job = _with_unwritten(newest, memory)
        spec = self._parsed_spec(job, memory)
        if not memory.ours:
            return None
        owner, caches = owner_uid_key(job.metadata), self._caches
        untouched = (
            self._leadership_term is not None and not pending.was_sent and self._leadership_term.is_untouched(job)
        )
        has_unwritten_restart = job.status.attempt > newest.status.attempt
        reports = has_unwritten_restart and pending.unwritten is not None and not conditions.is_over(pending.unwritten)
        satisfied = self._expectations.satisfied(owner)  # before the caches are read
        expected = () if satisfied else self._expectations.expected(owner, POD.name)
        pods = caches.pods.indexer.by_index(OWNER_INDEX, owner)
        services = caches.services.indexer.by_index(OWNER_INDEX, owner)
        effective = effective_spec(job, spec, pods, services, self._bounds)
        return View(
            key=key,
            job=job,
            written=newest.status,
            spec=effective,
            now=self._clock.now(),
            monotonic_s=self._clock.monotonic(),
            pods=pods,
            services=services,
            config_maps=caches.config_maps.indexer.by_index(OWNER_INDEX, owner),
            orphan_pods=caches.pods.indexer.by_index(ORPHAN_INDEX, key),
            orphan_services=caches.services.indexer.by_index(ORPHAN_INDEX, key),
            gang=caches.pod_groups.gang_of(job.metadata) if caches.pod_groups is not None else None,
            blocked=self._blocked.of(job.metadata),
            expected=unobserved(job.metadata.name, expected, pods) if expected else (),
            permission=_permission(job, satisfied=satisfied, first=untouched and not memory.acted),
            may_wait=untouched,
            unreported=pending.events if reports else (),
            first_seen=memory.first_seen,
            nodes=self._nodes_of(key, job, effective, pods),
            logs=NO_LOGS if self._logs is None else self._logs.of(key),
            domain=self._domain,
            defaults=self._defaults,
        )

    def _nodes_of(self, key: str, job: TFJob, spec: TFJobSpec | InvalidSpec, pods: Sequence[Pod]) -> Nodes | None:
        """Return the state of the nodes of a job's pods; None if the job does not need it."""
        if self._nodes is None or not isinstance(spec, TFJobSpec):
            return None
        if not (spec.has_node_rules or self._defaults.node_lost_after_s(spec)):
            return None
        if conditions.is_finished(job.status) and all(pod.metadata.deletion_timestamp is None for pod in pods):
            return None
        return self._nodes.of(key, pods)

    def _parsed_spec(self, job: TFJob, memory: JobMemory) -> TFJobSpec | InvalidSpec:
        """Return the spec, parsed once per generation, and note whether the job is ours. No spec of a finished job is kept."""
        spec, reading = memory.spec, spec_cache_key(job)
        if memory.reading != reading:
            spec = read(job)
            memory.ours = spec.managed_by in c.MANAGED_BY_US and not self._belongs_to_alpha(job)
            memory.spec, memory.reading = spec, reading
        if conditions.is_finished(job.status):
            memory.spec, memory.reading = _UNREAD, None
        return spec

    def _belongs_to_alpha(self, job: TFJob) -> bool:
        """Return True if the alpha controller handles the job: it has started it, or it is new and has the alpha format."""
        if job.status.phase:
            return True
        is_new = not job.status.conditions and job.status.begun is None
        return self._ignores_alpha and is_new and is_alpha(job.spec)


def _with_unwritten(job: TFJob, memory: JobMemory) -> TFJob:
    """Return the job with the observed facts that are not written yet.

    The API server's status may be newer, from a write whose response was lost; the two are merged. A job being deleted is not
    changed, since its status is no longer needed. A start time counts only once a pod creation was tried.
    """
    unwritten = memory.status.unwritten
    if unwritten is None or job.metadata.deletion_timestamp is not None:
        return job
    restarts = unwritten.attempt > job.status.attempt
    if restarts and conditions.is_over(job.status):
        return job
    status = merged_status(job.status, unwritten)
    if restarts:
        status = _restarted(status, unwritten)
    if is_from_other_operator(job.status):  # not visible in an older view: its children must still be found
        status = msgspec.structs.replace(status, begun=None)
    if memory.acted and status.start_time is None:
        status = msgspec.structs.replace(status, start_time=unwritten.start_time)
    return msgspec.structs.replace(job, status=status)


def _restarted(status: JobStatus, unwritten: JobStatus) -> JobStatus:
    """Return the status with an unwritten restart of the whole job, so that later plans do not decide it again.

    Later plans do decide an unwritten end again, since clean-up begins only when the end is written.
    """
    if not conditions.is_over(unwritten):
        return msgspec.structs.replace(status, conditions=unwritten.conditions)
    history = tuple(attempt for attempt in status.attempt_history if attempt.number < status.attempt)
    return msgspec.structs.replace(status, attempt_history=history)


def _permission(job: TFJob, *, satisfied: bool, first: bool) -> Permission:
    if not satisfied:
        return Permission.EXPECTING
    if conditions.is_over(job.status):
        return Permission.FINAL
    return Permission.FIRST if first else Permission.UNCONFIRMED
