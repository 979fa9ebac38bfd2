"""The life of a pod on the hollow node in tables: which statuses are reported, and when."""

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
    Condition,
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


def story(pod: HollowPod, limit: int = 12, place: Place = PLACE) -> list[str]:
    """A pod's life as lines of second, phase and container states."""
    lines = []
    for second, status in life(pod, place=place):
        words = [word(c) for c in (*(status.init_container_statuses or ()), *(status.container_statuses or ()))]
        lines.append(" ".join([f"{second:g}", status.phase, *words]))
        if len(lines) == limit:
            break
    return lines


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


@pytest.mark.parametrize(
    ("pod", "lines"),
    [
        (make_pod(), ["0 Running runs", "2 Running Completed(0)", "3.3 Succeeded Completed(0)"]),
        (make_pod("0s:0"), ["0 Running runs", "0 Running Completed(0)", "1.3 Succeeded Completed(0)"]),
        (make_pod("1s:3"), ["0 Running runs", "1 Running Error(3)", "2.3 Failed Error(3)"]),
        (make_pod("1s:oom-killed"), ["0 Running runs", "1 Running OOMKilled(137)", "2.3 Failed OOMKilled(137)"]),
        (make_pod("start-error"), ["0 Pending StartError(128)", "1.3 Failed StartError(128)"]),
        (make_pod("rejected:OutOfpods"), ["0 Failed"]),
        (make_pod("waiting:InvalidImageName"), ["0 Pending InvalidImageName"]),
        (make_pod("forever"), ["0 Running runs"]),
        (make_pod("never-start"), ["0 Pending ContainerCreating"]),
        (make_pod("image-pull-back-off"), ["0 Pending ImagePullBackOff"]),
        (make_pod("what"), ["0 Pending CreateContainerConfigError"]),
        (make_pod("1s:0", side="3s:0"),
         ["0 Running runs runs", "1 Running Completed(0) runs", "3 Running Completed(0) Completed(0)",
          "4.3 Succeeded Completed(0) Completed(0)"]),
        (make_pod("1s:0", side="1s:4"),
         ["0 Running runs runs", "1 Running Completed(0) Error(4)", "2.3 Failed Completed(0) Error(4)"]),
        (make_pod("1s:0", side="never-start"),
         ["0 Pending runs ContainerCreating", "1 Pending Completed(0) ContainerCreating"]),
    ],
)  # fmt: skip
def test_a_pod_that_is_never_restarted_lives_as_told(pod: HollowPod, lines: list[str]) -> None:
    """Each line is one report to the API server."""
    assert story(pod) == lines


@pytest.mark.parametrize(
    ("pod", "lines"),
    [
        (make_pod("1s:1, 2s:0", policy="OnFailure"),
         ["0 Running runs", "1 Running Error(1)", "1 Running runs*1", "3 Running Completed(0)*1",
          "4.3 Succeeded Completed(0)*1"]),
        (make_pod("1s:1, 1s:1, 1s:0", policy="OnFailure"),
         ["0 Running runs", "1 Running Error(1)", "1 Running runs*1", "2 Running Error(1)*1",
          "7 Running CrashLoopBackOff*1", "12 Running runs*2", "13 Running Completed(0)*2",
          "14.3 Succeeded Completed(0)*2"]),
        (make_pod("1s:0", policy="Always"),
         ["0 Running runs", "1 Running Completed(0)", "1 Running runs*1", "2 Running Completed(0)*1",
          "7 Running CrashLoopBackOff*1", "12 Running runs*2", "13 Running Completed(0)*2",
          "18 Running CrashLoopBackOff*2", "33 Running runs*3", "34 Running Completed(0)*3",
          "39 Running CrashLoopBackOff*3", "74 Running runs*4"]),
        (make_pod("1s:1, image-pull-back-off", policy="Always"),
         ["0 Running runs", "1 Running Error(1)", "1 Running ImagePullBackOff"]),
    ],
)  # fmt: skip
def test_a_pod_is_restarted_in_place_by_its_policy_and_with_back_off(pod: HollowPod, lines: list[str]) -> None:
    """The kubelet: the first restart at once, then after 10 s, 20 s, 40 s."""
    assert story(pod) == lines


@pytest.mark.parametrize(
    ("pod", "lines"),
    [
        (make_pod("1s:0", inits=2),
         ["0 Pending runs PodInitializing PodInitializing", "0.1 Pending Completed(0) PodInitializing PodInitializing",
          "0.1 Pending Completed(0) runs PodInitializing", "0.2 Pending Completed(0) Completed(0) PodInitializing",
          "0.2 Running Completed(0) Completed(0) runs"]),
        (make_pod("1s:0", inits=1, run__init_0="1s:7"),
         ["0 Pending runs PodInitializing", "1 Pending Error(7) PodInitializing", "2.3 Failed Error(7) PodInitializing"]),
        (make_pod("1s:0", inits=1, policy="Always", run__init_0="1s:7, 1s:0"),
         ["0 Pending runs PodInitializing", "1 Pending Error(7) PodInitializing", "1 Pending runs*1 PodInitializing",
          "2 Pending Completed(0)*1 PodInitializing", "2 Running Completed(0)*1 runs"]),
        (make_pod("forever", inits=1, policy="Always", run__init_0="1s:0"),
         ["0 Pending runs PodInitializing", "1 Pending Completed(0) PodInitializing", "1 Running Completed(0) runs"]),
        (make_pod("forever", inits=1, policy="Always", run__init_0="1s:1, 1s:1, forever"),
         ["0 Pending runs PodInitializing", "1 Pending Error(1) PodInitializing", "1 Pending runs*1 PodInitializing",
          "2 Pending Error(1)*1 PodInitializing", "7 Pending CrashLoopBackOff*1 PodInitializing"]),
    ],
)  # fmt: skip
def test_init_containers_run_one_after_the_other_before_all_others(pod: HollowPod, lines: list[str]) -> None:
    """Even in an Always pod they run again only after a failure."""
    assert story(pod, limit=5) == lines


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


def test_a_finished_run_says_when_it_began_and_ended() -> None:
    """The end is the scripted one, however late the node looks."""
    status = last(make_pod("1s:5"))
    main, end = main_of(status), end_of(status)
    assert (end.started_at, end.finished_at, end.exit_code) == (at(0), at(1), 5)
    assert end.container_id == main.container_id
    assert not main.ready


def test_a_restarted_container_remembers_how_the_run_before_ended() -> None:
    """lastState, a new container ID, and a restart count one higher."""
    statuses = [status for _, status in life(make_pod("1s:137, 1s:0", policy="OnFailure"))]
    before, after = main_of(statuses[1]), main_of(statuses[2])
    assert after.last_state.terminated == before.state.terminated
    assert after.container_id != before.container_id
    assert after.restart_count == 1


def test_a_finished_pod_is_not_ready_because_it_completed() -> None:
    """By the reason one can tell success from failure in `kubectl get pod -o yaml`."""
    ready = condition_of(last(make_pod("1s:0")).conditions, "Ready")
    assert ready == Condition(type="Ready", status="False", last_transition_time=at(1), reason="PodCompleted")


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


def test_an_evicted_pod_of_old_failed_and_has_lost_its_container_statuses() -> None:
    """So no exit code says whether it may be tried again."""
    (*_, (_, status)) = life(make_pod("1s:evicted", policy="OnFailure"), place=OLD_PLACE)
    assert (status.phase, status.reason, status.container_statuses) == ("Failed", "Evicted", None)
    assert (status.conditions, status.start_time) == (None, START)
    assert status.message


@pytest.mark.parametrize(
    ("run", "on_stop", "told"),
    [
        ("1s:evicted", "0s:143", ("Failed", "Evicted", 143)),
        ("1s:evicted", "2s:0", ("Failed", "Evicted", 137)),  # the grace of a hard eviction is a second
        ("1s:evicted", "0s:0", ("Succeeded", "", 0)),
        ("1s:node-shutdown", "2s:0", ("Succeeded", "", 0)),
        ("1s:node-shutdown", "2s:9", ("Failed", "Terminated", 9)),
        ("1s:node-shutdown", "ignore", ("Failed", "Terminated", 137)),
    ],
)
def test_a_pod_that_the_kubelet_disrupts_ends_as_its_containers_do(
    run: str, on_stop: str, told: tuple[str, str, int]
) -> None:
    """M10: it has DisruptionTarget even if it has Succeeded; nothing is reported until all containers have ended."""
    statuses = [status for _, status in life(make_pod(run, policy="Always", on_stop=on_stop))]
    assert len(statuses) == 2
    assert (statuses[1].phase, statuses[1].reason, end_of(statuses[1]).exit_code) == told
    target = condition_of(statuses[1].conditions, "DisruptionTarget")
    assert target is not None
    assert (target.status, target.reason) == ("True", "TerminationByKubelet")


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


@pytest.mark.parametrize(
    ("on_stop", "when", "code"),
    [(None, 10.0, 143), ("5s:0", 15.0, 0), ("5s:9", 15.0, 9), ("ignore", 40.0, 137), ("60s:0", 40.0, 137)],
)
def test_a_deleted_pod_goes_as_its_script_lets_it(on_stop: str | None, when: float, code: int) -> None:
    """It is deleted at 10 s with 30 s of grace: SIGTERM at once, SIGKILL at the end of the grace period."""
    pod = make_pod("forever", policy="Always", on_stop=on_stop)
    running = last(pod)
    going = deleted(pod, 10)
    ((second, status),) = life(going, running, start=10)
    assert second == when
    assert (end_of(status).exit_code, main_of(status).restart_count) == (code, 0)
    assert status.phase == ("Failed" if code else "Succeeded")
    assert advance(going, parse_script(pod), status, at(when), PLACE).removal is Removal.FINAL


def test_a_deleted_pod_that_ends_by_itself_keeps_its_own_exit_code() -> None:
    """A worker that finishes within its grace period has succeeded."""
    pod = make_pod("12s:0", on_stop="ignore")
    ((second, status),) = life(deleted(pod, 10), first(pod), start=10)
    assert (second, status.phase) == (12, "Succeeded")
    ((_, status),) = life(deleted(pod, 10), first(pod), start=20)
    assert end_of(status).finished_at == at(12)


def test_a_run_without_end_is_over_when_its_annotation_says_so() -> None:
    """So a test can end a job when it is done with it, without guessing how long that takes."""
    rest = life(make_pod("0s:0"), first(make_pod("forever")), start=50)
    assert [f"{second:g} {status.phase} {word(main_of(status))}" for second, status in rest] == [
        "50 Running Completed(0)",
        "50 Succeeded Completed(0)",
    ]


def test_a_shorter_grace_period_by_a_second_delete_is_obeyed() -> None:
    """`kubectl delete --grace-period=1` on a pod that is already going."""
    pod = make_pod("forever", on_stop="ignore")
    running = last(pod)
    script = parse_script(pod)
    assert advance(deleted(pod, 10), script, running, at(11), PLACE).look_at == at(40)
    assert advance(deleted(pod, 10, grace=1), script, running, at(11), PLACE).removal is Removal.FINAL


@pytest.mark.parametrize("run", ["never-start", "image-pull-back-off", "what"])
def test_a_deleted_pod_of_old_of_which_nothing_ran_goes_at_once(run: str) -> None:
    """There is nothing to stop, and nothing to report."""
    pod = make_pod(run)
    (*_, (_, waiting)) = life(pod, place=OLD_PLACE)
    step = advance(deleted(pod, 5), parse_script(pod), waiting, at(5), OLD_PLACE)
    assert (step.status, step.removal) == (waiting, Removal.FINAL)


@pytest.mark.parametrize("run", ["never-start", "image-pull-back-off", "what"])
def test_a_deleted_pod_of_which_nothing_ran_has_failed(run: str) -> None:
    """Since 1.27 its containers count as ended, with an unknown exit."""
    pod = make_pod(run)
    (*_, (_, status)) = life(deleted(pod, 5), last(pod), start=5)
    assert (status.phase, end_of(status).exit_code) == ("Failed", 137)
    assert end_of(status).reason == "ContainerStatusUnknown"


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


@AGES
def test_nothing_starts_in_a_pod_that_is_deleted(place: Place) -> None:
    """Neither a container that waits to be restarted nor one behind an init container."""
    crashed = make_pod("1s:1", policy="Always")
    (*_, back_off) = [status for second, status in life(crashed, place=place) if second <= 7]
    assert word(main_of(back_off)) == "CrashLoopBackOff*1"
    after = [status for _, status in life(deleted(crashed, 8), back_off, start=50, place=place)]
    assert all(status.container_statuses and not main_of(status).state.running for status in after)
    new = make_pod(inits=1)
    after = [status for _, status in life(deleted(new, 0), next(life(new, place=place))[1], start=50, place=place)]
    assert {word(main_of(status)) for status in after} <= {"PodInitializing", "ContainerStatusUnknown(137)"}


@AGES
def test_a_pod_that_has_ended_already_is_deleted_as_it_is(place: Place) -> None:
    """The kubelet only confirms the deletion."""
    pod = make_pod("1s:0")
    (*_, (_, status)) = life(pod, place=place)
    step = advance(deleted(pod, 9, grace=0), parse_script(pod), status, at(9), place)
    assert (step.status, step.removal) == (status, Removal.FINAL)


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Failed"), ("OnFailure", "Running"), ("Always", "Running")])
def test_a_deleted_pod_of_old_is_left_in_the_phase_of_its_policy(policy: str, phase: str) -> None:
    """M2: to kubelets before 1.27 a pod that its policy would restart has not ended."""
    pod = make_pod("forever", policy=policy)
    ((_, status),) = life(deleted(pod, 10), next(life(pod, place=OLD_PLACE))[1], start=10, place=OLD_PLACE)
    assert (status.phase, end_of(status).exit_code) == (phase, 143)


def test_a_pod_starts_in_stages_where_the_timing_says_so() -> None:
    """KEP-3085: admitted, then with a sandbox, then running."""
    place = dataclasses.replace(PLACE, timing=Timing(scale=1.0, starting=0.5))
    told = []
    for second, status in life(make_pod("forever"), place=place):
        sandbox = condition_of(status.conditions, "PodReadyToStartContainers")
        assert sandbox is not None
        told.append((second, status.phase, word(main_of(status)), sandbox.status))
    creating = "ContainerCreating"
    assert told == [
        (0, "Pending", creating, "False"),
        (0.5, "Pending", creating, "True"),
        (1, "Running", "runs", "True"),
    ]


def test_the_phase_lags_also_when_the_node_looks_late() -> None:
    """M1: a kubelet that was away reports the end of the containers first, and that of the pod directly after it."""
    pod = make_pod("5s:0")
    told = [(second, status.phase, word(main_of(status))) for second, status in life(pod, first(pod), start=100)]
    assert told == [(100, "Running", "Completed(0)"), (100, "Succeeded", "Completed(0)")]
    assert end_of(last(pod)).finished_at == at(5)


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
