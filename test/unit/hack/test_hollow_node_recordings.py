"""The hollow node and real kubelets, given the same script, show a pod in the same states in the same order.

The recordings (test/data/recordings) are histories of pods on real kubelets of two versions, as a watch of the API server
showed them. A small server in this file plays the node's counterpart: it creates, deletes and evicts as recorded, each time as
soon as the pod has reached the state that it had then; so times do not matter. Compared are the fields on which a controller
could base decisions; consecutive states without a difference in them count once. `fakes.plays` has what the containers of each
scenario do, `LEFT_OUT` the scenarios that a hollow node cannot play, with reasons.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from fakes.plays import PLAYED, Play
from fakes.recordings import History, histories
from hack.hollow_node.lifecycle import advance
from hack.hollow_node.moment import Place, Removal, condition_of, set_condition
from hack.hollow_node.objects import TERMINAL, ContainerStatus, HollowMeta, HollowPod, HollowSpec, HollowStatus
from hack.hollow_node.script import Timing, parse_script
from hack.kubernetes_versions import DISRUPTION_TARGET, POD_GENERATION, Kubernetes
from support.cases import for_each
from tfjob_operator.api.meta import Struct

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMING = Timing(scale=1.0, starting=0.5)
AWAY_S = 100.0  # longer than any script and any grace


LEFT_OUT = {
    "16a-image-cannot-be-pulled": "ErrImagePull and ImagePullBackOff take turns as the registry is asked",
    "25j-ready-probe": "no probes",
    "26d-unschedulable": "no scheduler: the hollow node binds every pod",
    "27d-readiness-probe": "no probes",
    "1.36.3/28g-created-after-the-signal": "a kubelet that starts again gives a rejected pod statuses of containers",
    "34-liveness-fails-always": "no probes",
}


class Container(NamedTuple):
    """The fields of a container's status on which a controller could base decisions."""

    name: str
    state: str
    reason: str
    exit_code: int | None
    restarts: int
    last_exit: int | None


class State(NamedTuple):
    """The fields of a pod on which a controller could base decisions."""

    phase: str
    reason: str
    containers: tuple[Container, ...]
    ready: str
    sandbox: str
    restarting: str
    disrupted: str
    grace: int | None


@dataclass(frozen=True)
class Act:
    """Something that others do to the pod or to its kubelet."""

    what: str
    grace: int = 0


GONE = "gone"
Item = State | Act | str


class SentMeta(HollowMeta, frozen=True):
    """The metadata that a tester sent."""

    finalizers: tuple[str, ...] = ()


class Sent(Struct, frozen=True):
    """The manifest that a tester sent."""

    metadata: SentMeta
    spec: HollowSpec


class Line(msgspec.Struct):
    """A line of a recording: an event or an action."""

    action: str = ""
    type: str = ""
    object: HollowPod | None = None


def container(status: ContainerStatus) -> Container:
    """Reduce the status of a container."""
    state, last = status.state, status.last_state.terminated
    kind, reason, exit_code = "", "", None
    if state.waiting is not None:
        kind, reason = "waits", state.waiting.reason
    elif state.terminated is not None:
        kind, reason, exit_code = "ended", state.terminated.reason, state.terminated.exit_code
    elif state.running is not None:
        kind = "runs"
    return Container(status.name, kind, reason, exit_code, status.restart_count, last.exit_code if last else None)


def reduced(pod: HollowPod) -> State:
    """Reduce a pod to what is compared."""
    status = pod.status

    def told(kind: str, *, reason: bool = False) -> str:
        condition = condition_of(status.conditions, kind)
        if condition is None:
            return ""
        return f"{condition.status} {condition.reason}".strip() if reason else condition.status

    return State(
        status.phase,
        status.reason,
        tuple(map(container, (*(status.init_container_statuses or ()), *(status.container_statuses or ())))),
        told("Ready", reason=True),
        told("PodReadyToStartContainers"),
        told("AllContainersRestarting"),
        told("DisruptionTarget"),
        pod.metadata.deletion_grace_period_seconds if pod.metadata.deletion_timestamp else None,
    )


def forgetful(state: State) -> State:
    """The state without the exits of earlier runs."""
    return state._replace(containers=tuple(c._replace(last_exit=None) for c in state.containers))


class Story(list[Item]):
    """States, each different from the one before, and in a recording the acts between them."""

    def __init__(self, play: Play) -> None:
        super().__init__()
        self._play = play

    def tell(self, state: State) -> None:
        """Add a state if it differs from the last one."""
        if self._play.forgets:
            state = forgetful(state)
        kinds = {c.state for c in state.containers}
        if self._play.quick and "runs" in kinds:
            return
        if self._play.ended_early and state.phase == "Running" and kinds == {"ended"} and state.grace:
            return
        if [item for item in self if not isinstance(item, Act)][-1:] != [state]:
            self.append(state)


def read(recording: History) -> Iterator[tuple[Sent, list[Line]]]:
    """Each pod of a recording: as it was sent, and its lines."""
    for life in recording.lives:
        lines = [msgspec.convert(step, Line, from_attributes=True) for step in life.steps]
        yield msgspec.convert(life.manifest, Sent), lines


def recorded(lines: list[Line], play: Play) -> Story:
    """The content of a recording: states, and what others did between them."""
    story = Story(play)
    before, away, forced = HollowPod(metadata=HollowMeta()), False, False
    for line in lines:
        action = line.action
        if "ConfigMap" in action:
            story.append(Act("mend"))
        elif action == "kubelet killed":
            story.append(Act(action))
        elif action.startswith("kubelet started"):
            story.append(Act("kubelet started"))
        away = action == "kubelet killed" or (away and not action.startswith("kubelet started"))
        forced = forced or action == "delete grace=0"
        pod = line.object
        if pod is None:
            continue
        story.extend(acts_between(before, pod, away=away, forced=forced))
        story.tell(reduced(pod))
        before = pod
        if line.type == "DELETED":
            story.append(GONE)
    return story


def acts_between(before: HollowPod, after: HollowPod, *, away: bool, forced: bool) -> Iterator[Act]:
    """What others than the kubelet did between two events."""
    disrupted = condition_of(after.status.conditions, "DisruptionTarget")
    if (
        disrupted is not None
        and disrupted.reason != "TerminationByKubelet"
        and condition_of(before.status.conditions, "DisruptionTarget") is None
    ):
        yield Act("disrupt")
    old, new = (condition_of(pod.status.conditions, "Ready") for pod in (before, after))
    if away and old is not None and new is not None and old.status != new.status:
        yield Act("not ready")
    was, grace = before.metadata, after.metadata.deletion_grace_period_seconds
    if after.metadata.deletion_timestamp is None or grace is None:
        return
    first = was.deletion_timestamp is None
    if first or (grace != was.deletion_grace_period_seconds and (grace > 0 or forced)):
        yield Act("delete", grace)


@dataclass
class Server:
    """The API server, and all others, for one pod."""

    pod: HollowPod
    kubernetes: Kubernetes
    story: Story
    held: bool
    now: datetime = START

    def write(self, status: HollowStatus) -> None:
        """Accept a status from the node."""
        self.pod = replace(self.pod, status=status)
        self.story.tell(reduced(self.pod))

    def delete(self, grace: int) -> None:
        """Delete the pod; it goes at once if it has ended or `grace` is 0, and no finalizer keeps it."""
        meta = self.pod.metadata
        if self.pod.status.phase in TERMINAL:
            grace = 0
        if meta.deletion_timestamp is None and self.kubernetes.has(POD_GENERATION):
            meta = replace(meta, generation=meta.generation + 1)
        moment = self.now.replace(microsecond=0) + timedelta(seconds=grace)
        self.pod = replace(
            self.pod, metadata=replace(meta, deletion_timestamp=moment, deletion_grace_period_seconds=grace)
        )
        self.story.tell(reduced(self.pod))
        self.collect()

    def collect(self) -> None:
        """Remove the pod if nothing keeps it any more."""
        meta = self.pod.metadata
        if meta.deletion_timestamp and meta.deletion_grace_period_seconds == 0 and not self.held:
            self.story.append(GONE)

    def release(self) -> None:
        """Remove the finalizer, as its owner does when the kubelet has nothing more to report."""
        self.held = False
        self.collect()

    def set(self, kind: str, *, holds: bool) -> None:
        """Set a condition."""
        conditions = set_condition(self.pod.status.conditions, kind, holds=holds, now=self.now)
        self.write(replace(self.pod.status, conditions=conditions))

    def carry_out(self, act: Act, play: Play) -> None:
        """Do what a recording says that others did."""
        meta = self.pod.metadata
        match act.what:
            case "delete":
                self.delete(act.grace)
            case "disrupt":
                if self.kubernetes.has(DISRUPTION_TARGET):
                    self.set("DisruptionTarget", holds=True)
            case "not ready":
                self.set("Ready", holds=False)
            case "mend":
                self.pod = replace(self.pod, metadata=replace(meta, annotations=play.annotations(play.fixed)))
            case "kubelet started":
                self.now += timedelta(seconds=AWAY_S)


def played(sent: Sent, play: Play, kubernetes: Kubernetes, plan: Story) -> Story:
    """Let the hollow node play a pod, while others do to it what the recording says, at the same states."""
    story = Story(play)
    generation = 1 if kubernetes.has(POD_GENERATION) else 0
    meta = HollowMeta(name="p", namespace="ns", uid="u", generation=generation, annotations=play.annotations(play.run))
    pod = HollowPod(metadata=meta, spec=replace(sent.spec, node_name="node"))
    server = Server(pod, kubernetes, story, held=bool(sent.metadata.finalizers))
    story.tell(reduced(server.pod))
    place = Place("node", "192.0.2.1", "10.244.0.1", TIMING, kubernetes)
    acts = [index for index, item in enumerate(plan) if isinstance(item, Act)]
    away, look_at = False, server.now
    for _ in range(1000):
        if GONE in story:
            break
        if acts and list(story) == [item for item in plan[: acts[0]] if not isinstance(item, Act)]:
            act = plan[acts.pop(0)]
            assert isinstance(act, Act)
            away = act.what == "kubelet killed" or (away and act.what != "kubelet started")
            server.carry_out(act, play)
            look_at = server.now
            continue
        if away:
            break
        server.now = max(server.now, look_at)
        step = advance(server.pod, parse_script(server.pod), server.pod.status, server.now, place)
        look_at = step.look_at or server.now
        if step.status != server.pod.status:
            server.write(step.status)
        elif step.look_at is None and server.pod.metadata.deletion_grace_period_seconds == 0:
            server.release()
        elif step.look_at is None and step.removal is Removal.NONE:
            break
        if step.removal is Removal.FINAL and server.pod.metadata.deletion_grace_period_seconds:
            server.delete(0)
    return story


def plays_of(recording: History) -> tuple[Play, ...]:
    """The plays of a recording, () if it is left out."""
    found = recording.entry(PLAYED) or ()
    return (found,) if isinstance(found, Play) else found


@for_each("recording", [each for each in histories() if plays_of(each)])
def test_the_hollow_node_shows_the_states_that_a_real_kubelet_showed(recording: History) -> None:
    """M1, M2, M3, M4, M10: the old and the new kubelet differ in how they end, restart and delete pods."""
    pods, plays = list(read(recording)), plays_of(recording)
    assert len(pods) == len(plays)
    for (sent, lines), play in zip(pods, plays, strict=True):
        plan = recorded(lines, play)
        story = played(sent, play, Kubernetes.parse(recording.version), plan)
        assert list(story) == [item for item in plan if not isinstance(item, Act)]


def test_every_recording_is_played_or_left_out_for_a_reason() -> None:
    """So no recording is forgotten."""
    assert [each.name for each in histories() if not plays_of(each) and each.entry(LEFT_OUT) is None] == []
    known = {name for each in histories() for name in (each.name, each.scenario)}
    assert known.issuperset({*PLAYED, *LEFT_OUT})
