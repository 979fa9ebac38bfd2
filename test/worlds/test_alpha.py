"""Every world that a small job of the alpha dialect can get into, with the real controller; and the checker finds bugs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest
from pytest_mock import MockerFixture

from tfjob_operator.controller.alpha import controller, observe, plan
from tfjob_operator.controller.alpha.controller import AlphaController
from tfjob_operator.controller.alpha.plan import Plan
from tfjob_operator.controller.jobs.expectations import Expectations
from worlds.alpha.settings import ENDS, ONE, PAIR, SETTINGS, AlphaSetting, search
from worlds.world import WrongError

UNBOUNDED = 1000
"""Events that a watch may lag behind; no job here has so many."""


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_world_is_safe_and_leads_to_rest(
    setting: AlphaSetting,
    deep: int | None,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """There are never two Jobs for a replica, and none for one that has succeeded; RuntimeIds stay; only the chief decides."""
    surprises = setting.surprises
    if not setting.everyday and deep is None:
        pytest.skip("takes too long for every day: see --deep")
    if deep is not None:
        setting, surprises = replace(setting, lag=UNBOUNDED, runs_at_once=False), surprises + deep
    report = search(setting, surprises)
    record_property("worlds", report.worlds)
    with capsys.disabled():
        print(f"\n  {report}", end=" ")  # noqa: T201 - how much was seen is the result


_run, _conclude, _settle_status = plan.run, plan.conclude, AlphaController._settle_status
BY_EVERY_END: Final = AlphaSetting("", ONE, ENDS)
TOGETHER: Final = AlphaSetting("", PAIR, ("error",), lags=frozenset())
AGAIN: Final = next(setting for setting in SETTINGS if setting.name == "deleted and made again")
CLEANED_UP: Final = AlphaSetting("", ONE | {"cleanupPodPolicy": "None"}, ENDS)


def _begin_unsaid(*given: Any) -> Plan:
    """Jobs are created before the status says that the job has begun."""
    decided = _run(*given)
    begins = decided.status is not None and decided.status.begun is not None
    return replace(decided, status=None) if begins else decided


def _any_replica(draft: Any, spec: Any, children: Any, taken: Any) -> Plan:
    """A job fails with any of its replicas."""
    for found in observe.replicas_of(children).values():
        if (verdict := observe.judge(found)).failed:
            return _conclude(draft, spec, children, verdict)
    return _run(draft, spec, children, taken)


def _services_last(*given: Any) -> Plan:
    """Jobs do not wait for their services."""
    decided = _run(*given)
    return replace(decided, create_jobs=decided.create_jobs or decided.create_services)


async def _believe(*_: Any) -> None:
    """Act on whatever the cache shows."""


async def _act_first(controller: Any, key: str, job: Any, decided: Plan, memory: Any, *, at_once: bool) -> bool:
    """Children are created before the status is written that explains them."""
    if at_once and decided.status is not None:
        await controller._create_and_delete(job, controller._spec_of(job, memory), decided)
    return bool(await _settle_status(controller, key, job, decided, memory, at_once=at_once))


class Mutant(NamedTuple):
    """A bug that replaces the attribute `name` of `place`, a setting that shows it, and the complaint."""

    place: object
    name: str
    bug: Callable[..., Any]
    setting: AlphaSetting
    found: str


MUTANTS: Final = {
    "expectations are ignored": Mutant(
        Expectations, "satisfied", lambda *_: True, BY_EVERY_END, "which this operator has made"
    ),
    "views are not confirmed": Mutant(controller, "confirm", _believe, AGAIN, "for a job or replica that is"),
    "the status comes last": Mutant(AlphaController, "_settle_status", _act_first, BY_EVERY_END, "not in the status"),
    "a beginning is unsaid": Mutant(plan, "run", _begin_unsaid, BY_EVERY_END, "not said to have begun"),
    "services come last": Mutant(plan, "run", _services_last, BY_EVERY_END, "not said to have begun"),
    "a worker fails the job": Mutant(plan, "run", _any_replica, TOGETHER, "has failed, and its chief has not"),
    "nothing is fatal": Mutant(observe, "is_permanent", lambda _: False, BY_EVERY_END, "its chief has failed"),
    "every end is fatal": Mutant(observe, "is_permanent", lambda _: True, BY_EVERY_END, "and its chief has not"),
    "an eviction is a failure": Mutant(
        observe, "is_disrupted", lambda _: False, BY_EVERY_END, "has failed, and its chief has not"
    ),
    "None cleans up": Mutant(plan, "to_clean_up", lambda _, children: children.jobs, CLEANED_UP, "the policy is None"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_bug_is_found(mocker: MockerFixture, mutant: Mutant) -> None:
    """The checker finds each of these bugs in the alpha controller."""
    mocker.patch.object(mutant.place, mutant.name, mutant.bug)
    with pytest.raises(WrongError, match=mutant.found):
        search(mutant.setting, mutant.setting.surprises)
