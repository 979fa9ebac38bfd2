"""The controller of jobs in the alpha dialect. A sync consists of view, plan and execution, as in `controller.tfjob`.

Events of jobs, and of the pods of their batch Jobs, are mapped to keys of jobs; other children have the handler of
`controller.jobs`.

The pods of jobs started by an earlier operator are taken over (`alpha_plan.py` detects such jobs). They are given our labels so
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
from dataclasses import dataclass, field, replace
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
    owner_uid_key,
)
from tfjob_operator.api.v1.constants import MANAGED_BY_US, EventReason
from tfjob_operator.api.v1.types import InvalidSpec
from tfjob_operator.api.v1alpha1.constants import CHILD_SELECTOR, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, AlphaSpec, AlphaStatus, job_with_unreadable_status
from tfjob_operator.api.v1alpha1.validation import read_spec
from tfjob_operator.controller.alpha.alpha_executor import (
    CONFIG_MAP,
    JOB,
    POD,
    SERVICE,
    AlphaExecutor,
    AlphaStatusWriter,
)
from tfjob_operator.controller.alpha.alpha_plan import (
    AlphaPlan,
    effective_spec,
    is_finished,
    may_have_hidden_children,
    plan,
    refused,
    selector_of_hidden,
)
from tfjob_operator.controller.alpha.batch_jobs import INDEXERS, BatchJob, Children, replica_of_bare_pod
from tfjob_operator.controller.alpha.build import is_ours, labels_of_found
from tfjob_operator.controller.config.values import NO_CONFIG, ConfigSource
from tfjob_operator.controller.events.recorder import EventRecorder
from tfjob_operator.controller.jobs.blocked import BlockedChildren, Delays
from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.handlers import Feed, GrandchildHandler, JobHandler, OwnedChildHandler
from tfjob_operator.controller.jobs.job_metrics import JOB_INDEXERS, JobMetrics
from tfjob_operator.controller.jobs.pending import PendingStatus
from tfjob_operator.controller.jobs.reconciler import Ownership, Reconciler
from tfjob_operator.controller.jobs.writes import MAX_AT_ONCE, JobEvents, confirm
from tfjob_operator.controller.manager import Controller
from tfjob_operator.informers import Codec, SharedIndexInformer, SharedInformerFactory
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
                each
                for batch_job in batch_jobs
                for each in self.pods.indexer.by_index(OWNER_INDEX, owner_uid_key(batch_job.metadata))
            ],
            bare=bare,
        )


CACHE_RETRY_S: Final = 1.0
"""Retry interval while the caches of children are not filled; only this controller waits for them."""


@dataclass(slots=True)
class AlphaMemory:
    """State kept for a job, which may be lost."""

    generation: int = -1
    spec: AlphaSpec | InvalidSpec = field(default_factory=lambda: InvalidSpec(()))
    status: PendingStatus[AlphaJob, AlphaStatus] = field(default_factory=PendingStatus)

    @property
    def ours(self) -> bool:
        """True if no other controller manages the job."""
        return self.spec.managed_by in MANAGED_BY_US

    def spec_of(self, dialect: Dialect, job: AlphaJob) -> AlphaSpec | InvalidSpec:
        """Return the spec, which is parsed once per generation."""
        if self.generation != job.metadata.generation:
            self.spec = read_spec(dialect, job.metadata.name, job.spec)
            self.generation = job.metadata.generation
        return self.spec


@dataclass(frozen=True, slots=True, eq=False)
class AlphaView:
    """One job in one sync. `confirmed`: a status write has confirmed the view."""

    key: str
    job: AlphaJob
    spec: AlphaSpec | InvalidSpec
    children: Children
    may_act: bool
    confirmed: bool = False


class AlphaController(Reconciler[AlphaJob, AlphaMemory, AlphaView, AlphaPlan]):
    """Runs the jobs of one alpha API."""

    def __init__(
        self,
        dialect: Dialect,
        caches: AlphaCaches,
        client: RestClient,
        recorder: EventRecorder,
        feed: Feed,
        *,
        clock: Clock,
        metrics: JobMetrics,
        config: ConfigSource = NO_CONFIG,
    ) -> None:
        """Read these caches, write through `client`, and queue keys through `feed`. Registers the handlers."""
        expectations, blocked = Expectations(clock), BlockedChildren(clock, Delays(clock))
        events = JobEvents(dialect.resource, recorder, clock)
        self._status_writer = AlphaStatusWriter(dialect, client, events, metrics, clock)
        super().__init__(
            caches.jobs,
            self._status_writer,
            feed=feed,
            events=events,
            expectations=expectations,
            blocked=blocked,
            metrics=metrics,
        )
        self._dialect = dialect
        self._caches = caches
        self._client = client
        self._takeover = AlphaTakeover(dialect, client, events)
        self._executor = AlphaExecutor(dialect, client, events, expectations, blocked, config=config)
        self._clock = clock
        caches.jobs.add_event_handler(JobHandler[AlphaJob](feed, self.forget, self._takes))
        owner = dialect.resource.kind
        caches.batch_jobs.add_event_handler(OwnedChildHandler[BatchJob](owner, JOB.name, feed, expectations))
        caches.services.add_event_handler(OwnedChildHandler[Service](owner, SERVICE.name, feed, expectations))
        caches.config_maps.add_event_handler(OwnedChildHandler[ConfigMap](owner, CONFIG_MAP.name, feed, expectations))
        caches.pods.add_event_handler(OwnedChildHandler[Pod](owner, POD.name, feed, expectations))
        caches.pods.add_event_handler(GrandchildHandler(owner, feed, caches.batch_jobs))

    async def begin(self) -> None:
        """Start working as the leader: queue all jobs of the dialect."""
        self._feed.open(job for job in self._caches.jobs.indexer.list() if self._takes(job))

    def forget(self, gone: ObjectMeta) -> None:
        """Forget all state of a deleted job, and count its deletion."""
        self._executor.forget(gone.uid)
        super().forget(gone)

    def _takes(self, job: AlphaJob) -> bool:
        return job.is_of(self._dialect)

    def _new_memory(self) -> AlphaMemory:
        return AlphaMemory()

    def _view(self, key: str, cached: AlphaJob, memory: AlphaMemory) -> AlphaView | None:
        if not self._caches.have_synced:
            return None
        job = memory.status.newest(cached) or cached
        spec = effective_spec(job, memory.spec_of(self._dialect, job))
        may_act = self._expectations.satisfied(owner_uid_key(job.metadata))  # before the caches are read
        return AlphaView(key, job, spec, self._caches.children_of(job), may_act)

    def _ready_in_s(self) -> float | None:
        return None if self._caches.have_synced else CACHE_RETRY_S

    async def _own(self, view: AlphaView) -> Ownership:
        wait_s = await self._takeover.ensure_labelled(view.job, view.spec, view.children)
        return Ownership(may_plan=wait_s is None, retry_in_s=wait_s)

    def _plan(self, view: AlphaView, memory: AlphaMemory) -> AlphaPlan:
        job = view.job.metadata
        taken, blocked = self._executor.taken.get(job.uid, ()), self._blocked.of(job)
        return plan(self._dialect, view.job, view.spec, view.children, self._clock.now(), taken=taken, blocked=blocked)

    async def _write_status(
        self, view: AlphaView, memory: AlphaMemory, plan: AlphaPlan, *, acts: bool
    ) -> tuple[AlphaView, float | None]:
        written, due_in_s = await self._status_writer.write_if_due(view.job, plan, memory.status, at_once=acts)
        return view if written is None else replace(view, job=written, confirmed=True), due_in_s

    def _is_finished(self, view: AlphaView) -> bool:
        return is_finished(view.job.status)

    async def _before_acting(self, view: AlphaView, memory: AlphaMemory, plan: AlphaPlan) -> None:
        if not (view.confirmed or is_finished(view.job.status)):
            await confirm(self._client, self._dialect.resource, view.job.metadata)

    async def _create(self, view: AlphaView, plan: AlphaPlan) -> None:
        if not isinstance(view.spec, InvalidSpec):
            await self._executor.create(view.job, view.spec, plan)

    async def _delete(self, view: AlphaView, plan: AlphaPlan) -> None:
        await self._executor.delete(view.job, plan.delete)

    def _after_refusal(self, view: AlphaView, memory: AlphaMemory, message: str) -> AlphaView:
        return replace(view, spec=refused(view.spec, message), confirmed=False)


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
    feed = Feed(queue)
    alpha = AlphaController(dialect, caches, writer, recorder, feed, clock=clock, metrics=jobs_metrics, config=config)
    controller = Controller(
        name, alpha.sync, queue=queue, workers=workers, on_start=alpha.begin, metrics=metrics, clock=clock
    )
    return AlphaPart(controller, caches)


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

    async def ensure_labelled(self, job: AlphaJob, spec: AlphaSpec | InvalidSpec, children: Children) -> float | None:
        """Return None if the job may be planned; else the seconds until the next check, if no event comes first.

        `children` are those of the view. Raises ApiError if pods cannot be listed or patched: the job must then be retried.
        """
        if not (isinstance(spec, AlphaSpec) and spec.runtime_id and may_have_hidden_children(job)):
            return None
        meta = job.metadata
        options = ListOptions(meta.namespace, label_selector=selector_of_hidden(meta, spec))
        page = await self._client.list_page(PODS, options, _PodMetadataList)
        pods = [item.metadata for item in page.items or () if _is_controlled_by(item.metadata, meta)]
        hidden = [pod for pod in pods if not is_ours(pod)]
        await self._label(job, spec, hidden)
        if hidden:
            message = f"Adopted {len(hidden)} pod{'s' if len(hidden) > 1 else ''} created by another operator"
            self._events.record(meta, EventType.NORMAL, EventReason.ADOPTED, message)
        seen = {pod.metadata.uid for found in children.bare.values() for pod in found}
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
