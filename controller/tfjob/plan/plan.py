"""Plans one TFJob from its observed state. Pure: no clock, I/O, logging or memory.

`plan` compares the replicas in the spec with the existing pods and services, and returns a `Plan`. It is executed in a fixed
order: the status first (in a burst, the first status of a new job is delayed), then creates and deletes. So every fact is on
the server before it is acted upon, an end is in the status before the clean-up, and a killed operator can resume.

A job is finished (`cleanup.clean_up`), about to finish (`cleanup.finish`), on hold or failed because of an invalid spec
(`hold`), suspended (`suspend`), or running (`run`). Then the PodGroup and ConfigMaps that it needs are added to the plan, and
children that must wait are removed.

A job that has not started fails if its spec is invalid or rejected by the API server. A job that has started is put on hold:
its pods continue, and no pod is created, deleted or evaluated until the spec is fixed. Finished replicas and the number of
restarts are still recorded, since pods may disappear. Fields that can be parsed still apply: a deadline, the TTL, `suspend`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Final

import msgspec

from tfjob_operator.api.core import EventType
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.constants import ConditionReason, ConditionType, EventReason, Network, RuleAction
from tfjob_operator.api.v1.name_ranges import ranges_of
from tfjob_operator.api.v1.types import InvalidSpec, JobStatus, SpecWarning, StartRecord, TFJob, TFJobSpec
from tfjob_operator.api.v1.validation import MAX_REPLICAS, queue_warnings
from tfjob_operator.controller.jobs.children import ReplicaKey
from tfjob_operator.controller.jobs.pods import problem_of_job
from tfjob_operator.controller.tfjob.plan.accelerators import with_seconds
from tfjob_operator.controller.tfjob.plan.actions import NOTHING, blocks_pods, with_config_maps, with_gang
from tfjob_operator.controller.tfjob.plan.attempts import (
    NO_DECISION,
    Decision,
    attempt_of_end,
    count_on_nodes,
    decide,
    delayed_replicas,
    drop_delays,
    ending_of,
    ignored_request,
    past_start_deadline,
    restart_all,
    restart_requested,
    unfinished,
    why_late,
)
from tfjob_operator.controller.tfjob.plan.cleanup import (
    clean_up,
    conclude,
    earlier_kept_s,
    finish,
    kept_s,
    sidecar_grace_s,
    wait_for_workers_s,
)
from tfjob_operator.controller.tfjob.plan.ending import (
    Ending,
    Verdict,
    exit_event,
    judge,
    most_restarts,
    past_deadline,
    should_restart,
    until_deadline,
)
from tfjob_operator.controller.tfjob.plan.nodes import (
    NO_NODE_MATCHES,
    find_node_matches,
    limit_avoidance,
    observe_pods,
    with_avoidance,
    with_nodes,
)
from tfjob_operator.controller.tfjob.plan.placement import Nodes
from tfjob_operator.controller.tfjob.plan.progress import end_stall, find_stall, with_logs
from tfjob_operator.controller.tfjob.plan.replicas import (
    STILL_RUNNING,
    Finished,
    Observed,
    Replica,
    count_unended,
    find_label_drift,
    find_selector_drift,
    observe,
    problems_of,
    unfinished_keys,
)
from tfjob_operator.controller.tfjob.plan.size import fit
from tfjob_operator.controller.tfjob.plan.status import (
    NOT_REPLACING,
    Replacing,
    StatusDraft,
    finished_indices,
    has_started,
    outdated_pods_warning,
    report_spec,
    reset_for_new_attempt,
    start_record,
)
from tfjob_operator.controller.tfjob.plan.trouble import with_trouble
from tfjob_operator.controller.tfjob.plan.types import DEFAULTS, Defaults, Plan, PlanInput, PodDeletion, without_blocked

MAX_NAMED: Final = 16
"""The message of a condition names up to this many replicas; beyond that it gives their number."""


def plan(inputs: PlanInput) -> Plan:
    """Decide what to do about a job.

    A job being deleted is left to the garbage collector. A job managed by another controller is left to that controller, even
    if the job is invalid.

    All changes to a plan are made here; the executor only omits pods whose ConfigMap could not be created.
    """
    job, spec, nodes, gang = inputs.job, inputs.spec, inputs.nodes, inputs.gang
    if job.metadata.deletion_timestamp is not None or spec.managed_by not in c.MANAGED_BY_US:
        return NOTHING
    draft = StatusDraft(inputs, waits=gang is not None and blocks_pods(gang))
    seen = observe(job, inputs.pods, inputs.services)
    if isinstance(spec, TFJobSpec) and seen.replicas:
        seen = seen.limited_to(spec.sizes)
    if nodes is not None:
        observe_pods(draft, inputs.pods)
    decided = _decide(draft, spec, seen, inputs.defaults, nodes)
    if not decided.ends(job):
        decided = _with_children(decided, draft, inputs, seen)
    # The status is complete now, so its size can be limited. What pods held depends on which of them the plan deletes.
    decided = with_seconds(fit(with_logs(decided, draft), job, seen), draft, seen)
    return replace(decided, first_seen=draft.observer.seen) if draft.observer.seen else decided


def _with_children(decided: Plan, draft: StatusDraft, inputs: PlanInput, seen: Observed) -> Plan:
    """Return the plan with what else concerns the children, in this order.

    Lost and avoided nodes come first: they decide which pods the PodGroup counts. Without pods that the PodGroup does not
    admit, fewer ConfigMaps are needed. Children that must wait are removed last, since the PodGroup counts them.
    """
    job, spec, nodes = inputs.job, inputs.spec, inputs.nodes
    if isinstance(spec, TFJobSpec):
        if nodes is not None:
            decided = with_nodes(decided, draft, inputs.pods, nodes, inputs.defaults.node_lost_after_s(spec))
        if draft.avoided_nodes:
            decided = with_avoidance(decided, draft, spec, inputs.gang, seen.replicas)
        if not conditions.is_over(job.status):
            decided = _with_warnings(decided, job, spec, inputs.now)
    decided = with_gang(decided, job, spec, seen.replicas, inputs.gang, observer=draft.observer)
    decided = with_config_maps(decided, job, spec, inputs.pods, inputs.config_maps, domain=inputs.domain)
    return without_blocked(decided, inputs.blocked)


def _with_warnings(decided: Plan, job: TFJob, spec: TFJobSpec, now: datetime) -> Plan:
    warnings = queue_warnings(job.metadata.labels, spec) if spec.misspelled_types else ()
    if job.metadata.annotations is not None and (why := ignored_request(job, now)):
        warnings = (SpecWarning(EventReason.RESTART_REQUEST_IGNORED, why), *warnings)
    problems = tuple(problem_of_job(*warning) for warning in warnings)
    return replace(decided, problems=(*decided.problems, *problems)) if problems else decided


def _decide(
    draft: StatusDraft, spec: TFJobSpec | InvalidSpec, seen: Observed, defaults: Defaults, nodes: Nodes | None
) -> Plan:
    if conditions.is_finished(draft):
        return clean_up(draft, spec, seen, defaults)
    record = conditions.end_record(draft)
    if record is not None:
        return finish(draft, record, spec, seen, defaults)
    draft.restore_execution(chain(seen.replicas, seen.surplus))
    if isinstance(spec, InvalidSpec):
        return hold(draft, spec, seen)
    if spec.suspend:
        return suspend(draft, spec, seen)
    return run(draft, spec, seen, defaults, nodes)


def run(
    draft: StatusDraft, spec: TFJobSpec, seen: Observed, defaults: Defaults = DEFAULTS, nodes: Nodes | None = None
) -> Plan:
    """Plan a running job. If it ends, the plan contains only its end."""
    finished = finished_indices(draft.job.status, spec.sizes, seen.replicas)
    _start_or_resume(draft, spec, seen.replicas)
    draft.begun = start_record(
        draft.job, spec, has_children=seen.has_children, will_create_pods=spec.total_replicas > 0
    )
    decision = NO_DECISION
    stall = find_stall(draft, spec, finished, seen)
    if spec.start_deadline_s is not None:
        keys = unfinished_keys(draft.job.metadata.name, spec, finished)
        decision = past_start_deadline(draft, spec.start_deadline_s, keys, seen)
    if spec.failure_policy is not None:
        node_matches = NO_NODE_MATCHES
        if nodes is not None and spec.has_node_rules:
            node_matches = find_node_matches(draft, spec.failure_policy, unfinished(seen.replicas, finished), nodes)
        decision = decide(spec, seen.replicas, finished, draft, decision, node_matches=node_matches, stall=stall)
    handled = decision.handled
    restarting = [
        replica
        for replica in seen.replicas
        if not replica.terminating
        and replica.index not in finished[replica.type]
        and (should_restart(replica, spec, defaults.retryable) or (handled and replica.pod.metadata.uid in handled))
    ]
    behind = bool(seen.replicas) and seen.replicas[0].attempt > draft.attempt  # the status of an older release
    requested = (behind or draft.job.metadata.annotations is not None) and restart_requested(draft, seen.replicas)
    whole = decision.action is not None or requested
    if draft.avoided_nodes:
        limit_avoidance(draft, spec)
    counts = spec.node_avoidance is not None or decision.node_matches is not NO_NODE_MATCHES or draft.avoided_nodes
    on_nodes: Collection[str] = ()
    if counts and not whole:
        on_nodes = count_on_nodes(draft, spec, decision, seen, finished=finished, causes=restarting, nodes=nodes)
    draft.record(
        seen.replicas,
        finished,
        _replacing(restarting, decision, on_nodes, delays=defaults.delays)
        if (restarting or on_nodes) and not whole
        else NOT_REPLACING,
    )
    _warn_about_outdated_pods(draft, spec, seen.replicas, restarting)
    replaced = {replica.pod.metadata.uid for replica in restarting}
    verdict = judge(draft.job, spec, seen.replicas, finished, draft.replica_statuses, restarting=replaced)
    ending = with_trouble(draft, _ending(draft, spec, verdict, decision, seen.replicas), spec, seen, finished)
    if ending is not None:
        wait_s = wait_for_workers_s(draft, spec, ending, seen.replicas)
        if wait_s is not None:
            return Plan(status=draft.freeze(), events=tuple(draft.events), requeue_after_s=wait_s)
        fails = ending.condition is ConditionType.FAILED
        return conclude(draft, ending, spec, seen, attempt_of_end(draft, ending) if fails else None)
    grace_s = sidecar_grace_s(spec, defaults)
    if whole:
        if counts:
            causes = [] if decision.failure is None else [decision.failure]
            count_on_nodes(draft, spec, decision, seen, finished=finished, causes=causes, nodes=nodes)
        if requested:  # after the repair of a node, for example
            draft.avoided_nodes = ()
        restart_all(draft, spec, decision, (*seen.replicas, *seen.surplus), delays=defaults.delays)
        end_stall(draft, restarts=True)
        return _restart_attempt(draft, spec, seen, finished, grace_s=grace_s)
    if not defaults.delays:
        drop_delays(draft)
    end_stall(draft, restarts=False)
    return _reconcile_children(
        draft, spec, seen, finished, restarting, decision=decision, running=verdict.running, grace_s=grace_s
    )


def _replacing(
    restarting: Iterable[Replica], decision: Decision, on_nodes: Collection[str], *, delays: bool
) -> Replacing:
    """Return what to record about pods that are replaced individually; pods in `on_nodes` count for their nodes."""
    counted, ignored = set[str](), set[str]()
    rules = {}
    for replica in restarting:
        uid, rule = replica.pod.metadata.uid, decision.handled.get(replica.pod.metadata.uid)
        healthy = rule is not None and rule.is_about_nodes and replica.outcome in STILL_RUNNING
        if not (replica.disrupted or healthy):
            (ignored if rule is not None and rule.action is RuleAction.IGNORE else counted).add(uid)
        if rule is not None:
            rules[uid] = rule.name
    return Replacing(counted, ignored, rules, delays=delays, on_nodes=on_nodes)


def _restart_attempt(draft: StatusDraft, spec: TFJobSpec, seen: Observed, finished: Finished, *, grace_s: int) -> Plan:
    """Delete all pods, except those of finished replicas if the failure policy keeps them. Pods are created by later plans."""
    keeps = spec.failure_policy is not None and spec.failure_policy.keeps_finished
    pods = (*seen.replicas, *seen.surplus)
    kept = earlier_kept_s(draft, pods, grace_s)
    deleted = [
        replica
        for replica in pods
        if not (
            replica.terminating or replica.uid in kept or (keeps and replica.index in finished.get(replica.type, ()))
        )
    ]
    plan = Plan(
        status=draft.freeze(),
        events=tuple(draft.events),
        delete_pods=tuple(map(_supersede, deleted)),
        requeue_after_s=_next_due_s(draft, spec, NO_DECISION),
    )
    return plan.requeued_within(min(kept.values(), default=None))


def _reconcile_children(
    draft: StatusDraft,
    spec: TFJobSpec,
    seen: Observed,
    finished: Finished,
    restarting: Sequence[Replica],
    *,
    decision: Decision,
    running: bool,
    grace_s: int,
) -> Plan:
    """Create missing children, repair edited ones, and delete surplus and failed pods; later syncs recreate failed ones."""
    name = draft.job.metadata.name
    keys = unfinished_keys(name, spec, finished)
    present = {replica.key for replica in seen.replicas}
    missing_pods = _missing(keys, present)
    delayed = delayed_replicas(draft, missing_pods) if draft.has_delays else ()
    created = missing_pods
    if seen.older or delayed:
        created = () if seen.older else tuple(key for key in missing_pods if key not in delayed)
    any_terminating = any(
        replica.terminating and replica.index not in finished[replica.type] for replica in seen.replicas
    )
    problems = problems_of(seen.replicas)
    converged = not (missing_pods or any_terminating)
    failed = [key.name for key in missing_pods if key.name in draft.failed_creates]
    stuck = bool(problems)
    _update_running_condition(draft, restarting, running=running, converged=converged, stuck=stuck, failed=failed)
    shares = spec.network is Network.SHARED and bool(keys or present)
    served = [ReplicaKey.of_all(name)] if shares else keys
    wanted = seen.services_in_use(name).union(served)
    services = seen.services_of(wanted)
    begins = bool(draft.attempt and created) and all(replica.attempt < draft.attempt for replica in seen.replicas)
    kept = kept_s(draft, restarting, grace_s) | earlier_kept_s(draft, seen.surplus, grace_s)
    plan = Plan(
        create_services=_missing(served, {key for key, _ in services}),
        create_pods=created,
        begins_attempt=begins,
        create_later=len(missing_pods) - len(created),
        status=draft.freeze(),
        events=tuple(draft.events),
        delete_pods=(
            *(_restart(replica, decision) for replica in restarting if replica.uid not in kept),
            *(
                _supersede(replica) if replica.attempt < draft.attempt else PodDeletion(replica.pod)
                for replica in seen.surplus
                if not (replica.terminating or replica.uid in kept)
            ),
        ),
        delete_services=seen.services_except(wanted),
        label_drift=tuple(find_label_drift(name, seen.replicas, services)),
        selector_drift=tuple(find_selector_drift(name, services)),
        problems=problems,
        requeue_after_s=_next_due_s(draft, spec, decision),
    )
    return plan.requeued_within(min(kept.values(), default=None))


def _next_due_s(draft: StatusDraft, spec: TFJobSpec, decision: Decision) -> float | None:
    """Return the seconds until another plan is due even without an event; None for never."""
    times = [until_deadline(draft, spec.active_deadline_s), decision.next_in_s]
    if draft.next_restart_time is not None or draft.avoided_nodes:
        moments = (draft.next_restart_time, *(node.expiration_time for node in draft.avoided_nodes))
        times += [
            (moment - draft.now).total_seconds() for moment in moments if moment is not None and moment > draft.now
        ]
    known = [each for each in times if each is not None]
    return min(known) if known else None


def _start_or_resume(draft: StatusDraft, spec: TFJobSpec, replicas: Iterable[Replica]) -> None:
    """Set Created and the start time; a suspended job is resumed, with a new start time."""
    draft.create()
    report_spec(draft, spec)
    if conditions.is_true(draft, ConditionType.SUSPENDED):
        message = f"TFJob {draft.job.metadata.name} is resumed."
        draft.set_false(ConditionType.SUSPENDED, ConditionReason.RESUMED, message)
        draft.emit(EventType.NORMAL, ConditionReason.RESUMED, message)
        if draft.start_time is not None:
            draft.begin_execution()
        draft.start_time, replicas = None, ()
    draft.start(replica.pod for replica in replicas)


def _warn_about_outdated_pods(
    draft: StatusDraft, spec: TFJobSpec, replicas: Sequence[Replica], restarting: Sequence[Replica]
) -> None:
    deleted = {replica.pod.metadata.uid for replica in restarting}
    still_running = (  # lazy: evaluated only after an edit
        replica
        for replica in replicas
        if replica.outcome in STILL_RUNNING and not replica.terminating and replica.pod.metadata.uid not in deleted
    )
    if message := outdated_pods_warning(draft.job, spec, still_running):
        # Scaling an elastic job is intentional.
        kind = EventType.NORMAL if spec.dynamic_workers else EventType.WARNING
        draft.emit(kind, EventReason.POD_TEMPLATE_NOT_APPLIED, message)


def _ending(
    draft: StatusDraft, spec: TFJobSpec, verdict: Verdict, decision: Decision, replicas: Sequence[Replica]
) -> Ending | None:
    """Return how the job ends now, or None: its replicas and rules decide first, then its limits.

    Success takes precedence, and rules take precedence over failures that no rule matches. A restart of the whole job reverts
    no limit that the job has already exceeded, so these are decided before it.
    """
    succeeds = verdict.ending is not None and verdict.ending.condition is ConditionType.SUCCEEDED
    limit = _past_backoff_limit(draft, spec, replicas)
    if spec.failure_policy is not None and decision.action is not None and not succeeds:
        ending = ending_of(draft, spec.failure_policy, decision)
        return ending or limit or past_deadline(draft, spec.active_deadline_s)
    if verdict.ending is not None:
        return verdict.ending
    if limit is not None:
        return limit
    if decision.late:
        first = decision.late[0]
        why = f"{decision.not_running} did not, the first is {first.key.name}: {why_late(draft, first.replica)}"
        name = draft.job.metadata.name
        return Ending.by_limit(name, EventReason.START_DEADLINE_EXCEEDED, why, first.replica, late=first.key)
    return past_deadline(draft, spec.active_deadline_s)


def _past_backoff_limit(draft: StatusDraft, spec: TFJobSpec, replicas: Iterable[Replica]) -> Ending | None:
    """Return the outcome of a job whose replicas were restarted more often than its backoffLimit, else None."""
    if spec.backoff_limit is None or sum(record.total for record in draft.restarts) <= spec.backoff_limit:
        return None
    name = draft.job.metadata.name
    detail, failure = most_restarts(name, draft.restarts, replicas)
    return Ending.by_limit(name, EventReason.BACKOFF_LIMIT_EXCEEDED, detail, failure)


def _update_running_condition(
    draft: StatusDraft,
    restarting: Sequence[Replica],
    *,
    running: bool,
    converged: bool,
    stuck: bool,
    failed: Sequence[str],
) -> None:
    """Set Running or Restarting. A restarting job is Running only once every replica has its pod again.

    The creates of `failed` replicas failed; a job may run without them. `stuck`: a pod cannot start (see the counters).
    """
    name, was_restarting = draft.job.metadata.name, conditions.is_true(draft.job.status, ConditionType.RESTARTING)
    if restarting:
        kinds = ", ".join(sorted({replica.type for replica in restarting}))
        message = f"TFJob {name} is restarting because {kinds} replica(s) failed."
        draft.set_true(ConditionType.RESTARTING, ConditionReason.RESTARTING, message)
        if not was_restarting:
            draft.emit(EventType.WARNING, ConditionReason.RESTARTING, message)
    elif running and (converged or not was_restarting):
        but = ", but not all of its replicas can start" if stuck else ""
        if failed:
            which = ranges_of(failed) if len(failed) <= MAX_NAMED else f"{len(failed)} replicas"
            but = f" without {which}, which could not be created: see its Warnings"
        draft.set_true(ConditionType.RUNNING, ConditionReason.RUNNING, f"TFJob {name} is running{but}.")


def _restart(replica: Replica, decision: Decision) -> PodDeletion:
    uid = replica.pod.metadata.uid
    rule, match = decision.handled.get(uid), decision.node_matches.by_pod.get(uid)
    decided = None if rule is None else (rule.name, rule.action.value, replica.type)
    event = exit_event(replica.pod, replica.ended, rule) if match is None else match.event
    return PodDeletion(replica.pod, event, restarts=True, decision=decided)


def _supersede(replica: Replica) -> PodDeletion:
    """Return the deletion of a pod of an earlier attempt."""
    return PodDeletion(replica.pod, exit_event(replica.pod, replica.ended), restarts=True)


def _missing(keys: Iterable[ReplicaKey], present: Collection[ReplicaKey]) -> tuple[ReplicaKey, ...]:
    return tuple([key for key in keys if key not in present] if present else keys)


def suspend(draft: StatusDraft, spec: TFJobSpec, seen: Observed) -> Plan:
    """Plan a suspended job; finished replicas and restarts are kept."""
    draft.create()
    draft.record(seen.replicas, finished_indices(draft.job.status, spec.sizes, seen.replicas))
    draft.begun = start_record(draft.job, spec, has_children=seen.has_children, will_create_pods=False)
    if seen.replicas:  # an operator that was killed before it wrote the first status may have created them
        draft.start(replica.pod for replica in seen.replicas)
    report_spec(draft, spec)
    return delete_all(draft, seen)


def delete_all(draft: StatusDraft, seen: Observed) -> Plan:
    """Set Suspended and delete all pods and services, regardless of the clean-up policy."""
    message = f"TFJob {draft.job.metadata.name} is suspended."
    if not conditions.is_true(draft.job.status, ConditionType.SUSPENDED):
        draft.emit(EventType.NORMAL, ConditionReason.SUSPENDED, message)
    draft.set_true(ConditionType.SUSPENDED, ConditionReason.SUSPENDED, message)
    draft.replica_statuses = count_unended(draft.replica_statuses, (*seen.replicas, *seen.surplus), draft.expected)
    draft.restarts, draft.next_restart_time = reset_for_new_attempt(draft.restarts), None
    if draft.begun is not None:
        draft.begun = msgspec.structs.replace(draft.begun, all_ran=False)
    return Plan(
        status=draft.freeze(),
        events=tuple(draft.events),
        delete_pods=tuple(
            PodDeletion(replica.pod) for replica in (*seen.replicas, *seen.surplus) if not replica.terminating
        ),
        delete_services=seen.services_except(()),
    )


def hold(draft: StatusDraft, spec: InvalidSpec, seen: Observed) -> Plan:
    """Put the job on hold if it has started; otherwise fail it."""
    if not _should_hold(draft.job, spec, has_children=seen.has_children):
        return conclude(draft, Ending.invalid(invalid_message(spec)), spec, seen)
    sizes = _sizes(draft.job.status, seen.replicas)
    seen = seen.limited_to(sizes)
    draft.create()
    draft.record(seen.replicas, finished_indices(draft.job.status, sizes, seen.replicas))
    draft.restarts, draft.next_restart_time = reset_for_new_attempt(draft.restarts), None
    draft.begun = draft.begun or StartRecord()
    report_spec(draft, spec)
    return delete_all(draft, seen) if spec.suspend else _wait_for_fix(draft, spec, seen)


def _should_hold(job: TFJob, spec: InvalidSpec, *, has_children: bool) -> bool:
    """Return True if the job is put on hold, not failed: it has started and, if rejected, was edited after the start."""
    record = job.status.begun
    if spec.reason == ConditionReason.REFUSED and record is not None:
        return job.metadata.generation > record.generation
    return has_started(job.status, has_children=has_children)


def _wait_for_fix(draft: StatusDraft, spec: InvalidSpec, seen: Observed) -> Plan:
    """Wait for an edit or the deadline of the job."""
    deadline_s = spec.active_deadline_s
    if conditions.is_true(draft, ConditionType.SUSPENDED):
        deadline_s = None  # it is resumed when the spec is fixed, with a new start time
    else:
        draft.start(replica.pod for replica in seen.replicas)
    ending = with_trouble(draft, past_deadline(draft, deadline_s), spec, seen)
    if ending is not None:
        return conclude(draft, ending, spec, seen, attempt_of_end(draft, ending))
    return Plan(
        status=draft.freeze(),
        events=tuple(draft.events),
        problems=problems_of(seen.replicas),
        requeue_after_s=until_deadline(draft, deadline_s),
    )


def _sizes(status: JobStatus, observed: Iterable[Replica]) -> dict[str, int]:
    """Return the number of replicas of each type in the status; if it has none, `MAX_REPLICAS` for each observed type."""
    if status.begun is not None and status.begun.replicas:
        return status.begun.replicas
    present = {replica.type for replica in observed} | status.replica_statuses.keys() | status.finished_indices.keys()
    return {name: MAX_REPLICAS for name in c.REPLICA_TYPES if name in present}


def invalid_message(spec: InvalidSpec) -> str:
    """Return the message of the Failed condition and the Warning event; tools search for "the spec is invalid"."""
    return f"TFJob has failed because the spec is invalid: {spec.text}"
