"""What goes and what stays of a job that has ended, or is suspended. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.tfjob.decide import status as statuses
from tfjob_operator.controller.tfjob.decide.actions import JobEvent, Plan, PodDeletion
from tfjob_operator.controller.tfjob.decide.observe import count, observe, place_of_name
from tfjob_operator.controller.tfjob.decide.verdict import to_clean_up

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from tfjob_operator.api.v1.children import Pod, Service
    from tfjob_operator.api.v1.types import JobStatus, ReplicaStatus, TFJob
    from tfjob_operator.controller.tfjob.decide.observe import Place, Replica


@dataclass(frozen=True, slots=True)
class Seen:
    """The children as observed. `surplus` are pods that the specification does not ask for (any more), and second ones."""

    replicas: Sequence[Replica]
    surplus: Sequence[Replica]
    services: Sequence[tuple[Place | None, Service]]

    def services_except(self, places: Collection[Place]) -> tuple[Service, ...]:
        """Services that belong to none of these places and are not going already."""
        return tuple(
            service
            for place, service in self.services
            if service.metadata.deletion_timestamp is None and place not in places
        )

    def services_of(self, places: Collection[Place]) -> list[Service]:
        """Services that belong to one of these places."""
        return [service for place, service in self.services if place in places]


def see(
    job: TFJob,
    pods: Iterable[Pod],
    services: Iterable[Service],
    is_wanted: Callable[[Replica], bool] = lambda _: True,
) -> Seen:
    """Find out what is there. Where no specification can be read every replica may be wanted."""
    name = job.metadata.name
    chosen, others = observe(name, pods, job.status.restarts)
    return Seen(
        replicas=[replica for replica in chosen if is_wanted(replica)],
        surplus=[*(replica for replica in chosen if not is_wanted(replica)), *others],
        # A service is of use by its name alone: that is where its pod is looked for.
        services=[(place_of_name(name, service.metadata.name), service) for service in services],
    )


def after_the_end(job: TFJob, seen: Seen, policy: str, keep_s: int | None, now: datetime) -> Plan:
    """Clean up, keep the counters true, and remove the job itself when its time has come."""
    completed = job.status.completion_time
    left = None
    if keep_s is not None and completed is not None:
        left = keep_s - (now - completed).total_seconds()
        if left <= 0:
            return Plan(delete_job=True)
    policy = policy_after(job.status, policy)
    leaving = to_clean_up(policy, seen.replicas)
    # What is too many may not run on, under no policy; if it has ended it is kept or taken as all others are.
    surplus = to_clean_up(c.CLEAN_RUNNING if policy == c.CLEAN_NONE else policy, seen.surplus)
    places = {(replica.type, replica.index) for replica in _without(seen.replicas, leaving)}
    recorded = job.status.replica_statuses
    observed = count(seen.replicas, recorded)
    counts = {
        name: msgspec.structs.replace(
            found,
            succeeded=max(found.succeeded, recorded[name].succeeded),
            failed=max(found.failed, recorded[name].failed),
        )
        for name, found in observed.items()
    }
    counts = without_active(counts, seen.replicas, leaving)
    return Plan(
        status=statuses.stamped(job, msgspec.structs.replace(job.status, replica_statuses=counts), statuses.whole(now)),
        delete_pods=tuple(PodDeletion(replica.pod) for replica in (*leaving, *surplus) if not replica.terminating),
        delete_services=seen.services_except(places),
        requeue_after_s=left,
    )


def suspended(job: TFJob, status: JobStatus, seen: Seen, now: datetime, *, events: tuple[JobEvent, ...] = ()) -> Plan:
    """Say that the job is suspended, after these events, and take all that runs."""
    message = f"TFJob {job.metadata.name} is suspended."
    if not conditions.is_true(job.status, c.SUSPENDED):
        events = (*events, JobEvent(c.NORMAL, c.REASON_SUSPENDED, message))
    status = statuses.with_true(status, c.SUSPENDED, c.REASON_SUSPENDED, message, statuses.whole(now))
    return Plan(
        status=statuses.stamped(job, status, statuses.whole(now)),
        events=events,
        delete_pods=tuple(
            PodDeletion(replica.pod) for replica in (*seen.replicas, *seen.surplus) if not replica.terminating
        ),
        delete_services=seen.services_except(()),
    )


def policy_after(status: JobStatus, policy: str) -> str:
    """A job that was stopped by a limit of its own leaves nothing running, not even under the policy None (B47)."""
    failed = conditions.find(status.conditions, c.FAILED)
    stopped = failed is not None and failed.reason == c.REASON_LIMIT
    return c.CLEAN_RUNNING if stopped and policy == c.CLEAN_NONE else policy


def without_active(
    counts: dict[str, ReplicaStatus], replicas: Sequence[Replica], leaving: Sequence[Replica]
) -> dict[str, ReplicaStatus]:
    """What clean-up takes is active no more, though its pod may take a while to go."""
    staying = count(_without(replicas, leaving), counts)
    return {name: msgspec.structs.replace(found, active=staying[name].active) for name, found in counts.items()}


def _without(replicas: Iterable[Replica], leaving: Sequence[Replica]) -> list[Replica]:
    gone = {replica.pod.metadata.uid for replica in leaving}
    return [replica for replica in replicas if replica.pod.metadata.uid not in gone]
