"""What to do about one TFJob, decided from what is observed. Pure: no clock, no I/O, no logging, no memory.

`plan` compares the replicas that the specification asks for with the pods and services that exist, and answers with a `Plan`.
Carrying it out is the executor's work, in an order that keeps every fact that matters on the server before it is acted upon:
creates, then the status, then deletes. So a job's end is in its status before its pods are cleaned up, and an operator that is
killed between any two calls finds on its return what it needs to go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from api.v1 import conditions
from api.v1 import constants as c
from api.v1.types import JobStatus, ReplicaStatus
from api.v1.validation import child_name, invalid_message
from controller.tfjob.lifecycle import judge, should_restart, to_clean_up
from controller.tfjob.replicas import count, observe, slot_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from api.core import Pod, Service
    from api.v1.types import TFJob, TFJobSpec
    from controller.tfjob.replicas import Replica


@dataclass(frozen=True, slots=True)
class Slot:
    """One replica's place: its type and index, and the name that its pod and its service bear."""

    type: str
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event on the job. Events of a plan are recorded once the plan's status is on the server."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodDeletion:
    """A pod to delete, and what to record when that is done beside the deletion itself."""

    pod: Pod
    event: JobEvent | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. `status` is None when the one on the server says all there is to say."""

    create_services: tuple[Slot, ...] = ()
    create_pods: tuple[Slot, ...] = ()
    status: JobStatus | None = None
    events: tuple[JobEvent, ...] = ()
    delete_pods: tuple[PodDeletion, ...] = ()
    delete_services: tuple[Service, ...] = ()


NOTHING = Plan()


@dataclass(frozen=True, slots=True)
class _Seen:
    """The children as observed. `surplus` are pods that the specification does not ask for (any more)."""

    replicas: Sequence[Replica]
    surplus: Sequence[Replica]
    services: Sequence[Service]


def plan(job: TFJob, spec: TFJobSpec, pods: Sequence[Pod], services: Sequence[Service], now: datetime) -> Plan:
    """Decide what to do about a job whose specification is good; `pods` and `services` are those that it controls.

    A job that is being deleted is left to the garbage collector, one that another controller manages is left to it.
    """
    if job.metadata.deletion_timestamp is not None or spec.managed_by not in c.MANAGED_BY_US:
        return NOTHING
    now = now.replace(microsecond=0)
    observed = observe(pods, spec.replicas)
    seen = _Seen(
        replicas=[replica for replica in observed if _is_wanted(replica, spec)],
        surplus=[replica for replica in observed if not _is_wanted(replica, spec)],
        services=services,
    )
    if conditions.is_finished(job.status):
        return _after_the_end(job, seen, spec.clean_pod_policy, now)
    return _during_its_life(job, spec, seen, now)


def plan_invalid(
    job: TFJob, mistakes: Iterable[str], pods: Sequence[Pod], services: Sequence[Service], now: datetime
) -> Plan:
    """Decide what to do about a job whose specification is wrong: it has failed, and what it may have is cleaned up."""
    if job.metadata.deletion_timestamp is not None:
        return NOTHING
    now = now.replace(microsecond=0)
    if conditions.is_finished(job.status):
        return _after_the_end(job, _Seen(observe(pods, {}), (), services), c.CLEAN_RUNNING, now)
    message = invalid_message(mistakes)
    status = _ended(job.status, c.FAILED, c.REASON_INVALID, message, now)
    return Plan(
        status=_stamped(job, status, now),
        events=(JobEvent(c.WARNING, c.REASON_INVALID, message),),
    )


def _during_its_life(job: TFJob, spec: TFJobSpec, seen: _Seen, now: datetime) -> Plan:
    replicas = seen.replicas
    counts = count(replicas, spec.replicas)
    status = msgspec.structs.replace(
        job.status,
        conditions=conditions.set_true(
            job.status.conditions, c.CREATED, c.REASON_CREATED, f"TFJob {job.metadata.name} is created.", now
        ),
        replica_statuses=counts,
        start_time=job.status.start_time or now,
    )
    events = _first_events(job, spec)
    verdict = judge(f"{job.metadata.namespace}/{job.metadata.name}", spec, replicas, counts)
    if verdict.succeeded or verdict.failed:
        ended, event = _end(job, status, verdict.failed, now)
        leaving = to_clean_up(spec.clean_pod_policy, replicas)
        ended = msgspec.structs.replace(ended, replica_statuses=_final_counts(counts, replicas, leaving))
        return Plan(status=_stamped(job, ended, now), events=(*events, event))
    restarts = [
        replica
        for replica in replicas
        if not replica.terminating and should_restart(replica, spec.replicas[replica.type].restart_policy)
    ]
    slots = _slots(job.metadata.name, spec)
    places = {(slot.type, slot.index) for slot in slots}
    missing_pods = _missing(slots, ((replica.type, replica.index) for replica in replicas))
    status, more_events = _progress(job, status, restarts, running=verdict.running, settled=not missing_pods, now=now)
    return Plan(
        create_services=_missing(slots, (slot_of(service.metadata) for service in seen.services)),
        create_pods=missing_pods,
        status=_stamped(job, status, now),
        events=(*events, *more_events),
        delete_pods=tuple(
            [PodDeletion(replica.pod, _exit_event(replica)) for replica in restarts]
            + [PodDeletion(replica.pod) for replica in seen.surplus if not replica.terminating]
        ),
        delete_services=tuple(
            service
            for service in seen.services
            if service.metadata.deletion_timestamp is None and slot_of(service.metadata) not in places
        ),
    )


def _after_the_end(job: TFJob, seen: _Seen, policy: str, now: datetime) -> Plan:
    """Clean up, and keep the counters true: what has ended stays counted when its pod is gone (B22)."""
    leaving = to_clean_up(policy, seen.replicas)
    places = {(replica.type, replica.index) for replica in _without(seen.replicas, leaving)}
    recorded = job.status.replica_statuses
    counts = _final_counts(recorded, seen.replicas, leaving)
    status = msgspec.structs.replace(
        job.status,
        replica_statuses={
            name: msgspec.structs.replace(
                counts[name],
                succeeded=max(counts[name].succeeded, recorded[name].succeeded),
                failed=max(counts[name].failed, recorded[name].failed),
            )
            for name in recorded
        },
    )
    return Plan(
        status=_stamped(job, status, now),
        delete_pods=tuple(PodDeletion(replica.pod) for replica in (*leaving, *seen.surplus) if not replica.terminating),
        delete_services=tuple(
            service
            for service in seen.services
            if service.metadata.deletion_timestamp is None and slot_of(service.metadata) not in places
        ),
    )


def _final_counts(
    types: Iterable[str], replicas: Sequence[Replica], leaving: Sequence[Replica]
) -> dict[str, ReplicaStatus]:
    """Counters at and after the end: what clean-up takes is active no more, though its pod may take a while to go."""
    everything = count(replicas, types)
    staying = count(_without(replicas, leaving), types)
    return {name: msgspec.structs.replace(found, active=staying[name].active) for name, found in everything.items()}


def _progress(
    job: TFJob, status: JobStatus, restarts: Sequence[Replica], *, running: bool, settled: bool, now: datetime
) -> tuple[JobStatus, tuple[JobEvent, ...]]:
    """Running or Restarting. A job that restarts is running again only when every replica has its pod back (B23)."""
    name = job.metadata.name
    if restarts:
        kinds = ", ".join(sorted({replica.type for replica in restarts}))
        message = f"TFJob {name} is restarting because {kinds} replica(s) failed."
        changed = conditions.set_true(status.conditions, c.RESTARTING, c.REASON_RESTARTING, message, now)
        event = JobEvent(c.WARNING, c.REASON_RESTARTING, message)
        events = (event,) if not conditions.is_true(job.status, c.RESTARTING) else ()
        return msgspec.structs.replace(status, conditions=changed), events
    if running and (settled or not conditions.is_true(job.status, c.RESTARTING)):
        message = f"TFJob {name} is running."
        changed = conditions.set_true(status.conditions, c.RUNNING, c.REASON_RUNNING, message, now)
        return msgspec.structs.replace(status, conditions=changed), ()
    return status, ()


def _end(job: TFJob, status: JobStatus, failure: str, now: datetime) -> tuple[JobStatus, JobEvent]:
    if failure:
        return _ended(status, c.FAILED, c.REASON_FAILED, failure, now), JobEvent(c.NORMAL, c.REASON_FAILED, failure)
    message = f"TFJob {job.metadata.namespace}/{job.metadata.name} successfully completed."
    ended = _ended(status, c.SUCCEEDED, c.REASON_SUCCEEDED, message, now)
    return ended, JobEvent(c.NORMAL, c.REASON_SUCCEEDED, message)


def _ended(status: JobStatus, condition: str, reason: str, message: str, now: datetime) -> JobStatus:
    return msgspec.structs.replace(
        status,
        conditions=conditions.set_true(status.conditions, condition, reason, message, now),
        start_time=status.start_time or now,
        completion_time=now,
    )


def _stamped(job: TFJob, status: JobStatus, now: datetime) -> JobStatus | None:
    """The status to write, or None when it says what is written already: an idle job costs no call."""
    status = msgspec.structs.replace(status, observed_generation=job.metadata.generation)
    if status == job.status:
        return None
    return msgspec.structs.replace(status, last_reconcile_time=now)


def _first_events(job: TFJob, spec: TFJobSpec) -> tuple[JobEvent, ...]:
    """What is said once, together with the Created condition, which is set once (B56)."""
    if conditions.find(job.status.conditions, c.CREATED) is not None:
        return ()
    events = [JobEvent(c.WARNING, reason, message) for reason, message in spec.warnings]
    if any(replica.overrides_template_policy for replica in spec.replicas.values()):
        events.append(
            JobEvent(
                c.WARNING,
                c.EVENT_RESTART_POLICY_OVERWRITTEN,
                "Restart policy in pod template will be overwritten by restart policy in replica spec",
            )
        )
    return tuple(events)


def _exit_event(replica: Replica) -> JobEvent | None:
    if replica.ended is None:
        return None
    meta = replica.pod.metadata
    return JobEvent(
        c.NORMAL,
        c.EVENT_EXITED_WITH_CODE,
        f"Pod: {meta.namespace}.{meta.name} exited with code {replica.ended.exit_code}",
    )


def _slots(job: str, spec: TFJobSpec) -> list[Slot]:
    return [
        Slot(replica.type, index, child_name(job, replica.type, index))
        for replica in spec.replicas.values()
        for index in range(replica.replicas)
    ]


def _missing(slots: Sequence[Slot], present: Iterable[tuple[str, int] | None]) -> tuple[Slot, ...]:
    there = set(present)
    return tuple(slot for slot in slots if (slot.type, slot.index) not in there)


def _is_wanted(replica: Replica, spec: TFJobSpec) -> bool:
    return replica.type in spec.replicas and replica.index < spec.replicas[replica.type].replicas


def _without(replicas: Iterable[Replica], leaving: Sequence[Replica]) -> list[Replica]:
    gone = {replica.pod.metadata.uid for replica in leaving}
    return [replica for replica in replicas if replica.pod.metadata.uid not in gone]
