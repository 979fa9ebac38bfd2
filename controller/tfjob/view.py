"""A job as one sync sees it: its newest version, its children, and whether anything may be created or deleted for it.

A cache lags behind the API server and behind our own writes. An operator that has just started may have listed from an API
server's cache in which a job is still running that another leader has ended and cleaned up. Acting on that, it would run the
job again. So most views are confirmed by a read (`Confirmer`) before they are acted upon. A resourceVersion from our own
leadership term, with an empty status, needs no confirmation (`LeadershipTerm`): whoever works on a job writes its status
first, and nobody else has been at work since.

API servers prune status fields that their CRD lacks, because it is outdated or belongs to another operator (D3). Then the
fields as they were sent replace what the server shows (`UnkeptStatus`); otherwise each sync would find the status incomplete
and write it again.

Invariants:

- No child is created or deleted on a view that is not confirmed: by the status write of the same sync, or else by a read.
  No confirmation is needed for a job that has finished, since an end is final; nor for the first act on a job whose
  resourceVersion is newer than our leadership term, whose status is empty, and to which we never tried to write one.
- A resourceVersion from before the lease was ours is never taken for one of our term.
- Expectations are asked before the caches are read. While they are unmet nothing is created or deleted (EX-04, EX-09): a
  child that arrives in between delays us, and is never made twice.
- Our own status write stands in for the cache until the watch brings it. Resource versions are compared for equality only,
  except to tell whether one is from our leadership term.
- What was observed and is not written yet is part of the view: a replica has succeeded, though its pod may be gone by now.
- No restart record moves to a pod that the server does not have: on an old view its restarts may be counted already (B36).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import structlog

from tfjob_operator.api.client import ListOptions, RestClient
from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.core import PODS, EventType
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
from tfjob_operator.controller.jobs.children import ORPHAN_INDEX, ConfigMap, Pod, Service
from tfjob_operator.controller.jobs.draft import JobEvent
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.writes import MAX_AT_ONCE, JobEvents, StaleViewError, confirm
from tfjob_operator.controller.tfjob.apply.conflicts import BlockedChildren
from tfjob_operator.controller.tfjob.caches import Caches
from tfjob_operator.controller.tfjob.crd_check import TO_DO
from tfjob_operator.controller.tfjob.plan.actions import Blocked, Gang
from tfjob_operator.controller.tfjob.plan.replicas import is_from_other_operator, of_earlier_attempts
from tfjob_operator.controller.tfjob.plan.status import (
    effective_spec,
    merged_status,
    moved_records,
    read,
    refused,
    spec_cache_key,
)
from tfjob_operator.workqueue.parallel import slow_start_batch

log = structlog.get_logger(__name__)


class LeadershipTerm:
    """The time since this process acquired the lease.

    The API server's versions of one kind of object are numbers that grow with every change (KEP-5504, and etcd's revisions long
    before it). Where they are not numbers, nothing is known to be of our term.
    """

    def __init__(self, client: RestClient, namespace: str) -> None:
        """Nothing is of our time before `begin`. `namespace` "" means all of them."""
        self._client = client
        self._namespace = namespace
        self._since = math.inf

    async def begin(self) -> None:
        """Read the server's version once no earlier leader can write. Never raises ApiError: then views are confirmed."""
        try:
            # Without a version the response comes from etcd, not from a cache that may be behind.
            newest = await self._client.list_page(TFJOBS, ListOptions(self._namespace, limit=1), PartialObjectMetadata)
            self._since = int(newest.metadata.resource_version)
        except (ApiError, ValueError) as error:  # the version need not be a number
            log.debug("leadership_term_unknown", error=str(error))

    def is_untouched(self, job: TFJob) -> bool:
        """Whether this version of a job is from our term and has no status: then nobody has worked on it yet."""
        version = job.metadata.resource_version
        return not job.status.conditions and (version_number(version) or 0) > self._since


class Confirmer:
    """Reads jobs and pods from the server and compares them with what a cache shows. Remembers nothing."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    async def confirm(self, job: TFJob) -> None:
        """Ask the server whether `job` is its newest version. Raises StaleViewError if it is not, or is gone."""
        await confirm(self._client, TFJOBS, job.metadata)

    async def confirm_pods(self, namespace: str, pods: Sequence[tuple[str, str]]) -> None:
        """Ask the server whether these pods, by name and UID, are there: `MAX_AT_ONCE` at a time.

        Raises StaleViewError if one is gone, or another one has its name, else any ApiError; after the first one no more are
        asked for.
        """

        async def confirm_one(number: int) -> None:
            await self._confirm_pod(namespace, *pods[number])

        _, error = await slow_start_batch(len(pods), confirm_one, MAX_AT_ONCE, at_once=MAX_AT_ONCE)
        if error is not None:
            raise error

    async def earlier_pods(self, job: TFJob) -> list[Pod]:
        """Ask the server which pods of earlier attempts are left. Raises ApiError."""
        selector = f"{c.LABEL_PREFIX}{c.LABEL_JOB_NAME}={job.metadata.name}"
        found = await self._client.list_page(PODS, ListOptions(job.metadata.namespace, selector), _Pods)
        owned = [pod for pod in found.items if owner_uid_key(job.metadata) in index_by_owner(pod)]
        return of_earlier_attempts(job, owned)

    async def _confirm_pod(self, namespace: str, name: str, uid: str) -> None:
        try:
            found = await self._client.get(PODS, namespace, name, PartialObjectMetadata)
        except NotFoundError as error:
            raise StaleViewError(f"pod {name} is gone") from error
        if found.metadata.uid != uid:
            raise StaleViewError(f"pod {name} is another one than the cache saw")


class _Pods(Struct, frozen=True):
    items: tuple[Pod, ...] = ()


class UnkeptStatus:
    """Remembers by job the fields that the server dropped, as sent last; if lost, each status is written once more."""

    def __init__(self, events: JobEvents) -> None:
        self._events = events
        self._sent: dict[str, dict[str, Any]] = {}
        self._logged = False

    def compare(self, job: TFJob, sent: JobStatus, kept: JobStatus) -> None:
        """Remember what the server dropped; log it once, and record an event once for each job."""
        uid = job.metadata.uid
        lost = {
            name: getattr(sent, name) for name in sent.__struct_fields__ if getattr(sent, name) != getattr(kept, name)
        }
        if not lost:
            self._sent.pop(uid, None)
            return
        fields = _json_names(lost)
        if not self._logged:
            self._logged = True
            log.error("status_fields_pruned", fields=fields, to_do=TO_DO)
        if uid not in self._sent:
            why = "the installed CRD is outdated or belongs to another operator"
            message = f"Status fields {', '.join(fields)} were pruned: {why}"
            self._events.post(job.metadata, JobEvent(EventType.WARNING, EventReason.STATUS_FIELDS_PRUNED, message))
        self._sent[uid] = lost

    def as_sent(self, job: TFJob) -> TFJob:
        """Return the job with the fields that the server dropped, as they were sent."""
        lost = self._sent.get(job.metadata.uid)
        if lost is None:
            return job
        return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, **lost))

    def forget(self, uid: str) -> None:
        """Drop what is remembered of a job that is gone."""
        self._sent.pop(uid, None)


def _json_names(names: Iterable[str]) -> list[str]:
    by_name = {field.name: field.encode_name for field in msgspec.structs.fields(JobStatus)}
    return [by_name[name] for name in names]


_UNREAD: Final = InvalidSpec(())


class Permission(enum.Enum):
    """Whether children may be created and deleted on a view, and why."""

    EXPECTING = "no: what was created or deleted before has not been seen yet"
    UNCONFIRMED = "when the server has confirmed that the view is new"
    CONFIRMED = "yes: a status write has shown that the view is new"
    FIRST = "yes: nobody can have worked on the job yet"
    FINAL = "yes: the job has finished, and an end is final"


@dataclass(slots=True)
class _Memory:
    """What is remembered of a job between syncs. All of it may be lost: it saves work and decides nothing.

    `spec` is the specification as it was read for the key `reading`. `ours` says that no other controller manages the job.
    `written` is the job as our last status write left it, and stands in for the versions in `superseded`. `unwritten` is
    the last status that was computed and is not known to be written: its write failed, or waits; `events` are its events.
    `touched` says that a status write was tried, `acted` that children were created or deleted.
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


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One job in one sync. A status write, or a refused child, returns the view that follows.

    The status of `job` contains what was observed and is not written yet; `written` is the status on the API server.
    `permission` is about children; a status may always be written, since a stale one is refused. `may_wait` says that a
    first status may wait: nobody has written one before. `gang` is None where no gang scheduler is in use. The orphans are
    those whose labels name this job. `blocked` are children that could not be created. `unreported` are the events of a status
    that was computed and is not written, when another plan follows in the same sync.
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
    permission: Permission
    may_wait: bool
    _memory: _Memory
    _confirmer: Confirmer
    unreported: Sequence[JobEvent] = ()

    @property
    def may_act(self) -> bool:
        """Whether children may be created and deleted, once `before_acting` has returned."""
        return self.permission is not Permission.EXPECTING

    @property
    def good_spec(self) -> TFJobSpec | None:
        """The specification, or None if it is invalid: then nothing is created, adopted or repaired for the job."""
        return self.spec if isinstance(self.spec, TFJobSpec) else None

    async def confirm(self) -> None:
        """Ask the server whether this is the job's newest version. Raises StaleViewError if not."""
        await self._confirmer.confirm(self.job)

    async def confirm_restarts(self, status: JobStatus | None) -> None:
        """Confirm the pods to which `status` moves restart records, which may be counted already. Raises StaleViewError."""
        if status is None:
            return
        counted = {record.pod for record in moved_records(self.job.status.restarts, status.restarts)}
        found = [(pod.metadata.name, pod.metadata.uid) for pod in self.pods if pod.metadata.uid in counted]
        await self._confirmer.confirm_pods(self.job.metadata.namespace, found)

    async def before_acting(self) -> None:
        """Make sure that children may be created and deleted now, by a read if necessary. Raises StaleViewError if not."""
        if self.permission is Permission.UNCONFIRMED:
            await self.confirm()
        # Once: on a view that stays stale we would create again and again what the garbage collector deletes.
        self._memory.acted = True

    async def earlier_pods(self) -> list[Pod]:
        """Return the pods of earlier attempts that the API server still has, whatever the cache shows. Raises ApiError."""
        return await self._confirmer.earlier_pods(self.job)

    def keep(self, status: JobStatus | None, events: Sequence[JobEvent] = ()) -> None:
        """Keep a status that is not written yet: its pods may be gone at the next sync. None: there is nothing to write."""
        self._memory.unwritten, self._memory.events = status, events

    def writing(self) -> None:
        """Note that a status write is about to be tried: whatever the response, the job may have a status from now on."""
        self._memory.touched = True

    def wrote(self, job: TFJob | None) -> View:
        """Return the view after a successful status write, by which the job became `job`; None if the job is gone."""
        self._memory.unwritten = None
        self._memory.superseded.add(self.job.metadata.resource_version)
        self._memory.written = job
        if job is None:
            return self
        confirmed = self.permission is Permission.UNCONFIRMED
        permission = Permission.CONFIRMED if confirmed else self.permission
        return replace(self, job=job, written=job.status, permission=permission)

    def refused(self, words: str, events: Sequence[JobEvent]) -> View:
        """Return the view after the API server has refused a child for good, in these words.

        A first status may still wait for the pods. Then it is part of the new status, and so are its `events`.
        """
        view = replace(self, spec=refused(self.spec, words))
        unwritten = self._memory.unwritten
        if unwritten is None:
            return view
        return replace(view, job=msgspec.structs.replace(self.job, status=unwritten), unreported=events)


class Views:
    """Opens views, and remembers of each job what the caches do not show."""

    def __init__(
        self,
        caches: Caches,
        expectations: Expectations,
        confirmer: Confirmer,
        unkept: UnkeptStatus,
        blocked: BlockedChildren,
        *,
        leadership_term: LeadershipTerm | None = None,
        bounds: Sequence[Bound] = (),
        leaves_alpha: bool = False,
    ) -> None:
        """`leadership_term` is None where others may work on jobs at the same time; `bounds` are those of specifications.

        `leaves_alpha`: jobs of the alpha dialect have a controller of their own. One that it has begun it keeps, in any case.
        """
        self._caches = caches
        self._expectations = expectations
        self._confirmer = confirmer
        self._unkept = unkept
        self._blocked = blocked
        self._leadership_term = leadership_term
        self._bounds = bounds
        self._leaves_alpha = leaves_alpha
        self._memory: dict[str, _Memory] = {}

    def open(self, key: str) -> View | None:
        """Return the view of the job with this key; None if there is no such job, or another controller manages it."""
        cached = self._caches.jobs.indexer.get(key)
        if cached is None:
            return None
        memory = self._memory.setdefault(cached.metadata.uid, _Memory())
        newest = self._newest(cached, memory)
        job = _with_unwritten(newest, memory)
        spec = self._spec_of(job, memory)
        if not memory.ours:
            return None
        owner, caches = owner_uid_key(job.metadata), self._caches
        untouched = self._leadership_term is not None and not memory.touched and self._leadership_term.is_untouched(job)
        satisfied = self._expectations.satisfied(owner)  # before the caches are read
        return View(
            key=key,
            job=job,
            written=newest.status,
            spec=spec,
            pods=caches.pods.indexer.by_index(OWNER_INDEX, owner),
            services=caches.services.indexer.by_index(OWNER_INDEX, owner),
            config_maps=caches.config_maps.indexer.by_index(OWNER_INDEX, owner),
            orphan_pods=caches.pods.indexer.by_index(ORPHAN_INDEX, key),
            orphan_services=caches.services.indexer.by_index(ORPHAN_INDEX, key),
            gang=caches.pod_groups.gang_of(job.metadata) if caches.pod_groups is not None else None,
            blocked=self._blocked.of(job.metadata),
            permission=_permission(job, satisfied=satisfied, first=untouched and not memory.acted),
            may_wait=untouched,
            _memory=memory,
            _confirmer=self._confirmer,
            unreported=memory.events if job.status.attempt > newest.status.attempt else (),
        )

    def forget(self, job: ObjectMeta) -> bool:
        """Drop what is remembered of a job that is gone. Return whether this process has worked on it."""
        memory = self._memory.pop(job.uid, None)
        self._unkept.forget(job.uid)
        return memory is not None and memory.ours

    def _newest(self, cached: TFJob, memory: _Memory) -> TFJob:
        """Return the cached job, or our own last written version while the cache still shows the one that it replaced."""
        if memory.written is not None and cached.metadata.resource_version in memory.superseded:
            return memory.written
        memory.written = None
        memory.superseded.clear()
        return self._unkept.as_sent(cached)

    def _spec_of(self, job: TFJob, memory: _Memory) -> TFJobSpec | InvalidSpec:
        """Return the specification to follow. It is read once for each generation, and dropped when the job has ended (D17)."""
        spec, reading = memory.spec, spec_cache_key(job)
        if memory.reading != reading:
            spec = read(job)
            memory.ours = spec.managed_by in c.MANAGED_BY_US and not self._is_anothers(job)
            memory.spec, memory.reading = spec, reading
        if conditions.is_finished(job.status):
            memory.spec, memory.reading = _UNREAD, None
        return effective_spec(job, spec, self._bounds)

    def _is_anothers(self, job: TFJob) -> bool:
        """Whether the controller of the alpha dialect works on a job: it has begun it, or its shape says so and nobody has."""
        if job.status.phase:
            return True
        is_new = not job.status.conditions and job.status.begun is None
        return self._leaves_alpha and is_new and is_alpha(job.spec)


def _with_unwritten(job: TFJob, memory: _Memory) -> TFJob:
    """Return the job with what was observed and is not written yet.

    The API server may know more, from a write of ours whose response was lost; that is merged. A job that is being deleted
    stays as it is: nobody will read its status. A start time counts once a pod was tried, not before.
    """
    if memory.unwritten is None or job.metadata.deletion_timestamp is not None:
        return job
    restarts = memory.unwritten.attempt > job.status.attempt
    if restarts and conditions.is_finished(job.status):
        return job
    status = merged_status(job.status, memory.unwritten)
    if restarts:  # no later plan decides it again
        status = msgspec.structs.replace(status, conditions=memory.unwritten.conditions)
    if is_from_other_operator(job.status):  # which an older view did not show: its children must still be looked for
        status = msgspec.structs.replace(status, begun=None)
    if memory.acted and status.start_time is None:
        status = msgspec.structs.replace(status, start_time=memory.unwritten.start_time)
    return msgspec.structs.replace(job, status=status)


def _permission(job: TFJob, *, satisfied: bool, first: bool) -> Permission:
    if not satisfied:
        return Permission.EXPECTING
    if conditions.is_finished(job.status):
        return Permission.FINAL
    return Permission.FIRST if first else Permission.UNCONFIRMED
