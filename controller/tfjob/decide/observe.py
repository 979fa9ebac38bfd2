"""The children of a job as a plan sees them: one pod for each replica that should exist, and what is surplus. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfjob_operator.controller.tfjob.decide.identity import key_of_service
from tfjob_operator.controller.tfjob.decide.replicas import replicas_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tfjob_operator.api.v1.types import TFJob
    from tfjob_operator.controller.jobs.children import Pod, ReplicaKey, Service
    from tfjob_operator.controller.tfjob.decide.replicas import Replica


@dataclass(frozen=True, slots=True)
class Observed:
    """The children of a job.

    `surplus` are pods that the specification does not ask for (any more), and second ones of a replica. A service belongs
    to a replica, or to the whole job, by its name alone, since pods are looked up by it; its key is None where the name says
    nothing.
    """

    replicas: Sequence[Replica]
    surplus: Sequence[Replica]
    services: Sequence[tuple[ReplicaKey | None, Service]]

    @property
    def has_pods(self) -> bool:
        """Whether there is any pod, wanted or not."""
        return bool(self.replicas or self.surplus)

    def services_except(self, keys: Collection[ReplicaKey]) -> tuple[Service, ...]:
        """Return the services that belong to none of these replicas and are not going already."""
        return tuple(
            service for key, service in self.services if service.metadata.deletion_timestamp is None and key not in keys
        )

    def services_of(self, keys: Collection[ReplicaKey]) -> list[tuple[ReplicaKey, Service]]:
        """Return the services that belong to one of these replicas."""
        return [(key, service) for key, service in self.services if key is not None and key in keys]

    def limited_to(self, sizes: Mapping[str, int]) -> Observed:
        """Return the same for a job with so many replicas by type: pods beyond are surplus."""
        if all(replica.index < sizes.get(replica.type, 0) for replica in self.replicas):
            return self
        beyond = [replica for replica in self.replicas if replica.index >= sizes.get(replica.type, 0)]
        within = [replica for replica in self.replicas if replica.index < sizes.get(replica.type, 0)]
        return Observed(within, [*beyond, *self.surplus], self.services)


def observe(job: TFJob, pods: Iterable[Pod], services: Iterable[Service]) -> Observed:
    """Sort out the children of a job."""
    name = job.metadata.name
    replicas, others = replicas_of(name, pods, job.status.restarts)
    return Observed(replicas, others, [(key_of_service(name, service.metadata.name), service) for service in services])
