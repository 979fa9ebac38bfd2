"""The controller of jobs in the alpha dialect: a key becomes a sync: view, plan, execute, as in `controller.tfjob`.

Invariants:

- No child is created or deleted on a view that is not confirmed: by the status write of the same sync, or else by a read. A job
  that has ended needs none.
- A job of another dialect is left alone, also one that began in this one and was edited since.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES
from tfjob_operator.api.meta import PartialObjectMetadata
from tfjob_operator.api.owners import owner_uid_key
from tfjob_operator.api.v1.constants import MANAGED_BY_US
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1alpha1.validation import read_spec
from tfjob_operator.controller.alpha.children import JOBS, BatchJob
from tfjob_operator.controller.alpha.decide.ending import is_over
from tfjob_operator.controller.alpha.decide.plan import plan
from tfjob_operator.controller.alpha.decide.reading import in_force, refused
from tfjob_operator.controller.alpha.handlers import JobHandler, PodHandler
from tfjob_operator.controller.jobs.child_handler import OwnedChildHandler
from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
from tfjob_operator.controller.jobs.refusals import RefusedError
from tfjob_operator.controller.manager import RequeueError

if TYPE_CHECKING:
    from tfjob_operator.api.client import RestClient
    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1alpha1.constants import Dialect
    from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec
    from tfjob_operator.controller.alpha.caches import AlphaCaches
    from tfjob_operator.controller.alpha.decide.actions import Plan
    from tfjob_operator.controller.alpha.executor import AlphaExecutor
    from tfjob_operator.controller.alpha.status_writer import AlphaStatusWriter
    from tfjob_operator.controller.alpha.takeover import AlphaTakeover
    from tfjob_operator.controller.jobs.expectations import Expectations
    from tfjob_operator.controller.jobs.feed import Feed
    from tfjob_operator.controller.jobs.metrics import JobMetrics
    from tfjob_operator.workqueue import Clock

NOT_FILLED_S: Final = 1.0
"""After how long a job is synced again while the caches of children are not filled: only this controller waits for those."""


@dataclass(slots=True)
class _Memory:
    """What is remembered of a job between syncs; all of it can be lost.

    `written` is the job as our last status write left it, and stands in for the versions in `superseded`.
    """

    generation: int = -1
    spec: AlphaSpec | InvalidSpec = field(default_factory=lambda: InvalidSpec(()))
    written: AlphaJob | None = None
    superseded: set[str] = field(default_factory=set)


class AlphaController:
    """Runs the jobs of one dialect."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        caches: AlphaCaches,
        client: RestClient,
        feed: Feed,
        takeover: AlphaTakeover,
        executor: AlphaExecutor,
        status_writer: AlphaStatusWriter,
        expectations: Expectations,
        metrics: JobMetrics,
        clock: Clock,
    ) -> None:
        """Register the handlers. `feed` leads into the queue of the workers."""
        self._dialect = dialect
        self._caches = caches
        self._client = client
        self._feed = feed
        self._takeover = takeover
        self._executor = executor
        self._status_writer = status_writer
        self._expectations = expectations
        self._metrics = metrics
        self._clock = clock
        self._memory: dict[str, _Memory] = {}
        caches.jobs.add_event_handler(JobHandler(dialect, feed, self._forget))
        owner = dialect.resource.kind
        caches.batch_jobs.add_event_handler(OwnedChildHandler[BatchJob](owner, JOBS.plural, feed, expectations))
        caches.services.add_event_handler(OwnedChildHandler[Service](owner, SERVICES.plural, feed, expectations))
        caches.config_maps.add_event_handler(
            OwnedChildHandler[ConfigMap](owner, CONFIG_MAPS.plural, feed, expectations)
        )
        caches.pods.add_event_handler(OwnedChildHandler[Pod](owner, PODS.plural, feed, expectations))
        caches.pods.add_event_handler(PodHandler(dialect, feed, caches.batch_jobs))

    async def begin(self) -> None:
        """Begin to work, since this process now leads: queue all jobs of the dialect."""
        self._feed.open(job for job in self._caches.jobs.indexer.list() if job.is_of(self._dialect))

    async def sync(self, key: str) -> None:
        """Bring one job closer to what its specification asks for. Raises ApiError when it must be tried again."""
        cached = self._caches.jobs.indexer.get(key)
        if cached is None or not cached.is_of(self._dialect):
            return
        if not self._caches.have_synced:
            self._feed.after(key, NOT_FILLED_S)
            return
        structlog.contextvars.bind_contextvars(uid=cached.metadata.uid)
        memory = self._memory.setdefault(cached.metadata.uid, _Memory())
        job = _newest(cached, memory)
        spec = in_force(job, self._spec_of(job, memory))
        wait_s = await self._takeover.settle(job, spec, self._caches.children_of)
        if wait_s is not None:
            self._feed.after(key, wait_s)
            return  # what another operator made is on its way into the cache
        try:
            await self._once(key, job, spec, memory)
        except RefusedError as error:
            await self._once(key, memory.written or job, refused(spec, error.message), memory)

    async def _once(self, key: str, job: AlphaJob, spec: AlphaSpec | InvalidSpec, memory: _Memory) -> None:
        """Plan, and carry the plan out: the status, creates, deletes."""
        owner = owner_uid_key(job.metadata)
        may_act = self._expectations.satisfied(owner)  # before the caches are read
        children = self._caches.children_of(job)
        taken = self._executor.taken.get(job.metadata.uid, ())
        decided = plan(self._dialect, job, spec, children, self._clock.now(), taken=taken)
        acts = may_act and decided.acts
        wrote = await self._settle_status(key, job, decided, memory, at_once=acts)
        self._executor.report(job, decided)
        if acts:
            if not (wrote or is_over(job.status)):
                await self._confirm(job)
            await self._create_and_delete(memory.written or job, spec, decided)
        self._feed.after(key, self._expectations.expires_in_s(owner))

    async def _settle_status(self, key: str, job: AlphaJob, decided: Plan, memory: _Memory, *, at_once: bool) -> bool:
        """Write the status if there is one to write and it is due. Return whether it was written."""
        if decided.status is None:
            return False
        wait_s = 0.0 if at_once else self._status_writer.wait_s(job, decided.status)
        if wait_s > 0:
            self._feed.after(key, wait_s)
            return False
        written = await self._status_writer.write(job, decided, decided.status)
        memory.superseded.add(job.metadata.resource_version)
        memory.written = written
        if written is None:
            raise StaleJobError("the job is gone")
        return True

    async def _create_and_delete(self, job: AlphaJob, spec: AlphaSpec | InvalidSpec, decided: Plan) -> None:
        """Create, then delete: also after a create that failed, but not after a refusal, when another plan cleans up."""
        failure: ApiError | None = None
        if not isinstance(spec, InvalidSpec):
            try:
                await self._executor.create(job, spec, decided)
            except RefusedError:
                raise
            except ApiError as error:
                failure = error
        await self._executor.delete(job, decided.delete)
        if failure is not None:
            raise failure

    async def _confirm(self, job: AlphaJob) -> None:
        """Ask the server whether `job` is its newest version. Raises StaleJobError if it is not, or is gone."""
        meta = job.metadata
        try:
            found = await self._client.get(self._dialect.resource, meta.namespace, meta.name, PartialObjectMetadata)
        except NotFoundError as error:
            raise StaleJobError("the job is gone") from error
        if found.metadata.resource_version != meta.resource_version:
            raise StaleJobError("the job has changed since the cache saw it")

    def _spec_of(self, job: AlphaJob, memory: _Memory) -> AlphaSpec | InvalidSpec:
        """Return the specification. It is read once per generation."""
        if memory.generation != job.metadata.generation:
            memory.spec = read_spec(self._dialect, job.metadata.name, job.spec)
            memory.generation = job.metadata.generation
        return memory.spec

    def _forget(self, gone: ObjectMeta) -> None:
        memory = self._memory.pop(gone.uid, None)
        self._expectations.forget(owner_uid_key(gone))
        self._status_writer.forget(gone.uid)
        self._executor.forget(gone.uid)
        if memory is not None and memory.spec.managed_by in MANAGED_BY_US:
            self._metrics.job_deleted(gone.namespace)


class StaleJobError(RequeueError):
    """The job is no longer what the cache showed. The event of its new version brings another sync."""


def _newest(cached: AlphaJob, memory: _Memory) -> AlphaJob:
    """Return the cached job, or what our own last write made of it while the cache still shows an older version."""
    if memory.written is not None and cached.metadata.resource_version in memory.superseded:
        return memory.written
    memory.written = None
    memory.superseded.clear()
    return cached
