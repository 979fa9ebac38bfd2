"""The checker can fail: it finds each of these bugs when it is put into the operator. All of them occurred in operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final

import pytest

from fakes import old_judgements
from hack.kubernetes_versions import NEWEST
from tfjob_operator.api.v1 import conditions
from tfjob_operator.api.v1.constants import RestartPolicy
from tfjob_operator.api.v1.types import TFJob, TFJobSpec
from tfjob_operator.controller.jobs import pods
from tfjob_operator.controller.jobs.draft import Draft
from tfjob_operator.controller.jobs.expectations import Expectations
from tfjob_operator.controller.jobs.pods import is_final
from tfjob_operator.controller.manager import Controller
from tfjob_operator.controller.tfjob import view
from tfjob_operator.controller.tfjob.apply.conflicts import ChildHandler
from tfjob_operator.controller.tfjob.apply.executor import Executor
from tfjob_operator.controller.tfjob.plan import (
    ending,
    plan,
    replicas,
    status,
)
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.view import Confirmer, View
from worlds.search import search
from worlds.settings import (
    BESIDE,
    BREAK,
    ONE,
    RESTART,
    RESTART_ALL,
    SUSPEND,
    TWO,
    VIEWS_OF_PODS,
    Setting,
    with_policy,
    with_rule,
)
from worlds.world import WrongError

Bug = Callable[[pytest.MonkeyPatch], None]


NO_SUCCESS: Final = "a success is recorded of .* there was none"
RULED: Final = with_rule(RestartPolicy.NEVER, RESTART)
RULED_ALL: Final = with_rule(RestartPolicy.EXIT_CODE, RESTART_ALL)
LIMITED: Final = with_policy(ONE, activeDeadlineSeconds=300)
TWICE: Final = Setting(
    "", BESIDE, ("remove slowly", "hurry"), 2, lags=VIEWS_OF_PODS, runs_at_once=True, kubernetes=NEWEST
)


def expectations_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A child that was created and is not in the cache yet is created again."""
    patch.setattr(Expectations, "satisfied", lambda *_: True)


def views_are_not_proved(patch: pytest.MonkeyPatch) -> None:
    """Children are created from a view that may be stale."""

    async def confirm(*_: Any) -> None:
        """Believe it."""

    patch.setattr(Confirmer, "confirm", confirm)


def the_status_comes_last(patch: pytest.MonkeyPatch) -> None:
    """Children are created before the write that would have shown that the view is stale."""
    execute = Executor.execute

    async def early(self: Any, seen: View, decided: Plan) -> View | None:
        if seen.may_act and seen.good_spec is not None:
            await self._creator.create(seen.job, seen.good_spec, decided)
        return await execute(self, seen, decided)

    patch.setattr(Executor, "execute", early)


def successes_are_not_written(patch: pytest.MonkeyPatch) -> None:
    """The status does not say which replicas have finished."""
    patch.setattr(status, "remembered", lambda *_: {})


def successes_are_not_kept_in_memory(patch: pytest.MonkeyPatch) -> None:
    """A success that was seen while the window for counters is open is forgotten when its pod is gone."""
    patch.setattr(view, "_with_unwritten", lambda job, _unwritten: job)


def failures_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A failed pod is deleted to be created again, and its failure is not recorded."""
    patch.setattr(status, "account", lambda records, *_: tuple(records))


def an_end_is_not_final(patch: pytest.MonkeyPatch) -> None:
    """A job that has ended is treated like any other."""
    patch.setattr(conditions, "_has_ended", lambda _: False)


def an_end_comes_again(patch: pytest.MonkeyPatch) -> None:
    """The same, and an end has the time of its sync: that of the container that decided would be the same each time."""
    an_end_is_not_final(patch)
    complete = Draft.complete
    patch.setattr(Draft, "complete", lambda draft, _at: complete(draft, None))


def deletions_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    """The handler drops them, so an expectation is never met and no key comes."""
    patch.setattr(ChildHandler, "_gone", lambda *_: None)


def a_failed_sync_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """The key of a sync that failed does not come back."""

    async def once(self: Controller, key: str) -> str:
        with contextlib.suppress(Exception):
            await self._sync(key)
        return "success"

    patch.setattr(Controller, "_sync_safely", once)


def clean_up_goes_by_the_phase(patch: pytest.MonkeyPatch) -> None:
    """M1: a pod whose containers have ended, and whose phase does not say so yet, is deleted with its logs."""
    patch.setattr(ending, "to_clean_up", old_judgements.to_clean_up)


def clean_up_goes_by_the_outcome(patch: pytest.MonkeyPatch) -> None:
    """A pod whose main container has ended is kept, though its sidecar still runs."""
    patch.setattr(replicas, "has_ended", lambda pod: is_final(pod, pod.status.container_statuses[0]))


def a_request_is_reckoned_from_its_end(patch: pytest.MonkeyPatch) -> None:
    """M2, M10: the time of a delete is taken as deletionTimestamp less grace, whatever the grace; Succeeded always counts."""
    patch.setattr(replicas, "was_stopped", old_judgements.was_stopped)


def a_longer_grace_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """M2: a pod that was deleted with more grace than its own seems to have been deleted when the grace was shortened."""
    patch.setattr(status, "goes_with_more_grace", lambda _pod: False)


def the_pods_policy_decides(patch: pytest.MonkeyPatch) -> None:
    """M3: the replica's policy decides whether an end is final, instead of the container's policy and rules."""
    patch.setattr(replicas, "is_final", old_judgements.is_final)


def rejections_are_a_list(patch: pytest.MonkeyPatch) -> None:
    """M4: a pod that a kubelet rejected for a reason that is not in the list counts as failed by itself."""
    known = ("UnexpectedAdmissionError", "NodeAffinity", "TopologyAffinityError", "OutOf")
    patch.setattr(pods, "is_rejected", lambda pod: pod.status.reason.startswith(known))


def an_edit_ends_what_has_begun(patch: pytest.MonkeyPatch) -> None:
    """U4: a wrong specification fails its job, whatever runs."""
    patch.setattr(plan, "_is_spared", lambda *_, **__: False)


def what_is_held_is_looked_after(patch: pytest.MonkeyPatch) -> None:
    """U4: a held job is judged by its last valid specification, though its owner has edited it."""
    good: dict[str, Any] = {}

    def kept(job: TFJob, spec: Any, *_: Any) -> Any:
        return (
            good.setdefault(job.metadata.uid, spec) if isinstance(spec, TFJobSpec) else good.get(job.metadata.uid, spec)
        )

    patch.setattr(view, "in_force", kept)


def a_deadline_waits_for_the_mending(patch: pytest.MonkeyPatch) -> None:
    """U4: the limits of a held job are ignored."""
    patch.setattr(plan, "past_deadline", lambda *_: None)
    patch.setattr(plan, "until_deadline", lambda *_: None)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("bug", "setting", "complaint"),
    [
        (an_edit_ends_what_has_begun, Setting("", ONE, (), 0, (BREAK,)), "an edit has ended a job"),
        (what_is_held_is_looked_after, Setting("", ONE, ("error",), 1, (BREAK,)), "held"),
        (a_deadline_waits_for_the_mending, Setting("", LIMITED, ("leap",), 1, (BREAK,)), "the deadline has passed"),
        (expectations_are_ignored, Setting("", ONE, (), 0), "only has not seen yet"),
        (views_are_not_proved, Setting("", ONE, ("lose",), 1, (SUSPEND,), runs_at_once=True), "is suspended"),
        (the_status_comes_last, Setting("", ONE, (), 0, (SUSPEND,)), "is suspended"),
        (successes_are_not_written, Setting("", TWO, (), 0, runs_at_once=True), "success"),
        (successes_are_not_kept_in_memory, Setting("", TWO, ("remove",), 1, runs_at_once=True), "finished"),
        (failures_are_not_counted, Setting("", ONE, ("killed",), 1), "failure of j-worker-0 is not written"),
        (an_end_is_not_final, Setting("", LIMITED, ("leap",), 1), "ended, but there is"),
        (an_end_comes_again, Setting("", ONE, ("leap",), 1), "ends a second time"),
        (deletions_are_not_seen, Setting("", ONE, ("remove",), 1), "needed are"),
        (clean_up_goes_by_the_phase, Setting("", ONE, (), 0, kubernetes=NEWEST), "and its logs"),
        (clean_up_goes_by_the_outcome, Setting("", BESIDE, (), 0, kubernetes=NEWEST), "ended, but there is"),
        (a_request_is_reckoned_from_its_end, Setting("", ONE, (), 0, (SUSPEND,), kubernetes=NEWEST), NO_SUCCESS),
        (
            a_request_is_reckoned_from_its_end,
            Setting("", BESIDE, ("remove", "hurry"), 2, kubernetes=NEWEST),
            NO_SUCCESS,
        ),
        (a_request_is_reckoned_from_its_end, Setting("", ONE, ("shut down",), 1, kubernetes=NEWEST), NO_SUCCESS),
        (a_longer_grace_is_forgotten, TWICE, NO_SUCCESS),
        (the_pods_policy_decides, Setting("", RULED, ("rule",), 1, kubernetes=NEWEST), "none of its replicas has"),
        (the_pods_policy_decides, Setting("", RULED_ALL, ("rule",), 1, kubernetes=NEWEST), "none of its replicas has"),
        (rejections_are_a_list, Setting("", ONE, ("turn away",), 1, kubernetes=NEWEST), "none of its replicas has"),
        (a_failed_sync_is_dropped, Setting("", ONE, ("lose",), 1), "invalid|pods of|service is missing|observed"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_it_finds(bug: Bug, setting: Setting, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search stops at the first wrong step, and shows the moves that lead there."""
    bug(monkeypatch)
    with pytest.raises(WrongError, match=complaint) as caught:
        search(setting, setting.surprises)
    assert "(0, 'deliver', 'tfjobs')" in caught.value.__notes__[-1]
