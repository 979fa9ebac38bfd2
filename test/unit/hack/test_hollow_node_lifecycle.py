"""What the recordings do not show of the life of a pod on the hollow node: kubelets of other ages, addresses, lost nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import Place, Removal, condition_of
from hack.hollow_node.objects import (
    ContainerSpec,
    ContainerStatus,
    HollowMeta,
    HollowPod,
    HollowSpec,
    HollowStatus,
    Terminated,
)
from hack.hollow_node.script import Timing, parse_script
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes

PREFIX = "hollow.tfjob.kubeflow.org/"
START = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = Place(node="hollow-node", host_ip="192.0.2.1", pod_ip="10.244.0.7", timing=Timing(scale=1.0), kubernetes=NEWEST)
OLD_PLACE = dataclasses.replace(PLACE, kubernetes=OLDEST)
AGES = pytest.mark.parametrize("place", [OLD_PLACE, PLACE], ids=["oldest", "newest"])


def place_of(minor: int) -> Place:
    """A node whose kubelet is of this minor version."""
    return dataclasses.replace(PLACE, kubernetes=Kubernetes(minor))


def at(seconds: float) -> datetime:
    """A moment, counted from the start of the test."""
    return START + timedelta(seconds=seconds)


def make_pod(
    run: str | None = None, *, policy: str = "Never", inits: int = 0, side: str | None = None, **more: str | None
) -> HollowPod:
    """A pod with a container `main`, perhaps a second one `side`, perhaps init containers `init-0`, `init-1` ..."""
    annotations = {PREFIX + key.replace("__", ".").replace("_", "-"): text for key, text in more.items() if text}
    containers = [ContainerSpec(name="main", image="img")]
    if run is not None:
        annotations[PREFIX + "run"] = run
    if side is not None:
        containers.append(ContainerSpec(name="side", image="img"))
        annotations[PREFIX + "run.side"] = side
    return HollowPod(
        metadata=HollowMeta(name="p", namespace="ns", uid="u", annotations=annotations),
        spec=HollowSpec(
            node_name="hollow-node",
            restart_policy=policy,
            containers=containers,
            init_containers=[ContainerSpec(name=f"init-{n}") for n in range(inits)] or None,
        ),
    )


def deleted(pod: HollowPod, second: float, grace: int = 30) -> HollowPod:
    """The pod after a DELETE at that second."""
    meta = replace(pod.metadata, deletion_timestamp=at(second + grace), deletion_grace_period_seconds=grace)
    return replace(pod, metadata=meta)


def life(
    pod: HollowPod, status: HollowStatus | None = None, start: float = 0.0, place: Place = PLACE
) -> Iterator[tuple[float, HollowStatus]]:
    """Play a pod's life in simulated time; yield each status that is reported, with its second."""
    now, status, script = at(start), status or pod.status, parse_script(pod)
    for _ in range(1000):
        step = advance(pod, script, status, now, place)
        if step.status != status:
            status = step.status
            yield (now - START).total_seconds(), status
        if step.look_at is None or step.removal is not Removal.NONE:
            return
        now = max(now, step.look_at)


def word(container: ContainerStatus) -> str:
    """A container's state in one word, with the exit code and the number of restarts where there are any."""
    state = container.state
    if state.running is not None:
        text = "runs"
    elif state.terminated is not None:
        text = f"{state.terminated.reason}({state.terminated.exit_code})"
    else:
        text = state.waiting.reason if state.waiting is not None else "?"
    return f"{text}*{container.restart_count}" if container.restart_count else text


def main_of(status: HollowStatus) -> ContainerStatus:
    """The status of the container `main`."""
    assert status.container_statuses
    return status.container_statuses[0]


def end_of(status: HollowStatus) -> Terminated:
    """How the container `main` ended."""
    end = main_of(status).state.terminated
    assert end is not None
    return end


def first(pod: HollowPod) -> HollowStatus:
    """The first status that a pod has from the node."""
    return next(life(pod))[1]


def last(pod: HollowPod) -> HollowStatus:
    """The last status of a pod's life."""
    return list(life(pod))[-1][1]


def test_a_pod_is_initialized_when_its_init_containers_are_done() -> None:
    """Initialized, and the readiness of init containers, follow their success."""
    told = []
    for _, status in life(make_pod("1s:0", inits=1)):
        initialized = condition_of(status.conditions, "Initialized")
        assert initialized is not None
        told.append((initialized.status, initialized.message, [c.ready for c in status.init_container_statuses or ()]))
    assert told == [
        ("False", "containers with incomplete status: [init-0]", [False]),
        *[("True", "", [True])] * 4,
    ]


def test_the_status_of_a_running_pod_is_complete() -> None:
    """It has all that `kubectl describe pod` prints about a healthy pod."""
    status = first(make_pod("1s:0"))
    assert (status.host_ip, status.pod_ip, [ip.ip for ip in status.pod_ips or []]) == (
        PLACE.host_ip,
        PLACE.pod_ip,
        [PLACE.pod_ip],
    )
    assert status.start_time == START
    assert {c.type: c.status for c in status.conditions or ()} == dict.fromkeys(
        ("PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"), "True"
    )
    old = {c.type for c in next(life(make_pod("1s:0"), place=OLD_PLACE))[1].conditions or ()}
    assert old == {"PodScheduled", "Initialized", "Ready", "ContainersReady"}
    main = main_of(status)
    assert (main.ready, main.started, main.restart_count, main.image) == (True, True, 0, "img")
    assert main.container_id.startswith("containerd://")
    assert main.image_id.startswith("img@sha256:")


def test_a_pod_has_no_address_before_its_sandbox() -> None:
    """ContainerCreating comes before the sandbox, ImagePullBackOff after it."""
    assert last(make_pod("never-start")).pod_ip == ""
    assert last(make_pod("image-pull-back-off")).pod_ip == PLACE.pod_ip


def test_a_pod_keeps_its_address() -> None:
    """Even if the node would give it another one now."""
    pod = make_pod("1s:0")
    elsewhere = dataclasses.replace(OLD_PLACE, pod_ip="10.244.9.9")
    step = advance(pod, parse_script(pod), first(pod), at(1), elsewhere)
    assert (step.status.phase, step.status.pod_ip) == ("Succeeded", PLACE.pod_ip)


def test_a_pod_on_the_host_network_has_the_address_of_the_node() -> None:
    """With hostNetwork it has no other address."""
    pod = make_pod("1s:0")
    pod = replace(pod, spec=replace(pod.spec, host_network=True))
    assert last(pod).pod_ip == PLACE.host_ip


@AGES
def test_a_pod_of_a_lost_node_stays_running_and_is_deleted_but_never_confirmed(place: Place) -> None:
    """The node controller sets the condition, the taint manager deletes the pod after 300 s; the kubelet is silent."""
    pod = make_pod("1s:node-lost")
    (*_, (_, status)) = life(pod, place=place)
    ready = condition_of(status.conditions, "Ready")
    assert ready is not None
    assert (status.phase, status.reason, ready.status, ready.reason) == ("Running", "", "False", "")
    early, late = (advance(pod, parse_script(pod), status, at(s), place) for s in (300, 301))
    assert (early.look_at, early.removal) == (at(301), Removal.NONE)
    assert late.removal is Removal.GRACEFUL
    assert (condition_of(late.status.conditions, "DisruptionTarget") is not None) == (place.kubernetes == NEWEST)
    after = advance(deleted(pod, 302), parse_script(pod), status, at(9999), place)
    assert (after.status, after.look_at, after.removal) == (status, None, Removal.NONE)


def test_a_run_without_end_is_over_when_its_annotation_says_so() -> None:
    """So a test can end a job when it is done with it, without guessing how long that takes."""
    rest = life(make_pod("0s:0"), first(make_pod("forever")), start=50)
    assert [f"{second:g} {status.phase} {word(main_of(status))}" for second, status in rest] == [
        "50 Running Completed(0)",
        "50 Succeeded Completed(0)",
    ]


@pytest.mark.parametrize(
    ("minor", "told"),
    [
        (22, "Pending ContainerCreating"),
        (25, "Pending ContainerStatusUnknown(137)"),
        (26, "Pending ContainerStatusUnknown(137)"),
        (27, "Failed ContainerStatusUnknown(137)"),
    ],
)
def test_what_never_ran_in_a_deleted_pod_is_called_unknown_before_the_phase_is_terminal(minor: int, told: str) -> None:
    """UNSTARTED_ARE_CALLED_UNKNOWN is older than DELETION_ENDS_IN_TERMINAL_PHASE."""
    place, pod = place_of(minor), make_pod("never-start")
    ((_, waiting),) = life(pod, place=place)
    step = advance(deleted(pod, 5), parse_script(pod), waiting, at(5), place)
    assert (f"{step.status.phase} {word(main_of(step.status))}", step.removal) == (told, Removal.FINAL)


@pytest.mark.parametrize("minor", [25, 26])
def test_beside_what_ran_the_unstarted_is_called_unknown_too(minor: int) -> None:
    """UNSTARTED_ARE_CALLED_UNKNOWN is about containers, but not about those behind an init container that is not done."""
    place, pod = place_of(minor), make_pod("forever", side="image-pull-back-off")
    (*_, (_, waiting)) = life(pod, place=place)
    (*_, (_, status)) = life(deleted(pod, 5), waiting, start=5, place=place)
    assert (status.phase, [word(c) for c in status.container_statuses or ()]) == (
        "Pending",
        ["Error(143)", "ContainerStatusUnknown(137)"],
    )
    behind = make_pod(inits=1, run__init_0="never-start")
    ((_, waiting),) = life(behind, place=place)
    step = advance(deleted(behind, 5), parse_script(behind), waiting, at(5), place)
    assert (step.status, step.removal) == (waiting, Removal.FINAL)


@pytest.mark.parametrize(
    ("minor", "told"),
    [
        (22, ("Failed", "ContainerCreating", 137)),
        (25, ("Failed", "ContainerCreating", 137)),
        (26, ("Failed", "ContainerCreating", 137)),
        (27, ("Failed", "ContainerStatusUnknown(137)", None)),
    ],
)
def test_an_exit_code_that_is_lost_is_in_the_last_state_before_1_27(
    minor: int, told: tuple[str, str, int | None]
) -> None:
    """M2, EXIT_CODES_SURVIVE_DELETION: an older kubelet shows the container as if it had not been created yet."""
    place, pod = place_of(minor), make_pod("forever", on_stop="lost")
    (*_, (_, running)) = life(pod, place=place)
    (*_, (_, status)) = life(deleted(pod, 5), running, start=5, place=place)
    main = main_of(status)
    previous = main.last_state.terminated
    assert (status.phase, word(main), previous and previous.exit_code) == told


@pytest.mark.parametrize(("minor", "intro"), [(22, "Pod the"), (25, "Pod the"), (26, "Pod was rejected: the")])
def test_a_rejection_says_so_since_1_26(minor: int, intro: str) -> None:
    """M4, REJECTIONS_SAY_SO: before, only the reason shows it, not the message."""
    ((_, status),) = life(make_pod("rejected:OutOfpods"), place=place_of(minor))
    assert (status.phase, status.reason) == ("Failed", "OutOfpods")
    assert status.message.startswith(intro)


@pytest.mark.parametrize(("minor", "told"), [(21, None), (22, 137), (25, 137), (26, 137)])
def test_the_containers_of_an_evicted_pod_are_reported_since_1_22(minor: int, told: int | None) -> None:
    """M10, EVICTED_MAY_SUCCEED; its condition came with DISRUPTION_TARGET in 1.26."""
    (*_, (_, status)) = life(make_pod("1s:evicted", on_stop="2s:0"), place=place_of(minor))
    assert (status.phase, status.reason) == ("Failed", "Evicted")
    assert (end_of(status).exit_code if status.container_statuses else None) == told
    assert (condition_of(status.conditions, "DisruptionTarget") is not None) == (minor == 26)


def test_a_generation_that_was_seen_is_reported() -> None:
    """KEP-5067: if pods have a generation, and the kubelet's version knows the field."""
    pod = make_pod("forever")
    pod = replace(pod, metadata=replace(pod.metadata, generation=1))
    assert (first(pod).observed_generation, next(life(pod, place=OLD_PLACE))[1].observed_generation) == (1, 0)
    going = deleted(replace(pod, metadata=replace(pod.metadata, generation=2)), 10)
    told = [(status.observed_generation, status.phase) for _, status in life(going, first(pod), start=10)]
    assert told == [(2, "Running"), (2, "Failed")]


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always"])
def test_a_node_that_was_killed_goes_on_from_the_reported_status(policy: str) -> None:
    """The server keeps whole seconds; everything else is the same after a restart between any two reports."""
    pod = make_pod("2s:1, 3s:1, 1s:0", policy=policy, inits=1, run__init_0="1s:0")
    whole = [(second, status) for second, status in life(pod) if second < 30]
    for index, (second, status) in enumerate(whole):
        kept = msgspec.json.decode(msgspec.json.encode(status), type=HollowStatus)
        rest = [entry for entry in life(pod, kept, start=second) if entry[0] < 30]
        assert rest == whole[index + 1 :]


def test_back_off_doubles_to_a_cap_and_is_forgiven_after_a_long_run() -> None:
    """kubelet: 10 s, doubled to 5 min, none after 10 min of running; all of it scaled."""
    timing = Timing(scale=1.0)
    assert [timing.restart_delay(n, 1.0) for n in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert timing.restart_delay(10**6, 1.0) == 300
    assert timing.restart_delay(5, 601.0) == 0
    assert Timing(scale=0.05).restart_delay(1, 1.0) == 0.5


def test_a_pod_that_is_deleted_before_its_node_looks_goes_whatever_its_script_says_of_admission() -> None:
    """It is removed like any other pod: no container was about to start for which the node would have to wait."""
    place = dataclasses.replace(place_of(27), timing=Timing(scale=1.0, starting=0.5))
    pod = deleted(make_pod("rejected"), 0)
    now, status, script = START, pod.status, parse_script(pod)
    for _ in range(10):
        step = advance(pod, script, status, now, place)
        status, now = step.status, step.look_at or now
    assert step.removal is Removal.FINAL
