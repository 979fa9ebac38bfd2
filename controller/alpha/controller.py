"""The controller of jobs in the alpha dialect. A sync consists of view, plan and execution, as in `controller.tfjob`.

Events of jobs, and of the pods of their batch Jobs, are mapped to keys of jobs; other children have the handler of
`controller.jobs`.

The pods of jobs started by an earlier operator are taken over (`plan.py` detects such jobs). They are given our labels so
that our watches select them and the caches contain them. Each such pod represents its replica for as long as the pod exists.
The earlier operator's services are not changed: running replicas find their peers through these services, whose selectors
also match our children.

Invariants:

- No child is created or deleted on an unconfirmed view. A view is confirmed by the status write of the same sync, or by a read;
  a finished job needs no confirmation.
- A job of another dialect is ignored, even if it was started in this dialect and edited later.
- A job started by another operator is not planned before its pods are in our caches, so no duplicates are created.
- Objects controlled by another object are not modified, and a patch specifies the UID of its pod.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec
import structlog

from tfjob_operator.api.client import RestClient
from tfjob_operator.api.client.errors import ApiError, NotFoundError
from tfjob_operator.api.client.options import MERGE_PATCH, ListOptions
from tfjob_operator.api.core import CONFIG_MAPS, JOBS, PODS, SERVICES, EventType
from tfjob_operator.api.core_messages import BY_RESOURCE
from tfjob_operator.api.meta import (
    OWNER_INDEX,
    ObjectMeta,
    PartialObjectMetadata,
    Resource,
    controller_of,
    object_key,
    owner_uid_key,
)
from tfjob_operator.api.v1.constants import MANAGED_BY_US, EventReason
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1alpha1.constants import CHILD_SELECTOR, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus, job_with_unreadable_status
from tfjob_operator.api.v1alpha1.validation import read_spec
from tfjob_operator.controller.alpha.build import is_ours, labels_of_found
from tfjob_operator.controller.alpha.children import INDEXERS, BatchJob, Children, replica_of_bare_pod
from tfjob_operator.controller.alpha.executor import CONFIG_MAP, JOB, POD, SERVICE, AlphaExecutor, AlphaStatusWriter
from tfjob_operator.controller.alpha.plan import (
    AlphaPlan,
    effective_spec,
    is_finished,
    may_have_hidden_children,
    plan,
    refused,
    selector_of_hidden,
)
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.children import ChildMeta, ConfigMap, Pod, Service
from tfjob_operator.controller.jobs.expectations import Expectations, Feed, JobHandler, OwnedChildHandler
from tfjob_operator.controller.jobs.metrics import JOB_INDEXERS, JobMetrics
from tfjob_operator.controller.jobs.pending import PendingStatus
from tfjob_operator.controller.jobs.writes import (
    MAX_AT_ONCE,
    TAKEN_DELAY_S,
    JobEvents,
    NameTakenError,
    RefusedError,
    confirm,
)
from tfjob_operator.controller.manager import Controller
from tfjob_operator.informers import Codec, SharedIndexInformer, SharedInformerFactory, Tombstone, object_of
from tfjob_operator.workqueue import (
    NO_METRICS,
    Clock,
    MetricsProvider,
    RateLimitingQueue,
    default_controller_rate_limiter,
)
from tfjob_operator.workqueue.parallel import slow_start_batch

C = TypeVar("C", BatchJob, Pod, Service, ConfigMap)


@dataclass(frozen=True, slots=True, eq=False)
class AlphaCaches:
    """The informers. Only this controller waits for them, so a missing permission or CRD does not affect others."""

    jobs: SharedIndexInformer[AlphaJob]
    batch_jobs: SharedIndexInformer[BatchJob]
    pods: SharedIndexInformer[Pod]
    services: SharedIndexInformer[Service]
    config_maps: SharedIndexInformer[ConfigMap]

    @classmethod
    def of(
        cls, dialect: Dialect, factory: SharedInformerFactory, namespace: str, *, resync_s: float = 0.0
    ) -> AlphaCaches:
        """Return the caches for a namespace, or "" for all. Both alpha APIs share the caches of children."""

        def children(resource: Resource, kind: type[C]) -> SharedIndexInformer[C]:
            return factory.informer(
                Codec(resource, kind, message=BY_RESOURCE.get(resource)),
                namespace=namespace,
                label_selector=CHILD_SELECTOR,
                indexers=INDEXERS,
                required=False,
            )

        def own(index: Callable[[AlphaJob], Sequence[str]]) -> Callable[[AlphaJob], Sequence[str]]:
            return lambda job: index(job) if job.is_of(dialect) else ()

        jobs = Codec(dialect.resource, AlphaJob, on_undecodable=job_with_unreadable_status)
        return cls(
            jobs=factory.informer(
                jobs,
                namespace=namespace,
                indexers={name: own(index) for name, index in JOB_INDEXERS.items()},
                resync_s=resync_s,
                required=False,
            ),
            batch_jobs=children(JOBS, BatchJob),
            pods=children(PODS, Pod),
            services=children(SERVICES, Service),
            config_maps=children(CONFIG_MAPS, ConfigMap),
        )

    @property
    def have_synced(self) -> bool:
        """True if all caches are filled."""
        informers = (self.jobs, self.batch_jobs, self.pods, self.services, self.config_maps)
        return all(informer.has_synced for informer in informers)

    def children_of(self, job: AlphaJob) -> Children:
        """Return the cached children of a job."""
        owner = owner_uid_key(job.metadata)
        batch_jobs = self.batch_jobs.indexer.by_index(OWNER_INDEX, owner)
        bare: dict[str, list[Pod]] = {}
        for pod in self.pods.indexer.by_index(OWNER_INDEX, owner):
            bare.setdefault(replica_of_bare_pod(job.metadata.name, pod.metadata.name), []).append(pod)
        return Children(
            jobs=batch_jobs,
            services=self.services.indexer.by_index(OWNER_INDEX, owner),
            config_maps=self.config_maps.indexer.by_index(OWNER_INDEX, owner),
            pods=[
                pod
                for each in batch_jobs
                for pod in self.pods.indexer.by_index(OWNER_INDEX, owner_uid_key(each.metadata))
            ],
            bare=bare,
        )


class PodHandler:
    """Queues the TFJob of a pod's batch Job. If that Job is not cached yet, its own event queues the TFJob."""

    def __init__(self, dialect: Dialect, feed: Feed, batch_jobs: SharedIndexInformer[BatchJob]) -> None:
        self._owner_kind = dialect.resource.kind
        self._feed = feed
        self._batch_jobs = batch_jobs

    def on_add(self, pod: Pod, _is_in_initial_list: bool, /) -> None:  # noqa: FBT001 - as above
        """Queue the job of a new pod."""
        self._wake(pod.metadata)

    def on_update(self, _old: Pod, new: Pod, /) -> None:
        """Queue the job of a changed pod."""
        self._wake(new.metadata)

    def on_delete(self, gone: Pod | Tombstone[Pod], /) -> None:
        """Queue the job of a deleted pod."""
        self._wake(object_of(gone).metadata)

    def _wake(self, meta: ChildMeta) -> None:
        by = controller_of(meta)
        batch_job = self._batch_jobs.indexer.get(object_key(meta.namespace, by.name)) if by is not None else None
        owner = controller_of(batch_job.metadata) if batch_job is not None else None
        if owner is not None and owner.kind == self._owner_kind:
            self._feed.add(object_key(meta.namespace, owner.name))


CACHE_RETRY_S: Final = 1.0
"""Retry interval while the caches of children are not filled; only this controller waits for them."""


@dataclass(slots=True)
class _Memory:
    """State kept for a job, which may be lost."""

    generation: int = -1
    spec: AlphaSpec | InvalidSpec = field(default_factory=lambda: InvalidSpec(()))
    status: PendingStatus[AlphaJob, AlphaStatus] = field(default_factory=PendingStatus)


class AlphaController:
    """Runs the jobs of one alpha API."""

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
        """Register the handlers. `feed` adds to the workers' queue."""
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
        caches.jobs.add_event_handler(JobHandler[AlphaJob](feed, self._forget, lambda job: job.is_of(dialect)))
        owner = dialect.resource.kind
        caches.batch_jobs.add_event_handler(OwnedChildHandler[BatchJob](owner, JOB.name, feed, expectations))
        caches.services.add_event_handler(OwnedChildHandler[Service](owner, SERVICE.name, feed, expectations))
        caches.config_maps.add_event_handler(OwnedChildHandler[ConfigMap](owner, CONFIG_MAP.name, feed, expectations))
        caches.pods.add_event_handler(OwnedChildHandler[Pod](owner, POD.name, feed, expectations))
        caches.pods.add_event_handler(PodHandler(dialect, feed, caches.batch_jobs))

    async def begin(self) -> None:
        """Start working as the leader: queue all jobs of the dialect."""
        self._feed.open(job for job in self._caches.jobs.indexer.list() if job.is_of(self._dialect))

    async def sync(self, key: str) -> None:
        """Move one job closer to its spec. Raises ApiError if it must be retried."""
        cached = self._caches.jobs.indexer.get(key)
        if cached is None or not cached.is_of(self._dialect):
            return
        if not self._caches.have_synced:
            self._feed.after(key, CACHE_RETRY_S)
            return
        structlog.contextvars.bind_contextvars(uid=cached.metadata.uid)
        try:
            await self._sync(key, cached)
        finally:
            if not self._caches.jobs.indexer.has(cached.metadata):
                self._forget(cached.metadata)  # again: this sync has added state since

    async def _sync(self, key: str, cached: AlphaJob) -> None:
        memory = self._memory.setdefault(cached.metadata.uid, _Memory())
        job = memory.status.newest(cached) or cached
        spec = effective_spec(job, self._spec_of(job, memory))
        wait_s = await self._takeover.ensure_labelled(job, spec, self._caches.children_of)
        if wait_s is not None:
            self._feed.after(key, wait_s)
            return  # synced again when the caches contain the labeled pods
        try:
            await self._plan_and_execute(key, job, spec, memory)
        except RefusedError as error:
            newest = memory.status.newest(cached) or cached
            await self._plan_and_execute(key, newest, refused(spec, error.message), memory)

    async def _plan_and_execute(self, key: str, job: AlphaJob, spec: AlphaSpec | InvalidSpec, memory: _Memory) -> None:
        """Make a plan and execute it: first the status, then creates, then deletes."""
        owner = owner_uid_key(job.metadata)
        may_act = self._expectations.satisfied(owner)  # before the caches are read
        children = self._caches.children_of(job)
        taken = self._executor.taken.get(job.metadata.uid, ())
        decided = plan(self._dialect, job, spec, children, self._clock.now(), taken=taken)
        acts = may_act and decided.acts
        written = await self._status_writer.write_if_due(key, job, decided, memory.status, at_once=acts)
        self._executor.report(job, decided)
        if acts:
            if not (written or is_finished(job.status)):
                await confirm(self._client, self._dialect.resource, job.metadata)
            try:
                await self._create_and_delete(written or job, spec, decided)
            except NameTakenError:
                self._feed.after(key, TAKEN_DELAY_S)  # the retry delay grows beyond that
                raise
        self._feed.after(key, self._expectations.expires_in_s(owner))

    async def _create_and_delete(self, job: AlphaJob, spec: AlphaSpec | InvalidSpec, decided: AlphaPlan) -> None:
        """Create, then delete.

        If a create failed, the deletes still follow. If a child was rejected as invalid, they do not: another plan cleans up.
        """
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

    def _spec_of(self, job: AlphaJob, memory: _Memory) -> AlphaSpec | InvalidSpec:
        """Return the spec, which is parsed once per generation."""
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
            self._metrics.count("deleted", gone.namespace)


@dataclass(frozen=True, slots=True)
class AlphaPart:
    """The controller of one alpha API, ready to run, and its caches."""

    controller: Controller
    caches: AlphaCaches


def new_alpha_part(
    dialect: Dialect,
    informers: SharedInformerFactory,
    writer: RestClient,
    recorder: EventRecorder,
    *,
    jobs_metrics: JobMetrics,
    clock: Clock,
    metrics: MetricsProvider = NO_METRICS,
    namespace: str = "",
    resync_s: float = 0.0,
    workers: int = 1,
    config: ConfigSource = NO_CONFIG,
) -> AlphaPart:
    """Return the controller of the jobs in `namespace`, "" for all, with its caches; it writes through `writer`."""
    name = f"tfjob-{dialect.resource.group.replace('.', '-')}-v1alpha1"
    queue: RateLimitingQueue[str] = RateLimitingQueue(
        default_controller_rate_limiter(), name=name, metrics=metrics, clock=clock
    )
    caches = AlphaCaches.of(dialect, informers, namespace, resync_s=resync_s)
    alpha = new_alpha_controller(
        dialect, caches, writer, recorder, queue, clock=clock, metrics=jobs_metrics, config=config
    )
    controller = Controller(
        name, alpha.sync, queue=queue, workers=workers, on_start=alpha.begin, metrics=metrics, clock=clock
    )
    return AlphaPart(controller, caches)


def new_alpha_controller(
    dialect: Dialect,
    caches: AlphaCaches,
    client: RestClient,
    recorder: EventRecorder,
    queue: RateLimitingQueue[str],
    *,
    clock: Clock,
    metrics: JobMetrics,
    config: ConfigSource = NO_CONFIG,
) -> AlphaController:
    """Return a controller that reads these caches, writes through `client`, and adds keys to `queue`."""
    expectations = Expectations(clock)
    feed, events = Feed(queue), JobEvents(dialect.resource, recorder, clock)
    return AlphaController(
        dialect,
        caches=caches,
        client=client,
        feed=feed,
        takeover=AlphaTakeover(dialect, client, events),
        executor=AlphaExecutor(dialect, client, events, expectations, config=config),
        status_writer=AlphaStatusWriter(dialect, client, events, metrics, feed=feed, clock=clock),
        expectations=expectations,
        metrics=metrics,
        clock=clock,
    )


RECHECK_S: Final = 1.0
"""When a job is synced again whose labeled pods are not in the caches yet, unless an event comes first."""

log = structlog.get_logger(__name__)


class _PodMetadataList(msgspec.Struct):
    items: list[PartialObjectMetadata] | None = None


class AlphaTakeover:
    """Finds and labels pods created by another operator. Stateless."""

    def __init__(self, dialect: Dialect, client: RestClient, events: JobEvents) -> None:
        """No requests are sent unless a job was started by another operator."""
        self._dialect = dialect
        self._client = client
        self._events = events

    async def ensure_labelled(
        self, job: AlphaJob, spec: AlphaSpec | InvalidSpec, children_of: Callable[[AlphaJob], Children]
    ) -> float | None:
        """Return None if the job may be planned; else the seconds until the next check, if no event comes first.

        `children_of` returns a job's cached children. Raises ApiError if pods cannot be listed or patched: the job must then be
        retried.
        """
        if not (isinstance(spec, AlphaSpec) and spec.runtime_id and may_have_hidden_children(job)):
            return None
        meta = job.metadata
        options = ListOptions(meta.namespace, label_selector=selector_of_hidden(meta, spec))
        page = await self._client.list_page(PODS, options, _PodMetadataList)
        pods = [each.metadata for each in page.items or () if _is_controlled_by(each.metadata, meta)]
        hidden = [pod for pod in pods if not is_ours(pod)]
        await self._label(job, spec, hidden)
        if hidden:
            message = f"Adopted {len(hidden)} pod{'s' if len(hidden) > 1 else ''} created by another operator"
            self._events.record(meta, EventType.NORMAL, EventReason.ADOPTED, message)
        seen = {pod.metadata.uid for found in children_of(job).bare.values() for pod in found}
        return None if all(pod.uid in seen for pod in pods) else RECHECK_S

    async def _label(self, job: AlphaJob, spec: AlphaSpec, pods: Sequence[ObjectMeta]) -> None:
        """Label these pods. Raises the first ApiError and sends no more."""

        async def take(number: int) -> None:
            pod = pods[number]
            body = {"metadata": {"uid": pod.uid, "labels": labels_of_found(self._dialect, job.metadata, spec, pod)}}
            try:
                await self._client.patch(PODS, pod.namespace, pod.name, body, content_type=MERGE_PATCH)
            except NotFoundError:
                return
            except ApiError as error:
                text = f"Error adopting pod {pod.name}: {error}"
                self._events.record(job.metadata, EventType.WARNING, EventReason.FAILED_ADOPT_POD, text)
                raise
            log.info("child_taken_over", kind="pod", name=pod.name)

        _, error = await slow_start_batch(len(pods), take, MAX_AT_ONCE, at_once=MAX_AT_ONCE)
        if error is not None:
            raise error


def _is_controlled_by(pod: ObjectMeta, job: ObjectMeta) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner.uid == job.uid
