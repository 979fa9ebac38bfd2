"""The oracles find bugs: each of these, put into the operator, is found within a handful of seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pytest_mock import MockerFixture

from fakes import old_judgements
from hack.kubernetes_versions import NEWEST, Kubernetes
from simulation.scenarios.leaders import one_leader_writes
from simulation.scenarios.operators import operators_are_in_time, operators_keep_their_promises
from simulation.weather import CALM, Weather
from simulation.world import OracleError, Scenario, run_seed
from tfjob_operator.api import meta
from tfjob_operator.api.v1 import constants as c
from tfjob_operator.controller.events import EventRecorder
from tfjob_operator.controller.leaderelection import Fence
from tfjob_operator.controller.tfjob.plan import (
    ending,
    plan,
    replicas,
    status,
)
from tfjob_operator.controller.tfjob.plan.actions import Plan
from tfjob_operator.controller.tfjob.view import Confirmer

# What a bug replaces, and calls.
_with_config_maps, _replicas_of = plan.with_config_maps, replicas.replicas_of

SEEDS = 400


def _play(scenario: Scenario, weather: Weather | None = None, kubernetes: Kubernetes | None = None) -> None:
    for seed in range(SEEDS):
        run_seed(scenario, seed, weather=weather, kubernetes=kubernetes)


async def _believe(_confirmer: Confirmer, _job: object) -> None:
    """Act on whatever the cache shows."""


async def _tell_later(recorder: EventRecorder, *event: Any, fact: str) -> None:
    """Queue an event like any other, though a later deletion must wait for it."""
    assert fact
    recorder.event(*event)


def _worker_first(specs: Any) -> str | None:
    return c.WORKER if c.WORKER in specs else None


def _pile_up(*given: Any, **named: Any) -> Plan:
    return replace(_with_config_maps(*given, **named), delete_config_maps=())


@pytest.mark.usefixtures("logged_errors")
@pytest.mark.parametrize(
    ("place", "name", "bug", "found"),
    [
        pytest.param(Confirmer, "confirm", _believe, "never confirmed", id="a view is not confirmed"),
        pytest.param(
            EventRecorder, "write", _tell_later, "events say that", id="U13: an end is told when it may be late"
        ),
        pytest.param(ending, "deciding_type", _worker_first, "have succeeded", id="a worker decides, not the chief"),
        pytest.param(ending, "to_clean_up", lambda *_: [], "has ended as", id="nothing is cleaned up"),
        pytest.param(ending, "to_clean_up", lambda _, pods: [*pods], "clean-up policy", id="everything is cleaned up"),
        pytest.param(status, "account", lambda *_: (), "restarts", id="restarts are not counted"),
        pytest.param(replicas, "was_stopped", lambda *_: False, "not succeeded", id="an orderly end on SIGTERM counts"),
        pytest.param(plan, "has_ended", lambda _: True, "is not there", id="what pods read is not kept for them"),
        pytest.param(plan, "with_config_maps", _pile_up, "which nothing reads", id="ConfigMaps pile up"),
        pytest.param(
            status, "remembered", lambda *_: {}, "succeeded|has ended well", id="successes are not remembered"
        ),
    ],
)
def test_a_bug_is_found(
    mocker: MockerFixture, place: object, name: str, bug: Callable[..., object], found: str
) -> None:
    """Every mutant of the operator is found; U13: also one that deletes a pod before an event tells how it ended."""
    mocker.patch.object(place, name, bug)
    with pytest.raises(OracleError, match=found):
        _play(operators_keep_their_promises)


def _every_pod(*args: Any) -> Any:
    chosen, others = _replicas_of(*args)
    return [*chosen, *(other for other in others if other.type)], []


@pytest.mark.usefixtures("logged_errors")
@pytest.mark.parametrize(
    ("place", "name", "bug", "found"),
    [
        pytest.param(
            meta,
            "OwnerKey",
            lambda key: key.rpartition("/")[2],
            "is in another namespace|has no pods|never",
            id="D2",
        ),
        pytest.param(replicas, "replicas_of", _every_pod, "second pod|has not ended|restart|succeeded", id="D7"),
        pytest.param(plan, "relabellings", lambda *_: (), "wrong labels", id="U9"),
        pytest.param(plan, "reselections", lambda *_: (), "that selects", id="U17"),
        pytest.param(replicas, "key_of", replicas.key_of_labels, ".", id="labels decide, not names"),
    ],
)
def test_what_the_operator_once_did_with_what_others_meddle_with_is_found(
    mocker: MockerFixture, place: object, name: str, bug: Callable[..., object], found: str
) -> None:
    """D2, D7, U9, U17: the worlds have second pods, edited labels and selectors, and forged owners."""
    mocker.patch.object(place, name, bug)
    with pytest.raises(OracleError, match=found):
        _play(operators_keep_their_promises)


@pytest.mark.usefixtures("logged_errors")
@pytest.mark.parametrize(
    ("place", "name", "bug", "found"),
    [
        pytest.param(ending, "to_clean_up", old_judgements.to_clean_up, "clean-up policy is Running", id="M1"),
        pytest.param(replicas, "was_stopped", old_judgements.was_stopped, "not succeeded", id="M2"),
        pytest.param(
            replicas, "is_final", old_judgements.is_final, "failed for good|was restarted|not succeeded", id="M3"
        ),
        pytest.param(status, "native_sidecars", lambda _: frozenset(), "was restarted|restarts of", id="M7"),
    ],
)
def test_what_the_operator_once_did_is_found_on_the_newest_kubernetes(
    mocker: MockerFixture, place: object, name: str, bug: Callable[..., object], found: str
) -> None:
    """M1, M2, M3, M7: the simulated nodes behave in the ways that made each of these old judgements wrong."""
    mocker.patch.object(place, name, bug)
    with pytest.raises(OracleError, match=found):
        _play(operators_keep_their_promises, kubernetes=NEWEST)


@pytest.mark.usefixtures("logged_errors")
def test_writes_without_the_lease_are_found(mocker: MockerFixture) -> None:
    """B32: in the scenario where leaders do little else than stall and write, since with operators it happens rarely."""
    mocker.patch.object(Fence, "check", return_value=60.0)
    with pytest.raises(OracleError, match="while the lease names"):
        _play(one_leader_writes)


@pytest.mark.usefixtures("logged_errors")
def test_a_deadline_that_nobody_heeds_is_found(mocker: MockerFixture) -> None:
    """For ordinary jobs and for held ones."""
    for place in (ending, plan):
        mocker.patch.object(place, "until_deadline", return_value=None)
    with pytest.raises(OracleError, match="until its deadline"):
        _play(operators_keep_their_promises)


@pytest.mark.usefixtures("logged_errors")
def test_dawdling_is_found(mocker: MockerFixture) -> None:
    """A deadline that nothing wakes the job for is noticed too late (B46)."""
    until_deadline = ending.until_deadline

    def forgotten(*args: Any) -> float | None:
        left = until_deadline(*args)
        return left if left is None or left <= 0 else left + 10.0

    mocker.patch.object(plan, "until_deadline", forgotten)
    with pytest.raises(OracleError, match="too late"):
        _play(operators_are_in_time, CALM)
