"""The judges find bugs: each of these planted bugs is found within a few seeds."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
import pytest
from pytest_mock import MockerFixture

from fakes import old_judgements
from hack.kubernetes_versions import NEWEST
from kit.faults import CALM
from kit.virtual_loop import EPOCH, LivelockError
from kit.world import OracleError
from simulation.scenarios.alpha import alpha_jobs_keep_their_promises
from simulation.scenarios.clocks import waits_have_their_length
from simulation.scenarios.leaders import one_leader_writes
from simulation.scenarios.operators import (
    accelerators_are_counted_once,
    failure_policies_are_followed,
    failure_policies_are_followed_in_time,
    operators_are_in_time,
    operators_keep_their_promises,
    queues_keep_their_quota,
    queues_keep_their_quota_in_time,
)
from simulation.world import run_seed
from tfjob_operator.api import meta
from tfjob_operator.api.client.errors import ConflictError, StatusError
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.api.v1.conditions import end_record, is_ending
from tfjob_operator.api.v1.constants import RETRYABLE_EXIT_CODES
from tfjob_operator.api.v1.types import InvalidSpec, JobStatus, TFJobSpec
from tfjob_operator.api.v1alpha1.types import AlphaSpec
from tfjob_operator.controller.alpha import alpha_controller, observe
from tfjob_operator.controller.alpha import alpha_plan as alpha
from tfjob_operator.controller.alpha.alpha_controller import AlphaController
from tfjob_operator.controller.alpha.observe import derived_runtime_id
from tfjob_operator.controller.events import EventRecorder
from tfjob_operator.controller.leaderelection import Fence
from tfjob_operator.controller.tfjob import view
from tfjob_operator.controller.tfjob.apply import status_writer
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.plan import (
    accelerators,
    actions,
    attempts,
    cleanup,
    ending,
    nodes,
    plan,
    replicas,
    status,
)
from tfjob_operator.controller.tfjob.plan.clocks import Fact, Observer
from tfjob_operator.controller.tfjob.plan.placement import NodeState
from tfjob_operator.controller.tfjob.plan.replicas import Replica
from tfjob_operator.controller.tfjob.plan.types import Plan, PodDeletion
from tfjob_operator.controller.tfjob.view import View

pytestmark = pytest.mark.usefixtures("logged_errors")
SEEDS: Final = 400
"""The maximum number of seeds for a bug. Some need a rare sequence of events."""
PROMISES: Final = partial(run_seed, operators_keep_their_promises)
ON_THE_NEWEST: Final = partial(PROMISES, kubernetes=NEWEST)
LEADERS: Final = partial(run_seed, one_leader_writes)
"""Leaders that mostly stall and write, which is rare with whole operators."""
IN_TIME: Final = partial(run_seed, operators_are_in_time, faults=CALM)
POLICIES: Final = partial(run_seed, failure_policies_are_followed)
POLICIES_IN_TIME: Final = partial(run_seed, failure_policies_are_followed_in_time, faults=CALM)
QUEUES: Final = partial(run_seed, queues_keep_their_quota)
QUEUES_IN_TIME: Final = partial(run_seed, queues_keep_their_quota_in_time, faults=CALM)
HOURS: Final = partial(run_seed, accelerators_are_counted_once)
CLOCKS: Final = partial(run_seed, waits_have_their_length, faults=CALM)
ALPHA: Final = partial(run_seed, alpha_jobs_keep_their_promises)


def _later(play: Callable[[int], object], first: int) -> Callable[[int], object]:
    """Play later seeds, if the sequence of events that a bug needs is rare and comes for the first time a little later."""
    return lambda seed: play(first + seed)


# The object that a bug replaces, and the one it calls.
_with_config_maps, _replicas_of, _until_deadline = actions.with_config_maps, replicas.replicas_of, ending.until_deadline
_decide, _restart_attempt, _restart_all = attempts.decide, plan._restart_attempt, attempts.restart_all
_replacing, _ending_of, _clean_up = plan._replacing, attempts.ending_of, cleanup.clean_up
_decide_job, _finish, _conclude_job, _suspend = plan._decide, cleanup.finish, cleanup.conclude, plan.delete_all
_due_s: Final = status_writer.TFJobStatusWriter._due_s
_FIRST_DUE: Final[WeakKeyDictionary[status_writer.TFJobStatusWriter, dict[str, float]]] = WeakKeyDictionary()
_kept_s, _waited_for, _escalation = cleanup.kept_s, cleanup._waited_for, attempts._escalation
_first_seen, _lost_since, _first_match = Observer.first_seen, NodeState.lost_since, nodes._first_match
_with_unwritten = view._with_unwritten
_write_tfjob_if_due = status_writer.TFJobStatusWriter.write_if_due
_tidy_up, _conclude, _run, _execute = alpha.to_clean_up, alpha.conclude, alpha.run, AlphaController.execute


async def _believe(*_: object) -> None:
    """Trust the cache."""


async def _tell_later(recorder: EventRecorder, *event: Any, fact: str) -> None:
    """Queue an event like any other, though a later deletion must wait for it."""
    assert fact
    recorder.event(*event)


async def _go_on_without_it(
    writer: status_writer.TFJobStatusWriter, view: View, *given: Any, at_once: bool, busy: bool
) -> Any:
    """Take a status that is refused for stored."""
    try:
        return await _write_tfjob_if_due(writer, view, *given, at_once=at_once, busy=busy)
    except StatusError as error:
        if isinstance(error, ConflictError) or error.code not in {403, 413, 422}:
            raise
        return view, None


def _worker_first(specs: Any) -> str | None:
    return c.WORKER if c.WORKER in specs else None


def _pile_up(*given: Any, **named: Any) -> Any:
    return replace(_with_config_maps(*given, **named), delete_config_maps=())


def _every_pod(*args: Any) -> Any:
    chosen, others = _replicas_of(*args)
    return [*chosen, *(other for other in others if other.type)], []


def _dawdle(*args: Any) -> float | None:
    """A missing timer: a deadline is noticed too late (B46)."""
    left = _until_deadline(*args)
    return left if left is None or left <= 0 else left + 10.0


def _by_generation(draft: Any, *_: Any) -> str:
    """The RuntimeId changes with an edit."""
    return derived_runtime_id(draft.job.metadata.uid, draft.job.metadata.generation)


def _for_good(ended: Any) -> bool:
    """Only the table of exit codes: a process that ran out of memory is retried."""
    return ended.exit_code not in RETRYABLE_EXIT_CODES


def _any_replica(draft: Any, spec: AlphaSpec, children: Any, taken: Any) -> Any:
    """A job fails when any replica fails, not only its chief."""
    for found in observe.replicas_of(children).values():
        if (verdict := observe.judge(found)).failed:
            return _conclude(draft, spec, children, verdict)
    return _run(draft, spec, children, taken)


def _clean_up_first(draft: Any, spec: AlphaSpec, children: Any, verdict: Any) -> Any:
    """Children are cleaned up before the end is written."""
    gone = alpha.to_clean_up(spec.cleanup_policy, children)
    return alpha.AlphaPlan(delete=gone) if gone else _conclude(draft, spec, children, verdict)


def _begin_unsaid(*given: Any) -> Any:
    """Jobs are created before the status says so."""
    decided = _run(*given)
    if decided.status is None or decided.status.begun is None:
        return decided
    return replace(decided, status=None)


def _services_last(*given: Any) -> Any:
    """Jobs do not wait for their services."""
    decided = _run(*given)
    return replace(decided, create_jobs=decided.create_jobs or decided.create_services)


async def _act_first(reconciler: AlphaController, seen: Any, memory: Any, decided: Any) -> Any:
    """Children are created before the status is written."""
    if seen.may_act and decided.acts and decided.status is not None:
        await reconciler._create_and_delete(seen, decided)
    return await _execute(reconciler, seen, memory, decided)


def _rules_backwards(spec: Any, *given: Any, **named: Any) -> Any:
    policy = spec.failure_policy and replace(spec.failure_policy, rules=spec.failure_policy.rules[::-1])
    return _decide(replace(spec, failure_policy=policy), *given, **named)


def _count_twice(draft: Any, *given: Any, **named: Any) -> None:
    _restart_all(draft, *given, **named)
    draft.counted_restarts += draft.counted_restarts > draft.job.status.counted_restarts


def _delete_first(*given: Any, **named: Any) -> Any:
    """Pods are deleted before the attempt is written."""
    found = _restart_attempt(*given, **named)
    return replace(found, status=None) if found.delete_pods else found


def _revive(draft: Any, spec: Any, seen: Any, *given: Any) -> Any:
    """A job failed by a rule runs again when its pods are gone."""
    if not seen.replicas and any(
        (each.reason, each.status) == ("PodFailurePolicy", "True") for each in draft.conditions
    ):
        draft.conditions, draft.completion_time = draft.conditions[:-1], None
    return _clean_up(draft, spec, seen, *given)


def _count_all(restarting: Any, _decision: Any, *given: Any, **named: Any) -> Any:
    """Ignored failures are counted."""
    return _replacing(restarting, attempts.NO_DECISION, *given, **named)


def _never_exceeded(draft: Any, policy: Any, decision: Any) -> Any:
    return None if decision.action is c.RuleAction.RESTART_ALL else _ending_of(draft, policy, decision)


def _request_lost(draft: Any, _: object) -> bool:
    """A request is recorded, but its restart is delayed."""
    if draft.job.metadata.annotations is not None:
        draft.observed_restart_request = draft.job.metadata.annotations.restart_requested_at
    return False


def _never(*_: object) -> bool:
    return False


async def _nobody(*_: object) -> list[object]:
    """The cache is believed about the pods that hold quota."""
    return []


def _decided_later(writer: Any, view: View, pending: Any, found: JobStatus, *, busy: bool) -> Any:
    """A decided end is written after four seconds, as if it could wait for more changes."""
    if end_record(found) != end_record(view.written):
        now = writer._clock.monotonic()
        left_s = _FIRST_DUE.setdefault(writer, {}).setdefault(view.job.metadata.uid, now) + 4 - now
        if left_s > 0:
            return left_s
    return _due_s(writer, view, pending, found, busy=busy)


def _since_the_last_attempt(draft: Any, pods: Any, grace_s: int, decided: Any = None) -> Any:
    """The grace of a pod starts again with each attempt."""
    history = draft.attempt_history
    draft.attempt_history = tuple(msgspec.structs.replace(each, end_time=history[-1].end_time) for each in history)
    kept = _kept_s(draft, pods, grace_s, decided)
    draft.attempt_history = history
    return kept


def _for_ever(_draft: Any, pods: Any, *_: object) -> Any:
    """A pod is kept as long as its sidecar works."""
    return {replica.uid: 60.0 for replica in pods if replica.lingers}


def _by_its_own_time(*given: Any) -> Any:
    """A grace period that begins ahead of our clock begins in the future."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Observer, "begins", lambda _, written: written)
        return _kept_s(*given)


def _keep_lingering(*given: Any) -> Any:
    """A pod that decided the end, and whose sidecar works, is not deleted before the end is written."""
    found = _finish(*given)
    return replace(found, delete_pods=tuple(each for each in found.delete_pods if _trains(each.pod)))


def _trains(pod: Any) -> bool:
    return all(
        each.name != "tensorflow" or each.state.terminated is None for each in pod.status.container_statuses or ()
    )


def _after_the_decision(draft: Any, _: object, decided: Any) -> float:
    return float(cleanup.GIVE_UP_S - (draft.now - decided).total_seconds())


def _without_surplus(policy: str, seen: Any) -> Any:
    return _waited_for(policy, replace(seen, surplus=()))


def _without_native_sidecars(policy: str, seen: Any) -> Any:
    return [each for each in _waited_for(policy, seen) if not each.has_ended]


def _delete_ended(draft: Any, record: Any, spec: Any, seen: Any, *given: Any) -> Any:
    """Pods with a terminal phase are deleted before the end is written."""
    ended = tuple(PodDeletion(each.pod) for each in seen.replicas if not (each.holds_quota or each.terminating))
    return replace(_finish(draft, record, spec, seen, *given), delete_pods=ended)


def _reverted(undo: Callable[[Any, Any], bool]) -> object:
    """Forget a decision that is not written yet, for a reason."""

    def decide_job(draft: Any, spec: Any, *given: Any) -> Any:
        if is_ending(draft) and undo(draft, spec):
            draft.begun = msgspec.structs.replace(draft.begun, ending=None)
        return _decide_job(draft, spec, *given)

    return decide_job


def _is_requested(draft: Any, _: object) -> bool:
    return attempts.restart_requested(draft, ())


def _finish_unqueued(draft: Any, record: Any, *given: Any) -> Any:
    """A job whose label was removed ends at once."""
    if c.LABEL_QUEUE not in (draft.job.metadata.labels or {}):
        return cleanup._write_end(draft, record)
    return _finish(draft, record, *given)


def _finish_calmly(draft: Any, record: Any, spec: Any, *given: Any) -> Any:
    """A suspension changes nothing while the end is decided."""
    return _finish(draft, record, replace(spec, suspend=False), *given)


def _refill(draft: Any, record: Any, spec: Any, seen: Any, *given: Any) -> Any:
    """Pods that went while the end is decided are made anew."""
    found, present = _finish(draft, record, spec, seen, *given), {replica.key for replica in seen.replicas}
    if found.may_outlive is not None or isinstance(spec, InvalidSpec):
        return found
    keys = replicas.unfinished_keys(draft.job.metadata.name, spec, {name: set() for name in spec.replicas})
    old = tuple(each for each in found.delete_pods if each.pod.metadata.creation_timestamp <= record.time)
    return replace(found, create_pods=tuple(key for key in keys if key not in present), delete_pods=old)


def _reserve(draft: Any, record: Any, spec: Any, seen: Any, *given: Any) -> Any:
    """Services go before the end is written."""
    return replace(_finish(draft, record, spec, seen, *given), delete_services=seen.services_except(()))


def _unsaid(draft: Any, ending: Any, spec: Any, seen: Any, *given: Any) -> Any:
    """Pods are deleted before the decision is written."""
    found = _conclude_job(draft, ending, spec, seen, *given)
    if found.status is None or not is_ending(found.status):
        return found
    return Plan(delete_pods=tuple(PodDeletion(each.pod) for each in _waited_for("All", seen)))


def _none_active(counts: Any, *_: object) -> Any:
    return {name: msgspec.structs.replace(each, active=0) for name, each in counts.items()}


def _believed_gone(spec: Any, finished: Any, present: Any, *given: Any) -> Any:
    """An escalation does not wait for a pod that is kept for its sidecars."""
    return _escalation(spec, finished, [each for each in present if not each.lingers], *given)


def _gone_at_once(observer: Observer, fact: Fact, *given: Any, **named: Any) -> Any:
    found = _first_seen(observer, fact, *given, **named)
    return datetime.min.replace(tzinfo=UTC) if fact is Fact.ABSENT else found


def _by_the_clock_of_others(*facts: Fact) -> Callable[..., Any]:
    """A wait from an event begins at the time that its object gives."""

    def first_seen(observer: Observer, fact: Fact, name: str = "", time: Any = None) -> Any:
        return time if fact in facts else _first_seen(observer, fact, name, time)

    return first_seen


def _age_s(since: Any) -> Any:
    """The age of a condition is by the clock of its node; times of the world are monotonic."""
    return since and since._replace(seen_s=(since.given - EPOCH).total_seconds())


def _lost_by_its_clock(node: Any) -> Any:
    return _age_s(_lost_since(node))


def _sick_by_its_clock(rule: Any, node: Any) -> Any:
    conditions = {each: _age_s(since) for each, since in node.conditions.items()}
    return _first_match(rule, node._replace(conditions=conditions))


def _merge_seconds(job: Any, memory: Any) -> Any:
    """Seconds that were computed, and not written, are part of the next view; the pods that they count are not."""
    found, unwritten = _with_unwritten(job, memory), memory.status.unwritten
    if unwritten is None or not unwritten.accelerator_seconds:
        return found
    status = msgspec.structs.replace(found.status, accelerator_seconds=unwritten.accelerator_seconds)
    return msgspec.structs.replace(found, status=status)


def _suspend_later(draft: Any, seen: Any) -> Any:
    """A suspension waits for sidecars."""
    found = _suspend(draft, seen)
    kept = {each.uid for each in (*seen.replicas, *seen.surplus) if each.lingers}
    return replace(found, delete_pods=tuple(each for each in found.delete_pods if each.pod.metadata.uid not in kept))


REVERTED: Final = "the decision changed|changed after the decision|hold quota"
Row = tuple[Callable[..., object], object, str, object, str]
BUGS: Final[dict[str, Row]] = {
    "a view is not confirmed": (PROMISES, Confirmer, "confirm", _believe, "never confirmed"),
    "U13: an end is told when it may be late": (PROMISES, EventRecorder, "write", _tell_later, "events say that"),
    "a worker decides, not the chief": (PROMISES, ending, "deciding_type", _worker_first, "have succeeded"),
    "nothing is cleaned up": (PROMISES, cleanup, "pods_to_clean_up", lambda *_: [], "has ended as"),
    "everything is cleaned up": (PROMISES, cleanup, "pods_to_clean_up", lambda _, pods: [*pods], "clean-up policy"),
    "a refused status is taken for stored": (
        _later(PROMISES, 105),
        status_writer.TFJobStatusWriter,
        "write_if_due",
        _go_on_without_it,
        "are on record",
    ),
    "restarts are not counted": (PROMISES, status, "count_restarts", lambda *_: (), "restarts"),
    "an orderly end on SIGTERM counts": (PROMISES, replicas, "was_stopped", _never, "not succeeded"),
    "what pods read is not kept for them": (_later(PROMISES, 85), actions, "has_ended", lambda _: True, "is not there"),
    "ConfigMaps pile up": (PROMISES, plan, "with_config_maps", _pile_up, "which nothing reads"),
    "successes are not remembered": (
        PROMISES,
        status,
        "merged_finished_indices",
        lambda *_: {},
        "succeeded|has ended well",
    ),
    # Interference: forged owners, second pods, edited labels and selectors.
    "D2": (
        PROMISES,
        meta,
        "OwnerKey",
        lambda key: key.rpartition("/")[2],
        "another namespace|has no pods|never|counts",
    ),
    "D7": (_later(PROMISES, 20), replicas, "replicas_of", _every_pod, "second pod|has not ended|restart|succeeded"),
    "U9": (PROMISES, plan, "find_label_drift", lambda *_: (), "wrong labels"),
    "U17": (PROMISES, plan, "find_selector_drift", lambda *_: (), "that selects"),
    "labels decide, not names": (PROMISES, replicas, "key_of", replicas.key_of_labels, "."),
    # Former bugs of the operator.
    "M1": (ON_THE_NEWEST, cleanup, "pods_to_clean_up", old_judgements.to_clean_up, "clean-up policy is Running"),
    "M2": (ON_THE_NEWEST, replicas, "was_stopped", old_judgements.was_stopped, "not succeeded"),
    "M3": (ON_THE_NEWEST, replicas, "is_final", old_judgements.is_final, "failed for good|restarted|not succeeded"),
    "M7": (ON_THE_NEWEST, status, "native_sidecars", lambda _: frozenset(), "was restarted|restarts of"),
    "writes without the lease": (LEADERS, Fence, "check", lambda _: 60.0, "while the lease names"),
    "dawdling": (IN_TIME, plan, "until_deadline", _dawdle, "too late"),
    # Failure policies.
    "a survivor of an attempt": (
        _later(POLICIES, 55),
        replicas,
        "of_earlier_attempts",
        lambda *_: [],
        "another attempt|may still run|about nothing",
    ),
    "a restart counts twice": (POLICIES, plan, "restart_all", _count_twice, "the restarts by 2"),
    "rules backwards": (POLICIES, plan, "decide", _rules_backwards, "about nothing|was wanted|a rule|comes before"),
    "a failure is revived": (POLICIES, plan, "clean_up", _revive, "after the end"),
    "an action is lost by a kill": (POLICIES, plan, "_restart_attempt", _delete_first, "was wanted"),
    "what is ignored counts": (POLICIES, plan, "_replacing", _count_all, "does not count"),
    "maxRestarts is no limit": (POLICIES, plan, "ending_of", _never_exceeded, "times of . allowed"),
    "a resumption is no execution": (
        PROMISES,
        status.StatusDraft,
        "begin_execution",
        lambda _: None,
        "the execution was",
    ),
    "a request is lost": (POLICIES, plan, "restart_requested", _request_lost, "did not restart"),
    "no back-off": (POLICIES, plan, "delayed_replicas", lambda *_: (), "its back-off ends"),
    "a success waits for nobody": (POLICIES_IN_TIME, plan, "wait_for_workers_s", lambda *_: None, "did not wait"),
    "workers go with the success": (
        POLICIES_IN_TIME,
        cleanup,
        "_kept_at_the_end",
        lambda *_: {},
        "a worker has|kept for",
    ),
    # The end of a job, its quota, and pods that are kept for their sidecars.
    "a new attempt restarts the grace": (
        QUEUES_IN_TIME,
        cleanup,
        "kept_s",
        _since_the_last_attempt,
        "too late.*deletion of",
    ),
    "a pod is kept for ever": (_later(QUEUES, 1), cleanup, "kept_s", _for_ever, "under .* the pod of|not written"),
    "a decider with a proxy is never deleted": (QUEUES, plan, "finish", _keep_lingering, "not written"),
    "no pod is kept": (QUEUES_IN_TIME, Replica, "lingers", property(_never), "kept for its sidecars"),
    "a bound counts from the decision": (QUEUES, cleanup, "_until_given_up_s", _after_the_decision, "frees the quota"),
    "the last condition is written by the cache": (
        _later(QUEUES, 6),
        Confirmer,
        "quota_holders",
        _nobody,
        "frees the quota",
    ),
    "surplus pods are not waited for": (
        _later(QUEUES, 15),
        cleanup,
        "_waited_for",
        _without_surplus,
        "frees the quota",
    ),
    "native sidecars hold no quota": (QUEUES, cleanup, "_waited_for", _without_native_sidecars, "frees the quota"),
    "a decision is reverted by a suspension": (
        _later(QUEUES, 5),
        plan,
        "_decide",
        _reverted(lambda _, spec: spec.suspend),
        REVERTED,
    ),
    "by an invalid spec": (
        QUEUES,
        plan,
        "_decide",
        _reverted(lambda _, spec: isinstance(spec, InvalidSpec)),
        REVERTED,
    ),
    "by a success policy": (
        QUEUES,
        plan,
        "_decide",
        _reverted(lambda draft, spec: isinstance(spec, TFJobSpec) and bool(spec.success_policy)),
        REVERTED,
    ),
    "by a request to restart": (QUEUES, plan, "_decide", _reverted(_is_requested), REVERTED),
    "by another size": (
        _later(QUEUES, 14),
        plan,
        "_decide",
        _reverted(lambda draft, spec: isinstance(spec, TFJobSpec) and spec.sizes != draft.begun.replicas),
        REVERTED,
    ),
    "by a removed label": (_later(QUEUES, 20), plan, "finish", _finish_unqueued, "frees the quota"),
    "a suspension does not end the grace": (_later(QUEUES_IN_TIME, 12), plan, "finish", _finish_calmly, "too late"),
    "a pod is created after the decision": (_later(QUEUES, 3), plan, "finish", _refill, "the job has ended"),
    "services go after the decision": (QUEUES, plan, "finish", _reserve, "not written yet"),
    "an unwritten decision is acted on": (QUEUES, plan, "conclude", _unsaid, "wanted as it is"),
    "a decision is delayed": (
        QUEUES_IN_TIME,
        status_writer.TFJobStatusWriter,
        "_due_s",
        _decided_later,
        "too late: .*end of|at rest, but",
    ),
    "no pod is active": (QUEUES, cleanup, "count_unended", _none_active, "its pods hold quota"),
    "the decider goes first": (QUEUES_IN_TIME, plan, "finish", _delete_ended, "the pod has ended"),
    "deadlines and escalations do not wait for old pods": (
        _later(QUEUES, 53),
        Observer,
        "first_seen",
        _gone_at_once,
        "take longer|about nothing|does not say",
    ),
    "an escalation runs in the grace": (_later(QUEUES, 30), attempts, "_escalation", _believed_gone, "does not say"),
    "a suspension waits for sidecars": (
        _later(QUEUES, 56),
        plan,
        "delete_all",
        _suspend_later,
        "is suspended, and has|not gone",
    ),
    # The clocks of nodes, of the API server and of former leaders.
    "a node is lost by its own clock": (
        CLOCKS,
        NodeState,
        "lost_since",
        _lost_by_its_clock,
        "too (early|late).*'lost'",
    ),
    "a node is sick by its own clock": (CLOCKS, nodes, "_first_match", _sick_by_its_clock, "too (early|late).*'sick'"),
    "a success waits by the clock of its node": (
        CLOCKS,
        Observer,
        "first_seen",
        _by_the_clock_of_others(Fact.SUCCEEDED),
        "too (early|late).*'grace'",
    ),
    "a pod is given up by the clock of the API server": (
        CLOCKS,
        Observer,
        "first_seen",
        _by_the_clock_of_others(Fact.DELETED),
        "too (early|late).*'give up'",
    ),
    "a start is late by the clock of the API server": (
        _later(CLOCKS, 29),
        Observer,
        "first_seen",
        _by_the_clock_of_others(Fact.POD),
        "too (early|late).*'start'",
    ),
    "a wait begins in the future": (
        CLOCKS,
        Observer,
        "begins",
        lambda _, written: written,
        "too late.*('deadline'|'ttl'|'sidecar'|'start')",
    ),
    "a grace period begins in the future": (
        _later(CLOCKS, 50),
        cleanup,
        "kept_s",
        _by_its_own_time,
        "too late.*'sidecar'",
    ),
    # Seconds of accelerators.
    "a pod is counted again after a conflict": (HOURS, view, "_with_unwritten", _merge_seconds, "was added"),
    "seconds are counted from a stale cache": (
        HOURS,
        Confirmer,
        "confirm_accelerators",
        _believe,
        "was added|counted twice",
    ),
    "a pod counts until its end is seen": (HOURS, accelerators, "_ended_at", lambda _, now: now, "was added"),
    "a pod that vanishes is not counted": (
        _later(HOURS, 70),
        accelerators._Counter,
        "_count_vanished",
        lambda _: None,
        "was added",
    ),
    # The alpha controller.
    "a RuntimeId that does not stay": (ALPHA, alpha, "_runtime_id", _by_generation, "RuntimeId"),
    "an alpha view is not confirmed": (ALPHA, alpha_controller, "confirm", _believe, "never confirmed"),
    "the status comes last": (
        ALPHA,
        AlphaController,
        "execute",
        _act_first,
        "never confirmed|not in the status",
    ),
    "a beginning is not written": (ALPHA, alpha, "run", _begin_unsaid, "does not say that the job begins"),
    "services come last": (ALPHA, alpha, "run", _services_last, "a Job before|does not say"),
    "OOMKilled is tried again": (ALPHA, observe, "is_permanent", _for_good, "failed for good"),
    "every failure is final": (ALPHA, observe, "is_permanent", lambda _: True, "has not failed for good"),
    "an eviction is a failure": (ALPHA, observe, "is_disrupted", _never, "has not failed for good"),
    "a worker fails the job": (ALPHA, alpha, "run", _any_replica, "has not failed for good"),
    "an orderly end of an alpha pod counts": (ALPHA, observe, "was_stopped", _never, "not succeeded"),
    "clean-up before the end is written": (ALPHA, alpha, "conclude", _clean_up_first, "is wanted|needed"),
    "no alpha job is cleaned up": (ALPHA, alpha, "to_clean_up", lambda *_: (), "keeps"),
    "None cleans up": (ALPHA, alpha, "to_clean_up", lambda _, children: _tidy_up("All", children), "policy is None"),
    "a Job is made anew after its success": (
        _later(ALPHA, 600),
        alpha,
        "_has_succeeded",
        _never,
        "this replica has succeeded",
    ),
    "no program for servers": (ALPHA, AlphaSpec, "has_servers", property(_never), "ConfigMap|before"),
}


def _find(play: Callable[[int], object]) -> None:
    for seed in range(SEEDS):
        play(seed)


@pytest.mark.parametrize("row", BUGS.values(), ids=BUGS)
def test_a_bug_is_found(mocker: MockerFixture, row: Row) -> None:
    """B32, B46, D2, D7, M1, M2, M3, M7, U9, U13, U17: the worlds have what makes each of these bugs wrong."""
    play, place, name, bug, found = row
    mocker.patch.object(place, name, bug)
    # A job that restarts endlessly stops the loop before the final check; the trace has the violations.
    with pytest.raises((OracleError, LivelockError), match=found):
        _find(play)


def test_a_deadline_that_nobody_heeds_is_found(mocker: MockerFixture) -> None:
    """For ordinary jobs and for held ones."""
    for place in (ending, plan):
        mocker.patch.object(place, "until_deadline", return_value=None)
    with pytest.raises(OracleError, match="until its deadline"):
        _find(PROMISES)
