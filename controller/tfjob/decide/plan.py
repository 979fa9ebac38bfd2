"""What to do about one TFJob, decided from what is observed. Pure: no clock, no I/O, no logging, no memory.

`plan` compares the replicas that the specification asks for with the pods and services that exist, and answers with a `Plan`.
Carrying it out is for others, in an order that keeps every fact that matters on the server before it is acted upon: first the
status, then creates and deletes. So a job's end is in its status before its pods are cleaned up, and an operator that is killed
between any two calls finds on its return what it needs to go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.validation import child_name
from tfjob_operator.controller.tfjob.decide import status as statuses
from tfjob_operator.controller.tfjob.decide.actions import NOTHING, JobEvent, Plan, PodDeletion, Slot
from tfjob_operator.controller.tfjob.decide.causes import most_restarts
from tfjob_operator.controller.tfjob.decide.clean_up import Seen, after_the_end, see, suspended
from tfjob_operator.controller.tfjob.decide.ending import Ending, conclude, past_deadline, until_deadline
from tfjob_operator.controller.tfjob.decide.gang import with_pod_group, without_pod_group
from tfjob_operator.controller.tfjob.decide.held import Told, hold, let_go
from tfjob_operator.controller.tfjob.decide.mending import relabellings, reselections
from tfjob_operator.controller.tfjob.decide.problems import problems_of
from tfjob_operator.controller.tfjob.decide.restarts import account
from tfjob_operator.controller.tfjob.decide.verdict import judge, should_restart

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from tfjob_operator.api.v1.children import Pod, Service
    from tfjob_operator.api.v1.types import Begun, JobStatus, TFJob, TFJobSpec
    from tfjob_operator.controller.tfjob.decide.clean_up import Seen
    from tfjob_operator.controller.tfjob.decide.gang import Gang
    from tfjob_operator.controller.tfjob.decide.observe import Replica
    from tfjob_operator.controller.tfjob.decide.verdict import Verdict


def plan(
    job: TFJob,
    spec: TFJobSpec,
    pods: Sequence[Pod],
    services: Sequence[Service],
    now: datetime,
    *,
    gang: Gang | None = None,
) -> Plan:
    """Decide what to do about a job whose specification is good; `pods` and `services` are those that it controls.

    A job that is being deleted is left to the garbage collector, one that another controller manages is left to it. `gang` is
    None where no gang scheduler is in use.
    """
    if job.metadata.deletion_timestamp is not None or spec.managed_by not in c.MANAGED_BY_US:
        return NOTHING
    seen = see(job, pods, services, lambda replica: _is_wanted(replica, spec))
    if conditions.is_finished(job.status):
        return without_pod_group(after_the_end(job, seen, spec.clean_pod_policy, spec.ttl_s, now), gang)
    if spec.suspend:
        return without_pod_group(_while_suspended(job, spec, seen, now), gang)
    return with_pod_group(_during_its_life(job, spec, seen, now), job, spec, seen.replicas, gang)


def _during_its_life(job: TFJob, spec: TFJobSpec, seen: Seen, now: datetime) -> Plan:
    finished = statuses.finished_indices(job.status, spec.sizes, seen.replicas)
    counts = statuses.counted(seen.replicas, spec.replicas, finished)
    restarts = [
        replica
        for replica in seen.replicas
        if not replica.terminating and replica.index not in finished[replica.type] and should_restart(replica, spec)
    ]
    own_doing = {replica.pod.metadata.uid for replica in restarts if not replica.disrupted}
    status, events = _begin(job, spec, statuses.whole(now))
    status = msgspec.structs.replace(
        status,
        replica_statuses=counts,
        finished_indices=statuses.remembered(job.status, finished),
        restarts=account(job.status.restarts, seen.replicas, own_doing),
        begun=_beginning(job, spec, seen, makes_pods=spec.total_replicas > 0),
    )
    verdict = judge(job, spec, seen.replicas, finished, counts)
    ending = _ending(job, spec, verdict, status, now, replicas=seen.replicas)
    if ending is not None:
        return conclude(job, status, ending, spec.clean_pod_policy, seen.replicas, now=now, events=events)
    slots = _slots(job.metadata.name, spec, finished)
    missing_pods = _missing(slots, ((replica.type, replica.index) for replica in seen.replicas))
    going = any(replica.terminating and replica.index not in finished[replica.type] for replica in seen.replicas)
    settled = not (missing_pods or going)
    status, more_events = _progress(job, status, restarts, running=verdict.running, settled=settled, now=now)
    places = {(slot.type, slot.index) for slot in slots} | {(replica.type, replica.index) for replica in seen.replicas}
    name, services = job.metadata.name, seen.services_of(places)
    return Plan(
        create_services=_missing(slots, (place for place, _ in seen.services)),
        create_pods=missing_pods,
        status=statuses.stamped(job, status, statuses.whole(now)),
        events=(*events, *more_events),
        delete_pods=tuple(
            [PodDeletion(replica.pod, _exit_event(replica)) for replica in restarts]
            + [PodDeletion(replica.pod) for replica in seen.surplus if not replica.terminating]
        ),
        delete_services=seen.services_except(places),
        relabel=tuple(relabellings(name, seen.replicas, services)),
        reselect=tuple(reselections(name, services)),
        problems=problems_of(seen.replicas),
        requeue_after_s=until_deadline(status, spec.active_deadline_s, now),
    )


def _begin(job: TFJob, spec: TFJobSpec, now: datetime) -> Told:
    """Created, started, and resumed if it was suspended: then its time starts anew."""
    status, followed = _followed(job, spec, statuses.created(job, job.status, now), now)
    events = (*_first_events(job, spec), *followed)
    if conditions.is_true(status, c.SUSPENDED):
        message = f"TFJob {job.metadata.name} is resumed."
        resumed = conditions.set_false(status.conditions, c.SUSPENDED, c.REASON_RESUMED, message, now)
        status = msgspec.structs.replace(status, conditions=resumed, start_time=now)
        events = (*events, JobEvent(c.NORMAL, c.REASON_RESUMED, message))
    return msgspec.structs.replace(status, start_time=status.start_time or now), events


def _beginning(job: TFJob, spec: TFJobSpec, seen: Seen, *, makes_pods: bool) -> Begun | None:
    if spec.too_large:
        return job.status.begun  # which is what it was cut down to
    has_pods = bool(seen.replicas or seen.surplus)
    return statuses.begun(job, spec.sizes, has_pods=has_pods, makes_pods=makes_pods)


def _while_suspended(job: TFJob, spec: TFJobSpec, seen: Seen, now: datetime) -> Plan:
    """Nothing runs, whatever the clean-up policy; what has been reached (finished replicas, restarts) is kept."""
    finished = statuses.finished_indices(job.status, spec.sizes, seen.replicas)
    status = msgspec.structs.replace(
        statuses.created(job, job.status, statuses.whole(now)),
        replica_statuses=statuses.counted(seen.replicas, spec.replicas, finished),
        finished_indices=statuses.remembered(job.status, finished),
        restarts=account(job.status.restarts, seen.replicas, ()),
        begun=_beginning(job, spec, seen, makes_pods=False),
    )
    status, followed = _followed(job, spec, status, now)
    return suspended(job, status, seen, now, events=(*_first_events(job, spec), *followed))


def _followed(job: TFJob, spec: TFJobSpec, status: JobStatus, now: datetime) -> Told:
    """Say whether the specification is followed in full, where that changes."""
    if spec.too_large:
        return hold(job, status, c.REASON_TOO_LARGE, [spec.too_large], now)
    return let_go(job, status, now)


def _ending(
    job: TFJob, spec: TFJobSpec, verdict: Verdict, status: JobStatus, now: datetime, *, replicas: Sequence[Replica]
) -> Ending | None:
    """Whether and how the job ends now: its replicas decide, and where they do not its limits may."""
    name = job.metadata.name
    if verdict.succeeded:
        message = f"TFJob {job.metadata.namespace}/{name} successfully completed."
        return Ending(c.SUCCEEDED, c.REASON_SUCCEEDED, message)
    if verdict.failed:
        return Ending(c.FAILED, c.REASON_FAILED, verdict.failed)
    if spec.backoff_limit is not None and sum(record.total for record in status.restarts) > spec.backoff_limit:
        told = f"Job {name} has failed because it has reached the specified backoff limit"
        return Ending(c.FAILED, c.REASON_LIMIT, f"{told}. {most_restarts(name, status.restarts, replicas)}")
    return past_deadline(job, status, spec.active_deadline_s, now)


def _progress(
    job: TFJob, status: JobStatus, restarts: Sequence[Replica], *, running: bool, settled: bool, now: datetime
) -> tuple[JobStatus, tuple[JobEvent, ...]]:
    """Running or Restarting. A job that restarts is running again only when every replica has its pod back (B23)."""
    name = job.metadata.name
    if restarts:
        kinds = ", ".join(sorted({replica.type for replica in restarts}))
        message = f"TFJob {name} is restarting because {kinds} replica(s) failed."
        event = JobEvent(c.WARNING, c.REASON_RESTARTING, message)
        events = (event,) if not conditions.is_true(job.status, c.RESTARTING) else ()
        return statuses.with_true(status, c.RESTARTING, c.REASON_RESTARTING, message, statuses.whole(now)), events
    if running and (settled or not conditions.is_true(job.status, c.RESTARTING)):
        message = f"TFJob {name} is running."
        return statuses.with_true(status, c.RUNNING, c.REASON_RUNNING, message, statuses.whole(now)), ()
    return status, ()


def _first_events(job: TFJob, spec: TFJobSpec) -> tuple[JobEvent, ...]:
    """What is said once: of a specification when it is first seen, of the job together with its Created condition (B56)."""
    events: list[JobEvent] = []
    if job.status.observed_generation != job.metadata.generation:
        events += [JobEvent(c.WARNING, reason, message) for reason, message in spec.warnings]
    is_new = conditions.find(job.status.conditions, c.CREATED) is None
    if is_new and any(replica.overrides_template_policy for replica in spec.replicas.values()):
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
    meta, ended = replica.pod.metadata, replica.ended
    # The pod's log goes with the pod: what it says of its end is all that stays (B57).
    words = [ended.reason if ended.reason not in {"", "Error"} else "", ended.message.strip()]
    detail = "".join(f": {word}" for word in words if word)
    return JobEvent(
        c.NORMAL,
        c.EVENT_EXITED_WITH_CODE,
        f"Pod: {meta.namespace}.{meta.name} exited with code {ended.exit_code}{detail}",
    )


def _slots(job: str, spec: TFJobSpec, finished: statuses.Finished) -> list[Slot]:
    """The replicas that should have a pod: all that have not succeeded."""
    return [
        Slot(replica.type, index, child_name(job, replica.type, index))
        for replica in spec.replicas.values()
        for index in range(replica.replicas)
        if index not in finished[replica.type]
    ]


def _missing(slots: Sequence[Slot], present: Iterable[tuple[str, int] | None]) -> tuple[Slot, ...]:
    there = set(present)
    return tuple(slot for slot in slots if (slot.type, slot.index) not in there)


def _is_wanted(replica: Replica, spec: TFJobSpec) -> bool:
    return replica.type in spec.replicas and replica.index < spec.replicas[replica.type].replicas
