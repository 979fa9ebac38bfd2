"""What to do about a job that should run: create what is missing, replace failed pods, and see whether it has ended. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason, Network
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.jobs.job_event import JobEvent
from tfjob_operator.controller.tfjob.decide.actions import Plan, PodDeletion
from tfjob_operator.controller.tfjob.decide.announcements import announce
from tfjob_operator.controller.tfjob.decide.causes import most_restarts
from tfjob_operator.controller.tfjob.decide.ending import Ending, conclude, past_deadline, until_deadline
from tfjob_operator.controller.tfjob.decide.facts import begun, finished_indices
from tfjob_operator.controller.tfjob.decide.mending import relabellings, reselections
from tfjob_operator.controller.tfjob.decide.older_pods import stay
from tfjob_operator.controller.tfjob.decide.problems import problems_of
from tfjob_operator.controller.tfjob.decide.replicas import GOING_ON
from tfjob_operator.controller.tfjob.decide.verdict import judge, should_restart

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tfjob_operator.api.v1.types import TFJobSpec
    from tfjob_operator.controller.tfjob.decide.facts import Finished
    from tfjob_operator.controller.tfjob.decide.observe import Observed
    from tfjob_operator.controller.tfjob.decide.replicas import Replica
    from tfjob_operator.controller.tfjob.decide.status_draft import StatusDraft
    from tfjob_operator.controller.tfjob.decide.verdict import Verdict


def run(draft: StatusDraft, spec: TFJobSpec, seen: Observed) -> Plan:
    """Decide about a running job. When it ends, the plan says so and nothing else."""
    finished = finished_indices(draft.job.status, spec.sizes, seen.replicas)
    restarting = [
        replica
        for replica in seen.replicas
        if not replica.terminating and replica.index not in finished[replica.type] and should_restart(replica, spec)
    ]
    _begin(draft, spec)
    by_own_doing = {replica.pod.metadata.uid for replica in restarting if not replica.disrupted}
    draft.record(seen.replicas, finished, by_own_doing)
    _say_what_stays(draft, spec, seen.replicas, restarting)
    draft.begun = begun(draft.job, spec, has_pods=seen.has_pods, makes_pods=spec.total_replicas > 0)
    verdict = judge(draft.job, spec, seen.replicas, finished, draft.replica_statuses)
    ending = _ending(draft, spec, verdict, seen.replicas)
    if ending is not None:
        return conclude(draft, ending, spec.clean_pod_policy, seen.replicas)
    return _go_on(draft, spec, seen, finished, restarting, running=verdict.running)


def _go_on(
    draft: StatusDraft,
    spec: TFJobSpec,
    seen: Observed,
    finished: Finished,
    restarting: Sequence[Replica],
    *,
    running: bool,
) -> Plan:
    """Create what is missing, replace failed pods, restore edited children, and delete surplus ones."""
    name = draft.job.metadata.name
    keys = _keys(name, spec, finished)
    present = {replica.key for replica in seen.replicas}
    missing_pods = _missing(keys, present)
    going = any(replica.terminating and replica.index not in finished[replica.type] for replica in seen.replicas)
    _say_how_it_goes(draft, restarting, running=running, settled=not (missing_pods or going))
    served, wanted = keys, present.union(keys)
    if spec.network is Network.SHARED and wanted:
        served = [ReplicaKey.of_all(name)]
        wanted = set(served)
    services = seen.services_of(wanted)
    return Plan(
        create_services=_missing(served, {key for key, _ in services}),
        create_pods=missing_pods,
        status=draft.freeze(),
        events=tuple(draft.events),
        delete_pods=(
            *(PodDeletion(replica.pod, _exit_event(replica)) for replica in restarting),
            *(PodDeletion(replica.pod) for replica in seen.surplus if not replica.terminating),
        ),
        delete_services=seen.services_except(wanted),
        relabel=tuple(relabellings(name, seen.replicas, services)),
        reselect=tuple(reselections(name, services)),
        problems=problems_of(seen.replicas),
        requeue_after_s=until_deadline(draft, spec.active_deadline_s),
    )


def _begin(draft: StatusDraft, spec: TFJobSpec) -> None:
    """Set Created and the start time; a job that was suspended is resumed, and its start time set anew."""
    draft.create()
    announce(draft, spec)
    if conditions.is_true(draft, ConditionType.SUSPENDED):
        message = f"TFJob {draft.job.metadata.name} is resumed."
        draft.set_false(ConditionType.SUSPENDED, ConditionReason.RESUMED, message)
        draft.emit(EventType.NORMAL, ConditionReason.RESUMED, message)
        draft.start_anew()
    draft.start()


def _say_what_stays(
    draft: StatusDraft, spec: TFJobSpec, replicas: Sequence[Replica], restarting: Sequence[Replica]
) -> None:
    leaving = {replica.pod.metadata.uid for replica in restarting}
    going_on = (  # not looked at without an edit
        replica
        for replica in replicas
        if replica.outcome in GOING_ON and not replica.terminating and replica.pod.metadata.uid not in leaving
    )
    if words := stay(draft.job, spec, going_on):
        # Who scales an elastic job means it so.
        kind = EventType.NORMAL if spec.dynamic_workers else EventType.WARNING
        draft.emit(kind, EventReason.PODS_STAY, words)


def _ending(draft: StatusDraft, spec: TFJobSpec, verdict: Verdict, replicas: Sequence[Replica]) -> Ending | None:
    """Whether and how the job ends now: its replicas decide, and where they do not its limits may."""
    meta = draft.job.metadata
    if verdict.succeeded:
        message = f"TFJob {meta.namespace}/{meta.name} successfully completed."
        return Ending(ConditionType.SUCCEEDED, ConditionReason.SUCCEEDED, message)
    if verdict.failed:
        return Ending(ConditionType.FAILED, ConditionReason.FAILED, verdict.failed)
    if spec.backoff_limit is not None and sum(record.total for record in draft.restarts) > spec.backoff_limit:
        reached = f"Job {meta.name} has failed because it has reached the specified backoff limit"
        told = f"{reached}. {most_restarts(meta.name, draft.restarts, replicas)}"
        return Ending(ConditionType.FAILED, ConditionReason.LIMIT, told)
    return past_deadline(draft, spec.active_deadline_s)


def _say_how_it_goes(draft: StatusDraft, restarting: Sequence[Replica], *, running: bool, settled: bool) -> None:
    """Set Running or Restarting; a job that restarts is Running again only when every replica has its pod back (B23)."""
    name, was_restarting = draft.job.metadata.name, conditions.is_true(draft.job.status, ConditionType.RESTARTING)
    if restarting:
        kinds = ", ".join(sorted({replica.type for replica in restarting}))
        message = f"TFJob {name} is restarting because {kinds} replica(s) failed."
        draft.set_true(ConditionType.RESTARTING, ConditionReason.RESTARTING, message)
        if not was_restarting:
            draft.emit(EventType.WARNING, ConditionReason.RESTARTING, message)
    elif running and (settled or not was_restarting):
        draft.set_true(ConditionType.RUNNING, ConditionReason.RUNNING, f"TFJob {name} is running.")


def _exit_event(replica: Replica) -> JobEvent | None:
    if replica.ended is None:
        return None
    meta, ended = replica.pod.metadata, replica.ended
    # The pod's log goes with the pod: what it says of its end is all that stays (B57).
    words = [ended.reason if ended.reason not in {"", "Error"} else "", ended.message.strip()]
    detail = "".join(f": {word}" for word in words if word)
    return JobEvent(
        EventType.NORMAL,
        EventReason.EXITED_WITH_CODE,
        f"Pod: {meta.namespace}.{meta.name} exited with code {ended.exit_code}{detail}",
    )


def _keys(job: str, spec: TFJobSpec, finished: Finished) -> list[ReplicaKey]:
    """Return the replicas that should have a pod: all that have not succeeded."""
    keys: list[ReplicaKey] = []
    for replica in spec.replicas.values():
        done = finished[replica.type]
        indices = range(replica.replicas)
        keys += ReplicaKey.each(
            job, replica.type, [index for index in indices if index not in done] if done else indices
        )
    return keys


def _missing(keys: Iterable[ReplicaKey], present: Collection[ReplicaKey]) -> tuple[ReplicaKey, ...]:
    return tuple([key for key in keys if key not in present] if present else keys)
