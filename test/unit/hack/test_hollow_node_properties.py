"""What is true for every pod on the hollow node, whatever its script, however late the node looks, whenever it is killed."""

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
from hack.hollow_node.script import PREFIX, Timing, parse_script
from hack.kubernetes_versions import DELETION_ENDS_IN_TERMINAL_PHASE, NEWEST, Kubernetes

START = datetime(2026, 1, 1, tzinfo=UTC)
# Versions between which kubelets behave differently.
VERSIONS = st.sampled_from([20, 22, 26, 27, 29, 33, 35, 36]).map(Kubernetes)
PLACE = Place(node="n", host_ip="192.0.2.1", pod_ip="10.244.0.1", timing=Timing(scale=0.1), kubernetes=NEWEST)
RANK = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 2}
GRACE = 30
STARTING_S = 0.05

# A walk takes 10 ms; on a busy machine it may take much longer, which is no failure.
brisk = settings(max_examples=150, deadline=None)

RUN = st.sampled_from(
    [
        *("0s:0", "0.3s:0", "2s:0", "1s:1", "0s:137", "forever", "never-start", "image-pull-back-off"),
        *("1s:oom-killed", "oops", "start-error", "waiting:SignatureValidationFailed", "rejected"),
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
    """One step of a walk: the pod, the kubelet's version, the time, the status before, and the result."""

    pod: HollowPod
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
    annotations[PREFIX + "on-stop"] = draw(st.sampled_from(["ignore", "0s:143", "1s:0", "1s:1"]))
    return HollowPod(
        metadata=HollowMeta(name="p", namespace="ns", uid="u", annotations=annotations),
        spec=HollowSpec(
            restart_policy=draw(st.sampled_from(["Never", "OnFailure", "Always"])),
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


def deleted(pod: HollowPod, now: datetime) -> HollowPod:
    """The pod after a DELETE."""
    deadline = (now + timedelta(seconds=GRACE)).replace(microsecond=0)
    gone = {"deletion_timestamp": deadline, "deletion_grace_period_seconds": GRACE}
    return replace(pod, metadata=replace(pod.metadata, **gone))


@st.composite
def walks(draw: st.DrawFn, *, fates: bool = False, rules: bool = False) -> list[Look]:
    """A life of up to forty looks: late ones, early ones, with a deletion and restarts of the node in between."""
    pod, now = draw(pods(fates=fates, rules=rules)), START
    timing = Timing(scale=0.1, starting=draw(st.sampled_from([0.0, STARTING_S / 0.1])))
    place = dataclasses.replace(PLACE, kubernetes=draw(VERSIONS), timing=timing)
    status, looks = pod.status, []
    deleted_at = draw(st.none() | st.integers(0, 20))
    script = parse_script(pod)
    for number, (is_stored, late) in enumerate(draw(LOOKS)):
        if number == deleted_at:
            pod = deleted(pod, now)
        step = advance(pod, script, status, now, place)
        looks.append(Look(pod, place.kubernetes, now, status, step))
        status = stored(step.status) if is_stored else step.status
        if step.removal is Removal.FINAL:
            break
        wait = (step.look_at - now).total_seconds() if step.look_at is not None else 1.0
        now += timedelta(seconds=max(0.0, wait) * late)
    return looks


def containers(status: HollowStatus) -> list[ContainerStatus]:
    """All container statuses of a pod."""
    return [*(status.init_container_statuses or ()), *(status.container_statuses or ())]


def assert_counts_rise_by_one_at_most(look: Look) -> None:
    """One transition at a time, also across restarts of the node."""
    before = {c.name: c.restart_count for c in containers(look.before)}
    for container in containers(look.step.status):
        assert 0 <= container.restart_count - before.get(container.name, 0) <= 1


def assert_no_look_for_nothing(look: Look) -> None:
    """Otherwise the work queue would spin."""
    if look.step.status == look.before and look.step.look_at is not None:
        assert look.step.look_at > look.now


@brisk
@given(walks(fates=True))
def test_the_phase_moves_forward_to_its_end_and_conditions_are_true(looks: list[Look]) -> None:
    """Ready means that all containers run and that the kubelet reports it, which it does not on a lost node."""
    for look in looks:
        assert_no_look_for_nothing(look)
        status = look.step.status
        assert RANK[look.before.phase] <= RANK[status.phase]
        if RANK[look.before.phase] == 2:
            assert status == look.before
        conditions = {c.type: c for c in status.conditions or ()}
        assert len(conditions) == len(status.conditions or ())
        if "Ready" in conditions:
            mains = status.container_statuses or []
            ready = str(bool(mains) and all(c.ready for c in mains))
            assert conditions["ContainersReady"].status == ready
            lost = any(text.endswith("node-lost") for text in (look.pod.metadata.annotations or {}).values())
            assert conditions["Ready"].status in ({ready, "False"} if lost else {ready})


@brisk
@given(walks())
def test_containers_obey_the_restart_policy_and_pods_their_grace(looks: list[Look]) -> None:
    """A Never pod never restarts anything, a success is repeated only by Always, and an Always pod ends only by deletion.

    A container is ready exactly while it runs (an init container: once it is done); it ends after its start, not in the
    future. However containers respond to SIGTERM, after its grace a deleted pod only reports, one a look, and a start in
    progress may be left; since 1.27 its last phase is terminal, under every policy.
    """
    for look in looks:
        assert_counts_rise_by_one_at_most(look)
        status, policy, deadline = look.step.status, look.pod.spec.restart_policy, look.pod.metadata.deletion_timestamp
        for container in containers(status):
            state, last = container.state, container.last_state.terminated
            assert [state.waiting, state.running, state.terminated].count(None) == 2
            done = state.terminated is not None and state.terminated.exit_code == 0
            assert container.ready == (done if container.name.startswith("init-") else state.running is not None)
            for end in (state.terminated, last):
                if end is not None and end.started_at is not None and end.finished_at is not None:
                    assert end.started_at <= end.finished_at <= look.now
            if policy == "Never":
                assert (container.restart_count, last) == (0, None)
            if policy == "OnFailure" and last is not None:
                assert last.exit_code != 0
        if policy == "Always" and deadline is None and status.reason != "OutOfcpu":
            assert RANK[status.phase] < 2
        if deadline is not None and look.now >= deadline and look.step.removal is not Removal.FINAL:
            assert look.step.look_at is not None
            assert look.step.look_at - look.now <= timedelta(seconds=STARTING_S)
        if look.step.removal is Removal.FINAL and look.kubernetes.has(DELETION_ENDS_IN_TERMINAL_PHASE):
            assert RANK[status.phase] == 2


@brisk
@given(walks(rules=True))
def test_rules_and_sidecars_keep_the_order_of_a_life(looks: list[Look]) -> None:
    """A terminal phase is final; only a restart of all containers leads back to Pending."""
    for look in looks:
        assert_counts_rise_by_one_at_most(look)
        assert_no_look_for_nothing(look)
        status = look.step.status
        if RANK[look.before.phase] == 2:
            assert status.phase == look.before.phase
        if RANK[status.phase] < RANK[look.before.phase]:
            ends = [c.last_state.terminated for c in containers(look.before)]
            assert "RestartingAllContainers" in {end.reason for end in ends if end is not None}


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
    pod = deleted(pod, now)
    pod = replace(pod, metadata=replace(pod.metadata, generation=1))
    for _ in range(20):
        step = advance(pod, script, status, now, place)
        if step.removal is Removal.FINAL:
            return
        assert step.look_at is not None, f"nobody looks again: {step}"
        status, now = step.status, max(now, step.look_at)
    raise AssertionError(f"no end of it: {status}")
