"""What is true for every pod on the hollow node, whatever its script, however late the node looks, whenever it is killed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import Place, Removal, Step
from hack.hollow_node.objects import (
    ContainerSpec,
    ContainerStatus,
    ExitCodes,
    HollowMeta,
    HollowPod,
    HollowSpec,
    HollowStatus,
    RestartRule,
)
from hack.hollow_node.script import Timing, parse_script
from hack.kubernetes_versions import DELETION_ENDS_IN_TERMINAL_PHASE, NEWEST, Kubernetes

PREFIX = "hollow.tfjob.kubeflow.org/"
START = datetime(2026, 1, 1, tzinfo=UTC)
# Versions between which kubelets behave differently.
VERSIONS = st.sampled_from([20, 22, 26, 27, 29, 33, 35, 36]).map(Kubernetes)
PLACE = Place(node="n", host_ip="192.0.2.1", pod_ip="10.244.0.1", timing=Timing(scale=0.1), kubernetes=NEWEST)
RANK = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}
GRACE = 30
STARTING_S = 0.05

# A walk takes 10 ms; on a busy machine it may take much longer, which is no failure.
brisk = settings(max_examples=60, deadline=None)

RUN = st.sampled_from(
    [
        "0s:0",
        "0.3s:0",
        "2s:0",
        "1s:1",
        "0s:137",
        "forever",
        "never-start",
        "image-pull-back-off",
        "1s:oom-killed",
        "oops",
        "start-error",
        "waiting:SignatureValidationFailed",
        "rejected",
    ]
)
RESTART = (RestartRule(action="Restart", exit_codes=ExitCodes(operator="In", values=(1,))),)
RESTART_ALL = (RestartRule(action="RestartAllContainers", exit_codes=ExitCodes(operator="NotIn", values=(0,))),)
LOOKS = st.binary(min_size=40, max_size=40).map(
    lambda drawn: [(byte % 2 == 1, (0.5, 1.0, 1.0, 1.0, 3.0)[byte // 2 % 5]) for byte in drawn]
)
"""For each look: whether the server has stored the last report, and how late the look comes. Drawn in one go."""
FATE = st.sampled_from(["1s:evicted", "1s:node-lost", "1s:node-shutdown"])
RUNS = st.lists(RUN, min_size=1, max_size=3).map(", ".join)


@dataclass(frozen=True, slots=True)
class Look:
    """One step of a walk: the kubelet's version, the time, the status before, and the result."""

    kubernetes: Kubernetes
    now: datetime
    before: HollowStatus
    step: Step


@st.composite
def pods(draw: st.DrawFn, *, fates: bool = False, rules: bool = False) -> HollowPod:
    """A pod with up to two init containers and up to two others, all of them scripted, perhaps with restart rules."""
    sidecar = st.sampled_from(["", "Always"]) if rules else st.just("")
    own = st.sampled_from(["", "Never", "OnFailure", "Always"]) if rules else st.just("")
    said = st.sampled_from([(), RESTART, RESTART_ALL]) if rules else st.just(())
    inits = [ContainerSpec(name=f"init-{n}", restart_policy=draw(sidecar)) for n in range(draw(st.integers(0, 2)))]
    mains = [
        ContainerSpec(name=f"main-{n}", restart_policy=draw(own), restart_policy_rules=draw(said))
        for n in range(draw(st.integers(1, 2)))
    ]
    runs = st.one_of(RUNS, FATE) if fates else RUNS
    annotations = {f"{PREFIX}run.{c.name}": draw(runs) for c in (*inits, *mains)}
    annotations[PREFIX + "on-stop"] = draw(st.sampled_from(["ignore", "0s:143", "1s:0"]))
    policy = draw(st.sampled_from(["Never", "OnFailure", "Always"]))
    return HollowPod(
        metadata=HollowMeta(name="p", namespace="ns", uid="u", annotations=annotations),
        spec=HollowSpec(
            restart_policy=policy,
            active_deadline_seconds=draw(st.sampled_from([None, 5])) if rules else None,
            init_containers=inits or None,
            containers=mains,
        ),
    )


def stored(status: HollowStatus) -> HollowStatus:
    """The status as the API server keeps it: whole seconds."""

    def cut(value: object) -> object:
        if isinstance(value, dict):
            return {key: cut(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [cut(entry) for entry in value]
        return value.replace(microsecond=0) if isinstance(value, datetime) else value

    return msgspec.convert(cut(msgspec.to_builtins(status, builtin_types=(datetime,))), HollowStatus)


@st.composite
def walks(draw: st.DrawFn, *, fates: bool = False, rules: bool = False) -> tuple[HollowPod, list[Look]]:
    """A life of up to forty looks: late ones, early ones, with a deletion and restarts of the node in between."""
    pod, now = draw(pods(fates=fates, rules=rules)), START
    timing = Timing(scale=0.1, starting=draw(st.sampled_from([0.0, STARTING_S / 0.1])))
    place = dataclasses.replace(PLACE, kubernetes=draw(VERSIONS), timing=timing)
    status, looks = pod.status, []
    deleted_at = draw(st.none() | st.integers(0, 20))
    script = parse_script(pod)
    for number, (is_stored, late) in enumerate(draw(LOOKS)):
        if number == deleted_at:
            deadline = (now + timedelta(seconds=GRACE)).replace(microsecond=0)
            meta = replace(pod.metadata, deletion_timestamp=deadline, deletion_grace_period_seconds=GRACE)
            pod = replace(pod, metadata=meta)
        step = advance(pod, script, status, now, place)
        looks.append(Look(place.kubernetes, now, status, step))
        status = stored(step.status) if is_stored else step.status
        if step.removal is Removal.FINAL:
            break
        wait = (step.look_at - now).total_seconds() if step.look_at is not None else 1.0
        now += timedelta(seconds=max(0.0, wait) * late)
    return pod, looks


def containers(status: HollowStatus) -> list[ContainerStatus]:
    """All container statuses of a pod."""
    return [*(status.init_container_statuses or ()), *(status.container_statuses or ())]


@brisk
@given(walks(fates=True))
def test_the_phase_moves_only_forward(walk: tuple[HollowPod, list[Look]]) -> None:
    """Pending, Running, then one of the two ends."""
    for look in walk[1]:
        assert RANK[look.before.phase] <= RANK[look.step.status.phase]


@brisk
@given(walks(fates=True))
def test_a_pod_that_has_ended_never_changes_again(walk: tuple[HollowPod, list[Look]]) -> None:
    """Succeeded and Failed are final."""
    for look in walk[1]:
        if RANK[look.before.phase] == 2:
            assert look.step.status == look.before


@brisk
@given(walks())
def test_restart_counts_rise_by_one_at_most_and_never_fall(walk: tuple[HollowPod, list[Look]]) -> None:
    """One transition at a time, also across restarts of the node."""
    for look in walk[1]:
        before = {c.name: c.restart_count for c in containers(look.before)}
        for container in containers(look.step.status):
            assert 0 <= container.restart_count - before.get(container.name, 0) <= 1


@brisk
@given(walks())
def test_the_restart_policy_is_obeyed(walk: tuple[HollowPod, list[Look]]) -> None:
    """A Never pod never restarts anything, a success is repeated only by Always, and an Always pod ends only by deletion."""
    pod, looks = walk
    for look in looks:
        status, policy = look.step.status, pod.spec.restart_policy
        for container in containers(status):
            end = container.last_state.terminated
            if policy == "Never":
                assert (container.restart_count, end) == (0, None)
            if policy == "OnFailure" and end is not None:
                assert end.exit_code != 0
        if policy == "Always" and pod.metadata.deletion_timestamp is None and status.reason != "OutOfcpu":
            assert RANK[status.phase] < 2


@brisk
@given(walks())
def test_every_container_is_in_one_state_and_its_times_are_in_order(walk: tuple[HollowPod, list[Look]]) -> None:
    """It is ready exactly while it runs (an init container: once it is done); it ends after its start, not in the future."""
    for look in walk[1]:
        for container in containers(look.step.status):
            state = container.state
            assert [state.waiting, state.running, state.terminated].count(None) == 2
            if container.name.startswith("init-"):
                assert container.ready == (state.terminated is not None and state.terminated.exit_code == 0)
            else:
                assert container.ready == (state.running is not None)
            for end in (state.terminated, container.last_state.terminated):
                if end is not None and end.started_at is not None and end.finished_at is not None:
                    assert end.started_at <= end.finished_at <= look.now


@brisk
@given(walks(fates=True))
def test_the_node_never_looks_twice_at_the_same_moment_for_nothing(walk: tuple[HollowPod, list[Look]]) -> None:
    """Otherwise the work queue would spin."""
    for look in walk[1]:
        if look.step.status == look.before and look.step.look_at is not None:
            assert look.step.look_at > look.now


@brisk
@given(walks(fates=True))
def test_conditions_are_unique_and_tell_the_truth_about_readiness(walk: tuple[HollowPod, list[Look]]) -> None:
    """Ready means that all containers run and that the kubelet reports it, which it does not on a lost node."""
    pod, looks = walk
    lost = any(text.endswith("node-lost") for text in (pod.metadata.annotations or {}).values())
    for look in looks:
        status = look.step.status
        conditions = {c.type: c for c in status.conditions or ()}
        assert len(conditions) == len(status.conditions or ())
        if "Ready" in conditions:
            mains = status.container_statuses or []
            ready = str(bool(mains) and all(c.ready for c in mains))
            assert conditions["ContainersReady"].status == ready
            assert conditions["Ready"].status in ({ready, "False"} if lost else {ready})


@brisk
@given(walks())
def test_a_deleted_pod_goes_within_its_grace_period(walk: tuple[HollowPod, list[Look]]) -> None:
    """However its containers respond to SIGTERM; after it only reports, one a look, and a start in progress may be left."""
    pod, looks = walk
    deadline = pod.metadata.deletion_timestamp
    for look in looks:
        if deadline is not None and look.now >= deadline and look.step.removal is not Removal.FINAL:
            assert look.step.look_at is not None
            assert look.step.look_at - look.now <= timedelta(seconds=STARTING_S)


@brisk
@given(walks())
def test_a_deleted_pod_goes_in_the_phase_of_its_age(walk: tuple[HollowPod, list[Look]]) -> None:
    """Since 1.27 the phase is terminal, under every policy."""
    for look in walk[1]:
        if look.step.removal is Removal.FINAL and look.kubernetes.has(DELETION_ENDS_IN_TERMINAL_PHASE):
            assert RANK[look.step.status.phase] == 2


@brisk
@given(walks(rules=True))
def test_rules_and_sidecars_keep_the_order_of_a_life(walk: tuple[HollowPod, list[Look]]) -> None:
    """Restart counts rise by one at most; a terminal phase is final; only a restart of all containers leads back to Pending."""
    for look in walk[1]:
        before = {c.name: c.restart_count for c in containers(look.before)}
        status = look.step.status
        for container in containers(status):
            assert 0 <= container.restart_count - before.get(container.name, 0) <= 1
        if RANK[look.before.phase] == 2:
            assert status.phase == look.before.phase
        if RANK[status.phase] < RANK[look.before.phase]:
            ends = [c.last_state.terminated for c in containers(look.before)]
            assert "RestartingAllContainers" in {end.reason for end in ends if end is not None}
        if status == look.before and look.step.look_at is not None:
            assert look.step.look_at > look.now


@brisk
@given(
    pods(fates=True, rules=True), VERSIONS, st.sampled_from([0.0, STARTING_S / 0.1]), st.integers(0, 8), st.booleans()
)
def test_a_deleted_pod_goes_though_no_other_event_wakes_the_node(
    pod: HollowPod, kubernetes: Kubernetes, starting: float, steps: int, at_once: bool
) -> None:
    """M2: after the deletion each step says when the next is due, until one confirms it. Except on a lost node."""
    assume("node-lost" not in str(pod.metadata.annotations))
    place = dataclasses.replace(PLACE, kubernetes=kubernetes, timing=Timing(scale=0.1, starting=starting))
    script, status, now = parse_script(pod), pod.status, START
    for _ in range(steps):
        step = advance(pod, script, status, now, place)
        status = step.status
        if step.look_at is not None:
            now = max(now, step.look_at)
    now += timedelta(seconds=0.0 if at_once else 0.7)
    deadline = (now + timedelta(seconds=GRACE)).replace(microsecond=0)
    meta = replace(pod.metadata, deletion_timestamp=deadline, deletion_grace_period_seconds=GRACE, generation=1)
    pod = replace(pod, metadata=meta)
    for _ in range(20):
        step = advance(pod, script, status, now, place)
        if step.removal is Removal.FINAL:
            return
        assert step.look_at is not None, f"nobody looks again: {step}"
        status, now = step.status, max(now, step.look_at)
    raise AssertionError(f"no end of it: {status}")
