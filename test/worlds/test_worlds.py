"""Every world that a small job can reach is safe, and leads to the stable state that the user requested.

Anvil calls this eventually stable reconciliation and proves it; here it is checked by exhaustive search. The real plan,
expectations, queue, stores, reconciler and status writer run against a model of API server, kubelet and user, in every order of
events. Only the number of faults (crashes, lost responses, failing pods ...) and the size of the job are bounded.
"""

import contextlib
import re
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec
import pytest

from fakes import old_judgements
from hack.kubernetes_versions import NEWEST
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import ConditionReason, RestartPolicy, SuccessPolicy
from tfjob_operator.api.v1.types import ReplicaStatus, TFJob, TFJobSpec
from tfjob_operator.controller.jobs import pods
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.handlers import ChildHandler
from tfjob_operator.controller.jobs.pods import is_final
from tfjob_operator.controller.manager import Controller
from tfjob_operator.controller.tfjob import view
from tfjob_operator.controller.tfjob.apply.confirmer import Confirmer
from tfjob_operator.controller.tfjob.plan import (
    attempts,
    cleanup,
    plan,
    replicas,
    status,
)
from tfjob_operator.controller.tfjob.plan.clocks import Fact, Observer
from tfjob_operator.controller.tfjob.plan.types import Plan, PodDeletion
from tfjob_operator.controller.tfjob.tfjob_controller import TFJobController
from tfjob_operator.controller.tfjob.view import View
from worlds.search import search
from worlds.settings import (
    AT_LIMIT,
    BESIDE,
    BREAK,
    DOWN,
    FIRST,
    ONE,
    ONE_FAILS,
    PAIR,
    POLICED,
    RESTART,
    RESTART_ALL,
    SERVED,
    SETTINGS,
    SUSPEND,
    TWO,
    UP,
    VIEWS_OF_PODS,
    WAITING,
    WORKERS,
    Setting,
    request,
    with_policy,
    with_rule,
    with_sidecars,
)
from worlds.world import WrongError

UNBOUNDED = 1000
"""Events that a watch may lag behind; no job here has so many."""


@pytest.mark.parametrize(
    "setting",
    [pytest.param(each, id=each.name, marks=[pytest.mark.nightly] * each.nightly) for each in SETTINGS],
)
def test_every_world_is_safe_and_leads_to_rest(setting: Setting, deep: int | None) -> None:
    """B42, EX-04, EX-06, EX-08: never two pods for an index, none for a finished one or a job that needs none; an end is final.

    M1, M2, M3, M4, M10: pods that have ended stay, and no kind of end is mistaken for another.
    """
    surprises = setting.surprises
    if not setting.everyday and deep is None:
        pytest.skip("takes too long for every day: see --deep")
    if deep is not None:
        unbounded = replace(setting, lags=setting.lags | {"tfjobs", "pods"}, lag=UNBOUNDED, runs_at_once=False)
        setting, surprises = unbounded, surprises + deep
    search(setting, surprises)


def test_the_same_search_sees_the_same_worlds() -> None:
    """Two searches of one setting find the same, so that a failure can be reproduced."""
    setting = next(setting for setting in SETTINGS if setting.name == "a stranger in the way")
    assert search(setting, 0) == search(setting, 0)


NO_SUCCESS: Final = "have not succeeded"
NOT_LOST: Final = "none of its replicas has"
RULED: Final = with_rule(RestartPolicy.NEVER, RESTART)
RULED_ALL: Final = with_rule(RestartPolicy.EXIT_CODE, RESTART_ALL)
LIMITED: Final = with_policy(ONE, activeDeadlineSeconds=300)
TWICE: Final = Setting(
    "", BESIDE, ("remove slowly", "hurry"), 2, lags=VIEWS_OF_PODS, runs_at_once=True, kubernetes=NEWEST
)
_on = partial(Setting, "")
_newest = partial(Setting, "", kubernetes=NEWEST)
_execute, _write_end, _decide = TFJobController.execute, cleanup._write_end, plan._decide
_first_seen = Observer.first_seen
_finish, _conclude, _merged = cleanup.finish, cleanup.conclude, status._merged_begun
_good: dict[str, Any] = {}


def _all_restart(failures: int) -> Setting:
    """A job whose whole restarts are counted, and so many failures."""
    return Setting("", POLICED, ("error",), failures, lags=VIEWS_OF_PODS, runs_at_once=True, **ONE_FAILS)


def _beside_all_restart() -> Setting:
    return replace(_all_restart(1), spec=with_sidecars(POLICED))


def _queued(given: dict[str, Any], may: tuple[str, ...] = (), surprises: int = 0, **fields: Any) -> Setting:
    """A queued job; only what the operator sees of pods lags."""
    usual: dict[str, Any] = {"lags": VIEWS_OF_PODS, "runs_at_once": True, "queued": True}
    return Setting("", given, may, surprises, **usual | fields)


async def _believe(*_: Any) -> None:
    """Children are created from a view that may be stale."""


async def _no_pods(*_: Any) -> list[Any]:
    """The API server is not asked for pods of earlier attempts."""
    return []


async def _no_holders(*_: Any) -> list[Any]:
    """The API server is not asked for pods before the end of a queued job is written."""
    return []


def _waits_for_known(_policy: str, seen: Any) -> list[Any]:
    """The end of a queued job waits only for pods that the specification asks for."""
    return [replica for replica in seen.replicas if replica.holds_quota]


def _edits_first(draft: Any, spec: Any, *more: Any) -> Plan:
    """An edit counts as long as the end is decided, but not written."""
    meta = draft.job.metadata
    with pytest.MonkeyPatch.context() as patched:
        if conditions.is_ending(draft) and meta.annotations:
            attempts.restart_all(draft, spec, attempts.NO_DECISION, (), delays=False)
            return Plan(status=draft.freeze())
        if meta.generation > 1:
            patched.setattr(conditions, "end_record", _nothing)
        return _decide(draft, spec, *more)


def _deletes_all(draft: Any, record: Any, spec: Any, seen: Any, defaults: Any) -> Plan:
    """While an end waits, the pods that decided it are deleted too."""
    decided = _finish(draft, record, spec, seen, defaults)
    ended = tuple(PodDeletion(replica.pod) for replica in seen.replicas if not replica.holds_quota)
    return decided if decided.may_outlive is not None else replace(decided, delete_pods=(*decided.delete_pods, *ended))


def _deletes_at_once(draft: Any, ending: Any, spec: Any, seen: Any, failure: Any = None) -> Plan:
    """Pods are deleted by the plan that decides the end."""
    holding = tuple(PodDeletion(replica.pod) for replica in seen.replicas if replica.holds_quota)
    return replace(_conclude(draft, ending, spec, seen, failure), delete_pods=holding)


def _fails_at_once(draft: Any, ending: Any, spec: Any, seen: Any, failure: Any = None) -> Plan:
    """A queued job of which the API server refuses a pod ends without waiting for the others."""
    decided = _conclude(draft, ending, spec, seen, failure)
    record = conditions.end_record(draft)
    return decided if record is None or record.reason != ConditionReason.INVALID else _write_end(draft, record)


def _acts_unwritten(job: Any, observed: Any) -> Any:
    """An end that was decided and not written counts as decided."""
    begun = _merged(job, observed)
    if begun is None or observed.begun is None or begun.ending is not None:
        return begun
    return msgspec.structs.replace(begun, ending=observed.begun.ending)


def _from_decision(draft: Any, _replica: Any, decided: Any) -> float:
    """A pod is given up some time after the decision, whenever it was asked to end."""
    return cleanup.GIVE_UP_S - float((draft.now - decided).total_seconds())


def _stopped_count(draft: Any, ending: Any, spec: Any, seen: Any, failure: Any = None) -> Plan:
    """While an end waits, no pod counts as active."""
    decided = _conclude(draft, ending, spec, seen, failure)
    assert decided.status is not None
    if decided.status.completion_time is not None:
        return decided
    counts = {name: ReplicaStatus() for name in decided.status.replica_statuses}
    return replace(decided, status=msgspec.structs.replace(decided.status, replica_statuses=counts))


async def _early(controller: Any, seen: View, memory: Any, decided: Plan) -> Any:
    """Children are created before the write that would have shown that the view is stale."""
    if seen.may_act and seen.valid_spec is not None:
        await controller._creator.create(seen.job, seen.valid_spec, decided)
    return await _execute(controller, seen, memory, decided)


async def _delete_first(controller: Any, seen: View, memory: Any, decided: Plan) -> Any:
    """Pods are deleted before the status says why: an operator that is killed in between never knows that a job restarts."""
    if seen.may_act:
        await controller._deleter.delete(seen.job, decided)
    return await _execute(controller, seen, memory, decided)


def _revived(draft: Any, spec: Any, *more: Any) -> Plan:
    """A requested restart comes before the end of the job."""
    if draft.job.metadata.annotations and conditions.is_finished(draft):
        attempts.restart_all(draft, spec, attempts.NO_DECISION, (), delays=False)
        return Plan(status=draft.freeze())
    return _decide(draft, spec, *more)


async def _once(controller: Controller, key: str) -> str:
    """The key of a sync that failed does not come back."""
    with contextlib.suppress(Exception):
        await controller._sync(key)
    return "success"


def _last_good(job: TFJob, spec: Any, *_: Any) -> Any:
    """A held job is judged by its last valid specification, though its owner has edited it."""
    uid = job.metadata.uid
    return _good.setdefault(uid, spec) if isinstance(spec, TFJobSpec) else _good.get(uid, spec)


def _is_listed(pod: Any) -> bool:
    """A pod that a kubelet rejected for a reason that is not in the list counts as failed by itself."""
    known = ("UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError", "OutOf")
    return bool(pod.status.reason.startswith(known))


def _nothing(*_: object, **__: object) -> None:
    """Say no, or do nothing."""


def _ends_now(draft: Any, record: Any, *more: Any) -> Plan:
    """The end has the time of its sync."""
    return _write_end(draft, msgspec.structs.replace(record, completion_time=draft.timestamp), *more)


def _by_their_clocks(observer: Observer, fact: Fact, name: str = "", time: Any = None) -> Any:
    """A wait from an event begins at the time that its object gives."""
    return _first_seen(observer, fact, name, time) if time is None else time


Patches = list[tuple[object, str, Any]]
REVERTS: Final = {"suspension": SUSPEND, "a mistake": BREAK, "scaling": UP, "a request": request("1")}
END: Final[Patches] = [(conditions, "_has_ended", _nothing)]
END_AGAIN: Final[Patches] = [*END, (cleanup, "_write_end", _ends_now)]
"""The same, and an end has the time of its sync: that of the container that decided would be the same each time."""
DEADLINES: Final[Patches] = [(plan, name, _nothing) for name in ("past_deadline", "until_deadline")]
RECKONED: Final[Patches] = [(replicas, "was_stopped", old_judgements.was_stopped)]
"""M2, M10: the time of a delete is taken as deletionTimestamp less grace, whatever the grace; Succeeded always counts."""
POLICY: Final[Patches] = [(replicas, "is_final", old_judgements.is_final)]
"""M3: the replica's policy decides whether an end is final, instead of the container's policy and rules."""
TO_CLEAN_UP: Final[Patches] = [(cleanup, "pods_to_clean_up", old_judgements.to_clean_up)]
"""M1: a pod whose containers have ended, and whose phase does not say so yet, is deleted with its logs."""
SIDECAR: Final[Patches] = [(replicas, "has_ended", lambda pod: is_final(pod, pod.status.container_statuses[0]))]
UNWRITTEN: Final[Patches] = [(view, "_with_unwritten", lambda job, _unwritten: job)]
"""A success that was seen while the window for counters is open is forgotten when its pod is gone."""
NO_GRACE: Final[Patches] = [(each, "kept_s", lambda *_: {}) for each in (cleanup, plan)]
CLOCKED: Final[Patches] = [(Observer, "first_seen", _by_their_clocks)]
UNCOUNTED: Final[Patches] = [(status, "count_restarts", lambda records, *_: tuple(records))]

BUGS: Final[dict[str, tuple[Patches, Setting, str]]] = {
    "an edit ends what has begun": (
        [(plan, "_should_hold", _nothing)],
        _on(ONE, (), 0, (BREAK,)),
        "no edit ends one that has",
    ),
    "what is held is looked after": (
        [(view, "effective_spec", _last_good)],
        _on(ONE, ("error",), 1, (BREAK,)),
        "held",
    ),
    "a deadline waits for the mending": (DEADLINES, _on(LIMITED, ("leap",), 1, (BREAK,)), "until its deadline"),
    "expectations are ignored": ([(Expectations, "satisfied", lambda *_: True)], _on(ONE, (), 0), "has not seen yet"),
    "views are not proved": (
        [(Confirmer, "confirm", _believe)],
        _on(ONE, ("lose",), 1, (SUSPEND,), runs_at_once=True),
        "is suspended",
    ),
    "the status comes last": ([(TFJobController, "execute", _early)], _on(ONE, (), 0, (SUSPEND,)), "is suspended"),
    "successes are not written": (
        [(status, "merged_finished_indices", lambda *_: {})],
        _on(TWO, (), 0, runs_at_once=True),
        "succe(ss|eded)",
    ),
    "successes are not kept in memory": (UNWRITTEN, _on(TWO, ("remove",), 1, runs_at_once=True), "finished"),
    "failures are not counted": (UNCOUNTED, _on(ONE, ("killed",), 1), "failure of j-worker-0 is not written"),
    "an end is not final": (END, _on(LIMITED, ("leap",), 1), "has ended as|looked at again"),
    "an end comes again": (END_AGAIN, _on(ONE, ("leap",), 1), "completionTime changed after the end|looked at again"),
    "deletions are not seen": ([(ChildHandler, "_gone", _nothing)], _on(ONE, ("remove",), 1), "has no pods of"),
    "clean-up goes by the phase": (TO_CLEAN_UP, _newest(ONE, (), 0), "and its logs"),
    "clean-up goes by the outcome": (SIDECAR, _newest(BESIDE, (), 0), "has ended as"),
    "a request is reckoned from its end": (RECKONED, _newest(ONE, (), 0, (SUSPEND,)), NO_SUCCESS),
    "a shorter grace counts from the end": (RECKONED, _newest(BESIDE, ("remove", "hurry"), 2), NO_SUCCESS),
    "a shutdown is a success": (RECKONED, _newest(ONE, ("shut down",), 1), NO_SUCCESS),
    "a longer grace is forgotten": ([(status, "deletion_grace_exceeds_spec", _nothing)], TWICE, NO_SUCCESS),
    "the pod's policy decides": (POLICY, _newest(RULED, ("rule",), 1), NOT_LOST),
    "the pod's policy decides about all": (POLICY, _newest(RULED_ALL, ("rule",), 1), NOT_LOST),
    "rejections are a list": ([(pods, "is_rejected", _is_listed)], _newest(ONE, ("turn away",), 1), NOT_LOST),
    "an attempt begins without a look": (
        [(Confirmer, "earlier_pods", _no_pods)],
        _on(TWO, ("crash",), 1, (request("1"),), lags=VIEWS_OF_PODS, never_ends=WORKERS),
        "and .* of an earlier one may run",
    ),
    "pods of an earlier attempt count": (
        [(replicas, "of_earlier_attempts", lambda *_: [])],
        _all_restart(1),
        "attempt 1|another attempt",
    ),
    "the status of a restart comes last": (
        [(TFJobController, "execute", _delete_first)],
        _all_restart(1),
        "is not written",
    ),
    "an attempt has no limit": ([(plan, "ending_of", _nothing)], _all_restart(2), "2 counted restarts"),
    "a failure is revived": (
        [(plan, "_decide", _revived)],
        _on(AT_LIMIT, ("error",), 1, (request("1"),)),
        "ended restarts",
    ),
    "a sidecar is stopped at once": (NO_GRACE, _newest(BESIDE, (), 0), "within the grace"),
    "a sidecar is stopped at a restart": (NO_GRACE, _newest(BESIDE, ("killed",), 1), "within the grace"),
    "a sidecar is stopped when all restart": (NO_GRACE, _beside_all_restart(), "within the grace"),
    "a queue hears of an end at once": ([(cleanup, "_waited_for", lambda *_: [])], _queued(SERVED), "holds its quota"),
    "the end of a queued job goes by the cache": (
        [(Confirmer, "quota_holders", _no_holders)],
        _queued(FIRST, ("crash",), 1, runs_at_once=False),
        "holds its quota",
    ),
    "surplus pods are not waited for": (
        [(cleanup, "_waited_for", _waits_for_known)],
        _queued(FIRST, script=(DOWN,)),
        "holds its quota",
    ),
    **{
        f"a decision is reverted by {name}": (
            [(plan, "_decide", _edits_first)],
            _queued(SERVED | {"successPolicy": SuccessPolicy.ALL_WORKERS}, script=(change,)),
            "decision|ended restarts|that is ending|before the end is written",
        )
        for name, change in REVERTS.items()
    },
    "what decides is deleted first": ([(plan, "finish", _deletes_all)], _queued(SERVED), "before the end is written"),
    "an unwritten decision counts": (
        [(status, "_merged_begun", _acts_unwritten)],
        _on(SERVED, ("lose",), 1, runs_at_once=True, queued=True),
        "its pods hold quota",
    ),
    "a pod is given up by the time of the decision": (
        [(cleanup, "_until_given_up_s", _from_decision)],
        _queued(PAIR[RestartPolicy.NEVER]),
        "holds its quota",
    ),
    "pods are deleted with the decision": (
        [(plan, "conclude", _deletes_at_once)],
        _queued(SERVED),
        "with the decision",
    ),
    "a refused pod ends a queued job at once": (
        [(plan, "conclude", _fails_at_once)],
        _queued(FIRST, ("refuse",), 1),
        "holds its quota",
    ),
    "nothing is active while an end waits": (
        [(plan, "conclude", _stopped_count)],
        _queued(SERVED),
        "its pods hold quota",
    ),
    "a success waits by the clock of its node": (
        CLOCKED,
        _on(WAITING, ("clock",), 1, never_ends=WORKERS, lags=VIEWS_OF_PODS, runs_at_once=True),
        "did not wait|has not ended",
    ),
    "a pod is given up by the clock of the API server": (
        CLOCKED,
        _queued(SERVED, ("clock",), 1),
        "holds its quota",
    ),
    "a failed sync is dropped": (
        [(Controller, "_sync_safely", _once)],
        _on(ONE, ("lose",), 1),
        "invalid|no pods of|no services of|looked at|is wrong",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize(("patches", "setting", "complaint"), BUGS.values(), ids=BUGS)
def test_it_finds(patches: Patches, setting: Setting, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """M1, M2, M3, M4, M10, U4: the search stops at the first wrong step, and shows the moves that lead there."""
    for patch in patches:
        monkeypatch.setattr(*patch)
    with pytest.raises(WrongError, match=complaint) as caught:
        search(setting, setting.surprises)
    assert re.search(r"\(0, '(start|deliver)'", caught.value.__notes__[-1])
