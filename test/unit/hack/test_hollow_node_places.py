"""How the containers of a deleted pod end: each in its own way, and init containers too."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import Place, Removal
from hack.hollow_node.objects import ContainerSpec, HollowMeta, HollowPod, HollowSpec, HollowStatus
from hack.hollow_node.script import Behaviour, Run, Script, Timing
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes

START = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = Place("hollow-node", "192.0.2.1", "10.244.0.7", Timing(scale=1.0), NEWEST)
FOREVER = Run(math.inf)


def at(seconds: float) -> datetime:
    """A moment, counted from the start of the test."""
    return START + timedelta(seconds=seconds)


def make_pod(*containers: str) -> HollowPod:
    """A pod that is never restarted."""
    spec = HollowSpec(
        node_name="hollow-node", restart_policy="Never", containers=[ContainerSpec(name=name) for name in containers]
    )
    return HollowPod(metadata=HollowMeta(name="p", namespace="ns", uid="u"), spec=spec)


def deleted(pod: HollowPod, second: float, grace: int = 30) -> HollowPod:
    """The pod after a DELETE at that second."""
    meta = replace(pod.metadata, deletion_timestamp=at(second + grace), deletion_grace_period_seconds=grace)
    return replace(pod, metadata=meta)


def lived(
    pod: HollowPod, script: Behaviour, status: HollowStatus, since: float, place: Place
) -> tuple[float, HollowStatus]:
    """Play a pod's life until there is nothing more to do; return that second and the status then."""
    now = at(since)
    for _ in range(100):
        step = advance(pod, script, status, now, place)
        status = step.status
        if step.look_at is None:
            assert step.removal is (Removal.FINAL if pod.metadata.deletion_timestamp else Removal.NONE)
            return (now - START).total_seconds(), status
        now = max(now, step.look_at)
    raise AssertionError(f"no end of it: {status}")


def codes(status: HollowStatus) -> dict[str, int]:
    """The exit codes of the containers that have ended."""
    ends = {each.name: each.state.terminated for each in status.container_statuses or ()}
    return {name: end.exit_code for name, end in ends.items() if end is not None}


class _EachForItself:
    """Containers that each respond to SIGTERM in their own way."""

    def run(self, _container: str, _index: int) -> Run:
        return FOREVER

    def stop(self, container: str) -> Run:
        return Run(1.0) if container == "main" else Run(4.0, exit_code=3)


def test_each_container_responds_to_sigterm_in_its_own_way() -> None:
    """Nothing is reported before the last one has ended."""
    pod, script = make_pod("main", "side"), _EachForItself()
    running = advance(pod, script, pod.status, START, PLACE).status
    step = advance(deleted(pod, 10), script, running, at(10), PLACE)
    assert codes(step.status) == {}
    ended_at, status = lived(deleted(pod, 10), script, running, 10, PLACE)
    assert (ended_at, codes(status), status.phase) == (14, {"main": 0, "side": 3}, "Failed")


@pytest.mark.parametrize("kubernetes", [OLDEST, Kubernetes(25), NEWEST], ids=str)
def test_a_deletion_ends_though_an_init_container_fails_by_it(kubernetes: Kubernetes) -> None:
    """Once two different statuses for such a pod were reported in turns for ever."""
    place = dataclasses.replace(PLACE, kubernetes=kubernetes)
    pod = make_pod("main")
    pod = replace(pod, spec=replace(pod.spec, init_containers=[ContainerSpec(name="first")]))
    script = Script({"first": (FOREVER,), "main": (FOREVER,)}, Run(1.0, exit_code=1))
    running = advance(pod, script, pod.status, START, place).status
    ended_at, status = lived(deleted(pod, 10), script, running, 10, place)
    assert (ended_at, status.phase == "Failed") == (10 if kubernetes == OLDEST else 11, kubernetes != OLDEST)
