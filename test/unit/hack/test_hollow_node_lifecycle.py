"""What the recordings do not show of the life of a pod on the hollow node: kubelets of other ages, addresses, lost nodes."""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from fakes.objects import changed
from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import Place, Removal, Step, condition_of
from hack.hollow_node.objects import ContainerSpec, ContainerStatus, HollowMeta, HollowPod, HollowSpec, HollowStatus
from hack.hollow_node.script import PREFIX, Timing, parse_script
from hack.kubernetes_versions import NEWEST, OLDEST, Kubernetes

START = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = Place(node="hollow-node", host_ip="192.0.2.1", pod_ip="10.244.0.7", timing=Timing(scale=1.0), kubernetes=NEWEST)
OLD_PLACE = dataclasses.replace(PLACE, kubernetes=OLDEST)


def place_of(minor: int) -> Place:
    """A node whose kubelet is of this minor version."""
    return dataclasses.replace(PLACE, kubernetes=Kubernetes(minor))


def at(seconds: float) -> datetime:
    """A moment, counted from the start of the test."""
    return START + timedelta(seconds=seconds)


def scripted(pod: HollowPod, c0: str = "1s:0", *, on_stop: str = "0s:143", **runs: str) -> HollowPod:
    """The pod whose containers run like this, by name."""
    texts = {f"run.{name}": text for name, text in (runs | {"c0": c0}).items()} | {"on-stop": on_stop}
    return changed(pod, metadata__annotations={PREFIX + key: text for key, text in texts.items()})


FIRST, SECOND = (ContainerSpec(name=name, image="img") for name in ("c0", "c1"))
META = HollowMeta(name="p", namespace="ns", uid="u", generation=1)
POD = scripted(HollowPod(metadata=META, spec=HollowSpec(restart_policy="Never", containers=[FIRST])))
"""A Never pod that runs for a second."""
PAIR = changed(POD, spec__containers=[FIRST, SECOND])
WITH_INIT = changed(POD, spec__init_containers=[ContainerSpec(name="init")])


def deleted(pod: HollowPod, second: float) -> HollowPod:
    """The pod after a DELETE at that second."""
    gone = {"deletion_timestamp": at(second + 30), "deletion_grace_period_seconds": 30, "generation": 2}
    return replace(pod, metadata=replace(pod.metadata, **gone))


def look(pod: HollowPod, status: HollowStatus, second: float, place: Place = PLACE) -> Step:
    """The step of the node at that second."""
    return advance(pod, parse_script(pod), status, at(second), place)


def life(
    pod: HollowPod, place: Place = PLACE, status: HollowStatus | None = None, start: float = 0.0
) -> Iterator[HollowStatus]:
    """Play a pod's life in simulated time; yield each status that is reported."""
    now, status = start, status or pod.status
    for _ in range(1000):
        step = look(pod, status, now, place)
        if step.status != status:
            status = step.status
            yield status
        if step.look_at is None or step.removal is not Removal.NONE:
            return
        now = max(now, (step.look_at - START).total_seconds())


def word(container: ContainerStatus) -> str:
    """A container's state in one word, with the exit code if there is one."""
    state = container.state
    if state.terminated is not None:
        return f"{state.terminated.reason}({state.terminated.exit_code})"
    return state.waiting.reason if state.waiting is not None else "runs"


def words(status: HollowStatus) -> str:
    """The phase of a pod, its reason, and the states of its containers."""
    return " ".join(filter(None, [status.phase, status.reason, *map(word, status.container_statuses or ())]))


def last(pod: HollowPod, place: Place = PLACE) -> HollowStatus:
    """The last status of a pod's life."""
    return [*life(pod, place)][-1]


def test_a_pod_is_initialized_when_its_init_containers_are_done() -> None:
    """Initialized, and the readiness of init containers, follow their success."""
    told = []
    for status in life(scripted(WITH_INIT, init="1s:0")):
        initialized = condition_of(status.conditions, "Initialized")
        assert initialized is not None
        told.append((initialized.status, initialized.message, [c.ready for c in status.init_container_statuses or ()]))
    waits = ("False", "containers with incomplete status: [init]", [False])
    assert told == [waits, *[("True", "", [True])] * 4]


@pytest.mark.parametrize(("place", "sandbox"), [(OLD_PLACE, set()), (PLACE, {"PodReadyToStartContainers"})])
def test_the_status_of_a_running_pod_is_complete(place: Place, sandbox: set[str]) -> None:
    """It has all that `kubectl describe pod` prints about a healthy pod."""
    status = next(life(POD, place))
    assert (status.host_ip, status.pod_ip, status.start_time) == (PLACE.host_ip, PLACE.pod_ip, START)
    always = {"PodScheduled", "Initialized", "Ready", "ContainersReady"}
    assert {c.type: c.status for c in status.conditions or ()} == dict.fromkeys(always | sandbox, "True")
    (main,) = status.container_statuses or []
    assert (main.ready, main.started, main.restart_count, main.image) == (True, True, 0, "img")
    assert main.container_id.startswith("containerd://")
    assert main.image_id.startswith("img@sha256:")


def test_a_pod_has_an_address_from_its_sandbox_on_and_keeps_it() -> None:
    """Even if the node would assign another one now; with hostNetwork it is the node's."""
    assert last(scripted(POD, "never-start")).pod_ip == ""
    assert last(scripted(POD, "image-pull-back-off")).pod_ip == PLACE.pod_ip
    elsewhere = dataclasses.replace(OLD_PLACE, pod_ip="10.244.9.9")
    step = look(POD, next(life(POD)), 1, elsewhere)
    assert (step.status.phase, step.status.pod_ip) == ("Succeeded", PLACE.pod_ip)
    assert last(changed(POD, spec__host_network=True)).pod_ip == PLACE.host_ip


@pytest.mark.parametrize("place", [OLD_PLACE, PLACE], ids=["oldest", "newest"])
def test_a_pod_of_a_lost_node_stays_running_and_is_deleted_but_never_confirmed(place: Place) -> None:
    """The node controller sets the condition, the taint manager deletes the pod after 300 s; the kubelet is silent."""
    pod = scripted(POD, "1s:node-lost")
    status = last(pod, place)
    ready = condition_of(status.conditions, "Ready")
    assert ready is not None
    assert (status.phase, status.reason, ready.status, ready.reason) == ("Running", "", "False", "")
    early, late = (look(pod, status, second, place) for second in (300, 301))
    assert (early.look_at, early.removal) == (at(301), Removal.NONE)
    assert late.removal is Removal.GRACEFUL
    assert (condition_of(late.status.conditions, "DisruptionTarget") is not None) == (place == PLACE)
    assert look(deleted(pod, 302), status, 9999, place) == Step(status)


@pytest.mark.parametrize("run", ["forever", "never-start", "image-pull-back-off"])
def test_a_pod_that_never_ends_by_itself_ends_at_its_own_deadline(run: str) -> None:
    """It counts from the start of the pod, at which nothing else is due."""
    status = last(scripted(changed(POD, spec__active_deadline_seconds=5), run))
    assert (status.phase, status.reason, status.start_time) == ("Failed", "DeadlineExceeded", START)


def test_a_run_without_end_is_over_when_its_annotation_says_so() -> None:
    """So a test can end a job when it is done with it, without guessing how long that takes."""
    rest = life(scripted(POD, "0s:0"), status=next(life(scripted(POD, "forever"))), start=50)
    assert [words(status) for status in rest] == ["Running Completed(0)", "Succeeded Completed(0)"]


@pytest.mark.parametrize(
    ("minor", "pod", "told"),
    [
        (22, scripted(POD, "never-start"), "Pending ContainerCreating"),
        (25, scripted(POD, "never-start"), "Pending ContainerStatusUnknown(137)"),
        (26, scripted(POD, "never-start"), "Pending ContainerStatusUnknown(137)"),
        (27, scripted(POD, "never-start"), "Failed ContainerStatusUnknown(137)"),
        (25, scripted(PAIR, "forever", c1="image-pull-back-off"), "Pending Error(143) ContainerStatusUnknown(137)"),
        (26, scripted(PAIR, "forever", c1="image-pull-back-off"), "Pending Error(143) ContainerStatusUnknown(137)"),
        (26, scripted(WITH_INIT, init="never-start"), "Pending PodInitializing"),
        (26, scripted(POD, "forever", on_stop="lost"), "Failed ContainerCreating"),
        (27, scripted(POD, "forever", on_stop="lost"), "Failed ContainerStatusUnknown(137)"),
    ],
)
def test_a_deleted_pod_ends_as_its_age_has_it(minor: int, pod: HollowPod, told: str) -> None:
    """M2: UNSTARTED_ARE_CALLED_UNKNOWN is older than DELETION_ENDS_IN_TERMINAL_PHASE and EXIT_CODES_SURVIVE_DELETION."""
    place = place_of(minor)
    before = last(pod, place)
    status = [before, *life(deleted(pod, 5), place, before, start=5)][-1]
    assert words(status) == told
    lost = told == "Failed ContainerCreating"  # the container then seems not to have been created yet
    assert next(c.last_state.terminated is not None for c in status.container_statuses or ()) == lost


@pytest.mark.parametrize(("minor", "intro"), [(22, "Pod the"), (25, "Pod the"), (26, "Pod was rejected: the")])
def test_a_rejection_says_so_since_1_26(minor: int, intro: str) -> None:
    """M4, REJECTIONS_SAY_SO: before, only the reason shows it, not the message."""
    (status,) = life(scripted(POD, "rejected:OutOfpods"), place_of(minor))
    assert words(status) == "Failed OutOfpods"
    assert status.message.startswith(intro)


@pytest.mark.parametrize(("minor", "told"), [(21, ""), (22, " Error(137)"), (25, " Error(137)"), (26, " Error(137)")])
def test_the_containers_of_an_evicted_pod_are_reported_since_1_22(minor: int, told: str) -> None:
    """M10, EVICTED_MAY_SUCCEED; its condition came with DISRUPTION_TARGET in 1.26."""
    status = last(scripted(POD, "1s:evicted", on_stop="2s:0"), place_of(minor))
    assert words(status) == f"Failed Evicted{told}"
    assert (condition_of(status.conditions, "DisruptionTarget") is not None) == (minor == 26)


def test_a_generation_that_was_seen_is_reported() -> None:
    """KEP-5067: if the kubelet's version knows the field."""
    running, old = next(life(scripted(POD, "forever"))), next(life(scripted(POD, "forever"), OLD_PLACE))
    assert (running.observed_generation, old.observed_generation) == (1, 0)
    going = life(deleted(scripted(POD, "forever"), 10), status=running, start=10)
    assert [(status.observed_generation, status.phase) for status in going] == [(2, "Running"), (2, "Failed")]


def test_back_off_doubles_to_a_cap_and_is_forgiven_after_a_long_run() -> None:
    """kubelet: 10 s, doubled to 5 min, none after 10 min of running; all of it scaled."""
    timing = Timing(scale=1.0)
    assert [timing.restart_delay(n, 1.0) for n in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert timing.restart_delay(10**6, 1.0) == 300
    assert timing.restart_delay(5, 601.0) == 0
    assert Timing(scale=0.05).restart_delay(1, 1.0) == 0.5
