"""The caches of a TFJob controller: one informer per kind of object; the PodGroup informer is optional."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from tfjob_operator.api.client.errors import ApiError, StatusError
from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES
from tfjob_operator.api.core_messages import BY_RESOURCE
from tfjob_operator.api.meta import ObjectMeta, Resource, controller_of, meta_key
from tfjob_operator.api.v1.constants import CHILD_SELECTOR, TFJOBS
from tfjob_operator.api.v1.types import TFJob, tfjob_with_unreadable_status
from tfjob_operator.controller.jobs.blocked import BlockedChildren
from tfjob_operator.controller.jobs.children import (
    CHILD_INDEXERS,
    ConfigMap,
    Pod,
    PodGroup,
    Service,
)
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.handlers import C, ChildHandler, Feed
from tfjob_operator.controller.jobs.job_metrics import JOB_INDEXERS
from tfjob_operator.controller.tfjob.apply.creator import pod_group_kind
from tfjob_operator.controller.tfjob.build.builder import GangScheduler, gang_scheduler
from tfjob_operator.controller.tfjob.plan.types import Gang
from tfjob_operator.informers import Codec, SharedIndexInformer, SharedInformerFactory

log = structlog.get_logger(__name__)


class PodGroupCache:
    """All PodGroups of a scheduler, not selected by label, since other components create some without our labels."""

    def __init__(self, scheduler: GangScheduler, informer: SharedIndexInformer[PodGroup]) -> None:
        self.scheduler = scheduler
        self._informer = informer
        self._failure = ""
        informer.set_watch_error_handler(self._note)

    @classmethod
    def of(cls, scheduler: GangScheduler, factory: SharedInformerFactory, namespace: str) -> PodGroupCache:
        """Return a cache on an informer of this factory, for one namespace or "" for all."""
        codec = Codec(scheduler.pod_groups, PodGroup)
        return cls(scheduler, factory.informer(codec, namespace=namespace, required=False))

    def add_handler(self, feed: Feed, expectations: Expectations, blocked: BlockedChildren) -> None:
        """Queue the job of every PodGroup that changes, and satisfy expectations."""
        kind = pod_group_kind(self.scheduler)
        self._informer.add_event_handler(ChildHandler[PodGroup](kind.name, feed, expectations, blocked))

    def gang_of(self, job: ObjectMeta) -> Gang:
        """Return the state of a job's PodGroup. A PodGroup of the same name that the job does not control is ignored."""
        group = self._informer.indexer.get(meta_key(job))
        owner = controller_of(group.metadata) if group is not None else None
        if owner is None or owner.uid != job.uid:
            group = None
        return Gang(self.scheduler, group, known=self._informer.has_synced, failure=self._failure)

    def _note(self, error: ApiError) -> None:
        """Store why the first list failed, and log it once. The reflector logs later failures."""
        if self._informer.has_synced:
            return
        if not self._failure:
            log.warning("pod_groups_unavailable", resource=str(self.scheduler.pod_groups), error=str(error))
        missing = (
            isinstance(error, StatusError) and error.code == 404
        )  # for an unknown API the server sends a 404 without a Status
        hint = f"; the CRD {self.scheduler.pod_groups} ({self.scheduler.pod_groups.version}) is not installed"
        self._failure = f"{error}{hint if missing else ''}"


@dataclass(slots=True, eq=False)
class TFJobCaches:
    """The informers; those of pods, services and ConfigMaps have `CHILD_INDEXERS`.

    `pod_groups` is None without a gang scheduler.
    """

    jobs: SharedIndexInformer[TFJob]
    pods: SharedIndexInformer[Pod]
    services: SharedIndexInformer[Service]
    config_maps: SharedIndexInformer[ConfigMap]
    pod_groups: PodGroupCache | None = None

    @classmethod
    def of(
        cls, factory: SharedInformerFactory, namespace: str, *, gang_scheduler_name: str = "", resync_s: float = 0.0
    ) -> TFJobCaches:
        """Return the caches on informers of this factory, for one namespace or "" for all.

        Only children with our label are cached. An empty `gang_scheduler_name` disables gang scheduling. `resync_s` is how
        often all jobs are synced; 0 disables it.
        """
        jobs = Codec(TFJOBS, TFJob, on_undecodable=tfjob_with_unreadable_status)

        def children(resource: Resource, kind: type[C]) -> SharedIndexInformer[C]:
            return factory.informer(
                Codec(resource, kind, message=BY_RESOURCE.get(resource)),
                namespace=namespace,
                label_selector=CHILD_SELECTOR,
                indexers=CHILD_INDEXERS,
            )

        return cls(
            jobs=factory.informer(jobs, namespace=namespace, indexers=JOB_INDEXERS, resync_s=resync_s),
            pods=children(PODS, Pod),
            services=children(SERVICES, Service),
            config_maps=children(CONFIG_MAPS, ConfigMap),
            pod_groups=PodGroupCache.of(gang_scheduler(name), factory, namespace)
            if (name := gang_scheduler_name)
            else None,
        )
