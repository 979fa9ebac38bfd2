"""The TFJob controller: what the informers see becomes keys, and workers turn keys into syncs.

A sync never looks at what woke it. It reads the job and its children from the caches, has a plan made, and has the plan carried
out. What goes wrong in one sync costs that job a retry after a growing delay, and nobody else anything.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tfjob_operator.api.client.errors import ApiError, ConflictError
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.children import ConfigMap, Pod, Service
from tfjob_operator.api.v1.types import InvalidSpec, TFJobSpec
from tfjob_operator.controller.tfjob.adoption import claims
from tfjob_operator.controller.tfjob.build.tf_config import too_long
from tfjob_operator.controller.tfjob.decide import restarts
from tfjob_operator.controller.tfjob.decide.actions import NOTHING
from tfjob_operator.controller.tfjob.decide.bounds import BOUNDS
from tfjob_operator.controller.tfjob.decide.facts import with_memory_of
from tfjob_operator.controller.tfjob.decide.held import refused
from tfjob_operator.controller.tfjob.decide.plan import plan
from tfjob_operator.controller.tfjob.decide.problems import unreported
from tfjob_operator.controller.tfjob.decide.reading import in_force, read, reading_of
from tfjob_operator.controller.tfjob.decide.urgency import is_beginning, only_starts
from tfjob_operator.controller.tfjob.executor import RefusedError
from tfjob_operator.controller.tfjob.handlers import ChildHandler, Feed, JobHandler
from tfjob_operator.controller.tfjob.kinds import CONFIG_MAP, POD, SERVICE
from tfjob_operator.controller.tfjob.metrics import NoReconcileMetrics
from tfjob_operator.controller.tfjob.ownership import ORPHAN_INDEX, OWNER_INDEX, owner_key
from tfjob_operator.controller.tfjob.status_writer import StaleViewError
from tfjob_operator.controller.tfjob.window import COUNTER_WINDOW_S, Window
from tfjob_operator.workqueue import ShutDown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfjob_operator.api.meta import ObjectMeta
    from tfjob_operator.api.v1.types import JobStatus, TFJob
    from tfjob_operator.controller.tfjob.adoption import RefManager
    from tfjob_operator.controller.tfjob.decide.actions import Plan, ProblemKey
    from tfjob_operator.controller.tfjob.decide.bounds import Bound
    from tfjob_operator.controller.tfjob.executor import Executor
    from tfjob_operator.controller.tfjob.expectations import Expectations
    from tfjob_operator.controller.tfjob.hindrances import Hindrances
    from tfjob_operator.controller.tfjob.leadership_term import LeadershipTerm
    from tfjob_operator.controller.tfjob.mender import Mender
    from tfjob_operator.controller.tfjob.metrics import JobMetrics, ReconcileMetrics, Result
    from tfjob_operator.controller.tfjob.pod_group_cache import PodGroupCache
    from tfjob_operator.controller.tfjob.status_writer import StatusWriter
    from tfjob_operator.informers import SharedIndexInformer
    from tfjob_operator.workqueue import Clock, RateLimitingQueue

log = structlog.get_logger(__name__)


_UNREAD: Final = InvalidSpec(())


@dataclass(slots=True)
class _Memory:
    """What is remembered of a job between syncs. All of it can be lost: it saves work, it decides nothing.

    `spec`, as it was read, and whether the job is `ours`, are valid for `reading`. `written` is the job as our last status
    write left it, and stands in for the versions in `superseded` until the cache has caught up. `unwritten` is the last status
    that was computed and is not known to be written: its write failed, or it waits in its `window`. `touched` says that a write
    was tried, `acted` that children were made or deleted. `told` are the problems of pods that were made events of.
    """

    reading: tuple[int, bool] | None = None
    spec: TFJobSpec | InvalidSpec = _UNREAD
    ours: bool = False
    written: TFJob | None = None
    superseded: set[str] = field(default_factory=set)
    unwritten: JobStatus | None = None
    window: Window = field(default_factory=Window)
    touched: bool = False
    acted: bool = False
    told: set[ProblemKey] = field(default_factory=set)

    def drop_spec(self) -> None:
        """Keep no specification, nor what its pods went through: a job that has ended is seldom looked at again (D17)."""
        self.reading, self.spec, self.told = None, _UNREAD, set()


def _with_unwritten(job: TFJob, unwritten: JobStatus | None) -> TFJob:
    """The job with what was observed but is not written yet: a replica has succeeded, though its pod may be gone by now.

    The server may know more by now, from a write of ours whose answer was lost; that counts as well.
    """
    if unwritten is None:
        return job
    return msgspec.structs.replace(job, status=with_memory_of(job.status, unwritten))


class TFJobController:
    """Runs TFJobs.

    Invariants: a key is in the hands of at most one worker (the queue sees to it), so nothing else touches a job's memory while
    it is synced; children are created or deleted only while the job's expectations are met.
    """

    def __init__(
        self,
        *,
        jobs: SharedIndexInformer[TFJob],
        pods: SharedIndexInformer[Pod],
        services: SharedIndexInformer[Service],
        config_maps: SharedIndexInformer[ConfigMap],
        queue: RateLimitingQueue[str],
        executor: Executor,
        ref_manager: RefManager,
        mender: Mender,
        status_writer: StatusWriter,
        expectations: Expectations,
        hindrances: Hindrances,
        metrics: JobMetrics,
        clock: Clock,
        pod_groups: PodGroupCache | None = None,
        reconciles: ReconcileMetrics | None = None,
        leadership_term: LeadershipTerm | None = None,
        domain: str = "",
    ) -> None:
        """Register the handlers; `pods`, `services` and `config_maps` must have `ownership.CHILD_INDEXERS`.

        `domain` is the cluster's DNS domain where TF_CONFIG needs it. `pod_groups` is None where no gang scheduler is in use,
        and `leadership_term` where others may work on jobs at the same time.
        """
        self._jobs = jobs
        self._pods = pods
        self._services = services
        self._config_maps = config_maps
        self._queue = queue
        self._executor = executor
        self._ref_manager = ref_manager
        self._mender = mender
        self._status_writer = status_writer
        self._expectations = expectations
        self._hindrances = hindrances
        self._metrics = metrics
        self._reconciles = reconciles or NoReconcileMetrics()
        self._clock = clock
        self._pod_groups = pod_groups
        self._leadership_term = leadership_term
        self._domain = domain
        self._bounds: tuple[Bound, ...] = (*BOUNDS, lambda meta, spec: too_long(meta, spec, domain))
        self._memory: dict[str, _Memory] = {}
        self._feed = Feed(queue)
        jobs.add_event_handler(JobHandler(self._feed, self._forget))
        pods.add_event_handler(ChildHandler[Pod](POD, self._feed, expectations, hindrances))
        services.add_event_handler(ChildHandler[Service](SERVICE, self._feed, expectations, hindrances))
        config_maps.add_event_handler(ChildHandler[ConfigMap](CONFIG_MAP, self._feed, expectations, hindrances))
        if pod_groups is not None:
            pod_groups.tell(self._feed, expectations, hindrances)

    def feed(self) -> None:
        """Queue all jobs of the cache, and from now on those that change. Does it once, however often it is called."""
        self._feed.open(self._jobs.indexer.list())

    async def run(self, workers: int) -> None:
        """Sync keys with `workers` tasks until the queue is shut down; what is still in it then is left to the next leader."""
        self.feed()
        async with asyncio.TaskGroup() as group:
            if self._leadership_term is not None:
                group.create_task(self._leadership_term.begin(), name="leadership_term")
            for number in range(workers):
                group.create_task(self._work(), name=f"tfjob-worker-{number}")

    async def _work(self) -> None:
        while not self._queue.shutting_down:
            try:
                key = await self._queue.get()
            except ShutDown:
                return
            try:
                # `uid` is known when the job was read; until then it must not be that of the last one.
                with structlog.contextvars.bound_contextvars(tfjob=key, uid="", reconcile_id=uuid.uuid4().hex[:8]):
                    await self._sync_counted(key)
            finally:
                self._queue.done(key)
            # A sync that finds nothing to do never suspends, and `get` does not either while keys wait: let others run.
            await asyncio.sleep(0)

    async def _sync_counted(self, key: str) -> None:
        started = self._clock.monotonic()
        self._reconciles.begun()
        result: Result = "error"  # also when it is cut short
        try:
            result = await self._sync_safely(key)
        finally:
            self._reconciles.ended(result, self._clock.monotonic() - started)

    async def _sync_safely(self, key: str) -> Result:
        try:
            await self.sync(key)
        except (ConflictError, StaleViewError) as error:
            # The cache is behind the server; the newer version will arrive, and with it a key. This is the safety net.
            log.debug("sync_conflict", error=str(error))
            self._queue.add_rate_limited(key)
            return "requeue"
        except ApiError as error:
            log.warning("sync_failed", error=str(error), tries=self._queue.num_requeues(key) + 1)
            self._queue.add_rate_limited(key)
            return "error"
        except Exception:  # a bug in the sync of one job must not end the worker that serves all the others
            log.exception("sync_crashed", tries=self._queue.num_requeues(key) + 1)
            self._queue.add_rate_limited(key)
            return "panic"
        self._queue.forget(key)
        return "success"

    async def sync(self, key: str) -> None:
        """Bring one job closer to what its specification asks for. Raises ApiError when it must be tried again."""
        cached = self._jobs.indexer.get(key)
        if cached is None:
            return
        memory = self._memory.setdefault(cached.metadata.uid, _Memory())
        known = self._newest(cached, memory)
        job = _with_unwritten(known, memory.unwritten)
        structlog.contextvars.bind_contextvars(uid=job.metadata.uid)
        # EX-04: first this question, then the caches. A child that arrives in between delays us, and never is made twice.
        owner = owner_key(job.metadata)
        may_act = self._expectations.satisfied(owner)
        pods = self._pods.indexer.by_index(OWNER_INDEX, owner)
        services = self._services.indexer.by_index(OWNER_INDEX, owner)
        spec = self._spec_of(job, memory)
        if not memory.ours:
            return
        if may_act and isinstance(spec, TFJobSpec) and await self._claim(key, known, spec, pods, services):
            return
        gang = self._pod_groups.gang_of(job.metadata) if self._pod_groups is not None else None
        decided = plan(
            job,
            spec,
            pods,
            services,
            self._clock.now(),
            config_maps=self._config_maps.indexer.by_index(OWNER_INDEX, owner),
            gang=gang,
            domain=self._domain,
        )
        if conditions.is_finished(known.status):
            memory.drop_spec()
        if decided.requeue_after_s is not None:
            self._queue.add_after(key, decided.requeue_after_s)
        await self._confirm_restarts(job, decided, pods)
        decided = self._hindrances.due(job.metadata, decided)
        acts = may_act and decided.acts
        untouched = (
            self._leadership_term is not None and not memory.touched and self._leadership_term.is_untouched(known)
        )
        # Once: on a view that stays old it would make again and again what the garbage collector takes away.
        unproved = untouched and not memory.acted
        written = await self._write_status(
            key, known, job, memory, decided, at_once=acts and not unproved, may_wait=untouched
        )
        await self._tell_and_mend(key, job, spec, memory, decided)
        if not acts:
            self._wake_later(key, job.metadata)
            return
        # A view may be old: after a restart, or from a lagging cache of the API server. Acting on one could run again what has
        # ended. A write that went through proves it new, and so does a look; an end needs no proof, since it is final, nor does
        # a job that nobody else can have worked on.
        if not (written or unproved or conditions.is_finished(job.status)):
            await self._status_writer.confirm(known)
        memory.acted = True
        try:
            await self._carry_out(job, spec, decided)
        except RefusedError as error:
            latest, waits = memory.written or known, memory.unwritten
            # A first status that waits for the pods goes with the last one.
            begun = latest if waits is None else msgspec.structs.replace(latest, status=waits)
            answer = plan(begun, refused(spec, error.message), pods, services, self._clock.now(), gang=gang)
            answer = replace(answer, events=(() if waits is None else decided.events) + answer.events)
            await self._write_status(key, latest, begun, memory, answer, at_once=True)
            return
        self._wake_later(key, job.metadata)
        if decided.delete_job:
            await self._executor.delete_job(known)

    async def _tell_and_mend(
        self, key: str, job: TFJob, spec: TFJobSpec | InvalidSpec, memory: _Memory, decided: Plan
    ) -> None:
        """Tell what keeps pods from starting, and set right what users have edited of children. Nothing waits for either."""
        for problem in unreported(decided.problems, memory.told):
            memory.told.add(problem.key)
            self._executor.record(job, problem.event.type, problem.event.reason, problem.event.message)
        if isinstance(spec, TFJobSpec):
            self._wake_after(key, await self._mender.carry_out(job, spec, decided))

    async def _carry_out(self, job: TFJob, spec: TFJobSpec | InvalidSpec, decided: Plan) -> None:
        """Create, then delete, also when creating failed: what is to go may be what stands in the way, of a quota say.

        Raises ApiError when either failed; RefusedError at once, since another plan then cleans up all that the job has.
        """
        failure: ApiError | None = None
        if isinstance(spec, TFJobSpec):
            try:
                await self._executor.create_children(job, spec, decided)
            except RefusedError:
                raise
            except ApiError as error:
                failure = error
        await self._executor.delete_children(job, decided)
        if failure is not None:
            raise failure

    async def _claim(
        self, key: str, job: TFJob, spec: TFJobSpec, pods: Sequence[Pod], services: Sequence[Service]
    ) -> bool:
        """Adopt children for a job that lives and is ours to run. True if that changed what the caches will show."""
        meta = job.metadata
        ends = meta.deletion_timestamp is not None or conditions.is_finished(job.status)
        if ends or spec.managed_by not in c.MANAGED_BY_US:
            return False
        claimed = (
            claims(meta.name, POD, pods, self._pods.indexer.by_index(ORPHAN_INDEX, key)),
            claims(meta.name, SERVICE, services, self._services.indexer.by_index(ORPHAN_INDEX, key)),
        )
        adoptions = await self._ref_manager.carry_out(job, claimed, lambda: self._status_writer.confirm(job))
        self._wake_after(key, adoptions.wait_s)
        return adoptions.any

    async def _confirm_restarts(self, job: TFJob, decided: Plan, pods: Sequence[Pod]) -> None:
        """Make sure of the pods that restarts are newly counted of: on an old view they may be counted long since (B36)."""
        if decided.status is None:
            return
        counted = {record.pod for record in restarts.taken_over(job.status.restarts, decided.status.restarts)}
        found = [(pod.metadata.name, pod.metadata.uid) for pod in pods if pod.metadata.uid in counted]
        await self._status_writer.confirm_pods(job.metadata.namespace, found)

    def _wake_later(self, key: str, meta: ObjectMeta) -> None:
        """Two things send no event: a child that came and went between two watches (EX-02), and a wait that is over (U2)."""
        self._wake_after(key, self._expectations.expires_in_s(owner_key(meta)))
        self._wake_after(key, self._hindrances.next_due_in_s(meta))

    def _wake_after(self, key: str, wait_s: float | None) -> None:
        if wait_s is not None:
            self._queue.add_after(key, wait_s)

    async def _write_status(
        self,
        key: str,
        known: TFJob,
        job: TFJob,
        memory: _Memory,
        decided: Plan,
        *,
        at_once: bool,
        may_wait: bool = False,
    ) -> bool:
        """Write what differs from `known`, which is what the server has; `job` is that with what was not written yet.

        Answers whether a write went through, which proves that `known` was the newest version. Mere counters wait for each
        other, unless it is wanted `at_once`. That a job is created or running, if that `may_wait`, waits for the pods of other
        jobs: in a burst they come first, and mostly both can be said in one write.
        """
        if decided is NOTHING:
            return False  # the job is about to go: what was observed before is nobody's concern any more
        status = decided.status
        if status is None and job.status != known.status:
            status = job.status
        if status is None:
            memory.unwritten = None
            memory.window.close()
            return False
        busy = len(self._queue) > 0
        backs_off = may_wait and busy and is_beginning(status)
        if (backs_off or status.conditions == known.status.conditions) and not at_once:
            starts = backs_off or only_starts(known.status, status)
            left_s = memory.window.left_s(self._clock.monotonic(), starts=starts, busy=busy)
            memory.unwritten = status
            if left_s > 0:
                # By then the queue may be empty, and nothing left that would wake the job.
                self._queue.add_after(key, min(left_s, COUNTER_WINDOW_S))
                return False
        memory.unwritten = status  # the write may fail, and the pod that showed what is in it be gone at the next try
        memory.touched = True
        written = await self._status_writer.write(known, status, decided.events)
        memory.unwritten = None
        memory.window.close()
        memory.superseded.add(known.metadata.resource_version)
        memory.written = written
        return written is not None

    def _newest(self, cached: TFJob, memory: _Memory) -> TFJob:
        """The cached job, or what our own last write made of it while the cache still shows what we wrote over.

        Versions are compared for equality only. Without this every sync between a write and its arrival in the cache would
        write again, to be refused with a conflict.
        """
        if memory.written is not None and cached.metadata.resource_version in memory.superseded:
            return memory.written
        memory.written = None
        memory.superseded.clear()
        return self._status_writer.unkept.as_sent(cached)

    def _spec_of(self, job: TFJob, memory: _Memory) -> TFJobSpec | InvalidSpec:
        """The specification that is in force. What was written is read once per generation."""
        if memory.reading != reading_of(job):
            memory.spec, memory.reading = read(job), reading_of(job)
            memory.ours = memory.spec.managed_by in c.MANAGED_BY_US
        return in_force(job, memory.spec, self._bounds)

    def _forget(self, gone: ObjectMeta) -> None:
        self._expectations.forget(owner_key(gone))
        self._hindrances.forget(gone)
        self._status_writer.unkept.forget(gone.uid)
        self._mender.forget(gone)
        memory = self._memory.pop(gone.uid, None)
        # Jobs that this process has worked on: a replica that waits for the lease sees deletions too, and must not count them
        # a second time; a job that another controller manages is not ours to count (B75).
        if memory is not None and memory.ours:
            self._metrics.job_deleted(gone.namespace)
