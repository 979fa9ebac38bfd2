"""A job as one sync sees it: its newest version, its children, and whether anything may be created or deleted for it.

A cache lags behind the API server and behind our own writes. An operator that has just started may have listed from an API
server's cache in which a job is still running that another leader has ended and cleaned up. Acting on that, it would run
the job again.

Invariants:

- No child is created or deleted on a view that is not confirmed: by the status write of the same sync, or else by a read.
  No confirmation is needed for a job that has finished, since an end is final; nor for the first act on a job whose
  resourceVersion is newer than our leadership term, whose status is empty, and to which we never tried to write one.
- Expectations are asked before the caches are read. While they are unmet nothing is created or deleted (EX-04, EX-09): a
  child that arrives in between delays us, and is never made twice.
- Our own status write stands in for the cache until the watch brings it. Resource versions are compared for equality only,
  except to tell whether one is from our leadership term.
- What was observed and is not written yet is part of the view: a replica has succeeded, though its pod may be gone by now.
- No restart is newly counted of a pod that the server does not have: on an old view it may be counted long since (B36).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec

from tfjob_operator.api.owners import OWNER_INDEX, owner_uid_key
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.types import InvalidSpec, TFJobSpec
from tfjob_operator.api.v1alpha1.dialect import is_alpha
from tfjob_operator.controller.jobs.children import ORPHAN_INDEX
from tfjob_operator.controller.tfjob.decide.facts import with_memory_of
from tfjob_operator.controller.tfjob.decide.held import refused
from tfjob_operator.controller.tfjob.decide.reading import in_force, read, reading_of
from tfjob_operator.controller.tfjob.decide.restarts import taken_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.bounds import Bound
    from tfjob_operator.api.v1.types import JobStatus, TFJob
    from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
    from tfjob_operator.controller.jobs.expectations import Expectations
    from tfjob_operator.controller.tfjob.caches import Caches
    from tfjob_operator.controller.tfjob.confirmation import Confirmer
    from tfjob_operator.controller.tfjob.decide.gang import Gang
    from tfjob_operator.controller.tfjob.leadership_term import LeadershipTerm
    from tfjob_operator.controller.tfjob.unkept import UnkeptStatus

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
    the last status that was computed and is not known to be written: its write failed, or waits. `touched` says that a
    status write was tried, `acted` that children were created or deleted.
    """

    reading: tuple[int, bool] | None = None
    spec: TFJobSpec | InvalidSpec = _UNREAD
    ours: bool = False
    written: TFJob | None = None
    superseded: set[str] = field(default_factory=set)
    unwritten: JobStatus | None = None
    touched: bool = False
    acted: bool = False


@dataclass(slots=True, eq=False)
class View:
    """One job in one sync.

    The status of `job` contains what was observed and is not written yet; `written` is the status on the API server.
    `permission` is about children; a status may always be written, since a stale one is refused. `may_wait` says that a
    first status may wait: nobody has written one before. `gang` is None where no gang scheduler is in use. The orphans are
    those whose labels name this job.
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
    permission: Permission
    may_wait: bool
    _memory: _Memory
    _confirmer: Confirmer

    @property
    def may_act(self) -> bool:
        """Whether children may be created and deleted, once `before_acting` has returned."""
        return self.permission is not Permission.EXPECTING

    @property
    def good_spec(self) -> TFJobSpec | None:
        """The specification, or None if it is invalid: then nothing is created, adopted or repaired for the job."""
        return self.spec if isinstance(self.spec, TFJobSpec) else None

    @property
    def unwritten(self) -> JobStatus | None:
        """The last status that was computed and is not known to be written."""
        return self._memory.unwritten

    async def confirm(self) -> None:
        """Ask the server whether this is the job's newest version. Raises StaleViewError if not."""
        await self._confirmer.confirm(self.job)

    async def confirm_restarts(self, status: JobStatus | None) -> None:
        """Confirm the pods whose restarts `status` counts for the first time: on a stale view they may be counted already.

        Raises StaleViewError if one of them does not exist any more.
        """
        if status is None:
            return
        counted = {record.pod for record in taken_over(self.job.status.restarts, status.restarts)}
        found = [(pod.metadata.name, pod.metadata.uid) for pod in self.pods if pod.metadata.uid in counted]
        await self._confirmer.confirm_pods(self.job.metadata.namespace, found)

    async def before_acting(self) -> None:
        """Make sure that children may be created and deleted now, by a read if necessary. Raises StaleViewError if not."""
        if self.permission is Permission.UNCONFIRMED:
            await self.confirm()
        # Once: on a view that stays stale we would create again and again what the garbage collector deletes.
        self._memory.acted = True

    def keep(self, status: JobStatus | None) -> None:
        """Keep a status that is not written yet: its pods may be gone at the next sync. None: there is nothing to write."""
        self._memory.unwritten = status

    def writing(self) -> None:
        """Note that a status write is about to be tried: whatever the response, the job may have a status from now on."""
        self._memory.touched = True

    def wrote(self, job: TFJob | None) -> None:
        """Note a successful status write, after which the job is `job`; None if the job is gone."""
        self._memory.unwritten = None
        self._memory.superseded.add(self.job.metadata.resource_version)
        self._memory.written = job
        if job is not None:
            self.job, self.written = job, job.status
            if self.permission is Permission.UNCONFIRMED:
                self.permission = Permission.CONFIRMED

    def refused(self, words: str) -> View:
        """Return the same view after the API server has refused a child for good, in these words."""
        job = self.job if self.unwritten is None else msgspec.structs.replace(self.job, status=self.unwritten)
        return replace(self, job=job, spec=refused(self.spec, words))


class Views:
    """Opens views, and remembers of each job what the caches do not show."""

    def __init__(
        self,
        caches: Caches,
        expectations: Expectations,
        confirmer: Confirmer,
        unkept: UnkeptStatus,
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
        job = _with_unwritten(newest, memory.unwritten)
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
            permission=_permission(job, satisfied=satisfied, first=untouched and not memory.acted),
            may_wait=untouched,
            _memory=memory,
            _confirmer=self._confirmer,
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
        spec, reading = memory.spec, reading_of(job)
        if memory.reading != reading:
            spec = read(job)
            memory.ours = spec.managed_by in c.MANAGED_BY_US and not self._is_anothers(job)
            memory.spec, memory.reading = spec, reading
        if conditions.is_finished(job.status):
            memory.spec, memory.reading = _UNREAD, None
        return in_force(job, spec, self._bounds)

    def _is_anothers(self, job: TFJob) -> bool:
        """Whether the controller of the alpha dialect works on a job: it has begun it, or its shape says so and nobody has."""
        if job.status.phase:
            return True
        is_new = not job.status.conditions and job.status.begun is None
        return self._leaves_alpha and is_new and is_alpha(job.spec)


def _with_unwritten(job: TFJob, unwritten: JobStatus | None) -> TFJob:
    """Return the job with what was observed and is not written yet.

    The API server may know more, from a write of ours whose response was lost; that is merged. A job that is being deleted
    stays as it is: nobody will read its status.
    """
    if unwritten is None or job.metadata.deletion_timestamp is not None:
        return job
    return msgspec.structs.replace(job, status=with_memory_of(job.status, unwritten))


def _permission(job: TFJob, *, satisfied: bool, first: bool) -> Permission:
    if not satisfied:
        return Permission.EXPECTING
    if conditions.is_finished(job.status):
        return Permission.FINAL
    return Permission.FIRST if first else Permission.UNCONFIRMED
