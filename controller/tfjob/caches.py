"""The caches that a TFJob controller works on: one informer for each kind of object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES
from tfjob_operator.api.core_messages import BY_RESOURCE
from tfjob_operator.api.v1.constants import CHILD_SELECTOR, TFJOBS
from tfjob_operator.api.v1.types import TFJob, tfjob_with_unreadable_status
from tfjob_operator.controller.jobs.children import CHILD_INDEXERS, ConfigMap, Pod, Service
from tfjob_operator.controller.tfjob.build.gang_scheduler import gang_scheduler
from tfjob_operator.controller.tfjob.pod_group_cache import PodGroupCache
from tfjob_operator.informers import Codec

if TYPE_CHECKING:
    from tfjob_operator.api.meta import Resource
    from tfjob_operator.informers import SharedIndexInformer, SharedInformerFactory


C = TypeVar("C", Pod, Service, ConfigMap)


@dataclass(slots=True, eq=False)
class Caches:
    """The informers; those of pods, services and ConfigMaps have `children.CHILD_INDEXERS`.

    `pod_groups` is None where no gang scheduler is in use.
    """

    jobs: SharedIndexInformer[TFJob]
    pods: SharedIndexInformer[Pod]
    services: SharedIndexInformer[Service]
    config_maps: SharedIndexInformer[ConfigMap]
    pod_groups: PodGroupCache | None = None

    @classmethod
    def of(
        cls, factory: SharedInformerFactory, namespace: str, *, gang_scheduler_name: str = "", resync_s: float = 0.0
    ) -> Caches:
        """Return the caches, on informers of this factory, for one namespace or "" for all.

        Children that are not ours are left out. Without a `gang_scheduler_name` no gang scheduler is in use. `resync_s` is
        how often all jobs are synced, 0 for never.
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
            jobs=factory.informer(jobs, namespace=namespace, resync_s=resync_s),
            pods=children(PODS, Pod),
            services=children(SERVICES, Service),
            config_maps=children(CONFIG_MAPS, ConfigMap),
            pod_groups=PodGroupCache.of(gang_scheduler(name), factory, namespace)
            if (name := gang_scheduler_name)
            else None,
        )
