"""A job as one sync sees it: its newest version, its children, and whether children may be created or deleted.

A cache lags behind the API server and our own writes. An operator that has just started may have listed from a stale API server
cache. Such a cache may show a job as running although another leader has finished it and cleaned it up. Acting on it would run
the job again. So most views are confirmed by a read (`Confirmer`) before the controller acts on them. A job with a
resourceVersion from our own leadership term and an empty status needs no confirmation (`LeadershipTerm`): controllers write the
status before anything else, and no other process has been active since.

API servers prune status fields that the CRD lacks because it is outdated or belongs to another operator (D3). The pruned fields
are then restored in the view (`PrunedStatus`); otherwise each sync would find the status incomplete and write it again.

Invariants:

- No child is created or deleted on an unconfirmed view. A view is confirmed by the status write of the same sync, or by a read.
  Two cases need no confirmation: a job whose end is decided, since that is final; and the first action on a job whose
  resourceVersion is from our leadership term and whose status is empty, if we never tried to write a status.
- A resourceVersion from before we acquired the lease is never mistaken for one of our term.
- Expectations are checked before the caches are read. While they are not satisfied, nothing is created or deleted (EX-04,
  EX-09): a child that arrives between check and read delays the job but is never created twice.
- Our own status write replaces the cached version until the watch delivers it. Resource versions are compared only for
  equality, except to determine whether one is from our leadership term.
- Observed facts that are not written yet are part of the view: a replica has succeeded even if its pod is gone.
- A restart record is not moved to a pod that does not exist on the server: the view may be stale, and the restarts of that pod
  may be counted already (B36).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.core import PODS, TERMINAL, EventType
from tfjob_operator.api.meta import (
    OWNER_INDEX,
    ObjectMeta,
    PartialObjectMetadata,
    Struct,
    index_by_owner,
    owner_uid_key,
    version_number,
)
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import TFJOBS, EventReason
from tfjob_operator.api.v1.types import InvalidSpec, JobStatus, TFJob, TFJobSpec
from tfjob_operator.api.v1.validation import Bound
from tfjob_operator.api.v1alpha1.types import is_alpha
from tfjob_operator.controller.jobs.children import NO_LABELS, ORPHAN_INDEX, ConfigMap, Pod, ReplicaKey, Service
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.writes import MAX_AT_ONCE, JobEvents, StaleViewError, confirm
from tfjob_operator.controller.tfjob.apply.children import POD
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren
from tfjob_operator.controller.tfjob.caches import TFJobCaches
from tfjob_operator.controller.tfjob.crd_check import REMEDY
from tfjob_operator.controller.tfjob.plan.accelerators import running_pod
from tfjob_operator.controller.tfjob.plan.actions import Blocked, Gang, Plan, RunningPod
from tfjob_operator.controller.tfjob.plan.clocks import FirstSeen
from tfjob_operator.controller.tfjob.plan.replicas import is_from_other_operator, of_earlier_attempts, unobserved
from tfjob_operator.controller.tfjob.plan.spec import effective_spec, read, refused, spec_cache_key
from tfjob_operator.controller.tfjob.plan.status import merged_status, moved_records
from tfjob_operator.workqueue.parallel import slow_start_batch

log = structlog.get_logger(__name__)
LOGGED_AGAIN_S: Final = 3600.0
"""How long after the end of a job a new operator process logs it again."""


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


class Confirmer:
    """Reads jobs and pods from the server and compares them with cached versions. Stateless."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    async def confirm(self, job: TFJob) -> None:
        """Read the job from the server. Raises StaleViewError if `job` is not the newest version, or if the job is gone."""
        await confirm(self._client, TFJOBS, job.metadata)

    async def confirm_pods(self, namespace: str, pods: Sequence[tuple[str, str]]) -> None:
        """Check that these pods, given by name and UID, exist; check up to `MAX_AT_ONCE` concurrently.

        Raises the first error: StaleViewError if a pod is gone or replaced, otherwise ApiError. No further requests are sent
        after it.
        """

        async def confirm_one(number: int) -> None:
            await self._confirm_pod(namespace, *pods[number])

        _, error = await slow_start_batch(len(pods), confirm_one, MAX_AT_ONCE, at_once=MAX_AT_ONCE)
        if error is not None:
            raise error

    async def pods(self, job: TFJob) -> list[Pod]:
        """Return the pods of the job that exist on the server. Raises ApiError."""
        selector = f"{c.LABEL_PREFIX}{c.LABEL_JOB_NAME}={job.metadata.name}"
        found = await self._client.list_page(PODS, ListOptions(job.metadata.namespace, selector), _Pods)
        return [pod for pod in found.items if owner_uid_key(job.metadata) in index_by_owner(pod)]

    async def _confirm_pod(self, namespace: str, name: str, uid: str) -> None:
        try:
            found = await self._client.get(PODS, namespace, name, PartialObjectMetadata)
        except NotFoundError as error:
            raise StaleViewError(f"pod {name} is gone") from error
        if found.metadata.uid != uid:
            raise StaleViewError(f"pod {name} has another UID than in the cache")


class _Pods(Struct, frozen=True):
    items: tuple[Pod, ...] = ()


class PrunedStatus:
    """Stores, by job, the status fields pruned by the server.

    If the stored fields are lost, each status is written once more.
    """

    def __init__(self, events: JobEvents) -> None:
        self._events = events
        self._sent: dict[str, dict[str, Any]] = {}
        self._logged = False

    def compare(self, job: TFJob, sent: JobStatus, kept: JobStatus) -> None:
        """Store the pruned fields; log this once, and record an event once per job."""
        uid = job.metadata.uid
        pruned = {
            name: getattr(sent, name) for name in sent.__struct_fields__ if getattr(sent, name) != getattr(kept, name)
        }
        if not pruned:
            self._sent.pop(uid, None)
            return
        fields = _json_names(pruned)
        if not self._logged:
            self._logged = True
            log.error("status_fields_pruned", fields=fields, remedy=REMEDY)
        if uid not in self._sent:
            why = "the installed CRD is outdated or belongs to another operator"
            message = f"Status fields {', '.join(fields)} were pruned: {why}"
            self._events.post(job.metadata, JobEvent(EventType.WARNING, EventReason.STATUS_FIELDS_PRUNED, message))
        self._sent[uid] = pruned

    def as_sent(self, job: TFJob) -> TFJob:
        """Return the job with the pruned fields restored."""
        pruned = self._sent.get(job.metadata.uid)
        if pruned is None:
            return job
        return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, **pruned))

    def forget(self, uid: str) -> None:
        """Forget all state of a deleted job."""
        self._sent.pop(uid, None)


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
class _JobMemory:
    """The state of a job kept between syncs, which is lost with the process.

    Most of it only saves work. The loss of `unwritten` can change a decision: if a pod that it reports is gone by then, the
    replica has not succeeded, and runs again. The loss of `first_seen` starts waits again that do not start at a time which an
    operator wrote.

    `spec` was parsed for the key `reading`. `ours` is true if no other controller manages the job. `written` is the job after
    our last status write, and replaces the versions in `superseded`. `unwritten` is the last computed status that is not known
    to be written, because the write failed or is delayed; `events` are its events. `touched` is true if a status write was
    tried, and `acted` if children were created or deleted. `first_seen` is that of the last plan (`plan.clocks`).
    `accelerators_confirmed` is true once the cache cannot show pods anymore that an earlier process has counted. `end_logged`:
    the end of the job was logged, or is too old for that.
    """

    reading: tuple[int, bool] | None = None
    spec: TFJobSpec | InvalidSpec = _UNREAD
    ours: bool = False
    written: TFJob | None = None
    superseded: set[str] = field(default_factory=set)
    unwritten: JobStatus | None = None
    events: Sequence[JobEvent] = ()
    touched: bool = False
    acted: bool = False
    first_seen: FirstSeen = field(default_factory=dict)
    accelerators_confirmed: bool = False
    end_logged: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One job in one sync. A status write or a rejected child results in a new view.

    The status of `job` includes observed facts that are not written yet; `written` is the status on the API server.
    `permission` allows changing children. Writing a status needs no permission, because the server rejects a stale write.
    `may_wait` is true if no status was written before, so the first one may be delayed. `gang` is None if gang scheduling is
    disabled. The orphans are those whose labels name this job. `blocked` are children that could not be created. `expected` are
    the pods that were created but are not in the cache yet. `unreported` are the events of a status that this sync computed but
    did not write, because it then made another plan.
    """

    key: str
    job: TFJob
    written: JobStatus
    spec: TFJobSpec | InvalidSpec
    pods: Sequence[Pod]
    services: Sequence[Service]
    config_maps: Sequence[ConfigMap]
    orphan_pods: Sequence[Pod]
    orphan_services: Sequence[Service]
    gang: Gang | None
    blocked: Blocked
    expected: Sequence[ReplicaKey]
    permission: Permission
    may_wait: bool
    _memory: _JobMemory
    _confirmer: Confirmer
    unreported: Sequence[JobEvent] = ()

    @property
    def may_act(self) -> bool:
        """True if children may be created and deleted, after `before_acting`."""
        return self.permission is not Permission.EXPECTING

    @property
    def valid_spec(self) -> TFJobSpec | None:
        """The spec, or None if invalid: then nothing is created, adopted or repaired for the job."""
        return self.spec if isinstance(self.spec, TFJobSpec) else None

    async def confirm(self) -> None:
        """Check that this is the newest version of the job. Raises StaleViewError if not."""
        await self._confirmer.confirm(self.job)

    async def confirm_restarts(self, status: JobStatus | None) -> None:
        """Check that the pods to which `status` moves restart records exist: in a stale view, their restarts may be counted.

        Raises StaleViewError.
        """
        if status is None:
            return
        counted = {record.pod for record in moved_records(self.job.status.restarts, status.restarts)}
        found = [(pod.metadata.name, pod.metadata.uid) for pod in self.pods if pod.metadata.uid in counted]
        await self._confirmer.confirm_pods(self.job.metadata.namespace, found)

    async def confirm_accelerators(self, status: JobStatus, vanished: Collection[RunningPod]) -> None:
        """Check that this view is not older than the counts in its status, before `status` adds to them (`plan.accelerators`).

        That takes a list of the job's pods, once per process, and only if pods are counted already or seem to have vanished.
        Raises StaleViewError, or ApiError.
        """
        before = self.written
        same = (before.accelerator_seconds, before.accelerator_pods)
        if self._memory.accelerators_confirmed or (status.accelerator_seconds, status.accelerator_pods) == same:
            return
        if before.accelerator_seconds or vanished:
            job, found = self.job.metadata, await self._confirmer.pods(self.job)
            shown = [pod for pod in found if (pod.metadata.labels or NO_LABELS).operator_name == c.OPERATOR_NAME]
            if not {running_pod(job.name, pod) for pod in shown}.isdisjoint(vanished):
                raise StaleViewError("a pod is not in the cache yet")
            present = {pod.metadata.uid for pod in found}
            missing = [each.metadata for each in self.pods if each.accelerators and each.metadata.uid not in present]
            await self._confirmer.confirm_pods(job.namespace, [(each.name, each.uid) for each in missing])
        self._memory.accelerators_confirmed = True

    def logs_end(self, now: datetime) -> bool:
        """Return True once for a finished job that ended in the last hour: an operator killed then may not have logged it."""
        first, self._memory.end_logged = not self._memory.end_logged, True
        ends = [each.last_transition_time for each in self.job.status.conditions if conditions.is_end(each)]
        return first and all(end is not None and (now - end).total_seconds() < LOGGED_AGAIN_S for end in ends)

    @property
    def first_seen(self) -> FirstSeen:
        """When this process first saw what plans of this job depend on: that of the last plan (`plan.clocks`)."""
        return self._memory.first_seen

    def planned(self, plan: Plan) -> Plan:
        """Keep what the next plan needs of this one, and return the plan."""
        self._memory.first_seen = plan.first_seen
        return plan

    async def before_acting(self) -> None:
        """Ensure that children may be created and deleted now, by a read if necessary. Raises StaleViewError if not."""
        if self.permission is Permission.UNCONFIRMED:
            await self.confirm()
        # Only once: on a view that stays stale, children deleted by the garbage collector would be recreated repeatedly.
        self._memory.acted = True

    async def earlier_pods(self) -> list[Pod]:
        """Return the pods of earlier attempts that exist on the API server, regardless of the cache. Raises ApiError."""
        return of_earlier_attempts(self.job, await self._confirmer.pods(self.job))

    async def quota_holders(self, but: Collection[str]) -> list[Pod]:
        """Return the pods that hold quota on the API server, except those with these UIDs. Raises ApiError."""
        found = await self._confirmer.pods(self.job)
        return [pod for pod in found if pod.status.phase not in TERMINAL and pod.metadata.uid not in but]

    def keep(self, status: JobStatus | None, events: Sequence[JobEvent] = ()) -> None:
        """Keep a status that is not written yet, since the pods it reports may be gone at the next sync. None clears it."""
        self._memory.unwritten, self._memory.events = status, events

    def writing(self) -> None:
        """Record that a status write is about to be sent: regardless of the response, the job may have a status from now on."""
        self._memory.touched = True

    def wrote(self, job: TFJob | None) -> View:
        """Return the view after a successful status write. `job` is the job after the write; None if it is gone."""
        self._memory.unwritten = None
        self._memory.superseded.add(self.job.metadata.resource_version)
        self._memory.written = job
        if job is None:
            return self
        confirmed = self.permission is Permission.UNCONFIRMED
        permission = Permission.CONFIRMED if confirmed else self.permission
        return replace(self, job=job, written=job.status, permission=permission)

    def refused(self, words: str, events: Sequence[JobEvent]) -> View:
        """Return the view after the API server rejected a child permanently, with this message.

        If the status of the first plan was not yet written, it becomes part of the new view, together with its `events`.
        """
        view = replace(self, spec=refused(self.spec, words))
        unwritten = self._memory.unwritten
        if unwritten is None:
            return view
        unwritten = msgspec.structs.replace(
            unwritten,  # what is counted is confirmed together with the plan that counts it
            accelerator_seconds=self.written.accelerator_seconds,
            accelerator_pods=self.written.accelerator_pods,
        )
        return replace(view, job=msgspec.structs.replace(self.job, status=unwritten), unreported=events)


class Views:
    """Opens views, and stores state of each job that the caches do not contain."""

    def __init__(
        self,
        caches: TFJobCaches,
        expectations: Expectations,
        confirmer: Confirmer,
        pruned: PrunedStatus,
        blocked: BlockedChildren,
        *,
        leadership_term: LeadershipTerm | None = None,
        bounds: Sequence[Bound] = (),
        ignore_alpha: bool = False,
    ) -> None:
        """`leadership_term` is None if other processes may work on jobs at the same time; `bounds` are limits for specs.

        `ignore_alpha` is true if jobs of the alpha dialect have their own controller. A job started by that controller is
        always left to it.
        """
        self._caches = caches
        self._expectations = expectations
        self._confirmer = confirmer
        self._pruned_status = pruned
        self._blocked = blocked
        self._leadership_term = leadership_term
        self._bounds = bounds
        self._leaves_alpha = ignore_alpha
        self._memory: dict[str, _JobMemory] = {}

    def open(self, key: str) -> View | None:
        """Return the view of the job with this key; None if it does not exist or another controller manages it."""
        cached = self._caches.jobs.indexer.get(key)
        if cached is None:
            return None
        memory = self._memory.setdefault(cached.metadata.uid, _JobMemory())
        newest = self._newest(cached, memory)
        job = _with_unwritten(newest, memory)
        spec = self._parsed_spec(job, memory)
        if not memory.ours:
            return None
        owner, caches = owner_uid_key(job.metadata), self._caches
        untouched = self._leadership_term is not None and not memory.touched and self._leadership_term.is_untouched(job)
        restarts = job.status.attempt > newest.status.attempt
        reports = restarts and memory.unwritten is not None and not conditions.is_over(memory.unwritten)
        satisfied = self._expectations.satisfied(owner)  # before the caches are read
        expected = () if satisfied else self._expectations.expected(owner, POD.name)
        pods = caches.pods.indexer.by_index(OWNER_INDEX, owner)
        services = caches.services.indexer.by_index(OWNER_INDEX, owner)
        return View(
            key=key,
            job=job,
            written=newest.status,
            spec=effective_spec(job, spec, pods, services, self._bounds),
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
            _memory=memory,
            _confirmer=self._confirmer,
            unreported=memory.events if reports else (),
        )

    def forget(self, job: ObjectMeta) -> bool:
        """Forget all state of a deleted job. Return True if this process has worked on it."""
        memory = self._memory.pop(job.uid, None)
        self._pruned_status.forget(job.uid)
        return memory is not None and memory.ours

    def _newest(self, cached: TFJob, memory: _JobMemory) -> TFJob:
        """Return the cached job, or our last written version while the cache has a version that our write replaced."""
        if memory.written is not None and cached.metadata.resource_version in memory.superseded:
            return memory.written
        memory.written = None
        memory.superseded.clear()
        return self._pruned_status.as_sent(cached)

    def _parsed_spec(self, job: TFJob, memory: _JobMemory) -> TFJobSpec | InvalidSpec:
        """Return the spec, parsed once per generation, and dropped when the job has finished (D17)."""
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
        return self._leaves_alpha and is_new and is_alpha(job.spec)


def _with_unwritten(job: TFJob, memory: _JobMemory) -> TFJob:
    """Return the job with the observed facts that are not written yet.

    The API server's status may be newer, from a write whose response was lost; the two are merged. A job being deleted is not
    changed, since its status is no longer needed. A start time counts only once a pod creation was tried.
    """
    if memory.unwritten is None or job.metadata.deletion_timestamp is not None:
        return job
    restarts = memory.unwritten.attempt > job.status.attempt
    if restarts and conditions.is_over(job.status):
        return job
    status = merged_status(job.status, memory.unwritten)
    if restarts:
        status = _restarted(status, memory.unwritten)
    if is_from_other_operator(job.status):  # not visible in an older view: its children must still be found
        status = msgspec.structs.replace(status, begun=None)
    if memory.acted and status.start_time is None:
        status = msgspec.structs.replace(status, start_time=memory.unwritten.start_time)
    return msgspec.structs.replace(job, status=status)


def _restarted(status: JobStatus, unwritten: JobStatus) -> JobStatus:
    """Return the status with an unwritten restart of the whole job, so that later plans do not decide it again.

    Later plans do decide an unwritten end again, since clean-up begins only when the end is written.
    """
    if not conditions.is_over(unwritten):
        return msgspec.structs.replace(status, conditions=unwritten.conditions)
    history = tuple(each for each in status.attempt_history if each.number < status.attempt)
    return msgspec.structs.replace(status, attempt_history=history)


def _permission(job: TFJob, *, satisfied: bool, first: bool) -> Permission:
    if not satisfied:
        return Permission.EXPECTING
    if conditions.is_over(job.status):
        return Permission.FINAL
    return Permission.FIRST if first else Permission.UNCONFIRMED
