"""The caches that a controller of the alpha dialect works on: one informer for each kind of object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tfjob_operator.api.core import CONFIG_MAPS, PODS, SERVICES
from tfjob_operator.api.core_messages import BY_RESOURCE
from tfjob_operator.api.meta import OWNER_INDEX, Resource, owner_uid_key
from tfjob_operator.api.v1alpha1.constants import CHILD_SELECTOR, Dialect
from tfjob_operator.api.v1alpha1.types import AlphaJob, job_with_unreadable_status
from tfjob_operator.controller.alpha.children import INDEXERS, JOBS, BatchJob, Children, replica_of_bare_pod
from tfjob_operator.controller.jobs.children import ConfigMap, Pod, Service
from tfjob_operator.informers import Codec, SharedIndexInformer, SharedInformerFactory

C = TypeVar("C", BatchJob, Pod, Service, ConfigMap)


@dataclass(frozen=True, slots=True, eq=False)
class AlphaCaches:
    """The informers. Only this controller waits for them: if a right or a CRD is missing, all others go on."""

    jobs: SharedIndexInformer[AlphaJob]
    batch_jobs: SharedIndexInformer[BatchJob]
    pods: SharedIndexInformer[Pod]
    services: SharedIndexInformer[Service]
    config_maps: SharedIndexInformer[ConfigMap]

    @classmethod
    def of(
        cls, dialect: Dialect, factory: SharedInformerFactory, namespace: str, *, resync_s: float = 0.0
    ) -> AlphaCaches:
        """Return the caches on informers of this factory, for one namespace or "" for all.

        Of children they hold only our own; the two dialects share these caches.
        """

        def children(resource: Resource, kind: type[C]) -> SharedIndexInformer[C]:
            return factory.informer(
                Codec(resource, kind, message=BY_RESOURCE.get(resource)),
                namespace=namespace,
                label_selector=CHILD_SELECTOR,
                indexers=INDEXERS,
                required=False,
            )

        jobs = Codec(dialect.resource, AlphaJob, on_undecodable=job_with_unreadable_status)
        return cls(
            jobs=factory.informer(jobs, namespace=namespace, resync_s=resync_s, required=False),
            batch_jobs=children(JOBS, BatchJob),
            pods=children(PODS, Pod),
            services=children(SERVICES, Service),
            config_maps=children(CONFIG_MAPS, ConfigMap),
        )

    @property
    def have_synced(self) -> bool:
        """Whether all of them are filled."""
        informers = (self.jobs, self.batch_jobs, self.pods, self.services, self.config_maps)
        return all(informer.has_synced for informer in informers)

    def children_of(self, job: AlphaJob) -> Children:
        """Return the children of a job that the caches show."""
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
