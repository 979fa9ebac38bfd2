"""The judges of the alpha dialect find bugs: each of these, put into its controller, is found within a handful of seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pytest_mock import MockerFixture

from simulation.scenarios.alpha import alpha_jobs_keep_their_promises
from simulation.world import OracleError, run_seed
from tfjob_operator.api.v1.constants import RETRYABLE_EXIT_CODES
from tfjob_operator.api.v1alpha1.types import AlphaSpec
from tfjob_operator.controller.alpha import controller, observe, plan
from tfjob_operator.controller.alpha.controller import AlphaController
from tfjob_operator.controller.alpha.observe import derived
from tfjob_operator.controller.alpha.plan import Plan

SEEDS = 400
"""The most seeds for a mutant, which is played until it is found. Some need a rare sequence of events."""

_conclude, _run, _settle_status = plan.conclude, plan.run, AlphaController._settle_status


def _play() -> None:
    for seed in range(SEEDS):
        run_seed(alpha_jobs_keep_their_promises, seed)


def _by_generation(draft: Any, *_: Any) -> str:
    """A RuntimeId that changes with an edit."""
    return derived(draft.job.metadata.uid, draft.job.metadata.generation)


def _for_good(ended: Any) -> bool:
    """The table of exit codes alone: a process that ran out of memory is retried."""
    return ended.exit_code not in RETRYABLE_EXIT_CODES


def _any_replica(draft: Any, spec: AlphaSpec, children: Any, taken: Any) -> Plan:
    """A job fails when any of its replicas fails, not only its chief."""
    for found in observe.replicas_of(children).values():
        if (verdict := observe.judge(found)).failed:
            return plan.conclude(draft, spec, children, verdict)
    return _run(draft, spec, children, taken)


def _clean_up_first(draft: Any, spec: AlphaSpec, children: Any, verdict: Any) -> Plan:
    """Children are cleaned up before the end is written."""
    gone = plan.to_clean_up(spec.cleanup_policy, children)
    return Plan(delete=gone) if gone else _conclude(draft, spec, children, verdict)


def _begin_unsaid(*given: Any) -> Plan:
    """Jobs are created without a status that says so beforehand."""
    decided = _run(*given)
    if decided.status is None or decided.status.begun is None:
        return decided
    return replace(decided, status=None)


async def _believe(*_: Any) -> None:
    """Act on whatever the cache shows."""


async def _act_first(controller: Any, key: str, job: Any, decided: Plan, memory: Any, *, at_once: bool) -> bool:
    """Children are created before the status is written."""
    if at_once and decided.status is not None:
        await controller._create_and_delete(job, controller._spec_of(job, memory), decided)
    return bool(await _settle_status(controller, key, job, decided, memory, at_once=at_once))


@pytest.mark.usefixtures("logged_errors")
@pytest.mark.parametrize(
    ("place", "name", "bug", "found"),
    [
        pytest.param(plan, "_runtime_id", _by_generation, "RuntimeId", id="a RuntimeId that does not stay"),
        pytest.param(controller, "confirm", _believe, "never confirmed", id="a view is not confirmed"),
        pytest.param(
            AlphaController,
            "_settle_status",
            _act_first,
            "never confirmed|not in the status",
            id="the status comes last",
        ),
        pytest.param(plan, "run", _begin_unsaid, "does not say that the job begins", id="a beginning is not written"),
        pytest.param(observe, "is_permanent", _for_good, "failed for good", id="OOMKilled is tried again"),
        pytest.param(plan, "run", _any_replica, "has not failed for good", id="a worker fails the job"),
        pytest.param(observe, "was_stopped", lambda *_: False, "not succeeded", id="an orderly end on SIGTERM counts"),
        pytest.param(plan, "conclude", _clean_up_first, "is wanted|needed", id="clean-up before the end is written"),
        pytest.param(plan, "to_clean_up", lambda *_: (), "keeps", id="nothing is cleaned up"),
        pytest.param(plan, "_was_done", lambda *_: False, "succeeded", id="a Job is made anew after its success"),
        pytest.param(
            AlphaSpec, "has_servers", property(lambda _: False), "ConfigMap|before", id="no program for servers"
        ),
    ],
)
def test_a_bug_is_found(
    mocker: MockerFixture, place: object, name: str, bug: Callable[..., object], found: str
) -> None:
    """Every mutant of the alpha controller is found."""
    mocker.patch.object(place, name, bug)
    with pytest.raises(OracleError, match=found):
        _play()
