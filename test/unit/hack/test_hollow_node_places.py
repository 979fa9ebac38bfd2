"""How node and processes affect a pod's life: a node that shuts down, a kubelet that was away, responses to SIGTERM."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import DISRUPTED, Place, Removal, Shutdown, holds
from hack.hollow_node.objects import ContainerSpec, HollowMeta, HollowPod, HollowSpec, HollowStatus
from hack.hollow_node.script import Behaviour, Outcome, Run, Script, Timing
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


@pytest.mark.parametrize(
    ("answer", "grace_s", "when", "code"),
    [(Run(2.0, exit_code=143), 15, 7, 143), (Run(2.0), 15, 7, 0), (FOREVER, 15, 20, 137), (FOREVER, 60, 35, 137)],
)
def test_pods_end_as_their_containers_do_when_the_node_shuts_down(
    answer: Run, grace_s: int, when: float, code: int
) -> None:
    """M10: SIGTERM at 5 s; SIGKILL after the pod's own grace of 30 s, or after that of the node if it is shorter."""
    pod, script = make_pod("main"), Script({"main": (FOREVER,)}, answer)
    running = advance(pod, script, pod.status, START, PLACE).status
    place = dataclasses.replace(PLACE, shutdown=Shutdown(at(5), grace_s))
    assert advance(pod, script, running, at(4), place).status == running
    ended_at, status = lived(pod, script, running, 5, place)
    assert (ended_at, codes(status)) == (when, {"main": code})
    assert (status.phase, status.reason) == (("Failed", "Terminated") if code else ("Succeeded", ""))
    assert holds(status.conditions, DISRUPTED)


def test_pods_of_old_have_failed_as_soon_as_the_node_shuts_down() -> None:
    """M10, SHUTDOWN_TELLS_THE_TRUTH."""
    pod, script = make_pod("main"), Script({"main": (FOREVER,)})
    place = dataclasses.replace(PLACE, kubernetes=OLDEST)
    running = advance(pod, script, pod.status, START, place).status
    place = dataclasses.replace(place, shutdown=Shutdown(at(5), 15))
    ended_at, status = lived(pod, script, running, 5, place)
    assert (ended_at, status.phase, status.reason, status.container_statuses) == (5, "Failed", "Shutdown", None)


def test_a_pod_that_is_over_or_has_not_begun_is_left_alone_by_a_shutdown() -> None:
    """Its phase changes as without the shutdown."""
    pod, script = make_pod("main"), Script({"main": (Run(3.0),)})
    place = dataclasses.replace(PLACE, shutdown=Shutdown(at(3), 15))
    running = advance(pod, script, pod.status, START, place).status
    ended = advance(pod, script, running, at(3), PLACE).status
    assert (ended.phase, codes(ended)) == ("Running", {"main": 0})
    _, status = lived(pod, script, ended, 4, place)
    assert (status.phase, holds(status.conditions, DISRUPTED)) == ("Succeeded", False)
    slow = dataclasses.replace(place, timing=Timing(scale=1.0, starting=1.0))
    assert advance(pod, script, pod.status, at(3), slow).status.phase == "Pending"


@pytest.mark.parametrize("kubernetes", [OLDEST, Kubernetes(25), NEWEST], ids=str)
def test_a_kubelet_that_was_away_sends_sigterm_when_it_is_back(kubernetes: Kubernetes) -> None:
    """M2: a container that ended by itself meanwhile keeps its exit code; the grace period begins when the kubelet is back."""
    place = dataclasses.replace(PLACE, kubernetes=kubernetes, up_since=at(10))
    pod, script = make_pod("main", "side"), Script({"main": (Run(8.0),), "side": (FOREVER,)}, Run(2.0, exit_code=143))
    running = advance(pod, script, pod.status, START, place).status
    ended_at, status = lived(deleted(pod, 5), script, running, 10, place)
    assert (ended_at, codes(status)) == (12, {"main": 0, "side": 143})
    stubborn = Script({"main": (Run(8.0),), "side": (FOREVER,)}, FOREVER)
    ended_at, status = lived(deleted(pod, 5), stubborn, running, 10, place)
    assert (ended_at, codes(status)) == (40, {"main": 0, "side": 137})


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


def test_a_pod_that_is_deleted_while_it_starts_is_looked_at_until_it_may_go() -> None:
    """No event tells the node that the container is running now; it once waited for one for ever."""
    pod, script = make_pod("main"), Script({"main": (FOREVER,)})
    place = dataclasses.replace(PLACE, timing=Timing(scale=1.0, starting=1.0))
    admitted = advance(pod, script, pod.status, START, place).status
    _, status = lived(deleted(pod, 0.5), script, admitted, 0.5, place)
    assert (status.phase, codes(status)) == ("Failed", {"main": 143})


@pytest.mark.parametrize("kubernetes", [OLDEST, NEWEST], ids=str)
def test_a_pod_that_is_deleted_in_the_second_of_its_eviction_is_looked_at_until_it_may_go(
    kubernetes: Kubernetes,
) -> None:
    """It fails first; then the deletion, which came between two looks, is confirmed."""
    place = dataclasses.replace(PLACE, kubernetes=kubernetes)
    pod, script = make_pod("main"), Script({"main": (Run(1.0, Outcome.EVICTED, reason="Preempting"),)})
    running = advance(pod, script, pod.status, START, place).status
    _, status = lived(deleted(pod, 1.0), script, running, 2, place)
    assert (status.phase, status.reason) == ("Failed", "Preempting")


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
